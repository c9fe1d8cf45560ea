"""Annealed importance sampling: log Z where it is known, what it charges, and mistakes that bias it."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest
import scipy.stats

from leapling import ais
from leapling.ais import Annealed, base_state, linear, mix, persistent, sigmoidal, unmix
from leapling.coordinates import Affine, whitening
from leapling.energy import tempered
from leapling.kernels import HMC, L2HMC, NICE, Tempering
from leapling.kernels.base import evaluate
from leapling.targets import DiagonalGaussian, GaussianMixture

BASE = Affine([0.5, -0.5], [[1.5, 0.0], [0.4, 1.2]])
DEVIATIONS = np.array([0.4, 0.7])
LOG_Z = float(np.sum(np.log(DEVIATIONS)) + np.log(2 * np.pi))
GAUSSIAN = DiagonalGaussian(DEVIATIONS**2, mean=np.array([1.0, 0.5]))
MIXTURE = GaussianMixture([[-1.0, 0.0], [1.5, 0.5]], [0.3, 0.2], [0.3, 0.7])


def learned() -> L2HMC:
    kernel = L2HMC(2, 2, step_size=0.3, key=jax.random.key(0))
    return eqx.tree_at(
        lambda k: (k.v_network.heads.weight, k.x_network.heads.weight), kernel, replace_fn=lambda w: 20 * w
    )


def shifted_mixture(x):
    """Z = exp(3.7)."""
    return MIXTURE(x) - 3.7


def estimate(kernel, energy: Callable = GAUSSIAN, num=10, chains=4000, schedule=linear, seed=0, of: Any = ais):
    return of.annealed_importance(
        kernel, energy, base=BASE, num_chains=chains, schedule=schedule(num), key=jax.random.key(seed)
    )


def off(found, log_z: float) -> float:
    """In standard errors."""
    return abs(float(found.log_z) - log_z) / float(found.standard_error)


@pytest.mark.parametrize(
    "kernel",
    [
        HMC(0.4, 3),
        persistent(HMC(0.4, 1), 0.9),
        persistent(learned(), 0.5),
        NICE(2, 3, widths=(6,), key=jax.random.key(0)),
    ],
    ids=["HMC", "HMC, partial refreshment", "L2HMC, partial refreshment", "NICE"],
)
def test_log_z_of_a_gaussian(kernel):
    found = estimate(kernel)
    assert 0.005 < found.standard_error < 0.1
    assert off(found, LOG_Z) < 3


@pytest.mark.parametrize("schedule", [linear, sigmoidal])
def test_log_z_of_a_mixture(schedule):
    found = estimate(persistent(HMC(0.3, 2), 0.7), shifted_mixture, 40, schedule=schedule)
    assert found.standard_error < 0.05
    assert off(found, 3.7) < 3
    # With their weights the chains are draws of the target: the shares of its modes among them.
    weight = jnp.exp(found.log_weights - found.log_z) / 4000
    share = jnp.sum(weight, where=MIXTURE.component(found.position) == 1)
    assert float(share) == pytest.approx(0.7, abs=0.04)


def test_a_temperature_divides():
    """Of U / 2: Z of twice the variance."""
    assert off(estimate(HMC(0.4, 3), tempered(GAUSSIAN, 2.0)), LOG_Z + np.log(2)) < 3


def test_without_moves_it_is_importance_sampling():
    """A kernel that never moves leaves log w = U_0 - U at the first draw, whatever the schedule."""
    found = [estimate(HMC(1e4, 1), num=num) for num in (1, 30)]
    np.testing.assert_allclose(found[0].log_weights, found[1].log_weights, rtol=1e-10, atol=1e-10)
    assert off(found[0], LOG_Z) < 3
    x = found[0].position
    expected = base_state(BASE, x).energy - evaluate(GAUSSIAN, x).energy
    np.testing.assert_allclose(found[0].log_weights, expected, rtol=1e-10)


def test_more_temperatures_are_worth_their_gradients():
    rough, fine = (estimate(HMC(0.4, 3), num=num, chains=500) for num in (2, 40))
    assert fine.ess > 2 * rough.ess
    assert (np.asarray(rough.num_gradients) == 1 + 2 * 3).all()
    assert (np.asarray(fine.num_gradients) == 1 + 40 * 3).all()


def test_the_base_is_a_normalised_gaussian():
    """Against another's density, and the gradient by autodiff."""
    for base in (BASE, whitening([0.5, -0.5], [1.5, 0.8])):
        x = base.forward(jax.random.normal(jax.random.key(0), (2, 7)))
        state = base_state(base, x)
        factor = base.factor if base.factor.ndim == 2 else jnp.diag(base.factor)
        covariance: Any = np.asarray(factor @ factor.T)
        density = scipy.stats.multivariate_normal(base.mean, covariance).logpdf(np.asarray(x).T)
        np.testing.assert_allclose(state.energy, -density, rtol=1e-12)
        gradient = jax.vmap(jax.grad(lambda y, base=base: base_state(base, y).energy), -1, -1)(x)
        np.testing.assert_allclose(state.gradient, gradient, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 2e-3)])
