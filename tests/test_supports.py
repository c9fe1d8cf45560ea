"""Constrained parameters: Jacobians are those of autodiff, expectations those of quadrature, mutants are seen."""

import sys
from pathlib import Path
from types import ModuleType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import leapling.supports
from leapling.diagnostics import check_kernel
from leapling.energy import as_energy
from leapling.kernels import HMC
from leapling.supports import Unconstrained, constraints

c = constraints()


def entries(x):
    return x.reshape(-1)


def all_but_last(x):
    return x[..., :-1].reshape(-1)


def below_diagonal(x):
    return x[jnp.tril_indices(x.shape[-1], -1)]


# The constraint, the shape, and the coordinates of a manifold in which its density is stated.
SUPPORTS = {
    "real": (c.real, (), entries),
    "real vector": (c.real_vector, (3,), entries),
    "real matrix": (c.real, (2, 3), entries),
    "positive": (c.positive, (), entries),
    "positives": (c.positive, (3,), entries),
    "greater": (c.greater_than(-1.5), (2,), entries),
    "less": (c.less_than(0.5), (2,), entries),
    "interval": (c.interval(-1.0, 3.0), (), entries),
    "intervals": (c.interval(np.array([0.0, 1.0]), np.array([0.5, 4.0])), (2,), entries),
    "unit interval": (c.unit_interval, (2,), entries),
    "simplex": (c.simplex, (4,), all_but_last),
    "simplices": (c.simplex, (2, 3), all_but_last),
    "ordered": (c.ordered_vector, (4,), entries),
    "correlation Cholesky": (c.corr_cholesky, (4, 4), below_diagonal),
    "correlation matrix": (c.corr_matrix, (4, 4), below_diagonal),
}
each = pytest.mark.parametrize("name", SUPPORTS)


def flat(parameters):
    return 0.0


def build(name, energy=flat, of=Unconstrained):
    constraint, shape, _ = SUPPORTS[name]
    return of(energy, {"x": (constraint, shape)})


def points(dim, num=4):
    return np.random.default_rng(dim).normal(size=(dim, num))


def log_jacobian_law(pulled, coordinates):
    """With a flat energy, -U(z) is log|det| of the map from z to the coordinates of the support."""
    z = jnp.asarray(points(pulled.dim))
    energies = jax.jit(jax.vmap(pulled, in_axes=-1))(z)
    jacobian = jax.jacobian(lambda z: coordinates(pulled.constrain(z)["x"]))
    jacobians = jax.jit(jax.vmap(jacobian, in_axes=-1))(z)
    assert jacobians.shape == (z.shape[1], pulled.dim, pulled.dim)
    np.testing.assert_allclose(-energies, np.linalg.slogdet(jacobians)[1], rtol=1e-9, atol=1e-9)


@each
def test_jacobian_is_that_of_autodiff(name):
    log_jacobian_law(build(name), SUPPORTS[name][2])


@each
def test_round_trip(name):
    pulled = build(name)
    z = points(pulled.dim, 6).reshape(pulled.dim, 2, 3)
    parameters = jax.jit(pulled.constrain)(jnp.asarray(z))
    assert parameters["x"].shape == (*SUPPORTS[name][1], 2, 3)
    np.testing.assert_allclose(jax.jit(pulled.unconstrain)(parameters), z, rtol=1e-9, atol=1e-9)
    one = jax.jit(pulled.constrain)(jnp.asarray(z[:, 1, 2]))
    np.testing.assert_allclose(one["x"], parameters["x"][..., 1, 2], rtol=1e-12)
    assert np.all(SUPPORTS[name][0](np.asarray(one["x"])))  # NumPyro's test, on which `unconstrain` does not rely


