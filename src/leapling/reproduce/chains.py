"""Samples of a single chain over the density, by target and method (the second figure of section 5.1)."""

import numpy as np

from leapling.report import plot_chain_grid
from leapling.reproduce.lab import PAPER_TARGETS, TITLES, Lab
from leapling.reproduce.result import Result
from leapling.targets import TARGETS, DiagonalGaussian

METHODS = (("HMC same M", "ess_paper"), ("HMC tuned", "min_ess"))


def run(lab: Lab) -> Result:
    grid, rows = {}, []
    for target in PAPER_TARGETS:
        energy = TARGETS[target]()
        seed = lab.scale.seeds[0]
        chains = {"L2HMC": lab.measured("L2HMC", target, lab.trained(target, seed), seed).arrays["chain"]}
        for method, criterion in METHODS:
            kernel, _ = lab.tuned(method, target, criterion)
            # The length goes by the name of its target, so that each method has one column.
            label = method.replace(" same M", ", M of L2HMC")
            chains[label] = lab.measured(f"{method} {criterion}", target, kernel, seed).arrays["chain"]
        shown = energy if energy.dim == 2 else DiagonalGaussian(energy.variance[[0, -1]])
        grid[TITLES[target]] = (chains, shown)
        sd = np.sqrt(energy.variance[[0, -1]])
        for label, chain in chains.items():
            covered = np.ptp(chain[:100], axis=0) / sd
            rows.append({"target": TITLES[target], "method": label, "first": covered[0], "last": covered[1]})
    result = Result(
        "chains",
        "Samples of a single chain (the second figure of section 5.1)",
        "The first 100 transitions of one chain from an exact draw; of ICG the narrowest and the widest coordinate.",
    )
    columns = {
        "target": "target",
        "method": "method",
        "first": "range of the first coordinate, in sds",
        "last": "range of the last coordinate",
    }
    result.tables.append(("What 100 transitions cover (100 independent draws: about 5)", columns, rows))
    result.figures["chains"] = ("One chain of each method over the density", plot_chain_grid(grid))
    return result
