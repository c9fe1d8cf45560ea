"""Wrong kernels, L2HMC and LAHMC: the source of the right one with one edit each, on the same weights.

What an edit leaves exact no law of exactness can tell; such edits are listed apart, in `STILL_EXACT`.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import leapling.kernels
from leapling.kernels import L2HMC, LAHMC

MODULES = (
    "base",
    "integrators",
    "hmc",
    "networks",
    "leapfrog",
    "l2hmc",
    "lahmc",
    "tempering",
    "mala",
)  # in the order of their imports
ROOT = Path(leapling.kernels.__file__).parent
# Read once, so that an edit of the package while its tests run does not mix two versions.
SOURCES = {name: (ROOT / f"{name}.py").read_text() for name in MODULES} | {"ais": (ROOT.parent / "ais.py").read_text()}
# Plain containers, shared with the original.
DATA = {"base": ("State", "Phase", "Proposal", "Info"), "tempering": ("Replicas", "TemperingInfo")}


@dataclass(frozen=True)
class Edit:
    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """One mistake, and the laws that must each see it."""

    name: str
    edits: tuple[Edit, ...]
    seen_by: tuple[str, ...]
    prepare: Callable[[Any], Any] = field(default=lambda kernel: kernel)


# Every mutant is a Kernel to whoever asks: its abstract class descends from the original one.
DESCENT = (
    Edit(
        "base",
        "\nclass Kernel(eqx.Module):",
        "\nimport leapling.kernels\nclass Kernel(leapling.kernels.Kernel):",
    ),
)


def edit(module: str, old: str, new: str) -> tuple[Edit, ...]:
    return (Edit(module, old, new),)


def build(mutant: Mutant, kernel: L2HMC) -> Any:
    """The mutant with the weights, the masks and the step size of `kernel`."""
    module = load(mutant)["l2hmc"]
    widths = (kernel.v_network.bias.shape[0], *(len(layer.bias) for layer in kernel.v_network.hidden))
    twin = module.L2HMC(
        kernel.dim,
        kernel.num_steps,
        widths=widths,
        key=jax.random.key(0),
        dtype=kernel.log_step_size.dtype,
    )
    return mutant.prepare(jax.tree.unflatten(jax.tree.structure(twin), jax.tree.leaves(kernel)))


def build_lahmc(mutant: Mutant, kernel: LAHMC) -> Any:
    """The mutant around the operator of `kernel`, which is the original one."""
    return load(mutant)["lahmc"].LAHMC(kernel.operator, kernel.num_trajectories, kernel.refreshment)


def build_hmc(mutant: Mutant, *args: Any, **options: Any) -> Any:
    return load(mutant)["hmc"].HMC(*args, **options)


def build_tempering(mutant: Mutant, kernel: Any) -> Any:
    """The mutant around an operator that is made anew, since it must be one of the mutant's Metropolis kernels."""
    modules = load(mutant)
    operator = kernel.operator
    twin = modules["hmc"].HMC(operator.step_size, operator.num_steps)
    return modules["tempering"].Tempering(twin, kernel.inverse_temperatures)


def load(mutant: Mutant) -> dict[str, ModuleType]:
    """The edited kernel modules as a package of their own; everything else is the original."""
    package = "mutant_" + "".join(c if c.isalnum() else "_" for c in mutant.name)
    sources = dict(SOURCES)
    for change in (*DESCENT, *mutant.edits):
        count = sources[change.module].count(change.old)
        if count != 1:
            raise ValueError(f"{change.old!r} is {count} times in {change.module}.py, an edit needs it exactly once")
        sources[change.module] = sources[change.module].replace(change.old, change.new)
    modules = {}
    for name, source in sources.items():
        full_name = f"{package}.{name}"
        module = modules[name] = sys.modules[full_name] = ModuleType(full_name)
        exec(
            compile(source.replace("from leapling.kernels.", f"from {package}."), full_name, "exec"),
            vars(module),
        )
        for item in DATA.get(name, ()):
            setattr(module, item, getattr(sys.modules[f"leapling.kernels.{name}"], item))
    return modules


def drift(kernel: Any) -> Any:
    """Masks as training leaves them when they are numbers."""
    masks = jnp.where(kernel.masks, 0.9, 0.05).astype(kernel.log_step_size.dtype)
    return eqx.tree_at(lambda k: k.masks, kernel, masks)


