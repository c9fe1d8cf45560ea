"""Algorithm 1: what it computes, what it refuses, and that it goes on where it was stopped."""

import dataclasses
import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.chains import sample
from leapling.energy import tempered
from leapling.kernels import HMC, L2HMC, Info, State
from leapling.store import load_checkpoint, save_checkpoint
from leapling.targets import mog, scg
from leapling.training import Annealing, Jump, Preset, Recipe, TrainingStopped, estimate, preset, train
from leapling.training.loop import begin, iterate
from leapling.training.train import default_start

SHORT = Recipe(num_iterations=30, batch_size=16)


def bowl(x):
    return 0.5 * jnp.sum(x**2)


def small(dtype: Any = np.float32, **options):
    return L2HMC(2, 3, step_size=0.2, key=jax.random.key(1), dtype=dtype, **options)


def same_bits(a, b):
    return all(
        np.array_equal(x, y, equal_nan=True)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        if eqx.is_array(x)
    )


def info_of(proposal, acceptance, start):
    zeros = jnp.zeros_like(acceptance)
    state = State(proposal, zeros, jnp.zeros_like(proposal))
    return Info(acceptance, zeros > 1, state, zeros, zeros, zeros > 1, jnp.zeros(acceptance.shape, jnp.int32))


def test_paper_loss_by_hand():
    start = State(jnp.zeros((2, 2)), jnp.zeros(2), jnp.zeros((2, 2)))
    info = info_of(jnp.array([[3.0, 1.0], [4.0, 0.0]]), jnp.array([0.5, 0.0]), start)
    objective = Jump(scale=2.0, floor=0.1)
    losses = objective.losses(start, info)
    np.testing.assert_allclose(objective(start, info), np.mean(losses), rtol=1e-12)
    np.testing.assert_allclose(losses, [4 / 12.6 - 12.6 / 4, 4 / 0.1 - 0.1 / 4], rtol=1e-12)
    only_jump = Jump(scale=2.0, floor=0.1, reciprocal=False).losses(start, info)
    np.testing.assert_allclose(only_jump, [-12.6 / 4, -0.1 / 4], rtol=1e-12)


@pytest.mark.parametrize("burn_in_weight", [0.0, 0.7])
def test_one_iteration_is_adam_on_the_loss_written_out(burn_in_weight):
    """The update is recomputed here from the transition alone: both terms, the temperature, the schedule."""
    recipe = Recipe(10, 8, Jump(0.5), burn_in_weight, temperature=Annealing(4.0), learning_rate=3e-3)
    kernel = small(np.float64)
    initial = default_start(kernel, bowl, recipe)
    state = begin(kernel, bowl, recipe, seed=5, initial=initial)
    after = iterate(bowl, recipe, initial, state)

    key_step, key_initial = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(state.root), 0))
    energy = tempered(bowl, 4.0)
    fresh = kernel.init(bowl, initial(key_initial, 8))
    both = jax.tree.map(lambda p, q: jnp.concatenate([p, q], -1), state.chains, fresh)
    start = both if burn_in_weight else state.chains

    def loss(kernel):
        _, info = kernel.step(energy, start, key=key_step)
        values = Jump(0.5).losses(start, info)
        return values[:8].mean() + (burn_in_weight * values[8:].mean() if burn_in_weight else 0.0)

    value, gradient = eqx.filter_value_and_grad(loss)(kernel)
    for before, g, now in zip(
        *(jax.tree.leaves(eqx.filter(k, eqx.is_inexact_array)) for k in (kernel, gradient, after.kernel)),
        strict=True,
    ):
        np.testing.assert_allclose(now, before - 3e-3 * g / (jnp.abs(g) + 1e-8), rtol=0, atol=1e-9)  # Adam's first
    np.testing.assert_allclose(after.history[0, 0], value, rtol=1e-12)
    assert np.array_equal(kernel.masks, after.kernel.masks)  # pyright: ignore[reportAttributeAccessIssue]
    # The chains follow the kernel before the update, untempered.
    end, _ = kernel.step(energy, start, key=key_step)
    np.testing.assert_allclose(after.chains.position, end.position[:, :8], rtol=1e-12)
    np.testing.assert_allclose(after.chains.energy, jax.vmap(bowl, -1)(after.chains.position), rtol=1e-12)


def test_training_improves_what_it_optimises():
    recipe = Recipe(num_iterations=500, batch_size=64)
    result = train(small(), scg(), recipe, seed=0, progress=False)
    loss = result.history["loss"]
    assert loss[-100:].mean() < 2 * loss[50:150].mean() < 0  # more negative is longer jumps
    assert result.history["step_size"][-1] != result.history["step_size"][0]
    assert result.num_gradients == 64 * (500 * 3 + 1)
    assert np.isfinite(loss).all()
    assert result.history["skipped"].sum() == 0


def test_gradients_are_charged_with_the_burn_in_draws():
    result = train(small(), bowl, dataclasses.replace(SHORT, burn_in_weight=1.0), progress=False)
    assert result.num_gradients == 16 * (30 * (2 * 3 + 1) + 1)


def test_same_seed_same_bits_other_seed_other_bits():
    first, second = (train(small(), bowl, SHORT, seed=3, progress=False) for _ in range(2))
    assert same_bits(first.state, second.state)
    assert not same_bits(first.kernel, train(small(), bowl, SHORT, seed=4, progress=False).kernel)


