"""The networks behind S, Q and T (Levy et al. 2018, appendix C.1)."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float, PRNGKeyArray

from leapling.kernels.base import per_coordinate


class Dense(eqx.Module):
    """y = W x + b on axis 0."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]

    def __init__(self, num_in: int, num_out: int, variance: float, *, key: PRNGKeyArray, dtype: DTypeLike):
        self.weight = _gaussian(key, (num_out, num_in), variance, dtype)
        self.bias = jnp.zeros(num_out, dtype)

    def __call__(self, x: Float[Array, "in *chains"]) -> Float[Array, "out *chains"]:
        return jnp.tensordot(self.weight, x, 1) + per_coordinate(self.bias, x)


class Network(eqx.Module):
    """(first, second, time and context) -> S, Q, T, each of shape (dim, *chains), the trunk shared by the three heads.

    h1 = relu(W1 first + W2 second + W3 tau(t) + W4 context + b); S and Q are exp(a learned vector) * tanh(head).
    """

    first: Float[Array, "width dim"]
    second: Float[Array, "width dim"]
    time: Float[Array, "width 2"]
    context: Float[Array, "width context"] | None
    bias: Float[Array, " width"]
    hidden: tuple[Dense, ...]
    heads: Dense  # rows: S, then Q, then T
    log_scale_s: Float[Array, " dim"]
    log_scale_q: Float[Array, " dim"]
    skip: Float[Array, "heads inputs dim"] | None  # from each coordinate of both inputs straight to its S, Q and T
    used: str = eqx.field(static=True)  # of S, Q and T; the others are zero

    def __init__(
        self,
        dim: int,
        widths: Sequence[int],
        *,
        context_dim: int = 0,
        first_factor: float = 1.0,
        used: str = "SQT",
        skip: bool = False,
        key: PRNGKeyArray,
        dtype: DTypeLike,
    ):
        self.used = used
        self.skip = jnp.zeros((3, 2, dim), dtype) if skip else None
        # Initial scales of the authors' code: each input of the first layer has variance 2 / (3 fan_in), twice that
        # (`first_factor`) where half of the input is masked away; the heads start near zero, that is, near HMC.
        keys = jax.random.split(key, len(widths) + 4)
        width = widths[0]
        self.first = _gaussian(keys[0], (width, dim), first_factor * 2 / (3 * dim), dtype)
        self.second = _gaussian(keys[1], (width, dim), 2 / (3 * dim), dtype)
        self.time = _gaussian(keys[2], (width, 2), 2 / (3 * 2), dtype)
        self.context = _gaussian(keys[3], (width, context_dim), 2 / (3 * context_dim), dtype) if context_dim else None
        self.bias = jnp.zeros(width, dtype)
        self.hidden = tuple(
            Dense(a, b, 2 / a, key=k, dtype=dtype) for a, b, k in zip(widths[:-1], widths[1:], keys[4:-1], strict=True)
        )
        self.heads = Dense(widths[-1], 3 * dim, 0.002 / widths[-1], key=keys[-1], dtype=dtype)
        self.log_scale_s = jnp.zeros(dim, dtype)
        self.log_scale_q = jnp.zeros(dim, dtype)

    def offsets(self, taus: Float[Array, "steps 2"]) -> Float[Array, "steps width"]:
        """What time adds to the first layer, for every step at once: W3 tau(t) + b."""
        return jnp.tensordot(taus, self.time, ((1,), (1,))) + self.bias[None]

    def __call__(
        self,
        first: Float[Array, "dim *chains"],
        second: Float[Array, "dim *chains"],
        offset: Float[Array, "width *chains"],
    ) -> tuple[Float[Array, "dim *chains"], Float[Array, "dim *chains"], Float[Array, "dim *chains"]]:
        # W1 first + W2 second as one product: on small networks the number of products is the cost.
        weight = jnp.concatenate([self.first, self.second], axis=1)
        h = jax.nn.relu(jnp.tensordot(weight, jnp.concatenate([first, second]), 1) + offset)
        for layer in self.hidden:
            h = jax.nn.relu(layer(h))
        s, q, t = jnp.split(self.heads(h), 3)
        if self.skip is not None:
            s, q, t = (
                head + per_coordinate(a, first) * first + per_coordinate(b, second) * second
                for head, (a, b) in zip((s, q, t), self.skip, strict=True)
            )
        s = per_coordinate(jnp.exp(self.log_scale_s), s) * jnp.tanh(s)
        q = per_coordinate(jnp.exp(self.log_scale_q), q) * jnp.tanh(q)
        s, q, t = (
            head if name in self.used else jnp.zeros_like(head) for name, head in zip("SQT", (s, q, t), strict=True)
        )
        return s, q, t


def _gaussian(key: PRNGKeyArray, shape: tuple[int, int], variance: float, dtype: DTypeLike) -> Array:
    return jax.random.normal(key, shape, dtype) * jnp.asarray(variance, dtype) ** 0.5
