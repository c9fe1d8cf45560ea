"""The command line: each command writes a folder that the next one reads."""

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from leapling.chains import exact_starts, sample
from leapling.checks import check_energy, dimension
from leapling.demo import run_demo
from leapling.diagnostics import check_kernel, summarise
from leapling.interop import from_netcdf, to_netcdf
from leapling.kernels import L2HMC, Kernel
from leapling.report import markdown_table
from leapling.store import (
    CHECKPOINT,
    HEADER,
    RunError,
    configuration,
    copy_run,
    fingerprint,
    load_checkpoint,
    load_run,
    make_folder,
    read_header,
    same_target,
    save_checkpoint,
    save_run,
    write_json,
)
from leapling.targets import TARGETS, Target, resolve
from leapling.training import Recipe, TrainingStopped, estimate, preset, train
from leapling.training.loop import begin
from leapling.training.train import default_start

CHECKPOINT_SECONDS = 1.0
Run = Annotated[Path, tyro.conf.Positional]


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
class Demo(Common):
    """Train on a strongly correlated Gaussian, sample, check, and compare with tuned HMC (about a minute)."""

    def run(self) -> int:
        folder = make_folder(self.out or Path("runs/demo"))
        result, table = run_demo(folder, seed=self.seed)
        _show(self, result, f"{table}\nwritten to {folder}")
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
        _show(self, {"folder": str(folder), "results": results}, f"{text}\nwritten to {folder}; see index.html there")
        return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train(Common):
    """Train a kernel on a target: a built-in name, module:function, or file.py:function (an energy of one point)."""

    target: Annotated[str, tyro.conf.Positional]
    preset: Literal["quick", "paper"] = "paper"
    """Size of the run: the published setting, or a fifth of its iterations."""
    dim: int | None = None
    """Number of coordinates; needed for an energy of your own."""
    num_steps: int | None = None
    """Leapfrog steps per transition, M (instead of the preset's; so for all below)."""
    width: int | None = None
    """Units in each of the two hidden layers."""
    step_size: float | None = None
    """Initial step size; it is learned."""
    num_iterations: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    burn_in_weight: float | None = None
    """lambda_b, the weight of the loss on fresh draws of the initial distribution."""
    initial_scale: float | None = None
    """Standard deviation of the initial distribution."""
    dry_run: bool = False
    """Print what the run would cost, and stop."""

    def run(self) -> int:
        energy = resolve(self.target)
        dim = dimension(None, energy, self.dim)
        check_energy(energy, dim)
        settings = preset(self.preset, self.target)
        shape = _given(num_steps=self.num_steps, width=self.width, step_size=self.step_size)
        settings = dataclasses.replace(settings, **shape)
        changes = _given(
            num_iterations=self.num_iterations,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            burn_in_weight=self.burn_in_weight,
            initial_scale=self.initial_scale,
        )
        recipe = dataclasses.replace(settings.recipe, **changes)
        kernel = settings.build(dim, seed=self.seed)
        if self.dry_run:
            cost = dataclasses.asdict(estimate(kernel, energy, recipe))
            text = (
                f"about {cost['seconds'] + cost['compile_seconds']:.0f} s ({cost['compile_seconds']:.0f} s of them "
                f"compiling), {cost['gradients']:,} gradients, {cost['memory_bytes'] / 2**20:.0f} MiB"
            )
            _show(self, cost, text)
            return 0
        return self._train(energy, kernel, recipe, settings.step_size)

    def _train(self, energy: Callable, kernel: L2HMC, recipe: Recipe, step_size: float) -> int:
        folder = make_folder(self.out or Path("runs") / self.target.rpartition("/")[2].replace(":", "-"))
        settings = {
            "target": self.target,
            "fingerprint": fingerprint(energy, kernel.dim),
            "preset": self.preset,
            "recipe": repr(recipe),
            "kernel": {**configuration(kernel), "initial_step_size": step_size},
            "seed": self.seed,
        }
        if (folder / HEADER).exists():
            header = read_header(folder)
            if header.get("settings") != json.loads(json.dumps(settings)):
                raise RunError(f"{folder} already holds another run; give another --out")
            _show(self, header["training"], f"{folder} already holds this run, finished")
            return 0 if header["training"]["status"] == "finished" else 1
        fresh = begin(kernel, energy, recipe, seed=self.seed, initial=default_start(kernel, energy, recipe))
        state = load_checkpoint(folder, fresh, settings)
        if state is not None:
            _log(f"going on from iteration {int(state.iteration)} of {folder / CHECKPOINT}")
        saved = time.monotonic()

        def on_block(state: Any) -> None:
            nonlocal saved
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                save_checkpoint(folder, state, settings)
                saved = time.monotonic()

        status, message = "finished", ""
        try:
            result = train(kernel, energy, recipe, seed=self.seed, resume=state or fresh, on_block=on_block)
        except TrainingStopped as stopped:
            status, message, result = "stopped", str(stopped), stopped.result
        summary = {"status": status, "message": message, **result.summary()}
        save_run(folder, result.kernel, best=result.best, settings=settings, training=summary)
        (folder / CHECKPOINT).unlink(missing_ok=True)
        if message:
            _log(f"training stopped: {message}")
        rows = [{"what": name, "value": value} for name, value in summary.items() if value != ""]
        _show(self, {"run": str(folder), **summary}, _table(rows) + f"\nwritten to {folder}")
        return 0 if status == "finished" else 1


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
            _log(f"warning: {draws.warning}")
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
        _show(self, result, _table([{"what": name, "value": value} for name, value in result.items()]))
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
        _show(self, report.to_dict(), str(report))
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
        _show(self, result, _table([{"what": key, "value": value} for key, value in result.items()]))
        return 0


def main(arguments: list[str] | None = None) -> int:
    if (sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        print(f"leapling {version('leapling')}")
        return 0
    commands = {"demo": Demo, "train": Train, "sample": Sample, "check": Check, "diagnose": Diagnose}
    commands = {**commands, "reproduce": Reproduce}
    command = tyro.extras.subcommand_cli_from_dict(
        commands,
        prog="leapling",
        description="Learned MCMC kernels: train, sample, check, diagnose.",
        args=arguments,
    )
    try:
        return command.run()
    except (ValueError, OSError) as error:
        if command.debug:
            raise
        _log(f"leapling: {error}")
        return 2
    except KeyboardInterrupt:
        _log("leapling: interrupted; what was written before is kept, and the same command goes on from it")
        return 2


def _show(command: Common, result: dict[str, Any], text: str) -> None:
    """The result: one JSON object, or text for a person."""
    print(json.dumps(result, allow_nan=False) if command.json else text)


def _log(text: str) -> None:
    print(text, file=sys.stderr)


def _table(rows: list[dict[str, Any]]) -> str:
    return markdown_table(rows, {"what": "", "value": ""})


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
