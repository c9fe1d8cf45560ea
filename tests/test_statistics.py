import json
import sys
import tracemalloc

import numpy as np
import pytest
from arviz_stats.base.array import array_stats

from leapling.diagnostics import (
    autocorrelation,
    ess_bulk,
    ess_by_statistic,
    ess_geyer,
    ess_paper,
    ess_paper_code,
    ess_tail,
    min_ess,
    min_ess_bulk,
    split_rhat,
    summarise,
)
from leapling.diagnostics.summary import MAX_RANKED_COORDINATES


def ar1(phi, num_chains, num_draws, *dims, seed=0):
    """Stationary AR(1) chains of unit variance."""
    noise = np.random.default_rng(seed).normal(size=(num_chains, num_draws, *dims))
    draws = np.empty_like(noise)
    draws[:, 0] = noise[:, 0]
    for t in range(1, num_draws):
        draws[:, t] = phi * draws[:, t - 1] + np.sqrt(1 - phi**2) * noise[:, t]
    return draws


def energy_of(draws):
    return 0.5 * np.sum(draws**2, axis=2)


def flipped(num_chains, num_draws, dim, seed=0):
    """The kernel x -> -x: nothing but the sign ever changes."""
    start = np.random.default_rng(seed).normal(size=(num_chains, 1, dim))
    return start * (-1.0) ** np.arange(num_draws)[None, :, None]


def direct_autocorrelation(draws, mean, variance):
    num_chains, num_draws, _ = draws.shape
    y = draws - mean
    curve = []
    for t in range(num_draws):
        products = [y[c, tau] @ y[c, tau + t] for c in range(num_chains) for tau in range(num_draws - t)]
        curve.append(np.sum(products) / (num_chains * (num_draws - t) * np.sum(variance)))
    return np.array(curve)


def arviz(values, method="mean", **options):
    return array_stats.ess(values, chain_axis=0, draw_axis=1, method=method, relative=True, **options)


# autocorrelation


@pytest.mark.parametrize("num_draws", [1, 2, 33, 64])
def test_autocorrelation_is_the_direct_sum(num_draws):
    draws = ar1(0.7, 3, num_draws, 4) * np.array([1.0, 10.0, 0.1, 3.0]) + np.array([0.0, 5.0, -2.0, 100.0])
    mean, variance = np.array([0.1, 4.0, -2.0, 99.0]), np.array([1.0, 90.0, 0.02, 8.0])
    expected = direct_autocorrelation(draws, mean, variance)
    curve = autocorrelation(draws, mean=mean, variance=variance)
    np.testing.assert_allclose(curve, expected, rtol=1e-10, atol=1e-11)
    lag = num_draws // 2
    shorter = autocorrelation(draws, mean=mean, variance=variance, max_lag=lag)
    np.testing.assert_allclose(shorter, expected[: lag + 1], rtol=1e-10, atol=1e-11)


def test_autocorrelation_estimates_the_moments_that_are_not_given():
    draws = ar1(0.5, 3, 40, 2) * np.array([1.0, 4.0]) + 7.0
    flat = draws.reshape(-1, 2)
    estimated = direct_autocorrelation(draws, flat.mean(0), flat.var(0))
    np.testing.assert_allclose(autocorrelation(draws), estimated, rtol=1e-10, atol=1e-11)
    assert abs(estimated[0] - 1) < 1e-12
    mean = np.array([6.0, 8.0])
    about_mean = direct_autocorrelation(draws, mean, np.mean((flat - mean) ** 2, axis=0))
    np.testing.assert_allclose(autocorrelation(draws, mean=mean), about_mean, rtol=1e-10, atol=1e-11)


def test_autocorrelation_does_not_depend_on_the_block_size(monkeypatch):
    draws = ar1(0.5, 7, 50, 2)
    whole = autocorrelation(draws)
    # By its entry in sys.modules: as an attribute of the package the name is the function.
    monkeypatch.setattr(sys.modules["leapling.diagnostics.autocorrelation"], "BLOCK_SIZE", 300)
    np.testing.assert_allclose(autocorrelation(draws), whole, rtol=1e-12, atol=1e-13)


