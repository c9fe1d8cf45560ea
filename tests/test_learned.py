"""A statistic that is learned: it finds what a kernel leaves as it is, and the kernel learns from it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.kernels import L2HMC, Info, MetropolisKernel, Phase, Proposal, State
from leapling.kernels.base import evaluate
from leapling.kernels.mlp import MLP
from leapling.store import load_checkpoint, save_checkpoint
from leapling.targets import DiagonalGaussian
from leapling.training import HSIC, Decorrelation, Jump, Lag, Learned, Recipe, train
from leapling.training.learned import autocorrelation
from leapling.training.loop import begin
from leapling.training.train import default_start

NORMAL = DiagonalGaussian(np.ones(2))


class Moved(MetropolisKernel):
    """Goes where `move` says; on a round normal all of it is accepted, if `move` keeps it."""

    move: Any = eqx.field(static=True)

    def propose(self, energy, phase, *, key):
        moved = evaluate(energy, self.move(phase.state.position, key))
        ratio = moved.energy - phase.state.energy
        return Proposal(Phase(moved, phase.momentum, phase.direction), ratio, jnp.asarray(1, jnp.int32))


def flip(x, key):
    return -x


def quarter_turn(x, key):
    return jnp.stack([x[1], -x[0]])


def anew(x, key):
    return jax.random.normal(key, x.shape)


def half_anew(x, key):
    """The first coordinate stays."""
    return x.at[1].set(jax.random.normal(key, x.shape[1:]))


def found(move) -> float:
    """How well the statistic that training found is kept, on fresh draws."""
    recipe = Recipe(400, 200, Learned(widths=(32,), learning_rate=1e-2))
    network = train(Moved(move), NORMAL, recipe, dim=2, progress=False).state.opponent.network
    start = evaluate(NORMAL, jax.random.normal(jax.random.key(7), (2, 5000)))
    _, info = Moved(move).step(NORMAL, start, key=jax.random.key(8))
    return float(autocorrelation(network, start, info))


@pytest.mark.parametrize("move", [flip, quarter_turn, half_anew])
def test_it_finds_what_is_kept(move):
    """An even function, the radius, the first coordinate: the autocorrelation of each is 1."""
    assert found(move) > 0.9


def test_it_finds_nothing_where_nothing_is_kept():
    assert abs(found(anew)) < 0.1


def transition(x, proposal, rate: float) -> tuple[State, Info]:
    full = jnp.full(x.shape[1], rate, x.dtype)
    none = jnp.zeros_like(full)
    return State(x, none, x), Info(
        full, full > 0, State(proposal, none, x), none, none, none > 0, none.astype(np.int32)
    )


def linear() -> MLP:
    network = MLP((2, 1), key=jax.random.key(0), dtype=np.float64)
    return eqx.tree_at(lambda n: n.layers[0].weight, network, jnp.asarray([[1.0, 0.0]]))


@pytest.mark.parametrize(
    ("move", "rate", "expected"), [(flip, 1.0, -1), (flip, 0.5, 0), (quarter_turn, 1.0, 0), (anew, 0.6, 0.4)]
)
def test_autocorrelation_of_a_known_statistic(move, rate, expected):
    x = jax.random.normal(jax.random.key(0), (2, 20_000))
    rho = autocorrelation(linear(), *transition(x, move(x, jax.random.key(1)), rate))
    assert rho == pytest.approx(expected, abs=0.03)


def test_the_two_of_them_pull_apart():
    """In the kernel the gradient is that of rho^2, in the network that of -rho: by hand from rho alone."""
    network = Learned().opponent(2, key=jax.random.key(0), dtype=np.float64).network
    x = jax.random.normal(jax.random.key(0), (2, 50))

    def rho(stride, network):
        return autocorrelation(network, *transition(x, stride * anew(x, jax.random.key(1)), 0.8))

    def loss(stride, network):
        return Learned().against(network)(*transition(x, stride * anew(x, jax.random.key(1)), 0.8))

    stride = jnp.asarray(0.7)
    value, (slope, gradient) = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(stride, network)
    plain, (plain_slope, plain_gradient) = jax.jit(jax.value_and_grad(rho, argnums=(0, 1)))(stride, network)
    np.testing.assert_allclose(value, plain**2, rtol=1e-12)
    np.testing.assert_allclose(slope, 2 * plain * plain_slope, rtol=1e-10)
    for ours, theirs in zip(jax.tree.leaves(gradient), jax.tree.leaves(plain_gradient), strict=True):
        np.testing.assert_allclose(ours, -theirs, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_proposals_that_left_the_target_have_no_gradient(bad):
    network = Learned().opponent(2, key=jax.random.key(0), dtype=np.float32).network
    x = jax.random.normal(jax.random.key(0), (2, 20), np.float32)

    def loss(proposal, network):
        start, info = transition(x, proposal, 0.8)
        rate = info.acceptance.at[0].set(0)
        return Learned().against(network)(start, eqx.tree_at(lambda i: i.acceptance, info, rate))

    proposal = (x[:, ::-1] + 1).at[:, 0].set(bad)
    gradients = jax.jit(jax.grad(loss, argnums=(0, 1)))(proposal, network)
    assert all(jnp.isfinite(g).all() for g in jax.tree.leaves(gradients))
    assert not gradients[0][:, 0].any()
    assert gradients[0].any()


def small() -> L2HMC:
    return L2HMC(2, 1, widths=(8,), step_size=0.2, key=jax.random.key(0), dtype=np.float32)


def test_it_trains():
    """Judged by what it was not trained for."""
    start = evaluate(NORMAL, jax.random.normal(jax.random.key(7), (2, 1000), np.float32))
    result = train(small(), NORMAL, Recipe(500, 64, Learned(), learning_rate=5e-3), progress=False)
    assert result.history["skipped"].sum() == 0
    for objective in (HSIC(), Decorrelation()):
        before, after = (
            objective(start, eqx.filter_jit(k.step)(NORMAL, start, key=jax.random.key(8))[1])
            for k in (small(), result.kernel)
        )
        assert after < before - 0.2


def test_a_resumed_training_goes_on_with_the_same_opponent(tmp_path):
    recipe = Recipe(260, 8, Learned(widths=(4,)), burn_in_weight=0.5)
    states = []
    whole = train(small(), NORMAL, recipe, on_block=states.append, progress=False).state
    save_checkpoint(tmp_path, states[0], {})
    fresh = begin(small(), NORMAL, recipe, seed=0, initial=default_start(small(), NORMAL, recipe))
    resumed = train(small(), NORMAL, recipe, resume=load_checkpoint(tmp_path, fresh, {}), progress=False).state
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(a, b)
    first, last = (jax.tree.leaves(state.opponent.network) for state in (fresh, resumed))
    assert all(not np.array_equal(a, b) for a, b in zip(first, last, strict=True) if a.size > 1)


def test_others_have_no_opponent():
    recipe = Recipe(5, 8, Jump())
    state = begin(small(), NORMAL, recipe, seed=0, initial=default_start(small(), NORMAL, recipe))
    assert state.opponent is None


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Learned(widths=()), "at least one layer"),
        (lambda: Learned(learning_rate=0.0), "learning_rate must be above 0, got 0"),
        (lambda: Lag(Learned()), "Learned scores single transitions"),
        (lambda: Learned()(*transition(jnp.ones((2, 4)), jnp.ones((2, 4)), 1.0)), "nothing without a network"),
    ],
)
def test_what_makes_no_sense_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
