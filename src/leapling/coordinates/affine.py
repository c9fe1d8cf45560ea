"""Affine coordinates: a scale for each coordinate, a matrix, or a few directions on top of the scales."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from leapling.coordinates.base import Coordinates
from leapling.kernels.base import per_coordinate

MAX_DENSE_DIM = 100  # above it a matrix gives way to LowRank, whose memory is linear in the dimension
MAX_RANK = 20


class Affine(Coordinates):
    """x = mean + factor z; `factor` is (dim,), a scale for each coordinate, or a matrix (dim, dim)."""

    mean: Float[Array, " dim"]
    factor: Float[Array, " dim"] | Float[Array, "dim dim"]
    inverse: Float[Array, " dim"] | Float[Array, "dim dim"]
    log_det: Float[Array, ""]

    def __init__(self, mean: ArrayLike, factor: ArrayLike):
        mean, factor = np.asarray(mean, np.float64), np.asarray(factor, np.float64)
        if mean.ndim != 1 or factor.shape not in (mean.shape, mean.shape * 2):
            raise ValueError(
                f"mean has shape {mean.shape} and factor {factor.shape}; a mean of shape (dim,) and a factor of shape "
                "(dim,) or (dim, dim) are needed"
            )
        is_diagonal = factor.ndim == 1
        singular = np.any(factor == 0) if is_diagonal else np.linalg.matrix_rank(factor) < len(mean)
        if not (np.isfinite(mean).all() and np.isfinite(factor).all()) or singular:
            raise ValueError("mean and factor must be finite, and factor invertible: a covariance may be singular")
        inverse = 1 / factor if is_diagonal else np.linalg.inv(factor)
        log_det = np.sum(np.log(np.abs(factor))) if is_diagonal else np.linalg.slogdet(factor)[1]
        self.mean, self.factor, self.inverse, self.log_det = (
            jnp.asarray(a, float) for a in (mean, factor, inverse, log_det)
        )

    @property
    def dim(self) -> int:
        return self.mean.shape[0]

    @property
    def is_affine(self) -> bool:
        return True

    def forward_and_log_det(self, z):
        return per_coordinate(_constant(self.mean, z), z) + _product(self.factor, z), _everywhere(self.log_det, z)

    def backward_and_log_det(self, x):
        y = x - per_coordinate(_constant(self.mean, x), x)
        return _product(self.inverse, y), _everywhere(-self.log_det, x)


class LowRank(Coordinates):
    """x = mean + D (I + V (s - 1) V^T) z: scales D, and s along the few orthonormal columns of V."""

    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    directions: Float[Array, "dim rank"]
    stretch: Float[Array, " rank"]

    def __init__(self, mean: ArrayLike, scale: ArrayLike, directions: ArrayLike, stretch: ArrayLike):
        self.mean, self.scale, self.directions, self.stretch = (
            jnp.asarray(np.asarray(a, np.float64), float) for a in (mean, scale, directions, stretch)
        )

    @property
    def dim(self) -> int:
        return self.mean.shape[0]

    @property
    def is_affine(self) -> bool:
        return True

    def forward_and_log_det(self, z):
        scale = _constant(self.scale, z)
        x = per_coordinate(_constant(self.mean, z), z) + per_coordinate(scale, z) * self._stretched(z, self.stretch)
        return x, _everywhere(self._log_det, z)

    def backward_and_log_det(self, x):
        y = (x - per_coordinate(_constant(self.mean, x), x)) / per_coordinate(_constant(self.scale, x), x)
        return self._stretched(y, 1 / self.stretch), _everywhere(-self._log_det, x)

    @property
    def _log_det(self) -> Float[Array, ""]:
        return jnp.sum(jnp.log(self.scale)) + jnp.sum(jnp.log(self.stretch))

    def _stretched(self, y: Array, stretch: Array) -> Array:
        directions, extra = _constant(self.directions, y), _constant(stretch - 1, y)
        along = jnp.tensordot(directions.T, y, 1, precision="highest")
        return y + jnp.tensordot(directions, per_coordinate(extra, along) * along, 1, precision="highest")


def whitening(mean: ArrayLike, covariance: ArrayLike) -> Affine:
    """Coordinates of zero mean and unit covariance; a vector of variances gives a diagonal map."""
    covariance = np.asarray(covariance, np.float64)
    factor = np.sqrt(covariance) if covariance.ndim == 1 else np.linalg.cholesky(covariance)
    return Affine(mean, factor)


def whitened_by(draws: Float[np.ndarray, "draw dim"], shape: str) -> Affine | LowRank:
    """Coordinates in which these draws are white: each by itself ("diagonal"), or together ("dense").

    Draws far out (beyond the 0.1% quantiles) are drawn in first, so that a heavy tail does not set the scale. Above
    MAX_DENSE_DIM coordinates, "dense" keeps the few directions that stand out after scaling.
    """
    draws = np.asarray(draws, np.float64)
    draws = np.clip(draws, *np.quantile(draws, [0.001, 0.999], axis=0))
    mean, dim = draws.mean(axis=0), draws.shape[1]
    scale = np.maximum(draws.std(axis=0), np.finfo(np.float32).tiny ** 0.5)
    if shape == "diagonal" or dim == 1:
        return Affine(mean, scale)
    white = (draws - mean) / scale
    if dim > MAX_DENSE_DIM:
        _, singular, rows = np.linalg.svd(white / len(white) ** 0.5, full_matrices=False)
        # What noise alone would give, from the edge of its spectrum (Marchenko & Pastur 1967), is left at 1.
        rank = int(np.sum(singular[:MAX_RANK] > 1 + (dim / len(white)) ** 0.5))
        return LowRank(mean, scale, rows[:rank].T, singular[:rank])
    correlation = white.T @ white / len(white)
    if len(white) < 10 * dim:  # too few draws for so many entries, some of which would be singular
        correlation = 0.9 * correlation + 0.1 * np.eye(dim)
    return Affine(mean, scale[:, None] * np.linalg.cholesky(correlation))


def _constant(array: Array, like: Array) -> Array:
    return jax.lax.stop_gradient(array.astype(like.dtype))


def _everywhere(log_det: Array, like: Array) -> Array:
    return jnp.broadcast_to(_constant(log_det, like), like.shape[1:])


def _product(factor: Array, y: Array) -> Array:
    factor = _constant(factor, y)
    if factor.ndim == 1:
        return per_coordinate(factor, y) * y
    return jnp.tensordot(factor, y, 1, precision="highest")
