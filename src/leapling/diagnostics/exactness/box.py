"""A grid that covers all the mass of a one- or two-dimensional energy."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from leapling.diagnostics.exactness.subject import Subject, precision
from leapling.kernels import cast

NUM_CELLS = 2**14
NUM_EDGE = 64
NEGLIGIBLE = 1e-7  # density at the boundary, relative to the mean density inside
MIN_CELLS = 30
START, GROWTH, MAX_GROWTHS = 3.0, 1.3, 36  # up to some 12,000 times the start
NUM_PASSES = 4


@dataclass(frozen=True)
class Box:
    """x = centre + factor y, y in [-1, 1]^dim; each cell's share of the mass, mean of exp(lowest - U) in it; half
    its width in sds."""

    centre: Float[np.ndarray, "dim"]
    factor: Float[np.ndarray, "dim dim"]
    shares: Float[np.ndarray, "cell"]
    lowest: float
    mean_density: float
    half_width: float


class NoBoxError(Exception):
    """Why there is no box, in words for the report."""


@eqx.filter_jit
def _energies(function: Callable, position: Array) -> Array:
    return jax.vmap(function, in_axes=-1, out_axes=-1)(position)


def cell_centres(dim: int) -> Float[np.ndarray, "dim cell"]:
    num = round(NUM_CELLS ** (1 / dim))
    ticks = (2 * np.arange(num) + 1) / num - 1
    return np.stack(np.meshgrid(*[ticks] * dim, indexing="ij")).reshape(dim, -1)


def find_box(subject: Subject) -> Box:
    """Grow a box from where the chains have been until the density on its boundary is negligible.

    Each pass measures the mean and covariance that the next one starts from.
    """
    nodes = cell_centres(subject.dim)
    edge = np.linspace(-1, 1, NUM_EDGE)
    boundary = [
        np.insert(point, axis, side)
        for axis in range(subject.dim)
        for side in (-1, 1)
        for point in product(edge, repeat=subject.dim - 1)
    ]
    y = np.concatenate([nodes, np.array(boundary, np.float64).T], axis=1)
    num = nodes.shape[1]

    def energies(x: np.ndarray) -> np.ndarray:
        dtype = subject.usual
        with precision(dtype):
            u = np.asarray(_energies(cast(subject.function, dtype), jnp.asarray(x, dtype)), np.float64)
        return np.where(np.isnan(u), np.inf, u)

    centre, covariance = subject.probes.mean(axis=1), np.cov(subject.probes).reshape(subject.dim, subject.dim)
    covariance = covariance + 1e-12 * np.eye(subject.dim) * max(1.0, float(np.trace(covariance)))
    box, effective = None, 0.0
    for _ in range(NUM_PASSES):
        factor = np.linalg.cholesky(covariance)
        for half_width in START * GROWTH ** np.arange(MAX_GROWTHS):
            x = centre[:, None] + half_width * factor @ y
            u = energies(x)
            lowest = float(u[:num].min())
            if not np.isfinite(lowest):
                continue
            density = np.exp(np.minimum(lowest - u, 100))
            mean = float(density[:num].mean())
            if density[num:].max() <= NEGLIGIBLE * mean:
                break
        else:
            raise NoBoxError(
                "the density does not become negligible within "
                f"{START * GROWTH ** (MAX_GROWTHS - 1):.0f} standard deviations of the chains"
            )
        weights = density[:num] / density[:num].sum()
        box = Box(centre, half_width * factor, weights, lowest, mean, float(half_width))
        effective = float(1 / np.sum(weights**2))
        centre = x[:, :num] @ weights
        centred = x[:, :num] - centre[:, None]
        cell = box.factor * (nodes[-1, -1] - 1)
        covariance = (weights * centred) @ centred.T + cell @ cell.T
    if box is None or effective < MIN_CELLS:
        raise NoBoxError(f"the mass is concentrated on {effective:.0f} of {num} cells, at least {MIN_CELLS} are needed")
    return box
