"""`fit`: from an energy and a dimension to an exact sampler, a verdict, and a path that can be walked again."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leapling
from leapling.autopilot.clock import Clock, seconds_of
from leapling.autopilot.modes import find_modes
from leapling.autopilot.warmup import next_temperature, systematic, warm_up
from leapling.chains import exact_starts
from leapling.targets import GaussianMixture, RoughWell, Target, scg

QUICK = {"budget": 12, "progress": False}


class Opaque(Target):
    """A target that gives away its energy and its dimension, and nothing else."""

    name: str = eqx.field(static=True, default="opaque")
    dim: int = eqx.field(static=True, default=2)
    inner: Target = eqx.field(static=True, default_factory=scg)

    def __call__(self, x):
        return self.inner(x)

    def sample(self, key, num, dtype=None):
        raise AssertionError("fit drew from the target")

    @property
    def mean(self):
        raise AssertionError("fit looked at the mean")

    @property
    def variance(self):
        raise AssertionError("fit looked at the variance")

    @property
    def covariance(self):
        raise AssertionError("fit looked at the covariance")


@pytest.fixture(scope="module")
def single():
    """The tests run in float64; a user's session does not."""
    with jax.enable_x64(False):
        yield


@pytest.fixture(scope="module")
def fitted(single):
    return leapling.fit(Opaque(), **QUICK)


def test_a_correlated_gaussian_is_drawn_independently_from_its_energy_alone(fitted):
    figure = fitted.verdict.methods[0]
    assert fitted.verdict.status == "good"
    assert figure["min_ess_per_gradient"] > 0.8
    assert fitted.verdict.exactness["passed"]
    draws = fitted.draw(100, 500, seed=3, initial_positions=exact_starts(scg(), 100, seed=8))
    z = (draws.positions.reshape(-1, 2).mean(axis=0) - scg().mean) / np.sqrt(scg().variance / 40_000)
    assert np.abs(z).max() < 4.5
    energies = jax.vmap(scg())(jnp.asarray(draws.positions[:, -1]))
    np.testing.assert_allclose(draws.statistics["energy"][:, -1], energies, rtol=1e-3, atol=1e-3)


def test_the_verdict_charges_everything_and_names_the_rivals(fitted):
    verdict = fitted.verdict
    json.dumps(verdict.to_dict(), allow_nan=False)
    methods = [row["method"] for row in verdict.methods]
    assert "HMC tuned" in methods
    assert "HMC tuned, dense whitening" in methods
    spent = {row["stage"]: row["gradients"] for row in verdict.ledger}
    assert verdict.methods[0]["preparation"] == sum(v for stage, v in spent.items() if stage != "measuring")
    assert all(spent[stage] > 0 for stage in ("warm-up", "tuning HMC", "closed forms", "measuring"))
    text = str(verdict)
    assert verdict.sentences[0] in text
    assert f"{verdict.pays_after:,} effective draws" in text


def test_what_was_saved_is_loaded_and_draws_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "run")
    with pytest.raises(ValueError, match="give it again"):
        leapling.load(tmp_path / "run")
    again = leapling.load(tmp_path / "run", Opaque())
    first, second = (f.draw(8, 20, seed=5).positions for f in (fitted, again))
    assert np.array_equal(first, second)
    assert str(again.verdict) == str(fitted.verdict)
    with pytest.raises(ValueError, match="not the one of the run"):
        leapling.load(tmp_path / "run", RoughWell())
    names = fitted.sample(4, 20, seed=1).sample_stats
    assert {"energy", "acceptance_rate", "diverging"} <= set(names)


def test_a_path_is_walked_again_to_the_same_bits(fitted):
    again = leapling.fit(Opaque(), **QUICK, path=fitted.path)
    assert again.path == fitted.path
    assert np.array_equal(again.draw(8, 20, seed=5).positions, fitted.draw(8, 20, seed=5).positions)


