"""The check itself: which laws apply, in which order."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from leapling.diagnostics.exactness.invariance import invariance_law
from leapling.diagnostics.exactness.product import whole
from leapling.diagnostics.exactness.quadrature import quadrature_law
from leapling.diagnostics.exactness.report import ExactnessReport, Law
from leapling.diagnostics.exactness.structure import structural_laws
from leapling.diagnostics.exactness.subject import Sampler, make_subject
from leapling.diagnostics.exactness.transition import transition_laws
from leapling.kernels import Kernel

STRUCTURAL = ("round trip", "log-determinant", "antisymmetry")
TRANSITION = ("acceptance", "cache", "temperature")
LAWS = (*STRUCTURAL, *TRANSITION, "invariance", "quadrature")


def check_kernel(
    kernel: Kernel,
    energy: Callable,
    *,
    dim: int | None = None,
    sampler: Sampler | None = None,
    positions: Float[np.ndarray, "..."] | None = None,
    seed: int = 0,
    num_points: int = 128,
    num_chains: int = 8192,
    max_jacobian_dim: int = 64,
    laws: Sequence[str] | None = None,
) -> ExactnessReport:
    """Does this kernel leave exp(-U) invariant?

    `energy` is a `Target`, or any function of one point. Then `sampler(key, num, dtype) -> (dim, num)` may
    give exact draws, and `positions`, draws of chains, say where to probe; else the kernel is run there from
    N(0, I). Without exact draws the rank test runs on a stand-in fitted to those points, and a quadrature on
    the energy itself where the dimension is 1 or 2. `laws` selects among `LAWS`, by default all that apply.

    `num_points` probe the proposal, 8 times as many the step, and `num_chains` chains of 8 states make one
    round of the rank test. The Jacobian, (2 dim, 2 dim) at each point, is made up to `max_jacobian_dim`.

    A kernel with replicas is checked on all of them: `sampler` then draws from the product of the tempered targets, the
    cold replica first.
    """
    unknown = set(laws or ()) - set(LAWS)
    if unknown:
        raise ValueError(f"there is no law {sorted(unknown)}; choose from {LAWS}")
    name = getattr(energy, "name", None) or getattr(energy, "__name__", None) or type(energy).__name__
    kind, num_probes = type(kernel).__name__, 8 * num_points
    if hasattr(kernel, "inverse_temperatures"):
        # All replicas are probed where the cold one is: what is centred and scaled, is so alike in each.
        cold = make_subject(
            kernel, energy, dim=dim, sampler=None, positions=positions, seed=seed, num_probes=num_probes
        )
        kernel, energy = whole(kernel, energy)
        positions = np.tile(cold.probes.T, (1, len(kernel.betas)))
        dim = positions.shape[1]
    subject = make_subject(
        kernel, energy, dim=dim, sampler=sampler, positions=positions, seed=seed, num_probes=num_probes
    )
    if laws is None:
        laws = LAWS if subject.sampler is None else LAWS[:-1]
    found: list[Law] = []
    if names := tuple(name for name in STRUCTURAL if name in laws):
        found += structural_laws(subject, names, num_points, max_jacobian_dim)
    if names := tuple(name for name in TRANSITION if name in laws):
        found += transition_laws(subject, names, 8 * num_points)
    if "invariance" in laws:
        found.append(invariance_law(subject, num_chains))
    if "quadrature" in laws:
        found.append(quadrature_law(subject))
    return ExactnessReport(kind, f"{name} ({subject.dim}-d)", tuple(found))
