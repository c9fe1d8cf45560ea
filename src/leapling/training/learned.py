"""An objective that is itself learned: a network looks for the statistic that mixes worst."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, DTypeLike, Float, PRNGKeyArray

from leapling.kernels import Info, State
from leapling.kernels.mlp import MLP
from leapling.training.hsic import standardised
from leapling.training.transitions import squared_change


class Opponent(eqx.Module):
    """The network f and its optimiser, carried along with the kernel in training."""

    network: MLP
    optimizer: Any


@dataclass(frozen=True)
class Learned:
    """The autocorrelation after one transition of a statistic f that is trained, in turn, to have the largest.

    rho_f = 1 - E[A (f(x') - f(x))^2] / (2 Var f). The kernel descends rho_f^2, so that neither resting nor flipping
    pays; f, a network of the coordinates, each divided by its standard deviation in the batch, ascends rho_f. Both take
    one step in each iteration. The largest rho_f over all f is what bounds the mixing of a reversible chain (the second
    eigenvalue, whose eigenfunction f then is): no list of statistics has to be chosen, and the opponents are those of
    adversarial training (Song, Zhao and Ermon 2017), with an autocorrelation for a score. A loss that falls says
    little, since f moves too: judge by held-out `min_ess`.
    """

    widths: tuple[int, ...] = (32, 32)
    learning_rate: float = 3e-3  # of f

    def __post_init__(self):
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"widths must be at least one layer of at least 1 unit, got {self.widths}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, got {self.learning_rate}")

    def opponent(self, dim: int, *, key: PRNGKeyArray, dtype: DTypeLike) -> Opponent:
        network = MLP((dim, *self.widths, 1), slope=0.2, key=key, dtype=dtype)
        return Opponent(network, optax.adam(self.learning_rate).init(eqx.filter(network, eqx.is_array)))

    def improved(self, opponent: Opponent, gradient: Any) -> Opponent:
        """After one step down the gradient."""
        with jax.numpy_dtype_promotion("standard"):  # optax mixes its integer count with reals
            updates, optimizer = optax.adam(self.learning_rate).update(gradient, opponent.optimizer)
        return Opponent(eqx.apply_updates(opponent.network, updates), optimizer)

    def against(self, network: MLP) -> Callable[[State, Info], Float[Array, ""]]:
        """rho_f^2, whose gradient is that of rho_f^2 in the kernel and that of -rho_f in f."""

        def loss(start: State, info: Info) -> Float[Array, ""]:
            of_kernel = autocorrelation(jax.lax.stop_gradient(network), start, info) ** 2
            of_network = -autocorrelation(network, *jax.lax.stop_gradient((start, info)))
            return of_kernel + of_network - jax.lax.stop_gradient(of_network)

        return loss

    def __call__(self, start: State, info: Info) -> Float[Array, ""]:
        raise ValueError("Learned scores nothing without a network; call what Learned.against(network) returns")


def autocorrelation(network: MLP, start: State, info: Info) -> Float[Array, ""]:
    """rho_f under stationarity."""

    def statistic(state: State) -> Array:
        return network(standardised(state.position, start.position))[0]

    variance = jnp.var(statistic(start))
    change = squared_change(statistic, start, info)
    return 1 - change / (2 * jnp.maximum(variance, jnp.finfo(change.dtype).tiny))
