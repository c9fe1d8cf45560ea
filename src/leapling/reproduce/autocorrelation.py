"""Autocorrelation against gradient evaluations, four panels (the first figure of section 5.1)."""

import numpy as np

from leapling.report import plot_autocorrelation_panels
from leapling.reproduce.lab import PAPER_TARGETS, TITLES, Lab
from leapling.reproduce.result import Result

METHODS = (
    ("HMC same M", "ess_paper"),
    ("HMC tuned", "ess_paper"),
    ("HMC whitened", "ess_paper"),
    ("LAHMC", "ess_paper"),
)
LEVEL = 0.05
COLUMNS = {
    "target": "target",
    "method": "method",
    "gradients_per_draw": "gradients per draw",
    "lag_one": "autocorrelation after one transition",
    "gradients": "gradients until it stays under 0.05",
}


def run(lab: Lab) -> Result:
    panels, rows = {}, []
    for target in PAPER_TARGETS:
        learned = [lab.measured("L2HMC", target, lab.trained(target, s), s) for s in lab.scale.seeds]
        # The seed of the median, so that the curve is one that a kernel really has.
        middle = sorted(learned, key=lambda m: m.figures["ess_paper"])[len(learned) // 2]
        here = {"L2HMC": middle}
        for method, criterion in METHODS:
            kernel, _ = lab.tuned(method, target, criterion)
            label = method.replace(" same M", ", M of L2HMC")
            here[label] = lab.measured(f"{method} {criterion}", target, kernel, lab.scale.seeds[0])
        curves = {label: m.arrays["rho"] for label, m in here.items()}
        costs = {label: m.figures["gradients_per_draw"] for label, m in here.items()}
        panels[TITLES[target]] = (curves, costs)
        for label, rho in curves.items():
            above = np.flatnonzero(rho >= LEVEL)
            lag = int(above[-1]) + 1
            reached = lag < len(rho)
            rows.append(
                {
                    "target": TITLES[target],
                    "method": label,
                    "gradients_per_draw": costs[label],
                    "lag_one": float(rho[1]),
                    "gradients": lag * costs[label] if reached else f"over {(len(rho) - 1) * costs[label]:,.0f}",
                }
            )
    result = Result(
        "autocorrelation",
        "Autocorrelation against gradient evaluations (the first figure of section 5.1)",
        f"{lab.protocol}, true moments; of the learned kernels the seed with the median ess_paper. "
        "Baselines are tuned for ess_paper per gradient.",
    )
    result.tables.append(("Where the curves fall", COLUMNS, rows))
    result.figures["autocorrelation"] = (
        "Autocorrelation of x, weighted by variance",
        plot_autocorrelation_panels(panels),
    )
    return result
