"""A-NICE-MC: what its critic sees, what a short training achieves, what it is charged, and what it refuses."""

from dataclasses import replace
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.chains import sample
from leapling.diagnostics.exactness import check_kernel
from leapling.kernels import HMC, NICE
from leapling.targets import mog2
from leapling.training import AdversarialRecipe, adversarial_recipe, nice_kernel, train_adversarial
from leapling.training.critic import critic_loss, make_critic, pairs_of_walks, real_pairs, walk

SHORT = replace(adversarial_recipe("mog2", 0.05), num_chains=64, bootstrap_steps=50)


@pytest.fixture(scope="module")
def short():
    return train_adversarial(nice_kernel(2, 0), mog2(), SHORT, seed=0, progress=False)


def test_a_short_training_crosses_between_modes_and_stays_exact(short):
    """All chains start in the left mode; an untrained kernel never leaves it."""
    start = np.tile(np.array([-5.0, 0.0], np.float32), (100, 1))

    def share_right(kernel):
        draws = sample(kernel, mog2(), num_draws=400, initial_positions=start, warn=False)
        right = draws.positions[:, :, 0] > 0
        return np.mean(right[:, 1:] != right[:, :-1]), np.mean(right[:, 200:])

    assert share_right(nice_kernel(2, 0)) == (0, 0)
    crossings, share = share_right(short.kernel)
    assert crossings > 0.05
    assert 0.45 < share < 0.55
    report = check_kernel(short.kernel, mog2(), laws=["round trip", "log-determinant", "antisymmetry", "invariance"])
    assert report.passed
    assert not report.failed_laws


def test_every_evaluation_is_charged_and_history_is_whole(short):
    num_bootstraps = SHORT.num_iterations / SHORT.refresh_every
    assert short.num_gradients == 64 * (1 + num_bootstraps * (1 + SHORT.burn_in + 50))
    assert {len(values) for values in short.history.values()} == {SHORT.num_iterations}
    assert all(np.isfinite(values).all() for values in short.history.values())
    assert short.history["skipped"].sum() == 0
    assert len(set(short.history["acceptance"])) == num_bootstraps
    assert short.seconds > 0


