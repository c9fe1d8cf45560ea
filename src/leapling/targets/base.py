"""What every target with a known answer offers, and how it keeps its constants."""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike


class Constant:
    """A float64 array hashed and compared by value, fit for a static field.

    As a pytree leaf it would be rounded to float32 under `jit` when x64 is off, and trained by any optimiser
    that selects inexact arrays. Static, it stays exact, and equal targets share one compilation.
    """

    def __init__(self, value: ArrayLike):
        self.array = np.array(value, np.float64)
        if not np.isfinite(self.array).all():
            raise ValueError("a target was given NaN or infinity, finite constants are needed: check its inputs.")
        self.array.setflags(write=False)
        self._hash = hash((self.array.shape, self.array.tobytes()))

    def cast(self, dtype: DTypeLike) -> Float[Array, "..."]:
        return jnp.asarray(self.array, dtype)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Constant) and np.array_equal(self.array, other.array))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Constant(shape={self.array.shape})"


class Target(eqx.Module):
    """A distribution p(x) ~ exp(-U(x)) whose moments are known and which can be drawn from exactly.

    `mean`, `variance` and `covariance` are the truth, in float64; `covariance` is built only when asked for.
    """

    name: eqx.AbstractVar[str]
    dim: eqx.AbstractVar[int]

    @abc.abstractmethod
    def __call__(self, x: Float[Array, "dim"]) -> Float[Array, ""]:
        """The energy U of one point, up to an additive constant, in the dtype of `x`."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, num: int, dtype: DTypeLike | None = None) -> Float[Array, "dim num"]:
        """`num` independent exact draws; without a `dtype`, in JAX's default float."""

    @property
    @abc.abstractmethod
    def mean(self) -> Float[np.ndarray, "dim"]: ...

    @property
    @abc.abstractmethod
    def variance(self) -> Float[np.ndarray, "dim"]: ...

    @property
    @abc.abstractmethod
    def covariance(self) -> Float[np.ndarray, "dim dim"]: ...
