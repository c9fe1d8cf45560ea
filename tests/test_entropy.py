"""The spread of proposals: its determinant against closed forms and autodiff, and what training makes of it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.energy import Energy
from leapling.kernels import HMC, L2HMC, Cycle, MetropolisKernel
from leapling.kernels.base import evaluate
from leapling.targets import DiagonalGaussian, Gaussian
from leapling.training import Entropy, Lag, Recipe, nice_kernel, train
from leapling.training.log_det import log_det, log_det_estimate

VARIANCES = np.array([1.0, 2.0, 0.25])


def bent(matrix, x):
    """A map whose Jacobian differs from chain to chain."""
    return jnp.matmul(matrix, x) + 0.3 * jnp.sin(x + x[::-1])


def dense(dim: int) -> Any:
    return jnp.eye(dim) + 0.6 * jax.random.normal(jax.random.key(0), (dim, dim)) / dim**0.5


def by_autodiff(matrix, x):
    jacobian = jax.vmap(jax.jacfwd(lambda y: bent(matrix, y[:, None])[:, 0]), in_axes=-1)(x)
    return jnp.linalg.slogdet(jacobian)[1]


def test_every_row_is_enough():
    matrix, x = dense(5), jax.random.normal(jax.random.key(1), (5, 4))
    where = jnp.asarray([True, True, False, True])
    found = log_det(lambda y: bent(matrix, y), x, where)
    np.testing.assert_allclose(found, jnp.where(where, by_autodiff(matrix, x), 0), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_estimate_over_a_full_set_of_probes_is_exact(dtype):
    """The mean over the probes sqrt(dim) e_i is the trace, and as many terms as coordinates leave no error."""
    dim = 6
    matrix, x = dense(dim).astype(dtype), jax.random.normal(jax.random.key(1), (dim, 3), dtype)
    everywhere = jnp.ones(3, bool)

    def estimated(matrix, row):
        probe = jnp.broadcast_to((jnp.eye(dim, dtype=dtype)[row] * dim**0.5)[:, None], x.shape)
        constant = jax.lax.stop_gradient(matrix)
        maps = (lambda y: bent(matrix, y)), (lambda y: bent(constant, y))
        return jnp.sum(log_det_estimate(*maps, x, everywhere, probe=probe, num_terms=dim))

    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(estimated), in_axes=(None, 0)))(matrix, jnp.arange(dim))
    value, gradient = jax.value_and_grad(lambda m: jnp.sum(by_autodiff(m, x)))(matrix)
    tolerance = 1e-10 if dtype == np.float64 else 2e-4
    np.testing.assert_allclose(jnp.mean(values), value, rtol=tolerance)
    np.testing.assert_allclose(jnp.mean(gradients, axis=0), gradient, rtol=tolerance, atol=tolerance)


def test_random_probes_are_without_bias_and_few_terms_do():
    """Thirty coordinates and eight terms; the probes' mean is within its own error, and that is small."""
    dim, num = 30, 2000
    matrix, x = dense(dim), jnp.broadcast_to(jax.random.normal(jax.random.key(1), (dim, 1)), (dim, num))
    probe = jax.random.rademacher(jax.random.key(2), x.shape, x.dtype)

    def direction(scale):
        return lambda y: bent(scale * matrix, y)

    def estimated(scale):
        maps = direction(scale), direction(jax.lax.stop_gradient(scale))
        values = log_det_estimate(*maps, x, jnp.ones(num, bool), probe=probe, num_terms=20)
        return jnp.mean(values), values

    one = jnp.asarray(1.0)
    (value, values), slope = jax.jit(jax.value_and_grad(estimated, has_aux=True))(one)
    exact, exact_slope = jax.value_and_grad(lambda s: by_autodiff(s * matrix, x[:, :1])[0])(one)
    error = float(jnp.std(values)) / num**0.5
    assert abs(value - exact) < 4 * error < 0.5
    assert abs(slope / exact_slope - 1) < 0.05


