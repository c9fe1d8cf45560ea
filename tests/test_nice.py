"""The NICE proposal: an exact, volume-preserving kernel whatever its weights, and four wrong ones that are caught."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.chains import sample
from leapling.diagnostics.exactness import check_kernel
from leapling.energy import as_energy
from leapling.kernels import NICE, Phase, Proposal
from leapling.kernels.base import evaluate, per_chain
from leapling.store import load_run, save_run
from leapling.targets import DiagonalGaussian, GaussianMixture
from leapling.training import Jump, Recipe, nice_kernel, train

MIXTURE = GaussianMixture([[-1.0, 0.0], [1.5, 0.5]], [1.0, 0.6])


def nice(dim=2, num_couplings=3, *, kind=NICE, size=0.3, dtype="float64"):
    """Far from the random walk it starts as: every coupling matters."""
    kernel = kind(dim, num_couplings, widths=(8,), key=jax.random.key(0), dtype=dtype)
    keys = jax.random.split(jax.random.key(1), num_couplings)
    last = tuple(size * jax.random.normal(key, (dim, 8), dtype) for key in keys)
    return eqx.tree_at(lambda k: tuple(coupling.layers[-1].weight for coupling in k.couplings), kernel, last)


def points(dim=2, num=6, dtype="float64"):
    return tuple(jax.random.normal(key, (dim, num), dtype) for key in jax.random.split(jax.random.key(2)))


def test_every_law():
    report = check_kernel(nice(), MIXTURE)
    assert {law.status for law in report.laws} == {"passed"}
    assert "acceptance 0." in report["invariance"].detail


def test_five_couplings_in_three_dimensions_in_float32():
    kernel = nice(3, 5, size=0.2, dtype="float32")
    target = DiagonalGaussian(np.array([1.0, 2.0, 0.5]))
    report = check_kernel(kernel, target, laws=["round trip", "log-determinant", "antisymmetry", "invariance"])
    assert {law.status for law in report.laws} == {"passed"}


def test_a_kernel_trained_with_the_papers_loss_is_exact():
    """By the loop that trains L2HMC, to which it is one more kernel."""
    recipe = Recipe(num_iterations=60, batch_size=50, objective=Jump(scale=1.0), burn_in_weight=1.0)
    result = train(nice_kernel(2, 0), MIXTURE, recipe, progress=False)
    assert np.isfinite(result.history["loss"]).all()
    assert np.mean(result.history["loss"][-20:]) < np.mean(result.history["loss"][:5])
    assert result.num_gradients == 50 * (1 + 60 * 3)  # a start, and in each iteration a fresh draw and two steps
    assert result.summary()["step_size"] is None
    report = check_kernel(result.kernel, MIXTURE, laws=["round trip", "log-determinant", "antisymmetry", "invariance"])
    assert report.passed
    assert not report.failed_laws


def test_forward_is_what_is_written_in_the_papers():
    kernel = nice(2, 5)
    x, v = points()
    ahead_x, ahead_v, is_alive = kernel.couple(x, v, jnp.ones(6, bool))
    one, two, three, four, five = kernel.couplings
    v1 = v + one(x)
    x1 = x + two(v1)
    v2 = v1 + three(x1)
    x2 = x1 + four(v2)
    v3 = v2 + five(x2)
    np.testing.assert_allclose(ahead_x, x2, rtol=1e-12)
    np.testing.assert_allclose(ahead_v, v3, rtol=1e-12)
    assert is_alive.all()


@pytest.mark.parametrize("num_couplings", [3, 5, 7])
def test_the_two_directions_are_inverses_chain_by_chain(num_couplings):
    kernel = nice(2, num_couplings)
    x, v = points()
    direction = jnp.arange(6) % 2 == 0
    there_x, there_v, _ = kernel.couple(x, v, direction)
    assert (jnp.abs(there_x - x) > 0.01).any(axis=0).all()
    back_x, back_v, _ = kernel.couple(there_x, there_v, ~direction)
    np.testing.assert_allclose(back_x, x, atol=1e-12)
    np.testing.assert_allclose(back_v, v, atol=1e-12)
    wrong_x, _, _ = kernel.couple(there_x, there_v, direction)
    assert (jnp.abs(wrong_x - x) > 0.01).any(axis=0).all()


@pytest.mark.parametrize("direction", [True, False])
def test_volume_is_kept(direction):
    kernel = nice(3, 5)
    x, v = points(3, 1)

    def moved(z):
        return jnp.concatenate(kernel.couple(z[:3], z[3:], jnp.asarray(direction))[:2])

    jacobian = jax.jacobian(moved)(jnp.concatenate([x[:, 0], v[:, 0]]))
    assert np.abs(jacobian - np.eye(6)).max() > 0.1
    np.testing.assert_allclose(np.linalg.slogdet(jacobian), (1, 0), atol=1e-12)


def test_untrained_it_is_a_random_walk_that_accepts():
    draws = sample(nice_kernel(2, 0), MIXTURE, num_draws=200, num_chains=50)
    assert 0.1 < draws.statistics["acceptance_rate"].mean() < 0.9
    assert draws.num_frozen == 0
    assert draws.num_gradients == 50 * 201


def test_what_overflows_is_rejected_and_leaves_the_others_their_gradient():
    kernel, energy = nice(size=1.0, dtype="float32"), as_energy(DiagonalGaussian(np.ones(2)))
    x, v = points(dtype="float32")
    x = x.at[:, 0].set(1e18)
    v = v.at[:, 1].set(1e30)
    direction = jnp.arange(6) % 2 == 0

    def loss(kernel):
        phase = Phase(evaluate(energy, x), v, direction)
        proposal = kernel.propose(energy, phase, key=jax.random.key(0))
        jump = jnp.sum((proposal.phase.state.position - x) ** 2, axis=0)
        return jnp.sum(jnp.where(jnp.isfinite(proposal.log_jacobian), jump, 0 * jump)), proposal

    (value, proposal), gradient = eqx.filter_jit(eqx.filter_value_and_grad(loss, has_aux=True))(kernel)
    assert np.array_equal(proposal.log_jacobian, [-np.inf, -np.inf, 0, 0, 0, 0])
    assert np.isfinite(proposal.phase.state.position).all()
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_a_run_on_disk(tmp_path):
    kernel = NICE(3, 5, widths=(4, 6), key=jax.random.key(3), dtype=np.float32)
    save_run(tmp_path, kernel)
    loaded, header = load_run(tmp_path)
    assert header["kernel"] == {"kind": "NICE", "dim": 3, "num_couplings": 5, "widths": [4, 6], "dtype": "float32"}
    assert jax.tree.structure(loaded) == jax.tree.structure(kernel)
    for ours, theirs in zip(jax.tree.leaves(loaded), jax.tree.leaves(kernel), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def start(kernel: NICE, positions: np.ndarray):
    return sample(kernel, MIXTURE, num_draws=1, initial_positions=positions)


# Kernels that are wrong.


class SameOrder(NICE):
    """The inverse subtracts the shifts in the order in which they were added."""

    def couple(self, x, v, direction):
        sign = jnp.where(per_chain(direction, x), 1, -1).astype(x.dtype)
        for i, coupling in enumerate(self.couplings):
            x, v = (x + sign * coupling(v), v) if i % 2 else (x, v + sign * coupling(x))
        return x, v, jnp.ones_like(direction)


class AddsInBothDirections(NICE):
    """The reverse order, without the minus."""

    def couple(self, x, v, direction):
        for i, (ahead, back) in enumerate(zip(self.couplings, self.couplings[::-1], strict=True)):
            fixed = v if i % 2 else x
            shift = jnp.where(per_chain(direction, x), ahead(fixed), back(fixed))
            x, v = (x + shift, v) if i % 2 else (x, v + shift)
        return x, v, jnp.ones_like(direction)


class KeepsDirection(NICE):
    """Samples right all the same, since directions are drawn anew; it is the structure that is broken."""

    def propose(self, energy, phase, *, key):
        proposal = super().propose(energy, phase, key=key)
        return eqx.tree_at(lambda p: p.phase.direction, proposal, phase.direction)


class Stretches(NICE):
    """Scales v, exactly undone by the inverse, and says that volume was kept."""

    def propose(self, energy, phase, *, key):
        forward, one = per_chain(phase.direction, phase.momentum), jnp.ones_like(phase.momentum)
        before = jnp.where(forward, one, one / 1.2)
        after = jnp.where(forward, 1.2 * one, one)
        proposal = super().propose(energy, Phase(phase.state, phase.momentum * before, phase.direction), key=key)
        return Proposal(
            Phase(proposal.phase.state, proposal.phase.momentum * after, proposal.phase.direction),
            proposal.log_jacobian,
            proposal.num_gradients,
        )


@pytest.mark.parametrize(
    ("kind", "seen_by"),
    [
        (SameOrder, ("round trip", "invariance")),
        (AddsInBothDirections, ("round trip", "invariance")),
        (KeepsDirection, ("round trip",)),
        (Stretches, ("log-determinant", "invariance")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_wrong_kernel_is_caught(kind, seen_by):
    max_jacobian_dim = 64 if "log-determinant" in seen_by else 0
    report = check_kernel(nice(kind=kind), MIXTURE, laws=seen_by, max_jacobian_dim=max_jacobian_dim)
    caught = {law for law in seen_by if any(name.startswith(law) for name in report.failed_laws)}
    assert caught == set(seen_by)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda key: NICE(0, key=key), "dim must be at least 1, got 0"),
        (lambda key: NICE(2, 4, key=key), "num_couplings must be odd and at least 3, got 4"),
        (lambda key: NICE(2, 1, key=key), "num_couplings must be odd and at least 3, got 1"),
        (lambda key: NICE(2, widths=(), key=key), "at least one hidden layer, got none"),
        (lambda key: NICE(2, widths=(0,), key=key), "each of widths must be at least 1, got 0"),
        (lambda key: start(NICE(2, key=key), np.zeros((1, 3))), "2 coordinates|number of coordinates"),
        (lambda key: start(NICE(2, key=key), np.zeros((1, 2), np.float32)), "mixed precision is refused"),
    ],
)  # fmt: skip
def test_bad_construction_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make(jax.random.key(0))