def test_autocorrelation_of_float32_draws_is_computed_in_float64():
    draws = (ar1(0.5, 4, 500, 2) + 1000.0).astype(np.float32)
    curve = autocorrelation(draws)
    assert curve.dtype == np.float64
    np.testing.assert_allclose(curve, autocorrelation(draws.astype(np.float64)), rtol=1e-12)


def test_draws_that_never_move_are_perfectly_correlated():
    draws = np.full((2, 20, 3), 0.1)
    np.testing.assert_array_equal(autocorrelation(draws, mean=np.full(3, 0.1)), np.ones(20))
    frozen = np.broadcast_to(np.array([1.0, -1.0])[:, None, None], (2, 20, 3))
    np.testing.assert_allclose(autocorrelation(frozen), np.ones(20), rtol=1e-12)
    assert ess_paper(autocorrelation(frozen)) == pytest.approx(1 / 39)


def test_200_chains_of_2000_draws_in_50_dimensions_fit_in_memory():
    draws = np.random.default_rng(0).normal(size=(200, 2000, 50)).astype(np.float32)
    tracemalloc.start()
    autocorrelation(draws)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500e6


# the paper's two ESS


def test_the_two_paper_ess_differ_on_a_revival():
    rho = np.array([1.0, 0.5, 0.2, 0.04, 0.3, -0.5, 0.1])
    assert ess_paper(rho) == pytest.approx(1 / (1 + 2 * (0.5 + 0.2)))
    assert ess_paper_code(rho) == pytest.approx(1 / (1 + 2 * (0.5 + 0.2 + 0.3 + 0.1)))


def test_the_paper_ess_without_any_low_lag_sums_every_lag():
    rho = np.array([1.0, 0.9, 0.8])
    assert ess_paper(rho) == ess_paper_code(rho) == pytest.approx(1 / (1 + 2 * 1.7))
    assert ess_paper(np.ones(1)) == ess_paper_code(np.ones(1)) == 1.0


@pytest.mark.parametrize("rho", [np.array([1.0, np.nan]), np.array([])])
def test_the_paper_ess_refuses_a_broken_curve(rho):
    for ess in (ess_paper, ess_paper_code):
        with pytest.raises(ValueError, match="autocorrelation curve of"):
            ess(rho)


def test_the_paper_ess_of_ar1():
    draws = ar1(0.8, 100, 2000, 2)
    rho = autocorrelation(draws, mean=np.zeros(2), variance=np.ones(2))
    # 0.8^t falls below 0.05 at t = 14.
    expected = 1 / (1 + 2 * np.sum(0.8 ** np.arange(1, 14)))
    assert ess_paper(rho) == pytest.approx(expected, rel=0.05)


# ESS by Geyer's sequence


CHAINS = {
    "ar1": ar1(0.9, 4, 1000, 3),
    "independent": ar1(0.0, 4, 1000, 3),
    "antithetic": ar1(-0.6, 4, 1000, 3),
    "very antithetic": ar1(-0.99, 4, 1000, 3),
    "stuck": ar1(0.5, 4, 1000, 3) + 10 * np.arange(4.0)[:, None, None],
    "frozen": np.broadcast_to(np.arange(4.0)[:, None, None], (4, 100, 3)),
    "one frozen chain of four": ar1(0.3, 4, 200, 3) * np.array([0.0, 1.0, 1.0, 1.0])[:, None, None],
    "single chain": ar1(0.5, 1, 1000, 3),
    "odd number of draws": ar1(0.5, 4, 333, 3),
    "slower than the chain": ar1(0.999, 2, 60, 3),
    "two-valued": np.sign(ar1(0.5, 4, 200, 3)),
    "large offset": ar1(0.5, 4, 500, 3) + 1e4,
    **{f"{n} draws": ar1(0.2, 2, n, 3, seed=n) for n in range(10, 20)},
}


@pytest.mark.parametrize("name", CHAINS)
def test_ess_geyer_equals_arviz_mean(name):
    draws = np.ascontiguousarray(CHAINS[name])
    np.testing.assert_allclose(ess_geyer(draws), arviz(draws), rtol=1e-8)


def test_ess_geyer_equals_arviz_mean_on_many_short_chains():
    # Short chains reach every way in which the sequence can end.
    rng = np.random.default_rng(3)
    for num_draws in range(10, 18):
        phi = rng.uniform(-1, 1, size=100)
        draws = np.stack([ar1(p, 2, num_draws, seed=i) for i, p in enumerate(phi)], axis=2)
        np.testing.assert_allclose(ess_geyer(draws), arviz(draws), rtol=1e-8)


