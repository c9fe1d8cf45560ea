"""Mixtures and cycles: exact if their parts are, charged for what they use, and no cover for a wrong part."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import DTypeLike

from leapling.chains import exact_starts, sample
from leapling.coordinates import Affine
from leapling.diagnostics import check_kernel, min_ess
from leapling.kernels import HMC, L2HMC, LAHMC, Cycle, InCoordinates, Mixture
from leapling.kernels.base import evaluate
from leapling.store import load_run, save_run
from leapling.targets import GaussianMixture, scg

BIMODAL = GaussianMixture([[-1.0, 0.0], [1.5, 0.5]], [1.0, 0.6])


def broken(dtype: DTypeLike = np.float64, step_size=0.3, size=60.0) -> L2HMC:
    """A network that training has spoilt: hardly anything is accepted. Its step is exact all the same."""
    kernel = L2HMC(2, 5, step_size=step_size, key=jax.random.key(0), dtype=dtype)
    heads = lambda k: (k.v_network.heads.weight, k.x_network.heads.weight)  # noqa: E731
    return eqx.tree_at(heads, kernel, replace_fn=lambda w: size * w)


KERNELS = {
    "mixture": lambda: Mixture([HMC(0.9, 2), broken()], [3.0, 1.0]),
    "cycle": lambda: Cycle([HMC(0.9, 2), broken(size=10.0)]),
    "both": lambda: Mixture([Cycle([HMC(0.5, 1), HMC(0.9, 2)]), InCoordinates(HMC(0.9, 2), Affine([0, 0], [1, 2]))]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_every_law(name):
    laws = ["cache", "temperature", "invariance", *(["round trip"] if name == "both" else [])]
    report = check_kernel(KERNELS[name](), BIMODAL, laws=laws)
    assert report.passed, report
    if name == "both":
        assert {law.name for law in report.laws if "round trip" in law.name} == {
            *(f"round trip ({dtype}) of part {i} of part 0" for dtype in ("float32", "float64") for i in (0, 1)),
            *(f"round trip ({dtype}) of part 1" for dtype in ("float32", "float64")),
        }
    assert report["invariance"].status == "passed"


class Shifted(HMC):
    """Wrong: accepts whatever is proposed."""

    def step(self, energy, state, *, key):
        _, info = super().step(energy, state, key=key)
        return info.proposal, eqx.tree_at(lambda i: i.is_accepted, info, jnp.ones_like(info.is_accepted))


@pytest.mark.parametrize(
    "compose", [lambda k: Mixture([HMC(0.9, 2), k]), lambda k: Cycle([HMC(0.9, 2), k])], ids=["mixture", "cycle"]
)
def test_a_wrong_part_is_seen(compose):
    assert check_kernel(compose(cast(Any, Shifted)(1.3, 2)), BIMODAL, laws=["invariance"]).failed_laws == (
        "invariance",
    )


def test_a_mixture_whose_choice_looks_at_the_state_is_seen():
    """Independence makes a mixture exact: here chains on the left take another kernel than those on the right."""

    class Peeking(Mixture):
        def step(self, energy, state, *, key):
            one, other = (kernel.step(energy, state, key=key) for kernel in self.components)
            is_left = state.position[0] < 0
            return jax.tree.map(lambda a, b: jnp.where(is_left, a, b), one, other)

    kernel = cast(Any, Peeking)([HMC(1.2, 1), HMC(0.2, 1)])
    assert check_kernel(kernel, BIMODAL, laws=["invariance"]).failed_laws == ("invariance",)


def test_a_cycle_is_run_backward_in_the_other_order():
    cycle = Cycle([HMC(0.5, 1), HMC(0.9, 2)])
    assert [int(k.num_steps) for k in cycle.reversed().components if isinstance(k, HMC)] == [2, 1]


def test_weights_are_the_shares_of_the_transitions_and_each_is_charged():
    kernel = Mixture([HMC(0.5, 1), HMC(0.5, 4)], [3.0, 1.0])
    draws = sample(kernel, BIMODAL, num_draws=4000, initial_positions=exact_starts(BIMODAL, 4, seed=0))
    steps = draws.statistics["n_steps"]
    assert set(np.unique(steps)) == {1, 4}
    assert abs(np.mean(steps == 1) - 0.75) < 0.03
    assert (steps == steps[:1]).all()  # one component for the whole batch
    assert draws.num_gradients == 4 + steps.sum()
    cycle = sample(Cycle([HMC(0.5, 1), HMC(0.5, 4)]), BIMODAL, num_draws=10, initial_positions=np.zeros((2, 2)))
    assert (cycle.statistics["n_steps"] == 5).all()


def test_a_broken_network_costs_a_mixture_its_share_and_no_more():
    """Of HMC's min_ess per transition at least 0.8 w / (2 - w) is left: a chain that rests while the network fails."""
    target, weight = scg(), 0.5
    starts = exact_starts(target, 100, seed=0)
    hmc = HMC(0.15, 105)
    bad = broken(np.float32, size=1000.0)
    worth = {}
    for name, kernel in (("hmc", hmc), ("bad", bad), ("mixture", Mixture([hmc, bad], [weight, 1 - weight]))):
        draws = sample(kernel, target, num_draws=600, seed=1, initial_positions=starts, warn=False)
        worth[name] = min_ess(draws.positions, draws.statistics["energy"])
    assert worth["bad"] < 0.01
    assert worth["mixture"] >= 0.8 * weight / (2 - weight) * worth["hmc"]


def test_a_cycle_reports_on_all_of_it():
    kernel = Cycle([HMC(0.9, 2), HMC(1.5, 3)])
    state = kernel.init(BIMODAL, BIMODAL.sample(jax.random.key(0), 300))
    after, info = kernel.step(BIMODAL, state, key=jax.random.key(1))
    np.testing.assert_allclose(info.energy_change, after.energy - state.energy, atol=1e-12)
    assert np.array_equal(info.is_accepted, (after.position != state.position).any(axis=0))
    fresh = evaluate(BIMODAL, after.position)
    np.testing.assert_allclose(fresh.gradient, after.gradient, atol=1e-12)


def test_compositions_are_stored(tmp_path):
    kernel = Mixture([broken(np.float32), Cycle([HMC(0.5, 3), broken(np.float32)])], [1.0, 2.0])
    save_run(tmp_path, kernel)
    loaded, header = load_run(tmp_path)
    assert [part["kind"] for part in header["kernel"]["parts"]] == ["L2HMC", "Cycle"]
    assert jax.tree.structure(loaded) == jax.tree.structure(kernel)
    for ours, theirs in zip(jax.tree.leaves(loaded), jax.tree.leaves(kernel), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Mixture([]), "at least one kernel, got none"),
        (lambda: Cycle([]), "at least one kernel, got none"),
        (lambda: Mixture([HMC()], [1.0, 2.0]), "a mixture of 1 kernels needs as many weights"),
        (lambda: Mixture([HMC(), HMC()], [1.0, 0.0]), "all above 0"),
        (lambda: Mixture([HMC(), LAHMC(HMC())]), "LAHMC keeps a momentum"),
    ],
)
def test_bad_compositions_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
