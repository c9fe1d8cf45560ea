"""A flow trained on chains: what it learns, what it costs, and that the chains it moves keep the target's law."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flows import bent, unit

from leapling.coordinates import whitened_by
from leapling.coordinates.flow import Flow
from leapling.energy import tempered
from leapling.kernels import HMC
from leapling.kernels.base import evaluate
from leapling.targets import Banana, DiagonalGaussian
from leapling.training import flow as training
from leapling.training.flow import BATCH, begin_flow, learning_rate, train_flow

GAUSSIAN = DiagonalGaussian(np.array([1.0, 4.0]))


@pytest.fixture(scope="module")
def learned():
    """A flow of few layers on chains that start as exact draws of a banana."""
    target = Banana(5.0, 0.05)
    draws = target.sample(jax.random.key(0), 8 * BATCH, np.float32)
    flow = Flow(whitened_by(np.asarray(draws).T, "diagonal"), "affine", num_layers=4, width=32, key=jax.random.key(1))
    state = begin_flow(flow, target, draws, seed=0)
    return target, train_flow(target, HMC(0.3, 2), state, 2000, reverse_weight=0.0)


def test_it_learns_the_density_of_a_banana(learned):
    """KL(p | q) = E_p[log p - log q] on fresh exact draws, and what an independence sampler with q accepts."""
    target, state = learned
    fresh = target.sample(jax.random.key(7), 20_000, np.float32)
    log_p = -jax.vmap(target, -1)(fresh) - jnp.log(jnp.float32(target.scale))  # both without log 2 pi
    log_q = state.flow.log_density(fresh)
    assert 0 <= float(jnp.mean(log_p - log_q)) + 0.01 < 0.06
    # From stationarity: the acceptance of moving from a draw of p to one of q.
    z = jax.random.normal(jax.random.key(8), fresh.shape, np.float32)
    x, log_det = state.flow.forward_and_log_det(z)
    weight_there = -jax.vmap(target, -1)(x) + jnp.sum(z**2, axis=0) / 2 + log_det
    weight_here = -jax.vmap(target, -1)(fresh) - state.flow.log_density(fresh)
    assert float(jnp.mean(jnp.minimum(1, jnp.exp(weight_there - weight_here)))) > 0.9


def test_its_record(learned):
    """The loss falls, moves by the flow are accepted more and more, and every evaluation is counted."""
    _, state = learned
    history = np.asarray(state.history)
    assert int(state.iteration) == 2000
    assert np.isfinite(history[:2000]).all()
    assert np.isnan(history[2000:]).all()
    assert history[-1].shape == (3,)
    assert history[1900:2000, 0].mean() < history[:100, 0].mean() - 0.1
    assert history[1900:2000, 2].mean() > max(0.85, history[:100, 2].mean())
    # The chains once; then each iteration two leapfrog steps and one fresh point for each of a slice.
    assert float(state.gradients) == 8 * BATCH + 2000 * BATCH * (2 + 1)


def test_gradients_are_those_spent():
    """Counted as they happen, with the reverse divergence, whose gradient goes through the energy."""
    count = 0

    def counted(x):
        def tick(_):
            nonlocal count
            count += 1

        jax.debug.callback(tick, x[0])
        return GAUSSIAN(x)

    state = begin_flow(bent("affine", unit(2), 1), counted, GAUSSIAN.sample(jax.random.key(0), BATCH), seed=0)
    state = train_flow(counted, HMC(0.3, 2), state, 3, reverse_weight=0.5)
    jax.effects_barrier()
    assert count == int(state.gradients) == BATCH * (1 + 3 * (2 + 1))


class Rests(HMC):
    """Moves nothing: what moves the chains is the flow."""

    def step(self, energy, state, *, key):
        _, info = super().step(energy, state, key=key)
        return state, info


def moments(x) -> np.ndarray:
    """z-scores of x_i, x_i^2 and x_1 x_2 on independent chains, under GAUSSIAN at `temperature`."""
    y = np.asarray(x) / np.sqrt([[1.0], [4.0]])
    statistics = np.concatenate([y, y**2 - 1, y[:1] * y[1:]])
    return statistics.mean(axis=1) / (statistics.std(axis=1) / np.sqrt(y.shape[1]))


def moved_by_a_fixed_flow(energy, scale=1.0, num=40):
    """Chains from exact draws, moved by a flow that is far from the target and is not trained."""
    draws = scale * GAUSSIAN.sample(jax.random.key(0), 16 * BATCH)
    state = begin_flow(bent("affine", unit(2), 2), energy, draws, seed=3)
    return draws, train_flow(energy, cast(Any, Rests)(0.3, 1), state, num, reverse_weight=0.0)


@pytest.fixture
def without_learning(monkeypatch):
    """A rate of nothing; another function, for compiled ones keep the rate they were traced with."""
    monkeypatch.setattr(training, "learning_rate", lambda state: jnp.zeros(()))
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.usefixtures("without_learning")
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_chains_keep_the_law_of_the_target(temperature):
    """Every chain is met by a proposal 10 times, and a mean 5 standard errors off is a failure."""
    energy = tempered(GAUSSIAN, temperature)
    draws, state = moved_by_a_fixed_flow(energy, temperature**0.5, 160)
    accepted = np.asarray(state.history)[:160, 2]
    assert 0.05 < accepted.mean() < 0.9
    moved = np.mean(np.any(np.asarray(state.chains.position != draws), axis=0))
    assert moved > 0.5
    assert np.max(np.abs(moments(state.chains.position / temperature**0.5))) < 5
    fresh = evaluate(GAUSSIAN, state.chains.position)
    np.testing.assert_allclose(state.chains.energy, fresh.energy, rtol=1e-9)
    np.testing.assert_allclose(state.chains.gradient, fresh.gradient, rtol=1e-9)


@pytest.mark.usefixtures("without_learning")
@pytest.mark.parametrize("mistake", ["volume", "always"])
def test_a_wrong_ratio_is_seen(mistake, monkeypatch):
    """By the same z-scores: the proposal's log-determinant left out, and a density that is the same everywhere."""
    if mistake == "volume":
        forward = Flow.forward_and_log_det
        monkeypatch.setattr(
            Flow, "forward_and_log_det", lambda self, z: (forward(self, z)[0], jnp.zeros(z.shape[1:], z.dtype))
        )
    else:
        monkeypatch.setattr(Flow, "log_density", lambda self, x: jnp.zeros(x.shape[1:], x.dtype))
    _, state = moved_by_a_fixed_flow(GAUSSIAN, num=160)
    assert np.max(np.abs(moments(state.chains.position))) > 8


