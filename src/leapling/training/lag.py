"""An objective of the states several transitions apart."""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax.numpy as jnp
from jaxtyping import Array, Float

from leapling.kernels import Info, Kernel, State
from leapling.kernels.base import KeyArray
from leapling.training.decorrelation import Decorrelation
from leapling.training.objectives import Jump, Objective
from leapling.training.transitions import Rolled, roll


@dataclass(frozen=True)
class Lag:
    """The mean of `objective` between x_t and x_{t+k}, over the lags k.

    A quarter turn x1 -> x2 -> -x1 is uncorrelated with the present after one transition and has come back, up to a
    sign, after two: only a longer lag, or every pair of statistics, tells it from an independent draw. Each iteration
    rolls the kernel as often as the longest lag asks, is charged for it, and leaves the chains at the end.

    The expectation over the last accept decision is taken, the decisions before are drawn, and the gradient is that of
    the expectation over both: see `roll`.
    """

    objective: Objective = field(default_factory=Decorrelation)
    lags: tuple[int, ...] = (1, 2)

    def __post_init__(self):
        if not self.lags or min(self.lags) < 1:
            raise ValueError(f"lags must be one or more numbers of transitions of at least 1, got {self.lags}")
        if isinstance(self.objective, Jump) or hasattr(self.objective, "observe") or hasattr(self.objective, "against"):
            raise ValueError(
                f"{type(self.objective).__name__} scores single transitions: give Lag an objective of two states, "
                "such as Decorrelation, HSIC, EnergyJump or ChEES"
            )

    def observe(self, kernel: Kernel, energy: Callable, start: State, *, key: KeyArray) -> tuple[State, Rolled]:
        return roll(kernel, energy, start, max(self.lags), key=key)

    def __call__(self, start: State, info: Info) -> Float[Array, ""]:
        assert isinstance(info, Rolled)  # what `observe` returned
        return jnp.mean(jnp.stack([self.objective(start, info.lags[k - 1]) for k in self.lags]))
