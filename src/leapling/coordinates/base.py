"""x = f(z): what every map of coordinates offers, and an energy pulled back through one."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from leapling.kernels.base import State


class Coordinates(eqx.Module):
    """An invertible map x = f(z). Each direction returns its log-determinant with its value, so that they cannot drift
    apart.
    """

    @property
    @abstractmethod
    def dim(self) -> int: ...

    @property
    @abstractmethod
    def is_affine(self) -> bool:
        """Whether the log-determinant is the same everywhere."""

    @abstractmethod
    def forward_and_log_det(
        self, z: Float[Array, "dim *chains"]
    ) -> tuple[Float[Array, "dim *chains"], Float[Array, "*chains"]]:
        """x = f(z) and log|det df/dz|."""

    @abstractmethod
    def backward_and_log_det(
        self, x: Float[Array, "dim *chains"]
    ) -> tuple[Float[Array, "dim *chains"], Float[Array, "*chains"]]:
        """z = f^-1(x) and log|det df^-1/dx|."""

    def forward(self, z: Float[Array, "dim *chains"]) -> Float[Array, "dim *chains"]:
        return self.forward_and_log_det(z)[0]

    def backward(self, x: Float[Array, "dim *chains"]) -> Float[Array, "dim *chains"]:
        return self.backward_and_log_det(x)[0]


class Pulled(eqx.Module):
    """The energy of z: U(f(z)) - temperature log|det df/dz|, whose law at `temperature` is that of U there: what is
    divided by the temperature again is U alone."""

    function: Callable
    coordinates: Coordinates
    temperature: ArrayLike = 1.0

    def __call__(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        x, log_det = self.coordinates.forward_and_log_det(z)
        return self.function(x) - jnp.asarray(self.temperature, z.dtype) * log_det


def pull(f: Coordinates, x: State, temperature: ArrayLike) -> tuple[State, Float[Array, "*chains"]]:
    """A state of U as a state of the pulled energy, and log|det df/dz| there. U is not evaluated: its gradient is
    mapped along."""
    temperature = jnp.asarray(temperature, x.energy.dtype)
    z = f.backward(x.position)
    (_, log_det), back = jax.vjp(f.forward_and_log_det, z)
    (gradient,) = back((x.gradient, jnp.broadcast_to(-temperature, log_det.shape)))
    return State(z, x.energy - temperature * log_det, gradient), log_det


def push(f: Coordinates, z: State, temperature: ArrayLike) -> tuple[State, Float[Array, "*chains"]]:
    """A state of the pulled energy as one of U, likewise: U(x) = U_z(f^-1(x)) - temperature log|det df^-1/dx|."""
    temperature = jnp.asarray(temperature, z.energy.dtype)
    x, log_det = f.forward_and_log_det(z.position)
    _, back = jax.vjp(f.backward_and_log_det, x)
    (gradient,) = back((z.gradient, jnp.broadcast_to(-temperature, log_det.shape)))
    return State(x, z.energy + temperature * log_det, gradient), log_det
