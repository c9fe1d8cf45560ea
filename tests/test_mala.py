"""Langevin proposals with a scale of their own at every point: exact on the funnel, and useful there."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest
from jaxtyping import Array, Float

from leapling.chains import exact_starts, sample
from leapling.diagnostics import check_kernel, min_ess
from leapling.files import RunError
from leapling.kernels import HMC, Mixture, PositionMALA
from leapling.store import save_run
from leapling.targets import Funnel, Gaussian

LAWS = ["round trip", "log-determinant", "antisymmetry", "acceptance", "cache", "temperature", "invariance"]


def funnel_scales(x: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """The deviation of every coordinate given the first, which sets it."""
    return jnp.exp(x[0] / 2) * jnp.ones_like(x).at[0].set(jnp.exp(-x[0] / 2))


class Tilted(eqx.Module):
    """A triangular factor that depends on the point; what is above the diagonal is rubbish, and must not matter."""

    rubbish: float = 0.0

    def __call__(self, x):
        scale = jnp.exp(jnp.tanh(x[0]) / 2)
        return jnp.stack([jnp.stack([scale, self.rubbish * x[1]]), jnp.stack([jnp.sin(x[1]), 1 / scale])])


@pytest.mark.parametrize(("dim", "sd", "step_size"), [(2, 1.5, 1.1), (5, 1.0, 0.8)])
def test_the_funnel(dim, sd, step_size):
    laws = LAWS if dim == 2 else ["log-determinant", "invariance"]
    report = check_kernel(PositionMALA(funnel_scales, step_size), Funnel(dim, sd), laws=laws)
    assert {law.status for law in report.laws} == {"passed"}, report


def test_a_matrix_of_scales():
    kernel = PositionMALA(Tilted(rubbish=3.0), 0.9)
    target = Gaussian([[1.0, 0.6], [0.6, 1.0]], mean=np.array([0.5, 0.0]))
    report = check_kernel(kernel, target, laws=LAWS)
    assert {law.status for law in report.laws} == {"passed"}, report
    plain = PositionMALA(Tilted(), 0.9)
    state = kernel.init(target, target.sample(jax.random.key(0), 10))
    ends = [k.step(target, state, key=jax.random.key(1))[0].position for k in (kernel, plain)]
    np.testing.assert_array_equal(ends[0], ends[1])


MUTANTS = (
    mutants.Mutant(
        "ratio of the scales left out",
        mutants.edit("mala", "log_jacobian = log_det - log_det_back", "log_jacobian = 0 * log_det"),
        ("log-determinant", "invariance"),
    ),
    mutants.Mutant(
        "ratio of the scales upside down",
        mutants.edit("mala", "log_jacobian = log_det - log_det_back", "log_jacobian = log_det_back - log_det"),
        ("log-determinant", "invariance"),
    ),
    mutants.Mutant(
        "scales of the wrong end on the way back",
        mutants.edit("mala", "c = self.factor(x)", "c = self.factor(x if function is ahead else other)"),
        ("round trip (float64)", "round trip (float32)", "invariance"),
    ),
    mutants.Mutant(
        "the way back has no drift",
        mutants.edit("mala", "(end - mean(c, x, gradient, eps)) / eps", "(end - x) / eps"),
        ("round trip (float64)", "round trip (float32)", "invariance"),
    ),
    mutants.Mutant(
        "the noise of the way back is that of the way there",
        mutants.edit("mala", "Phase(end, back, phase.direction)", "Phase(end, phase.momentum, phase.direction)"),
        ("round trip (float64)", "round trip (float32)", "invariance"),
    ),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_seen(mutant):
    kernel = mutants.load(mutant)["mala"].PositionMALA(funnel_scales, 1.1)
    laws = {name.split(" (")[0] for name in mutant.seen_by}
    report = check_kernel(kernel, Funnel(2, 1.5), laws=sorted(laws))
    assert set(report.failed_laws) == set(mutant.seen_by)


def test_constant_scales_are_one_leapfrog_step_in_other_coordinates():
    """x' and the acceptance are those of HMC with one step on a scaled target; v comes out negated, as F has it."""
    target, scales = Funnel(3, 1.0), np.array([0.7, 2.0, 1.3])
    kernel = PositionMALA(lambda x: jnp.asarray(scales, x.dtype), 0.6)
    pulled = lambda z: target(scales * z)  # noqa: E731
    x = target.sample(jax.random.key(0), 50)
    state, info = kernel.step(target, kernel.init(target, x), key=jax.random.key(1))
    hmc = HMC(0.6, 1)
    moved, moved_info = hmc.step(pulled, hmc.init(pulled, x / scales[:, None]), key=jax.random.key(1))
    np.testing.assert_allclose(state.position, scales[:, None] * moved.position, rtol=1e-9)
    np.testing.assert_allclose(info.acceptance, moved_info.acceptance, rtol=1e-9)


def test_it_reaches_where_one_scale_for_all_does_not():
    """On the funnel of 5 coordinates, against the same proposal with the best constant scale of four."""
    target = Funnel(5, 2.0)
    starts = exact_starts(target, 100, seed=0)
    worth = {}
    for name, factor, sizes in (
        ("position", funnel_scales, (0.8,)),
        ("constant", jnp.ones_like, (0.1, 0.3, 0.6, 1.2)),
    ):
        kernels = [PositionMALA(factor, size) for size in sizes]
        draws = [sample(k, target, num_draws=1500, seed=1, initial_positions=starts, warn=False) for k in kernels]
        worth[name] = max(min_ess(d.positions[:, :, :1], d.statistics["energy"]) for d in draws)
        assert draws[0].num_gradients == 100 * 1501
    assert worth["position"] > 3 * worth["constant"]


def test_it_is_a_part_of_mixtures():
    kernel = Mixture([PositionMALA(funnel_scales, 1.1), HMC(0.5, 3)])
    check_kernel(kernel, Funnel(2, 1.5), laws=["invariance"]).assert_passed()


def test_bad_use_is_refused(tmp_path):
    with pytest.raises(ValueError, match="step_size must be a finite number above 0, got 0"):
        PositionMALA(funnel_scales, 0.0)
    wrong = PositionMALA(lambda x: x[:1], 0.5)
    target = Funnel(3, 1.0)
    with pytest.raises(
        ValueError, match=r"shape \(1,\) for one float64 point of 3 coordinates; scales of shape \(3,\)"
    ):
        wrong.step(target, wrong.init(target, jnp.ones(3)), key=jax.random.key(0))
    with pytest.raises(RunError, match="PositionMALA holds a function of yours, which a run does not store"):
        save_run(tmp_path, wrong)
