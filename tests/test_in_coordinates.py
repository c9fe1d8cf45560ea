"""Kernels that run in other coordinates: the same target, no evaluation more, and whatever is wrong is seen."""

import coordinate_mutants
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flows import Bend, bent, unit

from leapling.chains import exact_starts, sample
from leapling.coordinates import Affine, Pulled, whitening
from leapling.diagnostics import check_kernel, min_ess
from leapling.diagnostics.exactness import LAWS
from leapling.energy import Energy
from leapling.kernels import HMC, L2HMC, InCoordinates, MetropolisKernel, Proposal, State, cast
from leapling.kernels.base import evaluate, refresh
from leapling.kernels.starts import with_force, without_force
from leapling.targets import Gaussian, GaussianMixture, scg
from leapling.training import Recipe, train

BIMODAL = GaussianMixture([[-1.0, 0.0], [1.5, 0.5]], [1.0, 0.6])
THREE = Gaussian([[1.0, 0.4, 0.0], [0.4, 1.0, 0.3], [0.0, 0.3, 1.0]])
OUTER = Affine([0.3, 0.0], [[1.4, 0.5], [0.0, 0.9]])


def learned(kernel: L2HMC, size=0.3) -> L2HMC:
    """Heads as large as those of a trained kernel, so that S, Q and T matter."""
    heads = lambda k: (k.v_network.heads.weight, k.x_network.heads.weight)  # noqa: E731
    random = np.random.default_rng(3)
    return eqx.tree_at(heads, kernel, replace_fn=lambda w: w + jnp.asarray(size * random.normal(size=w.shape), w.dtype))


class Tempered(MetropolisKernel):
    """`kernel` at another temperature, on as many times the energy: a kernel of the same target."""

    kernel: MetropolisKernel
    temperature: jax.Array

    def flip(self, phase):
        return self.kernel.flip(phase)  # pyright: ignore[reportAttributeAccessIssue]

    def propose(self, energy, phase, *, key):
        t = self.temperature.astype(phase.momentum.dtype)
        factor = t / jnp.asarray(energy.temperature, t.dtype)
        times = lambda s, factor: State(s.position, factor * s.energy, factor * s.gradient)  # noqa: E731
        hot = Energy(lambda x: factor * energy.function(x), t)
        phase = eqx.tree_at(lambda p: p.state, phase, times(phase.state, factor))
        move = self.kernel.propose(hot, phase, key=key)
        state = times(move.phase.state, 1 / factor)
        return Proposal(eqx.tree_at(lambda p: p.state, move.phase, state), move.log_jacobian, move.num_gradients)


