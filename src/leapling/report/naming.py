"""Names of lines: written beside them where that can be read, in a legend otherwise."""

from collections.abc import Collection, Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.textpath import TextPath

# Behind the ends of the lines, or above the beginnings: which end, offset in points, alignment.
PLACES = ((-1, (4, 0), "left", "center"), (0, (-2, 4), "left", "bottom"))
BEFORE_END = (-1, (-6, 0), "right", "center")
MAX_SHARE = 0.5  # of the width of a panel that a name may take


def name_lines(figure: Figure, panels: Mapping[Axes, Mapping[str, Line2D]], guides: Collection[str] = ()) -> None:
    """Name the lines of every panel, all of them in the same way: beside the lines, or in one legend above.

    Rising `guides` are named before their ends, where the others leave room.
    """
    written: dict[Axes, list[Annotation]] = {}
    for ax, lines in panels.items():
        for place in PLACES:
            written[ax] = [
                name
                for label, line in lines.items()
                for name in _write(ax, label, line, *(BEFORE_END if label in guides else place))
            ]
            figure.draw_without_rendering()  # now names and panels have sizes
            if _is_legible(ax, written[ax]):
                break
            _remove(written.pop(ax))
        if ax not in written:
            break
    # The names of one panel may have moved another.
    figure.draw_without_rendering()
    if len(written) == len(panels) and all(_is_legible(ax, names) for ax, names in written.items()):
        return
    for names in written.values():
        _remove(names)
    add_legend(figure, {label: line for lines in panels.values() for label, line in lines.items()})


def add_legend(figure: Figure, handles: Mapping[str, Any]) -> None:
    """Above the panels, in as few rows as there is room for."""
    size = FontProperties(size=mpl.rcParams["legend.fontsize"]).get_size_in_points()
    widths = [TextPath((0, 0), label, size=size).get_extents().width for label in handles]

    def width(num_columns: int) -> float:
        # Of a column, besides its longest name: the handle, the space behind it, and half of that between columns.
        columns = np.array_split(widths, num_columns)
        return sum(column.max() + 4.8 * size for column in columns)

    room = 72 * figure.get_figwidth()
    num_columns = next((n for n in range(len(handles), 1, -1) if width(n) <= room), 1)
    num_rows = -(-len(handles) // num_columns)
    num_columns = -(-len(handles) // num_rows)  # 3 + 2 rather than 4 + 1
    figure.legend(list(handles.values()), list(handles), loc="outside upper left", ncols=num_columns)


def _write(ax: Axes, label: str, line: Line2D, end: int, offset: tuple[int, int], ha: str, va: str) -> list[Annotation]:
    xy = np.asarray(line.get_xydata(), float)
    xy = xy[np.isfinite(xy).all(axis=1)]
    if not len(xy):
        return []
    size, colour = mpl.rcParams["legend.fontsize"], line.get_color()
    return [ax.annotate(label, xy[end], offset, textcoords="offset points", ha=ha, va=va, color=colour, fontsize=size)]


def _remove(names: list[Annotation]) -> None:
    for name in names:
        name.remove()


def _is_legible(ax: Axes, names: list[Annotation]) -> bool:
    """Whether no name is too long, leaves the panel upwards or downwards, or touches another one or a line."""
    panel = ax.get_window_extent()
    boxes = [name.get_window_extent() for name in names]
    lines = [line.get_path().transformed(line.get_transform()) for line in ax.lines]
    return all(
        box.width <= MAX_SHARE * panel.width
        and panel.y0 <= box.y0
        and box.y1 <= panel.y1
        and not any(box.overlaps(other) for other in boxes[:i])
        and not any(line.intersects_bbox(box, filled=False) for line in lines)
        for i, box in enumerate(boxes)
    )
