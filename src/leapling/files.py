"""Writing to disk: whole or not at all."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class RunError(ValueError):
    """A run folder that is missing, damaged, or of something else."""


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place when the block ends well: whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(folder: str | os.PathLike) -> Path:
    """Make the output folder and prove that it can be written, before any work is done."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(folder / "probe") as temporary:
            temporary.write_bytes(b"")
        (folder / "probe").unlink()
    except OSError as error:
        raise RunError(
            f"cannot write to the output folder {folder} ({error.strerror}); give another with --out"
        ) from error
    return folder


def write_json(path: Path, value: Any) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n")
