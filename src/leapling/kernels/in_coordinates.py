"""Any Metropolis kernel, run in other coordinates: an exact kernel in x whose moves are made in z."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leapling.coordinates.base import Coordinates, Pulled, pull, push
from leapling.kernels.base import MetropolisKernel, Phase, Proposal


class InCoordinates(MetropolisKernel):
    """`kernel` on the pulled energy of z, seen from x = f(z). The momentum is standard normal in z.

    No evaluation of the energy is added: a state's gradient is mapped along with its position. Training moves the
    kernel and leaves the map as it is. A point that either direction of the map makes non-finite is never accepted.
    """

    kernel: MetropolisKernel
    coordinates: Coordinates

    @property
    def dim(self) -> int:
        return self.coordinates.dim

    @property
    def step_size(self) -> Float[Array, ""]:
        return getattr(self.kernel, "step_size", jnp.asarray(jnp.nan))

    def flip(self, phase: Phase) -> Phase:
        """The operator F of `kernel`: a flip does not depend on where x is."""
        return self.kernel.flip(phase)  # pyright: ignore[reportAttributeAccessIssue]

    def propose(self, energy, phase, *, key):
        f, x = _constant(self.coordinates), phase.state
        # A volume that is the same everywhere is left out: then the temperature may differ from chain to chain.
        temperature = 0.0 if f.is_affine else energy.temperature
        z, log_det = pull(f, x, temperature)
        pulled = replace(energy, function=Pulled(energy.function, f, temperature))
        inner = self.kernel.propose(pulled, Phase(z, phase.momentum, phase.direction), key=key)
        x, log_det_after = push(f, inner.phase.state, temperature)
        # dx' dv' / dx dv = (dx'/dz') (dz' dv' / dz dv) (dz/dx)
        volume = log_det_after - log_det
        is_finite = jnp.isfinite(volume) & jnp.all(jnp.isfinite(x.position) & jnp.isfinite(x.gradient), axis=0)
        log_jacobian = jnp.where(is_finite, inner.log_jacobian + volume, -jnp.inf)
        return Proposal(eqx.tree_at(lambda p: p.state, inner.phase, x), log_jacobian, inner.num_gradients)


def _constant(f: Coordinates) -> Coordinates:
    """The same map, to which no gradient flows: at the time of tracing, for of a number nothing can be stopped."""
    return jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_inexact_array(a) else a, f)
