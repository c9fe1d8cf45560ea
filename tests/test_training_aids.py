"""Aids of training: a clipped gradient, a cosine of the learning rate, and a force that is a constant."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from leapling.coordinates import Affine
from leapling.energy import Energy, tempered
from leapling.kernels import L2HMC, InCoordinates, Kernel
from leapling.targets import DiagonalGaussian
from leapling.training import Recipe
from leapling.training.loop import begin, iterate
from leapling.training.train import default_start

TARGET = DiagonalGaussian(np.array([1.0, 4.0]))


def small(num_steps: int = 2) -> L2HMC:
    return L2HMC(2, num_steps, step_size=0.3, key=jax.random.key(0), dtype=np.float64)


def arrays(tree: Any) -> list:
    return jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))


def after_one(recipe: Recipe, kernel: Kernel) -> Any:
    initial = default_start(kernel, TARGET, recipe)
    state = begin(kernel, TARGET, recipe, seed=0, initial=initial)
    return eqx.filter_jit(iterate)(TARGET, recipe, initial, state).kernel


def test_a_recipe_without_aids_keeps_its_name():
    """Stored pieces and checkpoints are recognised by it."""
    assert repr(Recipe()).endswith("learning_rate_decay=0.96, decay_every=1000)")
    assert repr(Recipe(clip=10.0)).endswith("decay_every=1000, clip=10.0)")
    assert repr(Recipe(force_gradient=False)).endswith("decay_every=1000, force_gradient=False)")
    assert "final_learning_rate=0.5" in repr(Recipe(final_learning_rate=0.5))


def test_the_learning_rate_falls_along_half_a_cosine():
    schedule = Recipe(400, learning_rate=2e-3, final_learning_rate=1e-4).schedule()
    share = np.array([0, 0.25, 0.5, 1])
    np.testing.assert_allclose(
        [np.asarray(schedule(int(400 * s))) for s in share], 1e-4 + 1.9e-3 * (1 + np.cos(np.pi * share)) / 2, rtol=1e-6
    )
    np.testing.assert_allclose([np.asarray(Recipe().schedule()(i)) for i in (0, 999, 1000)], [1e-3, 1e-3, 0.96e-3])


def test_the_norm_of_the_whole_gradient_is_clipped():
    gradient = {"a": jnp.full(4, 3.0), "b": jnp.full(4, 4.0)}  # of norm 10
    for clip, expected in ((1.0, 0.3), (20.0, 3.0), (None, 3.0)):
        optimizer = Recipe(clip=clip).optimizer()
        with jax.numpy_dtype_promotion("standard"):
            _, state = optimizer.update(gradient, optimizer.init(gradient))
        np.testing.assert_allclose(optax.tree.get(state, "mu")["a"], 0.1 * expected)  # Adam's share of a new gradient


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("name", ["clip", "final_learning_rate"])
def test_bad_aids_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be above 0, or None"):
        Recipe(**{name: value})


def test_a_constant_force_leaves_the_energy_its_gradient():
    x = jnp.asarray([[1.0], [2.0]])
    for energy in (Energy(TARGET, force_gradient=False), tempered(Energy(TARGET, force_gradient=False), 3.0)):
        slope = jax.grad(lambda x, e=energy: jnp.sum(e.value_and_grad(x)[0]))(x)
        np.testing.assert_allclose(slope, energy.value_and_grad(x)[1])
        assert not jax.grad(lambda x, e=energy: jnp.sum(e.value_and_grad(x)[1]))(x).any()
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(Energy(TARGET).value_and_grad(x)[1]))(x)[:, 0], [1, 0.25])


def differentiated(energy: Any, kernel: Any) -> str:
    """The program of a gradient of a loss, as text."""
    start = kernel.init(TARGET, jnp.ones((2, 3)))

    def loss(kernel):
        _, info = kernel.step(energy, start, key=jax.random.key(0))
        return jnp.sum(info.proposal.position * info.acceptance[None])

    params, static = eqx.partition(kernel, eqx.is_inexact_array)
    return str(jax.make_jaxpr(jax.grad(lambda p: loss(eqx.combine(p, static))))(params))


@pytest.mark.parametrize("wrap", [lambda k: k, lambda k: InCoordinates(k, Affine([0, 0], [1, 2]))], ids=["", "scaled"])
def test_no_second_derivative_is_taken(wrap):
    """An energy whose gradient refuses to be differentiated trains without the force's gradient, and only without."""

    @jax.custom_vjp
    def slope(x):
        return x

    def refuse(*_):
        raise RuntimeError("a second derivative was taken")

    slope.defvjp(lambda x: (x, None), refuse)

    @jax.custom_vjp
    def bowl(x):
        return jnp.sum(x**2) / 2

    bowl.defvjp(lambda x: (bowl(x), x), lambda x, ct: (ct * slope(x),))
    assert differentiated(Energy(bowl, force_gradient=False), wrap(small()))
    with pytest.raises(RuntimeError, match="a second derivative was taken"):
        differentiated(Energy(bowl), wrap(small()))


def test_the_recipe_decides_about_the_force():
    recipe = Recipe(10, 8)
    with_force, without = (after_one(replace(recipe, force_gradient=flag), small()) for flag in (True, False))
    assert any(not np.array_equal(a, b) for a, b in zip(arrays(with_force), arrays(without), strict=True))