def test_resuming_from_a_checkpoint_gives_the_same_bits(tmp_path):
    recipe = Recipe(num_iterations=700, batch_size=8, temperature=Annealing(3.0, 0.9, 20))
    whole = train(small(), mog(), recipe, seed=2, progress=False)

    class Killed(BaseException):
        pass

    def kill_after_first_block(state):
        save_checkpoint(tmp_path, state, {"seed": 2})
        raise Killed

    with pytest.raises(Killed):
        train(small(), mog(), recipe, seed=2, on_block=kill_after_first_block, progress=False)
    fresh = begin(small(), mog(), recipe, seed=2, initial=default_start(small(), mog(), recipe))
    stored = load_checkpoint(tmp_path, fresh, {"seed": 2})
    assert stored is not None
    assert 0 < int(stored.iteration) < 700
    resumed = train(small(), mog(), recipe, seed=2, resume=stored, progress=False)
    assert same_bits(whole.state, resumed.state)


def test_best_is_chosen_at_the_final_temperature_only():
    recipe = Recipe(num_iterations=1000, batch_size=8, temperature=Annealing(8.0, 0.5, 100))
    result = train(small(), bowl, recipe, progress=False)
    blocks = result.history["loss"].reshape(-1, 250).mean(axis=1)
    cold = result.history["temperature"][::250] <= 1
    assert cold.any()
    assert not cold.all()
    np.testing.assert_allclose(float(result.state.best_loss), blocks[cold].min(), rtol=1e-5)


def test_a_bound_context_is_not_trained():
    kernel = small(context_dim=3).given(jnp.ones(3, np.float32))
    result = train(kernel, bowl, SHORT, progress=False)
    assert np.array_equal(result.kernel.context, np.ones(3))
    assert not same_bits(kernel.v_network, result.kernel.v_network)


def test_hmc_is_tuned_not_trained():
    with pytest.raises(ValueError, match=r"with leapling\.tune"):
        train(HMC(0.05, 3), bowl, SHORT, dim=2, progress=False)


def test_stops_when_the_loss_diverges():
    def cliff(x):  # finite where chains start, infinite wherever they go
        return jnp.sum(jnp.where(jnp.abs(x) < 1e-3, x**2, jnp.inf))

    recipe = Recipe(num_iterations=600, batch_size=8, initial_scale=1e-5)
    broken = eqx.tree_at(lambda k: k.v_network.bias, small(), jnp.full(10, jnp.nan, np.float32))
    with pytest.raises(TrainingStopped, match=r"the loss diverged: 100% .* try a smaller learning_rate") as stopped:
        train(broken, bowl, SHORT, progress=False)
    assert len(stopped.value.result.history["loss"]) == 30
    with pytest.raises(TrainingStopped, match="acceptance collapsed"):
        train(small(), cliff, dataclasses.replace(recipe, num_iterations=1500), progress=False)


def test_estimate_matches_the_run():
    cost = estimate(small(), bowl, SHORT)
    assert cost.gradients == train(small(), bowl, SHORT, progress=False).num_gradients
    assert cost.seconds > 0
    assert 1e4 < cost.memory_bytes < 1e8


def test_start_outside_the_support_is_refused():
    def half_line(x):
        return jnp.where(x[0] > 0, jnp.sum(x), jnp.inf)

    with pytest.raises(ValueError, match=r"energy is inf at \d+ of 16 starting points .* inside the support"):
        train(small(), half_line, SHORT, progress=False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_iterations": 0}, "num_iterations must be above 0, got 0"),
        ({"batch_size": -1}, "batch_size must be above 0, got -1"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0, got nan"),
        ({"burn_in_weight": -1.0}, "burn_in_weight must be 0 or more, got -1"),
    ],
)
def test_bad_recipes_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        Recipe(**change)


def test_a_summary_before_the_temperature_is_final_is_json():
    recipe = Recipe(60, 8, temperature=Annealing(10.0, 0.98, 30))
    summary = train(L2HMC(2, 2, key=jax.random.key(0)), bowl, recipe, progress=False).summary()
    assert summary["best_loss"] is None
    assert json.loads(json.dumps(summary, allow_nan=False))["temperature"] == pytest.approx(9.8)


def test_presets():
    assert preset("paper", "icg").width == 100
    assert preset("paper", "rough-well").recipe.burn_in_weight == 1
    assert preset("paper", "an energy of one's own") == Preset()
    assert preset("quick", "scg").recipe.num_iterations == 1000
    hot, quick = (preset(name, "mog").recipe for name in ("paper", "quick"))
    ends = [float(r.temperature(jnp.asarray(r.num_iterations - 1))) for r in (hot, quick)]
    assert ends == [1.0, 1.0]
    with pytest.raises(ValueError, match="unknown preset 'huge'"):
        preset("huge", "scg")


def test_a_trained_kernel_samples_its_target():
    target = scg()
    result = train(small(), target, Recipe(num_iterations=500, batch_size=64), progress=False)
    exact = np.asarray(target.sample(jax.random.key(0), 500, np.float32)).T
    draws = sample(result.kernel, target, num_draws=50, initial_positions=exact)
    variance = draws.positions.reshape(-1, 2).var(axis=0)
    np.testing.assert_allclose(variance, target.variance, rtol=0.2)
