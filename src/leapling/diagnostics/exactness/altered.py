"""An energy cut, scaled or stretched, for checks that need a harder one than the user's."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Altered(eqx.Module):
    """factor * U((x - centre) / scale + centre), with `wall_value` in its place where x_0 > wall.

    All of it is arrays, so that every alteration of one energy shares one compilation. With factor 1 and no
    wall, exact draws are those of the energy itself, as centre + scale * (x - centre).
    """

    function: Callable
    factor: Array = eqx.field(default=1.0, converter=jnp.asarray)
    scale: Array = eqx.field(default=1.0, converter=jnp.asarray)
    centre: Array = eqx.field(default=0.0, converter=jnp.asarray)
    wall: Array = eqx.field(default=np.inf, converter=jnp.asarray)
    wall_value: Array = eqx.field(default=np.inf, converter=jnp.asarray)

    def __call__(self, x: Float[Array, "dim"]) -> Array:
        centre = jnp.broadcast_to(self.centre.astype(x.dtype), x.shape)
        scale = self.scale.astype(x.dtype)
        u = self.function((x - centre) / scale + centre)
        if jnp.shape(u) != ():
            return u  # refused, with advice, by Energy
        dtype = jnp.result_type(u)
        return jnp.where(
            x[0] <= self.wall.astype(x.dtype), self.factor.astype(dtype) * u, self.wall_value.astype(dtype)
        )
