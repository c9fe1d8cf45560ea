"""Look-ahead Hamiltonian Monte Carlo (Sohl-Dickstein, Mudigonda and DeWeese 2014), around any reversible operator."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from leapling.energy import Energy, as_energy
from leapling.kernels.base import (
    DIVERGENCE_THRESHOLD,
    Info,
    Kernel,
    Phase,
    State,
    evaluate,
    hamiltonian,
    refresh,
    require,
    select,
)
from leapling.kernels.hmc import HMC


class MovingState(State):
    """A state that keeps its momentum and its direction from one transition to the next."""

    momentum: Float[Array, "dim *chains"]
    direction: Bool[Array, "*chains"]

    @property
    def phase(self) -> Phase:
        return Phase(State(self.position, self.energy, self.gradient), self.momentum, self.direction)


def moving(phase: Phase) -> MovingState:
    state = phase.state
    return MovingState(state.position, state.energy, state.gradient, phase.momentum, phase.direction)


class LAHMC(Kernel):
    """Up to K trajectories of `operator`, one after the other, until one is landed on; the flip F if none is.

    `operator` is HMC, where F negates v, or a trained L2HMC, where F flips d, v stays, and every ratio carries the
    log|J| of its map. Then the momentum is refreshed in part: v sqrt(1 - beta) + n sqrt(beta). The kernel is not
    reversible; run backward it is `reversed()`. A transition is charged the trajectories that its own chain needed: in
    a batch, chains that have landed wait for the others.
    """

    operator: Any
    num_trajectories: int = eqx.field(static=True)  # K
    refreshment: Float[Array, ""]  # beta

    def __init__(self, operator: Kernel, num_trajectories: int = 4, refreshment: ArrayLike = 0.1):
        if not (hasattr(operator, "propose") and hasattr(operator, "flip")):
            raise ValueError(
                f"LAHMC needs an operator with propose and flip, such as HMC or L2HMC, got {type(operator).__name__}"
            )
        if num_trajectories < 1:
            raise ValueError(f"num_trajectories must be at least 1, got {num_trajectories}")
        require(refreshment, lambda v: 0 < v <= 1, "refreshment must be above 0 and at most 1")
        self.operator = operator
        self.num_trajectories = int(num_trajectories)
        real = jax.tree.leaves(eqx.filter(operator, eqx.is_inexact_array))
        self.refreshment = jnp.asarray(refreshment, real[0].dtype if real else float)

    @classmethod
    def over_hmc(
        cls, step_size: ArrayLike, num_steps: ArrayLike, num_trajectories: int = 4, refreshment: ArrayLike = 0.1
    ) -> "LAHMC":
        """The published method, on the leapfrog steps of HMC."""
        return cls(HMC(step_size, num_steps), int(num_trajectories), refreshment)

    def __getattr__(self, name: str) -> Any:
        if name in ("dim", "step_size"):  # what others ask a kernel for, where it knows
            return getattr(self.operator, name)
        raise AttributeError(name)

    def init(self, energy, position, *, key=None):
        if key is None:
            raise ValueError("LAHMC keeps its momentum and draws the first one: give init a key")
        return moving(refresh(evaluate(energy, position), key=key))

    def step(self, energy, state: MovingState, *, key):  # pyright: ignore[reportIncompatibleMethodOverride]
        key_move, key_refresh = jax.random.split(key)
        phase, info = self.look_ahead(as_energy(energy), state.phase, key=key_move)
        return moving(self.refresh_in_part(phase, key=key_refresh)), info

    def reversed(self) -> "ReversedLAHMC":
        return ReversedLAHMC(self)

    def refresh_in_part(self, phase: Phase, *, key) -> Phase:
        beta = self.refreshment.astype(phase.momentum.dtype)
        noise = jax.random.normal(key, phase.momentum.shape, phase.momentum.dtype)
        return Phase(phase.state, jnp.sqrt(1 - beta) * phase.momentum + jnp.sqrt(beta) * noise, phase.direction)

    def look_ahead(self, energy: Energy, phase: Phase, *, key) -> tuple[Phase, Info]:
        """The move without the refreshment."""
        key_propose, key_land = jax.random.split(key)
        first = hamiltonian(energy, phase)
        uniform = jax.random.uniform(key_land, first.shape, first.dtype)
        zero = jnp.zeros_like(first)
        # log of p|J| of every state of the path, relative to the first; -inf is not there yet, or never will be.
        weights = jnp.full((self.num_trajectories + 1, *first.shape), -jnp.inf, first.dtype).at[0].set(0)

        def is_any_left(carry):
            ahead, info, _ = carry
            return (ahead[0] <= self.num_trajectories) & ~jnp.all(info.is_accepted)

        def look_further(carry):
            (a, here, weights), info, landed = carry
            proposal = self.operator.propose(energy, here, key=key_propose)  # F L: the same L every time
            there = self.operator.flip(proposal.phase)
            is_waiting = ~info.is_accepted
            log_jacobian = jnp.where(is_waiting, info.log_jacobian + proposal.log_jacobian, info.log_jacobian)
            energy_change = jnp.where(is_waiting, hamiltonian(energy, there) - first, info.energy_change)
            weight = log_jacobian - energy_change
            weights = weights.at[a].set(jnp.where(jnp.isfinite(weight), weight, -jnp.inf))
            lands = is_waiting & (uniform < jnp.sum(landing_probabilities(weights), axis=0))
            is_bad = is_waiting & (~jnp.isfinite(weight) | (energy_change > DIVERGENCE_THRESHOLD))
            info = Info(
                acceptance=jnp.where(lands, jnp.ones_like(first), info.acceptance),
                is_accepted=info.is_accepted | lands,
                proposal=select(is_waiting, there.state, info.proposal),
                log_jacobian=log_jacobian,
                energy_change=energy_change,
                is_divergent=info.is_divergent | is_bad,
                num_gradients=info.num_gradients + jnp.where(is_waiting, proposal.num_gradients, 0),
            )
            return (a + 1, select(is_waiting, there, here), weights), info, select(lands, there, landed)

        no = zero > 0
        nothing = Info(zero, no, phase.state, zero, zero, no, jnp.zeros(zero.shape, jnp.int32))
        ahead = (jnp.asarray(1, jnp.int32), phase, weights)
        _, info, end = jax.lax.while_loop(is_any_left, look_further, (ahead, nothing, self.operator.flip(phase)))
        return end, info


class ReversedLAHMC(Kernel):
    """The chain backward in time: F K F with the refreshment first. p(xi) K(xi, xi') = p(F xi') K(F xi', F xi)."""

    kernel: LAHMC

    def init(self, energy, position, *, key=None):
        return self.kernel.init(energy, position, key=key)

    def step(self, energy, state: MovingState, *, key):  # pyright: ignore[reportIncompatibleMethodOverride]
        key_move, key_refresh = jax.random.split(key)
        flip = self.kernel.operator.flip
        phase = self.kernel.refresh_in_part(state.phase, key=key_refresh)
        phase, info = self.kernel.look_ahead(as_energy(energy), flip(phase), key=key_move)
        return moving(flip(phase)), info

    def reversed(self) -> LAHMC:
        return self.kernel


def landing_probabilities(weights: Float[Array, "states *chains"]) -> Float[Array, "further *chains"]:
    """From the first state of a path, with log weights, the probability of landing on each further one.

    pi(i, j) = min(r(i, j), p_j / p_i r(j, i)), where r(i, j) is what is left at i after every state between i and j: a
    recursion over their distance. What is left is the same seen from either end, since L^b F L^a = F L^(a-b).
    """
    num = weights.shape[0]
    left = {(i, j): jnp.ones_like(weights[0]) for i in range(num) for j in range(num)}

    def landing(i: int, j: int) -> Array:
        change = weights[j] - weights[i]
        ratio = jnp.exp(jnp.minimum(change, 40))  # times one rounding error of what is left it is more than all
        return jnp.where(jnp.isfinite(change), jnp.minimum(left[i, j], ratio * left[j, i]), 0)

    row = []
    for distance in range(1, num):
        for i in range(num - distance):
            j = i + distance
            ahead, back = landing(i, j), landing(j, i)
            if i == 0:
                row.append(ahead)
            if j + 1 < num:
                left[i, j + 1] = jnp.maximum(left[i, j] - ahead, 0)
            if i > 0:
                left[j, i - 1] = jnp.maximum(left[j, i] - back, 0)
    return jnp.stack(row)
