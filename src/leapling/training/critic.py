"""The critic of A-NICE-MC: it looks at two states of a chain at once, so that a proposal which stays is found out."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float, PRNGKeyArray

from leapling.kernels import NICE
from leapling.kernels.mlp import MLP
from leapling.training.adversarial_recipe import AdversarialRecipe


def make_critic(dim: int, widths: Sequence[int], *, key: PRNGKeyArray, dtype: DTypeLike) -> MLP:
    return MLP((2 * dim, *widths, 1), slope=0.2, key=key, dtype=dtype)


def critic_loss(
    critic: MLP, real: Float[Array, "pair num"], fake: Float[Array, "pair num"], penalty: float, *, key: Array
) -> Float[Array, ""]:
    """Minus the Wasserstein distance it sees, plus a penalty that keeps its slope near 1 (Gulrajani et al. 2017)."""
    scores = critic(jnp.concatenate([fake, real], axis=1))[0]
    share = jax.random.uniform(key, (1, real.shape[1]), real.dtype)
    between = share * real + (1 - share) * fake
    slopes = jax.grad(lambda pairs: jnp.sum(critic(pairs)))(between)
    # A root of zero has no gradient.
    norm = jnp.sqrt(jnp.sum(slopes**2, axis=0) + 1e-12)
    num = real.shape[1]
    return jnp.mean(scores[:num]) - jnp.mean(scores[num:]) + penalty * jnp.mean((norm - 1) ** 2)


def real_pairs(draws: Float[Array, "dim draws"], num: int, *, key: Array) -> Float[Array, "pair num"]:
    """Two independent draws each: what a chain that mixes at once would do."""
    chosen = jax.random.randint(key, (2, num), 0, draws.shape[1])
    return jnp.concatenate([draws[:, chosen[0]], draws[:, chosen[1]]])


def walk(
    kernel: NICE, x: Float[Array, "dim num"], most: int, *, key: Array
) -> tuple[Float[Array, "dim num"], Float[Array, "dim num"]]:
    """The end of 1 to `most` proposals in a row, each chain with a number of its own, and its last momentum.

    Forward only, without the accept step and without the energy: the method of the authors.
    """
    key_length, key_momentum = jax.random.split(key)
    length = jax.random.randint(key_length, x.shape[1:], 1, most + 1)
    momenta = jax.random.normal(key_momentum, (most, *x.shape), x.dtype)
    forward = jnp.ones(x.shape[1:], bool)

    def step(carry, at):
        i, momentum = at
        moved = kernel.couple(carry[0], momentum, forward)[:2]
        return jax.tree.map(lambda new, old: jnp.where(i < length, new, old), moved, carry), None

    end, _ = jax.lax.scan(step, (x, momenta[0]), (jnp.arange(most, dtype=length.dtype), momenta))
    return end


def pairs_of_walks(
    kernel: NICE,
    recipe: AdversarialRecipe,
    data: Float[Array, "dim num"],
    noise: Float[Array, "dim num"],
    *,
    key: Array,
) -> tuple[Float[Array, "pair all"], Float[Array, "dim momenta"]]:
    """Pairs (start, end) that the critic should take for real ones, and the momenta at the end of the walks.

    From noise, B proposals must reach the target; from there, and from data, M proposals must reach it anew.
    """
    key_noise, key_data = jax.random.split(key)
    arrived, momentum = walk(kernel, noise, recipe.noise_steps, key=key_noise)
    start = jnp.concatenate([data, jax.lax.stop_gradient(arrived)], axis=1)
    end, later = walk(kernel, start, recipe.pair_steps, key=key_data)
    pairs = jnp.concatenate([jnp.concatenate([data, arrived], axis=1), end])
    return pairs, jnp.concatenate([momentum, later], axis=1)
