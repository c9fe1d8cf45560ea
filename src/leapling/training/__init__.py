"""Training: objectives, the recipe, and the loop of Algorithm 1; and the adversarial one of A-NICE-MC."""

from leapling.training.adversarial import AdversarialResult, train_adversarial
from leapling.training.adversarial_recipe import AdversarialRecipe, adversarial_recipe, nice_kernel
from leapling.training.decorrelation import Decorrelation
from leapling.training.entropy import Entropy
from leapling.training.hsic import HSIC
from leapling.training.jumps import ChEES, EnergyJump
from leapling.training.lag import Lag
from leapling.training.learned import Learned
from leapling.training.loop import TrainState
from leapling.training.objectives import Jump, Objective
from leapling.training.recipe import Annealing, Preset, Recipe, preset
from leapling.training.train import Estimate, TrainingStopped, TrainResult, estimate, train

__all__ = [
    "HSIC",
    "AdversarialRecipe",
    "AdversarialResult",
    "Annealing",
    "ChEES",
    "Decorrelation",
    "EnergyJump",
    "Entropy",
    "Estimate",
    "Jump",
    "Lag",
    "Learned",
    "Objective",
    "Preset",
    "Recipe",
    "TrainResult",
    "TrainState",
    "TrainingStopped",
    "adversarial_recipe",
    "estimate",
    "nice_kernel",
    "preset",
    "train",
    "train_adversarial",
]
