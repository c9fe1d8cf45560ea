"""Tables in Markdown that also read well raw, in a terminal."""

from numbers import Integral, Real
from typing import Any


def markdown_table(rows: list[dict], columns: dict[str, str]) -> str:
    """A table of the rows' values under `columns`, key -> header. None, or no such key, is "-".

    Reals have three significant digits, integers (counts) are whole. Columns of numbers are right aligned.
    """
    lines = [list(columns.values()), *([_cell(row.get(key)) for key in columns] for row in rows)]
    lines = [[text.replace("|", "\\|") for text in line] for line in lines]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(columns))]
    right = [_holds_numbers([row.get(key) for row in rows]) for key in columns]

    def join(line: list[str]) -> str:
        padded = (t.rjust(w) if r else t.ljust(w) for t, w, r in zip(line, widths, right, strict=True))
        return f"| {' | '.join(padded)} |"

    rule = ["-" * (w - 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)]
    return "\n".join(map(join, [lines[0], rule, *lines[1:]]))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _holds_numbers(values: list) -> bool:
    """Whether there is a number, and nothing but numbers and gaps."""
    values = [value for value in values if value is not None]
    return bool(values) and all(map(_is_number, values))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if not _is_number(value):
        return str(value)
    if isinstance(value, Integral):
        return f"{int(value):,}"
    # Rounded first: it is the rounded number that decides whether it is written with an exponent.
    rounded = float(f"{float(value):.3g}")
    if abs(rounded) >= 1000:
        return f"{rounded:,.0f}" if abs(rounded) < 1e9 else f"{rounded:.3g}"
    return f"{rounded:#.3g}".removesuffix(".")