def test_the_energy_is_recovered_from_the_annealed_one(dtype, tolerance):
    x = jax.random.normal(jax.random.key(0), (2, 50), dtype)
    for b in (1e-3, 0.3, 1.0):
        b = jnp.asarray(b, dtype)
        annealed, base, target = evaluate(Annealed(GAUSSIAN, BASE, b), x), base_state(BASE, x), evaluate(GAUSSIAN, x)
        recovered, mixed = unmix(base, annealed, b), mix(base, target, b)
        for one, other in ((recovered, target), (mixed, annealed)):
            np.testing.assert_allclose(one.energy, other.energy, atol=tolerance, rtol=tolerance)
            np.testing.assert_allclose(one.gradient, other.gradient, atol=tolerance, rtol=tolerance)


UNPACK = "        (b, step), key = inputs\n"
WEIGHT = "log_weight + step * (here.energy - target.energy)"
MISTAKES = {
    "weight with the wrong sign": mutants.edit("ais", WEIGHT, WEIGHT.replace("+", "-")),
    "moves one temperature early": mutants.edit("ais", UNPACK, f"{UNPACK}        b = b - step + 1e-9\n"),
    "weight taken after the move": (
        mutants.Edit("ais", WEIGHT, "log_weight"),
        mutants.Edit(
            "ais",
            "        return (after, target,",
            "        log_weight += step * (base_state(base, after.position).energy - target.energy)\n"
            "        return (after, target,",
        ),
    ),
    "energy of the place before the move": mutants.edit("ais", "info.is_accepted, unmix(", "~info.is_accepted, unmix("),
    "base not normalised": mutants.edit("ais", "axis=0) / 2 - log_det +", "axis=0) / 2 +"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_seen(name):
    module = mutants.load(mutants.Mutant(name, MISTAKES[name], ()))["ais"]
    assert off(estimate(HMC(0.4, 3), num=4, of=module), LOG_Z) > 5


def test_the_unchanged_twin_is_right():
    assert off(estimate(HMC(0.4, 3), num=4, of=mutants.load(mutants.IDENTITY)["ais"]), LOG_Z) < 3


def test_partial_refreshment_keeps_the_momentum():
    """On a nearly flat target with alpha near 1 chains go straight on, and spread more than with momenta drawn anew."""

    def flat(x):
        return 0.001 * jnp.sum(x**2)

    far = {}
    for alpha in (0.0, 0.99):
        found = estimate(persistent(HMC(0.2, 1), alpha), flat, 30, chains=500)
        far[alpha] = float(jnp.mean(jnp.var(found.position, axis=1)) - jnp.sum(BASE.factor**2) / 2)
    assert far[0.99] > 3 * far[0.0]


def test_a_place_without_density_weighs_nothing():
    def half(x):
        return jnp.where(x[0] > 0.5, GAUSSIAN(x), jnp.inf)

    found = estimate(HMC(0.3, 3), half, 20)
    assert np.isneginf(np.asarray(found.log_weights)).any()
    inside = float(scipy.stats.norm.cdf((1.0 - 0.5) / DEVIATIONS[0]))
    assert off(found, LOG_Z + np.log(inside)) < 3


def test_schedules():
    for schedule in (linear(7), sigmoidal(7), sigmoidal(7, 2.0)):
        assert (len(schedule), schedule[0], schedule[-1]) == (8, 0, 1)
        np.testing.assert_allclose(schedule + schedule[::-1], 1, atol=1e-12)
    assert np.diff(sigmoidal(100))[0] < 0.2 * np.diff(sigmoidal(100))[50]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: linear(0), "at least one step, got 0"),
        (lambda: sigmoidal(5, 0.0), "steepness must be above 0, got 0"),
        (lambda: persistent(HMC(), 1.0), "alpha must be at least 0 and below 1, got 1"),
        (lambda: estimate(HMC(), schedule=lambda n: np.linspace(0.1, 1, n)), "must rise from 0 to 1"),
        (lambda: estimate(Tempering(HMC(), [1.0, 0.5])), "replicas have temperatures of their own"),
        (lambda: estimate(HMC(), chains=1), "num_chains must be at least 2, got 1"),
    ],
)
def test_bad_use_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
