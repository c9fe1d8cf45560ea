"""Real posteriors: a model of posteriordb and its data, as an energy of one unconstrained point."""

import difflib
from collections.abc import Callable, Mapping
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from leapling.supports import Parameters, Unconstrained, constraints, over_chains
from leapling.targets.base import Constant
from leapling.targets.models import MODELS


class Conditioned(eqx.Module):
    """-log p(parameters, data), with the data in the dtype of the parameters."""

    log_density: Callable = eqx.field(static=True)
    data: tuple[tuple[str, Constant], ...] = eqx.field(static=True)

    def __call__(self, parameters: Parameters) -> Float[Array, ""]:
        dtype = next(iter(parameters.values())).dtype
        return -self.log_density(parameters, {name: constant.cast(dtype) for name, constant in self.data})


@final
class Posterior(eqx.Module):
    """`energy` is a function of an unconstrained point z; `constrain` gives what z means, by the reference's names."""

    name: str = eqx.field(static=True)
    energy: Unconstrained
    names: tuple[str, ...] = eqx.field(static=True)
    _report: Callable[[Parameters], Parameters] = eqx.field(static=True)

    def __init__(self, name: str, energy: Unconstrained, report: Callable[[Parameters], Parameters]):
        self.name, self.energy, self._report = name, energy, report
        self.names = tuple(self._scalars(jnp.zeros(energy.dim)))

    @property
    def dim(self) -> int:
        return self.energy.dim

    def constrain(self, z: Float[Array, "dim *chains"]) -> dict[str, Float[Array, "*chains"]]:
        """Every scalar by itself, an entry of an array as `beta[1]`, counted from one."""
        values = over_chains(self._scalars, z.ndim - 1)(z)
        return {name: values[name] for name in self.names}

    def _scalars(self, z: Float[Array, " dim"]) -> Parameters:
        scalars = {}
        for name, value in self._report(self.energy.constrain(z)).items():
            for index in np.ndindex(value.shape):
                label = ",".join(str(i + 1) for i in index)
                scalars[f"{name}[{label}]" if label else name] = value[index]
        return scalars


def posterior(name: str, data: Mapping[str, Any]) -> Posterior:
    """The posterior of posteriordb called `name` (one of `MODELS`), given the data in its data.json."""
    if name not in MODELS:
        close = difflib.get_close_matches(name, MODELS, n=1, cutoff=0.4)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"there is no posterior {name!r}{hint}: give one of {', '.join(MODELS)}.")
    model = MODELS[name]
    try:
        arrays = {key: np.asarray(value, np.float64) for key, value in model.data(data).items()}
    except KeyError as error:
        raise ValueError(
            f"the data of {name} has {', '.join(data)}, but {error} is needed too: give its data.json, read."
        ) from error
    supports = model.supports(constraints(), arrays)
    bound = Conditioned(model.log_density, tuple((key, Constant(array)) for key, array in arrays.items()))
    return Posterior(name, Unconstrained(bound, supports), model.report)
