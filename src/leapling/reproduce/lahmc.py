"""The LAHMC table of appendix C.3: effective draws at a number of gradients."""

from typing import Any

from leapling.kernels import LAHMC
from leapling.report import plot_ess_bars
from leapling.reproduce.baselines import LAHMC_AUTHORS, PAPER_STEPS
from leapling.reproduce.lab import (
    PAPER_TARGETS,
    STEP_COLUMNS,
    TITLES,
    Lab,
    Measured,
    closest,
    count,
    slug,
    spread,
)
from leapling.reproduce.result import Result

# Gradients, and the printed ESS of L2HMC and of LAHMC; MoG's LAHMC is an upper bound.
PRINTED = {
    "icg": (2000, 156.6, 21.4),
    "rough-well": (200, 12.5, 8.6),
    "scg": (5000, 116.0, 16.7),
    "mog": (20000, 65.0, 0.53),
}
SAME = f"LAHMC M={PAPER_STEPS}"
METHODS = ((SAME, "ess_paper"), ("LAHMC", "ess_paper"), ("LAHMC", "min_ess"))
# The combination that the paper proposes: with LAHMC's own settings, and with a fresh momentum as L2HMC was trained.
COMBINED = (LAHMC_AUTHORS, {"num_trajectories": 2, "refreshment": 1.0})
COLUMNS = {
    "target": "target",
    "method": "method",
    "settings": "settings",
    "gradients": "gradients",
    "gradients_per_draw": "gradients per draw",
    "acceptance": "moved",
    "effective_min": "effective draws (min_ess)",
    "effective": "effective draws (ess_paper)",
    "range": "its range",
    "printed": "printed",
    "ratio": "ours / printed",
}


def run(lab: Lab) -> Result:
    rows, steps = [], {}
    for target in PAPER_TARGETS:
        gradients, printed, printed_rival = PRINTED[target]
        kernels = [lab.trained(target, seed) for seed in lab.scale.seeds]
        learned = [lab.measured("L2HMC", target, k, s) for k, s in zip(kernels, lab.scale.seeds, strict=True)]
        rows.append(row(target, "L2HMC", f"M={lab.preset(target).num_steps}, trained", learned, printed))
        for method, criterion in METHODS:
            kernel, found = lab.tuned(method, target, criterion)
            measured = [lab.measured(f"{method} {criterion}", target, kernel, s) for s in lab.scale.seeds]
            settings = ", ".join(f"{name} {value:.3g}" for name, value in found["settings"].items())
            given = printed_rival if method == SAME and target != "mog" else None
            rows.append(row(target, f"{method} ({criterion})", settings, measured, given))
        for settings in COMBINED:
            words = f"K {settings['num_trajectories']}, beta {settings['refreshment']:g}"
            label = f"L2HMC in LAHMC, {words}"
            combined = [
                lab.measured(slug("L2HMC in LAHMC", words), target, LAHMC(kernel, **settings), seed)
                for kernel, seed in zip(kernels, lab.scale.seeds, strict=True)
            ]
            rows.append(row(target, label, "the trained operator", combined, None))
        steps[target] = [
            {**found, "effective": gradients * found["ess_paper"] / found["gradients_per_draw"]}
            for found in lab.by_step_size(SAME, target)
        ]
    result = Result(
        "lahmc",
        "Against look-ahead HMC (the table of appendix C.3)",
        f"{count(lab.scale.seeds)}, {lab.protocol}, "
        "medians over seeds: effective draws are ESS per gradient times the gradients of the printed table. LAHMC is "
        "tuned in step size, length, number of trajectories K and refreshment beta, or in step size alone at M = 10, "
        "K 4 and beta 0.1, by the figure in brackets per gradient; its lock-step waste is not charged.",
    )
    result.tables.append(("Effective draws for the printed number of gradients", COLUMNS, rows))
    columns = {**STEP_COLUMNS, "effective": "effective draws (ess_paper)"}
    flat = [found for some in steps.values() for found in some]
    result.tables.append((f"{SAME}, K 4, beta 0.1, by step size, one seed", columns, flat))
    result.notes += notes(rows, steps)
    figure = plot_ess_bars(
        [{name: r.pop(name) if name == "values" else r[name] for name in ("target", "method", "values")} for r in rows],
        printed={TITLES[target]: PRINTED[target][1] for target in PAPER_TARGETS},
        xlabel="effective draws (ess_paper)",
    )
    caption = "Effective draws at the printed number of gradients, every seed, and what the paper prints for L2HMC"
    result.figures["lahmc"] = (caption, figure)
    return result


def row(target: str, method: str, settings: str, measured: list[Measured], printed: float | None) -> dict:
    gradients = PRINTED[target][0]
    values = [gradients * m.figures["ess_paper"] / m.figures["gradients_per_draw"] for m in measured]
    effective = spread(values)
    honest = spread([gradients * m.figures["min_ess"] / m.figures["gradients_per_draw"] for m in measured])
    return {
        "target": TITLES[target],
        "method": method,
        "settings": settings,
        "gradients": gradients,
        "gradients_per_draw": spread([m.figures["gradients_per_draw"] for m in measured])["median"],
        "acceptance": spread([m.figures["acceptance_rate"] for m in measured])["median"],
        "effective": effective["median"],
        "range": f"{effective['min']:.3g} to {effective['max']:.3g}",
        "effective_min": honest["median"],
        "printed": printed,
        "ratio": None if printed is None else effective["median"] / printed,
        "values": values,
    }


def notes(rows: list[dict[str, Any]], steps: dict[str, list[dict[str, Any]]]) -> list[str]:
    by = {(r["target"], r["method"]): r for r in rows}
    said = []
    for target, found in steps.items():
        _, _, printed = PRINTED[target]
        tuned, free = (by[TITLES[target], f"{method} (ess_paper)"] for method in (SAME, "LAHMC"))
        text = f"{TITLES[target]}: the paper prints {'less than ' if target == 'mog' else ''}{printed} for LAHMC and "
        text += f"names none of its settings. At M = {PAPER_STEPS} with its step size tuned it has "
        text += f"{tuned['effective']:.3g} effective draws here, with everything tuned {free['effective']:.3g}"
        if target != "mog":
            near = closest(found, "effective", printed)
            text += f"; a step size of {near['step_size']:.3g} gives {near['effective']:.3g}, the closest to the print"
        said.append(f"{text}.")
    said.append(
        "The printed row of SCG contradicts itself: 5,000 gradients are 500 transitions of M = 10, which at the "
        "printed ESS of 0.497 are 248.5 effective draws and give the printed ratio of 14.9; the printed 116 does not. "
        "The other rows are transitions times M = 10 as well."
    )
    return said
