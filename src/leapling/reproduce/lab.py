"""What the experiments share: trained kernels, tuned baselines, and what a kernel's draws are worth."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from leapling.arrays import from_arrays, to_arrays
from leapling.chains import exact_starts, sample
from leapling.diagnostics import autocorrelation, ess_paper, ess_paper_code, min_ess
from leapling.kernel_config import configuration, rebuild
from leapling.kernels import Kernel
from leapling.reproduce.baselines import baseline
from leapling.reproduce.pieces import Pieces
from leapling.reproduce.scale import Scale
from leapling.targets import TARGETS
from leapling.training import (
    Preset,
    Recipe,
    TrainingStopped,
    adversarial_recipe,
    nice_kernel,
    preset,
    train,
    train_adversarial,
)
from leapling.tuning import tune

PAPER_TARGETS = ("icg", "rough-well", "scg", "mog")
TITLES = {
    "icg": "ICG, 50-d",
    "rough-well": "Rough Well",
    "scg": "SCG",
    "mog": "MoG",
    "mog2": "mog2, equal",
    "mog2-unequal": "mog2, unequal",
}
STEP_SIZES = (0.1, 0.15, 0.2)
# K and beta of the published code of LAHMC's authors. Their eps, 1, fits their targets; here it is searched for each
# target (rows "LAHMC M=10"), or everything is (rows "LAHMC").
LAHMC_AUTHORS = {"num_trajectories": 4, "refreshment": 0.1}
LAHMC_GRID = {
    "num_steps": [1, 2, 5, 10, 20, 40, 80],
    "num_trajectories": [2, 4],
    "refreshment": [0.1, 0.5, 1.0],
}
STEP_SIZES = (0.03, 0.05, 0.07, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.36)
MAX_LAG = 1000
FIGURES = ("ess_paper", "ess_paper_code", "min_ess")
STEP_FIGURES = ("step_size", "acceptance_rate", "gradients_per_draw", *FIGURES)
STEP_COLUMNS = {
    "target": "target",
    "step_size": "step size",
    "acceptance_rate": "acceptance",
    "gradients_per_draw": "gradients per draw",
    **{name: name for name in FIGURES},
}


@dataclass(frozen=True)
class Measured:
    """What one kernel's draws are worth, per transition; `arrays`: rho, rho_energy, and one chain."""

    figures: dict[str, float]
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True)
class Lab:
    scale: Scale
    pieces: Pieces
    stopped: dict[str, str] = field(default_factory=dict)  # trainings that did not reach their end, and why

    @property
    def protocol(self) -> str:
        return f"{self.scale.num_chains} chains x {self.scale.num_draws:,} transitions from exact draws"

    def preset(self, target: str) -> Preset:
        return preset(self.scale.name, target)

    # --- learned kernels -----------------------------------------------------------------------------------------

    def trained(self, target: str, seed: int, *, name: str = "", settings: Preset | None = None) -> Kernel:
        """The last kernel of the preset's recipe, or of `settings`, a variant of it called `name`."""
        settings = settings or self.preset(target)
        label = slug("trained", target, *([name] if name else []), seed)
        said = {"preset": repr(settings), "target": target, "seed": seed}
        return self._trained(label, said, lambda dim: settings.build(dim, seed=seed), target, settings.recipe, seed)

    def nice(self, target: str, seed: int) -> Kernel:
        """The NICE operator, trained with the paper's loss by the same loop."""
        recipe = self.preset(target).recipe
        said = {"recipe": repr(recipe)}
        return self._trained(slug("nice", target, seed), said, lambda dim: nice_kernel(dim, seed), target, recipe, seed)

    def _trained(self, label: str, said: dict, build: Callable, target: str, recipe: Recipe, seed: int) -> Kernel:
        def make():
            energy = TARGETS[target]()
            try:
                result, why = train(build(energy.dim), energy, recipe, seed=seed), None
            except TrainingStopped as stop:  # a finding, and its kernel is measured like the others
                result, why = stop.result, str(stop)
            value = {"kernel": configuration(result.kernel), "training": result.summary(), "stopped": why}
            return value, to_arrays(result.kernel)

        return self.kernel(label, said, make)

    def kernel(self, label: str, settings: dict[str, Any], make: Callable) -> Kernel:
        """A stored kernel; `make` gives {"kernel": its configuration} and its arrays."""
        value, arrays = self.pieces.get(label, settings, make)
        if value.get("stopped"):
            self.stopped[label] = value["stopped"]
        return from_arrays(rebuild(value["kernel"]), arrays, self.pieces.folder / label)

    def adversarial(self, target: str, seed: int) -> Kernel:
        """The NICE operator, trained adversarially: A-NICE-MC."""
        recipe = adversarial_recipe(target, self.scale.adversarial_share)

        def make():
            energy = TARGETS[target]()
            result = train_adversarial(nice_kernel(energy.dim, seed), energy, recipe, seed=seed)
            return {"kernel": configuration(result.kernel), "gradients": result.num_gradients}, to_arrays(result.kernel)

        return self.kernel(slug("a-nice-mc", target, seed), {"recipe": repr(recipe)}, make)

    # --- baselines -----------------------------------------------------------------------------------------------

    def tuned(self, method: str, target: str, criterion: str) -> tuple[Kernel, dict[str, Any]]:
        """A baseline and what tuning it found: the best row, the surface, and what it cost."""
        energy = TARGETS[target]()
        family, grid = self.family(method, target)
        settings = {
            "grid": {name: [float(v) for v in values] for name, values in grid.items()},
            "gradients": self.scale.tuning_gradients,
            "chains": self.scale.tuning_chains,
        }

        def make():
            found = tune(
                family,
                energy,
                initial_positions=exact_starts(energy, self.scale.tuning_chains, seed=100),
                grid=grid,
                criterion=criterion,
                gradients=self.scale.tuning_gradients,
                seed=100,
            )
            names = [name for name in found.best if name in ("step_size", "num_steps", "length_jitter", *grid)]
            value = asdict(replace(found, kernel=None)) | {"settings": {name: found.best[name] for name in names}}
            return value, {}

        value, _ = self.pieces.get(slug("tuned", method, target, criterion), settings, make)
        return family(**value["settings"]), value

    def family(self, method: str, target: str) -> tuple[Callable[..., Kernel], dict[str, Sequence]]:
        return baseline(method, TARGETS[target](), self.preset(target).num_steps)

    def by_step_size(self, method: str, target: str) -> list[dict[str, Any]]:
        """A baseline whose step size alone is free, at many of them; one seed."""
        family, grid = self.family(method, target)
        settings = {name: values[0] for name, values in grid.items()}
        rows = []
        for step_size in STEP_SIZES:
            kernel = family(**settings, step_size=step_size)
            measured = self.measured(f"{method} step {step_size:g}", target, kernel, self.scale.seeds[0])
            rows.append({"target": TITLES[target], **{name: measured.figures[name] for name in STEP_FIGURES}})
        return rows

    # --- what draws are worth ------------------------------------------------------------------------------------

    def measured(self, label: str, target: str, kernel: Kernel, seed: int) -> Measured:
        """The protocol of `ess_paper`: chains from exact draws, true moments."""
        settings = {
            "num_chains": self.scale.num_chains,
            "num_draws": self.scale.num_draws,
            "kernel": identity(kernel),
        }

        def make():
            energy = TARGETS[target]()
            draws = sample(
                kernel,
                energy,
                num_draws=self.scale.num_draws,
                seed=seed + 1000,
                initial_positions=exact_starts(energy, self.scale.num_chains, seed=seed + 1000),
                warn=False,
            )
            rho = autocorrelation(draws.positions, mean=energy.mean, variance=energy.variance)
            gradients = float(np.mean(draws.statistics["n_steps"]))
            value = {
                "ess_paper": ess_paper(rho),
                "ess_paper_code": ess_paper_code(rho),
                "min_ess": min_ess(draws.positions, draws.statistics["energy"]),
                "gradients_per_draw": gradients,
                "acceptance_rate": float(np.mean(draws.statistics["acceptance_rate"])),
                "step_size": float(np.mean(draws.statistics["step_size"])),
            }
            lags = min(MAX_LAG, self.scale.num_draws // 2)
            arrays = {
                "rho": rho[: lags + 1],
                "rho_energy": autocorrelation(draws.statistics["energy"][:, :, None], max_lag=lags),
                "chain": draws.positions[0][:, [0, -1]],
            }
            return value, arrays

        return Measured(*self.pieces.get(slug("measured", label, target, seed), settings, make))


def identity(kernel: Kernel) -> str:
    """Tells one kernel from another of the same name."""
    digest = hashlib.sha256(json.dumps(configuration(kernel)).encode())
    for name, array in to_arrays(kernel).items():
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def slug(*words: object) -> str:
    """A file name."""
    return "-".join(re.sub(r"[^a-z0-9.=]+", "-", str(word).lower()).strip("-") for word in words)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range over seeds."""
    return {"median": median(values), "min": min(values), "max": max(values)}


def closest(rows: Sequence[dict[str, Any]], figure: str, printed: float) -> dict[str, Any]:
    """The row whose figure is the fewest times off."""
    return min(rows, key=lambda row: abs(np.log(max(row[figure], 1e-12) / printed)))


def count(seeds: Sequence[int]) -> str:
    return f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
