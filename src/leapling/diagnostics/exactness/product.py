"""Parallel tempering as a chain on all its replicas at once: the law it leaves invariant is their product."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from leapling.energy import Energy, as_energy
from leapling.kernels import Kernel, State
from leapling.kernels.base import evaluate
from leapling.kernels.tempering import Replicas, as_replicas
from leapling.targets import DiagonalGaussian, Gaussian


class Product(eqx.Module):
    """sum_r beta_r U(x_r) of one point of replicas * dim coordinates, those of the cold replica first."""

    function: Any
    betas: Float[Array, " replicas"]

    def __call__(self, x: Float[Array, " product"]) -> Float[Array, ""]:
        u = jax.vmap(self.function)(x.reshape(len(self.betas), -1))
        return jnp.sum(self.betas.astype(u.dtype) * u)


class GaussianProduct(Product):
    """Of a Gaussian, which can be drawn from at every temperature: its deviations grow by beta^-1/2."""

    def sample(self, key: PRNGKeyArray, num: int, dtype: DTypeLike | None = None) -> Float[Array, "product num"]:
        target, keys = self.function, jax.random.split(key, len(self.betas))
        draws = jnp.stack([target.sample(k, num, dtype) for k in keys])
        mean = jnp.asarray(target.mean, draws.dtype)[None, :, None]
        scale = self.betas.astype(draws.dtype)[:, None, None] ** -0.5
        return (mean + scale * (draws - mean)).reshape(-1, num)


class Single(eqx.Module):
    """U(x) of one replica, from a product: what the others add at 0 is taken off again."""

    product: Any
    betas: Float[Array, " replicas"]

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        nowhere = jnp.zeros(len(self.betas) * len(x), x.dtype)
        total = jnp.sum(self.betas).astype(x.dtype)
        return self.product(nowhere.at[: len(x)].set(x)) - self.product(nowhere) * (total - 1) / total


class WholeState(State):
    """Position, energy and gradient of the product, as the replicas' own caches make them."""

    replicas: Replicas


class Whole(Kernel):
    """The same transitions as those of `chain`, on a product energy."""

    chain: Any
    betas: Float[Array, " replicas"]

    def init(self, energy, position, *, key=None):
        each = position.reshape(len(self.betas), -1, *position.shape[1:])
        return self._whole(as_replicas(evaluate(self._single(energy), jnp.moveaxis(each, 0, 1))))

    def step(self, energy, state: WholeState, *, key):  # pyright: ignore[reportIncompatibleMethodOverride]
        replicas, info = self.chain.step(self._single(energy), state.replicas, key=key)
        return self._whole(replicas), info

    def reversed(self) -> "Whole":
        return Whole(self.chain.reversed(), self.betas)

    def fit_standin(self, points: Float[np.ndarray, "chain product"], random: np.random.Generator) -> GaussianProduct:
        """One Gaussian, fitted to the cold replica: of a mixture hot draws would not be exact."""
        cold = points[:, : points.shape[1] // len(self.betas)]
        covariance = np.cov(cold.T).reshape(cold.shape[1], cold.shape[1])
        return GaussianProduct(Gaussian(covariance, cold.mean(axis=0), name="stand-in"), self.betas)

    def _single(self, energy) -> Energy:
        energy = as_energy(energy)
        return Energy(Single(energy.function, self.betas), energy.temperature)

    def _whole(self, replicas: Replicas) -> WholeState:
        state = replicas.all
        beta = self.betas.astype(state.energy.dtype).reshape((-1,) + (1,) * (state.energy.ndim - 1))
        gradient = beta[None] * state.gradient

        def flat(a: Array) -> Array:
            return jnp.moveaxis(a, 1, 0).reshape(-1, *a.shape[2:])

        return WholeState(flat(state.position), jnp.sum(beta * state.energy, axis=0), flat(gradient), replicas)


def whole(kernel: Any, energy: Any) -> tuple[Whole, Product]:
    """The chain of all replicas of a `Tempering`, and the energy of their product."""
    betas = kernel.inverse_temperatures
    kind = GaussianProduct if isinstance(energy, (Gaussian, DiagonalGaussian)) else Product
    return Whole(kernel, betas), kind(energy, betas)
