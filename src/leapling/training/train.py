"""`train`: the host side of Algorithm 1, with progress, checkpoints, and a plain word when it fails."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, DTypeLike, Float
from tqdm import tqdm

from leapling.checks import dimension
from leapling.kernels import HMC, LAHMC, Kernel, Tempering
from leapling.training.loop import BLOCK, METRICS, Initial, TrainState, begin, run_block
from leapling.training.recipe import Recipe

COLLAPSED_ACCEPTANCE = 1e-3
PATIENCE = 4  # blocks in a row, because the first iterations on a hard target accept little


@dataclass(frozen=True)
class GaussianStart:
    """Draws of N(0, scale^2 I)."""

    dim: int
    scale: float
    dtype: DTypeLike

    def __call__(self, key: Array, num: int) -> Float[Array, "dim chains"]:
        return jax.random.normal(key, (self.dim, num), self.dtype) * jnp.asarray(self.scale, self.dtype)


@dataclass(frozen=True)
class TrainResult:
    """`kernel` is the last one, `best` the one of the block with the lowest mean loss at the final temperature."""

    kernel: Any
    best: Any
    state: TrainState
    history: dict[str, np.ndarray]
    compile_seconds: float
    seconds: float

    @property
    def num_gradients(self) -> int:
        """Evaluations of the energy, those that started the chains included."""
        return int(np.sum(self.history["gradients"], dtype=np.float64)) + self.state.chains.energy.size

    def summary(self) -> dict[str, Any]:
        """JSON-ready. None: a kernel without step size, no loss yet at the final temperature."""
        recent = {name: self.history[name][-BLOCK:] for name in METRICS}
        figures = {
            "loss": np.mean(recent["loss"]),
            "best_loss": self.state.best_loss,
            "acceptance_rate": np.mean(recent["acceptance"]),
            "step_size": recent["step_size"][-1],
            "temperature": recent["temperature"][-1],
        }
        return {
            "iterations": len(self.history["loss"]),
            **{name: float(value) if np.isfinite(value) else None for name, value in figures.items()},
            "skipped_iterations": int(np.sum(self.history["skipped"])),
            "num_gradients": self.num_gradients,
            "compile_seconds": round(self.compile_seconds, 3),
            "seconds": round(self.seconds, 3),
        }


class TrainingStopped(RuntimeError):
    """Training cannot go on; `result` holds the last and the best state."""

    def __init__(self, message: str, result: TrainResult):
        super().__init__(message)
        self.result = result


def train(
    kernel: Kernel,
    energy: Callable,
    recipe: Recipe | None = None,
    *,
    seed: int = 0,
    dim: int | None = None,
    initial: Initial | None = None,
    resume: TrainState | None = None,
    on_block: Callable[[TrainState], None] | None = None,
    progress: bool = True,
) -> TrainResult:
    """Train a kernel on an energy (Algorithm 1).

    `initial` draws starting points, (key, num) -> (dim, num); without it they are N(0, recipe.initial_scale^2 I).
    `resume` goes on from a state that `on_block` was given, with the same arguments, to the same bits.
    """
    if isinstance(kernel, HMC):
        raise ValueError("HMC has no networks to train; tune its step size and length with leapling.tune")
    if isinstance(kernel, (LAHMC, Tempering)):
        name = type(kernel).__name__
        raise ValueError(f"{name} is not trained: train its operator first, and put the trained one into {name}")
    recipe = Recipe() if recipe is None else recipe
    initial = initial or default_start(kernel, energy, recipe, dim)
    state = resume or begin(kernel, energy, recipe, seed=seed, initial=initial)
    compiled, compile_seconds = compile_block(energy, recipe, initial, state)
    began = time.perf_counter()

    def result() -> TrainResult:
        done = int(state.iteration)
        rows = np.asarray(state.history)[:done]
        history = {name: rows[:, i] for i, name in enumerate(METRICS)}
        return TrainResult(
            state.kernel, state.best_kernel, state, history, compile_seconds, time.perf_counter() - began
        )

    # `disable=None` shows the bar on a terminal only.
    with tqdm(
        total=recipe.num_iterations,
        initial=int(state.iteration),
        desc="training",
        unit="it",
        disable=None if progress else True,
    ) as bar:
        while (done := int(state.iteration)) < recipe.num_iterations:
            num = min(BLOCK - done % BLOCK, recipe.num_iterations - done)
            state = compiled(energy, recipe, initial, state, jnp.asarray(num, jnp.int32))
            recent = np.mean(np.asarray(state.history)[done : done + num], axis=0)
            shown = dict(zip(METRICS, recent, strict=True))
            bar.set_postfix({name: f"{shown[name]:.3g}" for name in ("loss", "acceptance", "step_size")}, refresh=False)
            bar.update(num)
            if on_block is not None:
                on_block(state)
            if problem := _problem(np.asarray(state.history)[: done + num], recipe):
                raise TrainingStopped(problem, result())
    return result()


def default_start(kernel: Kernel, energy: Callable, recipe: Recipe, dim: int | None = None) -> GaussianStart:
    real = [leaf.dtype for leaf in jax.tree.leaves(eqx.filter(kernel, eqx.is_inexact_array))]
    return GaussianStart(dimension(kernel, energy, dim), recipe.initial_scale, real[0] if real else float)


def compile_block(energy: Callable, recipe: Recipe, initial: Initial, state: TrainState) -> tuple[Any, float]:
    """The compiled block of iterations and the seconds it took, apart from training."""
    began = time.perf_counter()
    compiled = run_block.lower(energy, recipe, initial, state, jnp.asarray(BLOCK, jnp.int32)).compile()
    return compiled, time.perf_counter() - began


@dataclass(frozen=True)
class Estimate:
    """What a training run would cost."""

    compile_seconds: float
    seconds: float
    gradients: int
    memory_bytes: int


def estimate(
    kernel: Kernel,
    energy: Callable,
    recipe: Recipe,
    *,
    dim: int | None = None,
    initial: Initial | None = None,
    num_probe: int = 50,
) -> Estimate:
    """Compile the real training step, run a few iterations of it, and extrapolate. Nothing is kept."""
    initial = initial or default_start(kernel, energy, recipe, dim)
    state = begin(kernel, energy, recipe, seed=0, initial=initial)
    compiled, compile_seconds = compile_block(energy, recipe, initial, state)
    num = min(num_probe, recipe.num_iterations)
    began = time.perf_counter()
    state = jax.block_until_ready(compiled(energy, recipe, initial, state, jnp.asarray(num, jnp.int32)))
    seconds = (time.perf_counter() - began) * recipe.num_iterations / num
    gradients = float(np.mean(np.asarray(state.history)[:num, METRICS.index("gradients")])) * recipe.num_iterations
    memory = compiled.compiled.memory_analysis()
    memory_bytes = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    return Estimate(compile_seconds, seconds, round(gradients) + recipe.batch_size, memory_bytes)


def _problem(history: np.ndarray, recipe: Recipe) -> str | None:
    """What makes going on pointless, in a sentence, or None."""
    recent = dict(zip(METRICS, history[-BLOCK:].T, strict=True))
    skipped = np.mean(recent["skipped"])
    if skipped > 0.5:
        return (
            f"the loss diverged: {skipped:.0%} of the last {len(recent['loss'])} iterations up to {len(history)} had a "
            f"non-finite loss or gradient (step size {recent['step_size'][-1]:.3g}); "
            "try a smaller learning_rate or initial step_size, or starting points nearer to the target"
        )
    acceptance = history[-PATIENCE * BLOCK :, METRICS.index("acceptance")]
    if len(acceptance) == PATIENCE * BLOCK and np.mean(acceptance) < COLLAPSED_ACCEPTANCE:
        return (
            f"acceptance collapsed: {np.mean(acceptance):.2g} on average over the {len(acceptance)} iterations up to "
            f"{len(history)} (step size {recent['step_size'][-1]:.3g}); try a smaller initial step_size, "
            f"an annealed temperature (now from {recipe.temperature.start:g}), or burn_in_weight=0"
        )
    return None
