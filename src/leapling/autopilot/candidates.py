"""What `fit` races: kernels in coordinates, each with what its training needs to go on."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from leapling.autopilot.measure import MAP_TOLERANCE, NOTHING, Score, draw, round_trip_error, score
from leapling.coordinates import Affine, Coordinates, whitened_by
from leapling.coordinates.moments import MAX_DENSE_DIM
from leapling.kernels import Kernel
from leapling.kernels.starts import with_force, without_force

NUM_CHAINS, NUM_DRAWS, NUM_SETTLING = 128, 400, 50  # of a held-out measurement
START_WIDTH = (4,)  # of networks that are never trained: they hold the closed form in their biases


@dataclass
class Problem:
    """What every candidate is given: the energy, points spread about like the target, and a way to move them."""

    energy: Callable
    points: Float[np.ndarray, "dim points"]
    local: Kernel
    seed: int

    @property
    def dim(self) -> int:
        return self.points.shape[0]

    def starts(self, num: int, purpose: int) -> Float[np.ndarray, "chain dim"]:
        random = np.random.default_rng([self.seed, purpose])
        return self.points.T[random.integers(self.points.shape[1], size=num)]


class Candidate(ABC):
    """One recipe. `kernel` moves z; `coordinates` say what x is."""

    name: str
    kernel: Any
    coordinates: Coordinates
    gradients: int
    scored: Score | None = None

    def measure(self, problem: Problem, seed: int) -> Score:
        """On held-out chains; a map that loses their starting points is worth nothing."""
        positions = problem.starts(NUM_CHAINS, seed)
        if round_trip_error(self.coordinates, positions) > MAP_TOLERANCE:
            self.scored = replace(NOTHING, num_gradients=0)
            return self.scored
        draws = draw(
            self.kernel,
            self.coordinates,
            problem.energy,
            positions=positions,
            num_draws=NUM_DRAWS,
            num_warmup=NUM_SETTLING,
            seed=seed,
            warn=False,
        )
        self.scored = score(draws)
        return self.scored

    @abstractmethod
    def row(self) -> dict[str, Any]:
        """For the verdict's list of what was tried."""


def white(points: Float[np.ndarray, "point dim"], shape: str | None) -> Coordinates:
    """Coordinates fitted to points, x itself where `shape` is None: a matrix while that is affordable, whatever it
    holds, so that all of them are one compilation."""
    dim = points.shape[1]
    found = Affine(np.zeros(dim), np.ones(dim)) if shape is None else whitened_by(points, shape)
    if isinstance(found, Affine) and found.factor.ndim == 1 and dim <= MAX_DENSE_DIM:
        return Affine(found.mean, np.diag(found.factor))
    return found


@dataclass
class Fixed(Candidate):
    """A kernel that is not trained: a tuned HMC, or the closed form in some coordinates."""

    name: str
    kernel: Any
    coordinates: Coordinates
    gradients: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    def row(self):
        return {"recipe": self.name, **self.settings}


REFITS = 3
WORTH_REFITTING = 0.15  # acceptance, from which the draws say more of the target than the points do
REFIT_DRAWS = 400


def closed_form(problem: Problem, shape: str) -> Fixed:
    """(z, v) -> (v, -z) in affine coordinates, by the force or without it, whichever is accepted more; the coordinates
    are fitted again to the draws that it makes, which are many and nearly independent."""
    kernels = {"force": with_force, "surrogate force": without_force}
    built = {
        name: make(problem.dim, widths=START_WIDTH, key=jax.random.key(problem.seed)) for name, make in kernels.items()
    }
    coordinates, spent = white(problem.points.T, shape), 0
    chosen = "force"
    for i in range(REFITS):
        found = {}
        for name, kernel in built.items():
            found[name] = draw(
                kernel,
                coordinates,
                problem.energy,
                positions=problem.starts(NUM_CHAINS, i),
                num_draws=REFIT_DRAWS,
                seed=problem.seed + i,
                warn=False,
            )
            spent += found[name].num_gradients
        rates = {name: float(np.mean(draws.statistics["acceptance_rate"])) for name, draws in found.items()}
        chosen = max(rates, key=rates.__getitem__)
        if rates[chosen] < WORTH_REFITTING:
            break
        draws = found[chosen].positions
        coordinates = white(draws[:, draws.shape[1] // 4 :].reshape(-1, problem.dim), shape)
    name = f"Gaussian optimum by {chosen}, {shape}"
    return Fixed(name, built[chosen], coordinates, spent, {"coordinates": shape, "M": 1})


@dataclass(frozen=True)
class Resampled:
    """Starting points for training: some of those that warm-up left, in z."""

    points: Array

    def __call__(self, key: Array, num: int) -> Array:
        chosen = jax.random.randint(key, (num,), 0, self.points.shape[1])
        return self.points[:, chosen]


jax.tree_util.register_dataclass(Resampled, ["points"], [])


def in_z(coordinates: Coordinates, points: Float[np.ndarray, "dim points"]) -> Array:
    return coordinates.backward(jnp.asarray(points))
