"""The demo: the paper's recipe on its strongly correlated Gaussian, checked, and compared with HMC tuned in full."""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from leapling.chains import Draws, exact_starts, sample
from leapling.diagnostics import autocorrelation, check_kernel, summarise
from leapling.files import write_json
from leapling.interop import to_netcdf
from leapling.kernels import HMC, Kernel
from leapling.report import markdown_table, page, page_markdown, plot_autocorrelation, plot_chains, plot_training
from leapling.reproduce.baselines import baseline
from leapling.store import fingerprint, save_run
from leapling.targets import scg
from leapling.training import preset, train
from leapling.tuning import CRITERIA, tune

NUM_CHAINS, NUM_DRAWS = 200, 2000  # the fixed protocol of `ess_paper`, from exact draws
COLUMNS = {
    "method": "method",
    "step_size": "step size",
    "acceptance_rate": "acceptance",
    "gradients_per_draw": "gradients per draw",
    "min_ess_per_gradient": "min_ess per gradient",
    "min_ess": "min_ess per draw",
    "ess_paper": "ess_paper per draw",
    "ess_paper_per_gradient": "ess_paper per gradient",
    "preparation": "gradients to prepare",
}
LAWS = {"name": "law", "status": "status", "measured": "measured", "tolerance": "tolerance", "detail": "detail"}
FIGURES = {
    "autocorrelation.png": "Autocorrelation against gradient evaluations",
    "chains.png": "One chain of each method over the density",
    "training.png": "Training",
}


def run_demo(folder: Path, *, seed: int = 0) -> tuple[dict[str, Any], str]:
    """Everything the demo makes goes into `folder`; returns the result, JSON-ready, and the table to print."""
    began = time.perf_counter()
    target, settings = scg(), preset("paper", "scg")
    exact = exact_starts(target, NUM_CHAINS, seed=seed)
    kernel = settings.build(target.dim, seed=seed)
    trained = train(kernel, target, settings.recipe, seed=seed)
    # Each figure is compared with the HMC that was tuned for that figure.
    tuned = {name: tune(HMC, target, initial_positions=exact[:50], criterion=name, seed=seed) for name in CRITERIA}
    family, grid = baseline("HMC M=10, authors' steps", target, settings.num_steps)
    fixed = tune(family, target, initial_positions=exact, grid=grid, criterion="ess_paper", gradients=[4000], seed=seed)
    methods: dict[str, tuple[Kernel, int]] = {
        "L2HMC": (trained.kernel, trained.num_gradients),
        **{f"HMC tuned ({name})": (found.kernel, found.num_gradients) for name, found in tuned.items()},
        "HMC M=10": (fixed.kernel, fixed.num_gradients),
    }
    runs: dict[str, Draws] = {}
    rows: list[dict[str, Any]] = []
    for method, (sampler, preparation) in methods.items():
        draws = sample(sampler, target, num_draws=NUM_DRAWS, seed=seed, initial_positions=exact, progress=True)
        figures = summarise(
            draws.positions,
            draws.statistics["energy"],
            acceptance=draws.statistics["acceptance_rate"],
            num_gradients=draws.statistics["n_steps"],
            diverging=draws.statistics["diverging"],
            mean=target.mean,
            variance=target.variance,
        )
        runs[method] = draws
        step_size = float(np.mean(draws.statistics["step_size"]))
        rows.append({"method": method, "preparation": preparation, "step_size": step_size, **figures})
    report = check_kernel(trained.kernel, target, seed=seed)

    curves = {
        method: autocorrelation(draws.positions, mean=target.mean, variance=target.variance, max_lag=500)
        for method, draws in runs.items()
    }
    gradients = {row["method"]: row["gradients_per_draw"] for row in rows}
    plot_autocorrelation(curves, gradients).savefig(folder / "autocorrelation.png")
    chains = {method: draws.positions[0] for method, draws in runs.items() if method != "HMC tuned (ess_paper)"}
    plot_chains(chains, energy=target).savefig(folder / "chains.png")
    plot_training(trained.history).savefig(folder / "training.png")
    to_netcdf(runs["L2HMC"], folder / "draws.nc", seed=seed, start="exact draws", target="scg")
    save_run(
        folder,
        trained.kernel,
        best=trained.best,
        settings={
            "target": "scg",
            "fingerprint": fingerprint(target, target.dim),
            "seed": seed,
            "demo": True,
        },
        training={"status": "finished", "message": "", **trained.summary()},
    )
    write_json(folder / "check.json", report.to_dict())

    verdict, exactness = _verdict(rows), report.to_dict()
    result = page(
        f"Strongly correlated Gaussian, seed {seed}",
        f"leapling demo --seed {seed}",
        f"{NUM_CHAINS} chains x {NUM_DRAWS:,} transitions from exact draws.",
        [("Methods", COLUMNS, rows), ("Exactness of L2HMC", LAWS, exactness["laws"])],
        notes=[verdict],
        figures=FIGURES,
        target="scg",
        seed=seed,
        verdict=verdict,
        exactness=exactness,
        training=trained.summary(),
        seconds=round(time.perf_counter() - began, 1),
    )
    write_json(folder / "demo.json", result)
    write_json(folder / "hmc-surface.json", {name: found.surface for name, found in tuned.items()})
    (folder / "demo.md").write_text(page_markdown(result))
    return result, f"{markdown_table(rows, COLUMNS)}\n\n{verdict}\n\n{report}"


def _verdict(rows: list[dict[str, Any]]) -> str:
    """What the table says, in words, by the honest figure and with training charged."""
    learned, tuned, _, fixed = (row["min_ess_per_gradient"] for row in rows)
    learned_paper, _, tuned_paper, fixed_paper = (row["ess_paper_per_gradient"] for row in rows)
    words = (
        f"By min_ess per gradient the paper's recipe reaches {learned / fixed:.3g} times the paper's baseline (HMC at "
        f"M = 10) and {learned / tuned:.3g} times HMC tuned in step size and length; by the paper's own ESS, "
        f"{learned_paper / fixed_paper:.3g} and {learned_paper / tuned_paper:.3g} times."
    )
    if learned <= tuned:
        return f"{words} On this target, with this recipe, do not bother: use tuned HMC."
    # Effective draws at which gradients saved while sampling have paid for those spent on preparing.
    extra = rows[0]["preparation"] - rows[1]["preparation"]
    draws = extra / (1 / tuned - 1 / learned)
    return f"{words} Training has paid for itself from {math.ceil(max(draws, 0)):,} effective draws on."
