"""The paper's recipe on SCG (lambda_b = 0), trained from several seeds: what each one's last kernel is worth.

Made by `python benchmarks/scg_seeds.py`. Protocol: 200 chains of 2,000 transitions from exact draws, ESS per
transition, autocorrelation against the true mean and variance. A finished seed is stored, and found again on a rerun.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from leapling.chains import exact_starts, sample
from leapling.diagnostics import autocorrelation, ess_paper, ess_paper_code, min_ess
from leapling.report import markdown_table
from leapling.store import make_folder, write_json
from leapling.targets import scg
from leapling.training import preset, train

NUM_CHAINS, NUM_DRAWS = 200, 2000
COLUMNS = {
    "seed": "seed",
    "ess_paper": "ess_paper",
    "ess_paper_code": "ess_paper_code",
    "min_ess": "min_ess",
    "acceptance": "acceptance",
    "step_size": "step size",
    "gradients": "training gradients",
    "seconds": "training s",
}


def run_seed(seed: int) -> dict[str, Any]:
    target, settings = scg(), preset("paper", "scg")
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
        "seed": seed,
        "ess_paper": ess_paper(rho),
        "ess_paper_code": ess_paper_code(rho),
        "min_ess": min_ess(draws.positions, draws.statistics["energy"]),
        "acceptance": float(np.mean(draws.statistics["acceptance_rate"])),
        "step_size": float(trained.kernel.step_size),
        "gradients": trained.num_gradients,
        "seconds": trained.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/scg-seeds"))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(25)))
    options = parser.parse_args()
    make_folder(options.out)
    # What was stored under other settings is not found again.
    settings = {"preset": repr(preset("paper", "scg")), "num_chains": NUM_CHAINS, "num_draws": NUM_DRAWS}
    rows = []
    for seed in options.seeds:
        path = options.out / f"seed-{seed}.json"
        stored = json.loads(path.read_text()) if path.is_file() else {}
        if stored.get("settings") != settings:
            stored = {"settings": settings, "row": run_seed(seed)}
            write_json(path, stored)
        rows.append(stored["row"])
        print(markdown_table(rows[-1:], COLUMNS), "\n", flush=True)

    values = {key: [row[key] for row in rows] for key in COLUMNS if key != "seed"}
    statistics = {"first 5, median": lambda v: median(v[:5]), "median": median, "min": min, "max": max}
    summary = {name: {key: f(v) for key, v in values.items()} for name, f in statistics.items()}
    write_json(options.out / "scg-seeds.json", {"settings": settings, "seeds": rows, "summary": summary})
    table = markdown_table([*rows, *({"seed": name, **row} for name, row in summary.items())], COLUMNS)
    (options.out / "scg-seeds.md").write_text(f"# SCG, seed by seed\n\n{__doc__}\n{table}\n")
    print(table)


if __name__ == "__main__":
    main()
