"""A kernel whose chains share nothing, for a test that takes chains for independent."""

import jax

from leapling.kernels import Composed, Kernel


class Alone(Kernel):
    """Every chain moves by a key of its own: the same law for each, and none of what a batch has in common."""

    kernel: Kernel

    def init(self, energy, position, *, key=None):
        return self.kernel.init(energy, position, key=key)

    def step(self, energy, state, *, key):
        keys = jax.random.split(key, state.energy.shape[-1])
        return jax.vmap(lambda state, key: self.kernel.step(energy, state, key=key), (-1, 0), -1)(state, keys)

    def __getattr__(self, name: str):
        if name == "reversed":
            backward = self.kernel.reversed  # pyright: ignore[reportAttributeAccessIssue]
            return lambda: Alone(backward())
        raise AttributeError(name)


def alone(kernel: Kernel) -> Kernel:
    """A composition draws one component for the whole batch. Seen from an exact draw in the middle of its chain, the
    components used before it come in the other order: with the same ones in every chain, ranks are not uniform."""
    return Alone(kernel) if isinstance(kernel, Composed) else kernel
