"""Algorithm 1, compiled: a few hundred iterations for each visit to the host."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from leapling.checks import check_start
from leapling.energy import tempered
from leapling.kernels import Info, Kernel, State
from leapling.training.objectives import Objective
from leapling.training.recipe import Recipe

BLOCK = 250  # iterations for each visit to the host

# Draws of the initial distribution: (key, number of chains) -> (dim, chains).
Initial = Callable[[Array, int], Float[Array, "dim chains"]]
METRICS = ("loss", "acceptance", "step_size", "temperature", "skipped", "gradients")


class TrainState(eqx.Module):
    """All that a run needs to go on, bit for bit: arrays only."""

    kernel: Kernel
    best_kernel: Kernel
    best_loss: Float[Array, ""]
    optimizer: Any
    chains: State
    root: Array  # key data; the key of iteration i is fold_in(root, i)
    iteration: Int[Array, ""]
    history: Float[Array, "iterations metrics"]
    opponent: Any  # of an objective that is learned itself; None of the others


def split_trainable(kernel: Kernel) -> tuple[Any, Any]:
    """The real arrays, without a bound context, and the rest."""
    is_trainable = jax.tree.map(eqx.is_inexact_array, kernel)
    if getattr(kernel, "context", None) is not None:
        is_trainable = eqx.tree_at(lambda k: k.context, is_trainable, False)
    return eqx.partition(kernel, is_trainable)


def begin(kernel: Kernel, energy: Callable, recipe: Recipe, *, seed: int, initial: Initial) -> TrainState:
    root = jax.random.key(seed)
    positions = initial(jax.random.fold_in(root, recipe.num_iterations), recipe.batch_size)
    chains = kernel.init(energy, positions)
    check_start(chains)
    make = getattr(recipe.objective, "opponent", None)
    key_opponent = jax.random.fold_in(root, 2**31 - 2)  # a stream that no iteration uses
    return TrainState(
        kernel=kernel,
        best_kernel=kernel,
        best_loss=jnp.asarray(jnp.inf, positions.dtype),
        optimizer=recipe.optimizer().init(split_trainable(kernel)[0]),
        chains=chains,
        root=jax.random.key_data(root),
        iteration=jnp.asarray(0, jnp.int32),
        history=jnp.full((recipe.num_iterations, len(METRICS)), jnp.nan, positions.dtype),
        opponent=None if make is None else make(len(positions), key=key_opponent, dtype=positions.dtype),
    )


def iterate(energy: Callable, recipe: Recipe, initial: Initial, state: TrainState) -> TrainState:
    """One iteration of Algorithm 1. The chains and the fresh draws share one pass through the networks."""
    key = jax.random.fold_in(jax.random.wrap_key_data(state.root), state.iteration)
    key_step, key_initial = jax.random.split(key)
    temperature = recipe.temperature(state.iteration).astype(state.chains.position.dtype)
    energy = replace(tempered(energy, temperature), force_gradient=recipe.force_gradient)
    start = state.chains
    if recipe.burn_in_weight > 0:
        fresh = state.kernel.init(energy, initial(key_initial, recipe.batch_size))
        start = jax.tree.map(lambda p, q: jnp.concatenate([p, q], axis=-1), start, fresh)
    params, static = split_trainable(state.kernel)
    learned: Any = recipe.objective
    opponent = state.opponent

    def loss_of(params, network):
        objective = recipe.objective if network is None else learned.against(network)
        end, info = observe(recipe.objective, eqx.combine(params, static), energy, start, key=key_step)
        is_chain = slice(recipe.batch_size)
        loss = objective(*of_chains((start, info), is_chain))
        if recipe.burn_in_weight > 0:
            is_fresh = slice(recipe.batch_size, None)
            loss = loss + recipe.burn_in_weight * objective(*of_chains((start, info), is_fresh))
        return loss, (end, info)

    network = None if opponent is None else opponent.network
    (loss, (end, info)), gradients = jax.value_and_grad(loss_of, argnums=(0, 1), has_aux=True)(params, network)
    gradient, gradient_of_network = gradients
    with jax.numpy_dtype_promotion("standard"):  # optax mixes its integer count with reals
        updates, optimizer = recipe.optimizer().update(gradient, state.optimizer, params)
    is_finite = jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(gradients))
    kernel = eqx.combine(optax.apply_updates(params, updates), static)
    if opponent is not None:
        opponent = learned.improved(opponent, gradient_of_network)
    # A step with a non-finite gradient is left out, and counted.
    kernel, optimizer, opponent = jax.tree.map(
        lambda new, old: jnp.where(is_finite, new, old) if eqx.is_array(new) else new,
        (kernel, optimizer, opponent),
        (state.kernel, state.optimizer, state.opponent),
    )
    step_size = getattr(state.kernel, "step_size", jnp.nan)
    gradients = jnp.sum(info.num_gradients) + (recipe.batch_size if recipe.burn_in_weight > 0 else 0)
    row = jnp.stack(
        [
            jnp.asarray(metric, loss.dtype)
            for metric in (loss, jnp.mean(info.acceptance), step_size, temperature, ~is_finite, gradients)
        ]
    )
    return TrainState(
        kernel=kernel,
        best_kernel=state.best_kernel,
        best_loss=state.best_loss,
        optimizer=optimizer,
        chains=jax.lax.stop_gradient(of_chains(end, slice(recipe.batch_size))),
        root=state.root,
        iteration=state.iteration + 1,
        history=state.history.at[state.iteration].set(row),
        opponent=opponent,
    )


def observe(objective: Objective, kernel: Kernel, energy: Callable, start: State, *, key: Array) -> tuple[State, Info]:
    """One transition, or whatever else the objective wants to see of the kernel."""
    beyond = getattr(objective, "observe", None)
    return kernel.step(energy, start, key=key) if beyond is None else beyond(kernel, energy, start, key=key)


def of_chains(tree: Any, which: slice) -> Any:
    """Some of the chains, which are on the last axis of every array."""
    return jax.tree.map(lambda a: a[..., which], tree)


def _iterations(energy: Callable, recipe: Recipe, initial: Initial, state: TrainState, num: Array) -> TrainState:
    """`num` iterations; a traced number, so that a short last block compiles nothing."""
    arrays, static = eqx.partition(state, eqx.is_array)

    def body(_, arrays):
        after = iterate(energy, recipe, initial, eqx.combine(arrays, static))
        return eqx.filter(after, eqx.is_array)

    state = eqx.combine(jax.lax.fori_loop(0, num, body, arrays), static)
    return keep_best(recipe, state, num)


run_block: Any = eqx.filter_jit(_iterations)


def keep_best(recipe: Recipe, state: TrainState, num: Array) -> TrainState:
    """Losses at different temperatures do not compare: only blocks at the final one count."""
    row = jnp.arange(state.history.shape[0], dtype=jnp.int32)
    is_recent = (row >= state.iteration - num) & (row < state.iteration)
    loss = jnp.mean(state.history[:, 0], where=is_recent)
    final = recipe.temperature(jnp.asarray(recipe.num_iterations - 1, jnp.int32))
    is_final = recipe.temperature(state.iteration - num) <= final
    is_better = is_final & jnp.isfinite(loss) & (loss < state.best_loss)
    best_kernel, best_loss = jax.tree.map(
        lambda new, old: jnp.where(is_better, new, old) if eqx.is_array(new) else new,
        (state.kernel, loss),
        (state.best_kernel, state.best_loss),
    )
    return eqx.tree_at(lambda s: (s.best_kernel, s.best_loss), state, (best_kernel, best_loss))
