"""A page of results: JSON that holds everything, and Markdown made from that JSON alone."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from leapling.report.tables import markdown_table

# Caption, columns (key -> header), rows.
Table = tuple[str, dict[str, str], list[dict[str, Any]]]


def page(
    title: str,
    command: str,
    protocol: str,
    tables: Sequence[Table],
    *,
    notes: Sequence[str] = (),
    figures: Mapping[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """JSON-ready; `figures` are file name -> caption, `more` is kept beside what the Markdown shows."""
    value = {
        **more,
        "title": title,
        "command": command,
        "protocol": protocol,
        "notes": list(notes),
        "tables": [{"caption": caption, "columns": columns, "rows": rows} for caption, columns, rows in tables],
        "figures": [{"file": file, "caption": caption} for file, caption in (figures or {}).items()],
    }
    return json.loads(json.dumps(value, allow_nan=False))


def page_markdown(page: dict[str, Any]) -> str:
    blocks = [f"# {page['title']}", f"Made by `{page['command']}`. {page['protocol']}"]
    blocks += page["notes"]
    for table in page["tables"]:
        blocks += [f"**{table['caption']}**", markdown_table(table["rows"], table["columns"])]
    blocks += [f"Figure `{figure['file']}`: {figure['caption']}" for figure in page["figures"]]
    return "\n\n".join(blocks) + "\n"
