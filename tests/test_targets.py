"""Every target's energy, sampler and stated moments must describe one and the same distribution."""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as stats

from leapling.targets import (
    TARGETS,
    Banana,
    DiagonalGaussian,
    Funnel,
    Gaussian,
    GaussianMixture,
    RoughWell,
    mog2_unequal,
)

FULL = np.array([[[1.0, 0.6], [0.6, 0.5]], [[0.2, -0.1], [-0.1, 0.4]], [[2.0, 0.0], [0.0, 0.1]]])
# Beside the built-in targets, one of each class with no symmetry to hide behind, and a funnel whose variance
# estimates converge (at sd = 3 they would need more draws than there are).
EXTRA = {
    "diagonal": lambda: DiagonalGaussian([0.5, 2.0, 3.0], mean=[1.0, -2.0, 0.0]),
    "dense": lambda: Gaussian([[2.0, 0.7], [0.7, 1.0]], mean=[1.0, -1.0]),
    "full-mixture": lambda: GaussianMixture(MEANS["full-mixture"], FULL, [1.0, 2.0, 5.0]),
    "rough-well-0.3": lambda: RoughWell(eta=0.3),
    "rough-well-1": lambda: RoughWell(dim=1, eta=1.0),
    "mild-funnel": lambda: Funnel(dim=4, sd=0.5),
    "banana-3": lambda: Banana(scale=3.0, bend=0.2),
}
EVERY = TARGETS | EXTRA
NUM = 200_000


MEANS = {
    "mog": [[-2.0, 0.0], [2.0, 0.0]],
    "mog2": [[-5.0, 0.0], [5.0, 0.0]],
    "mog2-unequal": [[-2.5, 0.0], [2.5, 0.0]],
    "mog-20": [[-2.0] + [0.0] * 19, [2.0] + [0.0] * 19],
    "ring": [[5, 0], [-5, 0], [0, 5], [0, -5], *(np.sqrt(12.5) * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]))],
    "full-mixture": [[0.0, 1.0], [3.0, -1.0], [-2.0, 0.0]],
}
COVARIANCES = {
    "mog": [0.1 * np.eye(2)] * 2,
    "mog2": [0.5 * np.eye(2)] * 2,
    "mog2-unequal": [3.0 * np.eye(2), 0.05 * np.eye(2)],
    "mog-20": [0.1 * np.eye(20)] * 2,
    "ring": [0.1 * np.eye(2)] * 8,
    "full-mixture": list(FULL),
}


@cache
def build(name: str) -> tuple[Any, np.ndarray]:
    target = EVERY[name]()
    return target, np.asarray(target.sample(jax.random.key(0), NUM))


def normal(x, mean, sd):
    return -(((x - mean) / sd) ** 2) / 2 - np.log(sd * np.sqrt(2 * np.pi))


def multivariate_normal(x, mean, covariance):
    centred = x - np.asarray(mean)[:, None]
    distance = (centred * np.linalg.solve(covariance, centred)).sum(0)
    return -(distance + np.linalg.slogdet(2 * np.pi * covariance)[1]) / 2


def log_density(name: str, target: Any, x: np.ndarray) -> np.ndarray:
    """The density up to a constant, from its textbook definition."""
    match target:
        case GaussianMixture():
            weights = [0.125, 0.25, 0.625] if name == "full-mixture" else [1 / len(MEANS[name])] * len(MEANS[name])
            parts = zip(weights, MEANS[name], COVARIANCES[name], strict=True)
            return np.log(np.sum([w * np.exp(multivariate_normal(x, m, c)) for w, m, c in parts], axis=0))
        case Funnel():
            return normal(x[0], 0, target.sd) + normal(x[1:], 0, np.exp(x[0] / 2)).sum(0)
        case Banana():
            return normal(x[0], 0, target.scale) + normal(x[1], -target.bend * (x[0] ** 2 - target.scale**2), 1)
        case RoughWell():
            return np.log(ripple_density(x, target.eta)).sum(0)
        case _:
            return multivariate_normal(x, target.mean, target.covariance)


