"""The contract of a kernel, and the accept step, written once for every Metropolis kernel.

Axis 0 is the coordinate, every further axis is chains: the same lines serve one chain, shape (dim,), and a
batch, shape (dim, chains).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Key, PRNGKeyArray

from leapling.energy import Energy, as_energy

# An energy error this large means the integrator has left the target (the usual threshold of HMC samplers).
DIVERGENCE_THRESHOLD = 1000.0

KeyArray = PRNGKeyArray | Key[Array, ""]


class State(eqx.Module):
    """What a chain carries. Energy and gradient are untempered and belong to one energy: another needs `init`."""

    position: Float[Array, "dim *chains"]
    energy: Float[Array, "*chains"]
    gradient: Float[Array, "dim *chains"]


class Phase(eqx.Module):
    """The augmented state xi = (x, v, d); direction True is d = +1."""

    state: State
    momentum: Float[Array, "dim *chains"]
    direction: Bool[Array, "*chains"]


class Proposal(eqx.Module):
    """A deterministic move of the phase; log_jacobian is -inf where the trajectory stopped being finite."""

    phase: Phase
    log_jacobian: Float[Array, "*chains"]
    num_gradients: Int[Array, ""]


class Info(eqx.Module):
    """What one transition reports."""

    acceptance: Float[Array, "*chains"]
    is_accepted: Bool[Array, "*chains"]
    proposal: State
    log_jacobian: Float[Array, "*chains"]
    energy_change: Float[Array, "*chains"]
    is_divergent: Bool[Array, "*chains"]
    num_gradients: Int[Array, "*chains"]


class Kernel(eqx.Module):
    """A Markov transition that leaves exp(-U / temperature) invariant."""

    @abstractmethod
    def init(self, energy: Callable, position: Float[Array, "dim *chains"], *, key: KeyArray | None = None) -> State:
        """The first state: one evaluation of the energy. The key is for kernels that keep momentum."""

    @abstractmethod
    def step(self, energy: Callable, state: State, *, key: KeyArray) -> tuple[State, Info]:
        """One transition."""


class MetropolisKernel(Kernel):
    """Refresh momentum and direction, propose by an involution of the phase, accept or reject (eq. 2)."""

    @abstractmethod
    def propose(self, energy: Energy, phase: Phase, *, key: KeyArray) -> Proposal:
        """For a fixed key, an involution of (x, v, d): applied twice it returns where it started."""

    def init(self, energy, position, *, key=None):
        return evaluate(energy, position)

    def step(self, energy, state, *, key):
        energy = as_energy(energy)
        key_refresh, key_propose, key_accept = jax.random.split(key, 3)
        phase = refresh(state, key=key_refresh)
        proposal = self.propose(energy, phase, key=key_propose)
        log_ratio, energy_change = log_accept_ratio(energy, phase, proposal)

        # Compared in log space; a non-finite ratio is a rejection. Both branches of the select see finite values,
        # so that no NaN reaches the gradient of the acceptance probability.
        is_finite = jnp.isfinite(log_ratio)
        log_acceptance = jnp.where(is_finite, jnp.minimum(jnp.where(is_finite, log_ratio, 0), 0), -jnp.inf)
        uniform = jax.random.uniform(key_accept, log_ratio.shape, log_ratio.dtype)
        is_accepted = jnp.log(uniform) < log_acceptance
        info = Info(
            acceptance=jnp.exp(log_acceptance),
            is_accepted=is_accepted,
            proposal=proposal.phase.state,
            log_jacobian=proposal.log_jacobian,
            energy_change=energy_change,
            is_divergent=~is_finite | (energy_change > DIVERGENCE_THRESHOLD),
            num_gradients=jnp.broadcast_to(proposal.num_gradients, log_ratio.shape),
        )
        return select(is_accepted, proposal.phase.state, state), info


def evaluate(energy: Callable, position: Float[Array, "dim *chains"]) -> State:
    value, gradient = as_energy(energy).value_and_grad(position)
    return State(position, value, gradient)


def refresh(state: State, *, key: KeyArray) -> Phase:
    """The operator R: v ~ N(0, I), d uniform on {-1, +1}; one draw each for the whole batch."""
    key_momentum, key_direction = jax.random.split(key)
    momentum = jax.random.normal(key_momentum, state.position.shape, state.position.dtype)
    return Phase(state, momentum, jax.random.bernoulli(key_direction, shape=state.energy.shape))


def hamiltonian(energy: Energy, phase: Phase) -> Float[Array, "*chains"]:
    temperature = jnp.asarray(energy.temperature, phase.state.energy.dtype)
    return phase.state.energy / temperature + 0.5 * jnp.sum(phase.momentum**2, axis=0)


def inverse_temperature(energy: Energy, like: Array) -> Array:
    """What multiplies `like`, a gradient: one number, or one per chain."""
    beta = 1 / jnp.asarray(energy.temperature, like.dtype)
    return beta if beta.ndim == 0 else per_chain(beta, like)


def log_accept_ratio(
    energy: Energy, phase: Phase, proposal: Proposal
) -> tuple[Float[Array, "*chains"], Float[Array, "*chains"]]:
    """log of p(xi')|J| / p(xi), and the change in H."""
    energy_change = hamiltonian(energy, proposal.phase) - hamiltonian(energy, phase)
    return proposal.log_jacobian - energy_change, energy_change


StateLike = TypeVar("StateLike", State, Phase)


def select(condition: Bool[Array, "*chains"], if_true: StateLike, if_false: StateLike) -> StateLike:
    """Per chain, one state or the other."""
    return jax.tree.map(lambda a, b: jnp.where(per_chain(condition, a), a, b), if_true, if_false)


def per_chain(value: Array, like: Array) -> Array:
    """A value per chain, with the coordinate axis of `like` put before it where `like` has one."""
    return value if value.ndim == like.ndim else value[None]


def per_coordinate(value: Array, like: Array) -> Array:
    """A value per coordinate, with the chain axes of `like` put behind it."""
    return value.reshape(value.shape + (1,) * (like.ndim - 1))


Tree = TypeVar("Tree")


def cast(kernel: Tree, dtype: jax.typing.DTypeLike) -> Tree:
    """The same kernel (or any pytree) with every real array in `dtype`."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, kernel)


def require(value: ArrayLike, holds: Callable[[float], bool], need: str) -> None:
    """Refuse a bad hyperparameter at construction; a traced value cannot be looked at and passes."""
    if isinstance(value, Tracer):
        return
    number = float(np.asarray(value))
    if not (np.isfinite(number) and holds(number)):
        raise ValueError(f"{need}, got {number:g}")
