"""Kernels to start training from: the closed forms they claim, that training moves them, and what stays as it was."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.chains import exact_starts, sample
from leapling.diagnostics import check_kernel, min_ess
from leapling.diagnostics.exactness import LAWS
from leapling.energy import Energy
from leapling.kernel_config import configuration
from leapling.kernels import HMC, L2HMC, Phase
from leapling.kernels.base import evaluate
from leapling.kernels.starts import like_hmc, with_force, without_force
from leapling.targets import DiagonalGaussian, GaussianMixture, RoughWell
from leapling.training import Decorrelation, Recipe, train

KEY = jax.random.key(0)
BIMODAL = GaussianMixture([[-1.0, 0.0], [1.5, 0.5]], [1.0, 0.6])
STARTS = {"with_force": with_force, "without_force": without_force}
every_start = pytest.mark.parametrize("make", STARTS.values(), ids=STARTS)


def propose(kernel, energy, x, v, forward):
    @eqx.filter_jit
    def run(kernel, x, v, forward):
        return kernel.propose(Energy(energy), Phase(evaluate(energy, x), v, forward), key=KEY)

    return run(kernel, x, v, forward)


def phases(dim, num, dtype):
    random = np.random.default_rng(0)
    return (
        *(jnp.asarray(2 * random.normal(size=(dim, num)), dtype) for _ in range(2)),
        jnp.asarray(random.uniform(size=num) < 0.5),
    )


@every_start
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("dim", [1, 5])
def test_on_a_standard_normal_it_is_a_quarter_turn(make, dtype, dim):
    """(z, v) -> (v, -z) forward, its inverse backward; A = 1 to rounding."""
    target = DiagonalGaussian(np.ones(dim))
    x, v, forward = phases(dim, 40, dtype)
    kernel = make(dim, key=KEY, dtype=dtype)
    move = propose(kernel, target, x, v, forward)
    sign = jnp.where(forward, 1, -1).astype(dtype)[None]
    eps = 100 * np.finfo(dtype).eps
    np.testing.assert_allclose(move.phase.state.position, sign * v, rtol=0, atol=eps)
    np.testing.assert_allclose(move.phase.momentum, -sign * x, rtol=0, atol=eps)
    np.testing.assert_array_equal(move.log_jacobian, 0)
    _, info = kernel.step(target, kernel.init(target, x), key=KEY)
    np.testing.assert_allclose(info.acceptance, 1, atol=eps)
    assert (info.num_gradients == 1).all()


def test_without_force_draws_a_rough_well_like_an_independence_sampler():
    """10 dimensions, a ripple whose gradient is as large as that of the well; and with its force it is lost."""
    target = RoughWell(10)
    starts = exact_starts(target, 100, seed=0)
    worth = {}
    for name, make in STARTS.items():
        kernel = make(10, key=KEY)
        draws = sample(kernel, target, num_draws=600, seed=1, initial_positions=starts, warn=False)
        per_gradient = draws.num_gradients / (100 * 600)
        acceptance = draws.statistics["acceptance_rate"].mean()
        worth[name] = acceptance, min_ess(draws.positions, draws.statistics["energy"]) / per_gradient
    assert worth["without_force"][0] > 0.95
    assert worth["without_force"][1] > 0.7
    assert worth["with_force"][0] < 0.8


def test_like_hmc_is_hmc():
    """Forward; backward it is HMC from the negated momentum, and negated again."""
    x, v, forward = phases(2, 40, np.float64)
    ours = propose(like_hmc(2, 5, 0.3, key=KEY, dtype=np.float64), BIMODAL, x, v, forward)
    sign = jnp.where(forward, 1.0, -1.0)[None]
    theirs = propose(HMC(0.3, 5), BIMODAL, x, sign * v, forward)
    np.testing.assert_allclose(ours.phase.state.position, theirs.phase.state.position, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(ours.phase.momentum, -sign * theirs.phase.momentum, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(ours.phase.state.energy, theirs.phase.state.energy, rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(ours.log_jacobian, 0)


def disturbed(kernel: L2HMC, size=0.05) -> L2HMC:
    """Random numbers on top of every weight, the linear path's too."""
    random = np.random.default_rng(3)
    return jax.tree.map(
        lambda a: a + jnp.asarray(size * random.normal(size=a.shape), a.dtype) if eqx.is_inexact_array(a) else a, kernel
    )


DISTURBED = {
    "with_force": lambda: with_force(2, widths=(6,), key=KEY, dtype=np.float64),
    "without_force": lambda: without_force(2, widths=(6,), key=KEY, dtype=np.float32),
    "like_hmc": lambda: like_hmc(2, 3, 0.3, widths=(6,), key=KEY, dtype=np.float64),
}


@pytest.mark.parametrize("name", DISTURBED)
def test_every_law_with_random_weights_on_top(name):
    kernel = disturbed(DISTURBED[name]())
    report = check_kernel(kernel, BIMODAL, num_points=32, laws=LAWS[:-1])
    assert {law.status for law in report.laws} == {"passed"}, report


@every_start
def test_training_moves_every_weight_and_stays_exact(make):
    start = make(2, widths=(6,), key=KEY, dtype=np.float32)
    recipe = Recipe(150, 100, objective=Decorrelation("log"), learning_rate=5e-3)
    trained = train(start, BIMODAL, recipe, progress=False)
    assert trained.history["skipped"].sum() == 0
    for network in ("v_network", "x_network"):
        for name in ("first", "second", "bias", "skip"):
            before, after = (getattr(getattr(k, network), name) for k in (start, trained.kernel))
            assert np.any(before != after), (network, name)
        assert np.any(getattr(trained.kernel, network).heads.weight != 0)
    assert np.mean(trained.history["loss"][-30:]) < np.mean(trained.history["loss"][:30])
    check_kernel(
        trained.kernel, BIMODAL, num_points=32, laws=["round trip", "log-determinant", "invariance"]
    ).assert_passed()


def test_without_the_linear_path_nothing_changed():
    """The same weights from the same key, the same numbers out, the same header."""
    plain, skip = (L2HMC(3, 2, widths=(4, 5), key=KEY, dtype=np.float64, skip=skip) for skip in (False, True))
    assert plain.skip is False
    assert skip.skip is True
    assert "skip" not in configuration(plain)
    assert configuration(skip) == {**configuration(plain), "skip": True}
    bare = eqx.tree_at(
        lambda k: (k.v_network.skip, k.x_network.skip), skip, (None, None), is_leaf=lambda leaf: leaf is None
    )
    assert eqx.tree_equal(bare, plain)
    x, v, forward = phases(3, 20, np.float64)
    target = DiagonalGaussian(np.ones(3))
    for ours, theirs in zip(*(jax.tree.leaves(propose(k, target, x, v, forward)) for k in (plain, skip)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
