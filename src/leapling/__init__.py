"""Learned Markov chain Monte Carlo kernels: from an energy to an exact, trained sampler (L2HMC, ICLR 2018)."""

from importlib.metadata import version

from leapling.autopilot import Fitted, Verdict, fit, load
from leapling.chains import Draws, sample
from leapling.coordinates import Affine, whitening
from leapling.diagnostics import check_kernel, summarise
from leapling.energy import tempered
from leapling.interop import from_netcdf, to_arviz, to_netcdf
from leapling.kernels import (
    HMC,
    L2HMC,
    LAHMC,
    NICE,
    Cycle,
    InCoordinates,
    Info,
    Kernel,
    Mixture,
    PositionMALA,
    State,
    Tempering,
    cast,
)
from leapling.store import load_run, save_run
from leapling.supports import Unconstrained
from leapling.training import (
    AdversarialRecipe,
    Recipe,
    TrainingStopped,
    TrainResult,
    preset,
    train,
    train_adversarial,
)
from leapling.tuning import tune

__version__ = version("leapling")

__all__ = [
    "HMC",
    "L2HMC",
    "LAHMC",
    "NICE",
    "AdversarialRecipe",
    "Affine",
    "Cycle",
    "Draws",
    "Fitted",
    "InCoordinates",
    "Info",
    "Kernel",
    "Mixture",
    "PositionMALA",
    "Recipe",
    "State",
    "Tempering",
    "TrainResult",
    "TrainingStopped",
    "Unconstrained",
    "Verdict",
    "cast",
    "check_kernel",
    "fit",
    "from_netcdf",
    "load",
    "load_run",
    "preset",
    "sample",
    "save_run",
    "summarise",
    "tempered",
    "to_arviz",
    "to_netcdf",
    "train",
    "train_adversarial",
    "tune",
    "whitening",
]
