"""The banana: a Gaussian bent along a parabola."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from leapling.targets.base import Target


@final
class Banana(Target):
    """x_0 ~ N(0, scale^2), then x_1 | x_0 ~ N(-bend (x_0^2 - scale^2), 1) (Haario et al. 1999)."""

    name: str = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    bend: float = eqx.field(static=True)

    def __init__(self, scale: float = 10.0, bend: float = 0.03, name: str = "banana"):
        if not 0 < scale < np.inf or not np.isfinite(bend):
            raise ValueError(
                f"scale is {scale} and bend {bend}, scale > 0 and finite bend are needed: try scale=10, bend=0.03."
            )
        self.name, self.dim, self.scale, self.bend = name, 2, float(scale), float(bend)

    def __call__(self, x: Float[Array, "2"]) -> Float[Array, ""]:
        residual = x[1] + self.bend * (x[0] ** 2 - self.scale**2)
        return (x[0] / self.scale) ** 2 / 2 + residual**2 / 2

    def sample(self, key: PRNGKeyArray, num: int, dtype: DTypeLike | None = None) -> Float[Array, "2 num"]:
        noise = jax.random.normal(key, (2, num), dtype)
        along = self.scale * noise[0]
        return jnp.stack([along, noise[1] - self.bend * (along**2 - self.scale**2)])

    @property
    def mean(self) -> Float[np.ndarray, "2"]:
        return np.zeros(2)

    @property
    def variance(self) -> Float[np.ndarray, "2"]:
        return np.array([self.scale**2, 1 + 2 * self.bend**2 * self.scale**4])

    @property
    def covariance(self) -> Float[np.ndarray, "2 2"]:
        return np.diag(self.variance)
