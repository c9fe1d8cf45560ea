"""Constrained parameters as one unconstrained point: NumPyro's bijections, and the log-Jacobian they bring."""

import math
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

Parameters: TypeAlias = dict[str, Array]


class MissingNumPyro(ImportError):
    """Constrained parameters were asked for, and NumPyro, whose bijections they need, cannot be imported."""


def constraints() -> ModuleType:
    """NumPyro's constraints: `real`, `positive`, `interval(a, b)`, `simplex`, `ordered_vector`, `corr_matrix`, ..."""
    return _distributions().constraints


def _distributions() -> ModuleType:
    try:
        import numpyro.distributions
    except ImportError as error:
        raise MissingNumPyro(
            f"constrained parameters need NumPyro, whose import failed ({error}): try pip install 'leapling[supports]'."
        ) from error
    return numpyro.distributions


@contextmanager
def _lenient():
    """NumPyro promotes dtypes and ranks, and makes arrays of the default float, so its maps run in that one."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@dataclass(frozen=True)
class Support:
    """Where one parameter lives: a constraint, or a function from the parameters before it to one.

    `free_shape` is the shape of its coordinates in z. NumPyro's constraints compare by value and have no hash.
    """

    name: str
    constraint: Any
    shape: tuple[int, ...]
    free_shape: tuple[int, ...] = ()

    def __hash__(self) -> int:
        return hash((self.name, self.shape, self.free_shape))

    @property
    def size(self) -> int:
        return math.prod(self.free_shape)

    def bijection(self, before: Parameters) -> Any:
        """From unconstrained coordinates to the support, given the parameters before this one."""
        given = self.constraint
        constraint = given if isinstance(given, constraints().Constraint) else given(before)
        return _distributions().biject_to(constraint)


class Unconstrained(eqx.Module):
    """U(z) = energy(f(z)) - log|det df/dz|, the energy of one unconstrained point z of shape (dim,).

    `energy` takes one dict of named parameters. `supports` maps each name to (constraint, shape), the constraint one of
    NumPyro's; a function of the dict of the parameters before it gives bounds that depend on them. z holds the
    parameters in the order of `supports`.
    """

    energy: Callable[[Parameters], Array]
    supports: tuple[Support, ...] = eqx.field(static=True)

    def __init__(self, energy: Callable, supports: Mapping[str, Any]):
        if not supports:
            raise ValueError("supports is empty, one parameter or more is needed: try {'x': (constraints().real, ())}.")
        self.energy, self.supports = energy, _checked(supports)

    @property
    def dim(self) -> int:
        return sum(support.size for support in self.supports)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(support.name for support in self.supports)

    def __call__(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        parameters, log_jacobian = self._forward(z)
        return self.energy(parameters) - log_jacobian

    def constrain(self, z: Float[Array, "dim *chains"]) -> Parameters:
        """The parameters by name, each of its own shape with the chain axes of z behind it."""
        values = over_chains(lambda point: self._forward(point)[0], z.ndim - 1)(z)
        return {name: values[name] for name in self.names}  # vmap has sorted them

    def unconstrain(self, parameters: Mapping[str, Any]) -> Float[Array, "dim *chains"]:
        """The z of which `constrain` makes these parameters; chain axes, the same for all, come last."""
        arrays, num_axes = self._arranged(parameters)
        z = over_chains(self._backward, num_axes)(arrays)
        if not isinstance(z, Tracer):
            self._check_inside(arrays, self.constrain(jnp.where(jnp.isfinite(z), z, jnp.nan)))
        return z

    def _forward(self, z: Float[Array, " dim"]) -> tuple[Parameters, Float[Array, ""]]:
        """f(z) and log|det df/dz|: block triangular, so that each parameter adds its own."""
        if z.shape[0] != self.dim:
            raise ValueError(f"z has {z.shape[0]} coordinates, {self.dim} are needed for {', '.join(self.names)}.")
        parameters, log_jacobian, start = {}, jnp.zeros((), z.dtype), 0
        for support in self.supports:
            free = z[start : start + support.size].reshape(support.free_shape)
            start += support.size
            with _lenient():
                f, free = support.bijection(parameters), free.astype(float)
                value = f(free)
                added = jnp.sum(f.log_abs_det_jacobian(free, value))
            parameters[support.name] = value.astype(z.dtype)
            log_jacobian += added.astype(z.dtype)
        return parameters, log_jacobian

    def _backward(self, parameters: Parameters) -> Float[Array, " dim"]:
        parts = []
        for support in self.supports:
            value = parameters[support.name]
            with _lenient():
                free = support.bijection(parameters).inv(value.astype(float))
            parts.append(free.reshape(-1).astype(value.dtype))
        return jnp.concatenate(parts)

    def _arranged(self, parameters: Mapping[str, Any]) -> tuple[Parameters, int]:
        """The parameters in one dtype, and the number of chain axes behind the shape of each."""
        if set(parameters) != set(self.names):
            raise ValueError(f"parameters {', '.join(parameters)} were given, {', '.join(self.names)} are needed.")
        arrays = {name: jnp.asarray(value) for name, value in parameters.items()}
        with jax.numpy_dtype_promotion("standard"):
            dtype = jnp.result_type(*arrays.values(), 0.0)
        arrays = {name: value.astype(dtype) for name, value in arrays.items()}
        first = self.supports[0]
        chains = arrays[first.name].shape[len(first.shape) :]
        for support in self.supports:
            shape = arrays[support.name].shape
            if shape != support.shape + chains:
                raise ValueError(
                    f"{support.name!r} has shape {shape}, {support.shape} and the same chain axes for all parameters "
                    f"are needed: {first.name!r} has {chains}."
                )
        return arrays, len(chains)

    def _check_inside(self, given: Parameters, back: Parameters) -> None:
        """A value is in its support exactly if the bijection brings it back, from a finite z."""
        for support in self.supports:
            value = given[support.name]
            error = jnp.max(jnp.abs(back[support.name] - value), initial=0)
            if not error <= np.sqrt(jnp.finfo(value.dtype).eps) * jnp.max(jnp.abs(value), initial=0):
                raise ValueError(
                    f"{support.name!r} is {np.asarray(value)}, a value inside its support is needed: "
                    f"{_described(support.constraint)}."
                )


def _checked(supports: Mapping[str, Any]) -> tuple[Support, ...]:
    """Every bijection is tried on shapes alone, so that what does not fit is said by name before any work is done."""
    checked, before = [], {}
    for name, given in supports.items():
        if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], tuple)):
            raise ValueError(f"{name!r} has the support {given!r}, a pair (constraint, shape) is needed.")
        support = Support(name, *given)
        try:
            with _lenient():
                free, value = jax.eval_shape(lambda before, support=support: _tried(support, before), before)
        except MissingNumPyro:
            raise
        except Exception as error:
            raise ValueError(
                f"{name!r} was given {_described(support.constraint)} and the shape {support.shape}, which raised "
                f"{type(error).__name__}: {error}; a constraint that has a bijection to that shape is needed, or a "
                f"function to one from the parameters before it ({', '.join(before) or 'none'})."
            ) from error
        if value.shape != support.shape:
            raise ValueError(
                f"{name!r} was given {_described(support.constraint)} and the shape {support.shape}, but it makes "
                f"{value.shape}; the shape must be that of the whole parameter."
            )
        checked.append(Support(name, support.constraint, support.shape, free.shape))
        before[name] = value
    return tuple(checked)


def _tried(support: Support, before: Parameters) -> tuple[Array, Array]:
    f = support.bijection(before)
    free = jnp.zeros(f.inverse_shape(support.shape))
    value = f(free)
    f.log_abs_det_jacobian(free, value)
    return free, value


def _described(constraint: Any) -> str:
    is_function = callable(constraint) and not isinstance(constraint, constraints().Constraint)
    return "a constraint that depends on other parameters" if is_function else str(constraint)


def over_chains(f: Callable, num_axes: int) -> Callable:
    """A function of one point, on arrays with chain axes at the end."""
    for _ in range(num_axes):
        f = jax.vmap(f, in_axes=-1, out_axes=-1)
    return f
