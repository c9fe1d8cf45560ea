"""What rebuilds a kernel of the same shapes, as JSON: its arrays are stored beside it."""

from typing import Any

import jax
import numpy as np

from leapling.coordinates import Affine, Coordinates, LowRank
from leapling.files import RunError
from leapling.kernels import (
    HMC,
    L2HMC,
    LAHMC,
    NICE,
    Composed,
    Cycle,
    InCoordinates,
    Kernel,
    MetropolisKernel,
    Mixture,
    PositionMALA,
    Tempering,
)

KERNELS = ("HMC", "L2HMC", "LAHMC", "NICE", "InCoordinates", "Mixture", "Cycle", "Tempering")
MAPS = ("Affine", "LowRank", "Flow")


def configuration(kernel: Kernel) -> dict[str, Any]:
    """What rebuilds a kernel of the same shapes."""
    if isinstance(kernel, L2HMC):
        return {
            "kind": "L2HMC",
            "dim": kernel.dim,
            "num_steps": kernel.num_steps,
            "widths": list(kernel.widths),
            "context_dim": kernel.context_dim,
            "heads": kernel.heads,
            "dtype": str(kernel.log_step_size.dtype),
            # A header of before there was a linear path says nothing, and means none.
        } | ({"skip": True} if kernel.skip else {})
    if isinstance(kernel, NICE):
        return {
            "kind": "NICE",
            "dim": kernel.dim,
            "num_couplings": kernel.num_couplings,
            "widths": list(kernel.widths),
            "dtype": str(kernel.dtype),
        }
    if isinstance(kernel, HMC):
        # A header of before there was a choice says nothing, and means leapfrog.
        return {"kind": "HMC"} | ({} if kernel.integrator == "leapfrog" else {"integrator": kernel.integrator})
    if isinstance(kernel, LAHMC):
        return {"kind": "LAHMC", "num_trajectories": kernel.num_trajectories, "inner": configuration(kernel.operator)}
    if isinstance(kernel, Tempering):
        num_replicas = len(kernel.inverse_temperatures)
        return {"kind": "Tempering", "num_replicas": num_replicas, "inner": configuration(kernel.operator)}
    if isinstance(kernel, InCoordinates):
        return {
            "kind": "InCoordinates",
            **coordinates_configuration(kernel.coordinates),
            "inner": configuration(kernel.kernel),
        }
    if isinstance(kernel, Composed):
        return {"kind": type(kernel).__name__, "parts": [configuration(part) for part in kernel.components]}
    if isinstance(kernel, PositionMALA):
        raise RunError(
            "a PositionMALA holds a function of yours, which a run does not store; keep the code that makes the kernel"
        )
    raise RunError(f"a kernel of type {type(kernel).__name__} cannot be saved; there are {', '.join(KERNELS)}")


def rebuild(config: dict[str, Any]) -> Kernel:
    kind = config["kind"]
    if kind not in KERNELS:
        raise RunError(f"the run holds a kernel of kind {kind!r}; this version knows {', '.join(KERNELS)}")
    if "parts" in config:
        return (Mixture if kind == "Mixture" else Cycle)([rebuild(part) for part in config["parts"]])
    settings = {name: value for name, value in config.items() if name not in ("kind", "inner")}
    if "inner" in config:
        inner = rebuild(config["inner"])
        if kind == "LAHMC":
            return LAHMC(inner, **settings)
        if kind == "Tempering":
            return Tempering(inner, np.linspace(1, 0.5, settings["num_replicas"]))
        assert isinstance(inner, MetropolisKernel)
        return InCoordinates(inner, rebuild_coordinates(settings))
    if kind in ("L2HMC", "NICE"):
        return (L2HMC if kind == "L2HMC" else NICE)(**settings, key=jax.random.key(0))
    return HMC(**settings)


# --- the coordinates a kernel runs in: one entry, whose name says which map ---------------------------------------


def coordinates_configuration(f: Coordinates) -> dict[str, Any]:
    if isinstance(f, Affine):
        return {"factor": list(f.factor.shape)}
    if isinstance(f, LowRank):
        return {"low_rank": list(f.directions.shape)}
    from leapling.coordinates.flow import Flow  # FlowJAX is imported where there is a flow, not before

    if isinstance(f, Flow):
        shape = {"kind": f.kind, "num_layers": f.num_layers, "width": f.width}
        return {"flow": {**shape, "outer": coordinates_configuration(f.outer)}}
    raise RunError(f"coordinates of type {type(f).__name__} cannot be saved; there are {', '.join(MAPS)}")


def rebuild_coordinates(config: dict[str, Any]) -> Coordinates:
    """A map of these shapes; what it holds is replaced by the stored arrays."""
    match config:
        case {"factor": [dim]}:
            return Affine(np.zeros(dim), np.ones(dim))
        case {"factor": [dim, _]}:
            return Affine(np.zeros(dim), np.eye(dim))
        case {"low_rank": [dim, rank]}:
            return LowRank(np.zeros(dim), np.ones(dim), np.eye(dim, rank), np.ones(rank))
        case {"flow": {"outer": outer, **shape}}:
            from leapling.coordinates.flow import Flow

            return Flow(rebuild_coordinates(outer), **shape, key=jax.random.key(0))
    raise RunError(f"the run holds coordinates {config}; this version knows {', '.join(MAPS)}")
