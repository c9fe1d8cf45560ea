"""What a fit says of itself: a table, two sentences, and every warning that applies."""

import math
from dataclasses import dataclass
from typing import Any

from leapling.report import markdown_table

COLUMNS = {
    "method": "method",
    "min_ess_per_gradient": "min_ess per gradient",
    "per_gradient_error": "± (standard error)",
    "min_ess": "per transition",
    "min_ess_per_second": "per second",
    "gradients_per_draw": "gradients per transition",
    "acceptance_rate": "acceptance",
    "worst_statistic": "worst of x_i, x_i², U",
    "preparation": "gradients to prepare",
}
TRIED = {"recipe": "recipe", "min_ess_per_gradient": "min_ess per gradient", "gradients": "gradients", "M": "M"}
SPENT = {"stage": "stage", "gradients": "gradients", "seconds": "seconds"}
CLEARLY = 1.1  # times HMC's effective draws per gradient, below which training was not worth it
TRUSTED_RHAT = 1.02
LOW_ACCEPTANCE, STUCK_CHAIN = 0.1, 0.1
FAR_WORSE = 0.1  # the worst statistic's effective draws, of the median statistic's
LEAST_DRAWS = 400  # effective ones in the measurement, below which its figures mean little
MODE_ERRORS, MODE_GAP = 4.5, 0.05


@dataclass(frozen=True)
class Verdict:
    """`status`: "good", "use HMC" (exact and sound, but HMC does as well), or "poor" (do not rely on it)."""

    status: str
    winner: str
    methods: list[dict[str, Any]]
    tried: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    modes: dict[str, Any]
    exactness: dict[str, Any]
    pays_after: int | None  # effective draws, in gradients; None: never
    warnings: list[str]
    sentences: list[str]

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __str__(self) -> str:
        parts = [
            f"verdict: {self.status}",
            " ".join(self.sentences),
            markdown_table(self.methods, COLUMNS),
            *(f"warning: {text}" for text in self.warnings),
            f"exactness: {self.exactness['verdict']}",
            modes_in_words(self.modes),
            markdown_table(self.ledger, SPENT),
            "tried:",
            markdown_table(self.tried, TRIED),
        ]
        return "\n\n".join(parts)


def modes_in_words(modes: dict[str, Any]) -> str:
    if modes["num"] == 1:
        return "modes: one valley was met."
    shares = ", ".join(f"{share:.3g}" for share in modes["shares"])
    return (
        f"modes: {modes['num']} valleys were met, with shares {shares}; {modes['crossings_per_1000']:.3g} crossings per "
        f"1,000 transitions; groups of chains that started in different valleys differ by {modes['largest_gap']:.2g} "
        "in the share of a valley."
    )


def warnings_of(row: dict[str, Any], found: Any, modes: dict[str, Any], exactness: Any) -> tuple[list[str], list[str]]:
    """What speaks against the sampler: (grave, mild)."""
    grave, mild = [], []
    if not exactness.passed:
        grave.append(f"the exactness check did not pass: {exactness.verdict}")
    if modes["is_disconnected"]:
        grave.append(
            f"chains that start in different valleys do not agree: they differ by {modes['largest_gap']:.2g} in the share "
            f"of a valley, at {modes['crossings_per_1000']:.2g} crossings per 1,000 transitions; weights of the modes "
            "cannot be trusted: give a larger budget, or initial_positions in every mode"
        )
    if not found.rhat < TRUSTED_RHAT:
        grave.append(f"chains disagree: split R-hat is {found.rhat:.3g}, above {TRUSTED_RHAT}; run longer chains")
    effective = row["min_ess"] * row["num_draws"]
    if effective < LEAST_DRAWS:
        grave.append(
            f"the measurement holds {effective:.0f} effective draws of {row['worst_statistic']}, fewer than {LEAST_DRAWS}: "
            "its figures are rough, and what has not been visited cannot be excluded"
        )
    if found.acceptance < LOW_ACCEPTANCE:
        mild.append(f"acceptance is low ({found.acceptance:.2g})")
    if found.slowest_chain < STUCK_CHAIN * found.acceptance:
        mild.append(
            f"one chain accepted only {found.slowest_chain:.2g} of its proposals: somewhere the sampler sticks, often far "
            "out in a tail"
        )
    if row["min_ess"] < FAR_WORSE * found.median_ess:
        mild.append(
            f"{row['worst_statistic']} mixes far worse than the rest: {row['min_ess']:.2g} effective draws per "
            f"transition where the median statistic has {found.median_ess:.2g}"
        )
    return grave, mild


def pays_after(learned: dict[str, Any], hmc: dict[str, Any]) -> int | None:
    """Effective draws from which gradients saved while sampling have paid for those spent on preparing."""
    fast, slow = learned["min_ess_per_gradient"], hmc["min_ess_per_gradient"]
    if fast <= slow:
        return None
    if slow <= 0:
        return 0
    return max(0, math.ceil((learned["preparation"] - hmc["preparation"]) / (1 / slow - 1 / fast)))


def sentences(status: str, learned: dict[str, Any], hmc: dict[str, Any], pays: int | None, is_hmc: bool) -> list[str]:
    figure, error = learned["min_ess_per_gradient"], learned["per_gradient_error"]
    said = [f"{learned['method']} gives {figure:.3g} ± {error:.1g} effective draws per gradient (min_ess)"]
    if is_hmc:
        said[0] += ", and no trained kernel did better."
    else:
        ratio = figure / max(hmc["min_ess_per_gradient"], 1e-12)
        said[0] += f", {ratio:.3g} times the best tuned HMC ({hmc['method']}, {hmc['min_ess_per_gradient']:.3g})."
    if status == "poor":
        said.append("Do not rely on it: see the warnings.")
    elif status == "use HMC":
        said.append("Do not bother with training: use HMC.")
    else:
        said.append(f"Preparing has paid for itself, in gradients, from {pays:,} effective draws on.")
    return said
