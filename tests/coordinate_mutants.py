"""Wrong ways to run a kernel in other coordinates: the source of the right one with one edit each, and wrong maps."""

import dataclasses
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from mutants import Mutant, edit

import leapling
from leapling.coordinates import Coordinates
from leapling.coordinates.flow import Flow
from leapling.kernels import InCoordinates, MetropolisKernel

MODULES = {"base": "coordinates.base", "in_coordinates": "kernels.in_coordinates"}
SOURCES = {
    name: (Path(leapling.__file__).parent / f"{path.replace('.', '/')}.py").read_text()
    for name, path in MODULES.items()
}


def build(mutant: Mutant, kernel: MetropolisKernel, f: Coordinates) -> Any:
    """`kernel` in the coordinates `f`, by the edited source; everything else is the original."""
    package = "mutant_" + "".join(c if c.isalnum() else "_" for c in mutant.name)
    sources = dict(SOURCES)
    for change in mutant.edits:
        count = sources[change.module].count(change.old)
        if count != 1:
            raise ValueError(f"{change.old!r} is {count} times in {change.module}.py, an edit needs it exactly once")
        sources[change.module] = sources[change.module].replace(change.old, change.new)
    for name, source in sources.items():
        module = sys.modules[f"{package}.{name}"] = ModuleType(f"{package}.{name}")
        source = source.replace("from leapling.coordinates.base", f"from {package}.base")
        exec(compile(source, module.__name__, "exec"), vars(module))
    return sys.modules[f"{package}.in_coordinates"].InCoordinates(kernel, f)


IDENTITY = Mutant("nothing changed in coordinates", (), ())

PULLED = "self.function(x) - jnp.asarray(self.temperature, z.dtype) * log_det"
PULLED_GRADIENT = "(gradient,) = back((x.gradient, jnp.broadcast_to(-temperature, log_det.shape)))"
PUSHED_GRADIENT = "(gradient,) = back((z.gradient, jnp.broadcast_to(-temperature, log_det.shape)))"
VOLUME = "inner.log_jacobian + volume"

MUTANTS = (
    Mutant(
        "log-determinant left out of the pulled energy",
        edit("base", PULLED, "self.function(x)"),
        ("cache", "antisymmetry"),
    ),
    Mutant(
        "log-determinant left out of the volume of a move",
        edit("in_coordinates", VOLUME, "inner.log_jacobian"),
        ("log-determinant", "invariance"),
    ),
    Mutant(
        "sign of the volume of a move",
        edit("in_coordinates", VOLUME, "inner.log_jacobian - volume"),
        ("log-determinant", "invariance"),
    ),
    Mutant(
        "sign of the log-determinant in the pulled energy",
        edit("base", PULLED, PULLED.replace("- jnp", "+ jnp")),
        ("cache",),
    ),
    Mutant(
        "the volume is tempered too",
        edit("base", PULLED, "self.function(x) - log_det"),
        ("cache", "temperature"),
    ),
    Mutant(
        "the energy is not tempered",
        edit("base", PULLED, "jnp.asarray(self.temperature, z.dtype) * (self.function(x) - log_det)"),
        ("cache", "temperature"),
    ),
    Mutant(
        "gradient not pulled",
        edit("base", PULLED_GRADIENT, "gradient = x.gradient"),
        ("round trip",),
    ),
    Mutant(
        "gradient of the volume not pulled",
        edit("base", PULLED_GRADIENT, PULLED_GRADIENT.replace("-temperature", "0 * temperature")),
        ("round trip",),
    ),
    Mutant(
        "gradient not pushed",
        edit("base", PUSHED_GRADIENT, "gradient = z.gradient"),
        ("cache",),
    ),
    Mutant(
        "gradient of the volume not pushed",
        edit("base", PUSHED_GRADIENT, PUSHED_GRADIENT.replace("-temperature", "0 * temperature")),
        ("cache",),
    ),
)


# --- wrong maps --------------------------------------------------------------------------------------------------


class NoVolume(Flow):
    """Says that it keeps the volume."""

    def forward_and_log_det(self, z):
        x, log_det = super().forward_and_log_det(z)
        return x, jnp.zeros_like(log_det)


class OuterForgotten(Flow):
    """Its log-determinant is that of its own layers alone."""

    def forward_and_log_det(self, z):
        y, log_det = self._through("transform_and_log_det", z)
        return self.outer.forward(y), log_det


class OrderSwapped(Flow):
    """On the way back, the first two layers come in the wrong order."""

    def backward_and_log_det(self, x):
        def swap(a):
            return jnp.concatenate([a[1:2], a[:1], a[2:]]) if eqx.is_array(a) else a

        swapped = eqx.tree_at(lambda f: f.layers, self, jax.tree.map(swap, self.layers))
        return Flow.backward_and_log_det(swapped, x)


# A forgotten outer map of constant volume changes no ratio: it is told by its Jacobian alone.
WRONG_MAPS = {
    NoVolume: ("log-determinant", "invariance"),
    OuterForgotten: ("log-determinant",),
    OrderSwapped: ("round trip",),
}


def twisted(wrong: type[Flow], flow: Flow) -> Any:
    """`flow` with all its weights, as the wrong class."""
    twin = object.__new__(wrong)
    for field in dataclasses.fields(flow):  # not all of vars: the methods of the right one are among them
        object.__setattr__(twin, field.name, getattr(flow, field.name))
    return twin


def in_wrong_map(wrong: type[Flow], kernel: MetropolisKernel, flow: Flow) -> InCoordinates:
    return InCoordinates(kernel, twisted(wrong, flow))