@pytest.mark.parametrize("phi", [0.9, 0.5, 0.0, -0.4])
def test_ess_geyer_of_ar1_is_the_known_answer(phi):
    ess = ess_geyer(ar1(phi, 100, 2000, 3))
    np.testing.assert_allclose(ess, (1 - phi) / (1 + phi), rtol=0.08)


def test_antithetic_chains_score_above_one_and_stuck_chains_near_zero():
    assert (ess_geyer(CHAINS["antithetic"]) > 3).all()
    assert (ess_geyer(CHAINS["stuck"]) < 0.005).all()
    assert (ess_geyer(CHAINS["frozen"]) < 0.02).all()


def test_ess_geyer_keeps_the_shape_of_the_statistics():
    draws = ar1(0.5, 4, 100, 6)
    ess = ess_geyer(draws)
    assert ess.shape == (6,)
    assert ess_geyer(draws[:, :, 0]).shape == ()
    assert ess_geyer(draws[:, :, 0]) == ess[0]
    np.testing.assert_array_equal(ess_geyer(draws.reshape(4, 100, 2, 3)), ess.reshape(2, 3))


def test_ess_geyer_does_not_depend_on_scale():
    draws = ar1(0.5, 4, 100, 2)
    for scale in (1e-200, 1e200):
        np.testing.assert_allclose(ess_geyer(scale * draws), ess_geyer(draws), rtol=1e-8)
        squares = ess_by_statistic(scale * draws, energy_of(draws))
        assert squares["x[1]^2"] == pytest.approx(ess_by_statistic(draws, energy_of(draws))["x[1]^2"])


@pytest.mark.parametrize("ess", [ess_geyer, ess_bulk, ess_tail])
def test_a_constant_statistic_scores_zero(ess):
    draws = ar1(0.5, 4, 100, 4)
    draws[:, :, 0] = 0.0
    draws[:, :, 1] = 0.1
    draws[:, :, 2] = 1e9 * (1 + 1e-16 * np.sign(draws[:, :, 2]))  # changes by rounding alone
    result = ess(draws)
    np.testing.assert_array_equal(result[:3], np.zeros(3))
    assert result[3] > 0.1


def test_a_tail_that_no_draw_leaves_is_not_taken_for_an_independent_one():
    values = np.zeros((2, 100))
    values[:, -1] = -1.0  # the 5% and the 95% quantile are both 0, and no value lies above
    assert arviz(values, "tail", prob=(0.05, 0.95)) == 200
    assert ess_tail(values) == 0.0


NON_FINITE = [ess_geyer, ess_bulk, ess_tail, split_rhat, autocorrelation]


@pytest.mark.parametrize("function", NON_FINITE)
def test_non_finite_draws_are_refused_with_their_number_and_place(function):
    draws = ar1(0.5, 4, 100, 3)
    draws[1, 7, 2] = np.nan
    draws[3, 9, 0] = np.inf
    with pytest.raises(ValueError, match=r"^2 of the 1200 values .* chain 1, draw 7, coordinate 2"):
        function(draws)


def test_a_non_finite_energy_is_refused_by_name():
    draws = ar1(0.5, 4, 100, 3)
    energy = energy_of(draws)
    energy[2, 5] = np.inf
    with pytest.raises(ValueError, match=r"^1 of the 400 values of energy .* chain 2, draw 5:"):
        min_ess(draws, energy)


