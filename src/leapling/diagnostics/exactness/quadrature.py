"""Invariance on the energy itself, for one or two dimensions and no exact draws.

Under an invariant kernel the expected change of any f in one step from the target, the integral of
p(x) E[A (f(x') - f(x))], is zero. x is integrated over a grid: cells are chosen by their share of the mass, a point
is drawn within each, and weighted so that the estimate is unbiased whatever the spacing; v and d are random.
Repetitions tell its own standard error.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array

from leapling.diagnostics.exactness.altered import Altered
from leapling.diagnostics.exactness.box import NUM_CELLS, Box, NoBoxError, cell_centres, find_box
from leapling.diagnostics.exactness.report import Law, not_run
from leapling.diagnostics.exactness.scale import find_scale, is_useful
from leapling.diagnostics.exactness.subject import Subject, precision
from leapling.energy import Energy
from leapling.kernels import Kernel, cast

MAX_DIM = 2
NUM_GRIDS = 32
NUM_POINTS = 4096  # of each
UNIFORM_SHARE = 0.1  # of them are spread over all cells, because a centre may not see what its cell holds
RATE = 1e-5


class Grid(eqx.Module):
    """The box and points' cells as arrays of a compiled function; `whiten` takes x - centre to standard units."""

    centre: Array
    factor: Array
    whiten: Array
    nodes: Array  # the centre of each point's cell
    weights: Array  # uniform over the density of the cells chosen
    lowest: Array


def make_grid(box: Box, scale: float, dtype: str, random: np.random.Generator) -> Grid:
    factor = scale * box.factor
    whiten = box.half_width * np.linalg.inv(factor)
    num_cells = box.shares.size
    probability = (1 - UNIFORM_SHARE) * box.shares + UNIFORM_SHARE / num_cells
    # Systematic: a cell gets its expected number of points, rounded up or down.
    ticks = (np.arange(NUM_POINTS) + random.uniform()) / NUM_POINTS
    cell = np.minimum(np.searchsorted(np.cumsum(probability), ticks), num_cells - 1)
    nodes = cell_centres(len(box.centre))[:, cell]
    weights = 1 / (num_cells * probability[cell] * box.mean_density)
    arrays = (box.centre, factor, whiten, nodes, weights, box.lowest)
    return Grid(*(jnp.asarray(array, dtype) for array in arrays))


@eqx.filter_jit
def _flow(kernel: Kernel, function: Callable, grid: Grid, key: Array) -> tuple[Array, Array]:
    """The mean change of every statistic in one step from the target, and the mean acceptance."""
    energy = Energy(function)
    key_cell, key_init, key_step = jax.random.split(key, 3)
    dim = grid.nodes.shape[0]
    half_cell = NUM_CELLS ** (-1 / dim)
    y = grid.nodes + jax.random.uniform(key_cell, grid.nodes.shape, grid.nodes.dtype, -half_cell, half_cell)
    state = kernel.init(energy, grid.centre[:, None] + jnp.tensordot(grid.factor, y, 1), key=key_init)
    new, info = kernel.step(energy, state, key=key_step)
    density = jnp.exp(grid.lowest - state.energy) * grid.weights
    density = jnp.where(jnp.isfinite(density), density, 0)
    weight = density
    if hasattr(kernel, "propose"):
        # The probability in place of the decision: the same mean with less noise.
        new, weight = info.proposal, density * info.acceptance

    def statistics(state):
        z = jnp.tensordot(grid.whiten, state.position - grid.centre[:, None], 1)
        first, second = np.triu_indices(dim)
        values = [z, z[first] * z[second], state.energy[None], jnp.tanh(2 * z), jnp.sin(3 * z)]
        if hasattr(state, "momentum"):
            v, d = state.momentum, jnp.where(state.direction, 1, -1).astype(z.dtype)[None]
            values += [v, v**2, z * v, d * z, d * v]
        return jnp.concatenate(values)

    change = jnp.where((weight > 0)[None], statistics(new) - statistics(state), 0)
    return jnp.mean(weight[None] * change, axis=1), jnp.sum(density * info.acceptance) / jnp.sum(density)


def statistic_names(dim: int, num: int) -> tuple[str, ...]:
    """Of the first `num`: a state without momentum has fewer."""
    z = [f"z{i}" for i in range(dim)]
    kept = (form.format(i=i) for form in ("v{i}", "v{i}^2", "z{i}*v{i}", "d*z{i}", "d*v{i}") for i in range(dim))
    products = [f"{z[i]}*{z[j]}" for i, j in zip(*np.triu_indices(dim), strict=True)]
    return (*z, *products, "U", *(f"tanh(2 {name})" for name in z), *(f"sin(3 {name})" for name in z), *kept)[:num]


def quadrature_law(subject: Subject) -> Law:
    name = "quadrature"
    if subject.dim > MAX_DIM:
        reason = f"the dimension is {subject.dim}, a grid covers at most {MAX_DIM}"
        return not_run(name, reason, required=False)
    try:
        box = find_box(subject)
    except NoBoxError as error:
        return Law(name, "void", None, None, f"no grid covers this energy: {error}")
    dtype = subject.usual
    with precision(dtype):
        kernel = cast(subject.kernel, dtype)

    def run(scale: float, num: int) -> tuple[np.ndarray, float]:
        with precision(dtype):
            function = cast(Altered(subject.function, scale=scale, centre=box.centre), dtype)
            results = []
            for i in range(num):
                name = f"grid {scale} {i}"
                grid = make_grid(box, scale, dtype, subject.random(name))
                results.append(_flow(kernel, function, grid, subject.key(name)))
        flows = np.stack([np.asarray(flow, np.float64) for flow, _ in results])
        return flows, float(np.mean([float(acceptance) for _, acceptance in results]))

    def judge(flows: np.ndarray) -> tuple[float, float, str]:
        names = statistic_names(subject.dim, flows.shape[1])
        error = flows.std(axis=0, ddof=1) / np.sqrt(len(flows))
        z = np.abs(flows.mean(axis=0)) / np.maximum(error, np.finfo(float).tiny)
        z = np.nan_to_num(z, nan=np.inf)
        limit = -float(scipy.special.stdtrit(len(flows) - 1, RATE / 2 / len(names)))
        return float(z.max()), limit, names[int(np.argmax(z))]

    flows, acceptance = run(1.0, NUM_GRIDS)
    worst, limit, where = judge(flows)
    effort = f"{NUM_GRIDS} grids of {NUM_POINTS} points"
    what = "largest mean change of a statistic in a step, in standard errors"
    text = f"{what}; worst {where}, {effort}, acceptance {acceptance:.3f}"
    if worst > limit or is_useful(acceptance):
        return Law(name, "failed" if worst > limit else "passed", worst, limit, text)
    scale = find_scale(lambda scale: run(scale, 1)[1], acceptance)
    if scale is None:
        return Law(name, "void", worst, limit, f"{text} tells nothing, and no size of the target makes it useful")
    flows, borrowed = run(scale, NUM_GRIDS)
    worst, limit, where = judge(flows)
    text = f"{what}; worst {where}, {effort}, acceptance {borrowed:.3f} scaled by {scale:.3g}"
    text += f", {acceptance:.3f} at full size"
    return Law(name, "failed" if worst > limit else "on a stand-in", worst, limit, text)
