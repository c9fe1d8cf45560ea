"""Energies with a known answer, exact draws and true moments beside each; and posteriors of real data."""

from leapling.targets.banana import Banana
from leapling.targets.base import Target
from leapling.targets.funnel import Funnel
from leapling.targets.gaussian import DiagonalGaussian, Gaussian, icg, scg
from leapling.targets.mixture import GaussianMixture, mog, mog2, mog2_unequal, mog20, ring
from leapling.targets.posteriors import Posterior, posterior
from leapling.targets.registry import TARGETS, resolve
from leapling.targets.rough_well import RoughWell

__all__ = [
    "TARGETS",
    "Banana",
    "DiagonalGaussian",
    "Funnel",
    "Gaussian",
    "GaussianMixture",
    "Posterior",
    "RoughWell",
    "Target",
    "icg",
    "mog",
    "mog2",
    "mog2_unequal",
    "mog20",
    "posterior",
    "resolve",
    "ring",
    "scg",
]
