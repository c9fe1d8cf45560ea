"""`leapling fit` and `leapling bench`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from leapling.checks import dimension
from leapling.cli.common import Common, show
from leapling.files import make_folder
from leapling.targets import resolve


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitCommand(Common):
    """The best exact sampler of a target that a budget of time allows, with a verdict."""

    target: Annotated[str, tyro.conf.Positional]
    """A built-in name, module:function, or file.py:function (an energy of one point)."""
    dim: int | None = None
    """Number of coordinates; needed for an energy of your own."""
    budget: str = "2 min"
    """Wall-clock time for everything, compiling included: "90 s", "5min", "1 h"."""
    chains: int = 64
    draws: int = 1000
    """Draws of each chain to write to draws.nc; 0 for none."""
    start_from: Path | None = None
    """The folder of a fit to a neighbouring target of as many coordinates, whose sampler enters the race."""

    def run(self) -> int:
        from leapling.autopilot import fit
        from leapling.autopilot.fitted import neighbour
        from leapling.interop import to_netcdf

        energy = resolve(self.target)
        folder = make_folder(self.out or Path("runs") / f"fit-{self.target.rpartition('/')[2].replace(':', '-')}")
        fitted = fit(
            energy,
            dimension(None, energy, self.dim),
            budget=self.budget,
            seed=self.seed,
            start_from=None if self.start_from is None else neighbour(self.start_from),
            progress=True,
        )
        fitted.save(folder, self.target)
        if self.draws:
            draws = fitted.draw(self.chains, self.draws, seed=self.seed)
            to_netcdf(draws, folder / "draws.nc", seed=self.seed, start="fit", target=self.target)
        show(self, {"run": str(folder), **fitted.verdict.to_dict()}, f"{fitted.verdict}\n\nwritten to {folder}")
        return 0 if fitted.verdict.exactness["passed"] else 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench(Common):
    """What `fit` reaches on targets whose answer is known; finished runs are stored and found again."""

    what: Annotated[Literal["fit"], tyro.conf.Positional]
    budget: str = "5 min"
    seeds: int = 5
    """How many, counted from --seed."""
    targets: tuple[str, ...] = ()
    """Some of the ten; all of them when none is given."""
    jobs: int = 2
    """Runs at a time, each on a core of its own."""

    def run(self) -> int:
        from leapling.bench import BARS, bench_fit
        from leapling.report import page_markdown

        folder = make_folder(self.out or Path("runs/bench-fit"))
        result = bench_fit(
            list(self.targets or BARS),
            folder,
            budget=self.budget,
            num_seeds=self.seeds,
            first_seed=self.seed,
            jobs=self.jobs,
        )
        show(self, result, f"{page_markdown(result)}\nwritten to {folder}")
        return 0
