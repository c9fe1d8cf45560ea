"""How training went."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from leapling.report.style import make_figure

NAMES = {"loss": "#005fa8", "acceptance": "#00926a", "step_size": "#c84a00"}


def plot_training(history: Mapping[str, Float[np.ndarray, "_"]], *, style: Mapping[str, Any] | None = None) -> Figure:
    """Loss, acceptance and step size of each iteration (faint), under running means over a hundredth of them.

    The axis of the loss leaves out the most extreme 1% on either side: one spike would flatten all the rest.
    """
    names = [name for name in NAMES if name in history]
    if not names:
        raise ValueError(
            f"the history holds {sorted(history)} but one of loss, acceptance and step_size is needed: "
            "give the history of a TrainResult"
        )
    with make_figure(style) as figure:
        figure.set_figheight(1.3 * len(names) + 0.3)
        axes = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
        for ax, name in zip(axes, names, strict=True):
            values = np.asarray(history[name], np.float64)
            finite = np.isfinite(values)
            ax.plot(np.where(finite, values, np.nan), color=NAMES[name], alpha=0.3, linewidth=0.4)
            ax.plot(running_mean(values, max(1, values.size // 100)), color=NAMES[name])
            ax.set_ylabel(name.replace("_", " "))
            if name == "loss" and finite.any():
                low, high = np.percentile(values[finite], (1, 99))
                margin = 0.1 * (high - low) or 1.0
                ax.set_ylim(low - margin, high + margin)
        axes[-1].set_xlabel("iteration")
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        figure.align_ylabels()
    return figure


def running_mean(values: Float[np.ndarray, "_"], width: int) -> Float[np.ndarray, "_"]:
    """Centred means of the finite values; NaN where the window has none."""
    window, finite = np.ones(width), np.isfinite(values)
    count = np.convolve(finite, window, "same")
    total = np.convolve(np.where(finite, values, 0), window, "same")
    return np.divide(total, count, out=np.full(count.size, np.nan), where=count > 0)
