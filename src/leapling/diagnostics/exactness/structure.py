"""The laws of one proposal: it is an involution of (x, v, d), and log|J| is its log-determinant.

Rounding errors are amplified by the proposal itself, so each point has its own yardstick: eps of the
precision times the condition number of the Jacobian over (x, v).
"""

from dataclasses import replace

import numpy as np

from leapling.diagnostics.exactness.moves import Moves, Prober
from leapling.diagnostics.exactness.report import Law, not_run
from leapling.diagnostics.exactness.subject import DTYPES, Subject

TOLERANCE = 100.0  # in yardsticks
MIN_SHARE = 0.1  # of the points must be usable
MAX_ERROR = 0.1  # a point where the tolerance exceeds this says nothing


@np.errstate(invalid="ignore", over="ignore")
def structural_laws(subject: Subject, names: tuple[str, ...], num_points: int, max_jacobian_dim: int) -> list[Law]:
    """Round trip in both precisions, log-determinant, antisymmetry; of LAHMC its operator's, of a composition its
    parts'."""
    if components := getattr(subject.kernel, "components", ()):
        return [
            replace(law, name=f"{law.name} of part {i}")
            for i, part in enumerate(components)
            for law in structural_laws(replace(subject, kernel=part), names, num_points, max_jacobian_dim)
        ]
    subject = replace(subject, kernel=getattr(subject.kernel, "operator", subject.kernel))
    if not hasattr(subject.kernel, "propose"):
        reason = f"{type(subject.kernel).__name__} has no propose; what its steps leave invariant is what counts"
        return [not_run(name, reason, required=False) for name in names]
    prober = Prober(subject, num_points)
    exact = prober.moves(subject.finest)
    jacobian = prober.jacobian(subject.finest) if subject.dim <= max_jacobian_dim else None
    if jacobian is None:
        condition, unit = prober.condition(subject.finest), "eps cond J (estimated)"
    else:
        condition, unit = np.linalg.cond(jacobian), "eps cond J"
    condition = np.where(np.isfinite(condition), np.maximum(condition, 1), np.inf)
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
    # Relative to the largest coordinate: the condition number belongs to the whole vector, and where an
    # energy couples coordinates the rounding of one is the error of another.
    scale = np.maximum(1, np.max(np.abs([moves.start, moves.end]), axis=(0, 1)))
    error = np.max(np.abs(moves.returned - moves.start), axis=0) / scale
    error = np.where(moves.is_same_direction, error, np.inf)
    return _judge(
        f"round trip ({moves.dtype})",
        moves,
        error,
        condition,
        f"change of (x, v, d) after two moves, in {unit}",
    )


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
    return _judge(
        "antisymmetry",
        moves,
        error,
        condition,
        f"log ratio there plus log ratio back, in {unit} (1 + |H| + |g|)",
    )


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
