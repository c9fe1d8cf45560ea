"""Objectives of how far one statistic moves: the energy, or the distance from the centre."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leapling.kernels import Info, State
from leapling.training.transitions import squared_change


@dataclass(frozen=True)
class EnergyJump:
    """Minus the expected squared change of the energy, in variances: -E[A (U' - U)^2] / Var U.

    Under stationarity it is 2 rho_U - 2, rho_U the autocorrelation of U after one transition, which is what
    `Decorrelation` squares: -2 for an independent next state, 0 for resting, and lower still where U alternates
    between high and low. Nothing but U is looked at: a kernel that keeps its mode may score as well as one that hops.
    """

    def __call__(self, start: State, info: Info) -> Float[Array, ""]:
        variance = jax.lax.stop_gradient(jnp.var(start.energy))
        change = squared_change(lambda state: state.energy, start, info)
        return -change / jnp.maximum(variance, jnp.finfo(change.dtype).tiny)


@dataclass(frozen=True)
class ChEES:
    """Minus the change in the estimator of the expected square (Hoffman, Radul and Sountsov 2021), for each gradient:

    -E[A (|x' - m|^2 - |x - m|^2)^2] / 4 / (gradients of a transition), with m the mean of the batch.

    The radius of a flip or of a turn about the centre stays, so that neither pays. The coordinates are taken as they
    are: those of large variance decide.
    """

    def __call__(self, start: State, info: Info) -> Float[Array, ""]:
        centre = jax.lax.stop_gradient(jnp.mean(start.position, axis=1, keepdims=True))
        change = squared_change(lambda state: jnp.sum((state.position - centre) ** 2, axis=0), start, info)
        return -change / 4 / jnp.mean(info.num_gradients.astype(change.dtype))
