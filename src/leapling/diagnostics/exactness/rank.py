"""Is the target invariant? The exact rank test of Gandy and Scott (2020, arXiv:2001.06465).

An exact draw is put at a random place of a chain that is run both ways from it. Where the target is
invariant nothing tells its place, so the rank of any of its statistics among those of all states is uniform:
no long run, no reference values, no autocorrelation to allow for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array

from leapling.diagnostics.exactness.alone import alone
from leapling.diagnostics.exactness.altered import Altered
from leapling.diagnostics.exactness.scale import find_scale, is_useful
from leapling.diagnostics.exactness.sequential import GROWTH, Outcome, sequential_test
from leapling.diagnostics.exactness.subject import Sampler, Subject, precision
from leapling.energy import Energy
from leapling.kernels import Kernel, cast

NUM_STATES = 8
MAX_DIRECTIONS = 6


@dataclass(frozen=True)
class RankTest:
    """What a rank test found: on draws shrunk or stretched by `scale`, 1 being the target itself."""

    outcome: Outcome
    num_batches: int
    acceptance: float
    scale: float
    statistics: tuple[str, ...]


class Statistics(eqx.Module):
    """y_i, y_i^2, y_i y_j and U; y are standardised coordinates, in many dimensions a few and projections.

    Of a state that keeps its momentum also v_i, v_i^2, y_i v_i, and y_i and v_i times the direction d = +-1.
    """

    centre: Array
    weights: Array

    def __call__(self, state: Any) -> Array:
        y = jnp.tensordot(self.weights, state.position - self.centre[:, None], 1)
        first, second = np.triu_indices(len(y))
        values = [y, y[first] * y[second], state.energy[None]]
        if hasattr(state, "momentum"):
            v = jnp.tensordot(self.weights, state.momentum, 1)
            d = jnp.where(state.direction, 1, -1).astype(v.dtype)[None]
            values += [v, v**2, y * v, d * y, d * v]
        return jnp.concatenate(values)

    def names(self, num: int) -> tuple[str, ...]:
        """Of the first `num`: a state without momentum has fewer."""
        k, dim = self.weights.shape
        y = [f"x{i}" for i in range(k)] if k == dim else [f"y{i}" for i in range(k)]
        products = (f"{y[i]}*{y[j]}" for i, j in zip(*np.triu_indices(k), strict=True))
        kept = (
            form.format(i=i, y=y[i]) for form in ("v{i}", "v{i}^2", "{y}*v{i}", "d*{y}", "d*v{i}") for i in range(k)
        )
        return (*y, *products, "U", *kept)[:num]


def make_statistics(subject: Subject, dtype: str) -> Statistics:
    dim = subject.dim
    centre = np.median(subject.probes, axis=1)
    spread = np.std(subject.probes, axis=1)
    spread = np.where(spread > 0, spread, 1)
    if dim <= MAX_DIRECTIONS:
        directions = np.eye(dim)
    else:
        random = subject.random("projections")
        half = MAX_DIRECTIONS // 2
        directions = random.standard_normal((MAX_DIRECTIONS, dim)) / np.sqrt(dim)
        directions[:half] = 0
        directions[np.arange(half), random.choice(dim, half, replace=False)] = 1
    return Statistics(jnp.asarray(centre, dtype), jnp.asarray(directions / spread, dtype))


@eqx.filter_jit
def _two_way_chain(
    kernel: Kernel, function: Callable, statistics: Statistics, draws: Array, place: Array, key: Array
) -> tuple[Array, Array]:
    """Statistics (state, statistic, chain), those of the exact draw first, and the mean acceptance."""
    energy = Energy(function)
    key_init, *keys = jax.random.split(key, NUM_STATES)
    start = kernel.init(energy, draws, key=key_init)
    backward = getattr(kernel, "reversed", None)

    def step(state, inputs):
        i, key = inputs
        # A Metropolis kernel that draws v and d anew is reversible in x: backward is forward again.
        state = _where(i == place, start, state)
        new, info = kernel.step(energy, state, key=key)
        acceptance = info.acceptance
        if backward is not None:
            old, old_info = backward().step(energy, state, key=key)
            new = _where(i < place, old, new)
            acceptance = jnp.where(i < place, old_info.acceptance, acceptance)
        return new, (statistics(new), jnp.mean(acceptance))

    _, (others, acceptance) = jax.lax.scan(
        step, start, (jnp.arange(NUM_STATES - 1, dtype=place.dtype), jnp.stack(keys))
    )
    return jnp.concatenate([statistics(start)[None], others]), jnp.mean(acceptance)


def _where(condition: Array, if_true, if_false):
    """Per chain, on the last axis of every leaf."""
    return jax.tree.map(
        lambda a, b: jnp.where(condition.reshape((1,) * (a.ndim - 1) + condition.shape), a, b),
        if_true,
        if_false,
    )


def ranks(values: np.ndarray, random: np.random.Generator, eps: float) -> np.ndarray:
    """Rank (statistic, chain) of state 0 among all states (state, statistic, chain).

    Rejections make ties, and rounding all but makes them. Noise above rounding and far below the spread of a
    chain breaks both at random, and leaves a uniform rank uniform.
    """
    values = values.astype(np.float64)
    noise = 256 * eps * np.abs(values).max(axis=0) + 1e-4 * np.ptp(values, axis=0)
    values = values - values[:1] + noise * random.uniform(size=values.shape)
    # A chain on which a statistic is constant, at zero even, has no noise yet.
    values = np.where(noise > 0, values, random.uniform(size=values.shape))
    return np.sum(values[1:] < values[:1], axis=0)


def uniformity(rank: np.ndarray) -> np.ndarray:
    """The p-value of a chi-square test that each row (statistic, chain) is uniform over the ranks."""
    counts = np.stack([np.sum(rank == i, axis=1) for i in range(NUM_STATES)])
    expected = rank.shape[1] / NUM_STATES
    return scipy.special.chdtrc(NUM_STATES - 1, np.sum((counts - expected) ** 2, axis=0) / expected)


def rank_test(
    subject: Subject, function: Callable, sampler: Sampler, num_chains: int
) -> tuple[RankTest, RankTest | None]:
    """On the target; and, where the acceptance there is too high or too low to tell anything, on the target
    shrunk or stretched about its centre until it is not (None where that was not needed, or not possible).

    The kernel stays what it was: it meets the same distribution with another ratio of step to size.
    """
    dtype = subject.usual
    eps = float(np.finfo(dtype).eps)
    with precision(dtype):
        kernel, function = alone(cast(subject.kernel, dtype)), cast(function, dtype)
        statistics = make_statistics(subject, dtype)

    def run(name: str, scale: float) -> tuple[np.ndarray, float]:
        random = subject.random(name)
        with precision(dtype):
            draws = subject.draws(name, num_chains, dtype, sampler)
            scaled = statistics.centre[:, None] + jnp.asarray(scale, dtype) * (draws - statistics.centre[:, None])
            altered = cast(Altered(function, scale=scale, centre=statistics.centre), dtype)
            place = jnp.asarray(random.integers(NUM_STATES, size=num_chains), jnp.int32)
            values, acceptance = _two_way_chain(kernel, altered, statistics, scaled, place, subject.key(name))
            return ranks(np.asarray(values), random, eps), float(acceptance)

    def test(scale: float) -> RankTest:
        acceptances = []

        def p_values(i: int) -> np.ndarray:
            num_batches = 1 if i == 0 else GROWTH
            batches = [run(f"scale {scale} round {i} batch {j}", scale) for j in range(num_batches)]
            acceptances.extend(acceptance for _, acceptance in batches)
            nonlocal num_statistics
            num_statistics = len(batches[0][0])
            return uniformity(np.concatenate([rank for rank, _ in batches], axis=1))

        num_statistics = 0
        outcome = sequential_test(p_values)
        return RankTest(outcome, len(acceptances), float(np.mean(acceptances)), scale, statistics.names(num_statistics))

    plain = test(1.0)
    if is_useful(plain.acceptance) or plain.outcome.is_rejected:
        return plain, None
    scale = find_scale(lambda scale: run(f"search {scale}", scale)[1], plain.acceptance)
    return plain, None if scale is None else test(scale)
