"""From an energy and nothing else to points that are spread like the target: sequential Monte Carlo (Del Moral et al.
2006), from a wide Gaussian to exp(-U), through energies that are in part the one and in part the other."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from leapling.coordinates import Affine, whitened_by
from leapling.energy import Energy, as_energy
from leapling.kernels import HMC, InCoordinates, State

SCALES = (0.1, 30.0)  # of the first points: what the energy's own scale is, nobody has said
SEARCH_ROUNDS = 30  # of transitions down into the target, before there is a base to anneal from
NUM_LEAPFROG = 8
MOVES = 6  # transitions at each temperature, and in each round of the search
LAST_MOVES = 50  # at temperature 1
ACCEPTANCE = 0.8
ESS_KEPT = 0.7  # of the weights, from one temperature to the next
MAX_TEMPERATURES = 300
COST = MOVES * NUM_LEAPFROG * (SEARCH_ROUNDS + 40)  # gradients per particle, for about forty temperatures


@dataclass(frozen=True)
class WarmUp:
    """`particles` are about spread like the target, in all the modes that the search met; `ends` are where the chains
    of the search arrived, whatever the mass there."""

    particles: Float[np.ndarray, "dim particles"]
    ends: Float[np.ndarray, "dim ends"]
    num_gradients: int
    num_temperatures: int
    reached_target: bool
    step_size: float  # of the last moves, in coordinates where the particles are white


class Bridge(eqx.Module):
    """beta U + (1 - beta) U_0, U_0 the energy of the base: what the temperatures lead through."""

    function: Callable
    base: Affine
    beta: ArrayLike

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        beta = jnp.asarray(self.beta, x.dtype)
        return beta * self.function(x) + (1 - beta) * jnp.sum(self.base.backward(x) ** 2) / 2


def warm_up(
    energy: Callable,
    *,
    dim: int,
    num_particles: int,
    seed: int,
    positions: Float[np.ndarray, "dim starts"] | None = None,
) -> WarmUp:
    """`positions` are the user's starting points, which then say where to look; without them N(0, s^2 I) at many s."""
    function = as_energy(energy).function
    root = jax.random.key(seed)
    start = wide_start(dim, num_particles, key=jax.random.fold_in(root, 0)) if positions is None else positions
    ends = search(function, jnp.asarray(start, float), num_particles, key=jax.random.fold_in(root, 1))
    base = cover(ends)
    num_gradients = num_particles * (2 + SEARCH_ROUNDS * (1 + MOVES * NUM_LEAPFROG))
    particles = base.forward(jax.random.normal(jax.random.fold_in(root, 2), (dim, num_particles), base.mean.dtype))
    beta, step_size, temperatures = 0.0, 0.5, 0
    host = np.random.default_rng(seed)
    while beta < 1 and temperatures < MAX_TEMPERATURES:
        energies = np.asarray(values(function, particles), np.float64)
        base_energies = np.sum(np.asarray(base.backward(particles), np.float64) ** 2, axis=0) / 2
        difference = np.where(np.isfinite(energies), energies, np.inf) - base_energies
        beta, weights = next_temperature(difference, beta)
        particles = particles[:, systematic(weights, host)]
        bridge = Bridge(function, base, jnp.asarray(beta, base.mean.dtype))
        num = MOVES if beta < 1 else LAST_MOVES
        key = jax.random.fold_in(root, 3 + temperatures)
        kernel = mover(np.asarray(particles), step_size)
        state, rate = moves(bridge, kernel, particles, key, jnp.asarray(num, jnp.int32))
        particles = state.position
        step_size = float(np.clip(step_size * np.exp(float(jnp.mean(rate)) - ACCEPTANCE), 1e-4, 1.5))
        num_gradients += num_particles * (2 + num * NUM_LEAPFROG)
        temperatures += 1
    return WarmUp(np.asarray(particles), ends, num_gradients, temperatures, beta >= 1, step_size)


def wide_start(dim: int, num: int, *, key: Array) -> Float[Array, "dim num"]:
    low, high = np.log(SCALES)
    return jnp.exp(jnp.linspace(low, high, num))[None] * jax.random.normal(key, (dim, num))


