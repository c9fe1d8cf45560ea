"""The first draws of chains over the regions of the target."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from leapling.report.regions import REGION_COLOURS, data_limits, mass_regions
from leapling.report.style import check_panels, looks, make_figure, wrap

Chains = Mapping[str, np.ndarray]


def plot_chains(
    chains: Chains, energy: Callable | None = None, *, num_draws: int = 100, style: Mapping[str, Any] | None = None
) -> Figure:
    """The first draws of one chain of each method, shape (draw, 2), joined in order, on the same axes.

    Under them, with a 2-d `energy`, the regions that hold 50%, 90% and 99% of the mass within the axes. The
    axes hold all draws of all chains, not the first ones alone.
    """
    look = looks(chains)
    _check(chains)
    with make_figure(style) as figure:
        width = figure.get_figwidth()
        num_columns = max(1, min(len(chains), int(width // 1.6)))
        num_rows = -(-len(chains) // num_columns)
        titles = {label: wrap(label, width / num_columns) for label in chains}
        num_lines = max(title.count("\n") for title in titles.values()) + 2
        figure.set_figheight(num_rows * (width / num_columns + 0.2 + 0.15 * num_lines))
        axes = {label: figure.add_subplot(num_rows, num_columns, i + 1) for i, label in enumerate(chains)}
        _draw(axes, chains, energy, num_draws, look)
        for i, (label, ax) in enumerate(axes.items()):
            ax.set_xlabel("$x_1$")
            ax.set_title(f"{titles[label]}\n{len(chains[label][:num_draws]):,} draws")
            if i % num_columns == 0:
                ax.set_ylabel("$x_2$")
    return figure


def plot_chain_grid(
    grid: Mapping[str, tuple[Chains, Callable | None]],
    *,
    num_draws: int = 100,
    style: Mapping[str, Any] | None = None,
) -> Figure:
    """`plot_chains` for several targets, name -> (chains, energy or None): a row for each, a column for each method.

    A row has axes of its own, and their scales differ: one unit is as long as the target needs it to be.
    """
    check_panels(grid, "(chains, energy)")
    for target, (chains, _) in grid.items():
        check_panels({target: chains}, "chains, name to draws")
        _check(chains)
    columns = list(looks(_labels(grid)))
    look = looks(columns)
    with make_figure(style) as figure:
        side = (figure.get_figwidth() - 0.5) / max(2, len(columns))
        figure.set_figheight(len(grid) * (side + 0.05) + 0.5)
        for i, (target, (chains, energy)) in enumerate(grid.items()):
            places = {label: 1 + i * len(columns) + columns.index(label) for label in chains}
            axes = {label: figure.add_subplot(len(grid), len(columns), place) for label, place in places.items()}
            _draw(axes, chains, energy, num_draws, look)
            leftmost = min(places, key=lambda label: places[label])
            axes[leftmost].set_ylabel(f"{wrap(target, side)}\nlast coordinate")
            for label, ax in axes.items():
                ax.tick_params(labelleft=label == leftmost)
                ax.xaxis.set_major_locator(_few_ticks())
                ax.yaxis.set_major_locator(_few_ticks())
                # A method that a target lacks leaves a gap, with its name above the next one.
                if not any(label in above for above, _ in list(grid.values())[:i]):
                    ax.set_title(wrap(label, side), color=look[label]["color"])
                if not any(label in below for below, _ in list(grid.values())[i + 1 :]):
                    ax.set_xlabel("first coordinate")
        figure.align_ylabels()
    return figure


def _labels(grid: Mapping[str, tuple[Chains, Any]]) -> Iterable[str]:
    return (label for chains, _ in grid.values() for label in chains)


def _few_ticks():
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])


def _check(chains: Chains) -> None:
    for label, chain in chains.items():
        if chain.ndim != 2 or chain.shape[1] != 2 or chain.shape[0] == 0:
            raise ValueError(
                f"the chain of {label!r} has shape {chain.shape} but (draw, 2) is needed: "
                "choose one chain and two coordinates, such as positions[0][:, :2]"
            )


def _draw(
    axes: Mapping[str, Axes],
    chains: Chains,
    energy: Callable | None,
    num_draws: int,
    look: Mapping[str, Mapping[str, Any]],
) -> None:
    limits = data_limits(np.concatenate([np.asarray(chain, np.float64) for chain in chains.values()]))
    regions = None if energy is None else mass_regions(energy, limits)
    for label, chain in chains.items():
        ax, colour = axes[label], look[label]["color"]
        if regions is not None:
            ax.contourf(*regions, colors=REGION_COLOURS, zorder=0)
        x, y = chain[:num_draws].T
        ax.plot(x, y, color=colour, linewidth=0.4, alpha=0.6)
        ax.scatter(x, y, s=5, color=colour, alpha=0.8, linewidths=0)
        ax.set(xlim=limits[0], ylim=limits[1], box_aspect=1)
