"""A run on disk: a folder with a readable header, `run.json`, and arrays. No pickle; every write is atomic."""

import hashlib
import json
import math
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from leapling.arrays import TreeLike, from_arrays, pack, to_arrays, unpack
from leapling.energy import as_energy
from leapling.files import RunError, atomic_path, make_folder, write_json
from leapling.kernel_config import configuration, rebuild
from leapling.kernels import Kernel

FORMAT = 1
HEADER = "run.json"
CHECKPOINT = "checkpoint.npz"


# --- the target, recognised by its values ------------------------------------------------------------------------


def fingerprint(energy: Callable, dim: int) -> dict[str, Any]:
    """Energies at fixed points: enough to recognise a target without importing it. None where not finite."""
    points = np.random.default_rng(20180215).normal(size=(8, dim)).astype(np.float32)
    values = np.asarray(as_energy(energy).value_and_grad(jnp.asarray(points.T))[0], np.float64)
    return {"dim": dim, "energies": [float(v) if math.isfinite(v) else None for v in values]}


def same_target(stored: dict[str, Any], energy: Callable, dim: int) -> None:
    """Refuse an energy whose fingerprint is not the stored one."""
    given = fingerprint(energy, dim)
    if stored["dim"] != dim:
        raise RunError(f"the run is on a target of {stored['dim']} coordinates, the given one has {dim}")
    for i, (a, b) in enumerate(zip(stored["energies"], given["energies"], strict=True)):
        if (a is None) != (b is None) or (a is not None and abs(a - b) > 1e-3 * max(1.0, abs(a))):
            raise RunError(
                f"the given target is not the one of the run: at probe point {i} its energy is {b}, it was {a} in "
                "training; give the same --target, or train on this one"
            )


# --- a trained kernel --------------------------------------------------------------------------------------------


def save_run(folder: str | os.PathLike, kernel: Kernel, *, best: Kernel | None = None, **sections: Any) -> None:
    """Write the kernel (and the best one) and the header.

    The header names the arrays and is written last: whoever reads it finds arrays that belong to it.
    """
    folder = make_folder(folder)
    data = pack(to_arrays({"kernel": kernel, "best": kernel if best is None else best}))
    digest = hashlib.sha256(data).hexdigest()
    name = f"kernel-{digest[:12]}.npz"
    with atomic_path(folder / name) as temporary:
        temporary.write_bytes(data)
    header = {
        "format": FORMAT,
        "library": f"leapling {version('leapling')}",
        "kernel": configuration(kernel),
        "arrays": {"file": name, "sha256": digest},
        **sections,
    }
    _write_header(folder, header)


def _write_header(folder: Path, header: dict[str, Any]) -> None:
    write_json(folder / HEADER, header)
    for old in folder.glob("kernel-*.npz"):
        if old.name != header["arrays"]["file"]:
            old.unlink()


def copy_run(source: Path, folder: Path) -> None:
    """The same run in another folder; one that holds another run is refused, never overwritten."""
    header = read_header(source)
    if (folder / HEADER).exists():
        if read_header(folder) != header:
            raise RunError(f"{folder} already holds another run; give another --out")
        return
    name = Path(header["arrays"]["file"]).name
    with atomic_path(folder / name) as temporary:
        temporary.write_bytes((source / name).read_bytes())
    _write_header(folder, header)


def read_header(folder: str | os.PathLike) -> dict[str, Any]:
    path = Path(folder) / HEADER
    if not path.is_file():
        raise RunError(
            f"there is no run in {folder} (no {HEADER}); make one with `leapling train TARGET --out {folder}`"
        )
    try:
        header = json.loads(path.read_text())
        known = {
            "format": header["format"],
            "kernel": header["kernel"]["kind"],
            "arrays": header["arrays"]["file"],
        }
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} is damaged or not a run of leapling ({error!r}); train again, or restore a copy"
        ) from error
    if known["format"] != FORMAT:
        raise RunError(f"{path} has format {known['format']}, this version of leapling reads {FORMAT}")
    return header


def load_run(folder: str | os.PathLike, which: str = "kernel") -> tuple[Any, dict[str, Any]]:
    """The kernel of a run (`which` is "kernel", the last one, or "best") and its header."""
    folder = Path(folder)
    header = read_header(folder)
    path = folder / Path(header["arrays"]["file"]).name
    if not path.is_file():
        raise RunError(f"{path} is missing, which {HEADER} names; train again, or restore a copy")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != header["arrays"]["sha256"]:
        raise RunError(f"{path} is truncated or was changed (its checksum differs); train again, or restore a copy")
    prefix = f"{which}."
    arrays = {n.removeprefix(prefix): a for n, a in unpack(data, path).items() if n.startswith(prefix)}
    try:
        kernel = rebuild(header["kernel"])
    except TypeError as error:
        raise RunError(f"{folder / HEADER} holds a kernel configuration that does not fit ({error})") from error
    return from_arrays(kernel, arrays, path), header


# --- an unfinished training --------------------------------------------------------------------------------------


def save_checkpoint(folder: str | os.PathLike, state: Any, settings: dict[str, Any]) -> None:
    arrays = to_arrays(state)
    with atomic_path(Path(folder) / CHECKPOINT) as temporary:
        temporary.write_bytes(pack({**arrays, "settings": np.array(json.dumps(settings, sort_keys=True))}))


def load_checkpoint(folder: str | os.PathLike, like: TreeLike, settings: dict[str, Any]) -> TreeLike | None:
    """The stored state, or None when there is none. One of other settings is refused, never overwritten."""
    path = Path(folder) / CHECKPOINT
    if not path.is_file():
        return None
    arrays = unpack(path.read_bytes(), path)
    if "settings" not in arrays:
        raise RunError(f"{path} is not a checkpoint of leapling; give another --out")
    stored = json.loads(str(arrays.pop("settings")))
    for name in sorted(stored.keys() | settings.keys()):
        if stored.get(name) != json.loads(json.dumps(settings.get(name))):
            raise RunError(
                f"{path} is an unfinished training with another {name} ({stored.get(name)} there, "
                f"{settings.get(name)} now); repeat its settings to go on, or give another --out"
            )
    return from_arrays(like, arrays, path)
