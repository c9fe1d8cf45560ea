"""log|det J|, chain by chain, of a map that treats each chain alone; only reverse passes through it are needed."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Map = Callable[[Float[Array, "dim chains"]], Float[Array, "dim chains"]]


def log_det(function: Map, at: Float[Array, "dim chains"], where: Bool[Array, " chains"]) -> Float[Array, " chains"]:
    """By all rows of J, one reverse pass each; 0 elsewhere than `where`, where J may be anything."""
    _, pull = jax.vjp(function, at)
    dim, num = at.shape
    identity = jnp.eye(dim, dtype=at.dtype)[:, :, None]
    rows = jax.vmap(lambda row: pull(row)[0])(jnp.broadcast_to(identity, (dim, dim, num)))
    jacobian = jnp.where(where[None, None], rows, identity)  # before anything has a gradient that is not finite
    return jnp.linalg.slogdet(jnp.moveaxis(jacobian, -1, 0))[1]


def log_det_estimate(
    function: Map,
    constant: Map,
    at: Float[Array, "dim chains"],
    where: Bool[Array, " chains"],
    *,
    probe: Float[Array, "dim chains"],
    num_terms: int,
) -> Float[Array, " chains"]:
    """From one probe e with E[e e'] = 1, value and gradient: E[e' log(J'J) e] / 2, and that of e' J^-1 (grad J) e.

    `constant` is `function` without a gradient: both need J^-T e and a logarithm, which come from the first `num_terms`
    steps of Golub and Kahan's bidiagonalisation from e (Golub and Meurant 2010; Ubaru, Chen and Saad 2017): exact, but
    for the probe, when there are as many as J has different singular values. Each costs two reverse passes.
    """
    kept = where[None]
    _, pull_constant = jax.vjp(constant, at)
    _, push_constant = jax.vjp(lambda u: pull_constant(u)[0], jnp.zeros_like(at))

    def pull(u):  # J'u
        return jnp.where(kept, pull_constant(u)[0], u)

    def push(w):  # J w
        return jnp.where(kept, push_constant(w)[0], w)

    left, bidiagonal = bidiagonalise(push, pull, probe, num_terms)
    a, singular, b = jnp.linalg.svd(bidiagonal)
    singular = jnp.maximum(singular, jnp.finfo(at.dtype).eps * singular[:, :1])
    first = b[:, :, 0]  # (chains, terms): of the probe's direction
    length = jnp.sqrt(jnp.sum(probe**2, axis=0))
    value = length**2 * jnp.sum(first**2 * jnp.log(singular), axis=1)
    coefficients = jnp.einsum("cjk,ck->jc", a, first / singular) * length[None]
    solution = jnp.sum(left * coefficients[:, None], axis=0)  # J^-T e
    _, pull_with_gradient = jax.vjp(function, at)
    slope = jnp.sum(jnp.where(kept, pull_with_gradient(solution)[0] * probe, 0), axis=0)  # e' J^-1 J e
    return value + slope - jax.lax.stop_gradient(slope)


def bidiagonalise(
    push: Map, pull: Map, probe: Float[Array, "dim chains"], num: int
) -> tuple[Float[Array, "num dim chains"], Float[Array, "chains num num"]]:
    """U and B of J V = U B: orthonormal columns, V's first along the probe, B with two diagonals.

    A direction that is used up is 0, with 1 on B's diagonal: it is cut off from the others.
    """
    none = jnp.zeros((num, *probe.shape), probe.dtype)
    start = probe / jnp.sqrt(jnp.sum(probe**2, axis=0, keepdims=True))

    def step(bases, j):
        us, vs = bases
        u, alpha = against(us, push(vs[j]))
        is_used_up = ~jnp.any(vs[j] != 0, axis=0)
        us = us.at[j].set(u)
        v, beta = against(vs, pull(u))
        vs = vs.at[j + 1].set(v, mode="drop")
        return (us, vs), (jnp.where(is_used_up, 1, alpha), beta)

    steps = jnp.arange(num, dtype=jnp.int32)
    (us, _), (alphas, betas) = jax.lax.scan(step, (none, none.at[0].set(start)), steps)
    above = jax.vmap(lambda b: jnp.diag(b, 1))(betas[:-1].T) if num > 1 else 0
    return us, jax.vmap(jnp.diag)(alphas.T) + above


def against(
    basis: Float[Array, "num dim chains"], w: Float[Array, "dim chains"]
) -> tuple[Float[Array, "dim chains"], Float[Array, " chains"]]:
    """What of w is orthogonal to the basis, of length 1, and the length it had; 0 when that is rounding."""
    whole = jnp.sqrt(jnp.sum(w**2, axis=0))
    for _ in range(2):  # once leaves rounding errors of the order of what was taken away
        w = w - jnp.sum(basis * jnp.sum(basis * w[None], axis=1, keepdims=True), axis=0)
    length = jnp.sqrt(jnp.sum(w**2, axis=0))
    is_left = length > 100 * jnp.finfo(w.dtype).eps * whole
    length = jnp.where(is_left, length, 0)
    return jnp.where(is_left[None], w / jnp.where(is_left, length, 1)[None], 0), length
