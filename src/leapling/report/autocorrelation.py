"""Autocorrelation against what draws cost."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from leapling.report.naming import add_legend, name_lines
from leapling.report.style import check_panels, looks, make_figure, panel_grid

Curves = Mapping[str, Float[np.ndarray, "_"]]


def plot_autocorrelation(
    curves: Curves, gradients_per_draw: Mapping[str, float], *, style: Mapping[str, Any] | None = None
) -> Figure:
    """rho_t of each method, lags t = 0, 1, ..., against t times the gradients that one of its draws costs."""
    look = looks(curves)
    _check_costs(curves, gradients_per_draw)
    with make_figure(style) as figure:
        ax = figure.add_subplot()
        drawn = _draw(ax, curves, gradients_per_draw, look)
        ax.set(xlabel="gradient evaluations", ylabel="autocorrelation")
        _name(figure, {ax: drawn})
    return figure


def plot_autocorrelation_panels(
    panels: Mapping[str, tuple[Curves, Mapping[str, float]]], *, style: Mapping[str, Any] | None = None
) -> Figure:
    """The same in several panels, title -> (curves, gradients per draw)."""
    check_panels(panels, "(curves, gradients per draw)")
    for title, (curves, costs) in panels.items():
        check_panels({title: curves}, "curves, name to autocorrelations")
        _check_costs(curves, costs)
    look = looks(label for curves, _ in panels.values() for label in curves)
    with make_figure(style) as figure:
        axes = panel_grid(figure, list(panels), height=0.65)
        drawn = {ax: _draw(ax, *data, look) for ax, data in zip(axes, panels.values(), strict=True)}
        figure.supxlabel("gradient evaluations")
        figure.supylabel("autocorrelation")
        _name(figure, drawn)
    return figure


def _check_costs(curves: Curves, gradients_per_draw: Mapping[str, float]) -> None:
    for label in curves:
        cost = gradients_per_draw.get(label)
        if cost is None or not (np.isfinite(cost) and cost > 0):
            raise ValueError(
                f"gradients_per_draw of {label!r} is {cost} but a number above 0 is needed, for every curve"
            )


def _draw(
    ax: Axes, curves: Curves, gradients_per_draw: Mapping[str, float], look: Mapping[str, Mapping[str, Any]]
) -> dict[str, Line2D]:
    ax.axhline(0, color="0.75", linewidth=0.6, zorder=0)
    # A log axis has no place for lag 0, where rho is 1 by definition.
    points = {
        label: np.stack([np.arange(1, rho.size) * gradients_per_draw[label], rho[1:]], axis=1)
        for label, rho in curves.items()
    }
    # As far as every curve goes, and the shortest lag of each well within: there are as many lags of each
    # method, and their costs differ.
    lags = [xy[:, 0] for xy in points.values() if len(xy)]
    right = max(min(x[-1] for x in lags), 10 * max(x[0] for x in lags)) if lags else 1.0
    lines, last = {}, []
    for label, xy in points.items():
        xy = xy[xy[:, 0] <= right]
        last += list(xy[np.isfinite(xy).all(axis=1), 0][-1:])
        (lines[label],) = ax.plot(*xy.T, **look[label], label=label, marker="o", markersize=2.5, markevery=[0])
    ax.set_xscale("log")
    if last:
        ax.set_xlim(right=max(last))
    ax.set_ylim(min(-0.1, ax.get_ylim()[0]), 1.12)
    return lines


def _name(figure: Figure, drawn: Mapping[Axes, Mapping[str, Line2D]]) -> None:
    """A curve with nothing to see is in a legend, which says so and, with several panels, where."""
    handles: dict[str, Line2D] = {}
    is_any_lost = False
    for ax, lines in drawn.items():
        where = f" in {ax.get_title('left')}" if len(drawn) > 1 else ""
        for label, line in lines.items():
            is_lost = not np.isfinite(np.asarray(line.get_xydata(), float)).all(axis=1).any()
            is_any_lost |= is_lost
            handles[f"{label} (no finite values{where})" if is_lost else label] = line
    if is_any_lost:
        add_legend(figure, handles)
    else:
        name_lines(figure, drawn)
