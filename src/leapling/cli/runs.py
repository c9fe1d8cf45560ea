"""`leapling sample`, `check` and `diagnose`: commands on a run that `train` wrote."""

import dataclasses
from typing import Literal

import numpy as np

from leapling.chains import exact_starts, sample
from leapling.cli.common import OnRun, log, show, table
from leapling.diagnostics import check_kernel, summarise
from leapling.files import write_json
from leapling.interop import from_netcdf, to_netcdf
from leapling.store import (
    copy_run,
    read_header,
)
from leapling.targets import TARGETS, Target, resolve


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample(OnRun):
    """Draw from a run's target with its kernel, into draws.nc (NetCDF, for ArviZ)."""

    chains: int = 200
    draws: int = 2000
    warmup: int | None = None
    """Transitions before the first draw: none from exact draws, 1000 otherwise."""
    thin: int = 1
    start: Literal["auto", "exact", "normal"] = "auto"
    """Start chains from exact draws of the target (auto: where it has them) or from N(0, I)."""

    def run(self) -> int:
        kernel, energy, header = self.load()
        folder = self.folder()
        if folder.resolve() != self.run_folder.resolve():
            copy_run(self.run_folder, folder)  # so that `check` and `diagnose` can read this folder too
        is_exact = self.start != "normal" and isinstance(energy, Target)
        if self.start == "exact" and not is_exact:
            raise ValueError("--start exact needs a target with exact draws, and this one has none; use --start normal")
        positions = None
        if is_exact:
            assert isinstance(energy, Target)
            positions = exact_starts(energy, self.chains, seed=self.seed)
        draws = sample(
            kernel,
            energy,
            num_draws=self.draws,
            num_chains=self.chains,
            num_warmup=(0 if is_exact else 1000) if self.warmup is None else self.warmup,
            thin=self.thin,
            seed=self.seed,
            initial_positions=positions,
            progress=True,
            warn=False,
        )
        if draws.warning:
            log(f"warning: {draws.warning}")
        start = "exact draws" if is_exact else "N(0, I)"
        file = folder / "draws.nc"
        if draws.is_interrupted and file.exists():
            file = folder / "draws-interrupted.nc"  # a whole run is not replaced by a part of one
        to_netcdf(draws, file, seed=self.seed, start=start, target=header["settings"]["target"])
        result = {
            "file": str(file),
            "num_chains": draws.num_chains,
            "num_draws": draws.num_draws,
            "num_warmup": draws.num_warmup,
            "start": start,
            "acceptance_rate": float(np.mean(draws.statistics["acceptance_rate"])),
            "num_divergences": int(np.sum(draws.statistics["diverging"])),
            "num_frozen_chains": draws.num_frozen,
            "num_gradients": draws.num_gradients,
            "compile_seconds": round(draws.compile_seconds, 3),
            "seconds": round(draws.seconds, 3),
            "is_interrupted": draws.is_interrupted,
        }
        show(self, result, table([{"what": name, "value": value} for name, value in result.items()]))
        return 2 if draws.is_interrupted else 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check(OnRun):
    """Test that the run's kernel leaves its target invariant. Exit code 1 when a law fails."""

    def run(self) -> int:
        kernel, energy, _ = self.load()
        folder, positions = self.folder(), None
        if (self.run_folder / "draws.nc").exists():
            groups = from_netcdf(self.run_folder / "draws.nc")
            draws = np.asarray(groups["posterior"]["x"])
            positions = draws[:, -1] if draws.shape[0] > 1 else draws[0]
        report = check_kernel(kernel, energy, positions=positions, seed=self.seed)
        write_json(folder / "check.json", report.to_dict())
        show(self, report.to_dict(), str(report))
        return 0 if report.passed else 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnose(OnRun):
    """Every diagnostic of the run's draws, under its own name."""

    def run(self) -> int:
        header = read_header(self.run_folder)
        folder = self.folder()
        groups = from_netcdf(self.run_folder / "draws.nc")
        name = header["settings"]["target"]
        energy = resolve(name) if name in TARGETS else None  # only for its true moments
        statistics = {key: np.asarray(value) for key, value in groups["sample_stats"].items()}
        truth = {"mean": energy.mean, "variance": energy.variance} if isinstance(energy, Target) else {}
        result = summarise(
            np.asarray(groups["posterior"]["x"]),
            statistics["energy"],
            acceptance=statistics["acceptance_rate"],
            num_gradients=statistics["n_steps"],
            diverging=statistics["diverging"],
            **truth,
        )
        write_json(folder / "diagnose.json", result)
        show(self, result, table([{"what": key, "value": value} for key, value in result.items()]))
        return 0
