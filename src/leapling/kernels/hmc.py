"""Hamiltonian Monte Carlo, the baseline that L2HMC reduces to when S = Q = T = 0."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from leapling.kernels.base import (
    MetropolisKernel,
    Phase,
    Proposal,
    State,
    inverse_temperature,
    per_chain,
    require,
)
from leapling.kernels.integrators import INTEGRATORS


class HMC(MetropolisKernel):
    """`num_steps` leapfrog steps (eq. 1), then the momentum is negated.

    `integrator` may name another palindromic splitting of `INTEGRATORS`: a step then costs as many gradients as it has
    drifts, and allows a `step_size` as many times as long.

    Jitter j draws the step size of each chain from step_size * U(1 - j, 1 + j), and the length, once per transition
    for the whole batch, from num_steps * U(1 - j, 1 + j), rounded, at least 1. Both are drawn independently
    of the state, which keeps the kernel exact. These four are arrays: no change of them recompiles.
    """

    step_size: Float[Array, ""]
    num_steps: Int[Array, ""]
    step_size_jitter: Float[Array, ""]
    length_jitter: Float[Array, ""]
    integrator: str = eqx.field(static=True)

    def __init__(
        self,
        step_size: ArrayLike = 0.1,
        num_steps: ArrayLike = 10,
        *,
        step_size_jitter: ArrayLike = 0.0,
        length_jitter: ArrayLike = 0.0,
        integrator: str = "leapfrog",
    ):
        require(step_size, lambda v: v > 0, "step_size must be a finite number above 0")
        require(num_steps, lambda v: v >= 1 and v == int(v), "num_steps must be a whole number of at least 1")
        for name, value in (("step_size_jitter", step_size_jitter), ("length_jitter", length_jitter)):
            require(value, lambda v: 0 <= v < 1, f"{name} must be in [0, 1)")
        if integrator not in INTEGRATORS:
            raise ValueError(f"there is no integrator {integrator!r}; choose from {', '.join(INTEGRATORS)}")
        self.step_size = jnp.asarray(step_size, float)
        self.num_steps = jnp.asarray(num_steps, jnp.int32)
        self.step_size_jitter = jnp.asarray(step_size_jitter, float)
        self.length_jitter = jnp.asarray(length_jitter, float)
        self.integrator = integrator

    def flip(self, phase: Phase) -> Phase:
        """The operator F."""
        return Phase(phase.state, -phase.momentum, phase.direction)

    def propose(self, energy, phase, *, key):
        x, v, g = phase.state.position, phase.momentum, phase.state.gradient
        dtype = x.dtype
        key_size, key_length = jax.random.split(key)
        wobble = jax.random.uniform(key_size, phase.direction.shape, dtype, -1.0, 1.0)
        eps = self.step_size.astype(dtype) * (1 + self.step_size_jitter.astype(dtype) * wobble)
        eps = per_chain(eps, x)
        stretch = 1 + self.length_jitter * jax.random.uniform(key_length, (), self.length_jitter.dtype, -1.0, 1.0)
        num_steps = jnp.maximum(jnp.round(self.num_steps.astype(stretch.dtype) * stretch), 1).astype(jnp.int32)
        beta = inverse_temperature(energy, x)
        splitting = INTEGRATORS[self.integrator]
        first, *kicks = splitting.kicks

        def one_step(_, carry):
            x, v, u, g = carry
            v = v - first * eps * (beta * g)
            for drift, kick in zip(splitting.drifts, kicks, strict=True):
                x = x + drift * eps * v
                u, g = energy.value_and_grad(x)
                v = v - kick * eps * (beta * g)
            return x, v, u, g

        x, v, u, g = jax.lax.fori_loop(0, num_steps, one_step, (x, v, phase.state.energy, g))
        log_jacobian = jnp.where(jnp.all(jnp.isfinite(x), axis=0), jnp.zeros_like(u), -jnp.inf)
        return Proposal(
            self.flip(Phase(State(x, u, g), v, phase.direction)), log_jacobian, num_steps * splitting.num_gradients
        )
