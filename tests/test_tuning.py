"""Tuning finds what is known to be best, gives every setting the same effort, and says what it cost."""

import numpy as np
import pytest

from leapling.chains import exact_starts
from leapling.kernels import HMC, LAHMC
from leapling.targets import DiagonalGaussian, scg
from leapling.tuning import GRADIENTS, tune

NORMAL = DiagonalGaussian(np.ones(2))
FEW = (300, 1200)


def test_a_known_optimum_is_found():
    """On a standard normal an independent draw is a quarter of a turn: step_size * num_steps near pi / 2."""
    found = tune(HMC, NORMAL, initial_positions=exact_starts(NORMAL, 32, seed=0), gradients=FEW)
    assert 1.1 < found.best["step_size"] * found.best["num_steps"] < 2.1
    assert found.best["num_steps"] <= 2
    assert found.best["min_ess_per_gradient"] > 0.3
    assert isinstance(found.kernel, HMC)
    assert float(found.kernel.step_size) == pytest.approx(found.best["step_size"])


def test_the_surface_is_whole_and_thinned_out():
    grid = {"step_size": [0.3, 0.6], "num_steps": [1, 2, 4, 8], "length_jitter": [0.0]}
    found = tune(HMC, NORMAL, initial_positions=exact_starts(NORMAL, 16, seed=0), grid=grid, gradients=(200, 400))
    assert [sum(row["round"] == i for row in found.surface) for i in (0, 1, 2)] == [8, 2, 0]
    # 200 gradients of each chain, whatever the length, and a start each; then 400 for the best quarter.
    spent = 16 * (8 * (200 + 1) + 2 * (400 + 1))
    assert found.num_gradients == spent
    # What the grid names is not refined.
    assert found.best["step_size"] in grid["step_size"]


def test_each_criterion_has_its_own_best():
    """On SCG the paper's figure rewards half a turn, which flips x and hardly changes its square."""
    target = scg()
    starts = exact_starts(target, 32, seed=0)
    grid = {"step_size": [0.15], "num_steps": [70, 105, 140, 175, 210], "length_jitter": [0.0]}
    best = {
        criterion: tune(HMC, target, initial_positions=starts, grid=grid, criterion=criterion, gradients=(8000,)).best
        for criterion in ("min_ess", "ess_paper")
    }
    for criterion, row in best.items():
        other = best["ess_paper" if criterion == "min_ess" else "min_ess"]
        assert row[f"{criterion}_per_gradient"] >= other[f"{criterion}_per_gradient"]
    assert best["min_ess"]["num_steps"] == 105


def test_chains_that_do_not_move_are_worth_nothing():
    starts = exact_starts(NORMAL, 8, seed=0)
    grid = {"step_size": [0.5, 50.0], "num_steps": [10], "length_jitter": [0.0]}
    found = tune(HMC, NORMAL, initial_positions=starts, grid=grid, gradients=(300,))
    worth = {row["step_size"]: row["min_ess_per_gradient"] for row in found.surface}
    assert worth[50.0] == 0
    assert worth[0.5] > 0


def test_any_function_of_settings_is_a_family():
    def family(step_size, num_steps, step_size_jitter):
        return HMC(step_size, num_steps, step_size_jitter=step_size_jitter)

    found = tune(
        family,
        lambda x: (x**2).sum() / 2,
        initial_positions=exact_starts(NORMAL, 16, seed=0),
        grid={"step_size_jitter": [0.0, 0.3], "num_steps": [1, 2]},
        gradients=(200,),
        seed=3,
    )
    assert {row["step_size_jitter"] for row in found.surface} == {0.0, 0.3}
    assert len({row["step_size"] for row in found.surface}) > 8  # the grid's and, around the best, others


def test_lahmc_is_a_family_of_its_own_and_a_target_needs_no_starts():
    grid = {"num_steps": [1, 2], "num_trajectories": [2], "refreshment": [0.5, 1.0]}
    found = tune(LAHMC, NORMAL, grid=grid, gradients=(200,))
    assert isinstance(found.kernel, LAHMC)
    assert found.kernel.num_trajectories == 2
    assert float(found.kernel.refreshment) == pytest.approx(found.best["refreshment"])
    assert {row["refreshment"] for row in found.surface} == {0.5, 1.0}
    assert found.best["gradients_per_draw"] >= found.best["num_steps"]


def test_same_seed_same_result():
    arguments = {"initial_positions": exact_starts(NORMAL, 8, seed=0), "gradients": (100,), "grid": {"num_steps": [2]}}
    first, second = (tune(HMC, NORMAL, **arguments) for _ in range(2))
    assert first.surface == second.surface
    assert first.surface != tune(HMC, NORMAL, **arguments, seed=1).surface


def test_what_cannot_be_tuned_is_refused():
    starts = exact_starts(NORMAL, 8, seed=0)
    with pytest.raises(ValueError, match="there is no criterion 'ess'; choose from min_ess, ess_paper"):
        tune(HMC, NORMAL, initial_positions=starts, criterion="ess")
    with pytest.raises(ValueError, match="the grid is empty: it has no value of num_steps"):
        tune(HMC, NORMAL, initial_positions=starts, grid={"num_steps": [], "step_size": [0.1]})
    with pytest.raises(ValueError, match="is the energy constant"):
        tune(HMC, lambda x: 0 * x.sum(), initial_positions=starts)
    with pytest.raises(ValueError, match="tuning needs initial_positions"):
        tune(HMC, lambda x: x.sum())
    assert tuple(sorted(GRADIENTS)) == GRADIENTS
