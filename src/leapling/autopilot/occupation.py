"""Do chains of the winner find all valleys, whichever they start in?"""

from typing import Any

import numpy as np

from leapling.autopilot.candidates import NUM_CHAINS, Candidate, Problem, white
from leapling.autopilot.measure import draw
from leapling.autopilot.modes import Modes, log_masses, occupancy

MAX_GROUPS = 8
LOCAL_DRAWS = 50
NEGLIGIBLE = 0.01  # mass of a valley that may be missed; the estimate of it is rough, 5% is what must not be


def watch_modes(
    problem: Problem, winner: Candidate, modes: Modes, num_draws: int, seed: int
) -> tuple[dict[str, Any], int]:
    """What was seen of the modes, JSON-ready, and the gradients it took.

    A group of chains starts in each of the valleys (the fullest, if they are many); where groups disagree on a valley
    whose mass is not negligible, the sampler is disconnected.
    """
    spent = 0
    if modes.num == 1:
        nothing = {"started_in": [], "shares": [1.0], "largest_gap": 0.0, "disputed": [], "crossings_per_1000": 0.0}
        return {"num": 1, "minima": modes.minima.tolist(), **nothing, "is_disconnected": False}, spent
    groups: dict[int, np.ndarray] = {}
    for k in which_groups(modes):
        draws = draw(
            winner.kernel,
            winner.coordinates,
            problem.energy,
            positions=starts_in(modes, int(k)),
            num_draws=num_draws,
            seed=seed + int(k),
            warn=False,
        )
        groups[int(k)] = draws.positions
        spent += draws.num_gradients
    seen = occupancy(modes, groups)
    disconnected = False
    if seen["disputed"]:
        masses, more = masses_of(problem, modes, list(groups), seed)
        spent += more
        seen["masses"] = {str(k): mass for k, mass in masses.items()}
        # A dispute over a valley that nobody was started in cannot be settled, and counts.
        disconnected = any(masses.get(k, 1.0) > NEGLIGIBLE for k in seen["disputed"] if _is_missed(k, seen, masses))
    return {**seen, "is_disconnected": bool(disconnected)}, spent


def _is_missed(k: int, seen: dict[str, Any], masses: dict[int, float]) -> bool:
    """A large valley is in every dispute with a small one; the dispute matters where two hold mass."""
    others = [masses.get(j, 1.0) for j in seen["disputed"] if j != k]
    return not others or max(others) > NEGLIGIBLE


def which_groups(modes: Modes) -> list[int]:
    """The fullest valleys, and among them always the emptiest: what is missed is small."""
    order = np.argsort(-np.bincount(modes.labels, minlength=modes.num), kind="stable")
    if modes.num > MAX_GROUPS:
        order = np.concatenate([order[: MAX_GROUPS // 2], order[-(MAX_GROUPS // 2) :]])
    return [int(k) for k in order]


def starts_in(modes: Modes, k: int) -> np.ndarray:
    inside = modes.points[modes.labels == k]
    return inside[np.arange(NUM_CHAINS) % len(inside)]


def masses_of(problem: Problem, modes: Modes, which: list[int], seed: int) -> tuple[dict[int, float], int]:
    """Shares of the mass by log_masses, on draws of local moves that start, and mostly stay, in each valley."""
    samples, spent = {}, 0
    for k in which:
        draws = draw(
            problem.local,
            white(problem.points.T, None),
            problem.energy,
            positions=starts_in(modes, k),
            num_draws=LOCAL_DRAWS,
            num_warmup=LOCAL_DRAWS,
            seed=seed,
            warn=False,
        )
        samples[k] = (draws.positions, draws.statistics["energy"])
        spent += draws.num_gradients
    logs = log_masses(samples)
    top = max(logs.values())
    total = sum(np.exp(value - top) for value in logs.values())
    return {k: float(np.exp(value - top) / total) for k, value in logs.items()}, spent
