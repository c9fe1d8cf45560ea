"""Kernels to start training from: L2HMC where it is already as good as what is known in closed form.

In white coordinates the target is near N(0, I), and there the best transition is known: (z, v) -> (v, -z) is accepted
always and draws the next z independently, for one gradient. L2HMC holds it at M = 1 and eps = 1 in two ways,

- with the force:  Q_v = ln 2, S = T = 0:  v1 = v - g,  z' = z + v1 = v,  v' = v1 - g' = -z   where g = z;
- without it:      Q_v = -8, T_v(z) = (2 - exp(-8)) z:  the same on N(0, I), and nearly so on any other energy,

the second for energies so rough that their gradient misleads: exp(-8) of it is left, enough for training to bring it
back. Both leave every weight free to be trained.
"""

import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, DTypeLike

from leapling.kernels.l2hmc import L2HMC

MUTED = -8.0  # Q_v without the force
LARGEST_Q = 10.0  # so that tanh is far from its ends where Q_v is MUTED


def with_force(dim: int, *, widths: Sequence[int] = (32, 32), key: Array, dtype: DTypeLike = np.float32) -> L2HMC:
    """(z, v) -> (v, -z) on N(0, I), by the energy's gradient."""
    return _with_heads(_flat(dim, 1, 1.0, widths, key, dtype), q=math.log(2.0), t=0.0)


def without_force(dim: int, *, widths: Sequence[int] = (32, 32), key: Array, dtype: DTypeLike = np.float32) -> L2HMC:
    """(z, v) -> (v, -z) on nearly any energy, by the force of N(0, I) in the gradient's place."""
    return _with_heads(_flat(dim, 1, 1.0, widths, key, dtype), q=MUTED, t=2.0 - math.exp(MUTED))


def like_hmc(
    dim: int,
    num_steps: int,
    step_size: float,
    *,
    widths: Sequence[int] = (32, 32),
    key: Array,
    dtype: DTypeLike = np.float32,
) -> L2HMC:
    """HMC at this length and step size, to rounding: S = Q = T = 0, and d = -1 is the way back."""
    return _flat(dim, num_steps, step_size, widths, key, dtype)


def _flat(dim: int, num_steps: int, step_size: float, widths: Sequence[int], key: Array, dtype: DTypeLike) -> L2HMC:
    """Heads that are zero, whatever comes in; the layers below them are random, so that training can move."""
    kernel = L2HMC(dim, num_steps, widths=widths, step_size=step_size, skip=True, key=key, dtype=dtype)
    heads = [lambda k: k.v_network.heads.weight, lambda k: k.x_network.heads.weight]
    for head in heads:
        kernel = eqx.tree_at(head, kernel, jnp.zeros_like(head(kernel)))
    return kernel


def _with_heads(kernel: L2HMC, *, q: float, t: float) -> L2HMC:
    """Q_v = q everywhere, and T_v(z) = t z."""
    network, dim = kernel.v_network, kernel.dim
    bias = network.heads.bias.at[dim : 2 * dim].set(math.atanh(q / LARGEST_Q))
    skip = network.skip.at[2, 0].set(t)  # pyright: ignore[reportOptionalMemberAccess]
    scale = jnp.full_like(network.log_scale_q, math.log(LARGEST_Q))
    return eqx.tree_at(
        lambda k: (k.v_network.heads.bias, k.v_network.skip, k.v_network.log_scale_q), kernel, (bias, skip, scale)
    )
