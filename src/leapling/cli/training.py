"""`leapling train`."""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from leapling.checks import check_energy, dimension
from leapling.cli.common import Common, given, log, show, table
from leapling.files import RunError, make_folder
from leapling.kernel_config import configuration
from leapling.kernels import L2HMC
from leapling.store import (
    CHECKPOINT,
    HEADER,
    fingerprint,
    load_checkpoint,
    read_header,
    save_checkpoint,
    save_run,
)
from leapling.targets import resolve
from leapling.training import Recipe, TrainingStopped, estimate, preset, train
from leapling.training.loop import begin
from leapling.training.train import default_start

CHECKPOINT_SECONDS = 1.0


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
        shape = given(num_steps=self.num_steps, width=self.width, step_size=self.step_size)
        settings = dataclasses.replace(settings, **shape)
        changes = given(
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
            show(self, cost, text)
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
            show(self, header["training"], f"{folder} already holds this run, finished")
            return 0 if header["training"]["status"] == "finished" else 1
        fresh = begin(kernel, energy, recipe, seed=self.seed, initial=default_start(kernel, energy, recipe))
        state = load_checkpoint(folder, fresh, settings)
        if state is not None:
            log(f"going on from iteration {int(state.iteration)} of {folder / CHECKPOINT}")
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
            log(f"training stopped: {message}")
        rows = [{"what": name, "value": value} for name, value in summary.items() if value != ""]
        show(self, {"run": str(folder), **summary}, table(rows) + f"\nwritten to {folder}")
        return 0 if status == "finished" else 1
