"""What is checked: one kernel, one energy, points to probe it at, and the precisions it can run in."""

import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from leapling.energy import Energy, as_energy
from leapling.kernels import Kernel, State, cast
from leapling.targets import Target

DTYPES = ("float64", "float32")

Sampler = Callable[..., Any]


@dataclass(frozen=True)
class Subject:
    """A kernel and an energy under test; `refusals`: why they do not run in a precision, for each such."""

    kernel: Kernel
    function: Callable
    dim: int
    probes: np.ndarray  # (dim, num), float64
    sampler: Sampler | None
    refusals: dict[str, str]
    seed: int

    @property
    def finest(self) -> str:
        """The precision of the laws that are about formulas, not about rounding."""
        return next(dtype for dtype in DTYPES if dtype not in self.refusals)

    @property
    def usual(self) -> str:
        """The precision the kernel is used in, if the energy runs in it."""
        own = kernel_dtype(self.kernel)
        return own if own in DTYPES and own not in self.refusals else self.finest

    def random(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(purpose.encode())])

    def key(self, purpose: str) -> Array:
        return jax.random.key(int(self.random(purpose).integers(2**31)))

    def points(self, num: int) -> np.ndarray:
        """`num` of the probes, (dim, num): spread over all of them, or all of them again and again."""
        total = self.probes.shape[1]
        indices = np.arange(num) % total if num > total else np.arange(num) * total // num
        return self.probes[:, indices]

    def draws(self, purpose: str, num: int, dtype: str, sampler: Sampler) -> Array:
        with precision(dtype):
            key = self.key(purpose)
            is_ours = isinstance(getattr(sampler, "__self__", None), Target)
            # A user's own sampler may be anything, so only ours is compiled.
            draws = _draw(sampler, key, num, dtype) if is_ours else sampler(key, num, dtype)
            draws = jnp.asarray(draws, dtype)
        if draws.shape != (self.dim, num):
            raise ValueError(
                f"the sampler returned an array of shape {draws.shape} for {num} draws; it must return "
                f"(dim, num) = ({self.dim}, {num}): transpose it if the chains come first"
            )
        return draws


@eqx.filter_jit
def _draw(sampler: Sampler, key: Array, num: int, dtype: str) -> Array:
    return sampler(key, num, dtype)


def precision(dtype: str) -> AbstractContextManager:
    """JAX computes in float64 only where it is enabled, and here it is enabled for one block of lines."""
    return jax.enable_x64(dtype == "float64")


def kernel_dtype(kernel: Kernel) -> str:
    """That of its first real array: what is wrapped comes before what wraps it, and takes the dtype of positions."""
    leaves = [leaf for leaf in jax.tree.leaves(kernel) if eqx.is_inexact_array(leaf)]
    return str(leaves[0].dtype) if leaves else "float32"


def make_subject(
    kernel: Kernel,
    energy: Callable,
    *,
    dim: int | None,
    sampler: Sampler | None,
    positions: np.ndarray | None,
    seed: int,
    num_probes: int,
) -> Subject:
    """Find out the dimension, the precisions the energy can run in, and where to probe it."""
    as_energy(energy)  # refuses what cannot be one
    sampler = sampler or getattr(energy, "sample", None)
    if positions is not None:
        positions = np.asarray(positions, np.float64)
        if positions.ndim != 2 or len(positions) < 2 or not np.isfinite(positions).all():
            raise ValueError(
                f"positions has shape {positions.shape}, at least 2 finite points (chain, dim) are needed: "
                "take the last draw of every chain"
            )
    found = [d for d in (dim, getattr(kernel, "dim", None), getattr(energy, "dim", None)) if d is not None]
    found += [] if positions is None else [positions.shape[1]]
    if not found:
        raise ValueError("the dimension is unknown; give dim, or positions of shape (chain, dim)")
    if len(set(found)) > 1:
        raise ValueError(f"kernel, energy, dim and positions disagree on the dimension, got {found}; make them one")
    refusals = {dtype: reason for dtype in DTYPES if (reason := _refusal(kernel, energy, found[0], dtype))}
    if len(refusals) == len(DTYPES):
        raise ValueError(f"the kernel cannot take a step on this energy: {refusals['float32']}")
    subject = Subject(kernel, energy, found[0], np.zeros((found[0], 0)), sampler, refusals, seed)
    if positions is None:
        probes = _from_sampler(subject, sampler, num_probes) if sampler else _from_chain(subject, num_probes)
    else:
        probes = positions.T
    return Subject(kernel, energy, found[0], probes, sampler, refusals, seed)


def _refusal(kernel: Kernel, function: Callable, dim: int, dtype: str) -> str | None:
    """Why this pair cannot run in `dtype`, if it cannot; nothing is computed."""
    with precision(dtype):
        try:
            eqx.filter_eval_shape(
                one_step,
                cast(kernel, dtype),
                cast(function, dtype),
                jax.ShapeDtypeStruct((dim, 2), dtype),
                jax.random.key(0),
            )
        except Exception as error:  # the energy is the user's: it may raise anything
            lines = str(error).strip().splitlines()
            return ": ".join([type(error).__name__, *lines[:1]])
    return None


@eqx.filter_jit
def begin(kernel: Kernel, function: Callable, position: Array, key: Array) -> State:
    """The state of a kernel on a bare function, in one compilation."""
    return kernel.init(Energy(function), position, key=key)


def one_step(kernel: Kernel, function: Callable, position: Array, key: Array) -> Array:
    energy = Energy(function)
    key_init, key_step = jax.random.split(key)
    state, _ = kernel.step(energy, kernel.init(energy, position, key=key_init), key=key_step)
    return state.position


def _from_sampler(subject: Subject, sampler: Sampler, num: int) -> np.ndarray:
    return np.asarray(subject.draws("probes", num, subject.finest, sampler), np.float64)


def _from_chain(subject: Subject, num: int, num_steps: int = 200) -> np.ndarray:
    """Where the kernel itself goes from N(0, I)."""

    @eqx.filter_jit
    def run(kernel, function, position, key):
        keys = jax.random.split(key, num_steps)
        return jax.lax.scan(lambda x, k: (one_step(kernel, function, x, k), None), position, keys)[0]

    dtype = subject.usual
    with precision(dtype):
        start = jnp.asarray(subject.random("starts").standard_normal((subject.dim, num)), dtype)
        end = run(cast(subject.kernel, dtype), subject.function, start, subject.key("chain"))
    end = np.asarray(end, np.float64)
    return end[:, np.isfinite(end).all(axis=0)]
