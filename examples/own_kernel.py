"""A kernel of one's own: give `propose`, an involution of (x, v, d), and the accept step and the laws come with it.

Here a random walk, the involution being (x, v) -> (x + scale v, -v).

    python examples/own_kernel.py
"""

import jax
import jax.numpy as jnp

import leapling
from leapling.kernels import MetropolisKernel, Phase, Proposal
from leapling.kernels.base import evaluate
from leapling.targets import mog2


class RandomWalk(MetropolisKernel):
    """Random-walk Metropolis."""

    scale: jax.Array

    def propose(self, energy, phase, *, key):
        x = phase.state.position + self.scale.astype(phase.momentum.dtype) * phase.momentum
        moved = Phase(evaluate(energy, x), -phase.momentum, phase.direction)
        return Proposal(moved, jnp.zeros_like(moved.state.energy), jnp.asarray(1, jnp.int32))


def main() -> leapling.diagnostics.ExactnessReport:
    report = leapling.check_kernel(RandomWalk(jnp.asarray(0.7)), mog2())
    print(report)
    return report


if __name__ == "__main__":
    main()
