"""Every mistake in `mutants` is seen by the law named beside it, and what is not a mistake by none."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest

from leapling.diagnostics.exactness import LAWS, check_kernel
from leapling.energy import Energy
from leapling.kernels import L2HMC, Phase
from leapling.targets import Gaussian

TARGET = Gaussian([[1.0, 0.6], [0.6, 1.0]], mean=np.array([0.5, 0.0]))


@pytest.fixture(scope="module")
def kernel() -> L2HMC:
    """Untrained, with heads as large as those of a trained kernel, so that S, Q and T matter."""
    kernel = L2HMC(2, 3, widths=(8,), step_size=0.3, key=jax.random.key(0))
    keys = jax.random.split(jax.random.key(1))
    return eqx.tree_at(
        lambda k: (k.v_network.heads.weight, k.x_network.heads.weight),
        kernel,
        tuple(0.5 * jax.random.normal(key, (6, 8)) for key in keys),
    )


def laws_broken(mutant, kernel) -> set[str]:
    """Of the laws that should see this mutant, those that do; no Jacobian where none needs it."""
    max_jacobian_dim = 64 if "log-determinant" in mutant.seen_by else 0
    report = check_kernel(mutants.build(mutant, kernel), TARGET, laws=mutant.seen_by, max_jacobian_dim=max_jacobian_dim)
    return {law for law in mutant.seen_by if any(name.startswith(law) for name in report.failed_laws)}


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_seen(mutant, kernel):
    assert mutant.seen_by
    assert laws_broken(mutant, kernel) == set(mutant.seen_by)


def test_the_unchanged_kernel_passes_every_law(kernel):
    twin = mutants.build(mutants.IDENTITY, kernel)
    report = check_kernel(twin, TARGET, laws=LAWS[:-1])
    assert type(twin) is not type(kernel)
    assert {law.status for law in report.laws} == {"passed"}
    assert report["invariance"].measured is not None
    report.assert_passed()


def test_a_mutant_keeps_weights_and_random_numbers(kernel):
    """An unchanged twin takes the very steps of the original, to the last bit."""
    twin = mutants.build(mutants.IDENTITY, kernel)
    position = TARGET.sample(jax.random.key(2), 50)

    @eqx.filter_jit
    def step(kernel):
        state, info = kernel.step(TARGET, kernel.init(TARGET, position), key=jax.random.key(3))
        return state.position, info.acceptance, info.proposal.position

    for ours, theirs in zip(step(kernel), step(twin), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("old", ["no such line", "position"])
def test_an_edit_must_match_exactly_once(old, kernel):
    mutant = mutants.Mutant("bad edit", mutants.edit("base", old, ""), ())
    with pytest.raises(ValueError, match="exactly once"):
        mutants.build(mutant, kernel)


def flat(x):
    return 0 * jnp.sum(x)


@eqx.filter_jit
def propose(kernel, function, phase):
    return kernel.propose(Energy(function), phase, key=jax.random.key(0))


def departs_from_the_paper(kernel) -> bool:
    """Two closed forms: a fall under a constant force if S = Q = T = 0, and v exp(eps M S) if S is constant."""
    eps, num_steps = float(kernel.step_size), kernel.num_steps
    heads = lambda k: (k.v_network.heads.weight, k.x_network.heads.weight)  # noqa: E731
    plain = eqx.tree_at(heads, kernel, replace_fn=jnp.zeros_like)
    scaling = eqx.tree_at(lambda k: k.v_network.heads.bias, plain, jnp.full(6, 0.0).at[:2].set(0.5))
    x, v = jnp.array([[0.3], [-0.2]]), jnp.array([[0.7], [1.1]])
    forward = jnp.array([True])

    fall = propose(plain, jnp.sum, Phase(plain.init(jnp.sum, x), v, forward))
    fallen = v - eps * num_steps
    flight = propose(scaling, flat, Phase(scaling.init(flat, x), v, forward))
    growth = eps * num_steps * np.tanh(0.5)
    return not (
        np.allclose(fall.phase.momentum, fallen, rtol=1e-12)
        and np.allclose(flight.phase.momentum, v * np.exp(growth), rtol=1e-12)
        and np.allclose(flight.log_jacobian, 2 * growth, rtol=1e-12)
    )


@pytest.mark.parametrize("mutant", mutants.STILL_EXACT, ids=lambda mutant: mutant.name)
def test_an_exact_stranger_breaks_no_law_and_is_told_by_its_formulas(mutant, kernel):
    stranger = mutants.build(mutant, kernel)
    check_kernel(stranger, TARGET, laws=["log-determinant", "antisymmetry", "invariance"]).assert_passed()
    assert departs_from_the_paper(stranger)
    assert not departs_from_the_paper(kernel)