def ripple_density(x: np.ndarray, eta: float) -> np.ndarray:
    return np.exp(-(x**2) / 2 - eta * np.cos(x / eta))


@pytest.mark.parametrize("name", EVERY)
def test_energy_is_the_negative_log_density(name):
    target, draws = build(name)
    x = draws[:, :100]
    excess = np.asarray(jax.jit(jax.vmap(target, in_axes=-1))(x)) + log_density(name, target, x)
    # A mixture claims to be normalised; the others are free by a constant.
    constant = 0.0 if isinstance(target, GaussianMixture) else excess[0]
    np.testing.assert_allclose(excess, constant, atol=1e-9)


@pytest.mark.parametrize("name", EVERY)
def test_gradient_matches_finite_differences(name):
    target, draws = build(name)
    x, step = draws[:, :4], 1e-6
    shifts = step * np.eye(target.dim)[:, :, None]
    energies = jax.jit(jax.vmap(jax.vmap(target, in_axes=-1), in_axes=-1))
    difference = (energies(x[:, None] + shifts) - energies(x[:, None] - shifts)) / (2 * step)
    gradient = jax.jit(jax.vmap(jax.grad(target), in_axes=-1))(x)
    np.testing.assert_allclose(difference, gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "funnel"])
def test_draws_have_the_stated_moments(name):
    target, x = build(name)
    assert x.shape == (target.dim, NUM)
    np.testing.assert_allclose(target.variance, np.diag(target.covariance), rtol=1e-12)
    assert np.all(np.abs(x.mean(1) - target.mean) < 5 * x.std(1) / np.sqrt(NUM))
    centred = x - target.mean[:, None]
    second = centred @ centred.T / NUM
    fourth = (centred**2) @ (centred**2).T / NUM
    standard_error = np.sqrt((fourth - second**2) / NUM)
    assert np.all(np.abs(second - target.covariance) < 5 * standard_error)


def test_funnel_draws_have_the_stated_conditionals():
    target, x = build("funnel")
    assert stats.kstest(x[0] / 3, "norm").pvalue > 1e-3
    scaled = x[1:] * np.exp(-x[0] / 2)
    for row in scaled:
        assert stats.kstest(row, "norm").pvalue > 1e-3
    # Independence of the scale, and of one another, also in size.
    for rows in (np.vstack([x[:1], scaled]), np.vstack([x[:1], scaled]) ** 2):
        correlation = np.corrcoef(rows)[np.triu_indices(10, 1)]
        assert np.all(np.abs(correlation) < 5 / np.sqrt(NUM))
    grid = np.linspace(-40, 60, 100_001)
    mixed = np.exp(normal(grid, 0, 3) + grid).sum() * (grid[1] - grid[0])
    np.testing.assert_allclose(target.variance, [9.0] + [mixed] * 9, rtol=1e-9)


def test_banana_draws_have_the_stated_conditionals():
    _, x = build("banana")
    assert stats.kstest(x[0] / 10, "norm").pvalue > 1e-3
    residual = x[1] + 0.03 * (x[0] ** 2 - 100)
    assert stats.kstest(residual, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(residual, x[0])[0, 1]) < 5 / np.sqrt(NUM)


@pytest.mark.parametrize("eta", [0.3, 0.1])
def test_rough_well_draws_carry_the_ripple(eta):
    x = np.asarray(RoughWell(eta=eta).sample(jax.random.key(5), NUM)).reshape(-1)
    edges = np.arange(-3.0, 3.0, 2 * np.pi * eta / 8)
    inner = (np.arange(50) + 0.5) / 50
    fine = edges[:-1, None] + np.diff(edges)[:, None] * inner
    observed = np.histogram(x, edges)[0]

    def p_value(density: np.ndarray) -> float:
        mass = density.sum(1)
        return float(stats.chisquare(observed, observed.sum() * mass / mass.sum()).pvalue)

    assert p_value(ripple_density(fine, eta)) > 1e-3
    assert p_value(np.exp(-(fine**2) / 2)) < 1e-12


