"""`leapling bench fit`: what `fit` reaches unaided on ten targets whose answer is known."""

import multiprocessing
import os
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from leapling.autopilot import baselines, fit
from leapling.autopilot.candidates import Problem
from leapling.autopilot.clock import seconds_of
from leapling.autopilot.fitted import Bare
from leapling.autopilot.measure import draw, score
from leapling.autopilot.warmup import mover
from leapling.chains import exact_starts
from leapling.files import make_folder, write_json
from leapling.report import page, page_markdown
from leapling.reproduce.pieces import Piece, Pieces
from leapling.targets import GaussianMixture, Target, resolve

# The median `min_ess` per gradient that each target is to reach.
BARS = {
    "scg": 0.8,
    "icg": 0.6,
    "rough-well": 0.7,
    "rough-well-10": 0.4,
    "mog": 0.2,
    "mog2-unequal": 0.06,
    "banana": 0.06,
    "funnel": 0.01,
    "ring": 0.03,
    "mog-20": 0.03,
}
NUM_CHAINS, NUM_DRAWS = 200, 2000
NUTS_SECONDS = 20.0

COLUMNS = {
    "target": "target",
    "bar": "bar",
    "median": "median",
    "worst": "worst seed",
    "best": "best seed",
    "hmc": "HMC tuned",
    "whitened": "HMC whitened",
    "nuts": "NUTS dense",
    "share_error": "worst error of a mode's share",
    "good": "verdicts",
    "seconds": "seconds, most",
}
RUNS = {
    "target": "target",
    "seed": "seed",
    "winner": "winner",
    "status": "verdict",
    "min_ess_per_gradient": "min_ess per gradient",
    "ess_error": "± (standard error)",
    "worst_statistic": "worst of x_i, x_i², U",
    "said": "its own figure",
    "share_error": "worst error of a mode's share",
    "crossings": "crossings per 1,000",
    "seconds": "seconds",
}


def run_one(name: str, seed: int, budget: str) -> Piece:
    """One fit, by the energy and the dimension alone, measured on chains from exact draws that it has not seen."""
    target = resolve(name)
    assert isinstance(target, Target)
    began = time.perf_counter()
    fitted = fit(Bare(target), target.dim, budget=budget, seed=seed, progress=False)
    seconds = time.perf_counter() - began
    exact = exact_starts(target, NUM_CHAINS, seed=10_000 + seed)
    measured = {}
    samplers = {"fit": (fitted.kernel, fitted.coordinates), **fitted.baselines}
    for method, (kernel, coordinates) in samplers.items():
        draws = draw(
            kernel, coordinates, Bare(target), positions=exact, num_draws=NUM_DRAWS, seed=20_000 + seed, warn=False
        )
        measured[method] = score(draws).row(method)
    problem = Problem(Bare(target), exact.T, mover(exact.T, 0.5), seed)
    found = baselines.nuts(problem, lambda block: int(np.clip(NUTS_SECONDS / max(block, 1e-3), 2, 40)))
    if found is not None:
        measured["NUTS"] = found[0].row("NUTS")
    value = {
        "target": name,
        "seed": seed,
        "seconds": seconds,
        "measured": measured,
        "modes": _modes(fitted, target, seed) if isinstance(target, GaussianMixture) else None,
        "verdict": fitted.verdict.to_dict(),
        "path": fitted.path,
    }
    return value, {}


def _modes(fitted: Any, target: GaussianMixture, seed: int) -> dict[str, Any]:
    """Chains that all start in the first mode: shares after NUM_DRAWS transitions, over as many again."""
    exact = np.asarray(target.sample(jax.random.key(30_000 + seed), 100 * NUM_CHAINS, np.float32))
    first = exact[:, np.asarray(target.component(jnp.asarray(exact))) == 0][:, :NUM_CHAINS]
    draws = draw(
        fitted.kernel,
        fitted.coordinates,
        Bare(target),
        positions=first.T,
        num_draws=NUM_DRAWS,
        num_warmup=NUM_DRAWS,
        seed=40_000 + seed,
        warn=False,
    )
    component = np.asarray(jax.jit(target.component)(jnp.asarray(np.moveaxis(draws.positions, 2, 0))))
    truth = target.weights
    shares = np.bincount(component.ravel(), minlength=len(truth)) / component.size
    crossings = 1000 * float(np.mean(component[:, 1:] != component[:, :-1]))
    return {
        "shares": shares.tolist(),
        "error": float(np.max(np.abs(shares - truth) / truth)),
        "crossings_per_1000": crossings,
    }


