"""How every figure looks: settings, a colour for each family of methods, and the arrangement of panels."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Matplotlib's own settings; `style=` overrides them. The height of panels follows from the width.
STYLE: dict[str, Any] = {
    "figure.figsize": (5.0, 3.0),
    "figure.dpi": 200,
    "savefig.dpi": "figure",
    "figure.constrained_layout.use": True,
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "figure.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
}

# The colour of a method is that of the first family that its name begins like, so that it is the same in every
# figure whatever its settings are. Apart for readers of all kinds of colour vision, as simulated after Machado.
FAMILIES = (
    (r"L2HMC in ", "#7d3c00"),
    (r"L2HMC\b", "#c84a00"),
    (r"LAHMC\b", "#c05aa5"),
    (r"HMC whitened\b", "#00926a"),
    (r"HMC tuned\b", "#005fa8"),
    (r"HMC\b", "#333333"),
    (r"A-NICE", "#b39200"),
    (r"NICE\b", "#3f9fdc"),
)
OTHER = "#8c8c8c"
# Members of a family in one figure: same colour, other dashes.
DASHES = ("-", (0, (4, 1.3)), (0, (1, 1)), (0, (5, 1, 1, 1)))
QUIET = "0.55"  # what is not data: guides, floors, references
CHARACTERS = 14  # to the inch, about, at the size of ticks
MIN_PANEL_WIDTH = 1.6  # inches; what is narrower goes into fewer columns


@contextmanager
def make_figure(style: Mapping[str, Any] | None) -> Iterator[Figure]:
    with mpl.rc_context(cast(Any, {**STYLE, **(style or {})})):
        yield Figure()


def looks(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and line style of each label: the family's; for a stranger a colour that no other label has."""
    labels = list(dict.fromkeys(labels))
    if not labels:
        raise ValueError("no method was given but at least one is needed: give a dictionary, name to data")
    colours = {label: _family(label) for label in labels}
    # Strangers take what is furthest from the usual company first, and grey when all is taken.
    spare = [colour for _, colour in reversed(FAMILIES) if colour not in colours.values()]
    for label, colour in colours.items():
        if colour is None:
            colours[label] = spare.pop(0) if spare else OTHER
    seen: dict[Any, int] = {}
    found = {}
    for label, colour in colours.items():
        seen[colour] = seen.get(colour, -1) + 1
        found[label] = {"color": colour, "linestyle": DASHES[seen[colour] % len(DASHES)]}
    return found


def _family(label: str) -> str | None:
    return next((colour for pattern, colour in FAMILIES if re.match(pattern, label)), None)


def check_panels(panels: Mapping[str, Any], what: str) -> None:
    """No figure without panels, no panel without data."""
    if not panels:
        raise ValueError(f"no panel was given but at least one is needed: give a dictionary, title to {what}")
    for title, content in panels.items():
        if not content:
            raise ValueError(f"the panel {title!r} is empty: leave it out, or give it {what}")


def panel_grid(figure: Figure, titles: Sequence[str], *, height: float) -> list[Axes]:
    """An axes for each title, in as many columns as are wide enough, and rows of `height` panel widths."""
    width = figure.get_figwidth()
    num_columns = max(1, min(len(titles), int(width // MIN_PANEL_WIDTH)))
    num_rows = -(-len(titles) // num_columns)
    num_columns = -(-len(titles) // num_rows)  # 2 + 2 rather than 3 + 1
    figure.set_figheight(num_rows * (height * width / num_columns + 0.15) + 0.4)
    axes = [figure.add_subplot(num_rows, num_columns, i + 1) for i in range(len(titles))]
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(wrap(title, width / num_columns))
    return axes


def wrap(text: str, width: float) -> str:
    """Broken into lines of at most `width` inches, about, at the size of ticks."""
    return textwrap.fill(text, max(8, int(CHARACTERS * width)))
