"""What a fit is compared with: HMC tuned in x and in white coordinates, and NUTS with a dense metric by BlackJAX."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from leapling.autopilot.candidates import Fixed, Problem, white
from leapling.autopilot.measure import Score, score
from leapling.chains import Draws
from leapling.coordinates import Pulled
from leapling.kernels import HMC
from leapling.tuning import Tuned, tune

LENGTHS = (1, 2, 4, 8, 16, 32, 64)
JITTERS = (0.5,)
TUNING_CHAINS = 50
ROUNDS = (1.0, 4.0)  # gradients of a setting, from round to round
PLANNED = 200 * TUNING_CHAINS  # times the gradients of a setting in the first round: what all rounds come to
NUTS_CHAINS, NUTS_ADAPTATION, NUTS_BLOCK, NUTS_DOUBLINGS = 32, 500, 50, 10


def tuned_hmc(problem: Problem, shape: str | None, gradients: int) -> tuple[Fixed, Tuned]:
    """HMC with step size, length and jitter tuned by `min_ess` per gradient, in x or in white coordinates."""
    coordinates = white(problem.points.T, shape)
    starts = problem.starts(TUNING_CHAINS, 0)
    found = tune(
        HMC,
        Pulled(problem.energy, coordinates),
        initial_positions=np.asarray(coordinates.backward(jnp.asarray(starts.T))).T,
        grid={"num_steps": LENGTHS, "length_jitter": JITTERS},
        gradients=[round(gradients * share) for share in ROUNDS],
        seed=problem.seed,
    )
    name = "HMC tuned" if shape is None else f"HMC tuned, {shape} whitening"
    settings = {
        "coordinates": "x" if shape is None else shape,
        "M": found.best["num_steps"],
        "step size": found.best["step_size"],
    }
    return Fixed(name, found.kernel, coordinates, found.num_gradients, settings), found


def nuts(problem: Problem, num_blocks: Callable[[float], int]) -> tuple[Score, int, float] | None:
    """BlackJAX's NUTS, metric and step size adapted by its window adaptation; None where BlackJAX is not installed.

    `num_blocks` turns the seconds of one block of draws into how many blocks there are. Returns the score, the
    gradients that adaptation took, and the seconds of compiling.
    """
    try:
        import blackjax
    except ImportError:
        return None
    # BlackJAX mixes ranks and types on purpose.
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return _nuts(blackjax, problem, num_blocks)


def _nuts(blackjax: Any, problem: Problem, num_blocks: Callable[[float], int]) -> tuple[Score, int, float]:
    def log_density(x):
        return -problem.energy(x)

    key = jax.random.key(problem.seed)
    key_adapt, key_run = jax.random.split(key)
    start = jnp.asarray(problem.starts(NUTS_CHAINS, 7))
    began = time.perf_counter()

    @jax.jit
    def adapt(key, position):
        adaptation = blackjax.window_adaptation(
            blackjax.nuts, log_density, is_mass_matrix_diagonal=False, max_num_doublings=NUTS_DOUBLINGS
        )
        (_, parameters), info = adaptation.run(key, position, num_steps=NUTS_ADAPTATION)
        return parameters["step_size"], parameters["inverse_mass_matrix"], jnp.sum(info.info.num_integration_steps)

    step_size, metric, spent = jax.block_until_ready(adapt(key_adapt, start[0]))

    @jax.jit
    def block(states, key):
        step = blackjax.nuts(log_density, step_size, metric, max_num_doublings=NUTS_DOUBLINGS).step

        def one(states, key):
            states, info = jax.vmap(step)(jax.random.split(key, NUTS_CHAINS), states)
            row = (states.position, -states.logdensity, info.num_integration_steps, info.acceptance_rate)
            return states, (*row, info.is_divergent)

        return jax.lax.scan(one, states, jax.random.split(key, NUTS_BLOCK))

    states = jax.vmap(partial(blackjax.nuts.init, logdensity_fn=log_density))(start)
    states, _ = jax.block_until_ready(block(states, jax.random.fold_in(key_run, 0)))  # compiled, and settling
    compile_seconds = time.perf_counter() - began
    began = time.perf_counter()
    states, rows = jax.block_until_ready(block(states, jax.random.fold_in(key_run, 1)))
    found = [rows]
    for i in range(1, num_blocks(time.perf_counter() - began)):
        states, rows = block(states, jax.random.fold_in(key_run, 1 + i))
        found.append(rows)
    jax.block_until_ready(states)
    elapsed = time.perf_counter() - began
    position, energy, steps, rate, diverging = (np.concatenate([np.asarray(r[i]) for r in found]) for i in range(5))
    draws = _as_draws(position, energy, steps, rate, diverging, elapsed, compile_seconds)
    return score(draws), int(spent), compile_seconds


def _as_draws(
    position: Float[np.ndarray, "draw chain dim"],
    energy: np.ndarray,
    steps: np.ndarray,
    rate: np.ndarray,
    diverging: np.ndarray,
    seconds: float,
    compile_seconds: float,
) -> Draws:
    statistics: dict[str, Any] = {
        "energy": energy.T,
        "n_steps": steps.T,
        "acceptance_rate": rate.T,
        "diverging": diverging.T,
        "accepted": rate.T > 0,
    }
    return Draws(
        kept_positions=np.moveaxis(position, 0, 1),
        statistics=statistics,
        state=None,
        dim=position.shape[2],
        num_warmup=NUTS_BLOCK,
        thin=1,
        num_gradients=int(steps.sum()),
        compile_seconds=compile_seconds,
        seconds=seconds,
    )
