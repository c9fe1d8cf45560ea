"""A statistical test that almost never rejects what is right, and takes more draws where it is unsure.

Algorithm 1 of Gandy and Scott, "Unit testing for MCMC and other Monte Carlo methods" (2020, arXiv:2001.06465).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Outcome:
    """`p_value` is the smallest of the last round times their number, rejected at or below `threshold`."""

    is_rejected: bool
    p_value: float
    threshold: float
    worst: int
    num_rounds: int


def sequential_test(
    p_values: Callable[[int], np.ndarray], *, rate: float = 1e-5, max_rounds: int = 7, growth: int = 4
) -> Outcome:
    """Reject with probability `rate` at most where every p-value is uniform, however they depend on each other.

    `p_values(round)` gives fresh ones, from `growth` times the draws after round 0. A round is passed at once
    where its smallest is unremarkable; else the next one decides, at a level raised by what it took to get there.
    """
    level = rate / max_rounds
    go_on = level ** (1 / max_rounds)
    for i in range(max_rounds):
        values = np.asarray(p_values(i), np.float64)
        worst = int(np.argmin(values))
        p_value = min(1.0, float(values[worst]) * values.size)
        is_rejected = not p_value > level  # NaN is a rejection
        if is_rejected or p_value > go_on + level:
            break
        if i < max_rounds - 1:
            level /= go_on
    return Outcome(is_rejected, p_value, level, worst, i + 1)
