"""Training a flow on chains that it helps to move: after Gabrié, Rotskoff & Vanden-Eijnden (2022)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from leapling.coordinates.flow import Flow
from leapling.energy import as_energy
from leapling.kernels import Kernel, State
from leapling.kernels.base import evaluate, select

BATCH = 256
LEARNING_RATE, FINAL_LEARNING_RATE = 2e-3, 5e-5
AGAIN = 0.5  # times the learning rate, where a flow that was trained before is trained on
CLIP = 5.0  # global norm of the gradient
ADAM = optax.chain(optax.clip_by_global_norm(CLIP), optax.scale_by_adam())
MAX_ITERATIONS = 100_000
BLOCK = 250  # iterations for each visit to the host
FARTHEST = 20.0  # for each coordinate
WORST = 30.0  # how far log q - log p of a fresh point may count, from the batch's median


class FlowState(eqx.Module):
    """What the training of a flow carries: arrays only."""

    flow: Flow
    optimizer: Any
    chains: State
    root: Array
    iteration: Int[Array, ""]
    leg: Int[Array, "2"]  # first and last iteration of the present fall of the learning rate
    history: Float[Array, "iterations 3"]  # -log q on the chains, the reverse divergence, moves by the flow accepted
    gradients: Float[Array, ""]


def begin_flow(flow: Flow, energy: Callable, positions: Float[Array, "dim chains"], *, seed: int) -> FlowState:
    if positions.shape[1] % BATCH:
        raise ValueError(f"the number of chains must be a multiple of {BATCH}, got {positions.shape[1]}")
    return FlowState(
        flow=flow,
        optimizer=ADAM.init(trainable(flow)[0]),
        chains=_evaluate(energy, positions),
        root=jax.random.key_data(jax.random.key(seed)),
        iteration=jnp.asarray(0, jnp.int32),
        leg=jnp.asarray([0, 1], jnp.int32),
        history=jnp.full((MAX_ITERATIONS, 3), jnp.nan, positions.dtype),
        gradients=jnp.asarray(positions.shape[1], positions.dtype),
    )


def train_flow(
    energy: Callable,
    local: Kernel,
    state: FlowState,
    num: int | Callable[[int], int],
    *,
    reverse_weight: float = 0.0,
) -> FlowState:
    """`num` more iterations, over which the learning rate falls from LEARNING_RATE to FINAL_LEARNING_RATE; or as many
    as a function says, asked again after each block, of how many are done."""
    first = int(state.iteration)
    while True:
        done = int(state.iteration) - first
        total = num(done) if callable(num) else num
        total = min(total, MAX_ITERATIONS - first)
        if done >= total:
            return state
        state = eqx.tree_at(lambda s: s.leg, state, jnp.asarray([first, first + total], jnp.int32))
        block = jnp.asarray(min(BLOCK, total - done), jnp.int32)
        state = jax.block_until_ready(run_flow_block(energy, local, state, block, reverse_weight=reverse_weight))


def trainable(flow: Flow) -> tuple[Any, Any]:
    """The weights of the coupling layers, and the rest: the coordinates around them stay."""
    mask = jax.tree.map(lambda _: False, flow)
    mask = eqx.tree_at(lambda f: f.layers, mask, jax.tree.map(eqx.is_inexact_array, flow.layers))
    return eqx.partition(flow, mask)


@eqx.filter_jit
def _evaluate(energy: Callable, positions: Array) -> State:
    return evaluate(energy, positions)


def learning_rate(state: FlowState) -> Float[Array, ""]:
    first, last = state.leg
    peak = jnp.where(first < BLOCK, LEARNING_RATE, AGAIN * LEARNING_RATE)
    done = (state.iteration - first).astype(float) / (last - first).astype(float)
    return FINAL_LEARNING_RATE + (peak - FINAL_LEARNING_RATE) * (1 + jnp.cos(jnp.pi * done)) / 2


@eqx.filter_jit
def run_flow_block(
    energy: Callable, local: Kernel, state: FlowState, num: Array, *, reverse_weight: float = 0.0
) -> FlowState:
    """`num` iterations: a slice of the chains moves, by the flow and by `local`, and the flow learns where they are.

    The loss is E_chains[-log q] + reverse_weight E_q[log q + U], q the density of the flow: the first covers all modes
    that the chains are in, the second reaches where no chain has been yet, such as the neck of a funnel.
    """
    energy = as_energy(energy)
    temperature = jnp.asarray(energy.temperature, state.chains.energy.dtype)
    arrays, static = eqx.partition(state, eqx.is_array)
    num_slices = state.chains.energy.shape[0] // BATCH

    def body(_, arrays):
        state: FlowState = eqx.combine(arrays, static)
        key = jax.random.fold_in(jax.random.wrap_key_data(state.root), state.iteration)
        key_local, key_fresh, key_accept = jax.random.split(key, 3)
        first = (state.iteration % num_slices) * BATCH
        some = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, first, BATCH, axis=-1), state.chains)
        some, info = local.step(energy, some, key=key_local)
        z = jax.random.normal(key_fresh, some.position.shape, some.position.dtype)
        params, rest = trainable(state.flow)

        def loss_of(params):
            flow = eqx.combine(params, rest)
            log_q = flow.log_density(some.position)
            # A point far out of the flow's reach counts, and pulls, no more than this.
            least = jax.lax.stop_gradient(jnp.median(log_q)) - FARTHEST * flow.dim
            x, log_det = flow.forward_and_log_det(z)
            fresh = evaluate(energy, x if reverse_weight > 0 else jax.lax.stop_gradient(x))
            log_q_fresh = -log_det - 0.5 * jnp.sum(z**2, axis=0)
            excess = fresh.energy / temperature + log_q_fresh
            excess = jnp.where(jnp.isfinite(excess), excess, 0)
            middle = jax.lax.stop_gradient(jnp.median(excess))
            reverse = jnp.mean(jnp.clip(excess - middle, -WORST, WORST)) + middle
            losses = jnp.stack([-jnp.mean(jnp.maximum(log_q, least)), reverse])
            loss = losses[0] + reverse_weight * reverse if reverse_weight > 0 else losses[0]
            return loss, (losses, fresh, log_q, log_q_fresh)

        gradient, (losses, fresh, log_q, log_q_fresh) = jax.grad(loss_of, has_aux=True)(params)
        # The fresh points are also proposals, independent of where the chains are.
        log_ratio = (some.energy / temperature + log_q) - (fresh.energy / temperature + log_q_fresh)
        is_usable = jnp.isfinite(log_ratio) & jnp.all(jnp.isfinite(fresh.gradient), axis=0)
        uniform = jax.random.uniform(key_accept, log_ratio.shape, log_ratio.dtype)
        is_accepted = is_usable & (jnp.log(uniform) < log_ratio)
        some = jax.lax.stop_gradient(select(is_accepted, fresh, some))

        gradient = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0), gradient)
        with jax.numpy_dtype_promotion("standard"):
            updates, optimizer = ADAM.update(gradient, state.optimizer, params)
            updates = jax.tree.map(lambda u: -learning_rate(state).astype(u.dtype) * u, updates)
        chains = jax.tree.map(
            lambda a, b: jax.lax.dynamic_update_slice_in_dim(a, b, first, axis=-1), state.chains, some
        )
        row = jnp.stack([*losses, jnp.mean(is_accepted, dtype=losses.dtype)])
        after = FlowState(
            flow=eqx.combine(optax.apply_updates(params, updates), rest),
            optimizer=optimizer,
            chains=chains,
            root=state.root,
            iteration=state.iteration + 1,
            leg=state.leg,
            history=state.history.at[state.iteration].set(row),
            gradients=state.gradients + (jnp.sum(info.num_gradients) + BATCH).astype(state.gradients.dtype),
        )
        return eqx.filter(after, eqx.is_array)

    return eqx.combine(jax.lax.fori_loop(0, num, body, arrays), static)
