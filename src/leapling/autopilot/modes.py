"""Where the energy's valleys are, as far as they were met, and how chains share their time between them."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

NUM_DESCENTS = 256
DESCENT_STEPS = 400
BARRIER = 2.0  # how far U must rise on the way between two points for them to be in two valleys
ON_THE_WAY = 33
MAX_MODES = 32
LEAST = 3  # descents that end in a valley
GAP, SIGNIFICANT = 0.05, 4.5  # between groups' shares of a valley: how much matters, in how many standard errors
NEIGHBOURS = 5


@dataclass(frozen=True)
class Modes:
    """Labelled points; a new point belongs to the valley of the majority of its nearest ones."""

    points: Float[np.ndarray, "point dim"]
    labels: Int[np.ndarray, " point"]
    minima: Float[np.ndarray, "mode dim"]
    scale: Float[np.ndarray, " dim"]

    @property
    def num(self) -> int:
        return len(self.minima)

    def of(self, x: Float[np.ndarray, "... dim"]) -> Int[np.ndarray, "..."]:
        if self.num == 1:
            return np.zeros(x.shape[:-1], np.int32)
        flat = np.ascontiguousarray(x.reshape(-1, x.shape[-1])) / self.scale
        from scipy.spatial import KDTree

        _, nearest = KDTree(self.points / self.scale).query(flat, k=min(NEIGHBOURS, len(self.points)))
        votes = self.labels[nearest.reshape(len(flat), -1)]
        counts = np.stack([(votes == k).sum(axis=1) for k in range(self.num)], axis=1)
        return counts.argmax(axis=1).reshape(x.shape[:-1]).astype(np.int32)

    def shares(self, x: Float[np.ndarray, "chain draw dim"]) -> Float[np.ndarray, " mode"]:
        return np.bincount(self.of(x).ravel(), minlength=self.num) / (x.shape[0] * x.shape[1])


def find_modes(
    energy: Callable, points: Float[np.ndarray, "point dim"], given: Float[np.ndarray, "start dim"] | None = None
) -> tuple[Modes, int]:
    """The valleys that these points lie in: each rolls down U, and it is in the valley of a minimum where the straight
    line between them does not rise. A valley counts if a few points, or one of those `given`, roll into it. Also the
    gradients it took."""
    points = np.asarray(points, np.float32)
    given = points[:0] if given is None else np.asarray(given, np.float32)[:NUM_DESCENTS]
    spread = np.linspace(0, len(points) - 1, min(NUM_DESCENTS, len(points))).astype(int)
    chosen = np.concatenate([given, points[spread]])[:NUM_DESCENTS]
    is_given = np.arange(len(chosen)) < len(given)
    scale = np.maximum(points.std(axis=0), 1e-12)
    ends, values = (np.asarray(a) for a in _descend(energy, jnp.asarray(chosen.T), jnp.asarray(scale)))
    ends = ends.T
    usable = np.isfinite(values)
    chosen, ends, values, is_given = chosen[usable], ends[usable], values[usable], is_given[usable]
    labels, minima = np.full(len(ends), -1), []
    rises = np.full((len(ends), MAX_MODES), np.inf)
    for i in np.argsort(values, kind="stable"):
        near = rises[i].min() < BARRIER or len(minima) == MAX_MODES
        if not near:
            rises[:, len(minima)] = np.asarray(_rise(energy, jnp.asarray(ends), jnp.asarray(ends[i])))
            minima.append(int(i))
        labels[i] = int(np.argmin(rises[i]))
    # A descent that stopped on its way is no valley: a valley has several.
    counts = np.bincount(labels, minlength=len(minima))
    counts += LEAST * np.bincount(labels, weights=is_given, minlength=len(minima)).astype(int)
    kept = np.flatnonzero(counts >= min(LEAST, counts.max()))
    labels = np.argmin(rises[:, kept], axis=1)
    spent = len(chosen) * (DESCENT_STEPS + ON_THE_WAY * len(minima))
    return Modes(chosen, labels, ends[np.asarray(minima)[kept]], scale), spent


@eqx.filter_jit
def _descend(energy: Callable, x: Array, scale: Array) -> tuple[Array, Array]:
    """Each point by itself: a step down the scaled gradient, longer after success, shorter after failure."""
    evaluate = jax.vmap(jax.value_and_grad(energy), in_axes=-1, out_axes=-1)

    def step(_, carry):
        x, u, g, size = carry
        direction = g * scale[:, None] ** 2
        length = jnp.sqrt(jnp.sum((direction / scale[:, None]) ** 2, axis=0)) + 1e-30
        y = x - (size / jnp.maximum(length, 1.0))[None] * direction
        u_y, g_y = evaluate(y)
        is_lower = (u_y < u) & jnp.all(jnp.isfinite(g_y), axis=0)
        size = jnp.where(is_lower, jnp.minimum(1.5 * size, 1.0), 0.3 * size)
        return jnp.where(is_lower[None], y, x), jnp.where(is_lower, u_y, u), jnp.where(is_lower[None], g_y, g), size

    u, g = evaluate(x)
    x, u, _, _ = jax.lax.fori_loop(0, DESCENT_STEPS, step, (x, u, g, jnp.full_like(u, 0.1)))
    return x, u


@eqx.filter_jit
def _rise(energy: Callable, points: Array, minimum: Array) -> Array:
    """How far U rises above the higher end on the straight line from each point to a minimum."""
    t = jnp.linspace(0, 1, ON_THE_WAY, dtype=points.dtype)[:, None]

    def one(point):
        u = jax.vmap(energy)(point[None] * (1 - t) + minimum[None] * t)
        u = jnp.where(jnp.isfinite(u), u, jnp.inf)
        return jnp.max(u) - jnp.maximum(u[0], u[-1])

    return jax.vmap(one)(points)


def occupancy(modes: Modes, groups: dict[int, Float[np.ndarray, "chain draw dim"]]) -> dict[str, Any]:
    """Of groups of chains, each started in one valley: the shares of the valleys over the second half of the run, how
    far the groups differ, and crossings per 1,000 transitions. JSON-ready."""
    shares, errors, crossings = [], [], []
    for x in groups.values():
        labels = modes.of(x)
        half = labels[:, labels.shape[1] // 2 :]
        by_chain = np.stack([(half == k).mean(axis=1) for k in range(modes.num)], axis=1)
        shares.append(by_chain.mean(axis=0))
        errors.append(by_chain.std(axis=0, ddof=1) / len(by_chain) ** 0.5)
        crossings.append(np.mean(labels[:, 1:] != labels[:, :-1]))
    pairs = list(combinations(range(len(groups)), 2))
    gaps = [np.abs(shares[i] - shares[j]) for i, j in pairs]
    errors = [np.hypot(errors[i], errors[j]) for i, j in pairs]
    apart = [np.flatnonzero((gap > GAP) & (gap > SIGNIFICANT * error)) for gap, error in zip(gaps, errors, strict=True)]
    return {
        "num": modes.num,
        "minima": modes.minima.tolist(),
        "started_in": [int(start) for start in groups],
        "shares": np.mean(shares, axis=0).tolist(),
        "largest_gap": float(np.max(gaps)) if gaps else 0.0,
        "disputed": sorted({int(k) for some in apart for k in some}),
        "crossings_per_1000": float(1000 * np.mean(crossings)),
    }


def log_masses(samples: dict[int, tuple[np.ndarray, np.ndarray]]) -> dict[int, float]:
    """About log of the mass of each valley, from draws that stay in it: entropy minus mean energy, the entropy that of
    a Gaussian with their covariance."""
    found = {}
    for k, (x, energy) in samples.items():
        flat = x.reshape(-1, x.shape[-1])
        covariance = np.atleast_2d(np.cov(flat, rowvar=False))
        found[k] = float(0.5 * np.linalg.slogdet(covariance + 1e-12 * np.eye(len(covariance)))[1] - np.mean(energy))
    return found
