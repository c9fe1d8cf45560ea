"""A plain network of dense layers, for kernels and critics that need no more."""

from collections.abc import Sequence

import equinox as eqx
import jax
from jaxtyping import Array, DTypeLike, Float, PRNGKeyArray

from leapling.kernels.networks import Dense


class MLP(eqx.Module):
    """Dense layers with leaky rectifiers in between; `slope` is what is left of a negative input, 0 for none."""

    layers: tuple[Dense, ...]
    slope: float = eqx.field(static=True)

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        last_variance: float = 1.0,
        slope: float = 0.0,
        key: PRNGKeyArray,
        dtype: DTypeLike,
    ):
        """`sizes` from input to output; the output starts `last_variance` times as large as its input."""
        keys = jax.random.split(key, len(sizes) - 1)
        factors = (*(2.0 for _ in sizes[2:]), last_variance)
        self.layers = tuple(
            Dense(a, b, factor / a, key=k, dtype=dtype)
            for a, b, factor, k in zip(sizes[:-1], sizes[1:], factors, keys, strict=True)
        )
        self.slope = slope

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the hidden layers."""
        return tuple(layer.bias.shape[0] for layer in self.layers[:-1])

    def __call__(self, x: Float[Array, "in *chains"]) -> Float[Array, "out *chains"]:
        for layer in self.layers[:-1]:
            x = jax.nn.leaky_relu(layer(x), self.slope)
        return self.layers[-1](x)
