"""The ESS table of section 5.1: four targets, the learned kernel, and HMC tuned less and less weakly."""

from dataclasses import replace
from typing import Any

from leapling.report import plot_ess_bars, plot_surface
from leapling.reproduce.baselines import PAPER_STEPS
from leapling.reproduce.lab import (
    FIGURES,
    PAPER_TARGETS,
    TITLES,
    Lab,
    Measured,
    closest,
    count,
    spread,
)
from leapling.reproduce.result import Result

# The paper's table: ESS per Metropolis-Hastings step. MoG's HMC is an upper bound.
PRINTED = {
    "icg": (7.83e-1, 1.65e-2, "36.6"),
    "rough-well": (6.25e-1, 1.16e-1, "5.4"),
    "scg": (4.97e-1, 4.69e-3, "106.2"),
    "mog": (3.24e-2, 2.61e-4, "over 124"),
}
# How a method's settings are chosen: the paper's own baseline by the paper's figure, the others by the honest one too.
BASELINES = (
    ("HMC M=10, authors' steps", "ess_paper"),
    ("HMC same M", "ess_paper"),
    ("HMC tuned", "ess_paper"),
    ("HMC tuned", "min_ess"),
    ("HMC whitened", "ess_paper"),
    ("HMC whitened", "min_ess"),
)
COLUMNS = {
    "target": "target",
    "method": "method",
    "step_size": "step size",
    "gradients_per_draw": "gradients per draw",
    "acceptance": "acceptance",
    "min_ess": "min_ess",
    "min_ess_per_gradient": "min_ess per gradient",
    "ess_paper": "ess_paper",
    "range": "its range",
    "ess_paper_code": "ess_paper_code",
    "ess_paper_per_gradient": "ess_paper per gradient",
    "printed": "paper's ESS",
    "ratio": "ours / paper's",
}


def run(lab: Lab) -> Result:
    rows, ratios, bars = [], [], []
    surfaces = {}
    hmc_steps = {TITLES[target]: lab.by_step_size("HMC M=10", target) for target in PAPER_TARGETS}
    for target in PAPER_TARGETS:
        steps = lab.preset(target).num_steps
        learned = [lab.measured("L2HMC", target, lab.trained(target, s), s) for s in lab.scale.seeds]
        here = [row(target, "L2HMC", learned, PRINTED[target][0])]
        aside = at_paper_steps(lab, target)
        for method, criterion in BASELINES:
            kernel, found = lab.tuned(method, target, criterion)
            label = f"{method.replace('same M', f'M={steps}')} ({criterion})"
            measured = [lab.measured(f"{method} {criterion}", target, kernel, s) for s in lab.scale.seeds]
            printed = PRINTED[target][1] if "authors" in method and target != "mog" else None
            here.append(row(target, label, measured, printed))
            if method == "HMC tuned" and criterion == "min_ess":
                surfaces[target] = found["surface"]
        rows += [here[0], *aside, *here[1:]]
        ratios.append(ratio_row(target, here))
        for r in here:
            method = r["method"].replace(f"HMC M={steps} ", "HMC, M of L2HMC ")  # one name in all panels
            bars.append({"target": TITLES[target], "method": method, "values": r["values"]})
    result = Result(
        "ess",
        "Effective sample size, four targets (the table of section 5.1)",
        f"{count(lab.scale.seeds)}, {lab.protocol}; "
        "medians over seeds, per transition unless it says per gradient. A learned kernel is trained anew for each "
        "seed; a baseline is tuned once, on other seeds, by the figure in brackets per gradient.",
    )
    result.tables.append(("Every method", COLUMNS, rows))
    ratio_columns = {
        "target": "target",
        "printed": "printed",
        "authors": "against HMC, M = 10, authors' steps",
        "same": "same M, step tuned",
        "tuned": "per gradient, length tuned",
        "whitened": "per gradient, whitened",
        "tuned_min": "min_ess per gradient, length tuned",
        "whitened_min": "min_ess per gradient, whitened",
    }
    result.tables.append(("The headline ratio L2HMC / HMC, by ess_paper unless it says min_ess", ratio_columns, ratios))
    columns = {name: COLUMNS.get(name, name) for name in hmc_steps[TITLES[PAPER_TARGETS[0]]][0]}
    columns["acceptance_rate"] = "acceptance"
    result.tables.append(
        ("HMC at M = 10 by step size, one seed", columns, [r for some in hmc_steps.values() for r in some])
    )
    result.notes += words(rows, ratios, hmc_steps)
    for r in rows:
        del r["values"]
    figure = plot_ess_bars(
        [b for b in bars if "ess_paper" in b["method"] or b["method"] == "L2HMC"],
        printed={TITLES[t]: PRINTED[t][0] for t in PAPER_TARGETS},
        xlabel="ess_paper per transition",
    )
    result.figures["ess"] = ("ess_paper per transition, every seed, and what the paper prints for L2HMC", figure)
    for target, surface in surfaces.items():
        figure = plot_surface(
            [{**r, "value": r["min_ess_per_gradient"]} for r in surface if r["length_jitter"] == 0],
            label="min_ess per gradient",
        )
        caption = f"HMC on {TITLES[target]}: the surface that tuning saw, without jitter"
        result.figures[f"surface-{target}"] = (caption, figure)
    return result


