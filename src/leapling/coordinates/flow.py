"""A trained normalizing flow as coordinates, for shapes that no affine map straightens: bends, funnels, modes."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from leapling.coordinates.base import Coordinates
from leapling.kernels.base import cast

KINDS = ("affine", "spline")
KNOTS, REACH = 6, 5.0  # of a spline: pieces, and how many standard deviations they cover
LARGEST_LOG_SCALE = 5.0  # of one layer: a point far from all the others must not blow the map up
CANDIDATES = 200  # random splits of the coordinates, of which each layer takes the most useful


class Flow(Coordinates):
    """x = outer(flow(z)): coupling layers (Dinh et al. 2017), by FlowJAX, in coordinates that are already white.

    A layer changes half of the coordinates by amounts computed from the other half: an "affine" one scales and shifts
    them, which is all that a funnel needs; a "spline" one (Durkan et al. 2019) also bends them, as several modes need.
    """

    layers: Any
    outer: Coordinates
    kind: str = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(self, outer: Coordinates, kind: str = "spline", *, num_layers: int = 8, width: int = 32, key: Array):
        if kind not in KINDS:
            raise ValueError(f"there is no flow of kind {kind!r}; choose from {', '.join(KINDS)}")
        if outer.dim < 2:
            raise ValueError("a coupling flow needs at least 2 coordinates, got 1; use affine coordinates")
        import flowjax.bijections as bijections  # half a second, for those alone who use a flow

        self.outer, self.kind, self.width = outer, kind, width
        transformer = Transformer(kind)

        for name, value in (("num_layers", num_layers), ("width", width)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

        def layer(key, order):
            coupling = bijections.Coupling(
                key=key,
                transformer=transformer.initial(),
                untransformed_dim=outer.dim // 2,
                dim=outer.dim,
                nn_width=width,
                nn_depth=2,
            )
            coupling = eqx.tree_at(lambda c: c.transformer_constructor, coupling, transformer)
            return bijections.Sandwich(inner=coupling, outer=bijections.Permute(order))

        orders = jnp.asarray(_orders(outer.dim, num_layers), jnp.int32)
        layers = bijections.Scan(eqx.filter_vmap(layer)(jax.random.split(key, num_layers), orders))
        # The same type of integers whatever the precision, so that what is stored in one is read in the other.
        self.layers = jax.tree.map(lambda a: jnp.asarray(a, jnp.int32) if _is_integer(a) else a, layers)

    @property
    def dim(self) -> int:
        return self.outer.dim

    @property
    def is_affine(self) -> bool:
        return False

    @property
    def num_layers(self) -> int:
        """Every array of the layers has them on its first axis."""
        return jax.tree.leaves(eqx.filter(self.layers, eqx.is_array))[0].shape[0]

    def forward_and_log_det(self, z):
        y, log_det = self._through("transform_and_log_det", z)
        x, more = self.outer.forward_and_log_det(y)
        return x, log_det + more

    def backward_and_log_det(self, x):
        y, log_det = self.outer.backward_and_log_det(x)
        z, more = self._through("inverse_and_log_det", y)
        return z, log_det + more

    def _through(self, direction: str, y: Array) -> tuple[Array, Array]:
        layers = cast(self.layers, y.dtype)

        import paramax

        def one(point):
            # FlowJAX mixes ranks and precisions on purpose; what comes out is in ours again.
            with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
                value, log_det = getattr(paramax.unwrap(layers), direction)(point)
            return value.astype(point.dtype), log_det.astype(point.dtype)

        for _ in y.shape[1:]:
            one = jax.vmap(one, in_axes=-1, out_axes=-1)
        return one(y)

    def log_density(self, x: Float[Array, "dim *chains"]) -> Float[Array, "*chains"]:
        """log of the density that z ~ N(0, I) gives x, up to the constant of the normal one."""
        z, log_det = self.backward_and_log_det(x)
        return log_det - 0.5 * jnp.sum(z**2, axis=0)


@dataclass(frozen=True)
class Transformer:
    """The map of one coordinate, from the numbers that a coupling layer computes for it.

    In FlowJAX this is a closure over arrays: of one precision, and another one to the compiler in each flow. This one
    follows the precision of the numbers, and all of a kind are equal.
    """

    kind: str

    def initial(self) -> Any:
        import flowjax.bijections as bijections

        if self.kind == "affine":
            return _exponential_scale()
        spline = bijections.RationalQuadraticSpline(knots=KNOTS, interval=REACH)
        return bijections.Chain([spline, _exponential_scale()])

    def __call__(self, numbers: Float[Array, " numbers"]) -> Any:
        """`initial` at zero."""
        import paramax

        arrays, static = eqx.partition(self.initial(), eqx.is_inexact_array)
        leaves, structure = jax.tree.flatten(arrays)
        ends = np.cumsum([leaf.size for leaf in leaves])
        moved = [
            leaf.astype(numbers.dtype) + part.reshape(leaf.shape)
            for leaf, part in zip(leaves, jnp.split(numbers, ends[:-1]), strict=True)
        ]
        moved = eqx.combine(jax.tree.unflatten(structure, moved), static)
        return cast(paramax.unwrap(moved), numbers.dtype)


def _is_integer(leaf: Any) -> bool:
    return eqx.is_array(leaf) and not eqx.is_inexact_array(leaf)


def _exponential_scale() -> Any:
    """y = y exp(s) + b: with s linear in the other coordinates as it is while it is small, it is exactly a funnel."""
    import flowjax.bijections as bijections
    import paramax

    affine = bijections.Affine()
    scale = paramax.Parameterize(lambda s: jnp.exp(LARGEST_LOG_SCALE * jnp.tanh(s / LARGEST_LOG_SCALE)), jnp.zeros(()))
    return eqx.tree_at(lambda a: a.scale, affine, scale, is_leaf=lambda a: isinstance(a, paramax.AbstractUnwrappable))


def _orders(dim: int, num_layers: int) -> np.ndarray:
    """Orders of the coordinates, the conditioning half first, such that early every coordinate conditions every other.

    Random halves leave pairs out: a coordinate that never meets the neck of a funnel cannot follow it.
    """
    random = np.random.default_rng(dim)
    missing = 1.0 - np.eye(dim)
    half, chosen = dim // 2, []
    for _ in range(num_layers):
        orders = [random.permutation(dim) for _ in range(CANDIDATES)]
        best = max(orders, key=lambda order: missing[np.ix_(order[:half], order[half:])].sum())
        missing[np.ix_(best[:half], best[half:])] -= 1
        chosen.append(best)
    return np.stack(chosen)
