"""Any Metropolis kernel, run in other coordinates: an exact kernel in x whose moves are made in z."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from leapling.coordinates import Affine, Pulled
from leapling.kernels.base import MetropolisKernel, Phase, Proposal, State


class InCoordinates(MetropolisKernel):
    """`kernel` on U(f(z)), seen from x = f(z). The momentum is standard normal in z.

    The map is affine, so that its log-determinant is a constant and cancels in the accept ratio. No evaluation of the
    energy is added: a state's gradient is mapped along with its position.
    """

    kernel: MetropolisKernel
    coordinates: Affine

    @property
    def dim(self) -> int:
        return self.coordinates.mean.shape[0]

    @property
    def step_size(self) -> Float[Array, ""]:
        return getattr(self.kernel, "step_size", jnp.asarray(jnp.nan))

    def flip(self, phase: Phase) -> Phase:
        """The operator F of `kernel`: a flip does not depend on where x is."""
        return self.kernel.flip(phase)  # pyright: ignore[reportAttributeAccessIssue]

    def propose(self, energy, phase, *, key):
        f = self.coordinates
        x = phase.state
        z = State(f.backward(x.position), x.energy, f.gradient_backward(x.gradient))
        pulled = replace(energy, function=Pulled(energy.function, f))
        inner = self.kernel.propose(pulled, Phase(z, phase.momentum, phase.direction), key=key)
        z = inner.phase.state
        x = State(f.forward(z.position), z.energy, f.gradient_forward(z.gradient))
        return Proposal(eqx.tree_at(lambda p: p.state, inner.phase, x), inner.log_jacobian, inner.num_gradients)
