"""The decorrelation objective: what it scores, what it cannot be fooled by, and that it trains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.kernels import L2HMC, Info, State
from leapling.targets import DiagonalGaussian
from leapling.training import Decorrelation, Recipe, train

NUM = 20_000


def state(x) -> State:
    return State(x, jnp.sum(x**2, axis=0) / 2, x)


def score(move, form: str, rate: float = 1.0) -> float:
    """Of a move of a standard normal in two dimensions."""
    x = jax.random.normal(jax.random.key(0), (2, NUM))
    full = jnp.full(NUM, rate)
    info = Info(full, full > 0, state(move(x)), 0 * full, 0 * full, full < 0, jnp.ones(NUM, jnp.int32))
    return float(Decorrelation(form)(state(x), info))


def anew(x):
    return jax.random.normal(jax.random.key(1), x.shape)


def rest(x):
    return x


def flip(x):
    return -x


def rotate(x):
    return jnp.stack([x[1], -x[0]])


@pytest.mark.parametrize(
    ("move", "form", "expected"),
    [
        (anew, "square", 0),
        (rest, "square", 1),
        # x: rho = -1; x^2 and U: 1.
        (flip, "square", 1),
        # Every x_i and x_i^2 is uncorrelated with its own next value; U, 1 of 5 statistics, stays.
        (rotate, "square", 0.2),
        (anew, "matrix", 0),
        (flip, "matrix", 1 + (2 * 0.5 + 0.5 + 0.5) / 5),
        (rotate, "matrix", 1 + (2 * 0.5 + 0.5 + 0.5) / 5),
        (rest, "matrix", 1 + (2 * 0.5 + 0.5 + 0.5) / 5),
        (anew, "log", -np.log(1.01)),
        (rest, "log", np.inf),
    ],
)
def test_known_moves_of_a_normal(move, form, expected):
    """Of the squares and U = (x1^2 + x2^2) / 2, the correlation is sqrt(1/2), and counts twice for each square."""
    assert score(move, form) == pytest.approx(expected, abs=0.05)


def test_a_rotation_costs_as_much_as_resting_by_the_matrix_alone():
    assert score(rotate, "square") < 0.25
    assert score(rotate, "matrix") > 0.95 * score(rest, "matrix")


def test_acceptance_mixes_moving_and_resting():
    for form in ("square", "matrix"):
        assert score(anew, form, 0.5) == pytest.approx(0.25 * score(rest, form), abs=0.03)


def test_one_wild_proposal_does_not_decide():
    def wild(x):
        return anew(x).at[:, 0].set(1e6)

    for form in ("square", "log", "matrix"):
        assert score(wild, form) == pytest.approx(score(anew, form), abs=0.02)
    assert np.isfinite(score(lambda x: anew(x).at[:, :5].set(jnp.nan), "square"))


@pytest.mark.parametrize("form", ["square", "log", "matrix"])
def test_it_trains(form):
    kernel = L2HMC(2, 2, step_size=0.2, key=jax.random.key(0), dtype=np.float32)
    recipe = Recipe(300, 100, objective=Decorrelation(form))
    history = train(kernel, DiagonalGaussian(np.ones(2)), recipe, progress=False).history
    assert history["skipped"].sum() == 0
    assert np.mean(history["loss"][-50:]) < np.mean(history["loss"][:50]) - 0.1


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="there is no form 'cube'; choose from square, log, matrix"):
        Decorrelation("cube")
    with pytest.raises(ValueError, match="cap must be above 0, got 0"):
        Decorrelation(cap=0.0)
