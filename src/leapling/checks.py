"""Checks of what a user hands in, each with one sentence: what was given, what is needed, what to try."""

from collections.abc import Callable

import jax
import numpy as np

from leapling.energy import EnergyError, as_energy
from leapling.kernels.base import State


def check_energy(energy: Callable, dim: int) -> None:
    """Trace the energy on one point, so that what is wrong with it is said before any work is done."""
    point = jax.ShapeDtypeStruct((dim,), np.float32)
    try:
        jax.eval_shape(lambda x: as_energy(energy).value_and_grad(x), point)
    except EnergyError:
        raise
    except Exception as error:
        raise EnergyError(
            f"the energy raised {type(error).__name__} on one point of shape ({dim},): {error}; "
            "it must be a JAX function of one array of that shape, with a gradient. One that JAX cannot trace, as a "
            "simulator or another framework's model, can be called through jax.pure_callback, with its gradient given "
            "by jax.custom_vjp"
        ) from error


def check_start(state: State) -> None:
    """Refuse to start where the energy or its gradient is not finite."""
    energy = np.atleast_1d(np.asarray(state.energy)).ravel()
    gradient = np.asarray(state.gradient).reshape(state.gradient.shape[0], -1)
    position = np.asarray(state.position).reshape(state.position.shape[0], -1)
    for name, is_bad, values in (
        ("position", ~np.isfinite(position).all(axis=0), None),
        ("energy", ~np.isfinite(energy), energy),
        ("gradient of the energy", ~np.isfinite(gradient).all(axis=0), None),
    ):
        if is_bad.any():
            first = int(np.argmax(is_bad))
            shown = np.array2string(position[:, first], precision=4, threshold=6)
            what = f"{name} is {values[first]}" if values is not None else f"{name} is not finite"
            raise ValueError(
                f"the {what} at {is_bad.sum()} of {is_bad.size} starting points (the first is chain {first}, "
                f"at {shown}); every chain must start where the energy and its gradient are finite: "
                "give initial_positions inside the support"
            )


def dimension(kernel: object, energy: Callable, dim: int | None, positions: np.ndarray | None = None) -> int:
    """The number of coordinates, from whoever knows it; they must agree."""
    known = {
        "dim": dim,
        "the kernel": getattr(kernel, "dim", None),
        "the target": getattr(energy, "dim", None),
        "initial_positions": None if positions is None else positions.shape[-1],
    }
    known = {who: value for who, value in known.items() if value is not None}
    if not known:
        raise ValueError("the number of coordinates is not known from the kernel or the energy: give dim=")
    if len(set(known.values())) > 1:
        said = ", ".join(f"{who} says {value}" for who, value in known.items())
        raise ValueError(f"the number of coordinates must be one: {said}")
    return next(iter(known.values()))
