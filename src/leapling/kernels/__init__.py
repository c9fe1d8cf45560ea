"""Markov kernels: pytrees with `init` and `step`."""

from leapling.kernels.base import Info, Kernel, MetropolisKernel, Phase, Proposal, State, cast
from leapling.kernels.hmc import HMC
from leapling.kernels.l2hmc import L2HMC

__all__ = ["HMC", "L2HMC", "Info", "Kernel", "MetropolisKernel", "Phase", "Proposal", "State", "cast"]
