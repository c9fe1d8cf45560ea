"""The energy as kernels see it: a function of one point, evaluated on whole batches, at a temperature."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Inexact


@jax.custom_vjp
def guard(y: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
    """The identity, except that non-finite cotangents become zero.

    A rejected trajectory may have overflowed. Its loss term is constant, but 0 * inf inside the chain rule would
    still turn the gradient of every other chain into NaN through the shared weights.
    """
    return y


guard.defvjp(lambda y: (y, None), lambda _, ct: (jnp.where(jnp.isfinite(ct), ct, 0),))


class EnergyError(ValueError):
    """Something that is not an energy, or an energy that does not return what one must."""


class Energy(eqx.Module):
    """U(x) of one point (dim,), bound to a temperature: the target is exp(-U / temperature).

    `value_and_grad` is the unit of cost, and is never divided by the temperature, so that what a state caches
    stays valid while the temperature is annealed.

    Without `force_gradient` the gradient is a constant to whoever differentiates it: training then needs no second
    derivative of U. The value keeps its own gradient either way.
    """

    function: Callable
    temperature: ArrayLike = 1.0
    force_gradient: bool = eqx.field(static=True, default=True)

    def __call__(self, position: Float[Array, " dim"]) -> Float[Array, ""]:
        return self.function(position) / jnp.asarray(self.temperature, position.dtype)

    def value_and_grad(
        self, position: Float[Array, "dim *chains"]
    ) -> tuple[Float[Array, "*chains"], Float[Array, "dim *chains"]]:
        def at_one_point(x):
            u = self.function(x)
            if jnp.shape(u) != ():
                raise EnergyError(
                    f"the energy returned an array of shape {jnp.shape(u)} for one point of shape {x.shape}; "
                    "it must return a scalar (reduce it, for instance with jnp.sum)"
                )
            if jnp.result_type(u) != x.dtype:
                raise EnergyError(
                    f"the energy returned {jnp.result_type(u)} for a {x.dtype} position; mixed precision is refused: "
                    f"make the constants inside the energy {x.dtype} (jnp.asarray(c, x.dtype)) or "
                    f"give positions in {jnp.result_type(u)}"
                )
            return u

        evaluate = jax.value_and_grad(at_one_point)
        for _ in position.shape[1:]:
            evaluate = jax.vmap(evaluate, in_axes=-1, out_axes=-1)
        value, gradient = evaluate(guard(position))
        return value, gradient if self.force_gradient else jax.lax.stop_gradient(gradient)


def as_energy(energy: Callable) -> Energy:
    """Anything callable on one point is an energy."""
    if isinstance(energy, Energy):
        return energy
    if not callable(energy):
        raise EnergyError(
            f"an energy must be a function of one point of shape (dim,), got {type(energy).__name__} {energy!r}"
        )
    return Energy(energy)


def tempered(energy: Callable, temperature: ArrayLike) -> Energy:
    """The same energy at another temperature; states of the one are valid for the other."""
    return replace(as_energy(energy), temperature=temperature)