KEY = jax.random.key(0)
EXACT = {
    "HMC, affine map": (lambda: InCoordinates(HMC(0.8, 2), OUTER), BIMODAL, np.float64),
    "L2HMC, affine map": (lambda: InCoordinates(learned(L2HMC(2, 2, key=KEY)), OUTER), BIMODAL, np.float32),
    "HMC, spline flow": (lambda: InCoordinates(HMC(0.15, 2), bent("spline", OUTER, 2)), BIMODAL, np.float64),
    "L2HMC, affine flow": (
        lambda: InCoordinates(learned(L2HMC(3, 2, step_size=0.4, key=KEY)), bent("affine", unit(3))),
        THREE,
        np.float64,
    ),
    "with_force, affine flow": (
        lambda: InCoordinates(learned(with_force(2, widths=(8,), key=KEY), 0.05), bent("affine", OUTER)),
        BIMODAL,
        np.float32,
    ),
    "without_force, affine flow": (
        lambda: InCoordinates(learned(without_force(2, widths=(8,), key=KEY), 0.05), bent("affine", OUTER)),
        BIMODAL,
        np.float64,
    ),
    "HMC, affine flow at temperature 2.5": (
        lambda: Tempered(InCoordinates(HMC(0.7, 2), bent("affine", OUTER)), jnp.asarray(2.5)),
        BIMODAL,
        np.float32,
    ),
    "L2HMC, affine flow at temperature 0.4": (
        lambda: Tempered(InCoordinates(learned(L2HMC(3, 1, key=KEY)), bent("affine", unit(3))), jnp.asarray(0.4)),
        THREE,
        np.float64,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_every_law(name, is_long):
    make, target, dtype = EXACT[name]
    # The many pieces of a spline take long to compile: in the short form, of its laws those that need one program each.
    laws = ("log-determinant", "cache") if "spline" in name and not is_long else LAWS[:-1]
    report = check_kernel(cast(make(), dtype), target, num_points=32, laws=laws)
    assert {law.status for law in report.laws} == {"passed"}, report


# --- mistakes ----------------------------------------------------------------------------------------------------

HARD = HMC(0.8, 2)


def laws_broken(kernel, seen_by) -> set[str]:
    report = check_kernel(kernel, BIMODAL, laws=seen_by, num_points=32)
    return {law for law in seen_by if any(name.startswith(law) for name in report.failed_laws)}


@pytest.mark.parametrize("mutant", coordinate_mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_is_seen(mutant):
    kernel = coordinate_mutants.build(mutant, HARD, Bend())
    assert laws_broken(kernel, mutant.seen_by) == set(mutant.seen_by)


@pytest.mark.parametrize("wrong", coordinate_mutants.WRONG_MAPS)
def test_a_wrong_map_is_seen(wrong):
    seen_by = coordinate_mutants.WRONG_MAPS[wrong]
    outer = bent("affine", OUTER, 2, seed=5) if wrong is coordinate_mutants.OuterForgotten else OUTER
    kernel = coordinate_mutants.in_wrong_map(wrong, HARD, bent("affine", outer, 2))
    assert laws_broken(kernel, seen_by) == set(seen_by)


def test_the_unchanged_source_takes_the_same_steps():
    f, x = Bend(), BIMODAL.sample(KEY, 20)

    @eqx.filter_jit
    def step(kernel):
        return kernel.step(BIMODAL, kernel.init(BIMODAL, x), key=KEY)

    twin = coordinate_mutants.build(coordinate_mutants.IDENTITY, HARD, f)
    assert type(twin) is not InCoordinates
    for ours, theirs in zip(*map(jax.tree.leaves, (step(twin), step(InCoordinates(HARD, f)))), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# --- what it does, beside being exact ----------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_it_is_the_kernel_on_the_pulled_energy_told_in_x(temperature):
    """Step after step, with the same keys: positions, energies, gradients and decisions."""
    f = bent("affine", OUTER, 2)
    kernel = learned(L2HMC(2, 2, step_size=0.4, key=KEY))
    energy, pulled = Energy(BIMODAL, temperature), Energy(Pulled(BIMODAL, f, temperature), temperature)

    @eqx.filter_jit
    def run(kernel, function, x):
        def step(state, key):
            return kernel.step(function, state, key=key)

        return jax.lax.scan(step, kernel.init(function, x), jax.random.split(KEY, 20))

    x = BIMODAL.sample(jax.random.key(1), 50)
    there, info = run(InCoordinates(kernel, f), energy, x)
    state, info_z = run(kernel, pulled, f.backward(x))
    assert 0.1 < np.mean(info.is_accepted) < 0.95
    np.testing.assert_array_equal(info.is_accepted, info_z.is_accepted)
    np.testing.assert_allclose(info.acceptance, info_z.acceptance, atol=1e-8)
    expected = evaluate(BIMODAL, f.forward(state.position))
    for ours, theirs in zip(jax.tree.leaves(there), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-7)
    np.testing.assert_array_equal(info.num_gradients, info_z.num_gradients)


def test_evaluations_are_those_of_the_kernel_alone():
    """Counted as they happen."""
    count = 0

    def counted(x):
        def tick(_):
            nonlocal count
            count += 1

        jax.debug.callback(tick, x[0])
        return BIMODAL(x)

    kernel = InCoordinates(HMC(0.5, 3), bent("affine", OUTER, 1))
    state = kernel.init(counted, BIMODAL.sample(KEY, 4))
    _, info = eqx.filter_jit(kernel.step)(counted, state, key=KEY)
    jax.effects_barrier()
    assert count == 4 * (1 + 3) == 4 + int(info.num_gradients.sum())


@pytest.mark.parametrize("size", [1e308, np.nan], ids=["overflow", "nan"])
def test_a_map_that_is_not_finite_is_a_rejection(size):
    """Weights far too large: forward overflows for some z, and backward for some x."""
    f = bent("affine", unit(2), 2)
    bias = lambda f: f.layers.bijection.inner.conditioner.layers[-1].weight  # noqa: E731
    f = eqx.tree_at(bias, f, bias(f) * size)
    kernel = InCoordinates(HMC(0.8, 2), f)
    target = Gaussian(np.eye(2))
    state = kernel.init(target, target.sample(KEY, 500))
    after, info = eqx.filter_jit(kernel.step)(target, state, key=KEY)
    refused = ~np.isfinite(info.log_jacobian)
    assert refused.any()
    assert not info.is_accepted[refused].any()
    assert (info.acceptance[refused] == 0).all()
    assert info.is_divergent[refused].all()
    for leaf in jax.tree.leaves(after):
        assert np.isfinite(leaf).all()
    np.testing.assert_array_equal(after.position[:, refused], state.position[:, refused])


def test_whitening_makes_hmc_fast_on_scg():
    target = scg()
    kernel = InCoordinates(HMC(0.8, 2), whitening(target.mean, target.covariance))
    draws = sample(kernel, target, num_draws=400, seed=1, initial_positions=exact_starts(target, 50, seed=0))
    assert min_ess(draws.positions, draws.statistics["energy"]) > 0.3
    assert draws.num_gradients == 50 * (1 + 400 * 2)
    assert (draws.statistics["step_size"] == np.float32(0.8)).all()


@pytest.mark.parametrize("kind", ["affine map", "flow"])
def test_training_leaves_the_coordinates_alone(kind):
    f = Affine([1.0, 2.0], [[2.0, 0.5], [0.0, 0.7]]) if kind == "affine map" else bent("affine", OUTER, 1)
    inner = L2HMC(2, 1, key=jax.random.key(0), dtype=np.float64)
    trained = train(InCoordinates(inner, f), Gaussian(np.eye(2)), Recipe(20, 8), progress=False).kernel
    for before, after in zip(
        *(jax.tree.leaves(eqx.filter(g, eqx.is_array)) for g in (f, trained.coordinates)), strict=True
    ):
        np.testing.assert_array_equal(before, after)
    assert not np.array_equal(inner.v_network.first, trained.kernel.v_network.first)


def test_the_momentum_is_that_of_z():
    f = Affine([1.0, 2.0], [10.0, 0.1])
    state = InCoordinates(HARD, f).init(BIMODAL, BIMODAL.sample(KEY, 4000))
    momentum = refresh(state, key=KEY).momentum
    np.testing.assert_allclose(np.std(momentum, axis=1), 1, atol=0.05)
