"""What training minimises: the loss of a batch of transitions."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float

from leapling.kernels import Info, State


@runtime_checkable
class Objective(Protocol):
    """Hashable (a frozen dataclass), because it is compiled into the training step.

    One that needs more than a single transition tells of has a method `observe(kernel, energy, start, *, key)`, in the
    place of `kernel.step`, which returns the end of the chains and an `Info` of a richer type, chains on the last axis
    of every array: it is what the objective is then called with. One that learns something itself has the methods
    `opponent`, `against` and `improved` of `Learned`.
    """

    def __call__(self, start: State, info: Info) -> Float[Array, ""]: ...


@dataclass(frozen=True)
class Jump:
    """The paper's loss (eq. 7): lambda^2 / (delta A) - delta A / lambda^2, with delta = |x - x'|^2.

    `floor` is added to delta A, as in the authors' code: it bounds the loss of a chain that cannot move. Without
    the reciprocal term this is the negative expected squared jump distance.
    """

    scale: float = 0.1**0.5  # lambda; the authors' code sets lambda^2 = 0.1
    floor: float = 1e-4
    reciprocal: bool = True

    def __post_init__(self):
        if not (self.scale > 0 and self.floor > 0):
            raise ValueError(
                f"scale and floor must be above 0, got {self.scale} and {self.floor}; "
                "scale is the length over which the target varies"
            )

    def __call__(self, start: State, info: Info) -> Float[Array, ""]:
        return jnp.mean(self.losses(start, info))

    def losses(self, start: State, info: Info) -> Float[Array, "*chains"]:
        """Chain by chain."""
        delta = jnp.sum((info.proposal.position - start.position) ** 2, axis=0)
        jump = delta * info.acceptance + self.floor
        loss = -jump / self.scale**2
        return loss + self.scale**2 / jump if self.reciprocal else loss
