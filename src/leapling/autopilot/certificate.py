"""The proof that goes with a fit: the kernel's laws in z, and the map's own."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from leapling.autopilot.measure import MAP_TOLERANCE, round_trip_error
from leapling.coordinates import Coordinates
from leapling.diagnostics import check_kernel
from leapling.diagnostics.exactness.report import ExactnessReport, Law
from leapling.kernels import Kernel, cast
from leapling.targets import Gaussian

NUM_POINTS = 128
MAX_JACOBIAN_DIM = 64
LOG_DET = 1e-3  # of the log-determinant against autodiff, in float64 where the map has it


def certify(
    kernel: Kernel,
    coordinates: Coordinates,
    energy: Callable,
    points: Float[np.ndarray, "dim points"],
    *,
    seed: int,
) -> ExactnessReport:
    """A kernel that is exact for every energy, and a bijection whose log-determinant is right, make together an exact
    kernel in x. The first is tested in z on a correlated Gaussian, by every law and the rank test; the second at points
    of the target, against autodiff."""
    dim = coordinates.dim
    # Not N(0, I), where a start accepts everything, and near enough to it for some acceptance in any dimension.
    direction = np.ones((dim, 1)) / dim**0.5
    stand_in = Gaussian(np.eye(dim) + 0.8 * direction @ direction.T, 0.3 * direction[:, 0])
    report = check_kernel(kernel, stand_in, seed=seed, num_points=32, num_chains=4096)
    random = np.random.default_rng(seed)
    some = points[:, random.integers(points.shape[1], size=NUM_POINTS)]
    laws = (*report.laws, *map_laws(coordinates, some))
    name = getattr(energy, "name", None) or getattr(energy, "__name__", None) or type(energy).__name__
    return ExactnessReport(f"{report.kernel} in z, {type(coordinates).__name__} coordinates", f"{name} ({dim}-d)", laws)


def map_laws(coordinates: Coordinates, points: Float[np.ndarray, "dim points"]) -> tuple[Law, Law]:
    """x -> z -> x in the precision of the chains, and the log-determinant against slogdet of the autodiff Jacobian."""
    error = round_trip_error(coordinates, points.T)
    round_trip = Law(
        "map: round trip",
        "passed" if error < MAP_TOLERANCE else "failed",
        error,
        MAP_TOLERANCE,
        f"x -> z -> x at {points.shape[1]} points, in standard deviations of each coordinate",
    )
    if coordinates.dim > MAX_JACOBIAN_DIM:
        detail = f"the Jacobian is made up to {MAX_JACOBIAN_DIM} coordinates"
        return round_trip, Law("map: log-determinant", "not run", None, None, detail, required=False)
    with jax.enable_x64(True):
        f = cast(coordinates, "float64")
        z = f.backward(jnp.asarray(points, jnp.float64))
        stated, expected = (np.asarray(a) for a in _log_dets(f, z))
    gap = float(np.max(np.abs(stated - expected) / (1 + np.abs(expected))))
    detail = (
        f"log|det df/dz| against slogdet of the autodiff Jacobian at {points.shape[1]} points, in float64, relative"
    )
    return round_trip, Law("map: log-determinant", "passed" if gap < LOG_DET else "failed", gap, LOG_DET, detail)


@eqx.filter_jit
def _log_dets(f: Coordinates, z: Array) -> tuple[Array, Array]:
    jacobian = jax.vmap(jax.jacfwd(f.forward), in_axes=-1)(z)
    return f.forward_and_log_det(z)[1], jnp.linalg.slogdet(jacobian)[1]
