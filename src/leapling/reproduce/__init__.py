"""The paper's section 5.1 and appendix C.3, whole: every baseline, table and figure."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leapling.files import atomic_path
from leapling.reproduce import ablations, autocorrelation, burn_in, chains, ess, inertia, lahmc, mog2
from leapling.reproduce.lab import Lab
from leapling.reproduce.pieces import Pieces
from leapling.reproduce.result import Result, index_page, write
from leapling.reproduce.scale import SCALES, Scale

__all__ = ["EXPERIMENTS", "SCALES", "Scale", "reproduce"]

EXPERIMENTS: dict[str, Callable[[Lab], Result]] = {
    "ess": ess.run,
    "lahmc": lahmc.run,
    "autocorrelation": autocorrelation.run,
    "chains": chains.run,
    "mog2": mog2.run,
    "burn-in": burn_in.run,
    "ablations": ablations.run,
    "inertia": inertia.run,
}


def reproduce(names: list[str], folder: Path, scale: Scale) -> list[dict[str, Any]]:
    """Run experiments into `folder`, one folder each, and write the index page of all that it holds so far.

    Finished pieces are kept in `folder`/pieces and found again, by the next run and by the other experiments.
    """
    pieces = Pieces(folder / "pieces")
    results = {}
    for name in names:
        print(f"{name}:", file=sys.stderr)
        lab = Lab(scale, pieces)
        result = EXPERIMENTS[name](lab)
        result.notes += [f"Training stopped early, {label}: {why}." for label, why in sorted(lab.stopped.items())]
        results[name] = write(result, folder / name, scale.name)
    print(f"{pieces.num_made} pieces made, {pieces.num_reused} found again", file=sys.stderr)
    known = [results.get(name) or _stored(folder / name, name, scale.name) for name in EXPERIMENTS]
    with atomic_path(folder / "index.html") as temporary:
        temporary.write_text(index_page([result for result in known if result]))
    return list(results.values())


def _stored(folder: Path, name: str, preset: str) -> dict[str, Any] | None:
    """What an earlier run wrote with the same preset."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    result = json.loads(path.read_text())
    return result if result.get("preset") == preset else None
