"""Flows as training leaves them, for tests: far from their first weights, though no training was run."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from leapling.coordinates import Affine
from leapling.coordinates.flow import Flow


def bent(kind: str, outer: Any, num_layers: int = 3, *, size: float = 0.15, seed: int = 2) -> Flow:
    flow = Flow(outer, kind, num_layers=num_layers, width=6, key=jax.random.key(1))
    random = np.random.default_rng(seed)
    perturb = lambda a: a + size * random.normal(size=a.shape) if eqx.is_inexact_array(a) else a  # noqa: E731
    return eqx.tree_at(lambda f: f.layers, flow, jax.tree.map(perturb, flow.layers))


def unit(dim: int) -> Affine:
    return Affine(np.zeros(dim), np.ones(dim))
