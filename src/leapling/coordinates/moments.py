"""Coordinates in which a distribution is white, from its moments or from draws."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from leapling.coordinates.affine import Affine, LowRank

MAX_DENSE_DIM = 100  # above it a matrix gives way to LowRank, whose memory is linear in the dimension
MAX_RANK = 20
FAR_OUT = 0.001  # of the draws, at each end of each coordinate, or two of them where that is more
MARGIN = 1.05  # around the edge of the spectrum of noise
LEAST = 1e-12  # of a variance, in units of that of a coordinate
ENOUGH, SHRINKAGE = 10, 0.1  # draws for each coordinate, and how far correlations are drawn in where there are fewer
NUGGET = 1e-9
SHAPES = ("diagonal", "dense")


def whitening(mean: ArrayLike, covariance: ArrayLike) -> Affine:
    """Coordinates of zero mean and unit covariance; a vector of variances gives a diagonal map."""
    covariance = np.asarray(covariance, np.float64)
    factor = np.sqrt(covariance) if covariance.ndim == 1 else np.linalg.cholesky(covariance)
    return Affine(mean, factor)


def whitened_by(draws: Float[np.ndarray, "draw dim"], shape: str) -> Affine | LowRank:
    """Coordinates in which these draws are white: each by itself ("diagonal"), or together ("dense").

    Draws far out are drawn in first, so that a heavy tail does not set the scale. Above MAX_DENSE_DIM coordinates,
    "dense" keeps the few directions that stand out after scaling.
    """
    if shape not in SHAPES:
        raise ValueError(f"there is no shape {shape!r}; choose from {', '.join(SHAPES)}")
    draws = np.asarray(draws, np.float64)
    if draws.ndim != 2 or len(draws) < 2 or not np.isfinite(draws).all():
        raise ValueError(f"draws has shape {draws.shape}; at least 2 finite draws, (draw, dim), are needed")
    num, dim = draws.shape
    share = min(max(FAR_OUT, 2 / num), 0.25)
    draws = np.clip(draws, *np.quantile(draws, [share, 1 - share], axis=0))
    mean, scale = draws.mean(axis=0), draws.std(axis=0)
    scale = np.where(scale > np.finfo(np.float32).tiny, scale, 1.0)  # of what never moved nothing is known
    if shape == "diagonal" or dim == 1:
        return Affine(mean, scale)
    white = (draws - mean) / scale
    if dim > MAX_DENSE_DIM:
        return _low_rank(mean, scale, white)
    correlation = white.T @ white / num
    if num < ENOUGH * dim:  # so many entries from so few draws may be singular; from enough, no correlation is given up
        correlation = (1 - SHRINKAGE) * correlation + SHRINKAGE * np.eye(dim)
    correlation *= 1 - NUGGET  # some coordinates may repeat others
    correlation[np.diag_indices(dim)] = 1  # it is 0 for what never moved
    return Affine(mean, scale[:, None] * np.linalg.cholesky(correlation))


def _low_rank(mean: np.ndarray, scale: np.ndarray, white: np.ndarray) -> LowRank:
    """The largest principal directions, as long as each exceeds what noise at the level of the rest would reach.

    That is the edge of the spectrum of noise (Marchenko & Pastur 1967). The rest, which shares what variance is left,
    keeps its own level: where one direction holds most of the variance, it is far below 1.
    """
    num, dim = white.shape
    _, singular, rows = np.linalg.svd(white / num**0.5, full_matrices=False)
    variance = singular**2
    max_rank = min(MAX_RANK, (num - 1) // 2)

    def level_without(rank: int) -> float:
        """The standard deviation along all other directions, with a floor for coordinates that repeat each other."""
        return max(float(variance[rank:].sum() / (dim - rank)), LEAST) ** 0.5

    rank = 0
    edge = MARGIN * (1 + (dim / num) ** 0.5)
    while rank < max_rank and singular[rank] > level_without(rank) * edge:
        rank += 1
    level = level_without(rank)
    return LowRank(mean, scale * level, rows[:rank].T, singular[:rank] / level)
