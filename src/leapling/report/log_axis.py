"""Logarithmic axes that also show what has no logarithm: zeros, and what is not finite, in a gutter at the edge."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

Places = Callable[[Any], Float[np.ndarray, "..."]]
MIN_DECADES = 0.8  # however close the values are, so that there are two ticks or more
MARGIN = 0.05
SLOT = 0.12  # of the length of the axis, for each kind of value that is off it
MAX_TICKS = 5


def log_axis(ax: Axes, which: Literal["x", "y"], values: Any, *, num_ticks: int = MAX_TICKS) -> Places:
    """Make an axis logarithmic with limits about `values`; returns where on it to draw them.

    That is where they are if they are above 0. For the others there is, only if there are any, a shaded gutter at
    the low end, with a tick for those at 0 and another one for those that are not finite.
    """
    values = np.asarray(values, float).ravel()
    good = np.log10(values[is_on_log_axis(values)])
    low, high = (float(good.min()), float(good.max())) if good.size else (0.0, 1.0)
    middle, span = (low + high) / 2, max(high - low, MIN_DECADES)
    low, high = middle - (0.5 + MARGIN) * span, middle + (0.5 + MARGIN) * span
    ticks, names = _ticks(low, high, num_ticks) if good.size else ([], [])
    edge, slots = low, {}
    for kind, name in _off_axis(values).items():
        low -= SLOT * span
        slots[kind] = 10 ** (low + SLOT * span / 2)
        ticks, names = [slots[kind], *ticks], [name, *names]

    ax.set(**{f"{which}scale": "log", f"{which}lim": (10**low, 10**high)})
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter(names))
    axis.set_minor_locator(FixedLocator(_minor_ticks(edge, high) if good.size else []))
    axis.set_minor_formatter(NullFormatter())
    if slots:
        shade = ax.axvspan if which == "x" else ax.axhspan
        shade(10**low, 10**edge, color="0.94", linewidth=0, zorder=0)

    def place(values: Any) -> Float[np.ndarray, "..."]:
        values = np.asarray(values, float)
        values = np.where(np.isfinite(values), values, slots.get("not finite", np.nan))
        return np.where(values > 0, values, slots.get("zero", np.nan))

    return place


def is_on_log_axis(values: Any) -> np.ndarray:
    values = np.asarray(values, float)
    return np.isfinite(values) & (values > 0)


def _off_axis(values: np.ndarray) -> dict[str, str]:
    """The kinds of values that are off the axis, and what their ticks say."""
    finite = np.isfinite(values)
    kinds = {}
    if (values[finite] <= 0).any():
        kinds["zero"] = "0" if (values[finite] >= 0).all() else "$\\leq$0"
    if not finite.all():
        odd = values[~finite]
        kinds["not finite"] = "nan" if np.isnan(odd).all() else "inf" if not np.isnan(odd).any() else "nan, inf"
    return kinds


def _ticks(low: float, high: float, num: int) -> tuple[list[float], list[str]]:
    """Powers of ten, a stride apart where there are many; 1, 2 and 5 times them where there are few."""
    exponents = range(int(np.ceil(low)), int(np.floor(high)) + 1)
    if high - low >= 1.7:
        exponents = exponents[:: -(-len(exponents) // num)]
        ticks = [10.0**k for k in exponents]
        is_plain = low >= -3 and high <= 3.5
        return ticks, [f"{t:g}" if is_plain else f"$10^{{{k}}}$" for t, k in zip(ticks, exponents, strict=True)]
    found = [
        (m, k)
        for k in range(int(np.floor(low)), int(np.ceil(high)) + 1)
        for m in (1, 2, 5)
        if low <= k + np.log10(m) <= high
    ]
    is_plain = low >= -3.7 and high <= 4
    if not is_plain and len(found) > 3:
        found = found[::2]  # their labels are long
    names = [f"{m * 10.0**k:g}" if is_plain else f"${m} \\cdot 10^{{{k}}}$" for m, k in found]
    return [m * 10.0**k for m, k in found], names


def _minor_ticks(low: float, high: float) -> list[float]:
    multiples = range(2, 10) if high - low < 4 else [1]
    candidates = [m * 10.0**k for k in range(int(np.floor(low)), int(np.ceil(high)) + 1) for m in multiples]
    return [t for t in candidates if low <= np.log10(t) <= high]
