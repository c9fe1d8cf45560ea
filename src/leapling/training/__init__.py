"""Training: the objective, the recipe, and the loop of Algorithm 1."""

from leapling.training.loop import TrainState
from leapling.training.objectives import Jump, Objective
from leapling.training.recipe import Annealing, Preset, Recipe, preset
from leapling.training.train import Estimate, TrainingStopped, TrainResult, estimate, train

__all__ = [
    "Annealing",
    "Estimate",
    "Jump",
    "Objective",
    "Preset",
    "Recipe",
    "TrainResult",
    "TrainState",
    "TrainingStopped",
    "estimate",
    "preset",
    "train",
]