IDENTITY = Mutant("nothing changed", (), ())

MUTANTS = (
    Mutant(
        "sign of log|J|",
        edit(
            "leapfrog",
            "jnp.where(phase.direction, log_jacobian, -log_jacobian)",
            "jnp.where(phase.direction, -log_jacobian, log_jacobian)",
        ),
        ("log-determinant", "invariance"),
    ),
    Mutant(
        "log|J| not negated backward",
        edit("leapfrog", "jnp.where(phase.direction, log_jacobian, -log_jacobian)", "log_jacobian"),
        ("log-determinant", "antisymmetry"),
    ),
    Mutant(
        "eps for eps/2 in the scaling of v, not in log|J|",
        edit("leapfrog", "shear(v, log_scale,", "shear(v, eps * S,"),
        ("log-determinant",),
    ),
    Mutant(
        "eps for eps/2 in log|J|, not in the scaling of v",
        edit(
            "leapfrog",
            "+ T), forward), log_scale\n\n    def update_x",
            "+ T), forward), eps * S\n\n    def update_x",
        ),
        ("log-determinant",),
    ),
    Mutant(
        "eps for eps/2 in the force, forward only",
        edit(
            "leapfrog",
            "shear(v, log_scale, -eps / 2 *",
            "shear(v, log_scale, -jnp.where(forward, eps, eps / 2) *",
        ),
        ("round trip",),
    ),
    Mutant(
        "eps for eps/2 in the scaling of v, backward only",
        edit(
            "leapfrog",
            "        log_scale = eps / 2 * S\n",
            "        log_scale = jnp.where(forward, eps / 2, eps) * S\n",
        ),
        ("round trip",),
    ),
    Mutant("backward starts with the mask itself", edit("leapfrog", "~back.mask", "back.mask"), ("round trip",)),
    Mutant(
        "time not reversed backward",
        edit("leapfrog", "jax.tree.map(lambda a: a[::-1], steps)", "steps"),
        ("round trip",),
    ),
    Mutant(
        "direction not used: always forward",
        edit(
            "leapfrog",
            "    forward = per_chain(phase.direction, phase.momentum)\n",
            "    forward = per_chain(jnp.ones_like(phase.direction), phase.momentum)\n",
        ),
        ("round trip",),
    ),
    Mutant("direction not flipped", edit("l2hmc", "~phase.direction", "phase.direction"), ("round trip",)),
    Mutant(
        "ratio swapped",
        edit("base", "proposal.log_jacobian - energy_change", "energy_change - proposal.log_jacobian"),
        ("acceptance",),
    ),
    Mutant(
        "log|J| left out of the ratio",
        edit("base", "return proposal.log_jacobian - energy_change,", "return -energy_change,"),
        ("acceptance",),
    ),
    Mutant(
        "a ratio that is not finite accepted",
        edit(
            "base",
            "jnp.minimum(jnp.where(is_finite, log_ratio, 0), 0), -jnp.inf)",
            "jnp.minimum(log_ratio, 0), 0)",
        ),
        ("acceptance",),
    ),
    Mutant(
        "one uniform for all chains",
        edit("base", "jax.random.uniform(key_accept, log_ratio.shape,", "jax.random.uniform(key_accept, (),"),
        ("acceptance",),
    ),
    Mutant(
        "cached gradient stale",
        edit(
            "base",
            "return select(is_accepted, proposal.phase.state, state), info",
            "new = select(is_accepted, proposal.phase.state, state)\n"
            "        return State(new.position, new.energy, state.gradient), info",
        ),
        ("cache",),
    ),
    Mutant(
        "cached energy stale",
        edit(
            "base",
            "return select(is_accepted, proposal.phase.state, state), info",
            "new = select(is_accepted, proposal.phase.state, state)\n"
            "        return State(new.position, state.energy, new.gradient), info",
        ),
        ("cache",),
    ),
    Mutant(
        "cached gradient not rescaled by the temperature",
        edit("leapfrog", "phase.momentum, beta * phase.state.gradient", "phase.momentum, phase.state.gradient"),
        ("temperature",),
    ),
    Mutant(
        "cached energy not rescaled by the temperature",
        edit("base", "phase.state.energy / temperature", "phase.state.energy"),
        ("temperature",),
    ),
    Mutant(
        "cache holds the tempered energy",
        edit(
            "base",
            "return select(is_accepted, proposal.phase.state, state), info",
            "new = select(is_accepted, proposal.phase.state, state)\n"
            "        return State(new.position, new.energy / energy.temperature, new.gradient), info",
        ),
        ("cache",),
    ),
    Mutant(
        "the same momentum at every step",
        edit("base", "jax.random.normal(key_momentum,", "jax.random.normal(jax.random.key(0),"),
        ("invariance",),
    ),
    Mutant(
        "the same direction at every step",
        edit(
            "base",
            "jax.random.bernoulli(key_direction, shape=state.energy.shape)",
            "jnp.ones_like(state.energy, bool)",
        ),
        ("invariance",),
    ),
    Mutant(
        "masks are numbers, and were trained",
        (
            Edit("l2hmc", "masks: Bool[Array", "masks: Float[Array"),
            Edit("leapfrog", "mask: Bool[Array", "mask: Float[Array"),
            Edit(
                "leapfrog",
                "jnp.where(forward, ahead.mask, ~back.mask)",
                "jnp.where(forward, ahead.mask, 1 - back.mask)",
            ),
            Edit("leapfrog", "update_x(x, v, ~moving, x_offset)", "update_x(x, v, 1 - moving, x_offset)"),
            Edit(
                "leapfrog",
                "x_network(jnp.where(moving, 0, x), v, offset)",
                "x_network((1 - moving) * x, v, offset)",
            ),
            Edit("leapfrog", "log_scale = jnp.where(moving, eps * S, 0)", "log_scale = moving * eps * S"),
            Edit(
                "leapfrog",
                "jnp.where(moving, shear(x, eps * S, eps * (v * jnp.exp(eps * Q) + T), forward), x)",
                "moving * shear(x, eps * S, eps * (v * jnp.exp(eps * Q) + T), forward) + (1 - moving) * x",
            ),
        ),
        ("round trip", "log-determinant"),
        drift,
    ),
)

