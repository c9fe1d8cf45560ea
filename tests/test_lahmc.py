"""LAHMC: its probabilities, its invariance both ways in time, its cost, and its mutants."""

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest
from jaxtyping import DTypeLike

from leapling.chains import sample
from leapling.coordinates import Affine
from leapling.diagnostics import check_kernel
from leapling.energy import Energy
from leapling.kernels import HMC, L2HMC, LAHMC, InCoordinates, Kernel
from leapling.kernels.lahmc import landing_probabilities
from leapling.targets import Gaussian, GaussianMixture
from leapling.training import train

TARGET = Gaussian([[1.0, 0.6], [0.6, 1.0]], mean=np.array([0.5, 0.0]))
ROUGH: Callable = lambda x: x[0] ** 2 / 2 + jnp.sin(2 * x[0])  # noqa: E731
BIMODAL = GaussianMixture([[-1.0, 0.0], [1.5, 0.5]], [1.0, 0.6])


def l2hmc(dtype: DTypeLike = np.float64) -> L2HMC:
    """Heads of a trained kernel's size, so that S, Q and T matter and many proposals fail."""
    kernel = L2HMC(2, 2, widths=(8,), step_size=0.6, key=jax.random.key(0), dtype=dtype)
    keys = jax.random.split(jax.random.key(1))
    return eqx.tree_at(
        lambda k: (k.v_network.heads.weight, k.x_network.heads.weight),
        kernel,
        tuple(jnp.asarray(0.5, dtype) * jax.random.normal(key, (6, 8), dtype) for key in keys),
    )


def transcribed(weights: list[float], path: list[int]) -> float:
    """pi of landing on the last state of a path, as the paper defines it: by the probabilities from either end."""
    start, end = path[0], path[-1]

    def left(path):
        return 1 - sum(transcribed(weights, path[: b + 1]) for b in range(1, len(path) - 1))

    return min(left(path), np.exp(weights[end] - weights[start]) * left(path[::-1]))


@pytest.mark.parametrize("num", [2, 3, 5])
def test_landing_probabilities_are_those_of_the_definition(num):
    weights = 2 * np.random.default_rng(num).normal(size=(num, 20))
    found = np.asarray(landing_probabilities(jnp.asarray(weights)))
    for i, chain in enumerate(weights.T):
        expected = [transcribed(chain, list(range(a + 1))) for a in range(1, num)]
        np.testing.assert_allclose(found[:, i], expected, rtol=1e-10, atol=1e-14)
    assert (found.sum(axis=0) <= 1 + 1e-12).all()
    assert found.std() > 0.05


def test_landing_probabilities_of_extreme_weights():
    weights = jnp.array([[0.0, 0, 0, 0], [-jnp.inf, 1e5, -1e5, 3], [-jnp.inf, -1e5, 1e5, -jnp.inf]])
    np.testing.assert_allclose(landing_probabilities(weights), [[0, 1, 0, 1], [0, 0, 1, 0]], atol=1e-300)


KERNELS = {
    "HMC with jitter": lambda: LAHMC(HMC(1.1, 3, step_size_jitter=0.3, length_jitter=0.5), 3, 0.2),
    "whitened HMC": lambda: LAHMC(InCoordinates(HMC(1.3, 2), Affine([0.5, 0], [[1, 0], [0.6, 0.8]])), 3, 0.4),
    "L2HMC": lambda: LAHMC(l2hmc(), 3, 0.4),
    "L2HMC in float32": lambda: LAHMC(l2hmc(np.float32), 2, 1.0),
}


@pytest.mark.parametrize("name", KERNELS)
def test_every_law(name):
    laws = ["invariance"] if "jitter" in name else ["round trip", "cache", "temperature", "invariance"]
    report = check_kernel(KERNELS[name](), BIMODAL, laws=laws)
    assert {law.status for law in report.laws} == {"passed"}
    assert "16 statistics" in report["invariance"].detail  # those of v and d among them


@pytest.mark.parametrize("operator", [HMC(1.7, 2), L2HMC(1, 3, step_size=0.9, key=jax.random.key(0))])
def test_quadrature_in_one_dimension(operator):
    report = check_kernel(LAHMC(operator, 3, 0.2), ROUGH, dim=1, laws=["quadrature", "invariance"])
    assert report["quadrature"].status == "passed"
    assert report["invariance"].status == "on a stand-in"


def test_the_chain_is_not_reversible():
    """Run backward by itself it fails: the rank test does use the reversed kernel."""

    class Forward(Kernel):
        """Without `reversed`, as if it were its own reverse."""

        kernel: LAHMC

        def init(self, energy, position, *, key=None):
            return self.kernel.init(energy, position, key=key)

        def step(self, energy, state, *, key):
            return self.kernel.step(energy, cast(Any, state), key=key)

    kernel = Forward(LAHMC(HMC(1.3, 2), 4, 0.1))
    assert check_kernel(kernel, TARGET, laws=["invariance"]).failed_laws == ("invariance",)


# The recursion matters where later trajectories are landed on, which those of the learned operator hardly are.
LONG_PATHS = LAHMC(HMC(1.4, 1), 5, 0.05)


def twins(mutant: mutants.Mutant, learned: LAHMC) -> LAHMC:
    return mutants.build_lahmc(mutant, learned if "log|J|" in mutant.name else LONG_PATHS)


