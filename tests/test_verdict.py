"""A verdict says what the figures say, and calls nothing good that misses a mode."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.autopilot.candidates import START_WIDTH, Fixed, Problem
from leapling.autopilot.clock import Ledger
from leapling.autopilot.measure import MAP_TOLERANCE, Score, draw, round_trip_error, score
from leapling.autopilot.modes import find_modes
from leapling.autopilot.occupation import watch_modes
from leapling.autopilot.verdict import judge, pays_after
from leapling.autopilot.warmup import mover
from leapling.chains import exact_starts
from leapling.coordinates import Affine
from leapling.diagnostics.exactness.report import ExactnessReport, Law
from leapling.kernels import HMC
from leapling.kernels.starts import without_force
from leapling.targets import Gaussian, GaussianMixture

SOUND = Score(0.5, 0.01, "x[0]", 0.6, 2.0, 1e-5, 0.8, 0.7, 0, 1.001, 1000, 1.0)
ONE_MODE = {"num": 1, "shares": [1.0], "largest_gap": 0.0, "crossings_per_1000": 0.0, "is_disconnected": False}
CHECKED = ExactnessReport("k", "e", (Law("invariance", "passed", 0.5, 1e-5, ""),))


@pytest.fixture(scope="module", autouse=True)
def single():
    with jax.enable_x64(False):
        yield


def rows(winner=0.25, hmc=0.05, nuts=0.1, prepared=10_000):
    base = {"per_gradient_error": 0.001, "min_ess": 0.5, "worst_statistic": "x[0]", "num_draws": 100_000}
    return [
        {**base, "method": "flow", "min_ess_per_gradient": winner, "preparation": prepared},
        {**base, "method": "HMC tuned", "min_ess_per_gradient": hmc, "preparation": 2_000},
        {**base, "method": "NUTS, dense (BlackJAX)", "min_ess_per_gradient": nuts, "preparation": 100},
    ]


def verdict(table, found=SOUND, modes=ONE_MODE, exactness=CHECKED, winner_is_hmc=False):
    return judge(table, found, winner_is_hmc=winner_is_hmc, tried=[], ledger=Ledger(), modes=modes, exactness=exactness)


def test_good_with_its_price():
    found = verdict(rows())
    assert found.status == "good"
    # Against NUTS, the dearer of the two to overtake: 9,900 gradients at 10 - 4 a draw.
    assert found.pays_after == 1650 == pays_after(rows()[0], rows()[1:])
    assert "2.5 times the best of the others (NUTS" in found.sentences[0]
    assert "1,650 effective draws" in found.sentences[1]
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("table", "is_hmc", "status"),
    [
        (rows(winner=0.05, hmc=0.05, nuts=0.01), True, "use HMC"),
        (rows(winner=0.052, hmc=0.05, nuts=0.01), False, "use HMC"),
        (rows(winner=0.2, hmc=0.05, nuts=0.3), False, "use NUTS"),
        (rows(winner=0.2, hmc=0.2, nuts=0.3), True, "use NUTS"),
    ],
)
def test_do_not_bother(table, is_hmc, status):
    found = verdict(table, winner_is_hmc=is_hmc)
    assert found.status == status
    assert "Do not bother" in found.sentences[1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"found": replace(SOUND, rhat=1.2)}, "R-hat is 1.2"),
        ({"found": replace(SOUND, rhat=float("nan"))}, "R-hat is nan"),
        ({"modes": {**ONE_MODE, "num": 2, "shares": [0.5, 0.5], "is_disconnected": True}}, "do not agree"),
        ({"exactness": ExactnessReport("k", "e", (Law("invariance", "failed", 0.0, 1e-5, ""),))}, "FAILED"),
        ({"table": [{**rows()[0], "min_ess": 0.001}, *rows()[1:]]}, "holds 100 effective draws"),
    ],
)
def test_poor_whatever_the_figures(change, said):
    found = verdict(**{"table": rows(), **change})
    assert found.status == "poor"
    assert any(said in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (replace(SOUND, acceptance=0.05), "acceptance is low"),
        (replace(SOUND, slowest_chain=0.01), "somewhere the sampler sticks"),
        (replace(SOUND, median_ess=9.0), "mixes far worse than the rest"),
    ],
)
def test_mild_warnings_are_said_and_decide_nothing(found, said):
    given = verdict(rows(), found)
    assert given.status == "good"
    assert any(said in warning for warning in given.warnings)


def problem_of(target, seed=0):
    points = exact_starts(target, 512, seed=seed)
    return Problem(lambda x: target(x), points.T, mover(points.T, 0.5), seed)


def independent(target, mean, scale):
    """The closed form in coordinates that fit one mode alone: an independence sampler that knows nothing of others."""
    return Fixed("one mode", without_force(target.dim, widths=START_WIDTH, key=jax.random.key(0)), Affine(mean, scale))


FOOLING = {
    "a small mode that is never proposed": (
        GaussianMixture([[0.0, 0.0], [8.0, 0.0]], [1.0, 0.02], weights=[0.92, 0.08]),
        lambda t: independent(t, [0.0, 0.0], [1.0, 1.0]),
    ),
    "a narrow mode inside a wide one's reach, for HMC": (
        GaussianMixture([[-6.0, 0.0], [6.0, 0.0]], [1.0, 1.0], weights=[0.9, 0.1]),
        lambda t: Fixed("HMC", HMC(0.5, 5), Affine(np.zeros(2), np.eye(2))),
    ),
    "a mode of ten dimensions": (
        GaussianMixture([[0.0] * 10, [3.0] * 10], [1.0, 0.05], weights=[0.9, 0.1]),
        lambda t: independent(t, np.zeros(10), np.ones(10)),
    ),
}


@pytest.mark.parametrize("name", FOOLING)
def test_a_missed_mode_is_seen(name):
    target, make = FOOLING[name]
    problem, candidate = problem_of(target), make(target)
    modes, _ = find_modes(problem.energy, problem.points.T)
    seen, spent = watch_modes(problem, candidate, modes, 300, 5)
    assert seen["num"] == 2
    assert seen["is_disconnected"]
    assert spent > 0
    assert verdict(rows(), modes=seen).status == "poor"


def test_modes_that_are_joined_are_no_reason_to_worry():
    target = GaussianMixture([[-2.0, 0.0], [2.0, 0.0]], [0.3, 0.3], weights=[0.7, 0.3])
    problem = problem_of(target)
    modes, _ = find_modes(problem.energy, problem.points.T)
    seen, _ = watch_modes(problem, independent(target, [0.0, 0.0], [2.2, 1.0]), modes, 1000, 5)
    assert seen["num"] == 2
    assert not seen["is_disconnected"]
    order = np.argsort(-np.asarray(seen["shares"]))
    np.testing.assert_allclose(np.asarray(seen["shares"])[order], [0.7, 0.3], atol=0.05)
    assert seen["crossings_per_1000"] > 10


def test_a_ripple_that_holds_no_mass_is_no_mode_to_miss():
    """Chains that start in a hollow far up, and stay there, are not held against a sampler that is right elsewhere."""
    target = GaussianMixture([[0.0, 0.0], [12.0, 0.0]], [1.0, 0.05], weights=[1 - 1e-5, 1e-5])
    points = np.concatenate([exact_starts(target, 512, seed=0), np.random.default_rng(0).normal([12, 0], 0.2, (64, 2))])
    problem = Problem(lambda x: target(x), points.T.astype(np.float32), mover(points.T, 0.5), 0)
    modes, _ = find_modes(problem.energy, problem.points.T)
    seen, _ = watch_modes(problem, independent(target, [0.0, 0.0], [1.0, 1.0]), modes, 300, 5)
    assert seen["num"] == 2
    assert seen["disputed"]
    assert not seen["is_disconnected"]


def test_draws_in_x_carry_the_energy_of_x():
    target, f = Gaussian(np.eye(2)), Affine([1.0, 2.0], [[2.0, 0.0], [0.5, 3.0]])
    kernel = without_force(2, widths=START_WIDTH, key=jax.random.key(0))
    draws = draw(kernel, f, target, positions=exact_starts(target, 16, seed=0), num_draws=300, seed=1)
    np.testing.assert_allclose(draws.statistics["energy"], np.sum(draws.positions**2, axis=2) / 2, rtol=1e-4, atol=1e-4)
    assert draws.positions.shape == (16, 300, 2)


def test_draws_that_are_not_finite_are_worth_nothing():
    target = Gaussian(np.eye(2))
    draws = draw(
        HMC(0.5, 2), Affine(np.zeros(2), np.ones(2)), target, positions=np.ones((4, 2), np.float32), num_draws=20
    )
    assert score(draws).min_ess > 0
    positions = draws.positions.copy()
    positions[0, 3, 1] = np.inf
    assert score(replace(draws, kept_positions=positions)).min_ess == 0


def test_a_map_that_loses_points_is_seen():
    f = Affine([0.0, 0.0], [1.0, 1.0])
    points = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    assert round_trip_error(f, points) < 1e-5
    broken = Affine.__new__(Affine)
    for name, value in vars(f).items():
        object.__setattr__(broken, name, value)
    object.__setattr__(broken, "inverse", jnp.asarray([1.0, 1.3]))
    assert round_trip_error(broken, points) > MAP_TOLERANCE
