"""A check with nearly every proposal accepted, or nearly none, cannot fail: find a size of target where it can."""

from collections.abc import Callable

import numpy as np

# Outside of this range of mean acceptance a wrong kernel looks right: it hardly errs, or hardly moves.
USEFUL_ACCEPTANCE = (0.1, 0.95)
AIM = (0.3, 0.85)


def is_useful(acceptance: float) -> bool:
    return USEFUL_ACCEPTANCE[0] <= acceptance <= USEFUL_ACCEPTANCE[1]


def find_scale(acceptance: Callable[[float], float], at_one: float, max_tries: int = 12) -> float | None:
    """How much to shrink or stretch a target for its acceptance to be useful: powers of 4, then bisection.

    Shrunk, a target is as hard for the same steps as the original is for longer ones.
    """
    is_high = at_one > AIM[1]
    scale, last = 1.0, 1.0
    for _ in range(max_tries):
        last, scale = scale, scale / 4 if is_high else scale * 4
        value = acceptance(scale)
        if AIM[0] <= value <= AIM[1]:
            return scale
        if (value > AIM[1]) != is_high:
            break
    else:
        return None
    large, small = max(last, scale), min(last, scale)
    for _ in range(max_tries):
        scale = float(np.sqrt(large * small))
        value = acceptance(scale)
        if AIM[0] <= value <= AIM[1]:
            return scale
        large, small = (scale, small) if value > AIM[1] else (large, scale)
    return None
