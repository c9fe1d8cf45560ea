"""What each part of the recipe is worth: without the reciprocal term, a grid of lambda, without S, Q or T."""

from dataclasses import replace

from leapling.report import plot_ablations
from leapling.reproduce.lab import PAPER_TARGETS, TITLES, Lab, count, slug, spread
from leapling.reproduce.result import Result
from leapling.training import Jump, Preset

COLUMNS = {
    "target": "target",
    "variant": "variant",
    "ess_paper": "ess_paper",
    "range": "its range",
    "min_ess": "min_ess",
    "min_range": "its range",
    "acceptance": "acceptance",
    "step_size": "step size",
}


def variants(settings: Preset) -> dict[str, Preset]:
    """The published recipe first; lambda^2 is varied about its own value."""
    objective = settings.recipe.objective
    assert isinstance(objective, Jump)

    def with_objective(**changes) -> Preset:
        return replace(settings, recipe=replace(settings.recipe, objective=replace(objective, **changes)))

    return {
        "full": settings,
        "no reciprocal term": with_objective(reciprocal=False),
        **{
            f"lambda^2 x {factor:g}": with_objective(scale=objective.scale * factor**0.5)
            for factor in (0.01, 0.1, 10.0, 100.0)
        },
        **{f"no {head}": replace(settings, heads="SQT".replace(head, "")) for head in "SQT"},
    }


def run(lab: Lab) -> Result:
    rows, dots = [], []
    for target in PAPER_TARGETS:
        for variant, settings in variants(lab.preset(target)).items():
            name = "" if variant == "full" else slug(variant)
            label = f"L2HMC {name}" if name else "L2HMC"
            measured = [
                lab.measured(label, target, lab.trained(target, s, name=name, settings=settings), s)
                for s in lab.scale.few_seeds
            ]
            paper, honest = (spread([m.figures[f] for m in measured]) for f in ("ess_paper", "min_ess"))
            rows.append(
                {
                    "target": TITLES[target],
                    "variant": variant,
                    "ess_paper": paper["median"],
                    "range": f"{paper['min']:.3g} to {paper['max']:.3g}",
                    "min_ess": honest["median"],
                    "min_range": f"{honest['min']:.3g} to {honest['max']:.3g}",
                    "acceptance": spread([m.figures["acceptance_rate"] for m in measured])["median"],
                    "step_size": spread([m.figures["step_size"] for m in measured])["median"],
                }
            )
            for figure in ("ess_paper", "min_ess"):
                values = [m.figures[figure] for m in measured]
                dots.append({"target": TITLES[target], "variant": variant, "figure": figure, "values": values})
    result = Result(
        "ablations",
        "Ablations: the reciprocal term, lambda, and S, Q and T",
        f"{count(lab.scale.few_seeds)}, {lab.protocol}; medians over seeds, per transition.",
    )
    result.tables.append(("Every variant", COLUMNS, rows))
    for figure in ("ess_paper", "min_ess"):
        chosen = [{k: v for k, v in dot.items() if k != "figure"} for dot in dots if dot["figure"] == figure]
        picture = plot_ablations(chosen, reference="full", xlabel=f"{figure} per transition")
        result.figures[f"ablations-{figure}"] = (f"{figure} of every seed and variant", picture)
    return result
