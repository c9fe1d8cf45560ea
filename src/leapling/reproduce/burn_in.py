"""Fast burn-in: the distance to the target against gradients, from the initial distribution, by lambda_b."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from leapling.chains import exact_starts, sample
from leapling.coordinates import whitening
from leapling.kernels import Kernel
from leapling.report import plot_burn_in
from leapling.reproduce.lab import PAPER_TARGETS, TITLES, Lab, count, identity, slug, spread
from leapling.reproduce.result import Result
from leapling.targets import TARGETS, Target

TRANSITIONS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200)
TWICE = 2.0  # of the noise floor: as close as so many chains can tell
COLUMNS = {
    "target": "target",
    "method": "method",
    "start": "distance at the start",
    "end": f"after {TRANSITIONS[-1]} transitions",
    "range": "its range",
    "floor": "noise floor",
    "gradients": "gradients to twice the floor",
}


def run(lab: Lab) -> Result:
    curves, floors, rows = {}, {}, []
    for target in PAPER_TARGETS:
        energy = TARGETS[target]()
        settings = lab.preset(target)
        num = lab.scale.burn_in_chains
        floors[TITLES[target]] = floor = distance(energy, exact_starts(energy, num, seed=7))
        seeds = lab.scale.few_seeds
        methods: dict[str, list[Kernel]] = {}
        for weight in (0.0, 1.0):
            recipe = replace(settings.recipe, burn_in_weight=weight)
            same = recipe == settings.recipe
            variant = None if same else replace(settings, recipe=recipe)
            name = "" if same else f"burn-in-{weight:g}"
            methods[f"L2HMC, lambda_b = {weight:g}"] = [
                lab.trained(target, seed, name=name, settings=variant) for seed in seeds
            ]
        methods["HMC, M of L2HMC"] = [lab.tuned("HMC same M", target, "ess_paper")[0]] * len(seeds)
        here = {}
        for label, kernels in methods.items():
            distances = []
            for kernel, seed in zip(kernels, seeds, strict=True):
                distances.append(approach(lab, target, energy, label, kernel, seed))
            middle = np.median(distances, axis=0)
            gradients = np.concatenate([[1], 1 + settings.num_steps * np.array(TRANSITIONS)])
            here[label] = (gradients, middle)
            close = np.flatnonzero(middle <= TWICE * floor)
            last = spread([d[-1] for d in distances])
            rows.append(
                {
                    "target": TITLES[target],
                    "method": label,
                    "start": middle[0],
                    "end": last["median"],
                    "range": f"{last['min']:.3g} to {last['max']:.3g}",
                    "floor": floor,
                    "gradients": int(gradients[close[0]]) if close.size else f"over {gradients[-1]:,}",
                }
            )
        curves[TITLES[target]] = here
    result = Result(
        "burn-in",
        "Burn-in from the initial distribution, with and without the burn-in term",
        f"{lab.scale.burn_in_chains} chains from the recipe's initial distribution, {count(lab.scale.few_seeds)}, "
        "medians. The distance is the root mean square, over the coordinates of the whitened target, of the "
        "2-Wasserstein distance between the chains and the target; the floor is that of as many exact draws.",
    )
    result.tables.append(("Distance to the target", COLUMNS, rows))
    result.figures["burn-in"] = ("Distance to the target against gradient evaluations", plot_burn_in(curves, floors))
    return result


def approach(lab: Lab, target: str, energy: Target, label: str, kernel: Kernel, seed: int) -> np.ndarray:
    """The distance at the start and after TRANSITIONS."""
    scale = lab.preset(target).recipe.initial_scale
    num = lab.scale.burn_in_chains

    def make():
        noise = jax.random.normal(jax.random.key(seed + 2000), (num, energy.dim), np.float32)
        start = np.asarray(noise) * np.float32(scale)
        draws = sample(kernel, energy, num_draws=TRANSITIONS[-1], seed=seed + 2000, initial_positions=start, warn=False)
        points = [start, *(draws.positions[:, t - 1] for t in TRANSITIONS)]
        return {}, {"distance": np.array([distance(energy, x) for x in points])}

    name = slug("burn-in", label, target, seed)
    settings = {"kernel": identity(kernel), "chains": num, "transitions": TRANSITIONS, "scale": scale}
    return lab.pieces.get(name, settings, make)[1]["distance"]


def distance(energy: Target, x: np.ndarray) -> float:
    """Against the quantiles of as many exact draws, coordinate by coordinate in whitened units."""
    whiten = whitening(energy.mean, energy.covariance).backward
    exact, mine = (
        np.sort(np.asarray(whiten(jnp.asarray(points.T, np.float32))), axis=1)
        for points in (exact_starts(energy, len(x), seed=8), x)
    )
    return float(np.sqrt(np.mean((exact - mine) ** 2)))
