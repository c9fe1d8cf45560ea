"""Real posteriors: densities as SciPy has them, gradients as differences, expectations as posteriordb has them."""

import sys
from functools import cache, partial
from pathlib import Path
from types import ModuleType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference_posteriors import LOG_DENSITIES, grouped, load

from leapling.energy import as_energy
from leapling.targets import models, posteriors
from leapling.targets.models import MODELS
from leapling.targets.posteriors import posterior
from leapling.targets.predator_prey import STEPS_PER_INTERVAL, log_populations

each = pytest.mark.parametrize("name", MODELS)
SCHOOLS = "eight_schools-eight_schools_noncentered"
PREY = "hudson_lynx_hare-lotka_volterra"
NUM = 20  # one batch size, one compilation


@cache
def build(name):
    target = posterior(name, load(name)[0])
    return target, jax.jit(as_energy(target.energy).value_and_grad)


@cache
def region(name):
    """An unconstrained point at the means of the reference, and how far to go from it, in each coordinate."""
    target, reference = build(name)[0], load(name)[1]
    if name == SCHOOLS:  # not all of z is in the reference; of most, little more is known than the prior
        return np.array([0.0] * 8 + [4.4, 0.9]), np.array([1.0] * 8 + [3.5, 1.2])
    mean, sd = grouped(reference, "mean"), grouped(reference, "sd")
    near = {key: mean[key] + sd[key] / 2 for key in mean}
    centre, shifted = (np.asarray(target.energy.unconstrain(parameters)) for parameters in (mean, near))
    return centre, 2 * np.abs(shifted - centre)


@cache
def points(name):
    centre, scale = region(name)
    return centre[:, None] + scale[:, None] * np.random.default_rng(len(centre)).normal(size=(len(centre), NUM))


@each
def test_names_are_those_of_the_reference(name):
    target, reference = build(name)[0], load(name)[1]
    assert (target.name, target.dim) == (name, len(reference))
    z = jnp.asarray(points(name)[:, :6].reshape(-1, 2, 3))
    parameters = target.constrain(z)
    assert list(parameters) == list(target.names) == list(reference)
    assert all(value.shape == (2, 3) for value in parameters.values())
    if name == SCHOOLS:
        p = target.energy.constrain(z)
        np.testing.assert_allclose(parameters["theta[3]"], p["mu"] + p["tau"] * p["theta_trans"][2], rtol=1e-14)


def density_law(name, target):
    """The energy of an unconstrained point against SciPy, to rounding, and to the error of its steps for the ODE."""
    energies = jax.jit(jax.vmap(target.energy, -1))(points(name))
    p = {key: np.asarray(value) for key, value in build(name)[0].energy.constrain(jnp.asarray(points(name))).items()}
    log_density = partial(LOG_DENSITIES[name], d=load(name)[0])
    expected = [-log_density({key: value[..., i] for key, value in p.items()}) for i in range(NUM)]
    rtol = 2e-6 if name == PREY else 1e-11
    np.testing.assert_allclose(energies, expected, rtol=rtol, atol=1e-9)


@each
def test_density_is_that_of_scipy(name):
    density_law(name, build(name)[0])


@each
def test_gradient_is_that_of_differences(name):
    _, evaluate = build(name)
    gradient = np.asarray(evaluate(jnp.asarray(points(name)))[1])
    for i, step in enumerate(1e-4 * region(name)[1]):
        shift = step * np.eye(len(gradient))[:, i : i + 1]
        ahead, back = (np.asarray(evaluate(jnp.asarray(points(name) + s * shift))[0]) for s in (1, -1))
        scale = np.abs(gradient[i]).max()
        np.testing.assert_allclose((ahead - back) / (2 * step), gradient[i], rtol=1e-6, atol=1e-6 * scale)


@each
def test_single_precision(name):
    _, evaluate = build(name)
    z = jnp.asarray(points(name), jnp.float32)
    value, gradient = evaluate(z)
    assert value.dtype == gradient.dtype == jnp.float32
    exact, slope = evaluate(z.astype(jnp.float64))
    np.testing.assert_allclose(value, exact, rtol=1e-4)
    error = np.linalg.norm(np.asarray(gradient) - np.asarray(slope), axis=0) / np.linalg.norm(np.asarray(slope), axis=0)
    assert np.max(error) < 2e-3


def proposal(name):
    """A point and a Cholesky factor for importance sampling: a Newton step from the means of the reference."""
    centre, scale = region(name)
    if name == SCHOOLS:  # its curvature at one point says little
        return centre, np.diag(scale)
    dim, steps = len(centre), 1e-3 * scale
    batch = np.repeat(centre[:, None], NUM, axis=1)
    batch[:, :dim] += np.diag(steps)
    ahead = np.asarray(build(name)[1](jnp.asarray(batch))[1])
    batch[:, :dim] -= 2 * np.diag(steps)
    back = np.asarray(build(name)[1](jnp.asarray(batch))[1])
    hessian = (ahead - back)[:, :dim] / (2 * steps)
    covariance = np.linalg.inv((hessian + hessian.T) / 2)
    return centre - covariance @ ahead[:, -1], 1.1 * np.linalg.cholesky(covariance)


