"""Maps for tests: flows as training leaves them, though no training was run, and a bend in closed form."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from leapling.coordinates import Affine, Coordinates
from leapling.coordinates.flow import Flow


def bent(kind: str, outer: Any, num_layers: int = 3, *, size: float = 0.15, seed: int = 4) -> Flow:
    flow = Flow(outer, kind, num_layers=num_layers, width=6, key=jax.random.key(1))
    random = np.random.default_rng(seed)
    perturb = lambda a: a + size * random.normal(size=a.shape) if eqx.is_inexact_array(a) else a  # noqa: E731
    return eqx.tree_at(lambda f: f.layers, flow, jax.tree.map(perturb, flow.layers))


def unit(dim: int) -> Affine:
    return Affine(np.zeros(dim), np.ones(dim))


class Bend(Coordinates):
    """x_0 = z_0, x_1 = z_1 exp(z_0 / 2) + z_0^2 / 4: as nonlinear as a flow, and compiled in no time."""

    @property
    def dim(self) -> int:
        return 2

    @property
    def is_affine(self) -> bool:
        return False

    def forward_and_log_det(self, z):
        return jnp.stack([z[0], z[1] * jnp.exp(z[0] / 2) + z[0] ** 2 / 4]), z[0] / 2

    def backward_and_log_det(self, x):
        return jnp.stack([x[0], (x[1] - x[0] ** 2 / 4) * jnp.exp(-x[0] / 2)]), -x[0] / 2
