"""`leapling demo` and `leapling reproduce`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from leapling.cli.common import Common, show
from leapling.demo import run_demo
from leapling.files import make_folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo(Common):
    """Train on a strongly correlated Gaussian, sample, check, and compare with tuned HMC (about a minute)."""

    def run(self) -> int:
        folder = make_folder(self.out or Path("runs/demo"))
        result, table = run_demo(folder, seed=self.seed)
        show(self, result, f"{table}\nwritten to {folder}")
        return 0 if result["exactness"]["passed"] else 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduce(Common):
    """The paper's tables and figures, beside the printed numbers; finished pieces are stored and found again."""

    what: Annotated[
        Literal["all", "ess", "lahmc", "autocorrelation", "chains", "mog2", "burn-in", "ablations", "inertia"],
        tyro.conf.Positional,
    ]
    """One experiment, or all of them and an index page."""
    preset: Literal["quick", "paper"] = "quick"
    """One seed at a fifth of the training (minutes), or as published, 5 seeds (hours); seeds count from --seed."""

    def run(self) -> int:
        from leapling.report import page_markdown
        from leapling.reproduce import EXPERIMENTS, SCALES, reproduce

        folder = make_folder(self.out or Path(f"runs/reproduce-{self.preset}"))
        names = list(EXPERIMENTS) if self.what == "all" else [self.what]
        results = reproduce(names, folder, SCALES[self.preset].shifted(self.seed))
        text = "\n".join(page_markdown(result) for result in results)
        show(self, {"folder": str(folder), "results": results}, f"{text}\nwritten to {folder}; see index.html there")
        return 0
