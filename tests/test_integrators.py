"""Palindromic integrators: reversible, of order two, worth their gradients, and charged for them."""

import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest

from leapling.diagnostics import check_kernel
from leapling.energy import as_energy
from leapling.kernels import HMC, Phase
from leapling.kernels.base import evaluate, hamiltonian, refresh
from leapling.kernels.integrators import INTEGRATORS, Splitting
from leapling.targets import DiagonalGaussian, GaussianMixture

BIMODAL = GaussianMixture([[-1.0, 0.0], [1.5, 0.5]], [1.0, 0.6])
every_integrator = pytest.mark.parametrize("name", INTEGRATORS)


@every_integrator
def test_coefficients_are_consistent_and_palindromic(name):
    for coefficients in INTEGRATORS[name]:
        assert sum(coefficients) == pytest.approx(1, abs=1e-15)
        np.testing.assert_allclose(coefficients, coefficients[::-1], rtol=1e-15)


@pytest.mark.parametrize(("name", "step_size"), [("two-stage", 1.7), ("three-stage", 2.8)])
def test_every_law(name, step_size):
    kernel = HMC(step_size, 2, integrator=name)
    report = check_kernel(kernel, BIMODAL)
    assert {law.status for law in report.laws} == {"passed"}, report


@pytest.mark.parametrize(
    "mutant",
    [
        mutants.Mutant(
            "kicks of three stages out of order",
            mutants.edit("integrators", "(b, 0.5 - b, 0.5 - b, b)", "(0.5 - b, b, 0.5 - b, b)"),
            ("round trip",),
        ),
        mutants.Mutant(
            "drifts of three stages out of order",
            mutants.edit("integrators", "(a, 1 - 2 * a, a)", "(a, a, 1 - 2 * a)"),
            ("round trip",),
        ),
    ],
    ids=lambda mutant: mutant.name,
)
def test_what_is_not_a_palindrome_is_seen(mutant):
    kernel = mutants.build_hmc(mutant, 1.8, 2, integrator="three-stage")
    report = check_kernel(kernel, BIMODAL, laws=mutant.seen_by)
    assert report.failed_laws == ("round trip (float64)", "round trip (float32)")


def energy_changes(kernel, energy, phase: Phase):
    energy = as_energy(energy)
    end = kernel.propose(energy, phase, key=jax.random.key(0)).phase
    return np.asarray(hamiltonian(energy, end) - hamiltonian(energy, phase))


@every_integrator
def test_order_two(name):
    """Over a fixed time, half the step leaves a quarter of the error."""

    def quartic(x):
        return jnp.sum(x**4) / 4 + x[0] * x[1] / 2

    start = evaluate(quartic, jax.random.normal(jax.random.key(0), (2, 200)))
    phase = refresh(start, key=jax.random.key(1))
    coarse, fine = (np.std(energy_changes(HMC(0.8 / n, n, integrator=name), quartic, phase)) for n in (32, 64))
    assert 3.8 < coarse / fine < 4.2


def test_a_splitting_that_is_not_consistent_is_not_of_order_two(monkeypatch):
    monkeypatch.setitem(INTEGRATORS, "two-stage", Splitting((0.2, 0.61, 0.2), (0.5, 0.5)))
    with pytest.raises(AssertionError):
        test_order_two("two-stage")


def largest_expected_error(splitting: Splitting) -> float:
    """On N(0, 1), from stationarity, E[dH] of any number of steps is at most (B + C)^2 / (2 (1 - A^2)), where
    x' = A x + B v and v' = C x + A v in one step; the largest for eps up to the number of stages."""
    worst = 0.0
    for eps in np.linspace(0.01, 1, 200) * splitting.num_gradients:
        step = np.eye(2)
        for kick, drift in zip(splitting.kicks, (*splitting.drifts, 0.0), strict=True):
            step = np.array([[1, drift * eps], [0, 1]]) @ np.array([[1, 0], [-kick * eps, 1]]) @ step
        (a, b), (c, _) = step
        worst = max(worst, (b + c) ** 2 / (2 * (1 - a**2)))
    return worst


def test_the_coefficients_are_where_the_error_on_gaussians_is_smallest():
    for name in ("two-stage", "three-stage"):
        splitting = INTEGRATORS[name]
        b = splitting.kicks[0]
        for factor in (0.99, 1.01):
            moved = (factor * b, 0.5 - factor * b, 0.5 - factor * b, factor * b)
            kicks = moved if name == "three-stage" else (factor * b, 1 - 2 * factor * b, factor * b)
            assert largest_expected_error(Splitting(kicks, splitting.drifts)) > 1.05 * largest_expected_error(splitting)


def test_energy_error_per_gradient_on_a_gaussian():
    """24 gradients over the same time, with the stiffest coordinate at half of leapfrog's limit of stability."""
    target = DiagonalGaussian(np.linspace(1, 3, 50) ** 2)
    phase = refresh(evaluate(target, target.sample(jax.random.key(0), 2000)), key=jax.random.key(1))
    error = {}
    for name, splitting in INTEGRATORS.items():
        kernel = HMC(splitting.num_gradients, 24 // splitting.num_gradients, integrator=name)
        change = energy_changes(kernel, target, phase)
        error[name] = np.std(change)
        assert np.mean(change) < 50 * largest_expected_error(splitting) + 4 * error[name] / 2000**0.5
    assert error["leapfrog"] > 0.5
    assert error["mclachlan"] < error["leapfrog"] / 2.5
    assert error["two-stage"] < error["leapfrog"] / 5
    assert error["three-stage"] < error["leapfrog"] / 12


def test_an_unknown_integrator_is_refused():
    with pytest.raises(ValueError, match="no integrator 'euler'; choose from leapfrog, mclachlan, two-stage, three-st"):
        HMC(0.1, 2, integrator="euler")
