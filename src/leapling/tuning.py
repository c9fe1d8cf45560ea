"""The baseline, tuned as hard as the learned kernel: HMC over a grid of step sizes and lengths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from leapling.chains import sample
from leapling.diagnostics import min_ess
from leapling.kernels import HMC


@dataclass(frozen=True)
class Tuned:
    """The best HMC of a grid, and the whole surface it was chosen from."""

    kernel: HMC
    surface: list[dict[str, Any]]
    num_gradients: int
    seconds: float


def tune_hmc(
    energy: Callable,
    *,
    initial_positions: Float[np.ndarray, "chain dim"],
    step_sizes: Sequence[float],
    lengths: Sequence[int],
    num_draws: int = 400,
    seed: int = 0,
) -> Tuned:
    """Choose by `min_ess` per gradient, measured on chains started from `initial_positions`.

    All settings run through one compilation: step size and length are arrays.
    """
    if not (len(step_sizes) and len(lengths)):
        raise ValueError(f"the grid is empty: {len(step_sizes)} step sizes and {len(lengths)} lengths were given")
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
            assert draws.positions is not None
            value = min_ess(draws.positions, draws.statistics["energy"])
            surface.append(
                {
                    "step_size": float(step_size),
                    "num_steps": int(length),
                    "acceptance_rate": float(np.mean(draws.statistics["acceptance_rate"])),
                    "min_ess": value,
                    "min_ess_per_gradient": value / length,
                }
            )
    best = max(surface, key=lambda row: row["min_ess_per_gradient"])
    return Tuned(HMC(best["step_size"], best["num_steps"]), surface, num_gradients, seconds)
