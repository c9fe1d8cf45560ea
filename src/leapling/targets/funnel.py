"""Neal's funnel: the first coordinate sets the scale of all the others."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from leapling.targets.base import Target


@final
class Funnel(Target):
    """x_0 ~ N(0, sd^2), then x_i | x_0 ~ N(0, exp(x_0)) for every other coordinate (Neal 2003)."""

    name: str = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    sd: float = eqx.field(static=True)

    def __init__(self, dim: int = 10, sd: float = 3.0, name: str = "funnel"):
        if dim < 2 or not 0 < sd < np.inf:
            raise ValueError(f"dim is {dim} and sd {sd}, dim >= 2 and sd > 0 are needed: try dim=10, sd=3.")
        self.name, self.dim, self.sd = name, dim, float(sd)

    def __call__(self, x: Float[Array, "dim"]) -> Float[Array, ""]:
        # Scaled before it is squared: exp(-x_0) overflows at half the distance exp(-x_0 / 2) does.
        scaled = x[1:] * jnp.exp(-x[0] / 2)
        return (x[0] / self.sd) ** 2 / 2 + (self.dim - 1) / 2 * x[0] + jnp.sum(scaled**2) / 2

    def sample(self, key: PRNGKeyArray, num: int, dtype: DTypeLike | None = None) -> Float[Array, "dim num"]:
        noise = jax.random.normal(key, (self.dim, num), dtype)
        log_variance = self.sd * noise[:1]
        return jnp.concatenate([log_variance, jnp.exp(log_variance / 2) * noise[1:]])

    @property
    def mean(self) -> Float[np.ndarray, "dim"]:
        return np.zeros(self.dim)

    @property
    def variance(self) -> Float[np.ndarray, "dim"]:
        return np.array([self.sd**2] + [np.exp(self.sd**2 / 2)] * (self.dim - 1))

    @property
    def covariance(self) -> Float[np.ndarray, "dim dim"]:
        return np.diag(self.variance)
