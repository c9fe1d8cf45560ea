"""The learned leapfrog operator (Levy et al. 2018, eqs. 4-6) in both directions, on one code path.

Every sub-update is an affine shear y -> y exp(s) + b of what it changes, by amounts computed from what it does
not change. Running backward (d = -1) is: reverse time, start with the complementary mask, invert the shear.
Here alone the letters of the paper are used: x, v, g = dU/dx, S, Q, T, eps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from leapling.energy import Energy
from leapling.kernels.base import Phase, State, inverse_temperature, per_chain, per_coordinate, select
from leapling.kernels.networks import Network


class Step(NamedTuple):
    """What depends on the step index t: the mask m^t and what tau(t) adds to the first layer of each network."""

    mask: Bool[Array, "*steps dim"]
    v_offset: Float[Array, "*steps width"]
    x_offset: Float[Array, "*steps width"]


def shear(y: Array, log_scale: Array, shift: Array, forward: Array) -> Array:
    """y exp(s) + b where forward, and its exact inverse (y - b) exp(-s) elsewhere."""
    scale = jnp.exp(jnp.where(forward, log_scale, -log_scale))
    return jnp.where(forward, y * scale + shift, (y - shift) * scale)


def run_leapfrog(
    energy: Energy,
    phase: Phase,
    *,
    v_network: Network,
    x_network: Network,
    eps: Float[Array, ""],
    steps: Step,
    context: tuple[Array, Array],
) -> tuple[Phase, Float[Array, "*chains"]]:
    """L xi and log|J|: M steps, one gradient each. The direction is kept (the flip F is the caller's).

    `context` is what the context adds to the first layer of the v- and the x-network.
    """
    forward = per_chain(phase.direction, phase.momentum)
    beta = inverse_temperature(energy, phase.momentum)
    v_context, x_context = context

    # A trajectory that overflows stops where it last was moderate, and is rejected. Far inside of the range, so that
    # whatever the networks compute on it is finite: 0 * inf in the chain rule would spoil the gradient of the
    # weights, which all chains share. A reversed trajectory meets the same states, and the same fate.
    limit = jnp.asarray(jnp.finfo(eps.dtype).max ** 0.75, eps.dtype)

    def is_moderate(state: State):
        return jnp.abs(state.energy) + jnp.sum(jnp.abs(state.position) + jnp.abs(state.gradient), axis=0) < limit

    def update_v(v, x, g, offset):
        S, Q, T = v_network(x, g, offset)
        log_scale = eps / 2 * S
        return shear(v, log_scale, -eps / 2 * (g * jnp.exp(eps * Q) + T), forward), log_scale

    def update_x(x, v, moving, offset):
        S, Q, T = x_network(jnp.where(moving, 0, x), v, offset)
        log_scale = jnp.where(moving, eps * S, 0)
        return jnp.where(moving, shear(x, eps * S, eps * (v * jnp.exp(eps * Q) + T), forward), x), log_scale

    def one_step(carry, steps: tuple[Step, Step]):
        phase, log_scales, is_alive = carry
        x, v, g = phase.state.position, phase.momentum, beta * phase.state.gradient
        ahead, back = jax.tree.map(lambda a: per_coordinate(a, x), steps)
        moving = jnp.where(forward, ahead.mask, ~back.mask)
        v_offset = jnp.where(forward, ahead.v_offset, back.v_offset) + v_context
        x_offset = jnp.where(forward, ahead.x_offset, back.x_offset) + x_context

        v, s1 = update_v(v, x, g, v_offset)  # eq. 4
        x, s2 = update_x(x, v, moving, x_offset)  # eq. 5, first line
        x, s3 = update_x(x, v, ~moving, x_offset)  # eq. 5, second line
        u, g = energy.value_and_grad(x)
        moved = Phase(State(x, u, g), v, phase.direction)
        is_alive = is_alive & is_moderate(moved.state) & (jnp.sum(jnp.abs(v), axis=0) < limit)
        moved = select(is_alive, moved, phase)
        v, s4 = update_v(moved.momentum, moved.state.position, beta * moved.state.gradient, v_offset)  # eq. 6
        v = jnp.where(per_chain(is_alive, v), v, phase.momentum)
        moved = Phase(moved.state, v, phase.direction)
        return (moved, log_scales + (s1 + s2 + s3 + s4), is_alive), None

    carry = (phase, jnp.zeros_like(phase.momentum), is_moderate(phase.state))
    reversed_steps = jax.tree.map(lambda a: a[::-1], steps)
    (phase, log_scales, is_alive), _ = jax.lax.scan(one_step, carry, (steps, reversed_steps))
    log_jacobian = jnp.sum(log_scales, axis=0)  # appendix B
    log_jacobian = jnp.where(phase.direction, log_jacobian, -log_jacobian)
    return phase, jnp.where(is_alive, log_jacobian, -jnp.inf)
