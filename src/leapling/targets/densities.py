"""Log-densities by name. Each is the sum over all entries, with its normalising constant."""

import math
from typing import TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

Number: TypeAlias = float | int
Real: TypeAlias = Float[Array, "..."] | Number
LogDensity: TypeAlias = Float[Array, ""]


def normal(x: Real, mean: Real, sd: Real) -> LogDensity:
    return jnp.sum(-(((x - mean) / sd) ** 2) / 2 - jnp.log(sd) - math.log(2 * math.pi) / 2)


def log_normal(x: Real, mean: Real, sd: Real) -> LogDensity:
    """log x ~ N(mean, sd^2)."""
    return normal(jnp.log(x), mean, sd) - jnp.sum(jnp.log(x))


def cauchy(x: Real, centre: Real, scale: Real) -> LogDensity:
    return jnp.sum(-jnp.log1p(((x - centre) / scale) ** 2) - jnp.log(scale) - math.log(math.pi))


def gamma(x: Real, shape: Number, rate: Number) -> LogDensity:
    return jnp.sum((shape - 1) * jnp.log(x) - rate * x + shape * math.log(rate) - math.lgamma(shape))


def beta(x: Real, a: Number, b: Number) -> LogDensity:
    log_norm = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return jnp.sum((a - 1) * jnp.log(x) + (b - 1) * jnp.log1p(-x) - log_norm)
