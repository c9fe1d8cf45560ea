"""Candidates whose networks are trained: from what is known in closed form, or from tuned HMC, by decorrelation."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from leapling.autopilot.candidates import Candidate, Problem, Resampled, in_z
from leapling.coordinates import Coordinates, Pulled
from leapling.kernels import L2HMC
from leapling.kernels.starts import like_hmc, without_force
from leapling.training import Annealing, Decorrelation, Recipe
from leapling.training.loop import BLOCK, begin, run_block

WIDTHS = (32, 32)
ITERATIONS, BATCH = 4000, 256
HOT = 8.0  # the temperature that annealing starts from


class NetworkCandidate(Candidate):
    """L2HMC in given coordinates, trained on chains that it moves."""

    def __init__(self, problem: Problem, name: str, kernel: L2HMC, coordinates: Coordinates, recipe: Recipe):
        self.problem, self.name, self.coordinates, self.recipe = problem, name, coordinates, recipe
        self.energy = Pulled(problem.energy, coordinates)
        self.initial = Resampled(in_z(coordinates, problem.points))
        self.state = begin(kernel, self.energy, recipe, seed=problem.seed, initial=self.initial)

    @property
    def kernel(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.state.kernel

    @property
    def gradients(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return int(self.state.iteration) * BATCH * self.state.kernel.num_steps + BATCH  # pyright: ignore

    @property
    def iterations(self) -> int:
        return int(self.state.iteration)

    def train(self, goes_on: Callable[[int], bool]) -> None:
        """Blocks of iterations, for as long as `goes_on` says so of the number done."""
        while self.iterations < self.recipe.num_iterations and goes_on(self.iterations):
            num = jnp.asarray(BLOCK, jnp.int32)
            self.state = run_block(self.energy, self.recipe, self.initial, self.state, num)
            jax.block_until_ready(self.state.iteration)

    def row(self) -> dict[str, Any]:
        return {"recipe": self.name, "M": self.kernel.num_steps, "iterations": self.iterations}


def polished(problem: Problem, leader: Candidate) -> NetworkCandidate:
    """What is best so far, with networks that may leave the closed form where that pays. It starts where the closed
    form stands, in the same coordinates."""
    kernel = without_force(problem.dim, widths=WIDTHS, key=jax.random.key(problem.seed))
    return NetworkCandidate(
        problem, f"{leader.name}, networks trained", kernel, leader.coordinates, _recipe(1.0, False)
    )


def from_hmc(problem: Problem, hmc: Candidate, num_steps: int, *, hot: bool, force_gradient: bool) -> NetworkCandidate:
    """From tuned HMC's step size, in its coordinates, with or without annealing and the gradient through the force."""
    key = jax.random.key(problem.seed)
    kernel = like_hmc(problem.dim, num_steps, float(hmc.kernel.step_size), widths=WIDTHS, key=key)
    words = ["L2HMC from HMC", f"M = {num_steps}", *(["annealed"] if hot else [])]
    words += [] if force_gradient else ["no second derivatives"]
    return NetworkCandidate(
        problem, ", ".join(words), kernel, hmc.coordinates, _recipe(HOT if hot else 1.0, force_gradient)
    )


def _recipe(temperature: float, force_gradient: bool) -> Recipe:
    factor, cooling = 0.95, 0.7  # of the iterations, over which the temperature falls to 1
    num_drops = max(1.0, -jnp.log(temperature).item() / jnp.log(factor).item())
    return Recipe(
        num_iterations=ITERATIONS,
        batch_size=BATCH,
        objective=Decorrelation(),
        temperature=Annealing(temperature, factor, max(1, round(cooling * ITERATIONS / num_drops))),
        learning_rate=2e-3,
        final_learning_rate=1e-4,
        clip=10.0,
        force_gradient=force_gradient,
    )
