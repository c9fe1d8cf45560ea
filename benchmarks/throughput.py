"""Speed at the paper's setting for SCG: training, L2HMC, and plain HMC, ours and BlackJAX's, all in one run.

The methods take turns, so that a busy machine is busy for all of them. Compilation is timed apart.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import blackjax
import jax
import jax.numpy as jnp

from leapling.kernels import HMC, L2HMC
from leapling.report import page, page_markdown
from leapling.targets import scg
from leapling.training import preset
from leapling.training.loop import BLOCK, begin
from leapling.training.train import compile_block, default_start

HEADERS = ["what", "wall ms", "best", "worst", "CPU ms", "best CPU", "draws/s", "best draws/s", "compile s"]
AUTHORS = "Scale: the authors' implementation, one quiet core: 13.9 ms per iteration, 45,000 draws/s."
Call = Callable[[], Any]


def measure(call: Call) -> tuple[float, float]:
    """Wall and CPU milliseconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(call())
    return 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu)


def compile_chains(step: Callable, num_steps: int, kernel: Any, state: Any) -> tuple[Call, float, int]:
    """One scan of transitions; what comes out is the mean acceptance of each, and the last state."""

    def run(kernel, state, key):
        def one(state, i):
            state, acceptance = step(kernel, state, jax.random.fold_in(key, i))
            return state, jnp.mean(acceptance)

        return jax.lax.scan(one, state, jnp.arange(num_steps))

    began, key = time.perf_counter(), jax.random.key(1)
    compiled = jax.jit(run).lower(kernel, state, key).compile()
    return lambda: compiled(kernel, state, key), time.perf_counter() - began, num_steps


def prepare(num_chains: int, num_steps: int) -> dict[str, tuple[Call, float, int]]:
    """Name -> what to call, seconds to compile it, and how many iterations or transitions it runs."""
    target, settings = scg(), replace(preset("paper", "scg"), num_steps=10)  # the M of the authors' notebook
    key_kernel, key_start = jax.random.split(jax.random.key(0))
    num, step_size = settings.num_steps, settings.step_size
    l2hmc = L2HMC(target.dim, num, widths=(settings.width,) * 2, step_size=step_size, key=key_kernel)
    hmc = HMC(step_size, num)
    peer: Any = blackjax.hmc(lambda x: -target(x), step_size, jnp.ones(target.dim), num)
    start = target.sample(key_start, num_chains)

    def ours(kernel, state, key):
        state, info = kernel.step(target, state, key=key)
        return state, info.acceptance

    def theirs(_, state, key):
        state, info = jax.vmap(peer.step)(jax.random.split(key, num_chains), state)
        return state, info.acceptance_rate

    recipe, initial = settings.recipe, default_start(l2hmc, target, settings.recipe)
    arguments = (target, recipe, initial, begin(l2hmc, target, recipe, seed=0, initial=initial))
    block, seconds = compile_block(*arguments)
    return {
        "training": (lambda: block(*arguments, jnp.asarray(BLOCK, jnp.int32)), seconds, BLOCK),
        "L2HMC": compile_chains(ours, num_steps, l2hmc, l2hmc.init(target, start)),
        "HMC": compile_chains(ours, num_steps, hmc, hmc.init(target, start)),
        "BlackJAX HMC": compile_chains(theirs, num_steps, None, jax.vmap(peer.init)(start.T)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write what was measured to this file")
    for name, default in {"rounds": 10, "chains": 200, "steps": 2000}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()

    calls = prepare(options.chains, options.steps)
    times = {name: [] for name in calls}
    for i in range(options.rounds + 1):
        for name, (call, _, num) in calls.items():
            per_call = measure(call)
            if i > 0:  # the first round warms up
                times[name].append([value / num for value in per_call])

    rows = []
    for name, (_, seconds, _) in calls.items():
        wall, cpu = zip(*times[name], strict=True)
        row = [median(wall), min(wall), max(wall), median(cpu), min(cpu)]
        rates = [None, None] if name == "training" else [1e3 * options.chains / t for t in row[:2]]
        rows.append(dict(zip(HEADERS, [name, *row, *rates, seconds], strict=True)))

    rate = rows[1]["best draws/s"]
    bars = [{"bar": "L2HMC draws/s, best round, at least 1,000,000", "measured": rate, "met": rate >= 1e6}]
    for a, b, most in (("L2HMC", "HMC", 8), ("HMC", "BlackJAX HMC", 1)):
        # Within a round both had the same neighbours.
        ratio = median(x[0] / y[0] for x, y in zip(times[a], times[b], strict=True))
        bar = f"time of {a} / {b}, median, at most {most}"
        bars.append({"bar": bar, "measured": ratio, "met": ratio <= most})
    result = page(
        "Throughput",
        "python benchmarks/throughput.py",
        "On SCG at the paper's setting, float32. Times are of one iteration, or one transition of all "
        f"{options.chains} chains; {options.rounds} rounds. {AUTHORS}",
        [(caption, {name: name for name in t[0]}, t) for caption, t in (("Times", rows), ("Bars", bars))],
        ms=times,
    )
    print(page_markdown(result), end="")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
