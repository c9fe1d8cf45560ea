"""Traces of one coordinate, to see a chain go from mode to mode."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from leapling.report.style import check_panels, looks, make_figure, wrap

HEIGHT = 0.62  # inches of a panel and its name
LABELS = 0.35  # inches that the numbers beside a panel take


def plot_modes(series: Mapping[str, Mapping[str, np.ndarray]], *, style: Mapping[str, Any] | None = None) -> Figure:
    """Traces series[target][method], shape (draw,): a column for each target, its methods above one another."""
    check_panels(series, "traces, name to draws of one coordinate")
    for target, traces in series.items():
        for label, trace in traces.items():
            if trace.ndim != 1 or not trace.size:
                raise ValueError(
                    f"the trace of {label!r} on {target!r} has shape {trace.shape} but (draw,) is needed: "
                    "choose one chain and one coordinate, such as positions[0][:, 0]"
                )
    look = looks(label for traces in series.values() for label in traces)
    num_rows = max(map(len, series.values()))
    with make_figure(style) as figure:
        width = figure.get_figwidth() / len(series)
        figure.set_figheight(HEIGHT * num_rows + 0.6)
        grid = figure.add_gridspec(num_rows, len(series))
        for column, (target, traces) in enumerate(series.items()):
            finite = np.concatenate([trace[np.isfinite(trace)] for trace in traces.values()])
            low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
            margin = 0.1 * (high - low) or 1.0
            for row, (label, trace) in enumerate(traces.items()):
                ax = figure.add_subplot(grid[row, column])
                colour, is_last = look[label]["color"], row == len(traces) - 1
                ax.axhline(0, color="0.85", linewidth=0.5, zorder=0)
                shown = np.where(np.isfinite(trace), trace, np.nan)
                ax.plot(shown, color=colour, linewidth=0.3, alpha=0.35)
                ax.plot(shown, linestyle="none", marker="o", markersize=1.1, markeredgewidth=0, color=colour)
                lost = int(trace.size - np.isfinite(trace).sum())
                name = f"{label} ({lost:,} of {trace.size:,} not finite)" if lost else label
                ax.set_title(wrap(name, width - LABELS), color=colour, fontsize=7, pad=2)
                ax.set(xlim=(0, max(1, trace.size - 1)), ylim=(low - margin, high + margin))
                ax.xaxis.set_major_locator(MaxNLocator(3, integer=True))
                ax.yaxis.set_major_locator(MaxNLocator(3))
                ax.tick_params(labelbottom=is_last)
                if is_last:
                    ax.set_xlabel("transition")
                    # Below a column that is shorter than the others there is room.
                    ax.xaxis.set_in_layout(row == num_rows - 1)
                if row == 0:
                    ax.annotate(
                        wrap(target, width - LABELS),
                        (0, 1),
                        (0, 14),
                        xycoords="axes fraction",
                        textcoords="offset points",
                        weight="bold",
                    )
                if column == 0 and row == (len(traces) - 1) // 2:
                    ax.set_ylabel("$x_1$")
    return figure
