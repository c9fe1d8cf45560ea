"""Hamiltonian Monte Carlo, the baseline that L2HMC reduces to when S = Q = T = 0."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from leapling.kernels.base import MetropolisKernel, Phase, Proposal, State, per_chain, require


class HMC(MetropolisKernel):
    """`num_steps` leapfrog steps (eq. 1), then the momentum is negated.

    Jitter j draws the step size of each chain from step_size * U(1 - j, 1 + j), and the length, once per transition
    for the whole batch, from num_steps * U(1 - j, 1 + j), rounded, at least 1. Both are drawn independently
    of the state, which keeps the kernel exact. All four are arrays: no change of them recompiles.
    """

    step_size: Float[Array, ""]
    num_steps: Int[Array, ""]
    step_size_jitter: Float[Array, ""]
    length_jitter: Float[Array, ""]

    def __init__(
        self,
        step_size: ArrayLike = 0.1,
        num_steps: ArrayLike = 10,
        *,
        step_size_jitter: ArrayLike = 0.0,
        length_jitter: ArrayLike = 0.0,
    ):
        require(step_size, lambda v: v > 0, "step_size must be a finite number above 0")
        require(num_steps, lambda v: v >= 1 and v == int(v), "num_steps must be a whole number of at least 1")
        for name, value in (("step_size_jitter", step_size_jitter), ("length_jitter", length_jitter)):
            require(value, lambda v: 0 <= v < 1, f"{name} must be in [0, 1)")
        self.step_size = jnp.asarray(step_size, float)
        self.num_steps = jnp.asarray(num_steps, jnp.int32)
        self.step_size_jitter = jnp.asarray(step_size_jitter, float)
        self.length_jitter = jnp.asarray(length_jitter, float)

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
        beta = 1 / jnp.asarray(energy.temperature, dtype)

        def leapfrog(_, carry):
            x, v, _, g = carry
            v = v - eps / 2 * (beta * g)
            x = x + eps * v
            u, g = energy.value_and_grad(x)
            v = v - eps / 2 * (beta * g)
            return x, v, u, g

        x, v, u, g = jax.lax.fori_loop(0, num_steps, leapfrog, (x, v, phase.state.energy, g))
        log_jacobian = jnp.where(jnp.all(jnp.isfinite(x), axis=0), jnp.zeros_like(u), -jnp.inf)
        return Proposal(self.flip(Phase(State(x, u, g), v, phase.direction)), log_jacobian, num_steps)
