"""Parallel tempering: exact on all its replicas, charged for each, and able to cross what nothing else crosses."""

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest

from leapling.chains import sample
from leapling.diagnostics import check_kernel
from leapling.energy import tempered
from leapling.kernels import HMC, L2HMC, LAHMC, Tempering
from leapling.kernels.base import evaluate
from leapling.kernels.tempering import as_replicas
from leapling.targets import Gaussian, GaussianMixture
from leapling.training import train

TARGET = Gaussian([[1.0, 0.6], [0.6, 1.0]], mean=np.array([0.5, 0.0]))
BETAS = (1.0, 0.6, 0.3)


def bimodal(x):
    """Two wells, one deeper, with a barrier of about two between them."""
    return (x[0] ** 2 - 2) ** 2 / 2 - x[0] / 4


def product_sampler(betas=BETAS):
    """Exact draws of the product of exp(-beta U), by inversion on a fine grid."""

    def draw(key, num, dtype):
        grid = jnp.linspace(-6, 6, 20_001, dtype=dtype)
        u = jax.vmap(bimodal)(grid[:, None])
        draws = []
        for beta, one in zip(betas, jax.random.split(key, len(betas)), strict=True):
            mass = jnp.cumsum(jnp.exp(-jnp.asarray(beta, dtype) * u))
            draws.append(jnp.interp(jax.random.uniform(one, (num,), dtype), mass / mass[-1], grid))
        return jnp.stack(draws)

    return draw


def learned(dim=2, size=20.0) -> L2HMC:
    kernel = L2HMC(dim, 2, widths=(8,), step_size=0.6, context_dim=1, key=jax.random.key(0))
    heads = lambda k: (k.v_network.heads.weight, k.x_network.heads.weight)  # noqa: E731
    return eqx.tree_at(heads, kernel, replace_fn=lambda w: size * w)


def test_one_network_for_all_temperatures():
    """In which S, Q and T matter, and the temperature to them."""
    kernel = Tempering(learned(), BETAS)
    report = check_kernel(kernel, TARGET)
    assert {law.name for law in report.laws if law.status == "passed"} == {"cache", "temperature", "invariance"}
    report.assert_passed()
    state = kernel.init(TARGET, TARGET.sample(jax.random.key(0), 50))
    told, other = (
        Tempering(operator, BETAS).step(TARGET, state, key=jax.random.key(1))[1].acceptance
        for operator in (learned(), learned().given(jnp.zeros(1)))
    )
    assert float(jnp.max(jnp.abs(told - other))) > 0.01


def test_two_wells_as_mutants_are_built():
    kernel = mutants.build_tempering(mutants.IDENTITY, Tempering(HMC(0.7, 2), BETAS))
    assert type(kernel) is not Tempering
    report = check_kernel(
        kernel, bimodal, dim=1, sampler=product_sampler(), laws=["cache", "temperature", "invariance"]
    )
    assert {law.status for law in report.laws} == {"passed"}, report


def test_quadrature_on_the_product_of_two():
    report = check_kernel(Tempering(HMC(0.9, 2), [1.0, 0.4]), bimodal, dim=1, laws=["quadrature"])
    assert report["quadrature"].status == "passed", report


def test_an_energy_without_draws_is_checked_on_a_gaussian():
    mixture: Callable = lambda x: GaussianMixture([[-1.0, 0.0], [1.5, 0.5]], [1.0, 0.6])(x)  # noqa: E731
    report = check_kernel(Tempering(HMC(1.5, 2), BETAS), mixture, dim=2, laws=["invariance"])
    assert report["invariance"].status == "on a stand-in", report


