"""Gaussian targets: diagonal, in memory linear in the dimension, and dense."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike

from leapling.targets.base import Constant, Target


def factorise(covariance: Float[np.ndarray, "dim dim"]) -> tuple[np.ndarray, np.ndarray]:
    """The lower Cholesky factor C of a covariance, and its inverse W: |W x|^2 = x^T covariance^-1 x."""
    if not np.allclose(covariance, covariance.T, rtol=1e-10, atol=0.0):
        raise ValueError("the covariance is not symmetric, a symmetric one is needed: try (c + c.T) / 2.")
    try:
        cholesky = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "the covariance is not positive definite, a positive definite one is needed: try adding a small "
            "multiple of the identity."
        ) from error
    return cholesky, np.linalg.inv(cholesky)


@final
class DiagonalGaussian(Target):
    """Independent Gaussian coordinates; `mean` is a vector or one number for all."""

    name: str = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    _mean: Constant = eqx.field(static=True)
    _sd: Constant = eqx.field(static=True)
    _variance: Constant = eqx.field(static=True)

    def __init__(self, variance: ArrayLike, mean: ArrayLike = 0.0, name: str = "diagonal-gaussian"):
        variance, mean = np.asarray(variance, np.float64), np.asarray(mean, np.float64)
        if variance.ndim != 1 or variance.size == 0 or not (variance > 0).all():
            raise ValueError(
                f"variance has shape {variance.shape}, a non-empty vector of positive numbers is needed: try "
                "np.ones(dim), or `Gaussian` for a covariance matrix."
            )
        if mean.shape not in ((), variance.shape):
            raise ValueError(
                f"mean has shape {mean.shape}, one number or shape {variance.shape} is needed: try mean=0."
            )
        self.name, self.dim = name, variance.size
        self._mean = Constant(np.broadcast_to(mean, variance.shape))
        self._variance, self._sd = Constant(variance), Constant(np.sqrt(variance))

    def __call__(self, x: Float[Array, "dim"]) -> Float[Array, ""]:
        return jnp.sum(((x - self._mean.cast(x.dtype)) / self._sd.cast(x.dtype)) ** 2) / 2

    def sample(self, key: PRNGKeyArray, num: int, dtype: DTypeLike | None = None) -> Float[Array, "dim num"]:
        noise = jax.random.normal(key, (self.dim, num), dtype)
        return self._mean.cast(noise.dtype)[:, None] + self._sd.cast(noise.dtype)[:, None] * noise

    @property
    def mean(self) -> Float[np.ndarray, "dim"]:
        return self._mean.array

    @property
    def variance(self) -> Float[np.ndarray, "dim"]:
        return self._variance.array

    @property
    def covariance(self) -> Float[np.ndarray, "dim dim"]:
        return np.diag(self.variance)


@final
class Gaussian(Target):
    """A Gaussian with a dense covariance."""

    name: str = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    _mean: Constant = eqx.field(static=True)
    _covariance: Constant = eqx.field(static=True)
    _cholesky: Constant = eqx.field(static=True)
    _whitening: Constant = eqx.field(static=True)

    def __init__(self, covariance: ArrayLike, mean: ArrayLike = 0.0, name: str = "gaussian"):
        covariance, mean = np.asarray(covariance, np.float64), np.asarray(mean, np.float64)
        if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
            raise ValueError(
                f"covariance has shape {covariance.shape}, a square matrix is needed: try np.eye(dim), or "
                "`DiagonalGaussian` for a vector of variances."
            )
        if mean.shape not in ((), covariance.shape[:1]):
            raise ValueError(
                f"mean has shape {mean.shape}, one number or shape {covariance.shape[:1]} is needed: try mean=0."
            )
        cholesky, whitening = factorise(covariance)
        self.name, self.dim = name, covariance.shape[0]
        self._mean = Constant(np.broadcast_to(mean, covariance.shape[:1]))
        self._covariance, self._cholesky, self._whitening = map(Constant, (covariance, cholesky, whitening))

    def __call__(self, x: Float[Array, "dim"]) -> Float[Array, ""]:
        # By default an accelerator may multiply in ten bits: too few where large terms cancel, as here.
        centred = x - self._mean.cast(x.dtype)
        whitened = jnp.matmul(self._whitening.cast(x.dtype), centred, precision="highest")
        return jnp.sum(whitened**2) / 2

    def sample(self, key: PRNGKeyArray, num: int, dtype: DTypeLike | None = None) -> Float[Array, "dim num"]:
        noise = jax.random.normal(key, (self.dim, num), dtype)
        spread = jnp.matmul(self._cholesky.cast(noise.dtype), noise, precision="highest")
        return self._mean.cast(noise.dtype)[:, None] + spread

    @property
    def mean(self) -> Float[np.ndarray, "dim"]:
        return self._mean.array

    @property
    def variance(self) -> Float[np.ndarray, "dim"]:
        return np.diag(self.covariance)

    @property
    def covariance(self) -> Float[np.ndarray, "dim dim"]:
        return self._covariance.array


def icg(dim: int = 50) -> DiagonalGaussian:
    """Ill-conditioned Gaussian (Levy et al. 2018, section 5.1): variances log-spaced from 1e-2 to 1e2."""
    return DiagonalGaussian(np.logspace(-2, 2, dim), name="icg")


def scg() -> Gaussian:
    """Strongly correlated Gaussian (Levy et al. 2018, section 5.1): variances 1e2, 1e-2 turned by pi/4."""
    cos, sin = np.cos(np.pi / 4), np.sin(np.pi / 4)
    rotation = np.array([[cos, -sin], [sin, cos]])
    return Gaussian(rotation @ np.diag([1e2, 1e-2]) @ rotation.T, name="scg")
