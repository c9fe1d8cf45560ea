"""The laws of one proposal, point by point: it is an involution of (x, v, d), and log|J| is its log-determinant.

Rounding errors are amplified by the proposal itself, so each point has its own yardstick: eps of the precision
times the condition number of the Jacobian over (x, v).
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from leapling.diagnostics.exactness.report import Law, not_run
from leapling.diagnostics.exactness.subject import DTYPES, Subject, begin, precision
from leapling.energy import Energy
from leapling.kernels import Kernel, Phase, Proposal, cast
from leapling.kernels.base import DIVERGENCE_THRESHOLD

TOLERANCE = 100.0  # in yardsticks
MIN_SHARE = 0.1  # of the points must be usable
MAX_ERROR = 0.1  # a point where the tolerance exceeds this says nothing


@dataclass(frozen=True)
class Moves:
    """Proposals from random phases, and the proposals back from what they returned, in one precision."""

    dtype: str
    start: Float[np.ndarray, "double_dim chains"]
    end: Float[np.ndarray, "double_dim chains"]
    returned: Float[np.ndarray, "double_dim chains"]
    is_same_direction: Bool[np.ndarray, "chains"]
    log_jacobian: tuple[Float[np.ndarray, "chains"], Float[np.ndarray, "chains"]]  # there, back
    hamiltonian: tuple[Float[np.ndarray, "chains"], ...]  # at the start, at the end, on return
    slope: Float[np.ndarray, "chains"]

    @property
    def is_regular(self) -> Bool[np.ndarray, "chains"]:
        with np.errstate(invalid="ignore"):
            change = self.hamiltonian[1] - self.hamiltonian[0]
        return np.isfinite(change) & np.isfinite(self.log_jacobian[0]) & (change <= DIVERGENCE_THRESHOLD)


@eqx.filter_jit
def _propose(kernel: Kernel, function: Callable, phase: Phase, key: Array) -> Proposal:
    return kernel.propose(Energy(function), phase, key=key)


def _jacobian(kernel: Kernel, function: Callable, x: Array, v: Array, d: Array, key: Array) -> Array:
    """d(x', v') / d(x, v), shape (row, column, chain); backward, since the kernels' guard has no forward rule."""

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


class _Prober:
    """Runs proposals of the subject from fixed random phases."""

    def __init__(self, subject: Subject):
        self.subject = subject
        # Both precisions start from the same points, which float32 represents.
        self.x = subject.probes.astype(np.float32)
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
            return Moves(
                dtype,
                *(np.asarray(_stack(phase)) for phase in phases),
                np.asarray(phases[2].direction == d),
                (log_jacobians[0], log_jacobians[1]),
                tuple(np.asarray(value) for value in hamiltonians),
                np.asarray(jnp.sum(jnp.abs(phases[1].state.gradient), axis=0)),
            )

    def jacobian(self, dtype: str) -> Float[np.ndarray, "chains row column"]:
        with precision(dtype):
            args = (*self._bind(dtype), self.subject.key("propose"))
            try:
                rows = _jacobian_compiled(*args)
            except ValueError as error:
                if "everse-mode" not in str(error):
                    raise
                # A loop of a traced length has no derivative backward; outside of a compilation it is a number.
                rows = _jacobian(*args)
            matrices = np.moveaxis(np.asarray(rows, np.float64), -1, 0)
        return np.where(np.isfinite(matrices), matrices, 0)

    def amplification(self, dtype: str, size: float = 1e-7) -> Float[np.ndarray, "chains"]:
        """By how much the way back enlarges a small random change of where it starts: no matrix is made."""
        with precision(dtype):
            kernel, function, x, v, d = self._bind(dtype)
            key = self.subject.key("propose")
            there = _propose(kernel, function, Phase(begin(kernel, function, x, key), v, d), key).phase
            nudge = jnp.asarray(size * self.subject.random("nudge").standard_normal((2, *x.shape)), dtype)
            moved = there.state.position + nudge[0], there.momentum + nudge[1]
            phase = Phase(begin(kernel, function, moved[0], key), moved[1], there.direction)
            ends = [_stack(_propose(kernel, function, start, key).phase) for start in (there, phase)]
            change = np.asarray(ends[1] - ends[0], np.float64)
        return np.sqrt(np.sum(change**2, axis=0) / np.sum(np.asarray(nudge, np.float64) ** 2, axis=(0, 1)))


