"""The baseline, tuned as hard as the learned kernel: a grid of settings, thinned out by successive halving."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float
from tqdm import tqdm

from leapling.chains import exact_starts, sample
from leapling.diagnostics import autocorrelation, ess_paper, min_ess
from leapling.kernels import HMC, LAHMC, Kernel
from leapling.targets import Target

LAHMC_AXES = {"num_steps": (1, 2, 5, 10, 20, 40, 80), "num_trajectories": (2, 4), "refreshment": (0.1, 0.5, 1.0)}
NUM_CHAINS = 50
CRITERIA = ("min_ess", "ess_paper")
LENGTHS = (1, 2, 4, 7, 12, 20, 35, 60, 100, 170, 300)
STEP_FRACTIONS = (0.2, 0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the largest step size that is any good
GRADIENTS = (2000, 8000, 32000)  # of each chain of each setting, round by round
KEPT = 0.25  # of the settings, from one round to the next
NUM_REFINED = 3  # of the best settings: a surface may have several ridges
REFINEMENT = {"step_size": (0.84, 0.92, 1.0, 1.09, 1.19), "num_steps": (0.8, 0.9, 1.0, 1.1, 1.25)}
MIN_DRAWS, MAX_DRAWS = 24, 8000
MIN_ACCEPTANCE = 1e-3
WORTH_TRYING = 0.3  # acceptance over PROBE_STEPS steps
PROBE_STEPS, PROBE_DRAWS = 10, 20


@dataclass(frozen=True)
class Tuned:
    """`kernel` is the best by `criterion` per gradient; `surface` has a row for every setting in every round."""

    kernel: Any
    best: dict[str, Any]
    criterion: str
    surface: list[dict[str, Any]]
    num_gradients: int
    seconds: float


def tune(
    family: Callable[..., Kernel],
    energy: Callable,
    *,
    initial_positions: Float[np.ndarray, "chain dim"] | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    criterion: str = "min_ess",
    gradients: Sequence[int] = GRADIENTS,
    seed: int = 0,
    progress: bool = False,
) -> Tuned:
    """Find the settings of `family` (HMC, LAHMC, or any function of settings that makes a kernel) with the most
    effective draws per gradient, on chains started from `initial_positions`, or from exact draws of a `Target`.

    `grid` names values for each setting, and no others are tried of what it names. Step sizes that it leaves out are
    fractions of the largest useful one, which is searched for; lengths are LENGTHS; HMC's lengths are tried with and
    without jitter. A round gives every setting the same number of gradients and passes its best quarter on; the last
    one tries step sizes and lengths around the best three, where the grid leaves them free. `criterion` is "min_ess" or
    "ess_paper" (with the target's moments where it has them). With HMC all of it is one compilation: its settings are
    arrays.
    """
    if criterion not in CRITERIA:
        raise ValueError(f"there is no criterion {criterion!r}; choose from {', '.join(CRITERIA)}")
    if initial_positions is None:
        if not isinstance(energy, Target):
            raise ValueError(
                "tuning needs initial_positions of shape (chain, dim) where it has no exact draws to start from"
            )
        initial_positions = exact_starts(energy, NUM_CHAINS, seed=seed)
    began = time.perf_counter()
    axes: dict[str, Sequence[Any]] = {"num_steps": LENGTHS}
    if family is HMC:
        axes["length_jitter"] = (0.0, 0.5)
    if family is LAHMC:
        family, axes = LAHMC.over_hmc, dict(LAHMC_AXES)
    axes |= dict(grid or {})
    measure = _Measure(family, energy, np.asarray(initial_positions), criterion, seed)
    if "step_size" not in axes:
        largest = measure.largest_step_size({name: values[0] for name, values in axes.items() if len(values)})
        axes["step_size"] = [fraction * largest for fraction in STEP_FRACTIONS]
    if empty := [name for name, values in axes.items() if len(values) == 0]:
        raise ValueError(f"the grid is empty: it has no value of {empty[0]}")
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    free = [name for name in REFINEMENT if name not in (grid or {})]
    with tqdm(
        total=len(gradients) + bool(free), desc="tuning", unit="round", disable=None if progress else True
    ) as bar:
        rows: list[dict[str, Any]] = []
        for i, budget in enumerate(gradients):
            rows = measure.round(points, budget, i)
            num_kept = max(1, round(KEPT * len(points)))
            points = [{name: row[name] for name in axes} for row in rows[:num_kept]]
            bar.update()
        if free:
            around = [{name: row[name] for name in axes} for row in rows[:NUM_REFINED]]
            factors = [dict(zip(free, values, strict=True)) for values in product(*(REFINEMENT[n] for n in free))]
            near = [{**point, **{n: f * point[n] for n, f in by.items()}} for point in around for by in factors]
            near = [{**point, "num_steps": max(1, round(point["num_steps"]))} for point in near]
            near = list({tuple(point.values()): point for point in near}.values())  # short lengths coincide
            rows = measure.round(near, gradients[-1], len(gradients))
            bar.update()
    best = rows[0]
    kernel = family(**{name: best[name] for name in axes})
    return Tuned(kernel, best, criterion, measure.surface, measure.num_gradients, time.perf_counter() - began)


class _Measure:
    """Runs settings, and remembers what it saw and what that cost."""

    def __init__(self, family: Callable, energy: Callable, positions: np.ndarray, criterion: str, seed: int):
        self.family, self.energy, self.positions = family, energy, positions
        self.criterion, self.seed = criterion, seed
        self.surface: list[dict[str, Any]] = []
        self.num_gradients = 0

    def run(self, point: dict[str, Any], *, num_draws: int, thin: int = 1, seed: int):
        kernel = self.family(**point)
        draws = sample(
            kernel,
            self.energy,
            num_draws=num_draws,
            thin=thin,
            seed=seed,
            initial_positions=self.positions,
            warn=False,  # most of a grid is bad settings
        )
        self.num_gradients += draws.num_gradients
        return draws

    def round(self, points: list[dict[str, Any]], budget: int, number: int) -> list[dict[str, Any]]:
        """The points' rows, the best first; no round repeats the random numbers of another."""
        rows = [self.row(point, budget, number) for point in points]
        self.surface += rows
        return sorted(rows, key=lambda row: -row[f"{self.criterion}_per_gradient"])

    def row(self, point: dict[str, Any], budget: int, number: int) -> dict[str, Any]:
        # The same gradients for all: chains that hardly move look as if they had one effective draw each, and with
        # the same number of draws for all that would favour the short trajectories.
        num_transitions = max(MIN_DRAWS, budget // int(point.get("num_steps", 1)))
        thin = -(-num_transitions // MAX_DRAWS)
        draws = self.run(point, num_draws=num_transitions // thin, thin=thin, seed=self.seed + 1000 * number)
        energy = self.energy
        mean, variance = (energy.mean, energy.variance) if isinstance(energy, Target) else (None, None)
        rho = autocorrelation(draws.positions, mean=mean, variance=variance)
        cost = float(np.mean(draws.statistics["n_steps"]))
        # Chains that do not move look as if they had one effective draw each, however far they are from mixing.
        worth = 1 / cost if np.mean(draws.statistics["acceptance_rate"]) >= MIN_ACCEPTANCE else 0.0
        return {
            **{name: value if isinstance(value, int) else float(value) for name, value in point.items()},
            "round": number,
            "acceptance_rate": float(np.mean(draws.statistics["acceptance_rate"])),
            "gradients_per_draw": cost / thin,
            "min_ess_per_gradient": worth * min_ess(draws.positions, draws.statistics["energy"]),
            "ess_paper_per_gradient": worth * ess_paper(rho),
        }

    def largest_step_size(self, point: dict[str, Any]) -> float:
        """Where acceptance over a few steps falls to WORTH_TRYING, to within a tenth."""

        def is_good(step_size: float) -> bool:
            setting = {**point, "num_steps": PROBE_STEPS, "step_size": step_size}
            rate = np.mean(self.run(setting, num_draws=PROBE_DRAWS, seed=self.seed).statistics["acceptance_rate"])
            return bool(rate >= WORTH_TRYING)

        low, high = 1.0, 1.0
        if is_good(1.0):
            while is_good(high):
                low, high = high, 2 * high
                if high > 1e6:
                    raise ValueError("every step size up to 1e6 is accepted: is the energy constant? Give step_size")
        else:
            while not is_good(low):
                low, high = low / 2, low
                if low < 1e-6:
                    raise ValueError("no step size down to 1e-6 is accepted; start chains elsewhere, or give step_size")
        while high > 1.1 * low:
            middle = (low * high) ** 0.5
            low, high = (middle, high) if is_good(middle) else (low, middle)
        return low