@each
def test_expectations_are_those_of_the_reference(name):
    """Means and mean squares by importance sampling from a Student t, within the error of both sides."""
    target, reference = build(name)[0], load(name)[1]
    centre, factor = proposal(name)
    dim, num, freedom = len(centre), 40_000, 7
    random = np.random.default_rng(0)
    t = random.normal(size=(dim, num)) / np.sqrt(random.chisquare(freedom, num) / freedom)
    z = jnp.asarray(centre[:, None] + factor @ t)
    log_proposal = -(freedom + dim) / 2 * np.log1p((t**2).sum(0) / freedom)
    log_weight = -np.asarray(jax.jit(jax.vmap(target.energy, -1))(z)) - log_proposal
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    assert 1 / (weight**2).sum() > 1000
    parameters = jax.jit(target.constrain)(z)
    for key, summary in reference.items():
        for power, mean, error in ((1, "mean", "mcse_mean"), (2, "mean_sq", "mcse_mean_sq")):
            value = np.asarray(parameters[key]) ** power
            found = (weight * value).sum()
            own = np.sqrt((weight**2 * (value - found) ** 2).sum())
            assert abs(found - summary[mean]) < 4.5 * np.hypot(own, summary[error]), (key, power)


@cache
def energies_with(steps_per_interval):
    """Energies of the Lotka-Volterra posterior when the equations are solved with so many steps a year."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "log_populations", partial(log_populations, steps_per_interval=steps_per_interval))
        return np.asarray(jax.jit(jax.vmap(build(PREY)[0].energy, -1))(points(PREY)))


def test_steps_are_fine_enough():
    """The error of the energy falls as the fourth power of the step, and is far below what a chain would notice."""
    fine = energies_with(16 * STEPS_PER_INTERVAL)
    error = {k: np.abs(energies_with(k) - fine) for k in (STEPS_PER_INTERVAL // 2, STEPS_PER_INTERVAL)}
    assert error[STEPS_PER_INTERVAL].max() < 1e-3
    order = np.log2(np.median(error[STEPS_PER_INTERVAL // 2]) / np.median(error[STEPS_PER_INTERVAL]))
    assert 3.7 < order < 4.5


@pytest.mark.parametrize("name", [PREY, "garch-garch11"])
def test_scans_are_differentiated_backward_twice(name):
    energy = build(name)[0].energy
    z = jnp.asarray(points(name)[:, 0])
    hessian = jax.jit(jax.jacrev(jax.grad(energy)))(z)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-9, atol=1e-9 * np.abs(hessian).max())
    steps = 1e-5 * jnp.eye(len(z))
    gradient = jax.jit(jax.vmap(jax.grad(energy)))
    difference = (gradient(z[None] + steps) - gradient(z[None] - steps)) / 2e-5
    np.testing.assert_allclose(hessian, difference, rtol=1e-5, atol=1e-6 * np.abs(hessian).max())


def test_equal_posteriors_share_a_compilation():
    count = 0

    @eqx.filter_jit
    def evaluate(energy, z):
        nonlocal count
        count += 1
        return energy(z)

    data = load("garch-garch11")[0]
    for given in (data, dict(data), data | {"sigma1": 0.6}):
        evaluate(posterior("garch-garch11", given).energy, jnp.zeros(4))
    assert count == 2


SOURCE = Path(models.__file__).read_text()
MUTANTS = {
    "tau has a narrower prior": (SCHOOLS, 'cauchy(p["tau"], 0, 5)', 'cauchy(p["tau"], 0, 2.5)'),
    "centred": (SCHOOLS, 'theta = p["mu"] + p["tau"] * p["theta_trans"]\n', 'theta = p["theta_trans"]\n'),
    "no interaction": ("kidiq-kidscore_interaction", "mom_hs * mom_iq]", "mom_hs]"),
    "no prior of the slope": ("kilpisjarvi_mod-kilpisjarvi", 'normal(p["beta"], d["pmubeta"], d["psbeta"])', "0"),
    "lags shifted by one": ("arK-arK", "range(1, order + 1)", "range(order)"),
    "absolute residual": ("garch-garch11", "before**2", "jnp.abs(before)"),
    "bound forgets alpha1": ("garch-garch11", '1 - p["alpha1"])', "1.0)"),
    "sigma squared": ("gp_pois_regr-gp_regr", 'p["sigma"] * jnp.eye', 'p["sigma"] ** 2 * jnp.eye'),
    "half the determinant": ("gp_pois_regr-gp_regr", "- jnp.sum(jnp.log(jnp.diag", "- 0.5 * jnp.sum(jnp.log(jnp.diag"),
    "shares exchanged": (
        "low_dim_gauss_mix-low_dim_gauss_mix",
        '[p["theta"], 1 - p["theta"]]',
        '[1 - p["theta"], p["theta"]]',
    ),
    "ages from one": ("nes1980-nes", "(2, 3, 4)", "(1, 2, 3)"),
    "priors exchanged": (PREY, "normal(theta[::2], 1, 0.5)", "normal(theta[1::2], 1, 0.5)"),
    "first year not observed": (PREY, 'log_normal(d["y_init"], jnp.log(z_init), sigma) + ', ""),
}


@pytest.mark.parametrize("mistake", MUTANTS)
def test_mistakes_are_seen(mistake, monkeypatch):
    name, old, new = MUTANTS[mistake]
    assert SOURCE.count(old) == 1
    module = ModuleType("mutant_models")
    monkeypatch.setitem(sys.modules, "mutant_models", module)
    exec(compile(SOURCE.replace(old, new), "mutant_models", "exec"), vars(module))
    monkeypatch.setattr(posteriors, "MODELS", module.MODELS)
    with pytest.raises(AssertionError):
        density_law(name, posterior(name, load(name)[0]))


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match=r"no posterior 'eight_schools' \(did you mean 'eight_schools-eight"):
        posterior("eight_schools", {})
    with pytest.raises(ValueError, match="the data of garch-garch11 has T, y, but 'sigma1' is needed too"):
        posterior("garch-garch11", {"T": 2, "y": [1.0, 2.0]})
