"""Everything that is said about a set of draws, in one JSON-ready dictionary."""

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Num

from leapling.diagnostics.autocorrelation import autocorrelation
from leapling.diagnostics.ess import (
    ess_bulk,
    ess_by_statistic,
    ess_geyer,
    ess_paper,
    ess_paper_code,
    ess_tail,
    split_rhat,
)

# Ranks are sorted one coordinate at a time, about 0.3 s each for 200 chains of 2,000 draws.
MAX_RANKED_COORDINATES = 200


def summarise(
    draws: Float[np.ndarray, "chain draw dim"],
    energy: Float[np.ndarray, "chain draw"],
    *,
    acceptance: Float[np.ndarray, "chain draw"] | None = None,
    num_gradients: Num[np.ndarray, "chain draw"] | None = None,
    diverging: Bool[np.ndarray, "chain draw"] | None = None,
    mean: Float[np.ndarray, "dim"] | None = None,
    variance: Float[np.ndarray, "dim"] | None = None,
) -> dict[str, Any]:
    """Every diagnostic of a set of draws, each under the name of its definition.

    Draw t is the state after transition t, and `acceptance` (probabilities), `num_gradients` and `diverging`
    belong to that transition. A gradient is one evaluation of the energy at a new point, with or without its
    derivative. What was not given, or is not a finite number (R-hat of a single chain, or of chains that
    never move), is None: None never means that a check was passed.

    - ess_paper, ess_paper_code: of `autocorrelation`, with moments that are `ess_paper_truth`.
    - min_ess: the smallest `ess_geyer` of x_i, x_i^2 and U, that of `min_ess_statistic`.
    - min_ess_bulk: the smallest `ess_bulk` of the same statistics.
    - ess_bulk_min, ess_tail_min, split_rhat_max: of the worst coordinate x_i.
    - each ESS is per draw, and with the suffix _per_gradient divided by gradients_per_draw.
    - num_ranked_coordinates: those four, min_ess_bulk to split_rhat_max, look at so many coordinates, those
      where `ess_geyer` of x_i or x_i^2 is smallest, at most 200; every other number looks at all of them.
    - jump_distance: the mean of |x_{t+1} - x_t|^2.
    - num_frozen_chains: chains whose position never changed.
    """
    if (mean is None) != (variance is None):
        given, missing = ("variance", "mean") if mean is None else ("mean", "variance")
        raise ValueError(f"The true {given} was given without the true {missing}: give both, or neither.")
    num_chains, num_draws, dim = draws.shape
    rho = autocorrelation(draws, mean=mean, variance=variance)
    plain = ess_by_statistic(draws, energy, ess_geyer)
    worst = min(plain, key=plain.__getitem__)

    per_coordinate = np.minimum(*np.reshape(list(plain.values())[:-1], (2, dim)))
    ranked = np.sort(np.argsort(per_coordinate, kind="stable")[:MAX_RANKED_COORDINATES])
    ranked_draws = draws if ranked.size == dim else draws[:, :, ranked]
    bulk = list(ess_by_statistic(ranked_draws, energy, ess_bulk).values())

    sizes = {
        "ess_paper": ess_paper(rho),
        "ess_paper_code": ess_paper_code(rho),
        "min_ess": plain[worst],
        "min_ess_bulk": min(bulk),
        "ess_bulk_min": min(bulk[: ranked.size]),
        "ess_tail_min": float(ess_tail(ranked_draws).min()),
    }
    gradients_per_draw = None if num_gradients is None else float(np.mean(num_gradients))
    moved = (draws != draws[:, :1]).any(axis=(1, 2))
    summary = {
        **sizes,
        **{f"{name}_per_gradient": _ratio(size, gradients_per_draw) for name, size in sizes.items()},
        "ess_paper_truth": "estimated" if mean is None else "true",
        "min_ess_statistic": worst,
        "split_rhat_max": float(split_rhat(ranked_draws).max()),
        "num_ranked_coordinates": int(ranked.size),
        "acceptance_rate": None if acceptance is None else float(np.mean(acceptance, dtype=np.float64)),
        "jump_distance": _jump_distance(draws),
        "num_divergences": None if diverging is None else int(np.sum(diverging)),
        "num_gradients_total": None if num_gradients is None else int(np.sum(num_gradients)),
        "gradients_per_draw": gradients_per_draw,
        "num_frozen_chains": int(np.sum(~moved)),
        "num_chains": num_chains,
        "num_draws": num_draws,
        "dim": dim,
    }
    return {name: _finite_or_none(value) for name, value in summary.items()}


def _jump_distance(draws: Float[np.ndarray, "chain draw dim"]) -> float:
    # Coordinate by coordinate: the differences of all of them at once would be another copy of the draws.
    columns = (np.asarray(draws[:, :, i], np.float64) for i in range(draws.shape[2]))
    return float(sum(np.mean(np.diff(column, axis=1) ** 2) for column in columns))


def _ratio(size: float, gradients_per_draw: float | None) -> float | None:
    return size / gradients_per_draw if gradients_per_draw else None


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
