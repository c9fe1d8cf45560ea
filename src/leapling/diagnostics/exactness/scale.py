"""A check that accepts nearly every proposal, or nearly none, cannot fail: find a target where it can."""

from collections.abc import Callable

import numpy as np

# Outside of this range of mean acceptance a wrong kernel looks right: it hardly errs, or hardly moves.
USEFUL_ACCEPTANCE = (0.1, 0.95)
AIM = (0.3, 0.85)


def is_useful(acceptance: float) -> bool:
    return USEFUL_ACCEPTANCE[0] <= acceptance <= USEFUL_ACCEPTANCE[1]


def find_scale(acceptance: Callable[[float], float], at_one: float, max_tries: int = 8) -> float | None:
    """How much to shrink or stretch a target for its acceptance to be useful: powers of 4, then bisection.

    Shrunk, a target is as hard for the same steps as the original is for longer ones.
    """
    tried = {1.0: at_one}
    too_high = at_one > AIM[1]
    large = small = scale = 1.0

    def is_found() -> bool:
        tried[scale] = acceptance(scale)
        return AIM[0] <= tried[scale] <= AIM[1]

    for _ in range(max_tries):
        large, small = scale, scale
        scale = scale / 4 if too_high else scale * 4
        if is_found():
            return scale
        if (tried[scale] > AIM[1]) != too_high:
            large, small = max(large, scale), min(small, scale)
            break
    for _ in range(max_tries if large > small else 0):
        scale = float(np.sqrt(large * small))
        if is_found():
            return scale
        large, small = (scale, small) if tried[scale] > AIM[1] else (large, scale)
    best = min(tried, key=lambda scale: abs(tried[scale] - np.mean(AIM)))
    return best if is_useful(tried[best]) else None