def test_a_direction_used_up_and_a_chain_left_out_are_harmless():
    """All singular values are one and the same: the first term says it all. One chain's map is nowhere finite."""
    x = jnp.ones((8, 3))
    where = jnp.asarray([True, False, True])

    def loss(scale):
        scales = jnp.where(where, scale, jnp.nan)
        maps = (lambda y: scales[None] * y), (lambda y: jax.lax.stop_gradient(scales)[None] * y)
        probe = jax.random.rademacher(jax.random.key(0), x.shape, x.dtype)
        values = log_det_estimate(*maps, x, where, probe=probe, num_terms=5)
        return jnp.sum(values), values

    (_, values), slope = jax.value_and_grad(loss, has_aux=True)(jnp.asarray(0.3))
    np.testing.assert_allclose(values, [8 * np.log(0.3), 0, 8 * np.log(0.3)], atol=1e-12)
    np.testing.assert_allclose(slope, 2 * 8 / 0.3, rtol=1e-12)


def spread(kernel, target, objective, num=5) -> Any:
    start = evaluate(target, target.sample(jax.random.key(0), num, np.float64))
    end, info = eqx.filter_jit(lambda key: objective.observe(kernel, target, start, key=key))(jax.random.key(1))
    return start, end, info


def leapfrog_log_det(eps: float, num_steps: int, variances: np.ndarray) -> float:
    """x_M = ... + eps sin(M theta) / sin(theta) v, with cos(theta) = 1 - eps^2 / (2 variance)."""
    theta = np.arccos(1 - eps**2 / (2 * variances))
    return float(np.sum(np.log(np.abs(eps * np.sin(num_steps * theta) / np.sin(theta)))))


@pytest.mark.parametrize("num_steps", [1, 4])
@pytest.mark.parametrize("objective", [Entropy(), Entropy(exact_dim=2, num_terms=3)], ids=["exact", "estimated"])
def test_plain_leapfrog_on_a_gaussian_has_the_closed_form(num_steps, objective):
    """The Jacobian is diagonal: one probe of signs is without error too."""
    kernel = L2HMC(3, num_steps, step_size=0.4, heads="", key=jax.random.key(0))
    start, _, info = spread(kernel, DiagonalGaussian(VARIANCES), objective)
    expected = leapfrog_log_det(0.4, num_steps, VARIANCES)
    np.testing.assert_allclose(info.log_det, np.full(5, expected), rtol=1e-9)
    loss = -np.mean(np.log(info.acceptance)) - expected / 3
    np.testing.assert_allclose(objective(start, info), loss, rtol=1e-9)


def test_it_is_not_the_jacobian_of_the_kernel():
    """NICE keeps volume, and its x' = x + m(v + ...) spreads v all the same."""
    kernel = nice_kernel(2, 0)
    kernel = jax.tree.map(lambda a: a.astype(np.float64) if eqx.is_inexact_array(a) else a, kernel)
    _, _, info = spread(kernel, DiagonalGaussian(np.ones(2)), Entropy())
    np.testing.assert_allclose(info.log_jacobian, np.zeros(5), atol=1e-12)
    assert (np.abs(info.log_det) > 0.1).all()


@pytest.mark.parametrize("exact_dim", [20, 1])
def test_the_gradient_is_that_of_finite_differences(exact_dim):
    """Of a learned kernel, in its step size, on a correlated target; two terms are all there is in two dimensions."""
    target = Gaussian([[1.0, 0.6], [0.6, 1.0]], mean=np.array([0.5, 0.0]))
    kernel = L2HMC(2, 1, widths=(4,), step_size=0.5, key=jax.random.key(3))
    kernel = eqx.tree_at(lambda k: k.x_network.heads.weight, kernel, replace_fn=lambda w: 10 * w)
    start = evaluate(target, target.sample(jax.random.key(0), 4000, np.float64))
    objective = Entropy(exact_dim=exact_dim, num_terms=2)

    @jax.jit
    def loss(log_step_size):
        moved = eqx.tree_at(lambda k: k.log_step_size, kernel, log_step_size)
        _, info = objective.observe(moved, Energy(target), start, key=jax.random.key(1))
        return -jnp.mean(info.log_det)

    at = kernel.log_step_size
    slope = jax.jit(jax.grad(loss))(at)
    differences = (loss(at + 1e-5) - loss(at - 1e-5)) / 2e-5
    assert abs(slope / differences - 1) < (1e-6 if exact_dim > 2 else 0.02)