@np.errstate(invalid="ignore", over="ignore")
def structural_laws(subject: Subject, names: tuple[str, ...], max_jacobian_dim: int) -> list[Law]:
    """Round trip in both precisions, log-determinant, antisymmetry."""
    if not hasattr(subject.kernel, "propose"):
        reason = f"{type(subject.kernel).__name__} has no propose; what its steps leave invariant is what counts"
        return [not_run(name, reason, required=False) for name in names]
    prober = _Prober(subject)
    exact = prober.moves(subject.finest)
    jacobian = prober.jacobian(subject.finest) if subject.dim <= max_jacobian_dim else None
    if jacobian is None:
        condition, unit = np.maximum(prober.amplification(subject.finest), 1), "eps times its amplification"
    else:
        condition, unit = np.linalg.cond(jacobian), "eps cond J"
    condition = np.where(np.isfinite(condition), condition, np.inf)
    laws = []
    if "round trip" in names:
        for dtype in DTYPES:
            if dtype in subject.refusals:
                reason = f"this energy does not run in {dtype}: {subject.refusals[dtype]}"
                laws.append(not_run(f"round trip ({dtype})", reason, required=False))
            else:
                moves = exact if dtype == subject.finest else prober.moves(dtype)
                laws.append(_round_trip(moves, condition, unit))
    if "log-determinant" in names:
        if jacobian is None:
            reason = f"the dimension is {subject.dim}, and max_jacobian_dim is {max_jacobian_dim}"
            laws.append(not_run("log-determinant", reason, required=False))
        else:
            laws.append(_log_determinant(exact, jacobian, condition, unit))
    if "antisymmetry" in names:
        laws.append(_antisymmetry(exact, condition, unit))
    return laws


def _round_trip(moves: Moves, condition: np.ndarray, unit: str) -> Law:
    error = np.max(np.abs(moves.returned - moves.start) / np.maximum(1, np.abs(moves.start)), axis=0)
    error = np.where(moves.is_same_direction, error, np.inf)
    return _judge(f"round trip ({moves.dtype})", moves, error, condition, f"change of (x, v, d) after two moves, in {unit}")


def _log_determinant(moves: Moves, jacobian: np.ndarray, condition: np.ndarray, unit: str) -> Law:
    log_jacobian = moves.log_jacobian[0]
    regular = moves.is_regular
    spread = np.std(log_jacobian[regular]) if regular.any() else 0.0
    error = np.abs(log_jacobian - np.linalg.slogdet(jacobian)[1])
    text = f"log|J| (its sd is {spread:.2g}) against slogdet of the autodiff J, in {unit}"
    return _judge("log-determinant", moves, error, condition, text)


def _antisymmetry(moves: Moves, condition: np.ndarray, unit: str) -> Law:
    start, end, returned = moves.hamiltonian
    there, back = moves.log_jacobian
    scale = np.maximum(1, np.maximum(np.abs(start), np.abs(end)) + moves.slope)
    error = np.abs((there - (end - start)) + (back - (returned - end))) / scale
    return _judge("antisymmetry", moves, error, condition, f"log ratio there plus log ratio back, in {unit} (1 + |H| + |g|)")


def _judge(name: str, moves: Moves, error: np.ndarray, condition: np.ndarray, text: str) -> Law:
    """The worst point, in units of eps times its condition number. NaN at a regular point is a failure."""
    yardstick = float(np.finfo(moves.dtype).eps) * condition
    regular = moves.is_regular
    usable = regular & (TOLERANCE * yardstick < MAX_ERROR)
    text += f"; {usable.sum()} of {usable.size} points, {np.sum(~regular)} divergent"
    if np.sum(regular & ~usable):
        text += f", {np.sum(regular & ~usable)} too ill-conditioned"
    if usable.sum() < MIN_SHARE * usable.size:
        # Rounding may hide everything in float32; float64 then decides alone.
        if moves.dtype == "float32" and regular.sum() >= MIN_SHARE * usable.size:
            return not_run(name, text, required=False)
        return Law(name, "void", None, TOLERANCE, text)
    error = np.nan_to_num(error[usable], nan=np.inf)
    worst = float(np.max(error / yardstick[usable]))
    text += f", largest error {error.max():.1e}"
    return Law(name, "passed" if worst <= TOLERANCE else "failed", worst, TOLERANCE, text)
