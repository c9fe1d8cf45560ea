"""Draws in the formats other tools read: ArviZ (0.23 and 1.x) and NetCDF."""

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from leapling.chains import Draws
from leapling.files import RunError, atomic_path


def to_datasets(draws: Draws, **attributes: Any) -> dict[str, Any]:
    """The groups `posterior` (variable x) and `sample_stats`, with what they cost as attributes."""
    import xarray as xr  # slow to import, and needed only here

    chains = {"chain": np.arange(draws.num_chains), "draw": np.arange(draws.num_draws)}
    attributes = {
        "inference_library": "leapling",
        "num_gradients": draws.num_gradients,
        "num_warmup": draws.num_warmup,
        "thin": draws.thin,
        "compile_seconds": draws.compile_seconds,
        "seconds": draws.seconds,
        "is_interrupted": int(draws.is_interrupted),
        **attributes,
    }
    statistics = {name: (("chain", "draw"), values) for name, values in draws.statistics.items()}
    groups = {"sample_stats": xr.Dataset(statistics, chains, attributes)}
    if draws.kept_positions is not None:
        x = {"x": (("chain", "draw", "x_dim_0"), draws.positions)}
        groups["posterior"] = xr.Dataset(x, {**chains, "x_dim_0": np.arange(draws.dim)}, attributes)
    return groups


def to_arviz(draws: Draws) -> Any:
    """An `InferenceData` with ArviZ 0.23, a `DataTree` with ArviZ 1.x."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces 1.0 when imported
        import arviz

    groups = to_datasets(draws)
    if hasattr(arviz, "InferenceData"):
        return arviz.InferenceData(**groups)
    import xarray as xr

    return xr.DataTree.from_dict(groups)


def to_netcdf(draws: Draws, path: str | os.PathLike, **attributes: Any) -> None:
    """One NetCDF file that `arviz.from_netcdf` reads, written whole or not at all."""
    with atomic_path(Path(path)) as temporary:
        mode = "w"
        for name, group in to_datasets(draws, **attributes).items():
            booleans = {k: v.astype(np.int8) for k, v in group.data_vars.items() if v.dtype == bool}
            group.assign(booleans).to_netcdf(temporary, mode=mode, group=name, engine="h5netcdf")
            mode = "a"


def from_netcdf(path: str | os.PathLike) -> dict[str, Any]:
    """The groups of a file that `to_netcdf` wrote."""
    import xarray as xr

    if not Path(path).is_file():
        raise RunError(f"there is no file {path}; write it with `leapling sample RUN` first")
    try:
        groups = {}
        for name in ("posterior", "sample_stats"):
            with xr.open_dataset(path, group=name, engine="h5netcdf") as group:
                groups[name] = group.load()
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        raise RunError(
            f"{path} is not a readable file of draws ({error}); write it again with `leapling sample`"
        ) from error
    for name in ("accepted", "diverging"):
        groups["sample_stats"][name] = groups["sample_stats"][name].astype(bool)
    return groups
