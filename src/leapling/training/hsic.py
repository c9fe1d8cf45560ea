"""An objective that is least for an independent next state alone."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leapling.kernels import Info, State
from leapling.training.transitions import moves

FARTHEST = 1e3  # standard deviations: beyond, a Gaussian kernel is 0 anyway, and squares must not overflow


@dataclass(frozen=True)
class HSIC:
    """The Hilbert-Schmidt independence criterion of x_t and x_{t+1} (Gretton et al. 2005), as a share of resting's.

    It is the squared distance between the joint distribution and the product of the marginals, embedded by Gaussian
    kernels k, and 0 only where they agree. Of K_ij = k(x_i, x_j) and L_ij = k(y_i, y_j), y the next states, the
    estimate is the one without bias (Song et al. 2012, eq. 4). It is linear in L, whose expectation over the accept
    decisions of two chains is

    A_i A_j k(x'_i, x'_j) + A_i (1 - A_j) k(x'_i, x_j) + (1 - A_i) A_j k(x_i, x'_j) + (1 - A_i) (1 - A_j) k(x_i, x_j).

    Coordinates are divided by their standard deviation in the batch, and the bandwidth is the median distance between
    chains; no gradient goes through either. The cost grows with the square of the batch. On far modes the criterion is
    close to flat: a chain that never changes mode may look almost independent.
    """

    def __call__(self, start: State, info: Info) -> Float[Array, ""]:
        num = start.energy.shape[0]
        if num < 4:
            raise ValueError(f"HSIC compares pairs of chains and needs at least 4 of them, got {num}")
        ways = moves(start, info)
        rest = 1 - sum(share for share, _ in ways)
        shares = jnp.stack([*(share for share, _ in ways), rest])  # (ways, chains)
        x = standardised(start.position, start.position)
        points = [*(standardised(state.position, start.position) for _, state in ways), x]
        bandwidth = jax.lax.stop_gradient(jnp.median(squared_distances(x)))
        present = jnp.exp(-squared_distances(x) / (2 * bandwidth))
        kernels = jnp.exp(-squared_distances(jnp.concatenate(points, axis=1)) / (2 * bandwidth))
        kernels = kernels.reshape(*shares.shape, *shares.shape)  # way of i, i, way of j, j
        after = jnp.einsum("ai,aibj,bj->ij", shares, kernels, shares, precision="highest")
        return dependence(present, after) / jax.lax.stop_gradient(dependence(present, present))


def standardised(x: Float[Array, "dim chains"], of: Float[Array, "dim chains"]) -> Float[Array, "dim chains"]:
    mean, deviation = (jax.lax.stop_gradient(f(of, axis=1, keepdims=True)) for f in (jnp.mean, jnp.std))
    return jnp.clip((x - mean) / jnp.maximum(deviation, jnp.finfo(x.dtype).tiny), -FARTHEST, FARTHEST)


def squared_distances(x: Float[Array, "dim points"]) -> Float[Array, "points points"]:
    squares = jnp.sum(x**2, axis=0)
    return jnp.maximum(squares[:, None] + squares[None] - 2 * jnp.matmul(x.T, x, precision="highest"), 0)


def dependence(k: Float[Array, "n n"], l: Float[Array, "n n"]) -> Float[Array, ""]:  # noqa: E741
    """(tr KL + 1'K1 1'L1 / ((n - 1)(n - 2)) - 2/(n - 2) 1'KL1) / (n (n - 3)), with diagonals of 0."""
    n = k.shape[0]
    k, l = (a * (1 - jnp.eye(n, dtype=a.dtype)) for a in (k, l))  # noqa: E741
    alike = jnp.sum(k * l) + jnp.sum(k) * jnp.sum(l) / ((n - 1) * (n - 2))
    return (alike - 2 / (n - 2) * jnp.sum(jnp.sum(k, axis=0) * jnp.sum(l, axis=0))) / (n * (n - 3))