# Another member of the same family: invertible, with the right log|J|. Not exactness tells them but the
# paper: plain leapfrog steps where S = Q = T = 0, and a scaling by exp(eps/2 S).
STILL_EXACT = (
    Mutant(
        "eps for eps/2 in the force",
        edit("leapfrog", "shear(v, log_scale, -eps / 2 *", "shear(v, log_scale, -eps *"),
        (),
    ),
    Mutant(
        "eps for eps/2 in the scaling of v and in log|J|",
        edit("leapfrog", "log_scale = eps / 2 * S", "log_scale = eps * S"),
        (),
    ),
)

LAHMC_MUTANTS = (
    Mutant(
        "one acceptance term dropped: what is left at the other end",
        edit("lahmc", "jnp.minimum(left[i, j], ratio * left[j, i])", "jnp.minimum(left[i, j], ratio)"),
        ("invariance",),
    ),
    Mutant(
        "one acceptance term dropped: the ratio",
        edit("lahmc", "jnp.minimum(left[i, j], ratio * left[j, i])", "jnp.minimum(left[i, j], left[j, i])"),
        ("invariance",),
    ),
    Mutant(
        "wrong recursion: nothing is subtracted at the other end",
        edit("lahmc", "jnp.maximum(left[j, i] - back, 0)", "left[j, i]"),
        ("invariance",),
    ),
    Mutant(
        "wrong recursion: only the last state between is subtracted at the other end",
        edit("lahmc", "jnp.maximum(left[j, i] - back, 0)", "1 - back"),
        ("invariance",),
    ),
    Mutant(
        "no flip",
        edit("lahmc", "(ahead, nothing, self.operator.flip(phase))", "(ahead, nothing, phase)"),
        ("invariance",),
    ),
    Mutant(
        "log|J| left out of the ratios",
        edit("lahmc", "weight = log_jacobian - energy_change", "weight = -energy_change"),
        ("invariance",),
    ),
    Mutant(
        "log|J| of the last trajectory alone",
        edit("lahmc", "info.log_jacobian + proposal.log_jacobian", "proposal.log_jacobian"),
        ("invariance",),
    ),
    Mutant(
        "refreshment of the wrong size",
        edit("lahmc", "jnp.sqrt(1 - beta) * phase.momentum", "(1 - beta) * phase.momentum"),
        ("invariance",),
    ),
    Mutant(
        "the operator's own flip kept",
        edit("lahmc", "there = self.operator.flip(proposal.phase)", "there = proposal.phase"),
        ("invariance",),
    ),
)
