"""What a fit says of itself: a table, two sentences, and every warning that applies."""

import math
from dataclasses import dataclass
from typing import Any

from leapling.autopilot.clock import Ledger
from leapling.autopilot.measure import Score
from leapling.diagnostics.exactness.report import ExactnessReport
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
    """`status`: "good", "use HMC" or "use NUTS" (sound, but they do as well), or "poor" (do not rely on it)."""

    status: str
    winner: str
    methods: list[dict[str, Any]]
    tried: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    modes: dict[str, Any]
    exactness: dict[str, Any]
    pays_after: int | None  # effective draws; None: never
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
        f"modes: {modes['num']} valleys were met, with shares {shares}; {modes['crossings_per_1000']:.3g} crossings "
        "per 1,000 transitions; groups of chains that started in different valleys differ by "
        f"{modes['largest_gap']:.2g} in the share of a valley."
    )


def warnings_of(
    row: dict[str, Any], found: Score, modes: dict[str, Any], exactness: ExactnessReport
) -> tuple[list[str], list[str]]:
    """What speaks against the sampler: (grave, mild)."""
    grave, mild = [], []
    if not exactness.passed:
        grave.append(f"the exactness check did not pass: {exactness.verdict}")
    if modes["is_disconnected"]:
        grave.append(
            f"chains that start in different valleys do not agree: they differ by {modes['largest_gap']:.2g} in the "
            f"share of a valley, at {modes['crossings_per_1000']:.2g} crossings per 1,000 transitions; weights of the "
            "modes cannot be trusted: give a larger budget, or initial_positions in every mode"
        )
    if not found.rhat < TRUSTED_RHAT:
        grave.append(f"chains disagree: split R-hat is {found.rhat:.3g}, above {TRUSTED_RHAT}; run longer chains")
    effective = row["min_ess"] * row["num_draws"]
    if effective < LEAST_DRAWS:
        grave.append(
            f"the measurement holds {effective:.0f} effective draws of {row['worst_statistic']}, fewer than "
            f"{LEAST_DRAWS}: its figures are rough, and what has not been visited cannot be excluded"
        )
    if found.acceptance < LOW_ACCEPTANCE:
        mild.append(f"acceptance is low ({found.acceptance:.2g})")
    if found.slowest_chain < STUCK_CHAIN * found.acceptance:
        mild.append(
            f"one chain accepted only {found.slowest_chain:.2g} of its proposals: somewhere the sampler sticks, often "
            "far out in a tail"
        )
    if row["min_ess"] < FAR_WORSE * found.median_ess:
        mild.append(
            f"{row['worst_statistic']} mixes far worse than the rest: {row['min_ess']:.2g} effective draws per "
            f"transition where the median statistic has {found.median_ess:.2g}"
        )
    return grave, mild


def judge(
    rows: list[dict[str, Any]],
    found: Score,
    *,
    winner_is_hmc: bool,
    tried: list[dict[str, Any]],
    ledger: Ledger,
    modes: dict[str, Any],
    exactness: ExactnessReport,
) -> Verdict:
    """`rows` begin with the winner's; the others are what it is compared with."""
    winner, others = rows[0], rows[1:]
    grave, mild = warnings_of(winner, found, modes, exactness)
    rival = max(others, key=lambda row: row["min_ess_per_gradient"], default=None)
    is_worth = rival is None or winner["min_ess_per_gradient"] > CLEARLY * rival["min_ess_per_gradient"]
    is_nuts = rival is not None and rival["method"].startswith("NUTS")
    if grave:
        status = "poor"
    elif is_worth and not winner_is_hmc:
        status = "good"
    else:
        status = "use NUTS" if is_nuts and not is_worth else "use HMC"
    pays = None if winner_is_hmc else pays_after(winner, others)
    return Verdict(
        status=status,
        winner=winner["method"],
        methods=rows,
        tried=tried,
        ledger=ledger.rows(),
        modes=modes,
        exactness=exactness.to_dict(),
        pays_after=pays,
        warnings=grave + mild,
        sentences=sentences(status, winner, rival, pays),
    )


def pays_after(winner: dict[str, Any], others: list[dict[str, Any]]) -> int | None:
    """Effective draws from which gradients saved while sampling have paid for those spent on preparing, whichever of
    the others one would have used; None where one of them is faster."""
    needed = [0]
    for other in others:
        fast, slow = winner["min_ess_per_gradient"], other["min_ess_per_gradient"]
        if fast <= slow:
            return None
        if slow > 0:
            needed.append(math.ceil((winner["preparation"] - other["preparation"]) / (1 / slow - 1 / fast)))
    return max(needed)


def sentences(status: str, winner: dict[str, Any], rival: dict[str, Any] | None, pays: int | None) -> list[str]:
    figure, error = winner["min_ess_per_gradient"], winner["per_gradient_error"]
    first = f"{winner['method']} gives {figure:.3g} ± {error:.1g} effective draws per gradient (min_ess)"
    if rival is not None:
        ratio = figure / max(rival["min_ess_per_gradient"], 1e-12)
        first += f", {ratio:.3g} times the best of the others ({rival['method']}, {rival['min_ess_per_gradient']:.3g})"
    second = {
        "poor": "Do not rely on it: see the warnings.",
        "use HMC": "Do not bother with training: use HMC, tuned and in white coordinates as here.",
        "use NUTS": "Do not bother with training: NUTS is the better tool.",
        "good": f"Preparing has paid for itself, in gradients, from {pays or 0:,} effective draws on.",
    }
    return [f"{first}.", second[status]]
