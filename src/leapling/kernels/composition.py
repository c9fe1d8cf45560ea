"""Kernels made of kernels: a random one of several at each transition, or one after the other."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from leapling.energy import as_energy
from leapling.kernels.base import Info, Kernel, MetropolisKernel, evaluate


class Composed(Kernel):
    """What mixtures and cycles share: components that start from the same state, none of which keeps a momentum."""

    components: tuple[Kernel, ...]

    def init(self, energy, position, *, key=None):
        return evaluate(energy, position)

    def __getattr__(self, name: str):
        if name == "dim":  # that of the first component that knows
            for component in self.components:
                if (dim := getattr(component, "dim", None)) is not None:
                    return dim
        raise AttributeError(name)


class Mixture(Composed):
    """Each transition is that of one component, drawn with `weights` whatever the state: exact if each of them is.

    It is drawn once for the whole batch, which for each chain is the same law, and keeps it one branch of the program.
    """

    weights: Float[Array, " components"]

    def __init__(self, components: Sequence[Kernel], weights: ArrayLike | Sequence[float] | None = None):
        self.components = _checked(components)
        probability = np.ones(len(self.components)) if weights is None else np.asarray(weights, float)
        if probability.shape != (len(self.components),) or not (np.isfinite(probability) & (probability > 0)).all():
            raise ValueError(
                f"a mixture of {len(self.components)} kernels needs as many weights, all above 0, got {weights}; "
                "leave out a component that is not to be used"
            )
        self.weights = jnp.asarray(probability / probability.sum())

    def step(self, energy, state, *, key):
        energy = as_energy(energy)
        key_choice, key_step = jax.random.split(key)
        chosen = jax.random.categorical(key_choice, jnp.log(self.weights))
        moves = [lambda state, key, k=k: k.step(energy, state, key=key) for k in self.components]
        return jax.lax.switch(chosen, moves, state, key_step)

    def reversed(self) -> "Mixture":
        return eqx.tree_at(lambda k: k.components, self, tuple(map(_reversed, self.components)))


class Cycle(Composed):
    """All components in turn, as one transition: exact if each of them is, and not reversible.

    `Info` sums what they cost; of the rest it reports the acceptance as their mean, the energy change over all, and
    whether any moved or diverged.
    """

    def __init__(self, components: Sequence[Kernel]):
        self.components = _checked(components)

    def step(self, energy, state, *, key):
        energy = as_energy(energy)
        infos: list[Info] = []
        start = state
        for component, key_of_one in zip(self.components, jax.random.split(key, len(self.components)), strict=True):
            state, info = component.step(energy, state, key=key_of_one)
            infos.append(info)
        temperature = jnp.asarray(energy.temperature, state.energy.dtype)
        return state, Info(
            acceptance=jnp.mean(jnp.stack([info.acceptance for info in infos]), axis=0),
            is_accepted=_any([info.is_accepted for info in infos]),
            proposal=state,
            log_jacobian=jnp.sum(jnp.stack([jnp.where(i.is_accepted, i.log_jacobian, 0) for i in infos]), axis=0),
            energy_change=(state.energy - start.energy) / temperature,
            is_divergent=_any([info.is_divergent for info in infos]),
            num_gradients=jnp.sum(jnp.stack([info.num_gradients for info in infos]), axis=0, dtype=jnp.int32),
        )

    def reversed(self) -> "Cycle":
        return Cycle([_reversed(component) for component in self.components[::-1]])


def _checked(components: Sequence[Kernel]) -> tuple[Kernel, ...]:
    if not components:
        raise ValueError("a composition needs at least one kernel, got none")
    for kernel in components:
        if not isinstance(kernel, (MetropolisKernel, Composed)):
            raise ValueError(
                f"{type(kernel).__name__} keeps a momentum of its own from one transition to the next, or is no "
                "Metropolis kernel: it cannot share its chains with others"
            )
    return tuple(components)


def _reversed(kernel: Kernel) -> Kernel:
    """A Metropolis kernel that draws v and d anew is its own reverse."""
    backward = getattr(kernel, "reversed", None)
    return kernel if backward is None else backward()


def _any(flags: list[Array]) -> Array:
    return jnp.any(jnp.stack(flags), axis=0)
