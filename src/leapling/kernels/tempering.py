"""Parallel tempering (Swendsen and Wang 1986; Geyer 1991): replicas at several temperatures, which trade places."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from leapling.energy import Energy, as_energy, tempered
from leapling.kernels.base import Info, Kernel, MetropolisKernel, State, evaluate, per_chain


class Replicas(State):
    """The cold replica is the state; the others have an axis of their own, behind that of the coordinates."""

    hotter: State

    @property
    def all(self) -> State:
        """(dim, replicas, *chains): to a kernel, more chains."""
        cold, axis = State(self.position, self.energy, self.gradient), _replica_axis(self.energy.ndim)
        return jax.tree.map(lambda a, b: jnp.concatenate([jnp.expand_dims(a, axis(b)), b], axis(b)), cold, self.hotter)


def as_replicas(state: State) -> Replicas:
    """From (dim, replicas, *chains), the cold one first."""
    axis = _replica_axis(state.energy.ndim - 1)
    cold = jax.tree.map(lambda a: jax.lax.index_in_dim(a, 0, axis(a), keepdims=False), state)
    hotter = jax.tree.map(lambda a: jax.lax.slice_in_dim(a, 1, None, axis=axis(a)), state)
    return Replicas(cold.position, cold.energy, cold.gradient, hotter)


def _replica_axis(num_chain_axes: int):
    return lambda a: a.ndim - num_chain_axes - 1


class TemperingInfo(Info):
    """`swap_acceptance`: for neighbours r and r + 1, whether it was their turn or not; near 0 the ladder is broken."""

    swap_acceptance: Float[Array, "pairs *chains"]


class Tempering(Kernel):
    """Replicas of exp(-beta_r U), 1 = beta_1 > ... > beta_R > 0, each moved by `operator`; then neighbours may swap.

    Pairs that start at an odd or at an even replica take turns at random, for each chain and whatever its state: that
    leaves the product of all tempered targets invariant, and the cold one, which is what `position` shows. Every
    replica is charged. An L2HMC with `context_dim` 1 is given log beta_r, so that one network serves all temperatures.
    """

    operator: Any
    inverse_temperatures: Float[Array, " replicas"]

    def __init__(self, operator: Kernel, inverse_temperatures: ArrayLike | Sequence[float]):
        betas = np.asarray(inverse_temperatures, float)
        if not isinstance(operator, MetropolisKernel):
            raise ValueError(
                f"tempering needs a Metropolis kernel such as HMC or L2HMC, got {type(operator).__name__}: one that "
                "keeps a momentum would have to trade it too"
            )
        if betas.ndim != 1 or len(betas) < 2 or betas[0] != 1 or not (np.diff(betas) < 0).all() or not betas[-1] > 0:
            raise ValueError(
                "inverse_temperatures must fall from 1 and stay above 0, two at least, got "
                f"{inverse_temperatures}; try np.geomspace(1, 0.05, 5)"
            )
        self.operator = operator
        real = jax.tree.leaves(eqx.filter(operator, eqx.is_inexact_array))
        self.inverse_temperatures = jnp.asarray(betas, real[0].dtype if real else float)

    def __getattr__(self, name: str) -> Any:
        if name in ("dim", "step_size"):  # what others ask a kernel for, where it knows
            return getattr(self.operator, name)
        raise AttributeError(name)

    def init(self, energy, position, *, key=None):
        """All replicas at one point: one evaluation."""
        state, num_hotter = evaluate(energy, position), len(self.inverse_temperatures) - 1
        axis = _replica_axis(state.energy.ndim)
        hotter = jax.tree.map(lambda a: jnp.repeat(jnp.expand_dims(a, axis(a) + 1), num_hotter, axis(a) + 1), state)
        return Replicas(state.position, state.energy, state.gradient, hotter)

    def step(self, energy, state: Replicas, *, key):  # pyright: ignore[reportIncompatibleMethodOverride]
        energy, (key_move, key_swap) = as_energy(energy), jax.random.split(key)
        moved, info = self.move(energy, state.all, key=key_move)
        end, is_swapped, swap_acceptance = self.swap(energy, moved, key=key_swap)
        return _report(energy, state, as_replicas(end), info, is_swapped, swap_acceptance)

    def reversed(self) -> "ReversedTempering":
        return ReversedTempering(self)

    def move(self, energy: Energy, replicas: State, *, key) -> tuple[State, Info]:
        """One step of the operator in every replica."""
        beta = self._per_replica(replicas.energy)
        operator = self.operator
        if getattr(operator, "context_dim", 0) == 1 and operator.context is None:
            operator = operator.given(jnp.log(beta)[None])
        temperature = jnp.asarray(energy.temperature, beta.dtype) / beta
        return operator.step(tempered(energy, temperature), replicas, key=key)

    def swap(
        self, energy: Energy, replicas: State, *, key
    ) -> tuple[State, Bool[Array, "pairs *chains"], Float[Array, "pairs *chains"]]:
        """The replicas after swaps of disjoint pairs, which pairs swapped, and with what probability."""
        u = replicas.energy
        beta = self._per_replica(u) / jnp.asarray(energy.temperature, u.dtype)
        # exp(-beta_r U_s - beta_s U_r) / exp(-beta_r U_r - beta_s U_s), s = r + 1; NaN swaps nothing.
        log_ratio = (beta[:-1] - beta[1:]) * (u[:-1] - u[1:])
        key_turn, key_accept = jax.random.split(key)
        turn = jax.random.randint(key_turn, u.shape[1:], 0, min(2, len(log_ratio)), jnp.int32)
        pair = jnp.arange(len(log_ratio), dtype=jnp.int32).reshape((-1,) + (1,) * turn.ndim)
        uniform = jax.random.uniform(key_accept, log_ratio.shape, u.dtype)
        is_swapped = (pair % 2 == turn[None]) & (jnp.log(uniform) < log_ratio)
        none = jnp.zeros((1, *turn.shape), bool)
        takes_next, takes_previous = jnp.concatenate([is_swapped, none]), jnp.concatenate([none, is_swapped])

        def trade(a: Array) -> Array:
            axis = a.ndim - u.ndim
            after, before = jnp.roll(a, -1, axis), jnp.roll(a, 1, axis)
            return jnp.where(per_chain(takes_next, a), after, jnp.where(per_chain(takes_previous, a), before, a))

        acceptance = jnp.exp(jnp.minimum(jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio), 0))
        return jax.tree.map(trade, replicas), is_swapped, acceptance

    def _per_replica(self, like: Float[Array, "replicas *chains"]) -> Array:
        return self.inverse_temperatures.astype(like.dtype).reshape((-1,) + (1,) * (like.ndim - 1))


class ReversedTempering(Kernel):
    """The chain backward in time: each part is its own reverse, and the swaps come first."""

    kernel: Tempering

    def init(self, energy, position, *, key=None):
        return self.kernel.init(energy, position, key=key)

    def step(self, energy, state: Replicas, *, key):  # pyright: ignore[reportIncompatibleMethodOverride]
        energy, (key_swap, key_move) = as_energy(energy), jax.random.split(key)
        swapped, is_swapped, swap_acceptance = self.kernel.swap(energy, state.all, key=key_swap)
        end, info = self.kernel.move(energy, swapped, key=key_move)
        return _report(energy, state, as_replicas(end), info, is_swapped, swap_acceptance)

    def reversed(self) -> Tempering:
        return self.kernel


def _report(
    energy: Energy, start: Replicas, end: Replicas, info: Info, is_swapped: Array, swap_acceptance: Array
) -> tuple[Replicas, TemperingInfo]:
    """Of the cold replica whether it is elsewhere, and its energy; of all the mean acceptance and the cost."""
    return end, TemperingInfo(
        acceptance=jnp.mean(info.acceptance, axis=0),
        is_accepted=info.is_accepted[0] | is_swapped[0],
        proposal=State(end.position, end.energy, end.gradient),
        log_jacobian=info.log_jacobian[0],
        energy_change=(end.energy - start.energy) / jnp.asarray(energy.temperature, end.energy.dtype),
        is_divergent=jnp.any(info.is_divergent, axis=0),
        num_gradients=jnp.sum(info.num_gradients, axis=0, dtype=jnp.int32),
        swap_acceptance=swap_acceptance,
    )
