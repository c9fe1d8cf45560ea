"""The checks of exactness themselves: right kernels pass, wrong ones do not, and what cannot fail says so."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from leapling.diagnostics.exactness import ExactnessReport, Law, check_kernel
from leapling.diagnostics.exactness.box import NoBoxError, find_box
from leapling.diagnostics.exactness.rank import NUM_STATES, ranks, uniformity
from leapling.diagnostics.exactness.scale import find_scale
from leapling.diagnostics.exactness.sequential import GROWTH, sequential_test
from leapling.diagnostics.exactness.standin import fit_standin
from leapling.diagnostics.exactness.subject import make_subject
from leapling.energy import as_energy, tempered
from leapling.kernels import HMC, L2HMC, Info, Kernel
from leapling.kernels.base import evaluate, select
from leapling.targets import DiagonalGaussian, Gaussian, GaussianMixture

CORRELATED = Gaussian([[1.0, 0.6], [0.6, 1.0]], mean=np.array([0.5, 0.0]))


def l2hmc(dim: int, num_steps: int = 3, *, size: float, step_size: float, dtype="float64") -> L2HMC:
    """Untrained, with heads of standard deviation `size`, so that S, Q and T matter."""
    kernel = L2HMC(dim, num_steps, widths=(8,), step_size=step_size, key=jax.random.key(0), dtype=dtype)
    keys = jax.random.split(jax.random.key(1))
    return eqx.tree_at(
        lambda k: (k.v_network.heads.weight, k.x_network.heads.weight),
        kernel,
        tuple(size * jax.random.normal(key, (3 * dim, 8), dtype) for key in keys),
    )


def waves(x):
    """A one-dimensional energy without exact draws."""
    return x[0] ** 2 / 2 + jnp.sin(2 * x[0])


def bent(x):
    """A two-dimensional energy without exact draws, far from Gaussian."""
    return x[0] ** 4 / 4 + (x[1] - x[0] ** 2) ** 2


# Kernels that are right.


def test_every_law_of_l2hmc_in_two_dimensions():
    target = GaussianMixture([[-1.0, 0.0], [1.5, 0.5]], [1.0, 0.6])
    report = check_kernel(l2hmc(2, size=0.5, step_size=0.3), target)
    report.assert_passed()
    assert {law.status for law in report.laws} == {"passed"}
    assert [law.name for law in report.laws] == [
        "round trip (float64)",
        "round trip (float32)",
        "log-determinant",
        "antisymmetry",
        "acceptance",
        "cache",
        "temperature",
        "invariance",
    ]
    spread = float(report["log-determinant"].detail.split("sd is ")[1].split(")")[0])
    assert spread > 1, "log|J| must be of a size that matters"
    # Rounding errors are of the size the condition number predicts, a fraction of what is tolerated.
    for name in ("round trip (float64)", "round trip (float32)"):
        measured = report[name].measured
        assert measured is not None
        assert 0 < measured < 20
    assert json.loads(json.dumps(report.to_dict()))["passed"] is True
    assert str(report).splitlines()[-1] == "verdict: passed"


def test_every_law_of_hmc_with_jitter():
    """Its loop has a traced length: the Jacobian must come about all the same."""
    kernel = HMC(0.8, 2, step_size_jitter=0.2, length_jitter=0.4)
    report = check_kernel(kernel, CORRELATED)
    report.assert_passed()
    assert {law.status for law in report.laws} == {"passed"}


def test_a_float32_kernel_in_six_dimensions():
    target = DiagonalGaussian(np.array([1.0, 2.0, 0.5, 1.0, 1.0, 3.0]))
    kernel = l2hmc(6, size=0.3, step_size=0.3, dtype="float32")
    report = check_kernel(kernel, target, laws=["round trip", "log-determinant", "invariance"])
    report.assert_passed()
    assert {law.status for law in report.laws} == {"passed"}


def test_an_energy_without_draws_in_one_dimension():
    report = check_kernel(
        l2hmc(1, size=1.5, step_size=0.4), waves, laws=["log-determinant", "invariance", "quadrature"]
    )
    report.assert_passed()
    assert report["invariance"].status == "on a stand-in"
    assert report["quadrature"].status == "passed"
    assert str(report).endswith("verdict: passed, invariance on a stand-in")


def test_an_energy_without_draws_in_two_dimensions_from_given_positions():
    positions = np.random.default_rng(0).normal(size=(300, 2)) * 0.7
    kernel = l2hmc(2, size=0.7, step_size=0.15)
    report = check_kernel(kernel, bent, positions=positions, laws=["cache", "invariance", "quadrature"])
    report.assert_passed()
    assert [law.status for law in report.laws] == ["passed", "on a stand-in", "passed"]


def test_a_sampler_of_the_users_own():
    def sampler(key, num, dtype):
        return jax.random.normal(key, (1, num), dtype)

    kernel = HMC(1.2, 2)
    report = check_kernel(kernel, lambda x: jnp.sum(x**2) / 2, dim=1, sampler=sampler, laws=["invariance"])
    assert report["invariance"].status == "passed"
    with pytest.raises(ValueError, match="transpose"):
        check_kernel(kernel, waves, dim=1, sampler=lambda *args: sampler(*args).T, laws=["invariance"])


def test_a_tempered_energy_is_the_one_that_is_checked():
    """The quadrature would see a kernel that forgot the temperature; draws of the target are not used."""
    energy = tempered(DiagonalGaussian(np.ones(1)), 2.0)
    report = check_kernel(HMC(1.5, 2), energy, dim=1, laws=["invariance", "quadrature"])
    assert [law.status for law in report.laws] == ["on a stand-in", "passed"]


# Kernels that are wrong, or cannot be told.


class TooHot(Kernel):
    """HMC for another temperature than asked for: invariant for the wrong distribution."""

    kernel: HMC
    factor: float = 1.1

    @property
    def dim(self):
        return None

    def init(self, energy, position, *, key=None):
        return self.kernel.init(energy, position)

    def step(self, energy, state, *, key):
        return self.kernel.step(tempered(energy, self.factor * as_energy(energy).temperature), state, key=key)


def test_the_wrong_distribution_is_seen_without_the_structure_of_a_proposal():
    report = check_kernel(
        TooHot(HMC(0.6, 2)), waves, dim=1, laws=["antisymmetry", "acceptance", "quadrature", "invariance"]
    )
    assert report.failed_laws == ("invariance", "quadrature")
    assert report["antisymmetry"].status == report["acceptance"].status == "not run"
    with pytest.raises(AssertionError, match=r"verdict: FAILED: invariance, quadrature"):
        report.assert_passed()


@pytest.mark.parametrize("has_reverse", [True, False])
def test_a_chain_that_is_not_reversible_is_run_backward_by_its_reverse(has_reverse):
    class Rotation(Kernel):
        """By a fixed angle about the centre of N(0, I), half of the time."""

        angle: float = 1.0

        def init(self, energy, position, *, key=None):
            return evaluate(energy, position)

        def step(self, energy, state, *, key):
            cos, sin = np.cos(self.angle), np.sin(self.angle)
            x, y = state.position
            proposal = evaluate(energy, jnp.stack([cos * x - sin * y, sin * x + cos * y]))
            moves = jax.random.bernoulli(key, 0.5, x.shape)
            half = jnp.full(x.shape, 0.5, x.dtype)
            info = Info(half, moves, proposal, 0 * half, 0 * half, ~moves & moves, jnp.ones(x.shape, int))
            return select(moves, proposal, state), info

        if has_reverse:

            def reversed(self):
                return type(self)(-self.angle)

    report = check_kernel(Rotation(), DiagonalGaussian(np.ones(2)), laws=["invariance"])
    assert report["invariance"].status == ("passed" if has_reverse else "failed")


def test_a_step_size_too_small_to_err_is_judged_on_a_smaller_target():
    report = check_kernel(HMC(0.01, 3), CORRELATED, laws=["invariance"])
    law = report["invariance"]
    assert report.passed
    assert law.status == "on a stand-in"
    assert law.detail.endswith("1.000 at full size")
    acceptance, scale = law.detail.split("acceptance ")[1].split(",")[0].split(" scaled by ")
    assert 0.3 <= float(acceptance) <= 0.85
    assert float(scale) < 0.2


def test_a_step_size_too_large_to_move_is_not_certified():
    report = check_kernel(
        HMC(100.0, 3), CORRELATED, laws=["round trip", "antisymmetry", "invariance"], max_jacobian_dim=0
    )
    assert not report.passed
    assert not report.failed_laws
    assert report["round trip (float64)"].status == report["antisymmetry"].status == "void"
    assert report.verdict.startswith("NOT CERTIFIED")


def test_a_kernel_that_never_moves_is_void():
    class Still(Kernel):
        """Stays where it is, and says that it rejected."""

        def init(self, energy, position, *, key=None):
            return evaluate(energy, position)

        def step(self, energy, state, *, key):
            zero = jnp.zeros_like(state.energy)
            no = zero > 0
            return state, Info(zero, no, state, zero, zero, no, jnp.ones(no.shape, int))

    report = check_kernel(
        Still(), DiagonalGaussian(np.ones(1)), dim=1, laws=["invariance", "quadrature"], num_chains=512
    )
    assert [law.status for law in report.laws] == ["void", "void"]
    assert not report.passed


# What does not run, and what is refused.


def test_an_energy_that_only_runs_in_float32():
    scale = np.array([1.0, 2.0], np.float32)

    def energy(x):
        return jnp.sum((x.astype(jnp.float32) / scale) ** 2) / 2

    report = check_kernel(HMC(1.0, 2), energy, dim=2, laws=["round trip", "acceptance", "cache"], max_jacobian_dim=0)
    assert report.passed
    assert report["round trip (float64)"].status == "not run"
    assert "float32 for a float64 position" in report["round trip (float64)"].detail
    assert report["round trip (float32)"].status == report["acceptance"].status == "passed"


def test_no_jacobian_beyond_the_limit():
    report = check_kernel(HMC(0.5, 2), DiagonalGaussian(np.ones(80)), laws=["log-determinant", "round trip"])
    assert report["log-determinant"].status == "not run"
    assert "max_jacobian_dim is 64" in report["log-determinant"].detail
    assert report["round trip (float64)"].status == "passed"
    assert report.passed


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"laws": ["no such law"], "dim": 2}, "choose from"),
        ({}, "dimension is unknown"),
        ({"dim": 2, "positions": np.zeros((5, 3))}, "disagree"),
        ({"positions": np.zeros(3)}, "last draw of every chain"),
        ({"positions": np.full((4, 2), np.nan)}, "finite"),
    ],
)
def test_arguments_that_make_no_sense(arguments, match):
    with pytest.raises(ValueError, match=match):
        check_kernel(HMC(), bent, **arguments)


def test_an_energy_that_is_not_a_scalar():
    with pytest.raises(ValueError, match="must return a scalar"):
        check_kernel(HMC(), lambda x: x, dim=2)


# The parts.


def simulate(p_values, num: int, **options) -> float:
    return float(np.mean([sequential_test(p_values, **options).is_rejected for _ in range(num)]))


@pytest.mark.parametrize("num_values", [1, 4])
def test_the_sequential_test_keeps_its_false_rejection_rate(num_values):
    random = np.random.default_rng(num_values)
    rate = 0.05
    measured = simulate(lambda i: random.uniform(size=num_values), 10_000, rate=rate)
    assert measured < rate + 4 * np.sqrt(rate / 10_000)
    assert measured > rate / 5, "a test that never rejects keeps any rate"


def test_the_sequential_test_gathers_evidence_only_where_it_is_needed():
    seen = []

    def weak(i):
        seen.append(i)
        return np.array([0.5, scipy.stats.norm.sf(2.5 * GROWTH ** (min(i, 1) / 2))])

    outcome = sequential_test(weak)
    assert outcome.is_rejected
    assert (outcome.num_rounds, seen, outcome.worst) == (2, [0, 1], 1)
    assert sequential_test(lambda i: np.array([0.9])).num_rounds == 1
    assert sequential_test(lambda i: np.array([0.9, np.nan])).is_rejected


@pytest.mark.parametrize(
    "draw",
    [
        lambda random, shape: random.normal(size=shape),
        lambda random, shape: random.integers(2, size=shape),
        lambda random, shape: np.zeros(shape),
        lambda random, shape: 1e6 + 1e-12 * random.integers(2, size=shape),
    ],
    ids=["continuous", "ties", "constant", "rounding"],
)
def test_ranks_of_exchangeable_states_are_uniform(draw):
    random = np.random.default_rng(0)
    rank = ranks(draw(random, (NUM_STATES, 2, 20_000)).astype(float), random, np.finfo(np.float64).eps)
    assert rank.min() == 0
    assert rank.max() == NUM_STATES - 1
    assert (uniformity(rank) > 1e-3).all()


def test_ranks_of_a_shifted_state_are_not_uniform():
    random = np.random.default_rng(0)
    values = random.normal(size=(NUM_STATES, 1, 20_000))
    values[0] += 0.1
    assert (uniformity(ranks(values, random, 1e-16)) < 1e-6).all()


def test_the_rank_test_is_calibrated_over_seeds():
    """The smallest of six adjusted p-values, on twenty seeds of one right kernel: no small one, not all large."""
    kernel = l2hmc(2, size=0.7, step_size=0.3)
    found = [
        check_kernel(kernel, CORRELATED, laws=["invariance"], seed=seed, num_chains=1024)["invariance"]
        for seed in range(20)
    ]
    assert {law.status for law in found} == {"passed"}
    p_values = np.array([law.measured for law in found])
    assert p_values.min() > 0.001
    assert np.median(p_values) < 0.99
    again = check_kernel(kernel, CORRELATED, laws=["invariance"], seed=3, num_chains=1024)["invariance"]
    assert again == found[3]


def test_a_useful_size_is_found_from_either_side():
    acceptance = lambda scale: float(np.clip(np.tanh(scale / 30), 0, 1))  # noqa: E731
    for at_one in (1.0, 0.0):
        scale = find_scale(lambda s, at=at_one: acceptance(s * (1e3 if at == 1 else 1e-1)), at_one)
        assert scale is not None
        assert 0.3 <= acceptance(scale * (1e3 if at_one == 1 else 1e-1)) <= 0.85
    assert find_scale(lambda scale: 1.0, 1.0) is None
    assert find_scale(lambda scale: 0.0, 0.0) is None


def subject(energy, dim: int, positions=None):
    return make_subject(HMC(0.3, 3), energy, dim=dim, sampler=None, positions=positions, seed=0, num_probes=100)


def test_a_box_holds_all_the_mass():
    """Even of an energy whose chains started far from it, along a narrow oblique ridge."""
    target = Gaussian([[100.0, 99.9], [99.9, 100.0]], mean=np.array([40.0, -30.0]))
    box = find_box(subject(lambda x: target(x), 2, np.random.default_rng(0).normal(size=(50, 2))))
    volume = 4 * abs(np.linalg.det(box.factor)) * box.mean_density * np.exp(-box.lowest)
    assert volume == pytest.approx(2 * np.pi * np.sqrt(np.linalg.det(target.covariance)), rel=1e-3)


def test_a_box_ends_at_a_hard_wall():
    box = find_box(subject(lambda x: jnp.where(x[0] > 0, x[0], jnp.inf), 1))
    assert 2 * box.factor[0, 0] * box.mean_density * np.exp(-box.lowest) == pytest.approx(1, rel=0.01)


def test_a_heavy_tail_has_no_box():
    with pytest.raises(NoBoxError, match="does not become negligible"):
        find_box(subject(lambda x: jnp.log1p(x[0] ** 2), 1))
    report = check_kernel(HMC(0.5, 3), lambda x: jnp.log1p(x[0] ** 2), dim=1, laws=["quadrature"])
    assert report["quadrature"].status == "void"


def test_a_standin_has_the_moments_and_the_modes_of_its_points():
    random = np.random.default_rng(0)
    truth = GaussianMixture([[-4.0, 0.0], [4.0, 1.0]], [[[1.0, 0.8], [0.8, 1.0]], [[0.3, 0.0], [0.0, 2.0]]])
    points = np.asarray(truth.sample(jax.random.key(0), 4000), np.float64).T
    standin = fit_standin(points, random)
    np.testing.assert_allclose(standin.mean, points.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(standin.covariance, np.cov(points.T), rtol=0.02, atol=0.02)
    fresh = truth.sample(jax.random.key(1), 2000)
    surprise = jnp.mean(jax.vmap(standin, -1)(fresh) - jax.vmap(truth, -1)(fresh))
    assert surprise < 0.02, "the Kullback-Leibler divergence of the fit"


def test_a_standin_of_degenerate_or_many_dimensional_points():
    random = np.random.default_rng(0)
    assert np.isfinite(fit_standin(np.ones((4, 3)), random).covariance).all()
    wide = fit_standin(random.normal(size=(200, 60)) * 3, random)
    assert isinstance(wide, DiagonalGaussian)
    np.testing.assert_allclose(wide.variance, 9, rtol=0.5)


@pytest.mark.parametrize(
    ("law", "passed", "verdict"),
    [
        (Law("a", "passed", 1.0, 2.0, ""), True, "passed"),
        (Law("a", "on a stand-in", 1.0, 2.0, ""), True, "passed, a on a stand-in"),
        (Law("a", "not run", None, None, "", required=False), True, "passed"),
        (Law("a", "not run", None, None, ""), False, "NOT CERTIFIED: a is not run"),
        (Law("a", "void", float("nan"), 2.0, ""), False, "NOT CERTIFIED: a is void"),
        (Law("a", "failed", float("inf"), 2.0, ""), False, "FAILED: a"),
    ],
)
def test_the_verdict_of_one_law(law, passed, verdict):
    report = ExactnessReport("HMC", "scg", (Law("b", "passed", 0.0, 1.0, "fine"), law))
    assert report.passed is passed
    assert report.verdict == verdict
    assert report["b"].detail == "fine"
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["laws"][1]["status"] == law.status
    with pytest.raises(KeyError, match="no law"):
        report["c"]


def test_a_report_of_nothing_certifies_nothing():
    assert not ExactnessReport("HMC", "scg", ()).passed
