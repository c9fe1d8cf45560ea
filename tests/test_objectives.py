"""Objectives of two states: what they score where the answer is known, what they survive, and that they train."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.kernels import L2HMC, Info, State
from leapling.kernels.base import evaluate
from leapling.targets import DiagonalGaussian
from leapling.training import HSIC, ChEES, Decorrelation, EnergyJump, Lag, Recipe, train
from leapling.training.hsic import dependence, squared_distances
from leapling.training.loop import observe

NORMAL = DiagonalGaussian(np.ones(2))


def state(x) -> State:
    return State(x, jnp.sum(x**2, axis=0) / 2, x)


def transition(x, proposal, rate=1.0) -> tuple[State, Info]:
    full = jnp.full(x.shape[1], rate, x.dtype)
    return state(x), Info(
        full, full > 0, state(proposal), 0 * full, 0 * full, full < 0, jnp.full(len(full), 2, jnp.int32)
    )


def anew(x):
    return jax.random.normal(jax.random.key(1), x.shape)


def rest(x):
    return x


def flip(x):
    return -x


def rotate(x):
    return jnp.stack([x[1], -x[0]])


@pytest.mark.parametrize(
    ("objective", "num", "move", "rate", "expected"),
    [
        (HSIC(), 1500, anew, 1.0, 0),
        (HSIC(), 1500, rest, 1.0, 1),
        (HSIC(), 1500, rest, 0.3, 1),
        # The next state is a function of this one, and of its distances: all that a kernel sees is kept.
        (HSIC(), 1500, flip, 1.0, 1),
        (HSIC(), 1500, rotate, 1.0, 1),
        # K is linear in the joint distribution, and a share 1 - A of both states rests.
        (HSIC(), 1500, anew, 0.5, 0.25),
        # U = r^2 / 2 has variance 1, and E[(U' - U)^2] = 2 between independent draws.
        (EnergyJump(), 20_000, anew, 1.0, -2),
        (EnergyJump(), 20_000, anew, 0.25, -0.5),
        (EnergyJump(), 20_000, rest, 1.0, 0),
        (EnergyJump(), 20_000, flip, 1.0, 0),
        # |x|^2 has variance 4: 1/4 of 8, for each of two gradients.
        (ChEES(), 20_000, anew, 1.0, -1),
        (ChEES(), 20_000, anew, 0.25, -0.25),
        (ChEES(), 20_000, rest, 1.0, 0),
        (ChEES(), 20_000, rotate, 1.0, 0),
    ],
)
def test_known_moves_of_a_normal(objective, num, move, rate, expected):
    x = jax.random.normal(jax.random.key(0), (2, num))
    assert objective(*transition(x, move(x), rate)) == pytest.approx(expected, abs=0.03 * max(1, -expected))


def test_the_energy_jump_is_the_decorrelation_of_the_energy():
    """2 rho_U - 2, and with every other statistic of `Decorrelation` at rest its square is 1/3 rho_U^2 + 2/3."""
    x = jax.random.normal(jax.random.key(0), (1, 4000))
    start, info = transition(x, x, 0.7)
    after = start.energy[::-1]
    info = eqx.tree_at(lambda i: i.proposal.energy, info, after)
    rho = 1 - 0.7 * jnp.mean((after - start.energy) ** 2) / (2 * jnp.var(start.energy))
    np.testing.assert_allclose(EnergyJump()(start, info), 2 * rho - 2, rtol=1e-12)
    np.testing.assert_allclose(Decorrelation(cap=1e6)(start, info), (rho**2 + 2) / 3, rtol=1e-12)


def test_hsic_is_the_expectation_over_the_accept_decisions():
    """The criterion of next states that are drawn, averaged over every outcome of five chains."""
    x = jax.random.normal(jax.random.key(0), (2, 5))
    start, info = transition(x, anew(x))
    rates = jnp.asarray([0.1, 0.4, 1.0, 0.7, 0.9])
    folded = HSIC()(start, Info(**{**vars(info), "acceptance": rates}))
    expected = 0.0
    score = jax.jit(lambda y: HSIC()(*transition(x, y)))
    for bits in range(32):
        accepted = (bits >> np.arange(5)) % 2 == 1
        probability = np.prod(np.where(accepted, rates, 1 - rates))
        expected += probability * score(jnp.where(accepted, info.proposal.position, x))
    np.testing.assert_allclose(folded, expected, rtol=1e-10)


def test_dependence_is_without_bias():
    """By the definition: the mean over all ordered choices of different chains of k_ij (l_ij + l_qr - 2 l_iq)."""
    x, y = (jax.random.normal(jax.random.key(i), (2, 6)) for i in (0, 1))
    k, l = (np.exp(-np.asarray(squared_distances(a))) for a in (x, y))  # noqa: E741
    choices = [
        (i, j, q, r) for i in range(6) for j in range(6) for q in range(6) for r in range(6) if len({i, j, q, r}) == 4
    ]
    by_hand = np.mean([k[i, j] * (l[i, j] + l[q, r] - 2 * l[i, q]) for i, j, q, r in choices])
    np.testing.assert_allclose(dependence(jnp.asarray(k), jnp.asarray(l)), by_hand, rtol=1e-10)


def test_hsic_does_not_mind_the_units():
    x = jax.random.normal(jax.random.key(0), (2, 200))
    units = jnp.asarray([[1e3], [1e-3]])
    start, info = transition(units * x, units * (anew(x) + 0.5 * x), 0.8)
    np.testing.assert_allclose(HSIC()(start, info), HSIC()(*transition(x, anew(x) + 0.5 * x, 0.8)), rtol=1e-8)


OBJECTIVES = [HSIC(), EnergyJump(), ChEES(), Decorrelation(), Decorrelation("matrix")]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30, 1e15])
def test_proposals_that_left_the_target_rest_and_have_no_gradient(objective, bad):
    x = jax.random.normal(jax.random.key(0), (2, 50), np.float32)
    rate = jnp.full(50, 0.9, np.float32).at[:3].set(0)
    start, info = transition(x, anew(x).astype(np.float32).at[:, :3].set(bad))

    @jax.jit
    @jax.value_and_grad
    def loss(moved):
        position, energy, rate = moved
        return objective(start, Info(**{**vars(info), "proposal": State(position, energy, x), "acceptance": rate}))

    there = info.proposal
    value, gradient = loss((there.position, there.energy, rate))
    resting, _ = loss((there.position.at[:, :3].set(x[:, :3]), there.energy.at[:3].set(start.energy[:3]), rate))
    np.testing.assert_allclose(value, resting, rtol=2e-3)
    assert all(jnp.isfinite(g).all() for g in gradient)
    assert not gradient[0][:, :3].any()
    assert not gradient[1][:3].any()
    assert any(g[..., 3:].any() for g in gradient[:2])


@pytest.mark.parametrize(
    "objective", [HSIC(), EnergyJump(), ChEES(), Lag(HSIC()), Lag(Decorrelation("log"), (2,))], ids=repr
)
def test_it_trains(objective):
    kernel = L2HMC(2, 1, widths=(8,), step_size=0.2, key=jax.random.key(0), dtype=np.float32)
    recipe = Recipe(200, 64, objective=objective, learning_rate=5e-3, clip=10.0)
    history = train(kernel, NORMAL, recipe, progress=False).history
    assert history["skipped"].sum() == 0
    first, last = history["loss"][:20], history["loss"][-50:]
    assert np.mean(last) < np.mean(first) - 5 * np.std(last) / 50**0.5
    assert np.mean(last) < 0.7 * np.mean(first) if np.mean(first) > 0 else np.mean(last) < 2 * np.mean(first)


def exploding(objective) -> tuple[Any, Any]:
    """The gradient in a kernel some of whose trajectories leave a steep target for ever, and the transition."""
    kernel = L2HMC(2, 3, widths=(8,), step_size=0.5, key=jax.random.key(0), dtype=np.float32)
    start = evaluate(
        steep, jnp.asarray([[0.1, 0.2, 0.5, 9.0, -0.3, 30.0], [0.3, 0.1, -0.2, 9.0, 0.4, 1.0]], np.float32)
    )

    def loss(kernel):
        _, info = observe(objective, kernel, steep, start, key=jax.random.key(1))
        return objective(start, info), info

    return eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))(kernel)


def steep(x):
    return jnp.sum(x**4)


@pytest.mark.parametrize("objective", [HSIC(), ChEES(), Lag()], ids=repr)
def test_trajectories_that_overflow_leave_the_gradient_finite(objective):
    gradient, info = exploding(objective)
    assert 0 < jnp.sum(jnp.isneginf(info.log_jacobian)) < 6
    leaves = jax.tree.leaves(gradient)
    assert all(jnp.isfinite(leaf).all() for leaf in leaves)
    assert any(leaf.any() for leaf in leaves)


def test_hsic_needs_pairs_of_pairs():
    x = jnp.zeros((2, 3))
    with pytest.raises(ValueError, match="needs at least 4 of them, got 3"):
        HSIC()(*transition(x, x))