@pytest.mark.parametrize("mutant", mutants.LAHMC_MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_seen(mutant):
    kernel = twins(mutant, LAHMC(l2hmc(), 4, 0.2))
    target = TARGET if "log|J|" in mutant.name else BIMODAL
    assert check_kernel(kernel, target, laws=mutant.seen_by).failed_laws == mutant.seen_by


@pytest.mark.parametrize(
    "mutant",
    [m for m in mutants.LAHMC_MUTANTS if "ratio" in m.name or "nothing is subtracted" in m.name],
    ids=lambda mutant: mutant.name,
)
def test_mutant_is_seen_by_quadrature(mutant):
    """For n = 1, on the energy itself."""
    learned = L2HMC(1, 2, widths=(8,), step_size=0.9, key=jax.random.key(0))
    learned = eqx.tree_at(lambda k: k.v_network.heads.weight, learned, replace_fn=lambda w: 60 * w)
    kernel = twins(mutant, LAHMC(learned, 4, 0.2))
    assert check_kernel(kernel, ROUGH, dim=1, laws=["quadrature"]).failed_laws == ("quadrature",)


@pytest.mark.parametrize(("right", "target"), [(LAHMC(l2hmc(), 4, 0.2), TARGET), (LONG_PATHS, BIMODAL)])
def test_the_unchanged_twin_passes(right, target):
    kernel = mutants.build_lahmc(mutants.IDENTITY, right)
    assert type(kernel) is not LAHMC
    check_kernel(kernel, target, laws=["invariance"]).assert_passed()


def test_a_chain_alone_evaluates_what_it_is_charged():
    count = 0

    def value_and_gradient(x):
        nonlocal count
        count += 1
        return np.sum(x**2), 2 * x

    @jax.custom_vjp
    def energy(x):
        return jnp.sum(x**2)

    def forward(x):
        return jax.pure_callback(value_and_gradient, (jax.ShapeDtypeStruct((), x.dtype), x), x)

    energy.defvjp(forward, lambda gradient, ct: (ct * gradient,))
    kernel = LAHMC(HMC(0.8, 2), 4, 0.3)
    state = kernel.init(energy, jnp.array([0.3, -0.2, 1.0]), key=jax.random.key(0))
    step, charged = eqx.filter_jit(kernel.step), []
    for i in range(60):
        jax.block_until_ready(state)
        count = 0
        state, info = jax.block_until_ready(step(energy, state, key=jax.random.key(i)))
        assert count == int(info.num_gradients)
        charged.append(count)
    assert len(set(charged)) >= 3
    assert set(charged) <= {2, 4, 6, 8}


def test_failure_flips_and_landing_does_not():
    """F flips d and leaves v for L2HMC, negates v for HMC."""
    for operator in (l2hmc(), HMC(1.5, 2)):
        kernel = LAHMC(operator, 2, 0.2)
        state = kernel.init(TARGET, TARGET.sample(jax.random.key(0), 500), key=jax.random.key(1))
        end, info = kernel.look_ahead(Energy(TARGET), state.phase, key=jax.random.key(2))
        failed = ~np.asarray(info.is_accepted)
        assert 20 < failed.sum() < 480
        assert np.array_equal(end.state.position[:, failed], state.position[:, failed])
        is_flipped = np.asarray(end.direction != state.direction)
        if isinstance(operator, L2HMC):
            assert np.array_equal(is_flipped, failed)
            assert np.array_equal(end.momentum[:, failed], state.momentum[:, failed])
        else:
            assert not is_flipped.any()
            assert np.array_equal(end.momentum[:, failed], -state.momentum[:, failed])
        assert (np.asarray(info.num_gradients)[failed] == 4).all()


def test_what_is_not_finite_is_never_landed_on_and_is_counted():
    def walled(x):
        return jnp.where(jnp.all(jnp.abs(x) < 2), 0.5 * jnp.sum(x**2), jnp.nan)

    draws = sample(
        LAHMC(HMC(0.4, 4), 3, 0.2), walled, num_draws=100, initial_positions=np.full((20, 2), 1.9), warn=False
    )
    assert np.abs(draws.positions).max() < 2
    assert draws.statistics["diverging"].any()
    assert np.isfinite(draws.statistics["energy"]).all()


def test_momentum_persists():
    kernel = LAHMC(HMC(0.05, 2), 2, 0.01)
    flat = lambda x: 0 * jnp.sum(x)  # noqa: E731
    state = kernel.init(flat, jnp.zeros((2, 50)), key=jax.random.key(0))
    after, _ = kernel.step(flat, state, key=jax.random.key(1))
    assert np.corrcoef(np.ravel(state.momentum), np.ravel(after.momentum))[0, 1] > 0.97


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LAHMC(HMC(), 0), "num_trajectories must be at least 1, got 0"),
        (lambda: LAHMC(HMC(), 2, 0.0), "refreshment must be above 0 and at most 1, got 0"),
        (lambda: LAHMC(HMC(), 2, 1.5), "refreshment must be above 0 and at most 1, got 1.5"),
        (lambda: LAHMC(LAHMC(HMC())), "needs an operator with propose and flip, such as HMC or L2HMC, got LAHMC"),
        (
            lambda: LAHMC(HMC()).init(TARGET, jnp.zeros(2)),
            "keeps its momentum and draws the first one: give init a key",
        ),
        (lambda: train(LAHMC(l2hmc()), TARGET, progress=False), "LAHMC is not trained: train its operator first"),
    ],
)
def test_bad_use_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
