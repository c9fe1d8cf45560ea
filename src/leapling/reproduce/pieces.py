"""Finished pieces of long experiments: each is stored as it ends, and found again by the next run."""

import json
import sys
import time
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from leapling.files import atomic_path, make_folder

PIECES_PER_CACHE = 16

# A JSON-ready value, and arrays beside it.
Piece = tuple[dict[str, Any], dict[str, np.ndarray]]


class Pieces:
    """A folder of pieces. One that was made with other settings, or is damaged, is made again."""

    def __init__(self, folder: Path):
        self.folder = make_folder(folder)
        self.num_made = self.num_reused = 0

    def find(self, name: str, settings: dict[str, Any]) -> Piece | None:
        return _load(self.folder / f"{name}.npz", _signed(settings))

    def get(self, name: str, settings: dict[str, Any], make: Callable[[], Piece]) -> Piece:
        path = self.folder / f"{name}.npz"
        piece = self.find(name, settings)
        if piece is not None:
            self.num_reused += 1
            return piece
        settings = _signed(settings)
        print(f"  {name} ...", end="", file=sys.stderr, flush=True)
        began = time.perf_counter()
        value, arrays = make()
        value = json.loads(json.dumps(value, allow_nan=False))
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            header = json.dumps({"settings": settings, "value": value})
            np.savez(file, allow_pickle=False, header=np.array(header), **{f"_{k}": v for k, v in arrays.items()})
        self.num_made += 1
        # Every piece compiles, and a process that keeps a few hundred programs runs out of memory mappings.
        if self.num_made % PIECES_PER_CACHE == 0:
            jax.clear_caches()
        print(f" {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        return value, arrays


def _signed(settings: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps({**settings, "library": version("leapling")}))


def _load(path: Path, settings: dict[str, Any]) -> Piece | None:
    if not path.is_file():
        return None
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            header = json.loads(str(stored["header"]))
            if header["settings"] != settings:
                return None
            return header["value"], {name[1:]: stored[name] for name in stored.files if name != "header"}
    except (zipfile.BadZipFile, ValueError, EOFError, KeyError, OSError) as error:
        print(f"  {path} is damaged ({error}) and is made again", file=sys.stderr)
        return None
