"""Where chains go, as an objective sees it: after one transition, or after several in a row."""

from collections.abc import Callable
from itertools import accumulate

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leapling.kernels import Info, Kernel, State
from leapling.kernels.base import KeyArray, select

# A share of each chain, and the state it goes to.
Move = tuple[Float[Array, "*chains"], State]


class Lagged(Info):
    """What became of the start several transitions later. Acceptance and proposal are those of the last transition."""

    before_last: State  # where a chain stays that refuses the last proposal
    weight: Float[Array, "*chains"]  # 1, with the gradient of the decisions before the last


class Rolled(Info):
    """Several transitions in a row, as one; `lags[k - 1]` is what became of the start after k of them."""

    lags: tuple[Lagged, ...]


def moves(start: State, info: Info) -> list[Move]:
    """Which share of each chain goes where; the rest of it, 1 minus the shares, stays at the start.

    A state that is not finite is replaced by the start, that is by resting, before any arithmetic has a gradient.
    """
    if isinstance(info, Lagged):
        share = info.weight * info.acceptance
        ways = [(share, info.proposal), (info.weight - share, info.before_last)]
    else:
        ways = [(info.acceptance, info.proposal)]
    return [(share, select(is_finite(state), state, start)) for share, state in ways]


def is_finite(state: State) -> Array:
    return jnp.isfinite(state.energy) & jnp.all(jnp.isfinite(state.position), axis=0)


def squared_change(statistic: Callable[[State], Array], start: State, info: Info) -> Float[Array, ""]:
    """E[(f' - f)^2] over the batch and the last accept decision."""
    now = statistic(start)
    total = jnp.zeros_like(now)
    for share, state in moves(start, info):
        after = statistic(state)
        after = jnp.where(jnp.isfinite((after - now) ** 2), after, now)  # what overflows rests
        total = total + share * (after - now) ** 2
    return jnp.mean(total)


def roll(kernel: Kernel, energy: Callable, start: State, num: int, *, key: KeyArray) -> tuple[State, Rolled]:
    """`num` transitions. At each lag the last decision counts by its probability, those before by what was drawn.

    Draws a of the decisions have a gradient of their own: that of E[g] is E[grad g + g grad log P(a)]. The
    weight exp(log P - constant), the constant being log P itself, is 1, and brings the second term into every mean
    that it multiplies (Foerster et al. 2018, DiCE), so that nothing is neglected.
    """
    states, infos = [start], []
    for key_of_one in jax.random.split(key, num):
        state, info = kernel.step(energy, states[-1], key=key_of_one)
        states.append(state)
        infos.append(info)
    none = jnp.zeros_like(start.energy)
    decided = accumulate((log_decision(info) for info in infos[:-1]), initial=none)
    cost = accumulate(info.num_gradients for info in infos)
    lags = tuple(
        Lagged(
            **{**vars(info), "num_gradients": num_gradients},
            before_last=before,
            weight=jnp.exp(log_probability - jax.lax.stop_gradient(log_probability)),
        )
        for info, before, log_probability, num_gradients in zip(infos, states, decided, cost, strict=False)
    )
    of_all = {
        "acceptance": jnp.mean(jnp.stack([info.acceptance for info in infos]), axis=0),
        "is_accepted": jnp.any(jnp.stack([info.is_accepted for info in infos]), axis=0),
        "is_divergent": jnp.any(jnp.stack([info.is_divergent for info in infos]), axis=0),
        "num_gradients": lags[-1].num_gradients,
    }
    return states[-1], Rolled(**{**vars(infos[-1]), **of_all}, lags=lags)


def log_decision(info: Info) -> Float[Array, "*chains"]:
    """log A of a chain that accepted, log(1 - A) of one that refused; neither logarithm sees a 0."""
    accepted = jnp.log(jnp.where(info.is_accepted, info.acceptance, 1))
    refused = jnp.log1p(-jnp.where(info.is_accepted, 0, info.acceptance))
    return accepted + refused
