"""A statistical test that almost never rejects what is right, and takes more draws where it is unsure.

Algorithm 1 of Gandy and Scott, "Unit testing for MCMC and other Monte Carlo methods" (2020,
arXiv:2001.06465).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

GROWTH = 4  # of the number of draws after the first round


@dataclass(frozen=True)
class Outcome:
    """`p_value` is the smallest of the last round times their number, rejected at or below `threshold`."""

    is_rejected: bool
    p_value: float
    threshold: float
    worst: int
    num_rounds: int


def sequential_test(p_values: Callable[[int], np.ndarray], *, rate: float = 1e-5, max_rounds: int = 7) -> Outcome:
    """Reject with probability `rate` at most where every p-value is uniform, whatever their dependence.

    `p_values(round)` gives fresh ones, after round 0 from `GROWTH` times the draws. A round is passed at once
    where its smallest is unremarkable; else the next decides, at a level raised by what it took to get there.
    """
    level = rate / max_rounds
    go_on = level ** (1 / max_rounds)
    num_rounds = 0
    while True:
        values = np.asarray(p_values(num_rounds), np.float64)
        num_rounds += 1
        worst = int(np.argmin(values))
        p_value = float(np.minimum(1, values[worst] * values.size))
        is_rejected = not p_value > level  # NaN is a rejection
        if is_rejected or p_value > go_on + level or num_rounds == max_rounds:
            return Outcome(is_rejected, p_value, level, worst, num_rounds)
        level /= go_on