def search(
    function: Callable, positions: Float[Array, "dim starts"], num: int, *, key: Array
) -> Float[np.ndarray, "dim ends"]:
    """Where chains arrive that fall into the target from all starting points, each at a step size of its own."""
    indices = np.flatnonzero(np.isfinite(np.asarray(values(function, positions))))
    if indices.size == 0:
        raise ValueError(
            f"the energy is not finite at any of {positions.shape[1]} starting points; give initial_positions inside "
            "its support"
        )
    positions = positions[:, indices[np.arange(num) % indices.size]]
    dim = positions.shape[0]
    unit = Affine(np.zeros(dim), np.ones(dim))
    step_sizes = 0.1 * (jnp.sqrt(jnp.mean(positions**2, axis=0)) + 1e-3)
    kernel = InCoordinates(HMC(0.1, NUM_LEAPFROG, step_size_jitter=0.2), unit)
    for i in range(SEARCH_ROUNDS):
        kernel = eqx.tree_at(lambda k: k.kernel.step_size, kernel, step_sizes)
        bridge = Bridge(function, unit, jnp.ones(()))
        state, rate = moves(bridge, kernel, positions, jax.random.fold_in(key, i), jnp.asarray(MOVES, jnp.int32))
        positions = state.position
        step_sizes = step_sizes * jnp.where(rate > ACCEPTANCE, 1.3, jnp.where(rate > 0.3, 0.9, 0.4))
    # Chains that are still on their way say nothing of the target.
    energies = np.asarray(values(function, positions), np.float64)
    low, middle = np.nanquantile(energies, [0.05, 0.5])
    return np.asarray(positions)[:, energies <= middle + 10 * (middle - low + 1)]


def cover(ends: Float[np.ndarray, "dim ends"]) -> Affine:
    """A Gaussian wide enough for all of them."""
    low, high = np.quantile(ends, [0.01, 0.99], axis=1)
    return Affine((low + high) / 2, np.maximum(0.3 * (high - low), 1e-6 * (1 + np.abs(high))))


def mover(particles: Float[np.ndarray, "dim particles"], step_size: float) -> InCoordinates:
    kernel = HMC(step_size, NUM_LEAPFROG, step_size_jitter=0.9, length_jitter=0.9)
    return InCoordinates(kernel, whitened_by(particles.T, "dense"))


@eqx.filter_jit
def moves(energy: Callable, kernel: InCoordinates, positions: Array, key: Array, num: Array) -> tuple[State, Array]:
    """`num` transitions, and the mean acceptance of each chain."""
    energy = Energy(energy)

    def one(i, carry):
        state, total = carry
        state, info = kernel.step(energy, state, key=jax.random.fold_in(key, i))
        return state, total + info.acceptance

    start = kernel.init(energy, positions)
    state, total = jax.lax.fori_loop(0, num, one, (start, jnp.zeros_like(start.energy)))
    return state, total / num.astype(total.dtype)


@eqx.filter_jit
def values(function: Callable, positions: Array) -> Array:
    return jax.vmap(function, in_axes=-1)(positions)


def next_temperature(difference: Float[np.ndarray, " particles"], beta: float) -> tuple[float, np.ndarray]:
    """The largest step that keeps ESS_KEPT of the weights exp(-(beta' - beta)(U - U_0)), by bisection."""

    def weights(step: float) -> np.ndarray:
        log_weights = -step * difference
        log_weights = np.where(np.isnan(log_weights), -np.inf, log_weights)
        w = np.exp(log_weights - log_weights.max())
        return w / w.sum()

    low, high = 0.0, 1.0 - beta
    if ess(weights(high)) >= ESS_KEPT:
        return 1.0, weights(high)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if ess(weights(middle)) >= ESS_KEPT else (low, middle)
    step = max(low, 1e-9)
    return beta + step, weights(step)


def ess(weights: np.ndarray) -> float:
    return float(1 / (np.sum(weights**2) * weights.size))


def systematic(weights: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Indices drawn in proportion to the weights, with one uniform number for all."""
    places = (random.random() + np.arange(weights.size)) / weights.size
    return np.minimum(np.searchsorted(np.cumsum(weights), places), weights.size - 1)
