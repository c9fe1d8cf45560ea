"""The baseline, tuned as hard as the learned kernel: HMC over a grid of step sizes and lengths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from leapling.chains import sample
from leapling.diagnostics import autocorrelation, ess_paper, min_ess
from leapling.kernels import HMC
from leapling.targets import Target


@dataclass(frozen=True)
class Tuned:
    """The whole surface of a grid, one row per setting; `best` picks the HMC with the highest value of a criterion."""

    surface: list[dict[str, Any]]
    num_gradients: int
    seconds: float

    def best(self, criterion: str = "min_ess_per_gradient") -> HMC:
        row = max(self.surface, key=lambda row: row[criterion])
        return HMC(row["step_size"], row["num_steps"])


def tune_hmc(
    energy: Callable,
    *,
    initial_positions: Float[np.ndarray, "chain dim"],
    step_sizes: Sequence[float],
    lengths: Sequence[int],
    num_draws: int = 400,
    seed: int = 0,
) -> Tuned:
    """Measure `min_ess` and `ess_paper` (with the target's moments where it has them) per gradient at every setting, on
    chains started from `initial_positions`. All run through one compilation: step size and length are arrays.
    """
    if not (len(step_sizes) and len(lengths)):
        raise ValueError(f"the grid is empty: {len(step_sizes)} step sizes and {len(lengths)} lengths were given")
    mean, variance = (energy.mean, energy.variance) if isinstance(energy, Target) else (None, None)
    surface: list[dict[str, Any]] = []
    num_gradients, seconds = 0, 0.0
    for length in lengths:
        for step_size in step_sizes:
            draws = sample(
                HMC(step_size, length),
                energy,
                num_draws=num_draws,
                seed=seed,
                initial_positions=initial_positions,
                warn=False,  # most of a grid is bad settings
            )
            num_gradients += draws.num_gradients
            seconds += draws.compile_seconds + draws.seconds
            rho = autocorrelation(draws.positions, mean=mean, variance=variance)
            surface.append(
                {
                    "step_size": float(step_size),
                    "num_steps": int(length),
                    "acceptance_rate": float(np.mean(draws.statistics["acceptance_rate"])),
                    "min_ess_per_gradient": min_ess(draws.positions, draws.statistics["energy"]) / length,
                    "ess_paper_per_gradient": ess_paper(rho) / length,
                }
            )
    return Tuned(surface, num_gradients, seconds)