MUTANTS = (
    mutants.Mutant(
        "the swap ratio has lost the sign of the energy difference",
        mutants.edit("tempering", "* (u[:-1] - u[1:])", "* jnp.abs(u[:-1] - u[1:])"),
        ("invariance",),
    ),
    mutants.Mutant(
        "the swap forgets the cached gradients",
        mutants.edit(
            "tempering",
            "return jax.tree.map(trade, replicas), is_swapped",
            "r = replicas\n        return State(trade(r.position), trade(r.energy), r.gradient), is_swapped",
        ),
        ("cache",),
    ),
    mutants.Mutant(
        "the ladder is not applied in the move",
        mutants.edit("tempering", "beta.dtype) / beta\n", "beta.dtype) * jnp.ones_like(beta)\n"),
        ("invariance",),
    ),
    mutants.Mutant(
        "whose turn it is depends on the state",
        mutants.edit(
            "tempering",
            "        pair = ",
            "        turn = (replicas.position[0, 0] > 0).astype(jnp.int32)\n        pair = ",
        ),
        ("invariance",),
    ),
    mutants.Mutant(
        "pairs overlap",
        mutants.edit("tempering", "(pair % 2 == turn[None]) & ", ""),
        ("invariance",),
    ),
    mutants.Mutant(
        "the temperature of the target is left out of the swap",
        mutants.edit("tempering", "(u) / jnp.asarray(energy.temperature, u.dtype)", "(u)"),
        ("temperature",),
    ),
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_seen(mutant):
    kernel = mutants.build_tempering(mutant, Tempering(HMC(0.7, 2), BETAS))
    report = check_kernel(kernel, bimodal, dim=1, sampler=product_sampler(), laws=mutant.seen_by)
    assert report.failed_laws == mutant.seen_by


def test_the_chain_is_not_reversible():
    """Run backward by itself it fails: the swaps come first then."""

    class Forward(Tempering):
        def reversed(self):  # pyright: ignore[reportIncompatibleMethodOverride]
            return self

    betas = (1.0, 0.5)
    for kind, failed in ((Forward, ("invariance",)), (Tempering, ())):
        kernel = cast(Any, kind)(HMC(1.3, 1), betas)
        report = check_kernel(
            kernel, bimodal, dim=1, sampler=product_sampler(betas), laws=["invariance"], num_chains=32_768
        )
        assert report.failed_laws == failed


APART = GaussianMixture([[-3.0, 0.0], [3.0, 0.0]], [1.0, 0.05])


def test_it_joins_modes_that_annealing_cannot():
    """Started in the wide mode, 6 deviations of it away from a narrow one that holds as much. A chain at one
    temperature never leaves; annealing, which decides while it is hot, leaves nearly all chains in the wide mode."""
    start = np.tile([[-3.0, 0.0]], (100, 1)).astype(np.float32)
    operator = HMC(0.15, 5, step_size_jitter=0.5)

    def share(position) -> float:
        return float(np.mean(position[..., 0] > 1.5))

    alone = sample(operator, APART, num_draws=200, initial_positions=start)
    assert share(alone.positions) == 0

    @eqx.filter_jit
    def annealed(state, key):
        def one(state, inputs):
            temperature, key = inputs
            return operator.step(tempered(APART, temperature), state, key=key)[0], None

        temperatures = jnp.asarray(np.geomspace(20, 1, 1000), np.float32)
        return jax.lax.scan(one, state, (temperatures, jax.random.split(key, 1000)))[0]

    end = annealed(evaluate(APART, jnp.asarray(start.T)), jax.random.key(0))
    assert share(np.asarray(end.position).T) < 0.25

    kernel = Tempering(operator, np.geomspace(1, 0.05, 6))
    draws = sample(kernel, APART, num_draws=800, num_warmup=200, initial_positions=start)
    assert abs(share(draws.positions) - 0.5) < 0.1  # five standard errors


def test_a_run_goes_on_from_its_replicas():
    kernel = Tempering(HMC(0.3, 4), BETAS)
    state = kernel.init(TARGET, jnp.zeros((2, 7)))
    draws = sample(kernel, TARGET, num_draws=5, initial_state=state)
    assert draws.positions.shape == (7, 5, 2)
    assert draws.state.all.position.shape == (2, 3, 7)
    assert draws.num_gradients == 7 * 5 * 12


@pytest.mark.parametrize("shape", [(2,), (2, 3, 2)])
def test_swaps_move_replicas_whole(shape):
    """Nothing is lost or doubled, and what is cached goes along."""
    kernel = Tempering(HMC(0.3, 4), np.linspace(1, 0.1, 5))
    positions = jax.random.normal(jax.random.key(0), (2, 5, *shape[1:]))
    replicas = evaluate(TARGET, positions)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), as_replicas(replicas).all, replicas))
    state = kernel.init(TARGET, positions[:, 0])
    assert state.all.position.shape == positions.shape
    swapped, is_swapped, acceptance = kernel.swap(tempered(TARGET, 1.0), replicas, key=jax.random.key(1))
    assert is_swapped.any()
    assert acceptance.shape == is_swapped.shape == (4, *shape[1:])
    np.testing.assert_array_equal(np.sort(swapped.energy, axis=0), np.sort(replicas.energy, axis=0))
    np.testing.assert_allclose(swapped.gradient, evaluate(TARGET, swapped.position).gradient)
    after, info = eqx.filter_jit(kernel.step)(TARGET, state, key=jax.random.key(2))
    assert after.position.shape == shape
    assert info.energy_change.shape == shape[1:]


def test_swap_acceptance_of_gaussians():
    """In the n-d Gaussian 2 beta U is chi-squared: the mean acceptance of a swap has a closed form for n = 2,
    2 beta' / (beta + beta')."""
    target, beta = Gaussian(np.eye(2)), 0.4
    kernel = Tempering(HMC(0.3, 1), [1.0, beta])
    cold, hot = target.sample(jax.random.key(0), 20_000), target.sample(jax.random.key(1), 20_000) / beta**0.5
    replicas = evaluate(target, jnp.stack([cold, hot], axis=1))
    _, is_swapped, acceptance = kernel.swap(tempered(target, 1.0), replicas, key=jax.random.key(2))
    assert float(jnp.mean(acceptance)) == pytest.approx(2 * beta / (1 + beta), abs=0.01)
    assert float(jnp.mean(is_swapped)) == pytest.approx(2 * beta / (1 + beta), abs=0.015)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Tempering(LAHMC(HMC()), BETAS), "needs a Metropolis kernel such as HMC or L2HMC, got LAHMC"),
        (lambda: Tempering(HMC(), [1.0]), r"two at least, got \[1.0\]; try np.geomspace"),
        (lambda: Tempering(HMC(), [0.9, 0.5]), "must fall from 1"),
        (lambda: Tempering(HMC(), [1.0, 0.5, 0.5]), "must fall from 1"),
        (lambda: Tempering(HMC(), [1.0, 0.0]), "stay above 0"),
        (lambda: Tempering(HMC(), [1.0, np.nan]), "stay above 0"),
        (lambda: train(Tempering(learned(), BETAS), TARGET, progress=False), "Tempering is not trained: train its op"),
    ],
)
def test_bad_use_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
