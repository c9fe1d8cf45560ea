"""Adversarial training of a volume-preserving proposal: A-NICE-MC (Song, Zhao and Ermon 2017)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int
from tqdm import tqdm

from leapling.checks import check_start, dimension
from leapling.kernels import NICE
from leapling.kernels.mlp import MLP
from leapling.training.adversarial_recipe import AdversarialRecipe
from leapling.training.critic import critic_loss, make_critic, pairs_of_walks, real_pairs
from leapling.training.loop import Initial
from leapling.training.train import GaussianStart

METRICS = ("loss", "critic_loss", "kinetic", "acceptance", "skipped")


class AdversarialState(eqx.Module):
    """All that changes: the kernel and its critic, their optimisers, and the draws that are taken for real."""

    kernel: NICE
    critic: MLP
    kernel_optimizer: Any
    critic_optimizer: Any
    draws: Float[Array, "2 dim draws"]  # of the last two bootstraps
    acceptance: Float[Array, ""]  # of the last one
    root: Array  # key data; the key of iteration i is fold_in(root, i)
    iteration: Int[Array, ""]
    history: Float[Array, "iterations metrics"]


@dataclass(frozen=True)
class AdversarialResult:
    """The last kernel, and what it took; `num_gradients` counts evaluations of the energy, all for bootstraps."""

    kernel: NICE
    num_gradients: int
    history: dict[str, np.ndarray]
    compile_seconds: float
    seconds: float


def begin(
    kernel: NICE, energy: Callable, recipe: AdversarialRecipe, *, seed: int, initial: Initial
) -> AdversarialState:
    # Streams that no iteration uses: one for the critic, and one that tells where the energy is not finite.
    root = jax.random.key(seed)
    key_start, key_critic = jax.random.split(jax.random.fold_in(root, 2**31 - 2))
    check_start(kernel.init(energy, initial(key_start, recipe.num_chains)))
    critic = make_critic(kernel.dim, recipe.critic_widths, key=key_critic, dtype=kernel.dtype)
    num_draws = recipe.num_chains * recipe.bootstrap_steps
    return AdversarialState(
        kernel=kernel,
        critic=critic,
        kernel_optimizer=recipe.optimizer().init(eqx.filter(kernel, eqx.is_inexact_array)),
        critic_optimizer=recipe.optimizer(recipe.critic_steps).init(eqx.filter(critic, eqx.is_inexact_array)),
        draws=jnp.zeros((2, kernel.dim, num_draws), kernel.dtype),
        acceptance=jnp.asarray(0, kernel.dtype),
        root=jax.random.key_data(root),
        iteration=jnp.asarray(0, jnp.int32),
        history=jnp.full((recipe.num_iterations, len(METRICS)), jnp.nan, kernel.dtype),
    )


def bootstrap(
    energy: Callable, recipe: AdversarialRecipe, initial: Initial, state: AdversarialState, key: Array
) -> AdversarialState:
    """Chains of the kernel as it is, accept step and all, from the noise: half of the draws are replaced by theirs."""
    chains = state.kernel.init(energy, initial(jax.random.fold_in(key, 0), recipe.num_chains))

    def step(chains, key):
        chains, info = state.kernel.step(energy, chains, key=key)
        return chains, (chains.position, jnp.mean(info.acceptance))

    keys = jax.random.split(jax.random.fold_in(key, 1), recipe.burn_in + recipe.bootstrap_steps)
    _, (positions, acceptance) = jax.lax.scan(step, chains, keys)
    new = jnp.moveaxis(positions[recipe.burn_in :], 1, 0).reshape(state.kernel.dim, -1)
    old = jnp.where(state.iteration > 0, state.draws[1], new)
    return eqx.tree_at(
        lambda s: (s.draws, s.acceptance),
        state,
        (jnp.stack([old, new]), jnp.mean(acceptance[recipe.burn_in :])),
    )


def iterate(recipe: AdversarialRecipe, initial: Initial, state: AdversarialState) -> AdversarialState:
    """A few steps of the critic, then one of the kernel."""
    key = jax.random.fold_in(jax.random.wrap_key_data(state.root), state.iteration)
    key_real, key_fake, key_critic, key_kernel = jax.random.split(key, 4)
    draws = jnp.moveaxis(state.draws, 1, 0).reshape(state.kernel.dim, -1)

    def fakes(kernel: NICE, key: Array, num: int):
        key_data, key_noise, key_walk = jax.random.split(key, 3)
        data = draws[:, jax.random.randint(key_data, (num // 2,), 0, draws.shape[1])]
        return pairs_of_walks(kernel, recipe, data, initial(key_noise, num // 2), key=key_walk)

    # The kernel stands still while the critic learns: the pairs for all of its steps are made in one batch.
    num = recipe.critic_steps
    fake, _ = fakes(state.kernel, key_fake, num * recipe.batch_size)
    fake = jnp.moveaxis(fake.reshape(fake.shape[0], -1, num), 2, 0)
    real = real_pairs(draws, num * recipe.batch_size, key=key_real)
    real = jnp.moveaxis(real.reshape(real.shape[0], -1, num), 2, 0)

    def critic_step(carry, batch):
        critic, optimizer = carry
        real, fake, key = batch
        loss, gradient = eqx.filter_value_and_grad(critic_loss)(critic, real, fake, recipe.penalty, key=key)
        critic, optimizer, is_finite = _update(recipe.optimizer(num), critic, optimizer, loss, gradient)
        return (critic, optimizer), (loss, is_finite)

    keys = jax.random.split(key_critic, num)
    carry, (critic_losses, finite) = jax.lax.scan(
        critic_step, (state.critic, state.critic_optimizer), (real, fake, keys)
    )
    critic, critic_optimizer = carry

    def kernel_loss(kernel):
        fake, momentum = fakes(kernel, key_kernel, recipe.batch_size)
        # The cross-entropy of the momentum with N(0, I): without it the noise would be stored in v.
        kinetic = jnp.mean(momentum**2) / 2
        return recipe.momentum_weight * kinetic - jnp.mean(critic(fake)), kinetic

    (loss, kinetic), gradient = eqx.filter_value_and_grad(kernel_loss, has_aux=True)(state.kernel)
    kernel, kernel_optimizer, is_finite = _update(
        recipe.optimizer(), state.kernel, state.kernel_optimizer, loss, gradient
    )
    skipped = ~(is_finite & jnp.all(finite))
    row = [loss, jnp.mean(critic_losses), kinetic, state.acceptance, skipped.astype(loss.dtype)]
    return AdversarialState(
        kernel=kernel,
        critic=critic,
        kernel_optimizer=kernel_optimizer,
        critic_optimizer=critic_optimizer,
        draws=state.draws,
        acceptance=state.acceptance,
        root=state.root,
        iteration=state.iteration + 1,
        history=state.history.at[state.iteration].set(jnp.stack(row)),
    )


def _update(
    optimizer: optax.GradientTransformation, model: Any, state: Any, loss: Array, gradient: Any
) -> tuple[Any, Any, Bool[Array, ""]]:
    """One step of Adam; one with a non-finite gradient is left out, and counted."""
    with jax.numpy_dtype_promotion("standard"):  # optax mixes its integer count with reals
        updates, new_state = optimizer.update(gradient, state)
    is_finite = jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(gradient))
    new = (eqx.apply_updates(model, updates), new_state)
    model, state = jax.tree.map(lambda a, b: jnp.where(is_finite, a, b) if eqx.is_array(a) else a, new, (model, state))
    return model, state, is_finite


def _block(
    energy: Callable, recipe: AdversarialRecipe, initial: Initial, state: AdversarialState, num: Array
) -> AdversarialState:
    """A bootstrap and `num` iterations; a traced number, so that a short last block compiles nothing."""
    key = jax.random.fold_in(jax.random.wrap_key_data(state.root), recipe.num_iterations + state.iteration)
    state = bootstrap(energy, recipe, initial, state, key)
    arrays, static = eqx.partition(state, eqx.is_array)

    def body(_, arrays):
        return eqx.filter(iterate(recipe, initial, eqx.combine(arrays, static)), eqx.is_array)

    return eqx.combine(jax.lax.fori_loop(0, num, body, arrays), static)


_run_block: Any = eqx.filter_jit(_block)


def train_adversarial(
    kernel: NICE,
    energy: Callable,
    recipe: AdversarialRecipe | None = None,
    *,
    seed: int = 0,
    dim: int | None = None,
    progress: bool = True,
) -> AdversarialResult:
    """Train a NICE kernel against a critic of pairs of states; the real ones come from its own chains."""
    if not isinstance(kernel, NICE):
        raise ValueError(
            f"adversarial training moves a NICE kernel, got {type(kernel).__name__}; "
            "use leapling.tune for HMC and leapling.train for L2HMC"
        )
    recipe = AdversarialRecipe() if recipe is None else recipe
    initial = GaussianStart(dimension(kernel, energy, dim), recipe.initial_scale, kernel.dtype)
    state = begin(kernel, energy, recipe, seed=seed, initial=initial)
    num = jnp.asarray(recipe.refresh_every, jnp.int32)
    began = time.perf_counter()
    compiled = _run_block.lower(energy, recipe, initial, state, num).compile()
    compile_seconds = time.perf_counter() - began
    began = time.perf_counter()
    num_bootstraps = 0
    with tqdm(total=recipe.num_iterations, desc="training", unit="it", disable=None if progress else True) as bar:
        while (done := int(state.iteration)) < recipe.num_iterations:
            num = min(recipe.refresh_every, recipe.num_iterations - done)
            state = compiled(energy, recipe, initial, state, jnp.asarray(num, jnp.int32))
            num_bootstraps += 1
            recent = np.mean(np.asarray(state.history)[done : done + num], axis=0)
            shown = dict(zip(METRICS, recent, strict=True))
            bar.set_postfix({name: f"{shown[name]:.3g}" for name in METRICS[:4]}, refresh=False)
            bar.update(num)
    rows = np.asarray(state.history)
    return AdversarialResult(
        kernel=state.kernel,
        num_gradients=recipe.num_chains * (1 + num_bootstraps * recipe.gradients_per_chain),
        history={name: rows[:, i] for i, name in enumerate(METRICS)},
        compile_seconds=compile_seconds,
        seconds=time.perf_counter() - began,
    )
