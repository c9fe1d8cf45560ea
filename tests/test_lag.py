"""Objectives of states several transitions apart: what lag two sees, and a gradient that neglects nothing."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.kernels import HMC, L2HMC, Info, Kernel, MetropolisKernel, Phase, Proposal, State
from leapling.kernels.base import evaluate
from leapling.targets import DiagonalGaussian
from leapling.training import HSIC, Decorrelation, EnergyJump, Jump, Lag, Recipe, train
from leapling.training.loop import observe
from leapling.training.transitions import Lagged, moves, roll, squared_change

NORMAL = DiagonalGaussian(np.ones(2))


class QuarterTurn(MetropolisKernel):
    """x1 -> x2 -> -x1: exact on a round normal, where every turn is accepted, and hopeless."""

    def propose(self, energy, phase, *, key):
        x = phase.state.position
        moved = evaluate(energy, jnp.stack([x[1], -x[0]]))
        return Proposal(Phase(moved, phase.momentum, phase.direction), 0 * moved.energy, jnp.asarray(1, jnp.int32))


class Anew(MetropolisKernel):
    """Independent draws."""

    def propose(self, energy, phase, *, key):
        moved = evaluate(energy, jax.random.normal(key, phase.momentum.shape))
        ratio = moved.energy - phase.state.energy
        return Proposal(Phase(moved, phase.momentum, phase.direction), ratio, jnp.asarray(1, jnp.int32))


def score(kernel: Kernel, objective: Any, num: int = 20_000) -> float:
    start = evaluate(NORMAL, jax.random.normal(jax.random.key(0), (2, num)))
    _, info = jax.jit(lambda key: observe(objective, kernel, NORMAL, start, key=key))(jax.random.key(1))
    assert info.acceptance.min() > 1 - 1e-12
    return float(objective(start, info))


def test_a_quarter_turn_is_found_out_by_the_matrix_and_by_lag_two():
    """The diagonal at lag one alone takes it for nearly independent draws: of 5 statistics only U stays."""
    turn = QuarterTurn()
    assert score(turn, Decorrelation()) == pytest.approx(0.2, abs=0.03)
    assert score(turn, Lag(Decorrelation(), (2,))) == pytest.approx(1, abs=0.03)  # it has become a flip
    assert score(turn, Lag(Decorrelation(), (1, 2))) == pytest.approx(0.6, abs=0.03)
    assert score(turn, Decorrelation("matrix")) == pytest.approx(1.4, abs=0.05)
    assert score(turn, Lag(HSIC(), (1,)), 1000) == pytest.approx(1, abs=0.03)
    for objective, expected in ((Decorrelation("matrix"), 0), (Lag(), 0), (Lag(EnergyJump(), (1, 3)), -2)):
        assert score(Anew(), objective) == pytest.approx(expected, abs=0.06)


def test_lag_one_is_a_single_transition():
    kernel = L2HMC(2, 2, step_size=0.9, key=jax.random.key(0))
    start = evaluate(NORMAL, jax.random.normal(jax.random.key(0), (2, 50)))
    key = jax.random.key(1)
    _, rolled = roll(kernel, NORMAL, start, 1, key=key)
    _, info = kernel.step(NORMAL, start, key=jax.random.split(key, 1)[0])
    np.testing.assert_allclose(Lag(Decorrelation(), (1,))(start, rolled), Decorrelation()(start, info), rtol=1e-12)


def test_what_is_rolled_is_what_the_kernel_does():
    kernel = HMC(1.4, 2)
    start = evaluate(NORMAL, jax.random.normal(jax.random.key(0), (2, 300)))
    key = jax.random.key(1)
    end, rolled = roll(kernel, NORMAL, start, 3, key=key)
    state, infos = start, []
    for key_of_one in jax.random.split(key, 3):
        state, info = kernel.step(NORMAL, state, key=key_of_one)
        infos.append(info)
    np.testing.assert_array_equal(end.position, state.position)
    np.testing.assert_array_equal(rolled.num_gradients, np.full(300, 6))
    np.testing.assert_array_equal(rolled.lags[1].num_gradients, np.full(300, 4))
    np.testing.assert_allclose(rolled.acceptance, np.mean([info.acceptance for info in infos], axis=0))
    np.testing.assert_array_equal(rolled.is_accepted, np.any([info.is_accepted for info in infos], axis=0))
    assert 0 < np.mean(~infos[0].is_accepted) < 1
    for lag in rolled.lags:
        np.testing.assert_array_equal(lag.weight, np.ones(300))
        shares = [share for share, _ in moves(start, lag)]
        np.testing.assert_allclose(sum(shares), np.ones(300))


class Scripted(State):
    """A state that knows the uniform numbers of its next decisions."""

    uniforms: Any


class Toy(Kernel):
    """x -> theta x + 1, accepted with probability 1 / (1 + exp(x^2 - theta)); not exact, which no objective minds."""

    theta: Any

    def init(self, energy, position, *, key=None):
        raise NotImplementedError

    def acceptance(self, x):
        return jax.nn.sigmoid(self.theta - jnp.sum(x**2, axis=0))

    def step(self, energy, state: Scripted, *, key):  # pyright: ignore[reportIncompatibleMethodOverride]
        x = state.position
        rate = self.acceptance(x)
        is_accepted = state.uniforms[0] < rate
        rest = jnp.roll(state.uniforms, -1, axis=0)
        proposal = Scripted(self.theta * x + 1, state.energy, state.gradient, rest)
        end = Scripted(jnp.where(is_accepted[None], proposal.position, x), state.energy, state.gradient, rest)
        zeros = jnp.zeros_like(rate)
        return end, Info(rate, is_accepted, proposal, zeros, zeros, zeros > 0, zeros.astype(jnp.int32) + 1)


def expectation(kernel: Toy, x, statistic, lag: int):
    """E of a statistic `lag` transitions later, by the tree of all decisions."""
    if lag == 0:
        return statistic(x)
    rate = kernel.acceptance(x)
    ahead = expectation(kernel, kernel.theta * x + 1, statistic, lag - 1)
    return rate * ahead + (1 - rate) * expectation(kernel, x, statistic, lag - 1)


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_the_gradient_of_a_lag_neglects_nothing(lag):
    """Every outcome of the drawn decisions takes part, in its share of a grid of uniform numbers."""
    side = 400
    grid = (np.arange(side) + 0.5) / side
    uniforms = jnp.asarray(np.stack([a.ravel() for a in np.meshgrid(grid, grid)] + [np.full(side**2, 0.5)]))
    num = side**2
    x = jnp.full((1, num), 0.4)
    start = Scripted(x, jnp.zeros(num), x, uniforms)

    def rolled(theta, weigh=lambda info: info):
        _, info = roll(Toy(theta), NORMAL, start, lag, key=jax.random.key(0))
        return squared_change(lambda state: state.position[0] ** 2, start, weigh(info.lags[-1]))

    def exact(theta):
        after = lambda x: (x[0] ** 2 - 0.4**2) ** 2  # noqa: E731
        return expectation(Toy(theta), x[:, :1], after, lag)[0]

    theta = jnp.asarray(0.7)
    value, gradient = jax.jit(jax.value_and_grad(rolled))(theta)
    expected, slope = jax.jit(jax.value_and_grad(exact))(theta)
    np.testing.assert_allclose(value, expected, rtol=5e-3)
    np.testing.assert_allclose(gradient, slope, rtol=5e-3)

    def without_decisions(info: Lagged) -> Lagged:
        return eqx.tree_at(lambda i: i.weight, info, jax.lax.stop_gradient(info.weight))

    neglectful = jax.jit(jax.grad(lambda theta: rolled(theta, without_decisions)))(theta)
    assert (abs(neglectful / slope - 1) > 0.05) == (lag > 1)


def test_a_decision_that_was_certain_has_a_finite_gradient():
    start = evaluate(NORMAL, jax.random.normal(jax.random.key(0), (2, 20)))
    kernel = L2HMC(2, 1, step_size=1e-4, key=jax.random.key(0))  # accepts whatever it proposes

    def loss(kernel):
        return Lag()(start, roll(kernel, NORMAL, start, 2, key=jax.random.key(1))[1])

    gradient = eqx.filter_jit(eqx.filter_grad(loss))(kernel)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradient))


def test_every_transition_is_charged_with_the_burn_in_draws():
    kernel = L2HMC(2, 2, widths=(4,), key=jax.random.key(0), dtype=np.float32)
    result = train(kernel, NORMAL, Recipe(5, 8, Lag(), burn_in_weight=0.5), progress=False)
    assert result.num_gradients == 8 * (5 * (2 * 2 * 2 + 1) + 1)
    assert np.isfinite(result.history["loss"]).all()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Lag(lags=()), "lags must be one or more"),
        (lambda: Lag(lags=(0, 1)), r"at least 1, got \(0, 1\)"),
        (lambda: Lag(Jump()), "Jump scores single transitions"),
        (lambda: Lag(Lag()), "Lag scores single transitions"),
    ],
)
def test_what_makes_no_sense_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
