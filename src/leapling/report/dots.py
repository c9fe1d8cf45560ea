"""Figures of merit, every seed of them, on a logarithmic axis."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from leapling.report.log_axis import is_on_log_axis, log_axis
from leapling.report.style import looks, make_figure, wrap

ROW_HEIGHT, LINE_HEIGHT = 0.17, 0.12  # inches: of a row at least, and of a line of its name
SPREAD = 0.25  # of a row: seeds lie a little above one another, so that equal ones can be counted
MAX_NAME = {1: 2.0, 2: 1.75}  # inches by the number of columns; longer names are broken

Rows = Sequence[Mapping[str, Any]]


def plot_ess_bars(
    bars: Rows,
    *,
    printed: Mapping[str, float] | None = None,
    xlabel: str = "ess_paper per transition",
    style: Mapping[str, Any] | None = None,
) -> Figure:
    """Rows {"target", "method", "values"}: a panel for each target, a dot for each seed, a bar at their median.

    A line in the panel of a target marks its number in `printed`. All panels have the same axis.
    """
    _check(bars, "method")
    lines = {target: (value, f"paper {value:.3g}") for target, value in (printed or {}).items()}
    look = {label: look["color"] for label, look in looks(bar["method"] for bar in bars).items()}
    return _plot(bars, "method", look, lines, xlabel, style, is_shared=True)


def plot_ablations(
    dots: Rows,
    *,
    reference: str = "full",
    xlabel: str = "ess_paper per transition",
    style: Mapping[str, Any] | None = None,
) -> Figure:
    """Rows {"target", "variant", "values"}: a panel for each target, a dot for each seed, a bar at their median.

    A line marks the median of the variant `reference`, which every target needs.
    """
    _check(dots, "variant")
    found = {dot["target"]: _median(dot["values"]) for dot in dots if dot["variant"] == reference}
    for dot in dots:
        if dot["target"] not in found:
            raise ValueError(
                f"the target {dot['target']!r} has no variant {reference!r} but the others are compared to it: "
                "add its row, or name another reference"
            )
    lines = {target: (value, f"{reference} {value:.3g}") for target, value in found.items()}
    colour = looks(["L2HMC"])["L2HMC"]["color"]  # variants of one method
    look = {dot["variant"]: colour for dot in dots}
    return _plot(dots, "variant", look, lines, xlabel, style, is_shared=False)


def _check(rows: Rows, key: str) -> None:
    needed = f'rows {{"target", "{key}", "values"}}'
    if not rows:
        raise ValueError(f"there is nothing to draw but one row is needed at least: give {needed}")
    for row in rows:
        if missing := {"target", key, "values"} - set(row):
            raise ValueError(f"a row has no {sorted(missing)[0]!r}: give {needed}")
        if not len(row["values"]):
            raise ValueError(f"{row[key]!r} on {row['target']!r} has no values: leave the row out, or give a seed's")


def _median(values: Any) -> float:
    """Of the finite ones; NaN if there are none."""
    values = np.asarray(values, float)
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else float("nan")


def _plot(
    rows: Rows,
    key: str,
    colours: Mapping[str, str],
    lines: Mapping[str, tuple[float, str]],
    xlabel: str,
    style: Mapping[str, Any] | None,
    *,
    is_shared: bool,
) -> Figure:
    panels: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        panels.setdefault(row["target"], []).append(row)
    values = {target: [line[0] for t, line in lines.items() if t == target] for target in panels}
    for row in rows:
        # With zeros a median may be below all the rest of what is on the axis.
        values[row["target"]] += [*row["values"], _median(row["values"])]
    if is_shared:
        everything = [value for several in values.values() for value in several]
        values = {target: everything for target in panels}
    with make_figure(style) as figure:
        axes, num_columns = _axes(figure, panels, key)
        for i, (target, ax) in enumerate(axes.items()):
            _draw(ax, panels[target], key, colours, values[target], lines.get(target))
            ax.set_title(wrap(target, figure.get_figwidth() / 2))
            is_bottom = i + num_columns >= len(axes)
            ax.tick_params(labelbottom=is_bottom or not is_shared)
            if is_bottom:
                ax.set_xlabel(xlabel)
    return figure


def _axes(figure: Figure, panels: Mapping[str, Rows], key: str) -> tuple[dict[str, Axes], int]:
    """In two columns if these can share their names, in one otherwise."""
    width = figure.get_figwidth()
    names = [[row[key] for row in rows] for rows in panels.values()]
    num_columns = 2 if len(panels) > 1 and all(other == names[0] for other in names) and width >= 4 else 1
    size = min(MAX_NAME[num_columns], 0.45 * width)
    wrapped = [[wrap(name, size) for name in several] for several in names]
    # Rows are equally high, and neighbours' names are in each other's way.
    lines = [name.count("\n") + 1 for several in wrapped for name in several]
    height = max(
        ROW_HEIGHT, LINE_HEIGHT * max(sum(pair) / 2 for pair in zip(lines, [*lines[1:], 1], strict=True)) + 0.03
    )
    heights = [height * (len(several) + 1.2) for several in wrapped[::num_columns]]
    figure.set_figheight(sum(heights) + 0.35 * len(heights) + 0.35)
    grid = figure.add_gridspec(len(heights), num_columns, height_ratios=heights)
    axes = {}
    for i, (target, several) in enumerate(zip(panels, wrapped, strict=True)):
        axes[target] = ax = figure.add_subplot(grid[divmod(i, num_columns)])
        ax.set_yticks(range(len(several)), several)
        ax.tick_params(axis="y", length=0, labelleft=i % num_columns == 0)
    return axes, num_columns


def _draw(
    ax: Axes,
    rows: Rows,
    key: str,
    colours: Mapping[str, str],
    values: list[float],
    line: tuple[float, str] | None,
) -> None:
    place = log_axis(ax, "x", values)
    for i, row in enumerate(rows):
        y = i + SPREAD * np.linspace(-1, 1, len(row["values"])) * (len(row["values"]) > 1)
        x, is_on = place(row["values"]), is_on_log_axis(row["values"])
        colour = colours[row[key]]
        ax.scatter(x[is_on], y[is_on], s=9, color=colour, alpha=0.65, linewidths=0, zorder=3)
        ax.scatter(x[~is_on], y[~is_on], s=9, facecolors="none", edgecolors=colour, linewidths=0.6, zorder=3)
        median = place(_median(row["values"]))
        ax.plot([median, median], [i - 0.38, i + 0.38], color=colour, linewidth=1.6, zorder=4, solid_capstyle="butt")
    ax.set_ylim(len(rows) - 0.45, -0.6)
    ax.grid(axis="y", color="0.9", linewidth=0.5)
    ax.set_axisbelow(True)
    if line is not None:
        _mark(ax, float(place(line[0])), line[1])


def _mark(ax: Axes, x: float, text: str) -> None:
    """A line with its name in a row of its own above the others, on the side where there is room."""
    ax.set_ylim(top=-1.5)
    ax.axvline(x, color="0.35", linewidth=0.8, linestyle=(0, (4, 2)), zorder=2)
    low, high = np.log(ax.get_xlim())
    is_left = np.log(x) < (low + high) / 2
    ax.annotate(
        text,
        (x, -0.95),
        (4 if is_left else -4, 0),
        textcoords="offset points",
        ha="left" if is_left else "right",
        va="center",
        color="0.35",
        fontsize=7,
    )
