"""An objective of proposals that are accepted, and spread as widely as that allows."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leapling.energy import as_energy
from leapling.kernels import Info, Kernel, MetropolisKernel, Phase, State
from leapling.kernels.base import DIVERGENCE_THRESHOLD, KeyArray, refresh
from leapling.training.log_det import Map, log_det, log_det_estimate


class Spread(Info):
    """A transition, and how much its proposal spreads the momentum: log|det dx'/dv|."""

    log_det: Float[Array, " chains"]


@dataclass(frozen=True)
class Entropy:
    """Minus the generalised speed measure (Titsias and Dellaportas 2019), with the entropy for each coordinate:

    -E[log A] - beta E[log|det dx'/dv|] / dim.

    For a given start and direction x' is a function of v ~ N(0, I). Where that is one to one the entropy of x' is that
    of v, a constant, plus E[log|det dx'/dv|]. The kernel's log|J| is another thing, of (x, v) -> (x', v'): NICE has
    log|J| = 0 and spreads all the same. `beta` trades acceptance for spread and stays what it is set to: raise it if
    more is accepted than need be. (The authors adapt it to a target of the acceptance rate.)

    Up to `exact_dim` coordinates the determinant is computed from all rows of the Jacobian, beyond that it is estimated
    with one random probe and `num_terms` terms (`log_det_estimate`). Either way it takes second derivatives of U, third
    ones for the gradient, also where the recipe has no `force_gradient`: that then holds for log A alone. They are
    taken along the trajectory of the transition itself and charge no further evaluation. A proposal that is not finite
    counts as a divergence, and has no gradient.
    """

    beta: float = 1.0
    exact_dim: int = 20
    num_terms: int = 10

    def __post_init__(self):
        if not self.beta > 0:
            raise ValueError(f"beta must be above 0, got {self.beta}; without entropy a kernel that rests is best")
        if self.num_terms < 1:
            raise ValueError(f"num_terms must be at least 1, got {self.num_terms}")

    def observe(self, kernel: Kernel, energy: Callable, start: State, *, key: KeyArray) -> tuple[State, Spread]:
        if not isinstance(kernel, MetropolisKernel):
            raise ValueError(
                f"Entropy looks at how x' depends on v, and {type(kernel).__name__} has no `propose` that tells; "
                "train its parts one by one"
            )
        end, info = kernel.step(energy, start, key=key)
        key_refresh, key_propose, _ = jax.random.split(key, 3)  # as in `step`: the map of this very proposal
        phase = refresh(start, key=key_refresh)
        energy = replace(as_energy(energy), force_gradient=True)  # part of the map, whatever the loss differentiates

        def proposal_of(kernel: MetropolisKernel) -> Map:
            def proposal(v):
                return kernel.propose(energy, Phase(start, v, phase.direction), key=key_propose).phase.state.position

            return proposal

        v = phase.momentum
        where = jnp.isfinite(log_ratio(info))
        if len(v) <= self.exact_dim:
            spread = log_det(proposal_of(kernel), v, where)
        else:
            key_probe = jax.random.fold_in(key, 2**31 - 1)  # a stream that no step uses
            constant = jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, kernel)
            spread = log_det_estimate(
                proposal_of(kernel),
                proposal_of(constant),
                v,
                where,
                probe=jax.random.rademacher(key_probe, v.shape, v.dtype),
                num_terms=self.num_terms,
            )
        return end, Spread(**vars(info), log_det=spread)

    def __call__(self, start: State, info: Info) -> Float[Array, ""]:
        assert isinstance(info, Spread)  # what `observe` returned
        ratio = log_ratio(info)
        is_finite = jnp.isfinite(ratio)
        log_acceptance = jnp.where(
            is_finite, jnp.minimum(jnp.where(is_finite, ratio, 0), 0), -jnp.asarray(DIVERGENCE_THRESHOLD, ratio.dtype)
        )
        return -jnp.mean(log_acceptance) - self.beta * jnp.mean(info.log_det) / start.position.shape[0]


def log_ratio(info: Info) -> Float[Array, "*chains"]:
    """log of p(xi')|J| / p(xi), which the acceptance loses where it is small."""
    return info.log_jacobian - info.energy_change