def test_a_path_of_another_fit_is_refused():
    clock = Clock(1.0, [["particles", 3]])
    with pytest.raises(ValueError, match="'particles' where this fit is at 'draws'"):
        clock.decide("draws", lambda: 1)


@pytest.mark.parametrize(
    ("budget", "seconds"), [("90 s", 90), ("2min", 120), ("1.5 h", 5400), (30, 30), ("5 minutes", 300)]
)
def test_budgets_in_words(budget, seconds):
    assert seconds_of(budget) == seconds


@pytest.mark.parametrize("budget", ["soon", "-3 s", 0, "5 lightyears"])
def test_bad_budgets_are_refused(budget):
    with pytest.raises(ValueError, match="budget"):
        leapling.fit(scg(), budget=budget)


def test_a_neighbour_enters_the_race(fitted):
    shifted = GaussianMixture([[1.0, -1.0]], scg().covariance[None])
    again = leapling.fit(shifted, **QUICK, start_from=fitted)
    assert "start_from" in [row["recipe"] for row in again.verdict.tried]


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="give dim="):
        leapling.fit(lambda x: jnp.sum(x**2))
    with pytest.raises(ValueError, match="initial_positions must be finite"):
        leapling.fit(scg(), initial_positions=np.full((3, 2), np.nan))
    with pytest.raises(ValueError, match="pure_callback"):
        leapling.fit(lambda x: float(np.sum(np.asarray(x) ** 2)), 2)


def test_warm_up_finds_both_modes_and_their_weights(single):
    target = GaussianMixture([[-4.0, 0.0], [4.0, 1.0]], [0.3, 0.05], weights=[0.3, 0.7])
    found = warm_up(lambda x: target(x), dim=2, num_particles=1024, seed=0)
    share = np.mean(np.asarray(target.component(jnp.asarray(found.particles))) == 0)
    assert found.reached_target
    assert abs(share - 0.3) < 0.1
    assert found.num_gradients > 0


def test_the_next_temperature_keeps_the_weights_it_is_asked_to():
    difference = np.random.default_rng(0).normal(size=500) * 50
    beta, weights = next_temperature(difference, 0.2)
    assert 0.2 < beta < 1
    assert abs(1 / np.sum(weights**2) / 500 - 0.7) < 1e-3
    assert next_temperature(np.zeros(500), 0.2)[0] == 1.0
    assert (weights[np.isinf(difference)] == 0).all()


def test_systematic_resampling_is_unbiased():
    weights = np.array([0.5, 0.25, 0.125, 0.125])
    counts = np.bincount(systematic(np.repeat(weights, 100) / 100, np.random.default_rng(1)) // 100, minlength=4)
    np.testing.assert_allclose(counts / 400, weights, atol=0.01)


@pytest.mark.parametrize(
    ("means", "num"), [([[0.0, 0.0]], 1), ([[-3.0, 0.0], [3.0, 0.0]], 2), ([[-3.0, 0], [3, 0], [0, 4]], 3)]
)
def test_valleys_are_counted(single, means, num):
    target = GaussianMixture(means, [0.2] * len(means))
    modes, spent = find_modes(lambda x: target(x), exact_starts(target, 200, seed=0))
    assert modes.num == num
    assert spent > 0
    labels = modes.of(np.asarray(means, np.float32))
    assert len(set(labels.tolist())) == num


def test_ripples_and_bends_are_no_valleys(single):
    well = RoughWell(2)
    assert find_modes(lambda x: well(x), exact_starts(well, 200, seed=0))[0].num == 1


def test_one_given_point_is_enough_for_a_valley(single):
    target = GaussianMixture([[-3.0, 0.0], [3.0, 0.0]], [0.2, 0.2])
    left = np.random.default_rng(0).normal([-3, 0], 0.3, size=(200, 2))
    assert find_modes(lambda x: target(x), left)[0].num == 1
    assert find_modes(lambda x: target(x), left, np.array([[3.0, 0.1]]))[0].num == 2