@pytest.mark.parametrize("eta", [1e-2, 0.1, 0.3, 0.6, 1.0])
def test_rough_well_variance_matches_quadrature(eta):
    grid = np.arange(-12.0, 12.0, eta / 50)
    density = ripple_density(grid, eta)
    expected = (grid**2 * density).sum() / density.sum()
    np.testing.assert_allclose(RoughWell(dim=3, eta=eta).variance, expected, rtol=1e-10)


def test_published_constants():
    np.testing.assert_allclose(TARGETS["icg"]().variance[[0, -1]], [1e-2, 1e2])
    assert TARGETS["icg"]().dim == 50
    scg = TARGETS["scg"]()
    np.testing.assert_allclose(np.linalg.eigvalsh(scg.covariance), [1e-2, 1e2], rtol=1e-9)
    np.testing.assert_allclose(scg.covariance[0], [50.005, 49.995])
    np.testing.assert_allclose(TARGETS["mog"]().variance, [4.1, 0.1])
    np.testing.assert_allclose(TARGETS["mog2"]().variance, [25.5, 0.5])
    np.testing.assert_allclose(TARGETS["mog-20"]().variance, [4.1] + [0.1] * 19)
    np.testing.assert_allclose(TARGETS["ring"]().covariance, (25 / 2 + 0.1) * np.eye(2), atol=1e-14)
    np.testing.assert_allclose(mog2_unequal(separation=8.0).covariance, np.diag([16 + 1.525, 1.525]))
    assert TARGETS["rough-well"]() == RoughWell(dim=2, eta=0.01)
    assert TARGETS["rough-well-10"]() == RoughWell(dim=10, eta=0.01, name="rough-well-10")
    assert TARGETS["funnel"]() == Funnel(dim=10, sd=3.0)
    np.testing.assert_allclose(TARGETS["banana"]().variance, [100.0, 19.0])
    assert all(factory().name == name for name, factory in TARGETS.items())


def test_component_is_the_most_responsible_one():
    target = mog2_unequal()
    # 1.2 is nearer the narrow mode at 2.5, yet 5.8 of its standard deviations away: the wide one explains it.
    x = jnp.array([[-2.5, 2.5, 1.2, 6.0], [0.0, 0.1, 0.0, 0.0]])
    np.testing.assert_array_equal(target.component(x), [0, 1, 0, 0])
    np.testing.assert_array_equal(target.component(x.reshape(2, 2, 2)), [[0, 1], [0, 0]])
    assert target.component(x[:, 1]).shape == ()
    assert int(target.component(x[:, 1])) == 1
    apart = GaussianMixture([[0.0, 30.0], [30.0, 0.0], [-30.0, 0.0]], FULL, [1.0, 2.0, 5.0])
    draws = np.asarray(apart.sample(jax.random.key(6), NUM))
    component = np.asarray(apart.component(jnp.asarray(draws)))
    share = np.bincount(component) / NUM
    np.testing.assert_allclose(share, [0.125, 0.25, 0.625], atol=5 * np.sqrt(0.25 / NUM))
    for k, covariance in enumerate(FULL):
        diagonal = np.diag(covariance)
        standard_error = np.sqrt((np.outer(diagonal, diagonal) + covariance**2) / (share[k] * NUM))
        assert np.all(np.abs(np.cov(draws[:, component == k]) - covariance) < 5 * standard_error)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_dtype_follows_the_input(name, dtype):
    target, _ = build(name)
    draws = jax.eval_shape(lambda key: target.sample(key, 3, dtype), jax.random.key(0))
    assert (draws.shape, draws.dtype) == ((target.dim, 3), dtype)
    energy, gradient = jax.eval_shape(jax.value_and_grad(target), jax.ShapeDtypeStruct((target.dim,), dtype))
    assert (energy.shape, energy.dtype, gradient.dtype) == ((), dtype, dtype)
    assert target.mean.dtype == target.variance.dtype == target.covariance.dtype == np.float64


