"""The paper's recipe on SCG (lambda_b = 0), trained from several seeds: what each one's last kernel is worth.

A finished seed is stored, and found again on a rerun.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from leapling.chains import exact_starts, sample
from leapling.diagnostics import autocorrelation, ess_paper, ess_paper_code, min_ess
from leapling.files import make_folder, write_json
from leapling.report import markdown_table, page, page_markdown
from leapling.targets import scg
from leapling.training import Preset, preset, train

NUM_CHAINS, NUM_DRAWS = 200, 2000
ENOUGH = 0.4
PROTOCOL = (
    "The paper's recipe (lambda_b = 0), trained from several seeds: what each one's last kernel is worth, per "
    f"transition, by {NUM_CHAINS} chains of {NUM_DRAWS:,} transitions from exact draws and the true mean and variance."
)
LENGTHS = (10, 20)  # the authors' notebook's, and the preset's
COLUMNS = {
    "num_steps": "M",
    "seed": "seed",
    "ess_paper": "ess_paper",
    "ess_paper_code": "ess_paper_code",
    "min_ess": "min_ess",
    "acceptance": "acceptance",
    "step_size": "step size",
    "gradients": "training gradients",
    "seconds": "training s",
}


def run_seed(settings: Preset, seed: int) -> dict[str, Any]:
    target = scg()
    trained = train(settings.build(target.dim, seed=seed), target, settings.recipe, seed=seed)
    draws = sample(
        trained.kernel,
        target,
        num_draws=NUM_DRAWS,
        seed=seed,
        initial_positions=exact_starts(target, NUM_CHAINS, seed=seed),
    )
    rho = autocorrelation(draws.positions, mean=target.mean, variance=target.variance)
    return {
        "num_steps": settings.num_steps,
        "seed": seed,
        "ess_paper": ess_paper(rho),
        "ess_paper_code": ess_paper_code(rho),
        "min_ess": min_ess(draws.positions, draws.statistics["energy"]),
        "acceptance": float(np.mean(draws.statistics["acceptance_rate"])),
        "step_size": float(trained.kernel.step_size),
        "gradients": trained.num_gradients,
        "seconds": trained.seconds,
    }


def run_length(settings: Preset, folder: Path, seeds: list[int]) -> list[dict[str, Any]]:
    # What was stored under other settings is not found again.
    said = {"preset": repr(settings), "num_chains": NUM_CHAINS, "num_draws": NUM_DRAWS}
    rows = []
    for seed in seeds:
        path = folder / f"{settings.num_steps}-steps-seed-{seed}.json"
        stored = json.loads(path.read_text()) if path.is_file() else {}
        if stored.get("settings") != said:
            stored = {"settings": said, "row": run_seed(settings, seed)}
            write_json(path, stored)
        rows.append(stored["row"])
        print(markdown_table(rows[-1:], COLUMNS), "\n", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/scg-seeds"))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(25)))
    options = parser.parse_args()
    make_folder(options.out)
    tables = []
    for num_steps in LENGTHS:
        rows = run_length(replace(preset("paper", "scg"), num_steps=num_steps), options.out, options.seeds)
        values = {key: [row[key] for row in rows] for key in COLUMNS if key != "seed"}
        statistics = {"first 5, median": lambda v: median(v[:5]), "median": median, "min": min, "max": max}
        summary = {name: {key: f(v) for key, v in values.items()} for name, f in statistics.items()}
        share = np.mean([value >= ENOUGH for value in values["ess_paper"]])
        caption = f"M = {num_steps}: {share:.0%} of {len(rows)} seeds reach an ess_paper of {ENOUGH}"
        tables.append((caption, COLUMNS, rows + [{**row, "seed": name} for name, row in summary.items()]))
    result = page("SCG, seed by seed", "python benchmarks/scg_seeds.py", PROTOCOL, tables)
    write_json(options.out / "scg-seeds.json", result)
    (options.out / "scg-seeds.md").write_text(page_markdown(result))
    print(page_markdown(result))


if __name__ == "__main__":
    main()
