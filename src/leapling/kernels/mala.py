"""Langevin proposals whose scale depends on where they start: a simplified manifold MALA, without implicit steps."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from leapling.energy import Energy
from leapling.kernels.base import MetropolisKernel, Phase, Proposal, evaluate, inverse_temperature, require


class PositionMALA(MetropolisKernel):
    """x' = m(x) + eps C(x) v, m(x) = x - eps^2/2 C(x) C(x)^T g(x), after Girolami and Calderhead (2011).

    It costs one evaluation. `factor` is a function of one point: scales of shape (dim,), or a lower triangular C of
    shape (dim, dim), such as the Cholesky factor of an inverse metric. The derivatives of C, which a Langevin diffusion
    would need, are left out: the ratio holds both densities of the proposal, and is right for any drift.

    With v' the noise that leads back, x = m(x') + eps C(x') v', the proposal (x, v) -> (x', v') undoes itself, and
    q(x | x') / q(x' | x) is exp(|v|^2/2 - |v'|^2/2), which a Metropolis step has in H, times |C(x)| / |C(x')|.
    """

    factor: Callable
    step_size: Float[Array, ""]

    def __init__(self, factor: Callable, step_size: ArrayLike = 0.5):
        require(step_size, lambda v: v > 0, "step_size must be a finite number above 0")
        self.factor = factor
        self.step_size = jnp.asarray(step_size, float)

    def propose(self, energy: Energy, phase: Phase, *, key) -> Proposal:
        eps = self.step_size.astype(phase.momentum.dtype)
        beta = inverse_temperature(energy, phase.momentum)
        start = phase.state
        there, log_det = self._each(ahead, start.position, beta * start.gradient, phase.momentum, eps)
        end = evaluate(energy, there)
        back, log_det_back = self._each(noise, there, beta * end.gradient, start.position, eps)
        log_jacobian = log_det - log_det_back  # log |C(x)| - log |C(x')|
        is_finite = jnp.isfinite(log_jacobian) & jnp.all(jnp.isfinite(there) & jnp.isfinite(back), axis=0)
        return Proposal(
            Phase(end, back, phase.direction),
            jnp.where(is_finite, log_jacobian, -jnp.inf),
            jnp.asarray(1, jnp.int32),
        )

    def _each(self, function: Callable, x: Array, gradient: Array, other: Array, eps: Array) -> tuple[Array, Array]:
        """Chain by chain, since C is a user's function of one point, as an energy is."""

        def at_one_point(x, gradient, other):
            c = self.factor(x)
            if c.shape not in (x.shape, x.shape * 2) or c.dtype != x.dtype:
                raise ValueError(
                    f"factor returned {c.dtype} of shape {c.shape} for one {x.dtype} point of {len(x)} coordinates; "
                    f"scales of shape ({len(x)},) or a lower triangular ({len(x)}, {len(x)}) of that dtype are needed"
                )
            diagonal = c if c.ndim == 1 else jnp.diagonal(c)
            return function(c, x, gradient, other, eps), jnp.sum(jnp.log(jnp.abs(diagonal)))

        for _ in x.shape[1:]:
            at_one_point = jax.vmap(at_one_point, in_axes=-1, out_axes=-1)
        return at_one_point(x, gradient, other)


def ahead(c: Array, x: Array, gradient: Array, v: Array, eps: Array) -> Array:
    """m(x) + eps C v."""
    return mean(c, x, gradient, eps) + eps * (c * v if c.ndim == 1 else lower(c) @ v)


def noise(c: Array, x: Array, gradient: Array, end: Array, eps: Array) -> Array:
    """The v that leads from x to `end`."""
    step = (end - mean(c, x, gradient, eps)) / eps
    return step / c if c.ndim == 1 else jax.scipy.linalg.solve_triangular(c, step, lower=True)


def mean(c: Array, x: Array, gradient: Array, eps: Array) -> Array:
    force = c * (c * gradient) if c.ndim == 1 else lower(c) @ (lower(c).T @ gradient)
    return x - eps**2 / 2 * force


def lower(c: Array) -> Array:
    """What lies above the diagonal is not used, here as little as in solving for v."""
    return jnp.tril(c)
