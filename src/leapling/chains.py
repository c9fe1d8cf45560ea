"""Many chains of any kernel: a compiled scan over transitions, in blocks, so that memory is bounded by what is kept."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tqdm import tqdm

from leapling.checks import check_start, dimension
from leapling.kernels import Kernel, State
from leapling.targets import Target

BLOCK_BYTES = 64 * 2**20  # what a block of draws may take on the device
BLOCK_DRAWS = 250  # how many draws for each visit to the host: progress is shown, and Ctrl-C is heard
MIN_TRANSITIONS_TO_CALL_FROZEN = 50


@dataclass(frozen=True)
class Draws:
    """Draws of many chains: `positions` (chain, draw, dim), unless only statistics were kept.

    `statistics` are (chain, draw) under the names ArviZ looks for. Cost unit: one evaluation of the energy at a new
    point, with or without its gradient; `num_gradients` charges warm-up, thinned draws and the start too.
    """

    kept_positions: Float[np.ndarray, "chain draw dim"] | None
    statistics: dict[str, np.ndarray]
    state: Any  # the last one: give it to `sample` as `initial_state` to go on
    dim: int
    num_warmup: int
    thin: int
    num_gradients: int
    compile_seconds: float
    seconds: float
    is_interrupted: bool = False

    @property
    def positions(self) -> Float[np.ndarray, "chain draw dim"]:
        if self.kept_positions is None:
            raise ValueError("this run kept statistics only; sample with keep='positions' to have the positions")
        return self.kept_positions

    @property
    def num_chains(self) -> int:
        return self.statistics["energy"].shape[0]

    @property
    def num_draws(self) -> int:
        return self.statistics["energy"].shape[1]

    @property
    def num_frozen(self) -> int:
        """Chains that never accepted a proposal."""
        return int(np.sum(~self.statistics["accepted"].any(axis=1)))

    @property
    def warning(self) -> str | None:
        """What is wrong with these draws, and what to try."""
        num_transitions = self.num_draws * self.thin
        if self.num_frozen == 0 or num_transitions < MIN_TRANSITIONS_TO_CALL_FROZEN:
            return None
        return (
            f"{self.num_frozen} of {self.num_chains} chains accepted nothing in {num_transitions} transitions; "
            "their draws are one repeated point: try a smaller step size, or other initial_positions"
        )


def _transitions(kernel, energy, keep_positions, size, state, root, first, num, thin):
    """Transitions `first` .. `first + num * thin`, every thin-th reported into rows 0 .. num of buffers of `size`."""
    step_size = getattr(kernel, "step_size", jnp.nan)

    def report(state, info):
        row = {
            "acceptance_rate": info.acceptance,
            "accepted": info.is_accepted,
            "diverging": info.is_divergent,
            "energy": state.energy,
            "n_steps": info.num_gradients,
            "step_size": jnp.broadcast_to(jnp.asarray(step_size, state.energy.dtype), state.energy.shape),
        }
        return {**row, "position": state.position} if keep_positions else row

    def one(i, state):
        return kernel.step(energy, state, key=jax.random.fold_in(root, first + i))

    def draw(i, carry):
        state, buffers = carry

        def skipped(j, carry):
            state, gradients, diverged = carry
            state, info = one(i * thin + j, state)
            return state, gradients + info.num_gradients, diverged | info.is_divergent

        # What thinning passes over is charged to, and its divergences reported with, the draw that is kept.
        zeros = jnp.zeros(state.energy.shape, jnp.int32)
        state, gradients, diverged = jax.lax.fori_loop(0, thin - 1, skipped, (state, zeros, zeros > 0))
        state, info = one(i * thin + thin - 1, state)
        info = replace(info, num_gradients=info.num_gradients + gradients, is_divergent=info.is_divergent | diverged)
        buffers = jax.tree.map(lambda buffer, value: buffer.at[i].set(value), buffers, report(state, info))
        return state, buffers

    row = jax.eval_shape(lambda s: report(*one(0, s)), state)
    buffers = jax.tree.map(lambda a: jnp.zeros((size, *a.shape), a.dtype), row)
    return jax.lax.fori_loop(0, num, draw, (state, buffers))


_run_block: Any = eqx.filter_jit(_transitions)


def sample(
    kernel: Kernel,
    energy: Callable,
    *,
    num_draws: int,
    num_chains: int | None = None,
    seed: int = 0,
    dim: int | None = None,
    initial_positions: np.ndarray | Array | None = None,
    initial_state: State | None = None,
    num_warmup: int = 0,
    thin: int = 1,
    keep: str = "positions",
    progress: bool = False,
    warn: bool = True,
) -> Draws:
    """Run chains of `kernel` on `energy`.

    `initial_positions` are (chain, dim); without them chains start from N(0, I). `keep` is "positions" or
    "statistics". `warn` says so when chains never moved. A run that is interrupted returns what it has, marked
    `is_interrupted`.
    """
    for name, value, least in (("num_draws", num_draws, 1), ("num_warmup", num_warmup, 0), ("thin", thin, 1)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if keep not in ("positions", "statistics"):
        raise ValueError(f"keep must be 'positions' or 'statistics', got {keep!r}")
    root = jax.random.key(seed)
    num_started = 0
    if initial_state is None:
        positions = _start(kernel, energy, num_chains, dim, initial_positions, jax.random.fold_in(root, 0))
        initial_state = kernel.init(energy, positions, key=jax.random.fold_in(root, 1))
        num_started = positions.shape[1]
    check_start(initial_state)
    state = initial_state
    num_dims, chains = state.position.shape

    keep_positions = keep == "positions"
    bytes_per_draw = chains * (state.position.dtype.itemsize * (num_dims if keep_positions else 0) + 24)
    size = int(np.clip(BLOCK_BYTES // bytes_per_draw, 1, BLOCK_DRAWS))
    host: dict[str, np.ndarray] = {}
    done = gradients_in_warmup = 0
    is_interrupted = False
    began = time.perf_counter()
    arguments = (kernel, energy, keep_positions, size)
    _run_block(*arguments, state, root, *_counts(0, 0, 1))  # no transition: it compiles, once for all of these shapes
    compile_seconds = time.perf_counter() - began
    began = time.perf_counter()
    with tqdm(
        total=num_warmup + num_draws * thin, desc="sampling", unit="step", disable=None if progress else True
    ) as bar:
        try:
            at = 2  # keys 0 and 1 of the root started the chains
            while at - 2 < num_warmup:
                num = min(size, num_warmup + 2 - at)
                state, buffers = _run_block(*arguments, state, root, *_counts(at, num, 1))
                gradients_in_warmup += int(np.sum(np.asarray(buffers["n_steps"])[:num], dtype=np.int64))
                at += num
                bar.update(num)
            while done < num_draws:
                num = min(size, num_draws - done)
                state, buffers = _run_block(*arguments, state, root, *_counts(at, num, thin))
                for name, buffer in buffers.items():
                    _store(host, name, np.asarray(buffer)[:num], done, num_draws)
                at += num * thin
                done += num
                bar.update(num * thin)
        except KeyboardInterrupt:
            if done == 0:
                raise
            is_interrupted = True
    host = {name: values[:, :done] for name, values in host.items()}
    draws = Draws(
        kept_positions=host.pop("position", None),
        statistics=host,
        state=state,
        dim=num_dims,
        num_warmup=num_warmup,
        thin=thin,
        num_gradients=num_started + gradients_in_warmup + int(np.sum(host["n_steps"], dtype=np.int64)),
        compile_seconds=compile_seconds,
        seconds=time.perf_counter() - began,
        is_interrupted=is_interrupted,
    )
    if warn and draws.warning:
        warnings.warn(draws.warning, stacklevel=2)
    return draws


def exact_starts(target: Target, num: int, *, seed: int) -> Float[np.ndarray, "chain dim"]:
    """Exact draws of a target, float32, to start chains from; a stream of random numbers that no transition uses."""
    key = jax.random.fold_in(jax.random.key(seed), 2**31 - 1)
    return np.asarray(target.sample(key, num, np.float32)).T


def _start(kernel, energy, num_chains, dim, initial_positions, key) -> Float[Array, "dim chains"]:
    real = jax.tree.leaves(eqx.filter(kernel, eqx.is_inexact_array))
    if initial_positions is None:
        if num_chains is None or num_chains < 1:
            raise ValueError(f"num_chains must be at least 1 when no initial_positions are given, got {num_chains}")
        return jax.random.normal(key, (dimension(kernel, energy, dim), num_chains), real[0].dtype if real else float)
    positions = jnp.asarray(initial_positions)
    if positions.ndim != 2 or not jnp.issubdtype(positions.dtype, jnp.floating):
        raise ValueError(
            f"initial_positions must be real numbers of shape (chain, dim), got {positions.dtype} of shape "
            f"{positions.shape}"
        )
    if num_chains not in (None, positions.shape[0]):
        raise ValueError(f"initial_positions hold {positions.shape[0]} chains and num_chains is {num_chains}")
    dimension(kernel, energy, dim, np.asarray(initial_positions))
    return positions.T


def _counts(first: int, num: int, thin: int) -> tuple[Array, Array, Array]:
    """As arrays: another number of draws compiles nothing."""
    return jnp.asarray(first, jnp.int32), jnp.asarray(num, jnp.int32), jnp.asarray(thin, jnp.int32)


def _store(host: dict[str, np.ndarray], name: str, block: np.ndarray, done: int, num_draws: int) -> None:
    """Put a block, (draw, chain) or (draw, dim, chain), where it belongs in (chain, draw[, dim])."""
    block = np.moveaxis(block, -1, 0)
    if name not in host:
        host[name] = np.empty((block.shape[0], num_draws, *block.shape[2:]), block.dtype)
    host[name][:, done : done + block.shape[1]] = block
