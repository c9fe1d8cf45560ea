"""Affine coordinates: a scale for each coordinate, a matrix, or a few directions on top of the scales."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from leapling.coordinates.base import Coordinates
from leapling.kernels.base import per_coordinate

REFINEMENTS = 2


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
        is_finite = bool(np.isfinite(mean).all() and np.isfinite(factor).all())
        if not is_finite or (np.any(factor == 0) if is_diagonal else np.linalg.matrix_rank(factor) < len(mean)):
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
        return _spread(self.mean, z) + _product(self.factor, z), _everywhere(self.log_det, z)

    def backward_and_log_det(self, x):
        z = _solved(lambda z: _product(self.factor, z), lambda x: _product(self.inverse, x), x - _spread(self.mean, x))
        return z, _everywhere(-self.log_det, x)


class LowRank(Coordinates):
    """x = mean + D (I + V (s - 1) V^T) z: scales D, and stretches s along the few orthonormal columns of V."""

    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    directions: Float[Array, "dim rank"]
    stretch: Float[Array, " rank"]

    def __init__(self, mean: ArrayLike, scale: ArrayLike, directions: ArrayLike, stretch: ArrayLike):
        arrays = mean, scale, directions, stretch = [
            np.asarray(a, np.float64) for a in (mean, scale, directions, stretch)
        ]
        is_shaped = mean.ndim == stretch.ndim == 1 and scale.shape == mean.shape
        if not is_shaped or directions.shape != mean.shape + stretch.shape:
            shapes = ", ".join(str(a.shape) for a in arrays)
            raise ValueError(
                f"mean, scale, directions and stretch have shapes {shapes}; (dim,), (dim,), (dim, rank) and (rank,) "
                "are needed: a direction is a column"
            )
        if not (all(np.isfinite(a).all() for a in arrays) and (scale > 0).all() and (stretch > 0).all()):
            raise ValueError("mean and directions must be finite, scale and stretch finite and above 0")
        if not np.allclose(directions.T @ directions, np.eye(len(stretch)), atol=1e-6):
            raise ValueError("directions must have orthonormal columns: take them from numpy.linalg.qr")
        self.mean, self.scale, self.directions, self.stretch = (jnp.asarray(a, float) for a in arrays)

    @property
    def dim(self) -> int:
        return self.mean.shape[0]

    @property
    def is_affine(self) -> bool:
        return True

    def forward_and_log_det(self, z):
        x = _spread(self.mean, z) + _spread(self.scale, z) * self._stretched(z, self.stretch)
        return x, _everywhere(self._log_det, z)

    def backward_and_log_det(self, x):
        y = (x - _spread(self.mean, x)) / _spread(self.scale, x)
        z = _solved(lambda z: self._stretched(z, self.stretch), lambda y: self._stretched(y, 1 / self.stretch), y)
        return z, _everywhere(-self._log_det, x)

    @property
    def _log_det(self) -> Float[Array, ""]:
        # det(I + V (s - 1) V^T) = prod s, V being orthonormal
        return jnp.sum(jnp.log(self.scale)) + jnp.sum(jnp.log(self.stretch))

    def _stretched(self, y: Array, stretch: Array) -> Array:
        directions = self.directions.astype(y.dtype)
        along = jnp.tensordot(directions.T, y, 1, precision="highest")
        return y + jnp.tensordot(directions, _spread(stretch - 1, along) * along, 1, precision="highest")


def _solved(product: Callable, inverse: Callable, y: Array) -> Array:
    """The z with product(z) = y.

    A map made in single precision holds an inverse that in double is not the inverse of its factor. Each refinement
    squares, then cubes, what is left of the error.
    """
    z = inverse(y)
    for _ in range(REFINEMENTS):
        z = z + inverse(y - product(z))
    return z


def _spread(array: Array, like: Array) -> Array:
    return per_coordinate(array.astype(like.dtype), like)


def _everywhere(log_det: Array, like: Array) -> Array:
    return jnp.broadcast_to(log_det.astype(like.dtype), like.shape[1:])


def _product(factor: Array, y: Array) -> Array:
    if factor.ndim == 1:
        return _spread(factor, y) * y
    return jnp.tensordot(factor.astype(y.dtype), y, 1, precision="highest")
