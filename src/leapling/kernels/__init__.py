"""Markov kernels: pytrees with `init` and `step`."""

from leapling.kernels.base import Info, Kernel, MetropolisKernel, Phase, Proposal, State, cast
from leapling.kernels.composition import Composed, Cycle, Mixture
from leapling.kernels.hmc import HMC
from leapling.kernels.in_coordinates import InCoordinates
from leapling.kernels.l2hmc import L2HMC
from leapling.kernels.lahmc import LAHMC
from leapling.kernels.mala import PositionMALA
from leapling.kernels.nice import NICE
from leapling.kernels.tempering import Tempering

__all__ = [
    "HMC",
    "L2HMC",
    "LAHMC",
    "NICE",
    "Composed",
    "Cycle",
    "InCoordinates",
    "Info",
    "Kernel",
    "MetropolisKernel",
    "Mixture",
    "Phase",
    "PositionMALA",
    "Proposal",
    "State",
    "Tempering",
    "cast",
]
