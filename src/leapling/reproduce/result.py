"""What an experiment found, and how it is written down: a page, its pictures, and an index of all."""

import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from leapling.files import atomic_path, make_folder, write_json
from leapling.report import markdown_table, page, page_markdown
from leapling.report.pages import Table


@dataclass
class Result:
    """`figures` are name -> (caption, figure)."""

    name: str
    title: str
    protocol: str
    notes: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, tuple[str, Figure]] = field(default_factory=dict)

    def to_dict(self, preset: str) -> dict[str, Any]:
        return page(
            self.title,
            f"leapling reproduce {self.name} --preset {preset}",
            self.protocol,
            self.tables,
            notes=self.notes,
            figures={f"{name}.png": caption for name, (caption, _) in self.figures.items()},
            experiment=self.name,
            preset=preset,
        )


def write(result: Result, folder: Path, preset: str) -> dict[str, Any]:
    folder = make_folder(folder)
    value = result.to_dict(preset)
    for name, (_, figure) in result.figures.items():
        with atomic_path(folder / f"{name}.png") as temporary:
            figure.savefig(temporary, format="png")
    with atomic_path(folder / f"{result.name}.md") as temporary:
        temporary.write_text(page_markdown(value))
    write_json(folder / f"{result.name}.json", value)
    return value


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; font-size: 13px; } .scroll { overflow-x: auto; }
td, th { padding: .2rem .6rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; } figcaption, caption { text-align: left; color: #555; } caption { font-weight: 600; }
""".strip()


def index_page(results: list[dict[str, Any]]) -> str:
    """One page that shows every experiment, its tables and its pictures."""
    links = "".join(f'<li><a href="#{r["experiment"]}">{html.escape(r["title"])}</a></li>' for r in results)
    sections = "\n".join(_section(result) for result in results)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>leapling: the paper, reproduced</title><style>{STYLE}</style></head><body>\n"
        f"<h1>The paper's experiments, reproduced</h1><p>Preset: {results[0]['preset']}.</p><ul>{links}</ul>\n"
        f"{sections}\n</body></html>\n"
    )


def _section(result: dict[str, Any]) -> str:
    name = result["experiment"]
    parts = [f'<h2 id="{name}">{html.escape(result["title"])}</h2>']
    parts.append(f"<p><code>{html.escape(result['command'])}</code>. {html.escape(result['protocol'])}</p>")
    parts += [f"<p>{html.escape(note)}</p>" for note in result["notes"]]
    for table in result["tables"]:
        # The same cells as the Markdown: one place decides how numbers are written.
        lines = [line.strip("| \n") for line in markdown_table(table["rows"], table["columns"]).splitlines()]
        head, rule, *rows = ([cell.strip() for cell in line.split(" | ")] for line in lines)
        kinds = [' class="number"' if cell.endswith(":") else "" for cell in rule]
        body = "".join(_line(row, kinds, "td") for row in rows)
        caption = html.escape(table["caption"])
        head = _line(head, kinds, "th")
        parts.append(f'<div class="scroll"><table><caption>{caption}</caption>{head}{body}</table></div>')
    parts += [
        f'<figure><img src="{name}/{figure["file"]}" alt="{html.escape(figure["caption"])}">'
        f"<figcaption>{html.escape(figure['caption'])}</figcaption></figure>"
        for figure in result["figures"]
    ]
    return "\n".join(parts)


def _line(cells: list[str], kinds: list[str], tag: str) -> str:
    inner = "".join(f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True))
    return f"<tr>{inner}</tr>"