def row(target: str, method: str, measured: list[Measured], printed: float | None) -> dict[str, Any]:
    figures = {name: spread([m.figures[name] for m in measured]) for name in (*FIGURES, "gradients_per_draw")}
    cost = figures["gradients_per_draw"]["median"]
    paper = figures["ess_paper"]
    return {
        "target": TITLES[target],
        "method": method,
        "step_size": spread([m.figures["step_size"] for m in measured])["median"],
        "acceptance": spread([m.figures["acceptance_rate"] for m in measured])["median"],
        "gradients_per_draw": cost,
        **{name: figures[name]["median"] for name in FIGURES},
        **{f"{name}_per_gradient": figures[name]["median"] / cost for name in FIGURES},
        "range": f"{paper['min']:.3g} to {paper['max']:.3g}",
        "printed": printed,
        "ratio": None if printed is None else paper["median"] / printed,
        "values": [m.figures["ess_paper"] for m in measured],
    }


def ratio_row(target: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    learned, authors, same, tuned, tuned_min, whitened, whitened_min = rows
    return {
        "target": TITLES[target],
        "printed": PRINTED[target][2],
        "authors": learned["ess_paper"] / authors["ess_paper"],
        "same": learned["ess_paper"] / same["ess_paper"],
        **{
            name: learned[f"{figure}_per_gradient"] / rival[f"{figure}_per_gradient"]
            for name, figure, rival in (
                ("tuned", "ess_paper", tuned),
                ("whitened", "ess_paper", whitened),
                ("tuned_min", "min_ess", tuned_min),
                ("whitened_min", "min_ess", whitened_min),
            )
        },
    }


def at_paper_steps(lab: Lab, target: str) -> list[dict[str, Any]]:
    """L2HMC at M = 10 and eps = 0.1 where the preset has another M: everything else as in the preset."""
    settings = replace(lab.preset(target), num_steps=PAPER_STEPS, step_size=0.1)
    if lab.preset(target).num_steps == PAPER_STEPS:
        return []
    name = f"M={PAPER_STEPS}"
    kernels = [lab.trained(target, seed, name=name, settings=settings) for seed in lab.scale.seeds]
    label = f"L2HMC {name}"
    measured = [lab.measured(label, target, k, seed) for k, seed in zip(kernels, lab.scale.seeds, strict=True)]
    return [row(target, label, measured, PRINTED[target][0])]


def words(
    rows: list[dict[str, Any]], ratios: list[dict[str, Any]], steps: dict[str, list[dict[str, Any]]]
) -> list[str]:
    """What the tables say, in sentences made from their numbers."""
    by = {(r["target"], r["method"].split(" (")[0]): r for r in rows}
    said = []
    for ratio in ratios:
        target = ratio["target"]
        same = next(r for (t, m), r in by.items() if t == target and m.startswith("HMC M=") and "," not in m)
        authors = next(r for (t, m), r in by.items() if t == target and "authors" in m)
        learned = by[target, "L2HMC"]
        parts = [
            f"{target}: L2HMC's ess_paper is {learned['ess_paper']:.3g} (range {learned['range']}), printed ",
            f"{learned['printed']:.3g}; its min_ess is {learned['min_ess']:.3g}. ",
            f"HMC at M = 10 has {authors['ess_paper']:.3g} with the best of the authors' step sizes ",
            f"({authors['step_size']:.3g}), printed {authors['printed'] or 'as below 2.61e-4'}",
        ]
        if authors["printed"]:
            best, its = max((r["ess_paper"], r["step_size"]) for r in steps[target])
            near = closest(steps[target], "ess_paper", authors["printed"])
            parts += [
                f"; with others it has {best:.3g} at best (at {its:.3g}), and comes closest to the printed figure at ",
                f"{near['step_size']:.3g}, with {near['ess_paper']:.3g}",
            ]
        parts += [
            f". At the M of L2HMC ({same['gradients_per_draw']:.0f}) and a tuned step size ({same['step_size']:.3g}) ",
            f"it has {same['ess_paper']:.3g}. ",
            f"The printed ratio, {ratio['printed']}, is {ratio['authors']:.3g} here, {ratio['same']:.3g} against the ",
            f"tuned step size, and per gradient {ratio['tuned']:.3g} once the length is tuned too and ",
            f"{ratio['whitened']:.3g} after whitening; by min_ess {ratio['tuned_min']:.3g} and ",
            f"{ratio['whitened_min']:.3g}.",
        ]
        said.append("".join(parts))
    return said