def test_a_seed_says_it_all():
    num_iterations = 45  # the last block is a short one
    recipe = AdversarialRecipe(
        num_iterations=num_iterations, refresh_every=20, num_chains=16, burn_in=5, bootstrap_steps=5, batch_size=8
    )
    one, same, other = (
        train_adversarial(nice_kernel(2, 0), mog2(), recipe, seed=seed, progress=False) for seed in (3, 3, 4)
    )
    for a, b in zip(jax.tree.leaves(one.kernel), jax.tree.leaves(same.kernel), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(one.history["loss"], other.history["loss"])
    num_bootstraps = -(-num_iterations // 20)
    assert one.num_gradients == 16 * (1 + num_bootstraps * 11)


def test_the_critic_tells_a_chain_that_stays_from_one_that_mixes():
    """Both have the right marginals: the pair alone gives it away."""
    draws = mog2().sample(jax.random.key(0), 4000, np.float32)
    mixing = real_pairs(draws, 1000, key=jax.random.key(1))
    assert mixing.shape == (4, 1000)
    assert abs(np.corrcoef(mixing[0], mixing[2])[0, 1]) < 0.1
    staying = jnp.concatenate([draws[:, :1000], draws[:, :1000]])
    critic = make_critic(2, (16,), key=jax.random.key(2), dtype=np.float32)

    @jax.jit
    def learn(critic):
        gradient = jax.grad(critic_loss)(critic, mixing, staying, 10.0, key=jax.random.key(3))
        return jax.tree.map(lambda w, g: w - 0.01 * g, critic, gradient)

    for _ in range(300):
        critic = learn(critic)
    assert float(jnp.mean(critic(mixing)) - jnp.mean(critic(staying))) > 1


def test_the_penalty_is_of_slopes_that_are_not_one():
    pairs = jnp.ones((2, 4), np.float32)  # positive, where the rectifiers below are linear
    for slope, expected in ((1, 0), (3, 4)):
        critic = eqx.tree_at(
            lambda c: tuple(layer.weight for layer in c.layers),
            make_critic(1, (2,), key=jax.random.key(0), dtype=np.float32),
            (jnp.eye(2, dtype=np.float32), slope * jnp.asarray([[0.6, 0.8]], np.float32)),
        )
        loss = critic_loss(critic, pairs, pairs, 1.0, key=jax.random.key(1))
        np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-6)


def test_walks_are_proposals_in_a_row_without_accept_step():
    kernel = nice_kernel(2, 0)
    x = jax.random.normal(jax.random.key(0), (2, 400), np.float32)
    key = jax.random.key(1)
    once, momentum = walk(kernel, x, 1, key=key)
    ahead_x, ahead_v, _ = kernel.couple(
        x, jax.random.normal(jax.random.split(key)[1], (1, 2, 400), np.float32)[0], jnp.ones(400, bool)
    )
    np.testing.assert_allclose(once, ahead_x, rtol=1e-6)
    np.testing.assert_allclose(momentum, ahead_v, rtol=1e-6)
    far, _ = walk(kernel, x, 50, key=key)
    assert jnp.mean((far - x) ** 2) > 5 * jnp.mean((once - x) ** 2)


def test_pairs_lead_from_data_and_from_where_noise_arrived():
    kernel = nice_kernel(2, 0)
    data, noise = jnp.ones((2, 3), np.float32), jnp.full((2, 3), 7, np.float32)
    pairs, momenta = pairs_of_walks(kernel, AdversarialRecipe(), data, noise, key=jax.random.key(0))
    assert pairs.shape == (4, 6)
    assert momenta.shape == (2, 9)
    np.testing.assert_array_equal(pairs[:2, :3], data)
    assert (pairs[:2, 3:] != noise).all()
    assert (pairs[2:] != pairs[:2]).all()


def test_a_share_of_a_recipe():
    full = adversarial_recipe("mog2")
    assert adversarial_recipe("mog2", 0.2) == replace(full, num_iterations=full.num_iterations // 5)
    with pytest.raises(ValueError, match="no adversarial recipe for 'scg'; there are mog2, mog2-unequal"):
        adversarial_recipe("scg")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: AdversarialRecipe(num_iterations=0), "num_iterations must be above 0, got 0"),
        (lambda: AdversarialRecipe(initial_scale=-1.0), "initial_scale must be above 0, got -1"),
        (lambda: AdversarialRecipe(batch_size=5), "batch_size must be even and at least 2, got 5"),
        (lambda: AdversarialRecipe(penalty=-1.0), "penalty must be 0 or more, got -1"),
        (lambda: AdversarialRecipe(critic_widths=()), "at least one layer"),
        (lambda: adversarial_recipe("mog2", 0.0), "num_iterations must be above 0, got 0"),
        (lambda: train_adversarial(nice_kernel(3, 0), mog2(), progress=False), "the number of coordinates must be one"),
        (lambda: train_adversarial(nice_kernel(2, 0), mog2(), dim=5, progress=False), "the number of coordinates"),
        (lambda: train_adversarial(nice_kernel(2, 0), lambda x: jnp.log(x[0]), progress=False), "energy is nan"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_another_kernel_is_refused():
    with pytest.raises((ValueError, TypeError), match="NICE"):
        train_adversarial(cast(Any, HMC()), mog2(), progress=False)


def test_a_float64_kernel_in_one_dimension():
    recipe = AdversarialRecipe(num_iterations=5, num_chains=8, burn_in=2, bootstrap_steps=2, batch_size=4)
    kernel = NICE(1, key=jax.random.key(0), dtype="float64")
    result = train_adversarial(kernel, lambda x: jnp.sum(x**2) / 2, recipe, progress=False)
    assert result.kernel.dtype == np.float64
    assert np.isfinite(result.history["loss"]).all()