@pytest.mark.parametrize("function", [ess_geyer, ess_bulk, ess_tail, split_rhat])
def test_too_few_draws_are_refused(function):
    with pytest.raises(ValueError, match="9 draws per chain"):
        function(np.zeros((4, 9, 2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": np.zeros(2)}, "mean has shape \\(2,\\)"),
        ({"variance": np.zeros(2)}, "variance has shape \\(2,\\)"),
        ({"variance": np.zeros(3)}, "variances sum to 0.0"),
        ({"max_lag": 100}, "max_lag is 100"),
        ({"max_lag": -1}, "max_lag is -1"),
    ],
)
def test_autocorrelation_refuses_moments_and_lags_that_do_not_fit(options, message):
    undecorated = getattr(autocorrelation, "__wrapped__", autocorrelation)  # past the shape checks of tests
    with pytest.raises(ValueError, match=message):
        undecorated(ar1(0.5, 4, 100, 3), **options)


# rank-normalised ESS and R-hat


def test_rank_normalised_diagnostics_are_those_of_arviz():
    draws = ar1(0.7, 4, 500, 3)
    np.testing.assert_array_equal(ess_bulk(draws), arviz(draws, "bulk"))
    np.testing.assert_array_equal(ess_tail(draws), arviz(draws, "tail", prob=(0.05, 0.95)))
    np.testing.assert_array_equal(split_rhat(draws), array_stats.rhat(draws, chain_axis=0, draw_axis=1))
    np.testing.assert_allclose(ess_bulk(draws), 0.3 / 1.7, rtol=0.25)
    assert ess_bulk(draws[:, :, 1]) == ess_bulk(draws)[1]


def test_rhat_sees_stuck_chains_and_is_not_defined_for_one_chain_or_a_constant():
    draws = ar1(0.2, 4, 500, 3)
    assert (split_rhat(draws) < 1.02).all()
    draws[:, :, 0] += 3 * np.arange(4.0)[:, None]
    draws[:, :, 1] = 2.0
    rhat = split_rhat(draws)
    assert rhat[0] > 1.5
    assert np.isnan(rhat[1])
    assert rhat[2] < 1.02
    assert np.isnan(split_rhat(draws[:1])).all()


# the minimum over x, x^2 and U


def test_min_ess_is_the_smallest_of_the_named_statistics():
    draws = ar1(0.0, 20, 1000, 3)
    draws[:, :, 1] = ar1(0.9, 20, 1000)
    by_name = ess_by_statistic(draws, energy_of(draws))
    assert list(by_name) == ["x[0]", "x[1]", "x[2]", "x[0]^2", "x[1]^2", "x[2]^2", "U"]
    assert by_name["x[2]"] == ess_geyer(draws)[2]
    assert by_name["x[1]^2"] == pytest.approx(float(ess_geyer(draws**2)[1]))
    assert by_name["U"] == ess_geyer(energy_of(draws))
    assert min(by_name, key=by_name.__getitem__) == "x[1]"
    assert min_ess(draws, energy_of(draws)) == by_name["x[1]"] == pytest.approx(0.1 / 1.9, rel=0.2)
    bulk = ess_by_statistic(draws, energy_of(draws), ess_bulk)
    assert min_ess_bulk(draws, energy_of(draws)) == min(bulk.values()) == ess_bulk(draws)[1]


@pytest.mark.parametrize("num_chains", [1, 50])
def test_flipping_fools_the_paper_and_not_the_minimum(num_chains):
    draws = flipped(num_chains, 400, 2)
    # The energies of x and -x as a computer finds them: equal but for rounding.
    energy = energy_of(draws) * (1 + 1e-16 * (np.arange(400) % 3))
    rho = autocorrelation(draws, mean=np.zeros(2), variance=np.ones(2))
    assert ess_paper(rho) == 1.0
    assert (ess_geyer(draws) > 1).all()
    assert min_ess(draws, energy) < 0.01
    assert min_ess_bulk(draws, energy) < 0.01
    by_name = ess_by_statistic(draws, energy)
    assert max(by_name["x[0]^2"], by_name["x[1]^2"], by_name["U"]) < 0.01


# the summary


SIZES = ["ess_paper", "ess_paper_code", "min_ess", "min_ess_bulk", "ess_bulk_min", "ess_tail_min"]


def test_summary_names_every_diagnostic():
    draws = ar1(0.5, 8, 500, 2) * np.array([1.0, 3.0])
    draws[5] = draws[5, 0]
    energy, rng = energy_of(draws), np.random.default_rng(1)
    acceptance = rng.uniform(size=(8, 500))
    num_gradients = rng.integers(3, 6, size=(8, 500))
    diverging = acceptance < 0.1
    mean, variance = np.zeros(2), np.array([1.0, 9.0])
    summary = summarise(
        draws,
        energy,
        acceptance=acceptance,
        num_gradients=num_gradients,
        diverging=diverging,
        mean=mean,
        variance=variance,
    )
    rho = autocorrelation(draws, mean=mean, variance=variance)
    by_name = ess_by_statistic(draws, energy)
    expected = {
        "ess_paper": ess_paper(rho),
        "ess_paper_code": ess_paper_code(rho),
        "min_ess": min_ess(draws, energy),
        "min_ess_bulk": min_ess_bulk(draws, energy),
        "ess_bulk_min": float(ess_bulk(draws).min()),
        "ess_tail_min": float(ess_tail(draws).min()),
        "split_rhat_max": float(split_rhat(draws).max()),
        "acceptance_rate": float(acceptance.mean()),
        "jump_distance": float(np.mean(np.sum(np.diff(draws, axis=1) ** 2, axis=2))),
        "gradients_per_draw": float(num_gradients.mean()),
    }
    expected |= {f"{name}_per_gradient": expected[name] / num_gradients.mean() for name in SIZES}
    exact = {
        "ess_paper_truth": "true",
        "min_ess_statistic": min(by_name, key=by_name.__getitem__),
        "num_divergences": int(diverging.sum()),
        "num_gradients_total": int(num_gradients.sum()),
        "num_frozen_chains": 1,
        "num_ranked_coordinates": 2,
        "num_chains": 8,
        "num_draws": 500,
        "dim": 2,
    }
    assert summary.keys() == expected.keys() | exact.keys()
    assert {name: summary[name] for name in exact} == exact
    for name, value in expected.items():
        assert summary[name] == pytest.approx(value, rel=1e-12), name
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_summary_of_one_frozen_chain_is_valid_json_that_hides_nothing():
    draws = np.ones((1, 50, 3), np.float32)
    summary = summarise(draws, energy_of(draws))
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["ess_paper_truth"] == "estimated"
    assert summary["min_ess"] == summary["min_ess_bulk"] == summary["ess_tail_min"] == 0.0
    assert summary["ess_paper"] == pytest.approx(1 / 99)
    assert summary["jump_distance"] == 0.0
    assert summary["num_frozen_chains"] == 1
    not_known = {"split_rhat_max", "acceptance_rate", "num_divergences"}
    not_known |= {"num_gradients_total", "gradients_per_draw"}
    not_known |= {f"{name}_per_gradient" for name in SIZES}
    assert {name for name, value in summary.items() if value is None} == not_known


def test_frozen_chains_at_different_places_do_not_get_an_rhat_that_passes():
    draws = np.repeat(np.arange(4.0)[:, None, None], 50, axis=1)
    rhat = summarise(draws, energy_of(draws))["split_rhat_max"]
    assert rhat is None or rhat > 1e6


def test_summary_of_many_dimensions_says_how_many_were_ranked_and_takes_the_worst():
    dim = MAX_RANKED_COORDINATES + 10
    draws = ar1(0.0, 4, 100, dim)
    draws[:, :, dim - 1] = ar1(0.9, 4, 100, seed=5)
    summary = summarise(draws, energy_of(draws))
    assert summary["num_ranked_coordinates"] == MAX_RANKED_COORDINATES
    assert summary["dim"] == dim
    assert summary["min_ess_statistic"] in (f"x[{dim - 1}]", f"x[{dim - 1}]^2")
    assert summary["ess_bulk_min"] == ess_bulk(draws[:, :, dim - 1])
    assert summary["split_rhat_max"] == pytest.approx(float(split_rhat(draws[:, :, dim - 1])))


def test_summary_wants_both_true_moments_or_neither():
    draws = ar1(0.5, 4, 100, 2)
    with pytest.raises(ValueError, match="mean was given without the true variance"):
        summarise(draws, energy_of(draws), mean=np.zeros(2))


def test_summary_of_flipping_chains_keeps_coordinates_and_statistics_apart():
    draws = flipped(20, 100, 2)
    summary = summarise(draws, energy_of(draws))
    assert summary["ess_paper"] == 1.0
    assert summary["ess_bulk_min"] > 1
    assert summary["min_ess"] < 0.02
    assert summary["min_ess_bulk"] < 0.02
    assert summary["min_ess_statistic"] in ("x[0]^2", "x[1]^2", "U")
    assert summary["num_frozen_chains"] == 0
