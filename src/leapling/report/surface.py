"""What tuning saw."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from leapling.report.log_axis import is_on_log_axis, log_axis
from leapling.report.naming import add_legend
from leapling.report.style import make_figure

FIELDS = ("step_size", "num_steps", "value", "round")
RANGE = 30.0  # the best over what has the last colour, or less: the ridge counts, not the plain


def plot_surface(
    rows: Sequence[Mapping[str, Any]], *, label: str = "value", style: Mapping[str, Any] | None = None
) -> Figure:
    """Rows {"step_size", "num_steps", "value", "round"}: a dot for each setting, its value a colour.

    What was measured in several rounds shows its last. The later the round, the smaller the dot; the best of the
    last round has a ring. A cross is a value of 0, or one that is not finite.
    """
    if not rows:
        raise ValueError(f"there is nothing to draw but one setting is needed at least: give rows {FIELDS}")
    for row in rows:
        if missing := [name for name in FIELDS if name not in row]:
            raise ValueError(f"a row has no {missing[0]!r}: give rows {FIELDS}")
    latest = {(row["step_size"], row["num_steps"]): row for row in sorted(rows, key=lambda row: row["round"])}
    data = {name: np.array([row[name] for row in latest.values()], float) for name in FIELDS}
    value, is_on = data["value"], is_on_log_axis(data["value"])
    with make_figure(style) as figure:
        ax = figure.add_subplot()
        x = log_axis(ax, "x", data["step_size"])(data["step_size"])
        y = log_axis(ax, "y", data["num_steps"])(data["num_steps"])
        ax.set(xlabel="step size", ylabel="leapfrog steps")
        sizes = 14 + 60 * 0.4 ** data["round"]
        handles = {}
        if (~is_on).any():
            kind = "0" if np.isfinite(value[~is_on]).all() else "0 or not finite"
            handles[kind] = ax.scatter(x[~is_on], y[~is_on], s=14, marker="x", color="0.6", linewidths=0.8)
        if is_on.any():
            top = value[is_on].max()
            bottom = max(value[is_on].min(), top / RANGE)
            norm = LogNorm(bottom if bottom < top else top / 2, top)
            dots = None
            for number in np.unique(data["round"][is_on]):
                now = is_on & (data["round"] == number)
                dots = ax.scatter(
                    x[now],
                    y[now],
                    sizes[now],
                    value[now],
                    norm=norm,
                    cmap="viridis",
                    edgecolors="white",
                    linewidths=0.3,
                )
            assert dots is not None
            extend = "min" if (value[is_on] < bottom).any() else "neither"
            bar = figure.colorbar(dots, ax=ax, extend=extend, label=label, pad=0.02)
            log_axis(bar.ax, "y", [norm.vmin, norm.vmax])
            bar.ax.set_ylim(norm.vmin, norm.vmax)
            bar.outline.set_visible(False)
            last = np.where(is_on & (data["round"] == data["round"][is_on].max()), value, -np.inf)
            best = int(np.argmax(last))
            text = f"best: {value[best]:.3g} at {data['num_steps'][best]:g} steps of {data['step_size'][best]:.3g}"
            handles[text] = ax.scatter(
                x[best], y[best], s=70, facecolors="none", edgecolors="#c84a00", linewidths=1.5, zorder=5
            )
        add_legend(figure, handles)
    return figure
