"""Proposals from random phases and back again, their Jacobians, and how much they amplify rounding."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from leapling.diagnostics.exactness.subject import Subject, begin, precision
from leapling.energy import Energy
from leapling.kernels import Phase, Proposal, cast
from leapling.kernels.base import DIVERGENCE_THRESHOLD


@dataclass(frozen=True)
class Moves:
    """Proposals from random phases, and the proposals back from what they returned, in one precision."""

    dtype: str
    start: Float[np.ndarray, "double_dim chains"]
    end: Float[np.ndarray, "double_dim chains"]
    returned: Float[np.ndarray, "double_dim chains"]
    is_same_direction: Bool[np.ndarray, "chains"]
    log_jacobian: Float[np.ndarray, "2 chains"]  # there, back
    hamiltonian: Float[np.ndarray, "3 chains"]  # at the start, at the end, on return
    slope: Float[np.ndarray, "chains"]

    @property
    def is_regular(self) -> Bool[np.ndarray, "chains"]:
        with np.errstate(invalid="ignore"):
            change = self.hamiltonian[1] - self.hamiltonian[0]
        return np.isfinite(change) & np.isfinite(self.log_jacobian[0]) & (change <= DIVERGENCE_THRESHOLD)


@eqx.filter_jit
def _propose(kernel: Any, function: Callable, phase: Phase, key: Array) -> Proposal:
    return kernel.propose(Energy(function), phase, key=key)


def _jacobian(kernel: Any, function: Callable, x: Array, v: Array, d: Array, key: Array) -> Array:
    """d(x', v') / d(x, v), shape (row, column, chain). The kernels' guard has no forward rule: rows it is."""

    def end(x, v):
        energy = Energy(function)
        proposal = kernel.propose(energy, Phase(kernel.init(energy, x), v, d), key=key)
        return _stack(proposal.phase)

    value, pull_back = jax.vjp(end, x, v)
    # One cotangent serves every chain at once: chains do not mix, so each gets row i of its own Jacobian.
    basis = jnp.broadcast_to(jnp.eye(len(value), dtype=x.dtype)[:, :, None], (len(value), *value.shape))
    return jax.vmap(lambda row: jnp.concatenate(pull_back(row)))(basis)


_jacobian_compiled = eqx.filter_jit(_jacobian)


def _stack(phase: Phase) -> Array:
    return jnp.concatenate([phase.state.position, phase.momentum])


class Prober:
    """Runs proposals of the subject from fixed random phases."""

    def __init__(self, subject: Subject, num_points: int):
        self.subject = subject
        # Both precisions start from the same points, which float32 represents.
        self.x = subject.points(num_points).astype(np.float32)
        self.v = subject.random("momenta").standard_normal(self.x.shape).astype(np.float32)
        self.d = np.arange(self.x.shape[1]) % 2 == 0

    def _bind(self, dtype: str):
        subject = self.subject
        kernel, function = cast(subject.kernel, dtype), cast(subject.function, dtype)
        return kernel, function, jnp.asarray(self.x, dtype), jnp.asarray(self.v, dtype), jnp.asarray(self.d)

    def moves(self, dtype: str) -> Moves:
        with precision(dtype):
            kernel, function, x, v, d = self._bind(dtype)
            key = self.subject.key("propose")
            phases = [Phase(begin(kernel, function, x, key), v, d)]
            log_jacobians = []
            for _ in range(2):
                proposal = _propose(kernel, function, phases[-1], key)
                phases.append(proposal.phase)
                log_jacobians.append(np.asarray(proposal.log_jacobian))
            hamiltonians = [phase.state.energy + jnp.sum(phase.momentum**2, axis=0) / 2 for phase in phases]
            start, end, returned = (np.asarray(_stack(phase)) for phase in phases)
            return Moves(
                dtype,
                start,
                end,
                returned,
                is_same_direction=np.asarray(phases[2].direction == d),
                log_jacobian=np.stack(log_jacobians),
                hamiltonian=np.stack([np.asarray(value) for value in hamiltonians]),
                slope=np.asarray(jnp.sum(jnp.abs(phases[1].state.gradient), axis=0)),
            )

    def jacobian(self, dtype: str) -> Float[np.ndarray, "chains row column"]:
        with precision(dtype):
            args = (*self._bind(dtype), self.subject.key("propose"))
            try:
                rows = _jacobian_compiled(*args)
            except ValueError as error:
                if "everse-mode" not in str(error):
                    raise
                # A loop of traced length has none, and outside of a compilation its length is a number.
                rows = _jacobian(*args)
            matrices = np.moveaxis(np.asarray(rows, np.float64), -1, 0)
        return np.where(np.isfinite(matrices), matrices, 0)

    def condition(self, dtype: str, num: int = 4, size: float = 1e-7) -> Float[np.ndarray, "chains"]:
        """|J|_F |J^-1|_F / sqrt(2 dim), from what becomes of small random changes: no matrix is made."""
        random = self.subject.random("nudges")
        with precision(dtype):
            kernel, function, x, v, d = self._bind(dtype)
            key = self.subject.key("propose")

            def move(x, v, d) -> Phase:
                return _propose(kernel, function, Phase(begin(kernel, function, x, key), v, d), key).phase

            def growth(x, v, d) -> np.ndarray:
                end, squares = _stack(move(x, v, d)), []
                for _ in range(num):
                    change = random.standard_normal((2, *self.x.shape))
                    change *= size / np.sqrt(np.sum(change**2, axis=(0, 1)))
                    moved = move(x + jnp.asarray(change[0], dtype), v + jnp.asarray(change[1], dtype), d)
                    squares.append(np.sum(np.asarray(_stack(moved) - end, np.float64) ** 2, axis=0) / size**2)
                return np.sqrt(np.mean(squares, axis=0))

            there = move(x, v, d)
            product = growth(x, v, d) * growth(there.state.position, there.momentum, there.direction)
        return np.sqrt(2 * len(self.x)) * product
