"""What the commands share."""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from leapling.checks import check_energy, dimension
from leapling.files import RunError, make_folder
from leapling.kernels import Kernel
from leapling.report import markdown_table
from leapling.store import (
    load_run,
    same_target,
)
from leapling.targets import TARGETS, resolve


@dataclasses.dataclass(frozen=True, kw_only=True)
class Common:
    seed: int = 0
    """Seed of every random number of the command."""
    out: Path | None = None
    """Folder to write to."""
    json: bool = False
    """Print one JSON object on standard output; everything else goes to standard error."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnRun(Common):
    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(name="run")]
    """The folder that `leapling train` wrote."""
    target: str | None = None
    """The energy again, when it is your own: a run never imports it by itself."""
    which: Literal["last", "best"] = "last"
    """The kernel at the end of training, or the one with the lowest loss."""

    def load(self) -> tuple[Kernel, Callable, dict[str, Any]]:
        kernel, header = load_run(self.run_folder, "kernel" if self.which == "last" else "best")
        energy, stored = self.energy(header), header["settings"]["fingerprint"]
        dim = dimension(None, energy, stored["dim"])
        check_energy(energy, dim)
        same_target(stored, energy, dim)
        return kernel, energy, header

    def energy(self, header: dict[str, Any]) -> Callable:
        name = header["settings"]["target"]
        if self.target is None and name not in TARGETS:
            raise RunError(f"the run is on a target of your own: repeat it, --target {name}")
        return resolve(self.target or name)

    def folder(self) -> Path:
        return make_folder(self.out or self.run_folder)


def show(command: Common, result: dict[str, Any], text: str) -> None:
    """The result: one JSON object, or text for a person."""
    print(json.dumps(result, allow_nan=False) if command.json else text)


def log(text: str) -> None:
    print(text, file=sys.stderr)


def table(rows: list[dict[str, Any]]) -> str:
    return markdown_table(rows, {"what": "", "value": ""})


def given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