@pytest.mark.parametrize("name", EVERY)
def test_works_without_x64(name):
    wide, draws = build(name)
    x = draws[:, :100].astype(np.float32)
    expected = jax.jit(jax.vmap(wide, in_axes=-1))(x.astype(np.float64))
    with jax.enable_x64(False):
        target = EVERY[name]()
        narrow = target.sample(jax.random.key(8), 100)
        energy = jax.jit(jax.vmap(target, in_axes=-1))(x)
        assert narrow.dtype == energy.dtype == jnp.float32
        assert np.isfinite(narrow).all()
        np.testing.assert_array_equal(target.variance, wide.variance)
    np.testing.assert_allclose(energy, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", EVERY)
def test_equal_targets_share_a_compilation_and_offer_nothing_to_train(name):
    count = 0

    @eqx.filter_jit
    def evaluate(target, x):
        nonlocal count
        count += 1
        return target(x)

    for target in (EVERY[name](), EVERY[name]()):
        assert jnp.isfinite(evaluate(target, jnp.zeros(target.dim)))
        assert jax.tree.leaves(target) == []
    assert count == 1


def test_different_constants_are_told_apart():
    assert DiagonalGaussian([1.0, 2.0]) == DiagonalGaussian([1.0, 2.0])
    assert DiagonalGaussian([1.0, 2.0]) != DiagonalGaussian([1.0, 3.0])
    evaluate = eqx.filter_jit(lambda target, x: target(x))
    assert float(evaluate(DiagonalGaussian([1.0, 2.0]), jnp.ones(2))) == pytest.approx(0.75)
    assert float(evaluate(DiagonalGaussian([1.0, 4.0]), jnp.ones(2))) == pytest.approx(0.625)


@pytest.mark.parametrize("dim", [10_000, 100_000])
def test_diagonal_gaussian_scales(dim):
    # A dense covariance would be 80 GB at the larger size.
    target = DiagonalGaussian(np.linspace(1.0, 4.0, dim))
    x = target.sample(jax.random.key(9), 8)
    energy, gradient = jax.jit(jax.value_and_grad(target))(x[:, 0])
    np.testing.assert_allclose(energy, (np.asarray(x[:, 0]) ** 2 / target.variance).sum() / 2, rtol=1e-10)
    np.testing.assert_allclose(gradient, np.asarray(x[:, 0]) / target.variance, rtol=1e-10)
    assert abs(float(energy) - dim / 2) < 5 * np.sqrt(dim / 2)


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: DiagonalGaussian([1.0, -1.0]), "positive"),
        (lambda: DiagonalGaussian([1.0, np.inf]), "finite"),
        (lambda: DiagonalGaussian(np.eye(2)), r"shape \(2, 2\).*`Gaussian`"),
        (lambda: DiagonalGaussian([1.0, 1.0], mean=[0.0]), r"mean has shape \(1,\)"),
        (lambda: Gaussian([[1.0, 0.5], [0.4, 1.0]]), "not symmetric"),
        (lambda: Gaussian([[1.0, 2.0], [2.0, 1.0]]), "not positive definite"),
        (lambda: Gaussian([1.0, 2.0]), "square matrix"),
        (lambda: Gaussian(np.eye(2), mean=[1.0]), r"mean has shape \(1,\)"),
        (lambda: GaussianMixture([0.0, 1.0], [1.0, 1.0]), r"\(components, dim\)"),
        (lambda: GaussianMixture([[0.0], [1.0]], [1.0]), "covariances has shape"),
        (lambda: GaussianMixture([[0.0], [1.0]], [1.0, -1.0]), "not positive definite"),
        (lambda: GaussianMixture([[0.0], [1.0]], [1.0, 1.0], [1.0, 0.0]), "2 positive numbers"),
        (lambda: RoughWell(eta=0.0), "eta is 0.0"),
        (lambda: RoughWell(eta=3.0), "at most 1"),
        (lambda: RoughWell(dim=0), "dim is 0"),
        (lambda: Funnel(dim=1), "dim >= 2"),
        (lambda: Banana(scale=-1.0), "scale > 0"),
    ],
)
def test_bad_constants_are_refused(construct, message):
    with pytest.raises(ValueError, match=message):
        construct()
