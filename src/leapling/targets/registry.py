"""From a name on the command line to an energy: a built-in target, or a function of the user's own."""

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from leapling.targets.banana import Banana
from leapling.targets.base import Target
from leapling.targets.funnel import Funnel
from leapling.targets.gaussian import icg, scg
from leapling.targets.mixture import mog, mog2, mog2_unequal, mog20, ring
from leapling.targets.rough_well import RoughWell

TARGETS: dict[str, Callable[[], Target]] = {
    "scg": scg,
    "icg": icg,
    "mog": mog,
    "mog2": mog2,
    "mog2-unequal": mog2_unequal,
    "mog-20": mog20,
    "ring": ring,
    "rough-well": RoughWell,
    "rough-well-10": partial(RoughWell, dim=10, name="rough-well-10"),
    "funnel": Funnel,
    "banana": Banana,
}


def resolve(spec: str) -> Callable[..., Any]:
    """The energy `spec` names: a built-in target, `module:function` or `path/file.py:function`.

    The user's attribute is a function of one point or a `Target`; its module is imported here, never before.
    """
    if spec in TARGETS:
        return TARGETS[spec]()
    source, _, attribute = spec.rpartition(":")
    if not source or not attribute:
        close = difflib.get_close_matches(spec.lower(), TARGETS, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(
            f"there is no target {spec!r}{hint}: give one of {', '.join(TARGETS)}, or an energy of your own "
            "as module:function or path/file.py:function."
        )
    is_file = source.endswith(".py") or "/" in source or "\\" in source
    module = _load_file(Path(source)) if is_file else _load_module(source)
    energy = getattr(module, attribute, None)
    if energy is None:
        public = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        close = difflib.get_close_matches(attribute, public, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it offers {', '.join(public) or 'no function'}."
        raise ValueError(f"{source} has no attribute {attribute!r}, the name of an energy in it is needed: {hint}")
    if isinstance(energy, type) or not callable(energy):
        given = "a class" if isinstance(energy, type) else f"of type {type(energy).__name__}"
        raise ValueError(
            f"{spec} is {given}, a function of one point or a Target instance is needed: try naming one in {source}."
        )
    return energy


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"there is no file {path}, an existing Python file is needed: check the path.")
    # Not under its own stem: a file called jax.py must not take the place of a package already imported.
    name = f"_leapling_energy_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ValueError(f"{path} is not a Python file, one ending in .py is needed: try renaming it.")
    _make_importable(path.resolve().parent)
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and pickle look a module up by its name
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _failed(str(path), error) from error
    return module


def _load_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    origin = name
    try:
        found = importlib.util.find_spec(name)
        if found is not None:
            origin = found.origin or name
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        # A missing parent package is a misspelt name; any other missing module, one the user's code imports.
        is_parent = isinstance(error, ModuleNotFoundError) and name.startswith(f"{error.name}.")
        if not is_parent:
            raise _failed(origin, error) from error
    raise ValueError(
        f"there is no module {name!r}, one importable from {Path.cwd()} or installed is needed: check the "
        "name or give the file as path/file.py:function."
    )


def _make_importable(folder: Path) -> None:
    """First in line, and for good, as for a script: an energy may import its neighbours when first called."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def _failed(origin: str, error: BaseException) -> ValueError:
    return ValueError(
        f"importing {origin} raised {type(error).__name__}: {error}; one that imports cleanly is needed: try "
        f"running python {origin}."
    )
