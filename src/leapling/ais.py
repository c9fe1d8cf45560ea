"""Annealed importance sampling (Neal 2001): log Z of an energy, from a Gaussian whose own is known.

Chains start at exact draws of the base and move under U_b = (1 - b) U_0 + b U while b goes from 0 to 1. Before each
move a chain is weighted by how much the density at its place grows: the mean weight is Z, without bias.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from leapling.coordinates import Affine
from leapling.energy import Energy, as_energy
from leapling.kernels.base import Kernel, KeyArray, State, evaluate, select
from leapling.kernels.lahmc import LAHMC
from leapling.kernels.tempering import Tempering

Schedule = Float[np.ndarray, " temperatures"] | Float[Array, " temperatures"]


class Estimate(eqx.Module):
    """One log-weight for each chain, and where the chains ended: with their weights they are draws of exp(-U)."""

    log_weights: Float[Array, " chains"]
    position: Float[Array, "dim chains"]
    acceptance: Float[Array, ""]
    num_gradients: Int[Array, " chains"]

    @property
    def log_z(self) -> Float[Array, ""]:
        """The log of the mean weight: below log Z in expectation, by about half its variance."""
        return jax.nn.logsumexp(self.log_weights) - jnp.log(jnp.asarray(len(self.log_weights), self.log_weights.dtype))

    @property
    def standard_error(self) -> Float[Array, ""]:
        """Of `log_z`, by the delta method: honest only where `ess` is more than a few."""
        weight = jnp.exp(self.log_weights - self.log_z)
        return jnp.std(weight, ddof=1) / jnp.sqrt(jnp.asarray(len(weight), weight.dtype))

    @property
    def ess(self) -> Float[Array, ""]:
        """(sum w)^2 / sum w^2."""
        return jnp.exp(2 * jax.nn.logsumexp(self.log_weights) - jax.nn.logsumexp(2 * self.log_weights))


class Annealed(eqx.Module):
    """U_b of one point."""

    function: Callable
    base: Affine
    b: Float[Array, ""]

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        b = self.b.astype(x.dtype)
        return (1 - b) * base_state(self.base, x).energy + b * self.function(x)


def base_state(base: Affine, x: Float[Array, "dim *chains"]) -> State:
    """U_0 = -log N(x), normalised, and its gradient."""

    def energy(x: Array) -> Array:
        z, log_det = base.backward_and_log_det(x)
        return jnp.sum(z**2, axis=0) / 2 - log_det + jnp.asarray(base.dim / 2 * np.log(2 * np.pi), x.dtype)

    value, back = jax.vjp(energy, x)
    return State(x, value, back(jnp.ones_like(value))[0])


def linear(num: int) -> Float[np.ndarray, " temperatures"]:
    """b from 0 to 1 in `num` equal steps."""
    return np.linspace(0, 1, _at_least_one(num) + 1)


def sigmoidal(num: int, steepness: float = 4.0) -> Float[np.ndarray, " temperatures"]:
    """b from 0 to 1 along a logistic curve from -steepness to steepness: short steps where either end is near."""
    if not steepness > 0:
        raise ValueError(f"steepness must be above 0, got {steepness}; 4 is usual, and near 0 it is linear")
    curve = 1 / (1 + np.exp(-steepness * np.linspace(-1, 1, _at_least_one(num) + 1)))
    return (curve - curve[0]) / (curve[-1] - curve[0])


def persistent(operator: Kernel, alpha: float) -> LAHMC:
    """`operator` with the momentum refreshed in part, v <- alpha v + sqrt(1 - alpha^2) n, and flipped by a rejection
    (Horowitz 1991): look-ahead HMC that looks one trajectory ahead."""
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha must be at least 0 and below 1, got {alpha}; 0 draws the momentum anew")
    return LAHMC(operator, 1, 1 - alpha**2)


def annealed_importance(
    kernel: Kernel, energy: Callable, *, base: Affine, num_chains: int, schedule: Schedule, key: KeyArray
) -> Estimate:
    """log Z of exp(-U), Z the integral, with one step of `kernel` at each temperature of `schedule` but the first.

    The base is the Gaussian of `base`, x = mean + factor z. A momentum that `kernel` keeps is kept from one temperature
    to the next (Sohl-Dickstein and Culpepper 2012): see `persistent`.
    """
    b = np.asarray(schedule, np.float64)
    if len(b) < 2 or b[0] != 0 or b[-1] != 1 or not (np.diff(b) > 0).all():
        raise ValueError(f"a schedule must rise from 0 to 1, got {schedule}; try linear(100) or sigmoidal(100)")
    if isinstance(kernel, Tempering):
        raise ValueError("replicas have temperatures of their own, which AIS would not change: give it their operator")
    if num_chains < 2:
        raise ValueError(f"num_chains must be at least 2, got {num_chains}: one weight has no standard error")
    dtype = next((a.dtype for a in jax.tree.leaves(eqx.filter(kernel, eqx.is_inexact_array))), jnp.result_type(float))
    # Differences are taken before rounding: they are far smaller than b is at the end.
    steps = jnp.asarray(np.stack([b[1:], np.diff(b)], axis=1), dtype)
    # What a state holds is never divided by a temperature, so that of the energy goes into U.
    return _run(kernel, Energy(as_energy(energy)), base, num_chains, steps, key)


def _anneal(kernel: Any, energy: Callable, base: Affine, num_chains: int, steps: Array, key: KeyArray) -> Estimate:
    key_start, key_init, key_steps = jax.random.split(key, 3)
    z = jax.random.normal(key_start, (len(base.mean), num_chains), steps.dtype)
    target = evaluate(energy, base.forward(z))
    none = jnp.zeros(num_chains, jnp.int32)

    def one(carry, inputs):
        state, target, log_weight, gradients = carry
        (b, step), key = inputs
        here = base_state(base, state.position)
        log_weight = log_weight + step * (here.energy - target.energy)  # U_b grew by step (U - U_0)
        state = with_energy(state, mix(here, target, b))
        after, info = kernel.step(Annealed(energy, base, b), state, key=key)
        # U itself is recovered from U_b: no evaluation is added, and where a chain has not moved none is lost.
        target = select(info.is_accepted, unmix(base_state(base, after.position), after, b), target)
        return (after, target, log_weight, gradients + info.num_gradients), jnp.mean(info.acceptance)

    start = with_energy(kernel.init(energy, target.position, key=key_init), target)
    keys = jax.random.split(key_steps, len(steps))
    carry, acceptance = jax.lax.scan(one, (start, target, jnp.zeros_like(target.energy), none + 1), (steps, keys))
    end, _, log_weight, gradients = carry
    # Where U is not finite exp(-U) is 0.
    log_weight = jnp.where(jnp.isfinite(log_weight), log_weight, -jnp.inf)
    return Estimate(log_weight, end.position, jnp.mean(acceptance), gradients)


_run: Any = eqx.filter_jit(_anneal)


def with_energy(state: Any, other: State) -> Any:
    """A chain's state, momentum and all, with the energy and the gradient of another energy at the same place."""
    return eqx.tree_at(lambda s: (s.energy, s.gradient), state, (other.energy, other.gradient))


def mix(base: State, target: State, b: Array) -> State:
    """(1 - b) U_0 + b U and its gradient."""
    energy = (1 - b) * base.energy + b * target.energy
    return State(base.position, energy, (1 - b) * base.gradient + b * target.gradient)


def unmix(base: State, mixed: Any, b: Array) -> State:
    """U and its gradient from those of the mixture: b is never 0 after the first temperature."""
    energy = (mixed.energy - (1 - b) * base.energy) / b
    return State(base.position, energy, (mixed.gradient - (1 - b) * base.gradient) / b)


def _at_least_one(num: int) -> int:
    if num < 1:
        raise ValueError(f"a schedule needs at least one step, got {num}; the more, the smaller the error")
    return num
