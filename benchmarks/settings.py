"""A search over what the paper leaves open in its recipe: every setting of a grid, trained from many seeds at once.

    python benchmarks/settings.py scg --grid step_size=0.1,0.2 temperature=1,3,10 --seeds 32

All runs of a grid are one compiled program, vmapped over settings and seeds, so an accelerator serves them together.
The seeds are apart from those that any table reports. Prints, for each setting, the quartiles over seeds of
`ess_paper` of the last kernel (200 chains x 2,000 transitions from exact draws), the share of seeds that reach the
paper's figure, and the mean acceptance. `cooled` is the share of the iterations after which the temperature is 1.
"""

import argparse
import itertools
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from leapling.diagnostics import ess_paper
from leapling.kernels import L2HMC
from leapling.report import page, page_markdown
from leapling.targets import TARGETS
from leapling.training import preset
from leapling.training.loop import METRICS, TrainState, iterate, split_trainable

FIRST_SEED = 10_000
NUM_CHAINS, NUM_DRAWS = 200, 2000
HEADERS = {
    "num_steps": "M",
    "lambda2": "lambda^2",
    "lower": "lower quartile",
    "median": "median",
    "upper": "upper quartile",
    "reached": "share of seeds at the paper's figure",
    "acceptance": "acceptance",
    "error": "time in the left half, largest error",
}
OPEN = ("step_size", "lambda2", "floor", "initial_scale", "temperature", "cooled", "head_scale")
PAPER = {"icg": 0.783, "rough-well": 0.625, "scg": 0.497, "mog": 0.0324}


