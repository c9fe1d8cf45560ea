"""The Rough Well: a Gaussian whose gradient is swamped by a ripple."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from leapling.targets.base import Target


@final
class RoughWell(Target):
    """U(x) = |x|^2 / 2 + eta sum_i cos(x_i / eta) (Levy et al. 2018, section 5.1), for 0 < eta <= 1."""

    name: str = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    eta: float = eqx.field(static=True)

    def __init__(self, dim: int = 2, eta: float = 1e-2, name: str = "rough-well"):
        if dim < 1:
            raise ValueError(f"dim is {dim}, at least 1 is needed: try dim=2.")
        if not 0 < eta <= 1:
            # `sample` accepts with probability exp(-2 eta) or more: a large eta would be rejected for ever.
            raise ValueError(f"eta is {eta}, a number above 0 and at most 1 is needed: try eta=0.01.")
        self.name, self.dim, self.eta = name, dim, float(eta)

    def __call__(self, x: Float[Array, "dim"]) -> Float[Array, ""]:
        return jnp.sum(x**2) / 2 + self.eta * jnp.sum(jnp.cos(x / self.eta))

    @eqx.filter_jit  # a loop run eagerly is compiled anew at every call
    def sample(self, key: PRNGKeyArray, num: int, dtype: DTypeLike | None = None) -> Float[Array, "dim num"]:
        """Rejection from N(0, 1), coordinate by coordinate; each round redraws those still rejected."""
        key_first, key_rounds = jax.random.split(key)
        shape = (self.dim, num)

        def attempt(key: PRNGKeyArray) -> tuple[Float[Array, "dim num"], Array]:
            key_proposal, key_accept = jax.random.split(key)
            proposal = jax.random.normal(key_proposal, shape, dtype)
            uniform = jax.random.uniform(key_accept, shape, proposal.dtype)
            return proposal, uniform < jnp.exp(-self.eta * (1 + jnp.cos(proposal / self.eta)))

        def redraw(carry):
            key, draws, is_done = carry
            key, key_attempt = jax.random.split(key)
            proposal, is_accepted = attempt(key_attempt)
            return key, jnp.where(is_done, draws, proposal), is_done | is_accepted

        carry = (key_rounds, *attempt(key_first))
        return jax.lax.while_loop(lambda carry: ~jnp.all(carry[2]), redraw, carry)[1]

    @property
    def mean(self) -> Float[np.ndarray, "dim"]:
        return np.zeros(self.dim)

    @property
    def variance(self) -> Float[np.ndarray, "dim"]:
        # exp(-eta cos(x / eta)) is a Fourier series, every term of which has an exact Gaussian integral;
        # integrating on a grid would have to resolve eta. For eta <= 1, terms beyond k = 12 are under 1e-40.
        k, angle = np.arange(13), np.arange(64) * (2 * np.pi / 64)
        ripple = np.exp(-self.eta * np.cos(angle)) @ np.cos(np.outer(angle, k)) * np.where(k == 0, 1, 2)
        frequency = k / self.eta
        weight = ripple * np.exp(-(frequency**2) / 2)
        return np.full(self.dim, (weight * (1 - frequency**2)).sum() / weight.sum())

    @property
    def covariance(self) -> Float[np.ndarray, "dim dim"]:
        return np.diag(self.variance)
