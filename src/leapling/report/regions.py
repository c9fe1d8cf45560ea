"""Where a two-dimensional target has its mass."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

REGION_MASSES = (0.5, 0.9, 0.99)
REGION_COLOURS = ("#a5adb8", "#c4cad2", "#dcdfe4")
REGION_GRID = 400
FAR_ABOVE = 1e30  # instead of an infinite energy


def data_limits(points: Float[np.ndarray, "draw 2"]) -> list[tuple[float, float]]:
    """Of each coordinate, the range of its finite values with a margin."""
    limits = []
    for column in points.T:
        values = column[np.isfinite(column)]
        low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
        size = max(abs(low), abs(high))
        # A chain that does not move still gets an axis that can be drawn.
        margin = 0.06 * (high - low) if high - low > 1e-6 * size else 0.1 * size or 1.0
        limits.append((float(low - margin), float(high + margin)))
    return limits


def mass_regions(energy: Callable, limits: list[tuple[float, float]]) -> tuple | None:
    """What `contourf` takes to fill the smallest regions of REGION_MASSES; None where the grid shows none."""
    import jax
    import jax.numpy as jnp

    x, y = (np.linspace(*limit, REGION_GRID) for limit in limits)
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    u = np.asarray(jax.vmap(energy)(jnp.asarray(points, float)), np.float64)
    finite = np.isfinite(u)
    if not finite.any():
        return None
    excess = np.where(finite, u - u[finite].min(), FAR_ABOVE)
    ordered = np.sort(excess)
    mass = np.cumsum(np.exp(-ordered))
    levels = ordered[np.searchsorted(mass, np.asarray(REGION_MASSES) * mass[-1])]
    # The root of a quadratic energy is nearly linear between grid points, however narrow the ridge.
    levels = np.unique([0.0, *np.sqrt(levels)])
    return (x, y, np.sqrt(excess).reshape(REGION_GRID, -1), levels) if levels.size > 1 else None
