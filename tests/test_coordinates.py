"""Affine coordinates, and kernels that run in them: the same target, exactly, and no evaluation more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.chains import exact_starts, sample
from leapling.coordinates import Affine, whitening
from leapling.diagnostics import check_kernel, min_ess
from leapling.energy import Energy
from leapling.kernels import HMC, L2HMC, InCoordinates
from leapling.kernels.base import refresh
from leapling.targets import Gaussian, GaussianMixture, scg
from leapling.training import Recipe, train

RANDOM = np.random.default_rng(0)
DENSE = Affine(RANDOM.normal(size=3), RANDOM.normal(size=(3, 3)) + 3 * np.eye(3))
DIAGONAL = Affine([1.0, -2.0, 0.5], [0.1, 3.0, 1.0])
both = pytest.mark.parametrize("f", [DENSE, DIAGONAL], ids=["dense", "diagonal"])


def quartic(x):
    return jnp.sum(x**4) + x[0] * x[1]


@both
def test_back_and_forth(f):
    z = jnp.asarray(RANDOM.normal(size=(3, 7)))
    np.testing.assert_allclose(f.backward(f.forward(z)), z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(f.forward(z[:, 0]), f.forward(z)[:, 0], rtol=1e-12)
    np.testing.assert_allclose(f.gradient_forward(f.gradient_backward(z)), z, rtol=1e-12, atol=1e-12)


@both
def test_gradients_are_those_of_autodiff(f):
    z = jnp.asarray(RANDOM.normal(size=3))
    in_z = jax.grad(lambda z: quartic(f.forward(z)))(z)
    np.testing.assert_allclose(f.gradient_backward(jax.grad(quartic)(f.forward(z))), in_z, rtol=1e-11)


def test_whitened_draws_are_white():
    target = scg()
    z = whitening(target.mean, target.covariance).backward(target.sample(jax.random.key(0), 50_000))
    np.testing.assert_allclose(np.cov(z), np.eye(2), atol=0.03)


@both
def test_hmc_in_coordinates_is_hmc_on_the_pulled_energy(f):
    """Trajectories, energies and gradients, with the momentum of z."""
    kernel = HMC(0.2, 4)
    z = jnp.asarray(RANDOM.normal(size=(3, 5)))

    def pulled(z):
        return quartic(f.forward(z))

    key = jax.random.key(3)
    phase = refresh(InCoordinates(kernel, f).init(quartic, f.forward(z)), key=key)
    moved = InCoordinates(kernel, f).propose(Energy(quartic), phase, key=key).phase
    expected = kernel.propose(Energy(pulled), refresh(kernel.init(pulled, z), key=key), key=key).phase
    np.testing.assert_allclose(moved.state.position, f.forward(expected.state.position), rtol=1e-9)
    np.testing.assert_allclose(moved.momentum, expected.momentum, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(moved.state.energy, expected.state.energy, rtol=1e-9)
    np.testing.assert_allclose(
        moved.state.gradient, jax.vmap(jax.grad(quartic), -1, -1)(moved.state.position), rtol=1e-8
    )


@pytest.mark.parametrize("inner", ["HMC", "L2HMC"])
def test_every_law(inner):
    target = GaussianMixture([[-1.0, 0.0], [1.5, 0.5]], [1.0, 0.6])
    kernel = HMC(0.8, 2) if inner == "HMC" else L2HMC(2, 3, step_size=0.5, key=jax.random.key(0))
    report = check_kernel(InCoordinates(kernel, Affine([0.3, 0.0], [[2.0, 0.5], [0.0, 0.7]])), target)
    assert {law.status for law in report.laws} == {"passed"}


def test_a_wrong_gradient_map_is_seen():
    class Wrong(Affine):
        def gradient_forward(self, gradient):
            return gradient

        def __init__(self):
            super().__init__([0.3, 0.0], [[2.0, 0.5], [0.0, 0.7]])

    report = check_kernel(InCoordinates(HMC(0.8, 2), Wrong()), Gaussian(np.eye(2)), laws=["cache"])
    assert report.failed_laws == ("cache",)


def test_whitening_makes_hmc_fast_on_scg():
    target = scg()
    kernel = InCoordinates(HMC(0.8, 2), whitening(target.mean, target.covariance))
    draws = sample(kernel, target, num_draws=400, seed=1, initial_positions=exact_starts(target, 50, seed=0))
    assert min_ess(draws.positions, draws.statistics["energy"]) > 0.3
    assert draws.num_gradients == 50 * (1 + 400 * 2)
    assert (draws.statistics["step_size"] == np.float32(0.8)).all()


def test_training_leaves_the_coordinates_alone():
    f = Affine([1.0, 2.0], [[2.0, 0.5], [0.0, 0.7]])
    inner = L2HMC(2, 2, key=jax.random.key(0), dtype=np.float64)
    trained = train(InCoordinates(inner, f), Gaussian(np.eye(2)), Recipe(20, 8), progress=False).kernel
    for before, after in zip(jax.tree.leaves(f), jax.tree.leaves(trained.coordinates), strict=True):
        assert np.array_equal(before, after)
    assert isinstance(trained.kernel, L2HMC)
    assert not np.array_equal(inner.v_network.first, trained.kernel.v_network.first)


@pytest.mark.parametrize(
    ("mean", "factor", "said"),
    [
        ([0.0, 0.0], [1.0], r"a factor of shape \(dim,\) or \(dim, dim\)"),
        ([0.0, 0.0], np.ones((2, 2)), "factor invertible"),
        ([0.0, 0.0], [1.0, 0.0], "factor invertible"),
        ([0.0, np.nan], [1.0, 1.0], "must be finite"),
    ],
)
def test_bad_maps_are_refused(mean, factor, said):
    with pytest.raises(ValueError, match=said):
        Affine(mean, factor)
