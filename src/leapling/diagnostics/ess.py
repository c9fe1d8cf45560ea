"""Effective sample sizes, each under the name of its definition all per draw: 1 is an independent draw."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from leapling.diagnostics.autocorrelation import lagged_products, require_finite

MIN_DRAWS = 10
PAPER_THRESHOLD = 0.05


def ess_paper(rho: Float[np.ndarray, "lags"]) -> float:
    """1 / (1 + 2 sum_{t >= 1} rho_t), the sum ending before the first lag where rho_t < 0.05.

    The definition in the text of Levy et al. 2018, appendix C.2; `rho` comes from `autocorrelation`. Negative
    correlations are never counted: a chain that flips between x and -x scores 1.
    """
    _require_curve(rho)
    low = np.flatnonzero(rho[1:] < PAPER_THRESHOLD)
    end = 1 + low[0] if low.size else rho.size
    return float(1 / (1 + 2 * np.sum(rho[1:end])))


def ess_paper_code(rho: Float[np.ndarray, "lags"]) -> float:
    """1 / (1 + 2 sum_{t >= 1} rho_t), leaving out every lag where rho_t < 0.05, wherever it stands.

    The definition in the authors' code. Unlike `ess_paper` it counts a revival of the correlation, and, when
    there are few chains, the noise of the long lags.
    """
    _require_curve(rho)
    return float(1 / (1 + 2 * np.sum(rho[1:], where=rho[1:] >= PAPER_THRESHOLD)))


def ess_geyer(values: Float[np.ndarray, "chain draw *statistic"]) -> Float[np.ndarray, "*statistic"]:
    """Effective sample size per draw of the mean of each statistic, over all chains together.

    Every chain is split in halves; the lags' correlations, measured against the variance within and between
    the halves, are summed by Geyer's initial monotone positive sequence (ArviZ's method "mean"). Negative
    correlation counts: an antithetic chain scores above 1, at most log10 of the number of draws.

    A statistic with one value in all draws (to within rounding) scores 0: no draw has told anything new.
    """
    _require_draws(values)
    columns = values.reshape(*values.shape[:2], -1)
    constant = _is_constant(columns)
    ess = [0.0 if constant[i] else _ess_geyer_one(columns[:, :, i]) for i in range(columns.shape[2])]
    return np.asarray(ess, np.float64).reshape(values.shape[2:])


def ess_bulk(values: Float[np.ndarray, "chain draw *statistic"]) -> Float[np.ndarray, "*statistic"]:
    """Rank-normalised bulk ESS per draw (Vehtari et al. 2021), by ArviZ; 0 for what never changes."""
    return _arviz_ess(values, method="bulk")


def ess_tail(values: Float[np.ndarray, "chain draw *statistic"]) -> Float[np.ndarray, "*statistic"]:
    """The smaller ESS per draw of the 5% and 95% quantiles, by ArviZ; 0 for what never changes."""
    return _arviz_ess(values, method="tail", prob=(0.05, 0.95))


def split_rhat(values: Float[np.ndarray, "chain draw *statistic"]) -> Float[np.ndarray, "*statistic"]:
    """Rank-normalised split R-hat, the larger of bulk and folded (Vehtari et al. 2021), by ArviZ.

    Infinite where no chain moves but they differ; NaN where it is not defined: with a single chain, or for a
    statistic with one value in all draws.
    """
    _require_draws(values)
    if values.shape[0] < 2:
        return np.full(values.shape[2:], np.nan)
    from arviz_stats.base.array import array_stats  # a second to import

    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = array_stats.rhat(np.asarray(values, np.float64), chain_axis=0, draw_axis=1, method="rank")
    return np.where(_is_constant(values), np.nan, rhat)


def ess_by_statistic(
    draws: Float[np.ndarray, "chain draw dim"],
    energy: Float[np.ndarray, "chain draw"],
    ess: Callable[[np.ndarray], np.ndarray] = ess_geyer,
) -> dict[str, float]:
    """ESS per draw of every x_i, every x_i^2 and the energy U, by name: "x[0]", ..., "x[0]^2", ..., "U".

    `ess` is `ess_geyer`, `ess_bulk` or `ess_tail`. The squares and the energy give away a chain that looks
    well mixed because it flips signs, and never changes its energy.
    """
    require_finite("draws", draws)
    require_finite("energy", energy)
    # ESS does not depend on scale, and squares of scaled values neither overflow nor vanish.
    scale = np.abs(draws).max(axis=(0, 1))
    scaled = draws / np.where(scale > 0, scale, 1)
    values = [*ess(draws), *ess(scaled**2), ess(energy)]
    coordinates = range(draws.shape[2])
    names = [*(f"x[{i}]" for i in coordinates), *(f"x[{i}]^2" for i in coordinates), "U"]
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def min_ess(draws: Float[np.ndarray, "chain draw dim"], energy: Float[np.ndarray, "chain draw"]) -> float:
    """The smallest `ess_geyer` of all x_i, x_i^2 and U; `ess_by_statistic` says which one it is."""
    return min(ess_by_statistic(draws, energy).values())


def min_ess_bulk(draws: Float[np.ndarray, "chain draw dim"], energy: Float[np.ndarray, "chain draw"]) -> float:
    """The smallest `ess_bulk` of all x_i, x_i^2 and U."""
    return min(ess_by_statistic(draws, energy, ess_bulk).values())


def _ess_geyer_one(column: Float[np.ndarray, "chain draw"]) -> float:
    column = np.asarray(column, np.float64)
    column = column / np.abs(column).max()  # energies of 1e200 must not overflow when squared
    half = column.shape[1] // 2
    halves = np.concatenate([column[:, :half], column[:, -half:]])
    means = halves.mean(axis=1, keepdims=True)

    autocovariance = lagged_products(halves - means, half) / halves.size
    within = autocovariance[0] * half / (half - 1)
    total = autocovariance[0] + np.var(means, ddof=1)
    rho = 1 - (within - autocovariance) / total
    rho[0] = 1

    # The last pair in the half chain at most: the very last lags rest on one or two products.
    num_pairs = (half - 3) // 2 + 1
    pairs = rho[: 2 * num_pairs].reshape(num_pairs, 2).sum(axis=1)
    stops = np.flatnonzero(pairs <= 0)
    end = stops[0] if stops.size else num_pairs - 1
    time = 2 * np.sum(np.minimum.accumulate(pairs[:end])) - 1
    # Of the pair where the sum ends the even lag counts once, unless it is what made the pair negative.
    if rho[2 * end] > 0 or pairs[end] >= 0:
        time += rho[2 * end]
    return float(1 / max(time, 1 / np.log10(halves.size)))


def _arviz_ess(values: np.ndarray, **options) -> np.ndarray:
    _require_draws(values)
    from arviz_stats.base.array import array_stats  # a second to import

    ess = array_stats.ess(np.asarray(values, np.float64), chain_axis=0, draw_axis=1, relative=True, **options)
    # ArviZ answers the number of draws for what never changes, here also for a tail that no draw leaves.
    num_split = values.shape[0] * 2 * (values.shape[1] // 2)
    return np.where(_is_constant(values) | (ess >= num_split), 0.0, ess)


def _is_constant(values: np.ndarray) -> np.ndarray:
    """Which statistics have one value in all draws, to within rounding: U(x) and U(-x) may differ by it."""
    low, high = np.min(values, axis=(0, 1)), np.max(values, axis=(0, 1))
    rounding = 8 * np.finfo(values.dtype).eps * np.maximum(np.abs(low), np.abs(high))
    return np.asarray(high - low <= rounding)


def _require_draws(values: np.ndarray) -> None:
    require_finite("the draws", values)
    if values.shape[1] < MIN_DRAWS:
        raise ValueError(
            f"{values.shape[1]} draws per chain were given but an effective sample size or R-hat needs at "
            f"least {MIN_DRAWS}: run the chains for longer."
        )


def _require_curve(rho: np.ndarray) -> None:
    if rho.size == 0 or not np.isfinite(rho).all():
        raise ValueError(
            f"An autocorrelation curve of {rho.size} lags with {np.sum(~np.isfinite(rho))} non-finite values "
            "was given but at least one lag and finite values are needed: use `autocorrelation(draws)`."
        )