def _work(arguments: tuple[str, int, str, Path, Any]) -> str:
    """One stored run, in a process and on a core of its own, so that runs beside it take none of its time."""
    name, seed, budget, folder, cores = arguments
    core = cores.get()
    try:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {core})
        label, settings = _label(name, seed, budget)
        Pieces(folder).get(label, settings, lambda: run_one(name, seed, budget))
    finally:
        cores.put(core)
    return label


def _label(name: str, seed: int, budget: str) -> tuple[str, dict[str, Any]]:
    """Of a stored run, and the settings that it must have been made with."""
    return f"{name}-{seconds_of(budget):g}s-{seed}", {"target": name, "seed": seed, "budget": budget}


def bench_fit(
    targets: list[str], folder: Path, *, budget: str = "5 min", num_seeds: int = 5, first_seed: int = 0, jobs: int = 2
) -> dict[str, Any]:
    """Every target and seed; finished runs are found again. The page, JSON-ready."""
    pieces = Pieces(make_folder(folder) / "pieces")
    wanted = [(name, seed) for seed in range(first_seed, first_seed + num_seeds) for name in targets]
    missing = [run for run in wanted if pieces.find(*_label(*run, budget)) is None]
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        cores = manager.Queue()
        available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(jobs))
        for i in range(jobs):
            cores.put(available[i % len(available)])
        with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
            started = [pool.submit(_work, (*run, budget, pieces.folder, cores)) for run in missing]
            for future in as_completed(started):
                print(f"{future.result()}: done", file=sys.stderr, flush=True)
    found = [pieces.find(*_label(*run, budget)) for run in sorted(wanted, key=lambda run: targets.index(run[0]))]
    result = bench_page([piece[0] for piece in found if piece is not None], budget, num_seeds)
    write_json(folder / "bench-fit.json", result)
    (folder / "bench-fit.md").write_text(page_markdown(result))
    return result


def bench_page(runs: list[dict[str, Any]], budget: str, num_seeds: int) -> dict[str, Any]:
    rows, tables = [], []
    for run in runs:
        fitted, modes = run["measured"]["fit"], run["modes"] or {}
        tables.append(
            {
                "target": run["target"],
                "seed": run["seed"],
                "winner": run["verdict"]["winner"],
                "status": run["verdict"]["status"],
                "min_ess_per_gradient": fitted["min_ess_per_gradient"],
                "ess_error": fitted["per_gradient_error"],
                "worst_statistic": fitted["worst_statistic"],
                "said": run["verdict"]["methods"][0]["min_ess_per_gradient"],
                "share_error": modes.get("error"),
                "crossings": modes.get("crossings_per_1000"),
                "seconds": round(run["seconds"], 1),
            }
        )
    for name in dict.fromkeys(run["target"] for run in runs):
        mine = [run for run in runs if run["target"] == name]
        figures = [run["measured"]["fit"]["min_ess_per_gradient"] for run in mine]
        errors = [run["modes"]["error"] for run in mine if run["modes"]]
        statuses = [run["verdict"]["status"] for run in mine]
        rows.append(
            {
                "target": name,
                "bar": BARS.get(name),
                "median": statistics.median(figures),
                "worst": min(figures),
                "best": max(figures),
                "hmc": _median(mine, lambda method: method == "HMC tuned"),
                "whitened": _median(mine, lambda method: "whitening" in method),
                "nuts": _median(mine, lambda method: method == "NUTS"),
                "share_error": max(errors) if errors else None,
                "good": ", ".join(f"{statuses.count(s)} {s}" for s in dict.fromkeys(statuses)),
                "seconds": max(round(run["seconds"], 1) for run in mine),
            }
        )
    return page(
        f"fit at a budget of {budget}",
        f'leapling bench fit --budget "{budget}" --seeds {num_seeds}',
        f"`min_ess` per gradient on {NUM_CHAINS} chains x {NUM_DRAWS:,} transitions from exact draws, which `fit` has "
        "not seen: it was given the energy and the dimension. Shares of modes are of as many other chains, all started "
        f"in the first mode, after {NUM_DRAWS:,} transitions. Each run had one core. NUTS adapted and ran from exact "
        "draws.",
        [("Medians over seeds, min_ess per gradient", COLUMNS, rows), ("Every run", RUNS, tables)],
        # What the tables are made of; whole verdicts stay in the stored runs.
        runs=[{key: run[key] for key in ("target", "seed", "seconds", "measured", "modes")} for run in runs],
    )


def _median(runs: list[dict[str, Any]], is_it: Any) -> float | None:
    found = [
        max(row["min_ess_per_gradient"] for method, row in run["measured"].items() if is_it(method))
        for run in runs
        if any(is_it(method) for method in run["measured"])
    ]
    return statistics.median(found) if found else None