def test_chains_that_teach_the_flow_keep_the_law():
    """With learning, which moves the flow by what the very chains are: no bias that 4,096 chains would show."""
    draws = GAUSSIAN.sample(jax.random.key(0), 16 * BATCH)
    state = begin_flow(bent("affine", unit(2), 2), GAUSSIAN, draws, seed=3)
    state = train_flow(GAUSSIAN, HMC(0.5, 2), state, 480, reverse_weight=0.1)
    assert np.max(np.abs(moments(state.chains.position))) < 5
    assert np.asarray(state.history)[400:480, 2].mean() > 0.5


def test_the_coordinates_around_the_flow_stay():
    flow = bent("affine", whitened_by(np.random.default_rng(0).normal(size=(99, 2)), "dense"), 1)
    state = begin_flow(flow, GAUSSIAN, GAUSSIAN.sample(jax.random.key(0), BATCH), seed=0)
    after = train_flow(GAUSSIAN, HMC(0.5, 1), state, 5, reverse_weight=0.0).flow
    for ours, theirs in zip(*map(jax.tree.leaves, (after.outer, flow.outer)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    weights = lambda f: f.layers.bijection.inner.conditioner.layers[0].weight  # noqa: E731
    assert np.any(weights(after) != weights(flow))


def test_a_wild_energy_does_not_spoil_the_flow():
    """Points that the flow draws where the energy is not finite are refused, and no weight becomes NaN."""

    def cut(x):
        return jnp.where(x[0] > 0, GAUSSIAN(x), jnp.nan)

    draws = GAUSSIAN.sample(jax.random.key(0), BATCH)
    draws = draws.at[0].set(jnp.abs(draws[0]))
    state = begin_flow(bent("affine", unit(2), 1), cut, draws, seed=0)
    state = train_flow(cut, HMC(0.3, 2), state, 30, reverse_weight=0.5)
    assert (state.chains.position[0] > 0).all()
    assert np.isfinite(np.asarray(state.history)[:30]).all()
    for leaf in jax.tree.leaves(state.flow):
        assert not isinstance(leaf, jax.Array) or np.isfinite(leaf).all()


def test_the_rate_falls_over_a_leg():
    state = begin_flow(bent("affine", unit(2), 1), GAUSSIAN, GAUSSIAN.sample(jax.random.key(0), BATCH), seed=0)

    def at(i):
        leg, iteration = jnp.asarray([10, 30], jnp.int32), jnp.asarray(i, jnp.int32)
        return float(learning_rate(eqx.tree_at(lambda s: (s.leg, s.iteration), state, (leg, iteration))))

    assert at(10) == pytest.approx(training.LEARNING_RATE)
    assert at(30) == pytest.approx(training.FINAL_LEARNING_RATE)
    assert at(10) > at(15) > at(20) > at(29)


def test_the_number_of_chains_must_fill_slices():
    with pytest.raises(ValueError, match="a multiple of 256, got 100"):
        begin_flow(bent("affine", unit(2), 1), GAUSSIAN, jnp.zeros((2, 100)), seed=0)