@each
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_dtype_follows_z(name, dtype):
    def energy(parameters):
        return jnp.sum(parameters["x"] ** 2)

    pulled = build(name, energy)
    z = jnp.asarray(points(pulled.dim), dtype)
    evaluate = jax.jit(as_energy(pulled).value_and_grad)
    value, gradient = evaluate(z)
    assert value.dtype == gradient.dtype == dtype
    assert jax.eval_shape(lambda z: pulled.unconstrain(pulled.constrain(z)), z).dtype == dtype
    exact, slope = evaluate(jnp.asarray(z, jnp.float64))
    np.testing.assert_allclose(value, exact, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(gradient, slope, rtol=2e-4, atol=2e-4)
    with jax.enable_x64(False):
        assert jax.eval_shape(pulled, z[:, 0].astype(jnp.float32)).dtype == jnp.float32


# A density of one unknown on each kind of support: its energy, up to a constant, and its law.
ONE_DIMENSIONAL = {
    "positive": (c.positive, (), lambda x: 2.5 * x - 2 * jnp.log(x), stats.gamma(3, scale=0.4)),
    "greater": (c.greater_than(1.0), (), lambda x: 2 * (x - 1) - jnp.log(x - 1), stats.gamma(2, loc=1, scale=0.5)),
    "less": (c.less_than(1.0), (), lambda x: 2 * (1 - x), stats.expon(scale=0.5)),
    "interval": (c.interval(-1.0, 3.0), (), lambda x: x**2 / 2, stats.truncnorm(-1, 3)),
    "unit interval": (c.unit_interval, (), lambda x: -jnp.log(x) - 4 * jnp.log1p(-x), stats.beta(2, 5)),
    "simplex": (c.simplex, (2,), lambda x: -jnp.log(x[0]) - 4 * jnp.log(x[1]), stats.beta(2, 5)),
    "correlation": (c.corr_matrix, (2, 2), lambda x: -2 * jnp.log1p(x[0, 1]), stats.beta(3, 1, loc=-1, scale=2)),
}


def expectation_law(pulled, law, name):
    """E cos(x) over z, by quadrature of exp(-U(z)), is E cos(x) over x, by quadrature of the density."""
    z = np.linspace(-45, 45, 20_001)
    weight = np.exp(-np.asarray(jax.jit(jax.vmap(pulled, in_axes=-1))(z[None])))
    x = np.asarray(jax.jit(pulled.constrain)(z[None])["x"])
    x = {"simplex": lambda: x[0], "correlation": lambda: x[0, 1], "less": lambda: 1 - x}.get(name, lambda: x)()
    found = (weight * np.cos(x)).sum() / weight.sum()
    lower, upper = law.support()
    expected = integrate.quad(lambda x: np.cos(x) * law.pdf(x), lower, min(upper, 50), epsabs=1e-12)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("name", ONE_DIMENSIONAL)
def test_expectations_are_those_of_the_constrained_side(name):
    constraint, shape, energy, law = ONE_DIMENSIONAL[name]
    expectation_law(Unconstrained(lambda p: energy(p["x"]), {"x": (constraint, shape)}), law, name)


def below(parameters):
    return c.interval(0.0, 1 - parameters["first"])


PAIR = {"first": (c.unit_interval, ()), "second": (below, ()), "rest": (c.positive, (2,))}  # not in order of names


def test_bounds_that_depend_on_a_parameter_before():
    pulled = Unconstrained(flat, PAIR)
    assert (pulled.dim, pulled.names) == (4, ("first", "second", "rest"))
    z = jnp.asarray(points(4, 50))
    parameters = jax.jit(pulled.constrain)(z)
    assert list(pulled.constrain(z)) == list(PAIR)
    assert np.all((parameters["second"] > 0) & (parameters["second"] < 1 - parameters["first"]))
    np.testing.assert_allclose(pulled.unconstrain(parameters), z, rtol=1e-9, atol=1e-9)


def test_triangle_by_quadrature():
    """A flat density on first + second < 1: the mean of each is 1/3, of their product 1/12."""
    pulled = Unconstrained(flat, {"first": PAIR["first"], "second": PAIR["second"]})
    z = np.stack(np.meshgrid(*[np.linspace(-30, 30, 1501)] * 2, indexing="ij"))
    weight = np.exp(-np.asarray(jax.jit(jax.vmap(jax.vmap(pulled, -1), -1))(z))).T
    a, b = (np.asarray(value) for value in pulled.constrain(jnp.asarray(z)).values())
    for value, expected in ((a, 1 / 3), (b, 1 / 3), (a * b, 1 / 12)):
        np.testing.assert_allclose((weight * value).sum() / weight.sum(), expected, rtol=1e-6)


def test_a_kernel_leaves_it_invariant():
    class Draws(eqx.Module):
        """Gamma(3, 1) through its logarithm, with exact draws for the rank test."""

        pulled: Unconstrained
        dim: int = eqx.field(static=True, default=1)

        def __call__(self, z):
            return self.pulled(z)

        def sample(self, key, num, dtype=None):
            return jnp.log(jax.random.gamma(key, 3.0, (1, num), dtype))

    target = Draws(Unconstrained(lambda p: p["x"] - 2 * jnp.log(p["x"]), {"x": (c.positive, ())}))
    assert check_kernel(HMC(0.7, 2), target, laws=["invariance"])["invariance"].status == "passed"


def test_equal_energies_share_a_compilation():
    count = 0

    @eqx.filter_jit
    def evaluate(energy, z):
        nonlocal count
        count += 1
        return energy(z)

    for scale in (2.0, 2.0, 3.0):
        evaluate(Unconstrained(flat, PAIR | {"rest": (c.interval(0.0, scale), (2,))}), jnp.zeros(4))
    assert count == 2


SOURCE = Path(leapling.supports.__file__).read_text()
MUTANTS = {
    "no log-Jacobian": ("return self.energy(parameters) - log_jacobian", "return self.energy(parameters)"),
    "wrong sign": ("self.energy(parameters) - log_jacobian", "self.energy(parameters) + log_jacobian"),
    "the last one alone": ("log_jacobian += added", "log_jacobian = added"),
    "the first coordinate alone": (
        "jnp.sum(f.log_abs_det_jacobian(free, value))",
        "jnp.ravel(f.log_abs_det_jacobian(free, value))[0]",
    ),
    "all from the first coordinates": ("            start += support.size\n", ""),
    "bounds at another value": ("free = support.bijection(parameters)", "free = support.bijection({'first': 0.1})"),
}


def mutant(name):
    """`Unconstrained` with one edit of its source."""
    old, new = MUTANTS[name]
    assert SOURCE.count(old) == 1
    module = sys.modules["mutant_supports"] = ModuleType("mutant_supports")
    exec(compile(SOURCE.replace(old, new), "mutant_supports", "exec"), vars(module))
    return module.Unconstrained


def pair_law(of):
    pulled, right, z = of(flat, PAIR), Unconstrained(flat, PAIR), jnp.asarray(points(4))

    def flattened(z):
        return jnp.concatenate([value.reshape(-1) for value in right.constrain(z).values()])

    expected = np.linalg.slogdet(jax.jit(jax.vmap(jax.jacobian(flattened), -1))(z))[1]
    np.testing.assert_allclose(-jax.jit(jax.vmap(pulled, -1))(z), expected, rtol=1e-10)


@pytest.mark.parametrize("name", MUTANTS)
def test_mistakes_are_seen_by_autodiff(name):
    pair_law(Unconstrained)
    with pytest.raises(AssertionError):
        pair_law(mutant(name))


@pytest.mark.parametrize("name", ["no log-Jacobian", "wrong sign"])
@pytest.mark.parametrize("support", ["positive", "interval", "simplex", "correlation"])
def test_mistakes_are_seen_by_quadrature(name, support):
    constraint, shape, energy, law = ONE_DIMENSIONAL[support]
    pulled = mutant(name)(lambda p: energy(p["x"]), {"x": (constraint, shape)})
    with pytest.raises(AssertionError):
        expectation_law(pulled, law, support)
