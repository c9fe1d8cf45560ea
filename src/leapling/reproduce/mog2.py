"""Two modes, equal and unequal: who crosses, and who spends the right time in each (section 5.1, third figure)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from leapling.chains import sample
from leapling.kernels import Kernel
from leapling.report import plot_modes
from leapling.reproduce.lab import TITLES, Lab, identity, slug, spread
from leapling.reproduce.result import Result
from leapling.targets import TARGETS, GaussianMixture

MIXTURES = ("mog", "mog2", "mog2-unequal")
NUM_SHOWN = 1000
COLUMNS = {
    "target": "target",
    "method": "method",
    "start": "starts in",
    "acceptance": "acceptance",
    "crossings": "crossings per 1,000 transitions",
    "range": "its range",
    "share": "time in the other mode (truth 0.5)",
    "error": "largest error of a seed",
    "gradients": "gradients per transition",
}


def run(lab: Lab) -> Result:
    rows, series = [], {}
    for target in MIXTURES:
        methods = samplers(lab, target)
        for label, kernels in methods.items():
            for start, where in enumerate(("left", "right")):
                found = [visits(lab, target, label, kernel, seed, start) for seed, kernel in kernels]
                rows.append(row(target, label, where, [value for value, _ in found]))
                if start == 0:
                    series.setdefault(TITLES[target], {})[label] = found[0][1]["trace"]
    result = Result(
        "mog2",
        "Mixing between modes: L2HMC, A-NICE-MC and HMC (the third figure of section 5.1)",
        f"{lab.scale.num_chains} chains x {lab.scale.num_draws:,} transitions, all started in one mode from its exact "
        "draws; time in the modes is counted over the second half. Learned kernels are trained anew for each seed; "
        "medians.",
    )
    result.tables.append(("Crossings and time in the modes", COLUMNS, rows))
    result.notes += words(rows)
    result.figures["mog2"] = (
        f"The first coordinate of one chain, {min(NUM_SHOWN, lab.scale.num_draws):,} transitions from the left mode",
        plot_modes(series),
    )
    return result


def samplers(lab: Lab, target: str) -> dict[str, list[tuple[int, Kernel]]]:
    few = lab.scale.few_seeds
    methods = {"L2HMC": [(seed, lab.trained(target, seed)) for seed in lab.scale.seeds]}
    for method, criterion in (("HMC M=10, authors' steps", "ess_paper"), ("HMC tuned", "min_ess")):
        kernel, _ = lab.tuned(method, target, criterion)
        methods[method] = [(seed, kernel) for seed in few]
    if target != "mog":
        methods["A-NICE-MC"] = [(seed, lab.adversarial(target, seed)) for seed in few]
        methods["NICE, paper's loss"] = [(seed, lab.nice(target, seed)) for seed in few]
    return methods


def visits(lab: Lab, target: str, label: str, kernel: Kernel, seed: int, start: int):
    """Crossings, and the share of the second half in the mode that the chains did not start in."""
    mixture = TARGETS[target]()
    assert isinstance(mixture, GaussianMixture)

    def make():
        draws = sample(
            kernel,
            mixture,
            num_draws=lab.scale.num_draws,
            seed=seed + 3000,
            initial_positions=one_mode(mixture, start, lab.scale.num_chains, seed + 3000),
            warn=False,
        )
        positions = jnp.moveaxis(jnp.asarray(draws.positions), -1, 0)
        component = np.asarray(mixture.component(positions))  # (chain, draw)
        other = component != start
        value = {
            "crossings": float(1000 * np.mean(component[:, 1:] != component[:, :-1])),
            "share": float(np.mean(other[:, other.shape[1] // 2 :])),
            "acceptance": float(np.mean(draws.statistics["acceptance_rate"])),
            "gradients": float(np.mean(draws.statistics["n_steps"])),
        }
        return value, {"trace": draws.positions[0, :NUM_SHOWN, 0]}

    name = slug("visits", label, target, seed, start)
    settings = {"kernel": identity(kernel), "chains": lab.scale.num_chains, "draws": lab.scale.num_draws}
    return lab.pieces.get(name, settings, make)


def one_mode(mixture: GaussianMixture, component: int, num: int, seed: int) -> np.ndarray:
    """Exact draws of one component: those of the mixture that belong to it."""
    draws = mixture.sample(jax.random.key(seed), 8 * num + 64, np.float32)
    chosen = np.flatnonzero(np.asarray(mixture.component(draws)) == component)
    return np.asarray(draws).T[chosen[:num]]


def row(target: str, method: str, start: str, found: list[dict[str, float]]) -> dict[str, Any]:
    crossings, share = (spread([f[name] for f in found]) for name in ("crossings", "share"))
    return {
        "target": TITLES[target],
        "method": method,
        "start": start,
        "acceptance": spread([f["acceptance"] for f in found])["median"],
        "crossings": crossings["median"],
        "range": f"{crossings['min']:.3g} to {crossings['max']:.3g}",
        "share": share["median"],
        "error": max(abs(f["share"] - 0.5) for f in found),
        "gradients": spread([f["gradients"] for f in found])["median"],
    }


def words(rows: list[dict[str, Any]]) -> list[str]:
    said = []
    for target in dict.fromkeys(row["target"] for row in rows):
        parts = []
        for r in rows:
            if r["target"] == target and r["start"] == "left":
                parts.append(f"{r['method']} {r['crossings']:.3g} ({r['share']:.1%} of the time in the other mode)")
        said.append(f"{target}, crossings per 1,000 transitions from the left mode: {'; '.join(parts)}.")
    return said
