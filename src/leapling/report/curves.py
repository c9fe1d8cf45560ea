"""Quantities that fall or rise over orders of magnitude: burn-in, and steps against scales."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from leapling.report.log_axis import Places, is_on_log_axis, log_axis
from leapling.report.naming import add_legend, name_lines
from leapling.report.style import QUIET, check_panels, looks, make_figure, panel_grid


def plot_burn_in(
    curves: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]],
    floors: Mapping[str, float],
    *,
    style: Mapping[str, Any] | None = None,
) -> Figure:
    """curves[target][method] = (gradients, distance), and the distance floors[target] of exact draws."""
    check_panels(curves, "curves, name to (gradients, distance)")
    for target, here in curves.items():
        if target not in floors:
            raise ValueError(f"{target!r} has no noise floor but needs one: add it to floors, which has {list(floors)}")
        for label, (gradients, distance) in here.items():
            _check_pair(label, "gradients", gradients, "distances", distance)
    look = looks(label for here in curves.values() for label in here)
    with make_figure(style) as figure:
        axes = panel_grid(figure, list(curves), height=0.65)
        drawn = {}
        for ax, (target, here) in zip(axes, curves.items(), strict=True):
            place_x = log_axis(ax, "x", np.concatenate([gradients for gradients, _ in here.values()]))
            distances = np.concatenate([distance for _, distance in here.values()])
            place_y = log_axis(ax, "y", np.append(distances, floors[target]))
            floor = ax.axhline(float(place_y(floors[target])), color=QUIET, linewidth=0.8, linestyle=(0, (1, 1)))
            lines = {label: _line(ax, place_x, place_y, *xy, look[label]) for label, xy in here.items()}
            drawn[ax] = {**lines, "as many exact draws": floor}
        figure.supxlabel("gradient evaluations")
        figure.supylabel("distance to the target")
        # The curves begin in one point and end in the floor: no name would fit there.
        add_legend(figure, {label: line for lines in drawn.values() for label, line in lines.items()})
    return figure


def plot_inertia(
    sd: np.ndarray,
    steps: Mapping[str, np.ndarray],
    *,
    ylabel: str = "step of the coordinate",
    style: Mapping[str, Any] | None = None,
) -> Figure:
    """What each method gives to each coordinate, label -> (dim,), against its sd, with a guide of slope 1."""
    look = looks(steps)
    for label, step in steps.items():
        _check_pair(label, "sds", sd, "steps", step)
    order = np.argsort(sd)
    sd = np.asarray(sd, float)[order]
    with make_figure(style) as figure:
        ax = figure.add_subplot()
        place_x = log_axis(ax, "x", sd)
        place_y = log_axis(ax, "y", np.concatenate(list(steps.values())))
        drawn = {label: _line(ax, place_x, place_y, sd, step[order], look[label]) for label, step in steps.items()}
        guide = _guide(ax, sd, [step[order] for step in steps.values()])
        ax.set(xlabel="sd of the coordinate", ylabel=ylabel)
        name_lines(figure, {ax: drawn | guide}, guides=guide)
    return figure


def _check_pair(label: str, name_x: str, x: np.ndarray, name_y: str, y: np.ndarray) -> None:
    if np.ndim(x) != 1 or np.shape(x) != np.shape(y) or not np.size(x):
        raise ValueError(
            f"{label!r} has {name_x} of shape {np.shape(x)} and {name_y} of shape {np.shape(y)}: "
            "give two arrays of one axis and the same length"
        )


def _line(ax: Axes, place_x: Places, place_y: Places, x: np.ndarray, y: np.ndarray, look: Mapping[str, Any]) -> Line2D:
    """The points joined; hollow ones, joined to nothing, for what is off an axis."""
    is_on = is_on_log_axis(x) & is_on_log_axis(y)
    x, y = place_x(x), place_y(y)
    ax.plot(x[~is_on], y[~is_on], linestyle="none", marker="o", markersize=3, markerfacecolor="none", **_only(look))
    (line,) = ax.plot(np.where(is_on, x, np.nan), np.where(is_on, y, np.nan), marker="o", markersize=2.2, **look)
    return line


def _only(look: Mapping[str, Any]) -> dict[str, Any]:
    return {"color": look["color"]}


def _guide(ax: Axes, x: np.ndarray, curves: list[np.ndarray]) -> dict[str, Line2D]:
    """A line of slope 1 through the middle of the first curve, no further than all of them; none without points."""
    y = curves[0]
    is_on = is_on_log_axis(x) & is_on_log_axis(y)
    if not is_on.any():
        return {}
    level = np.exp(np.mean(np.log(y[is_on]) - np.log(x[is_on])))
    heights = np.concatenate(curves)
    heights = heights[is_on_log_axis(heights)]
    ends = np.clip(np.array([heights.min(), heights.max()]) / level, x[is_on].min(), x[is_on].max())
    if ends[0] == ends[1]:
        return {}
    return {"slope 1": ax.plot(ends, level * ends, color=QUIET, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)[0]}
