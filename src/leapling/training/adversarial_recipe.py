"""The settings of A-NICE-MC."""

from dataclasses import dataclass, replace

import jax
import numpy as np
import optax

from leapling.kernels import NICE


@dataclass(frozen=True)
class AdversarialRecipe:
    """Where a comment says so, the value is that of the authors' published code."""

    num_iterations: int = 20_000  # steps of the kernel's optimiser
    batch_size: int = 64  # pairs in each step, half of them from noise
    critic_steps: int = 5  # for each step of the kernel; the authors'
    critic_widths: tuple[int, ...] = (64, 64)  # the authors take three times 400
    penalty: float = 10.0  # of slopes of the critic that are not 1; the authors'
    momentum_weight: float = 1.0  # of the momentum's cross-entropy with N(0, I); the authors'
    noise_steps: int = 8  # B: the most proposals from noise to the target; the authors'
    pair_steps: int = 2  # M: the most between the two states of a pair; the authors'
    initial_scale: float = 5.0  # the noise is N(0, initial_scale^2 I): wide enough to reach every mode
    refresh_every: int = 500  # iterations for each bootstrap; the authors'
    num_chains: int = 256  # of a bootstrap
    burn_in: int = 500  # the transitions of each of them that are not kept
    bootstrap_steps: int = 100  # and those that are
    learning_rate: float = 5e-4  # the authors', and constant; here it falls linearly to the next
    final_learning_rate: float = 5e-5
    betas: tuple[float, float] = (0.5, 0.9)  # of Adam; the authors'

    def __post_init__(self):
        counts = ("num_iterations", "critic_steps", "noise_steps", "pair_steps", "refresh_every", "num_chains")
        for name in (*counts, "bootstrap_steps", "initial_scale", "learning_rate", "final_learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.batch_size < 2 or self.batch_size % 2:
            raise ValueError(f"batch_size must be even and at least 2, got {self.batch_size}: half starts from noise")
        for name in ("burn_in", "penalty", "momentum_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if not self.critic_widths or min(self.critic_widths) < 1:
            raise ValueError(f"critic_widths must be at least one layer of at least 1 unit, got {self.critic_widths}")

    def optimizer(self, steps: int = 1) -> optax.GradientTransformation:
        """For a network that takes `steps` steps in each iteration."""
        num = steps * self.num_iterations
        return optax.adam(optax.linear_schedule(self.learning_rate, self.final_learning_rate, num), *self.betas)

    @property
    def gradients_per_chain(self) -> int:
        """Evaluations of the energy in one bootstrap, the one that starts the chain included."""
        return 1 + self.burn_in + self.bootstrap_steps


_RECIPES = {"mog2": AdversarialRecipe(), "mog2-unequal": AdversarialRecipe()}


def adversarial_recipe(target_name: str, share: float = 1.0) -> AdversarialRecipe:
    """The recipe of a target, with `share` of its iterations."""
    if target_name not in _RECIPES:
        raise ValueError(f"there is no adversarial recipe for {target_name!r}; there are {', '.join(_RECIPES)}")
    recipe = _RECIPES[target_name]
    return replace(recipe, num_iterations=round(share * recipe.num_iterations))


def nice_kernel(dim: int, seed: int) -> NICE:
    """The untrained kernel of the experiments, float32: v, x, v as in the authors' code, 100 units where it has 400."""
    key = jax.random.fold_in(jax.random.key(seed), 2**31 - 1)  # a stream that no iteration uses
    return NICE(dim, key=key, dtype=np.float32)
