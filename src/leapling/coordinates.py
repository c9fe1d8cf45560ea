"""x = f(z): coordinates in which a target is better scaled, and an energy pulled back to them."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from leapling.kernels.base import per_coordinate


class Affine(eqx.Module):
    """x = mean + factor z; `factor` is (dim,), a scale for each coordinate, or a matrix (dim, dim).

    Its arrays are constants to training: no gradient flows into them.
    """

    mean: Float[Array, " dim"]
    factor: Float[Array, " dim"] | Float[Array, "dim dim"]
    inverse: Float[Array, " dim"] | Float[Array, "dim dim"]

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
        self.mean, self.factor, self.inverse = (jnp.asarray(a, float) for a in (mean, factor, inverse))

    def forward(self, z: Float[Array, "dim *chains"]) -> Float[Array, "dim *chains"]:
        return per_coordinate(_constant(self.mean, z), z) + _product(self.factor, z)

    def backward(self, x: Float[Array, "dim *chains"]) -> Float[Array, "dim *chains"]:
        return _product(self.inverse, x - per_coordinate(_constant(self.mean, x), x))

    def gradient_forward(self, gradient: Float[Array, "dim *chains"]) -> Float[Array, "dim *chains"]:
        """dU/dx from dU/dz."""
        return _product(self.inverse.T, gradient)

    def gradient_backward(self, gradient: Float[Array, "dim *chains"]) -> Float[Array, "dim *chains"]:
        """dU/dz from dU/dx."""
        return _product(self.factor.T, gradient)


class Pulled(eqx.Module):
    """U(f(z)), up to the constant log-determinant of an affine f."""

    function: Callable
    coordinates: Affine

    def __call__(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        return self.function(self.coordinates.forward(z))


def whitening(mean: ArrayLike, covariance: ArrayLike) -> Affine:
    """Coordinates of zero mean and unit covariance; a vector of variances gives a diagonal map."""
    covariance = np.asarray(covariance, np.float64)
    factor = np.sqrt(covariance) if covariance.ndim == 1 else np.linalg.cholesky(covariance)
    return Affine(mean, factor)


def _constant(array: Array, like: Array) -> Array:
    return jax.lax.stop_gradient(array.astype(like.dtype))


def _product(factor: Array, y: Array) -> Array:
    factor = _constant(factor, y)
    if factor.ndim == 1:
        return per_coordinate(factor, y) * y
    return jnp.tensordot(factor, y, 1, precision="highest")