def lowered(settings, target):
    """One run as a function of its seed and the settings of the grid, to be vmapped."""
    recipe = settings.recipe

    def run(seed, s):
        def objective(start, info):
            delta = jnp.sum((info.proposal.position - start.position) ** 2, axis=0)
            jump = delta * info.acceptance + s["floor"]
            return jnp.mean(s["lambda2"] / jump - jump / s["lambda2"])

        def temperature(iteration):
            done = iteration / (s["cooled"] * recipe.num_iterations)
            return jnp.maximum(s["temperature"] ** (1 - done), 1.0)

        def initial(key, num):
            return s["initial_scale"] * jax.random.normal(key, (target.dim, num), np.float32)

        own = replace(recipe, objective=objective, temperature=temperature)
        root = jax.random.key(seed)
        kernel = L2HMC(
            target.dim,
            settings.num_steps,
            widths=(settings.width,) * 2,
            step_size=s["step_size"],
            key=jax.random.fold_in(root, 2**31 - 1),
            dtype=np.float32,
        )
        heads = lambda k: (k.v_network.heads.weight, k.x_network.heads.weight)  # noqa: E731
        kernel = eqx.tree_at(heads, kernel, replace_fn=lambda w: s["head_scale"] * w)
        state = TrainState(
            kernel=kernel,
            best_kernel=kernel,
            best_loss=jnp.asarray(jnp.inf, np.float32),
            optimizer=own.optimizer().init(split_trainable(kernel)[0]),
            chains=kernel.init(target, initial(jax.random.fold_in(root, own.num_iterations), own.batch_size)),
            root=jax.random.key_data(root),
            iteration=jnp.asarray(0, jnp.int32),
            history=jnp.zeros((1, len(METRICS)), np.float32),  # not kept: writes beyond the end are dropped
        )
        state = jax.lax.fori_loop(0, own.num_iterations, lambda _, state: iterate(target, own, initial, state), state)
        kernel = state.kernel
        exact = target.sample(jax.random.fold_in(root, 2**31 - 2), NUM_CHAINS, np.float32)

        def draw(chains, i):
            chains, info = kernel.step(target, chains, key=jax.random.fold_in(root, 2**30 + i))
            return chains, (chains.position, jnp.mean(info.acceptance))

        _, (positions, acceptance) = jax.lax.scan(draw, kernel.init(target, exact), jnp.arange(NUM_DRAWS))
        # For mixtures: all chains begin on the left, and the share of the second half spent on the right is told.
        left = kernel.init(target, exact.at[0].set(-jnp.abs(exact[0])))
        _, (crossed, _) = jax.lax.scan(draw, left, jnp.arange(NUM_DRAWS))
        right = jnp.mean(crossed[NUM_DRAWS // 2 :, 0] > 0)
        return autocorrelation(target, positions), jnp.mean(acceptance), right

    return run


def autocorrelation(target, positions):
    """rho_t of the paper, on the device: what `leapling.diagnostics.autocorrelation` computes on the host."""
    centred = jnp.moveaxis(positions, 0, -1) - jnp.asarray(target.mean, np.float32)[:, None, None]
    power = jnp.abs(jnp.fft.rfft(centred, 2 * NUM_DRAWS)) ** 2
    products = jnp.fft.irfft(jnp.sum(power, axis=(0, 1)), 2 * NUM_DRAWS)[:NUM_DRAWS]
    return products / (NUM_CHAINS * float(np.sum(target.variance)) * (NUM_DRAWS - jnp.arange(NUM_DRAWS)))


def search(target, settings, points: list[dict[str, float]], num_seeds: int, at_once: int) -> list[dict[str, float]]:
    """A row for each point."""
    runs = [(FIRST_SEED + seed, point) for point in points for seed in range(num_seeds)]
    run = jax.jit(jax.vmap(lowered(settings, target)))
    sizes, acceptances, shares = [], [], []
    began = time.perf_counter()
    for i in range(0, len(runs), at_once):
        some = runs[i : i + at_once]
        seeds = jnp.asarray([seed for seed, _ in some])
        stacked = {name: jnp.asarray([point[name] for _, point in some], np.float32) for name in points[0]}
        rho, acceptance, right = jax.device_get(run(seeds, stacked))
        sizes += [ess_paper(r) if np.isfinite(r).all() else 0.0 for r in np.asarray(rho, np.float64)]
        acceptances += [float(a) for a in acceptance]
        shares += [abs(float(a) - 0.5) for a in right]
        done = f"M={settings.num_steps}: {i + len(some)} of {len(runs)} runs"
        print(f"{done}, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    rows = []
    for i, point in enumerate(points):
        here = slice(i * num_seeds, (i + 1) * num_seeds)
        quartiles = dict(zip(("lower", "median", "upper"), np.quantile(sizes[here], [0.25, 0.5, 0.75]), strict=True))
        rows.append(
            {
                "num_steps": settings.num_steps,
                **point,
                **quartiles,
                "reached": float(np.mean(np.array(sizes[here]) >= PAPER.get(target.name, np.inf))),
                "acceptance": float(np.mean(acceptances[here])),
                "error": float(np.max(shares[here])),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=[*TARGETS])
    parser.add_argument("--grid", nargs="*", default=[], help=f"name=value,value,... of {', '.join(OPEN)}")
    parser.add_argument("--num-steps", type=int, nargs="+")
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--runs-at-once", type=int, default=512)
    parser.add_argument("--json", type=Path, help="the last argument; also write the result to this file")
    options = parser.parse_args()
    arguments = sys.argv[1 : sys.argv.index("--json")] if options.json else sys.argv[1:]
    target, settings = TARGETS[options.target](), preset("paper", options.target)
    recipe = settings.recipe
    grid = {
        "step_size": [settings.step_size],
        "lambda2": [recipe.objective.scale**2],
        "floor": [recipe.objective.floor],
        "initial_scale": [recipe.initial_scale],
        "temperature": [recipe.temperature.start],
        "cooled": [0.7],
        "head_scale": [1.0],
    }
    for item in options.grid:
        name, _, values = item.partition("=")
        if name not in grid:
            parser.error(f"{name!r} is not open; there are {', '.join(grid)}")
        grid[name] = [float(value) for value in values.split(",")]
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    rows = []
    for num_steps in options.num_steps or [settings.num_steps]:
        rows += search(target, replace(settings, num_steps=num_steps), points, options.seeds, options.runs_at_once)
    rows.sort(key=lambda row: -row["median"])
    varied = [name for name in OPEN if len(grid[name]) > 1]
    kept = ", ".join(f"{name} {values[0]:g}" for name, values in grid.items() if len(values) == 1)
    columns = ["num_steps", *varied, *(name for name in HEADERS if name not in OPEN)]
    columns = {name: HEADERS.get(name, name) for name in dict.fromkeys(columns)}
    result = page(
        f"What the paper leaves open: {options.target}",
        f"python benchmarks/settings.py {' '.join(arguments)}",
        f"Seeds {FIRST_SEED} to {FIRST_SEED + options.seeds - 1}, which no table reports; {NUM_CHAINS} chains x "
        f"{NUM_DRAWS:,} transitions from exact draws. Held: {kept}, lambda_b {recipe.burn_in_weight:g}, "
        f"{recipe.num_iterations:,} iterations.",
        [("ess_paper over seeds, the best median first", columns, rows)],
    )
    print(page_markdown(result), end="")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
