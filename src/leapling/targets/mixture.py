"""Mixtures of Gaussians, with full or isotropic components."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import ArrayLike

from leapling.targets.base import Constant, Target
from leapling.targets.gaussian import factorise


@final
class GaussianMixture(Target):
    """`means` (k, dim); `covariances` (k, dim, dim), or (k,) for isotropic components; `weights` (k,).

    The energy is exactly -log p(x), normalised. Weights are scaled to sum to one, and equal when None.
    """

    name: str = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    _means: Constant = eqx.field(static=True)
    _choleskys: Constant = eqx.field(static=True)
    _whitenings: Constant = eqx.field(static=True)
    _weights: Constant = eqx.field(static=True)
    _log_scales: Constant = eqx.field(static=True)

    def __init__(
        self,
        means: ArrayLike,
        covariances: ArrayLike,
        weights: ArrayLike | None = None,
        name: str = "gaussian-mixture",
    ):
        means, covariances = np.asarray(means, np.float64), np.asarray(covariances, np.float64)
        if means.ndim != 2 or means.size == 0:
            raise ValueError(f"means has shape {means.shape}, (components, dim) is needed: try one row for each.")
        num, dim = means.shape
        if covariances.shape == (num,):
            covariances = covariances[:, None, None] * np.eye(dim)
        if covariances.shape != (num, dim, dim):
            raise ValueError(
                f"covariances has shape {covariances.shape}, ({num},) or ({num}, {dim}, {dim}) is needed for "
                f"means of shape {means.shape}: try one variance per component."
            )
        shares = np.ones(num) if weights is None else np.asarray(weights, np.float64)
        if shares.shape != (num,) or not (shares > 0).all():
            raise ValueError(f"weights is {weights}, {num} positive numbers are needed: try np.ones({num}).")
        shares = shares / shares.sum()
        factors = [factorise(covariance) for covariance in covariances]
        choleskys, whitenings = (np.stack(factor) for factor in zip(*factors, strict=True))
        log_dets = np.log(np.diagonal(choleskys, axis1=1, axis2=2)).sum(1)
        self.name, self.dim = name, dim
        self._means, self._weights = Constant(means), Constant(shares)
        self._choleskys, self._whitenings = Constant(choleskys), Constant(whitenings)
        self._log_scales = Constant(np.log(shares) - log_dets - dim / 2 * np.log(2 * np.pi))

    def _log_joint(self, x: Float[Array, "dim *chains"]) -> Float[Array, "component *chains"]:
        """log of weight times density, component by component."""
        ones = (1,) * (x.ndim - 1)
        means, log_scales = self._means.cast(x.dtype), self._log_scales.cast(x.dtype)
        centred = x[None] - means.reshape(means.shape + ones)
        whitenings = self._whitenings.cast(x.dtype)
        whitened = jnp.einsum("kij,kj...->ki...", whitenings, centred, precision="highest")
        return log_scales.reshape(log_scales.shape + ones) - jnp.sum(whitened**2, axis=1) / 2

    def __call__(self, x: Float[Array, "dim"]) -> Float[Array, ""]:
        return -jax.nn.logsumexp(self._log_joint(x))

    def component(self, x: Float[Array, "dim *chains"]) -> Int[Array, "*chains"]:
        """The component most responsible for each point: what a count of mode crossings needs."""
        return jnp.argmax(self._log_joint(x), axis=0)

    def sample(self, key: PRNGKeyArray, num: int, dtype: DTypeLike | None = None) -> Float[Array, "dim num"]:
        key_component, key_noise = jax.random.split(key)
        noise = jax.random.normal(key_noise, (self.dim, num), dtype)
        log_weights = jnp.log(self._weights.cast(noise.dtype))
        component = jax.random.categorical(key_component, log_weights, shape=(num,))
        # Every draw is placed in all k components and one is kept: k times the memory, no matrix per draw.
        spread = jnp.einsum("kij,jc->kic", self._choleskys.cast(noise.dtype), noise, precision="highest")
        placed = self._means.cast(noise.dtype)[:, :, None] + spread
        return jnp.take_along_axis(placed, component[None, None, :], axis=0)[0]

    @property
    def weights(self) -> Float[np.ndarray, "component"]:
        return self._weights.array

    @property
    def mean(self) -> Float[np.ndarray, "dim"]:
        return self._weights.array @ self._means.array

    @property
    def variance(self) -> Float[np.ndarray, "dim"]:
        return np.diag(self.covariance)

    @property
    def covariance(self) -> Float[np.ndarray, "dim dim"]:
        centred, choleskys = self._means.array - self.mean, self._choleskys.array
        within = choleskys @ choleskys.transpose(0, 2, 1)
        between = centred[:, :, None] * centred[:, None, :]
        return np.tensordot(self._weights.array, within + between, axes=1)


def mog() -> GaussianMixture:
    """Two modes twelve standard deviations apart (Levy et al. 2018, section 5.1)."""
    return GaussianMixture([[-2.0, 0.0], [2.0, 0.0]], [0.1, 0.1], name="mog")


def mog2() -> GaussianMixture:
    """Two modes ten apart with variance 0.5 (Song et al. 2017, A-NICE-MC)."""
    return GaussianMixture([[-5.0, 0.0], [5.0, 0.0]], [0.5, 0.5], name="mog2")


def mog2_unequal(separation: float = 5.0) -> GaussianMixture:
    """A wide mode and a narrow one, variances 3 and 0.05 (Levy et al. 2018, section 5.1).

    The paper gives the distance between them only as less than in `mog2`.
    """
    means = [[-separation / 2, 0.0], [separation / 2, 0.0]]
    return GaussianMixture(means, [3.0, 0.05], name="mog2-unequal")


def ring() -> GaussianMixture:
    """Eight equal modes on a circle of radius 5: each has two neighbours twelve standard deviations away."""
    angle = np.arange(8) * (2 * np.pi / 8)
    return GaussianMixture(5 * np.stack([np.cos(angle), np.sin(angle)], axis=1), [0.1] * 8, name="ring")


def mog20() -> GaussianMixture:
    """The two modes of `mog` in twenty dimensions."""
    means = np.zeros((2, 20))
    means[:, 0] = -2, 2
    return GaussianMixture(means, [0.1, 0.1], name="mog-20")
