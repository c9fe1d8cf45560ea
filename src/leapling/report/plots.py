"""Plots of data in memory. Each returns a Figure, without pyplot and without a change of global settings."""

import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

# Matplotlib's own settings; `style=` overrides them. The height of panels follows from the width.
STYLE: dict[str, Any] = {
    "figure.figsize": (5.0, 3.0),
    "figure.dpi": 200,
    "figure.constrained_layout.use": True,
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
}

# After Okabe and Ito, distinct to colour-blind readers; darkened, to be read as text. A method keeps its own.
COLOURS = {"L2HMC": "#c44e00", "HMC tuned (min_ess)": "#0072b2", "HMC M=10": "#333333"}
SPARE_COLOURS = ("#008a63", "#a8508a", "#8a6d00", "#3d9bd6")
REGION_MASSES = (0.5, 0.9, 0.99)
REGION_COLOURS = ("#a5adb8", "#c4cad2", "#dcdfe4")
REGION_GRID = 400
FAR_ABOVE = 1e30  # instead of an infinite energy


def plot_autocorrelation(
    curves: Mapping[str, Float[np.ndarray, "_"]],
    gradients_per_draw: Mapping[str, float],
    *,
    style: Mapping[str, Any] | None = None,
) -> Figure:
    """rho_t of each method, lags t = 0, 1, ..., against t times the gradients that one of its draws costs."""
    colours = _colours(curves)
    for label in curves:
        cost = gradients_per_draw.get(label)
        if cost is None or not (np.isfinite(cost) and cost > 0):
            raise ValueError(
                f"gradients_per_draw of {label!r} is {cost} but a number above 0 is needed, for every curve"
            )
    with _figure(style) as figure:
        ax = figure.add_subplot()
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
        ends: dict[str, np.ndarray] = {}
        for label, xy in points.items():
            xy = xy[xy[:, 0] <= right]
            finite = xy[np.isfinite(xy).all(axis=1)]
            name = label if len(finite) else f"{label} (no finite values)"
            ax.plot(*xy.T, color=colours[label], label=name, marker="o", markersize=2.5, markevery=[0])
            if len(finite):
                ends[label] = finite[[0, -1]]
        ax.set_xscale("log")
        if ends:
            ax.set_xlim(right=max(end[1, 0] for end in ends.values()))
        ax.set_ylim(min(-0.1, ax.get_ylim()[0]), 1.12)
        ax.set_xlabel("gradient evaluations")
        ax.set_ylabel("autocorrelation")
        if len(ends) < len(curves) or not _name_lines(figure, ax, ends, colours):
            num_columns = max(1, min(len(curves), int(figure.get_figwidth() // 1.1)))
            figure.legend(loc="outside upper left", ncols=num_columns)
    return figure


def plot_chains(
    chains: Mapping[str, np.ndarray],
    energy: Callable | None = None,
    *,
    num_draws: int = 100,
    style: Mapping[str, Any] | None = None,
) -> Figure:
    """The first draws of one chain of each method, shape (draw, 2), joined in order, on the same axes.

    Under them, with a 2-d `energy`, the regions that hold 50%, 90% and 99% of the mass within the axes. The
    axes hold all draws of all chains, not the first ones alone.
    """
    colours = _colours(chains)
    for label, chain in chains.items():
        if chain.ndim != 2 or chain.shape[1] != 2 or chain.shape[0] == 0:
            raise ValueError(
                f"the chain of {label!r} has shape {chain.shape} but (draw, 2) is needed: "
                "choose one chain and two coordinates, such as positions[0][:, :2]"
            )
    limits = _limits(np.concatenate([np.asarray(chain, np.float64) for chain in chains.values()]))
    regions = None if energy is None else _regions(energy, limits)
    with _figure(style) as figure:
        width = figure.get_figwidth()
        num_columns = max(1, min(len(chains), int(width // 1.6)))
        num_rows = -(-len(chains) // num_columns)
        # As many characters as the panel is wide, about: a longer name would be cut off by the next one.
        titles = {label: textwrap.fill(label, int(12 * width / num_columns)) for label in chains}
        num_lines = max(title.count("\n") for title in titles.values()) + 2
        figure.set_figheight(num_rows * (width / num_columns + 0.2 + 0.15 * num_lines))
        for i, (label, chain) in enumerate(chains.items()):
            ax = figure.add_subplot(num_rows, num_columns, i + 1)
            if regions is not None:
                ax.contourf(*regions, colors=REGION_COLOURS, zorder=0)
            x, y = chain[:num_draws].T
            ax.plot(x, y, color=colours[label], linewidth=0.4, alpha=0.6)
            ax.scatter(x, y, s=5, color=colours[label], alpha=0.8, linewidths=0)
            ax.set(xlim=limits[0], ylim=limits[1], box_aspect=1, xlabel="$x_1$")
            ax.set_title(f"{titles[label]}\n{len(x):,} draws")
            if i % num_columns == 0:
                ax.set_ylabel("$x_2$")
    return figure


def plot_training(history: Mapping[str, Float[np.ndarray, "_"]], *, style: Mapping[str, Any] | None = None) -> Figure:
    """Loss, acceptance and step size of each iteration (faint), under running means over a hundredth of them.

    The axis of the loss leaves out the most extreme 1% on either side: one spike would flatten all the rest.
    """
    names = [name for name in ("loss", "acceptance", "step_size") if name in history]
    if not names:
        raise ValueError(
            f"the history holds {sorted(history)} but one of loss, acceptance and step_size is needed: "
            "give the history of a TrainResult"
        )
    with _figure(style) as figure:
        figure.set_figheight(1.3 * len(names) + 0.3)
        axes = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
        for ax, name, colour in zip(axes, names, ("#0072b2", "#008a63", "#c44e00"), strict=False):
            values = np.asarray(history[name], np.float64)
            finite = np.isfinite(values)
            ax.plot(np.where(finite, values, np.nan), color=colour, alpha=0.3, linewidth=0.4)
            ax.plot(_running_mean(values, max(1, values.size // 100)), color=colour)
            ax.set_ylabel(name.replace("_", " "))
            if name == "loss" and finite.any():
                low, high = np.percentile(values[finite], (1, 99))
                margin = 0.1 * (high - low) or 1.0
                ax.set_ylim(low - margin, high + margin)
        axes[-1].set_xlabel("iteration")
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        figure.align_ylabels()
    return figure


@contextmanager
def _figure(style: Mapping[str, Any] | None) -> Iterator[Figure]:
    with mpl.rc_context(cast(Any, {**STYLE, **(style or {})})):
        yield Figure()


def _colours(data: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Their own for the methods that have one, what is left in order for the others, then grey."""
    if not data:
        raise ValueError("no method was given but at least one is needed: give a dictionary, name to data")
    spare = iter(SPARE_COLOURS)
    return {label: COLOURS[label] if label in COLOURS else next(spare, "#8c8c8c") for label in data}


def _name_lines(figure: Figure, ax: Axes, ends: dict[str, Float[np.ndarray, "2 2"]], colours: dict[str, str]) -> bool:
    """Write the names behind the ends of the lines or, if they touch something there, above the beginnings.

    False, and nothing is written, if they touch there too.
    """
    for which, offset, alignment in ((1, (4, 0), "center"), (0, (-2, 4), "bottom")):
        names = [
            ax.annotate(
                label,
                end[which],
                offset,
                textcoords="offset points",
                va=alignment,
                color=colours[label],
                fontsize=mpl.rcParams["legend.fontsize"],
            )
            for label, end in ends.items()
        ]
        figure.draw_without_rendering()  # now they have sizes
        if not _touch([name.get_window_extent() for name in names], ax):
            return True
        for name in names:
            name.remove()
    return False


def _touch(boxes: list[Bbox], ax: Axes) -> bool:
    """Whether a box touches another one or a line."""
    lines = [line.get_path().transformed(line.get_transform()) for line in ax.lines]
    return any(
        any(box.overlaps(other) for other in boxes[:i])
        or any(line.intersects_bbox(box, filled=False) for line in lines)
        for i, box in enumerate(boxes)
    )


def _limits(points: Float[np.ndarray, "draw 2"]) -> list[tuple[float, float]]:
    """Of each coordinate, the range of its finite values with a margin."""
    limits = []
    for column in points.T:
        values = column[np.isfinite(column)]
        low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
        size = max(abs(low), abs(high))
        # A chain that does not move still gets an axis that can be drawn.
        margin = 0.06 * (high - low) if high - low > 1e-6 * size else 0.1 * size or 1.0
        limits.append((float(low - margin), float(high + margin)))
    return limits


def _regions(energy: Callable, limits: list[tuple[float, float]]) -> tuple | None:
    """What `contourf` takes to fill the smallest regions of REGION_MASSES; None where the grid shows none."""
    import jax
    import jax.numpy as jnp

    x, y = (np.linspace(*limit, REGION_GRID) for limit in limits)
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    u = np.asarray(jax.vmap(energy)(jnp.asarray(points, float)), np.float64)
    finite = np.isfinite(u)
    if not finite.any():
        return None
    excess = np.where(finite, u - u[finite].min(), FAR_ABOVE)
    ordered = np.sort(excess)
    mass = np.cumsum(np.exp(-ordered))
    levels = ordered[np.searchsorted(mass, np.asarray(REGION_MASSES) * mass[-1])]
    # The root of a quadratic energy is nearly linear between grid points, however narrow the ridge.
    levels = np.unique([0.0, *np.sqrt(levels)])
    return (x, y, np.sqrt(excess).reshape(REGION_GRID, -1), levels) if levels.size > 1 else None


def _running_mean(values: Float[np.ndarray, "_"], width: int) -> Float[np.ndarray, "_"]:
    """Centred means of the finite values; NaN where the window has none."""
    window, finite = np.ones(width), np.isfinite(values)
    count = np.convolve(finite, window, "same")
    total = np.convolve(np.where(finite, values, 0), window, "same")
    return np.divide(total, count, out=np.full(count.size, np.nan), where=count > 0)
