"""A sampler in coordinates of its own, its draws in x, and how good they are."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from leapling.chains import Draws, sample
from leapling.coordinates import Coordinates, Pulled
from leapling.diagnostics.ess import ess_by_statistic, split_rhat
from leapling.kernels import Kernel

BLOCK_DRAWS = 250  # mapped to x at a time
MAP_TOLERANCE = 1e-2  # standard deviations
NUM_GROUPS = 4  # of chains, from whose scatter the error of an effective sample size is taken


def draw(
    kernel: Kernel, coordinates: Coordinates, energy: Callable, *, positions: Float[np.ndarray, "chain dim"], **options
) -> Draws:
    """Chains of `kernel` on the energy pulled to z, told in x: positions, and the energy U(x)."""
    start = np.asarray(_backward(coordinates, jnp.asarray(positions).T)).T
    draws = sample(kernel, Pulled(energy, coordinates), initial_positions=start, **options)
    if draws.kept_positions is None:
        return draws
    statistics = dict(draws.statistics)
    x = np.empty_like(draws.positions)
    for first in range(0, draws.num_draws, BLOCK_DRAWS):
        some = slice(first, min(first + BLOCK_DRAWS, draws.num_draws))
        num = some.stop - first
        z = np.zeros((draws.dim, draws.num_chains, BLOCK_DRAWS), x.dtype)  # padded: one shape, one compilation
        z[:, :, :num] = np.moveaxis(draws.positions[:, some], 2, 0)
        mapped, log_det = _forward(coordinates, jnp.asarray(z))
        x[:, some] = np.moveaxis(np.asarray(mapped)[:, :, :num], 0, 2)
        statistics["energy"][:, some] += np.asarray(log_det)[:, :num]
    return replace(draws, kept_positions=x, statistics=statistics)


def round_trip_error(coordinates: Coordinates, positions: Float[np.ndarray, "chain dim"]) -> float:
    """The largest error of x -> z -> x in the precision of the chains, in standard deviations of each coordinate; or
    infinity."""
    x = jnp.asarray(positions).T
    error = np.abs(np.asarray(_forward(coordinates, _backward(coordinates, x))[0]) - np.asarray(x))
    scale = np.maximum(positions.std(axis=0), 1e-30)[:, None]
    return float(np.max(np.where(np.isfinite(error), error / scale, np.inf)))


@eqx.filter_jit
def _backward(coordinates: Coordinates, x: Array) -> Array:
    return coordinates.backward(x)


@eqx.filter_jit
def _forward(coordinates: Coordinates, z: Array) -> tuple[Array, Array]:
    return coordinates.forward_and_log_det(z)


@dataclass(frozen=True)
class Score:
    """`min_ess` of x_i, x_i^2 and U, with its standard error from groups of chains, and what a draw costs."""

    min_ess: float
    standard_error: float
    statistic: str
    median_ess: float
    gradients_per_draw: float
    seconds_per_draw: float
    acceptance: float
    slowest_chain: float  # acceptance of the chain that accepts least
    divergences: int
    rhat: float
    num_gradients: int
    compile_seconds: float

    @property
    def per_gradient(self) -> float:
        return self.min_ess / self.gradients_per_draw

    @property
    def per_second(self) -> float:
        return self.min_ess / self.seconds_per_draw

    def row(self, method: str) -> dict[str, Any]:
        error = self.standard_error
        return {
            "method": method,
            "min_ess": self.min_ess,
            "standard_error": error,
            "min_ess_per_gradient": self.per_gradient,
            "per_gradient_error": error / self.gradients_per_draw,
            "min_ess_per_second": self.per_second,
            "gradients_per_draw": self.gradients_per_draw,
            "acceptance_rate": self.acceptance,
            "worst_statistic": self.statistic,
            "rhat": self.rhat if np.isfinite(self.rhat) else None,
        }


NOTHING = Score(0.0, 0.0, "the map", 0.0, 1.0, 1e-6, 0.0, 0.0, 0, np.inf, 0, 0.0)


def score(draws: Draws) -> Score:
    """Draws that are not finite, or do not move, are worth nothing."""
    positions, energy = draws.positions, draws.statistics["energy"]
    num_draws = draws.num_chains * draws.num_draws
    acceptance = draws.statistics["acceptance_rate"]
    common = {
        "gradients_per_draw": float(np.mean(draws.statistics["n_steps"])),
        "seconds_per_draw": draws.seconds / num_draws,
        "acceptance": float(np.mean(acceptance)),
        "slowest_chain": float(np.min(np.mean(acceptance, axis=1))),
        "divergences": int(np.sum(draws.statistics["diverging"])),
        "num_gradients": draws.num_gradients,
        "compile_seconds": draws.compile_seconds,
    }
    if not (np.isfinite(positions).all() and np.isfinite(energy).all()):
        return Score(0.0, 0.0, "not finite", 0.0, rhat=np.inf, **common)
    sizes = ess_by_statistic(positions, energy)
    worst = min(sizes, key=sizes.__getitem__)
    groups = np.array_split(np.arange(draws.num_chains), NUM_GROUPS)
    scatter = [min(ess_by_statistic(positions[g], energy[g]).values()) for g in groups]
    return Score(
        min_ess=sizes[worst],
        standard_error=float(np.std(scatter, ddof=1) / NUM_GROUPS**0.5),
        statistic=worst,
        median_ess=float(np.median(list(sizes.values()))),
        rhat=float(np.max(split_rhat(positions))),
        **common,
    )


def speed(energy: Callable, positions: Float[Array, "dim chains"]) -> float:
    """Gradients per second on a batch of this size, compiled."""
    evaluate = eqx.filter_jit(lambda x: jax.vmap(jax.value_and_grad(energy), in_axes=-1, out_axes=-1)(x))
    jax.block_until_ready(evaluate(positions))
    began = time.perf_counter()
    for _ in range(3):
        jax.block_until_ready(evaluate(positions))
    return 3 * positions.shape[1] / (time.perf_counter() - began)
