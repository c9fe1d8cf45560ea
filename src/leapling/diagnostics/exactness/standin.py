"""A target with exact draws that looks like where the chains have been, for energies that have none."""

import numpy as np
from jaxtyping import Float

from leapling.targets import DiagonalGaussian, GaussianMixture, Target

MAX_COMPONENTS = 3
MAX_FULL_DIM = 50
POINTS_PER_PARAMETER = 5


def fit_standin(
    points: Float[np.ndarray, "chain dim"], random: np.random.Generator, num_iterations: int = 50
) -> Target:
    """A Gaussian mixture fitted by expectation-maximisation; in many dimensions one diagonal Gaussian."""
    num, dim = points.shape
    spread = np.std(points, axis=0)
    spread = np.where(spread > 1e-12 * np.maximum(1, np.abs(points).max(axis=0)), spread, 1.0)
    centre = points.mean(axis=0)
    if dim > MAX_FULL_DIM:
        return DiagonalGaussian(spread**2, mean=centre, name="stand-in")
    z = (points - centre) / spread
    k = int(np.clip(num // (POINTS_PER_PARAMETER * (dim + 1)), 1, MAX_COMPONENTS))
    means, covariances, weights = z[_far_apart(z, k, random)], np.stack([np.eye(dim)] * k), np.full(k, 1 / k)
    for _ in range(num_iterations):
        share = _responsibilities(z, means, covariances, weights)
        # Half a point at the global fit keeps a component that lost all of its own alive.
        mass = share.sum(axis=1) + 0.5
        weights = mass / mass.sum()
        means = (share @ z) / mass[:, None]
        centred = z[None] - means[:, None]
        scatter = np.einsum("kc,kci,kcj->kij", share, centred, centred) + 0.5 * np.eye(dim)
        covariances = scatter / mass[:, None, None] + 1e-4 * np.eye(dim)
    covariances = covariances * spread[:, None] * spread[None, :]
    covariances = (covariances + covariances.transpose(0, 2, 1)) / 2
    return GaussianMixture(centre + spread * means, covariances, weights, name="stand-in")


def _far_apart(z: np.ndarray, k: int, random: np.random.Generator) -> list[int]:
    """k starting means, by index, each drawn in proportion to its squared distance from those before it."""
    chosen = [int(random.integers(len(z)))]
    while len(chosen) < k:
        distance = np.min(np.sum((z[:, None] - z[chosen][None]) ** 2, axis=2), axis=1) + 1e-12
        chosen.append(int(random.choice(len(z), p=distance / distance.sum())))
    return chosen


def _responsibilities(
    z: np.ndarray, means: np.ndarray, covariances: np.ndarray, weights: np.ndarray
) -> Float[np.ndarray, "component chain"]:
    cholesky = np.linalg.cholesky(covariances)
    whitened = np.linalg.solve(cholesky, (z[None] - means[:, None]).transpose(0, 2, 1))
    log_det = np.log(np.diagonal(cholesky, axis1=1, axis2=2)).sum(axis=1)
    log_joint = np.log(weights)[:, None] - log_det[:, None] - np.sum(whitened**2, axis=1) / 2
    log_joint -= log_joint.max(axis=0)
    joint = np.exp(log_joint)
    return joint / joint.sum(axis=0)