def test_the_map_has_the_force_in_it_whatever_the_recipe_says():
    target = DiagonalGaussian(VARIANCES)
    kernel = L2HMC(3, 3, step_size=0.4, heads="", key=jax.random.key(0))
    start = evaluate(target, jnp.ones((3, 2)))
    _, info = Entropy().observe(kernel, Energy(target, force_gradient=False), start, key=jax.random.key(0))
    np.testing.assert_allclose(info.log_det, np.full(2, leapfrog_log_det(0.4, 3, VARIANCES)), rtol=1e-9)


class Probed(MetropolisKernel):
    """Records the momentum that a proposal is made from, as its position."""

    def propose(self, energy, phase, *, key):
        phase = eqx.tree_at(lambda p: p.state.position, phase, phase.momentum * jax.random.normal(key))
        return HMC(0.1, 1).propose(energy, phase, key=key)


def test_the_map_is_differentiated_at_the_momentum_of_the_transition(monkeypatch):
    seen = {}

    def record(function, at, where):
        seen["proposal"] = function(at)
        return where.astype(at.dtype)

    monkeypatch.setattr("leapling.training.entropy.log_det", record)
    start = evaluate(DiagonalGaussian(np.ones(2)), jnp.ones((2, 3)))
    end, info = Entropy().observe(Probed(), DiagonalGaussian(np.ones(2)), start, key=jax.random.key(5))
    np.testing.assert_array_equal(seen["proposal"], info.proposal.position)
    after, _ = Probed().step(DiagonalGaussian(np.ones(2)), start, key=jax.random.key(5))
    np.testing.assert_array_equal(end.position, after.position)


@pytest.mark.parametrize("exact_dim", [20, 1])
def test_trajectories_that_overflow_leave_the_gradient_finite(exact_dim):
    def steep(x):
        return jnp.sum(x**4)

    kernel = L2HMC(2, 2, widths=(4,), step_size=0.5, key=jax.random.key(0), dtype=np.float32)
    positions = [[0.1, 0.2, 0.5, 9.0, -0.3, 30.0], [0.3, 0.1, -0.2, 9.0, 0.4, 1.0]]
    start = evaluate(steep, jnp.asarray(positions, np.float32))
    objective = Entropy(exact_dim=exact_dim, num_terms=2)

    def loss(kernel):
        _, info = objective.observe(kernel, steep, start, key=jax.random.key(1))
        return objective(start, info), info

    gradient, info = eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))(kernel)
    is_lost = np.isneginf(info.log_jacobian)
    assert 0 < is_lost.sum() < 6
    assert np.abs(info.log_det[is_lost]).max() < 1e-6  # of the identity
    assert np.isfinite(objective(start, info))
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradient))
    assert any(g.any() for g in jax.tree.leaves(gradient))


def test_it_trains():
    kernel = L2HMC(2, 1, widths=(8,), step_size=0.2, key=jax.random.key(0), dtype=np.float32)
    recipe = Recipe(300, 64, objective=Entropy(), learning_rate=1e-2, burn_in_weight=0.1, clip=10.0)
    result = train(kernel, DiagonalGaussian(np.ones(2)), recipe, progress=False)
    loss = result.history["loss"]
    assert result.history["skipped"].sum() == 0
    assert np.mean(loss[-50:]) < np.mean(loss[:20]) - 0.5
    # Resting would be accepted, an endless stride would spread: what is found is neither.
    assert np.mean(result.history["acceptance"][-50:]) > 0.5
    assert result.kernel.step_size > 0.4


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Entropy(0.0), "beta must be above 0, got 0"),
        (lambda: Entropy(num_terms=0), "num_terms must be at least 1, got 0"),
        (lambda: Lag(Entropy()), "Entropy scores single transitions"),
        (lambda: spread(Cycle([HMC()]), DiagonalGaussian(np.ones(2)), Entropy()), "Cycle has no `propose`"),
    ],
)
def test_what_makes_no_sense_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
