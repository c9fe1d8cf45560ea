"""What does not fit a constrained parameter is refused by its name; NumPyro is imported late, and asked for."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from leapling.supports import MissingNumPyro, Unconstrained, constraints

c = constraints()


def flat(parameters):
    return 0.0


def below(parameters):
    return c.interval(0.0, 1 - parameters["first"])


PAIR = {"first": (c.unit_interval, ()), "second": (below, ()), "rest": (c.positive, (2,))}


@pytest.mark.parametrize(
    ("supports", "said"),
    [
        ({}, "supports is empty"),
        ({"a": c.positive}, "'a' has the support .*a pair"),
        ({"a": ("positive", ())}, "'a' was given positive and the shape .*not callable"),
        ({"a": (c.simplex, ())}, r"'a' was given Simplex\(\) and the shape \(\).*Too few dimensions"),
        ({"a": (c.ordered_vector, ())}, "'a' was given OrderedVector.*a bijection to that shape"),
        ({"a": (c.corr_matrix, (2, 3))}, "'a' was given .*not square"),
        ({"a": (c.boolean, ())}, "'a' was given Boolean.*NotImplementedError"),
        ({"a": (c.interval(np.zeros(2), np.ones(2)), ())}, r"'a' was given .*the shape \(\), but it makes \(2,\)"),
        ({"second": (below, ())}, r"'second'.*depends on other.*KeyError: 'first'.*before it \(none\)"),
        ({"first": (c.positive, ()), "second": (lambda p: 1.0, ())}, r"'second'.*before it \(first\)"),
    ],
)
def test_bad_supports_are_refused_by_name(supports, said):
    with pytest.raises(ValueError, match=said):
        Unconstrained(flat, supports)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"first": 1.5}, r"'first' is 1.5.*UnitInterval"),
        ({"first": 0.0}, "'first' is 0.0, a value inside"),
        ({"second": 0.9}, "'second' is 0.9.*depends on other parameters"),
        ({"rest": [1.0, -1.0]}, "'rest' is .*Positive"),
        ({"rest": [1.0, 2.0, 3.0]}, r"'rest' has shape \(3,\), \(2,\) and the same chain axes"),
        ({"second": [0.1, 0.2]}, r"'second' has shape \(2,\), \(\) and the same"),
        ({"third": 1.0}, "parameters first, second, rest, third were given, first, second, rest are needed"),
    ],
)
def test_bad_parameters_are_refused_by_name(changes, said):
    with pytest.raises(ValueError, match=said):
        Unconstrained(flat, PAIR).unconstrain({"first": 0.5, "second": 0.2, "rest": [1.0, 2.0]} | changes)


@pytest.mark.parametrize(
    ("support", "value"),
    [
        ((c.simplex, (3,)), [0.5, 0.4, 0.2]),
        ((c.ordered_vector, (3,)), [0.0, 2.0, 1.0]),
        ((c.corr_cholesky, (2, 2)), [[1.0, 0.0], [0.6, 0.9]]),
        ((c.corr_matrix, (2, 2)), [[1.0, 0.5], [0.4, 1.0]]),
        ((c.corr_matrix, (2, 2)), [[1.0, 1.5], [1.5, 1.0]]),
        ((c.interval(0.0, 1.0), ()), 1.0),
    ],
)
def test_values_outside_their_support_are_refused(support, value):
    with pytest.raises(ValueError, match="a value inside its support is needed"):
        Unconstrained(flat, {"x": support}).unconstrain({"x": value})


def test_a_point_of_another_size_is_refused():
    with pytest.raises(ValueError, match="z has 5 coordinates, 4 are needed for first, second, rest"):
        Unconstrained(flat, PAIR)(jnp.zeros(5))


def test_numpyro_is_imported_when_first_needed():
    code = "import sys, leapling, leapling.targets; sys.exit('numpyro' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_numpyro_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro.distributions", None)
    with pytest.raises(MissingNumPyro, match=r"pip install 'leapling\[supports\]'"):
        constraints()
    with pytest.raises(MissingNumPyro):
        Unconstrained(flat, {"x": ("positive", ())})
