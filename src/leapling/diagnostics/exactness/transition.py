"""The laws of one step: the accept decision, what the new state caches, and what a temperature means."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from leapling.diagnostics.exactness.altered import Altered
from leapling.diagnostics.exactness.report import Law, not_run
from leapling.diagnostics.exactness.subject import Subject, begin, precision
from leapling.energy import Energy
from leapling.kernels import State, cast

NUM_STEPS = 3
MAX_Z = 6.0  # of the number of acceptances against the sum of their probabilities


class _Witness:
    """Stands in for the kernel within its own `step`, and remembers what was proposed from where."""

    def __init__(self, kernel: Any):
        self.kernel = kernel
        self.seen = []

    def __getattr__(self, name: str):
        return getattr(self.kernel, name)

    def propose(self, energy, phase, *, key):
        proposal = self.kernel.propose(energy, phase, key=key)
        self.seen.append((phase, proposal))
        return proposal


@eqx.filter_jit
def _advance(kernel: Any, function: Callable, temperature: Array, state: State, key: Array):
    """One step, beside everything about it that can be computed without trusting it."""
    witness = _Witness(kernel)
    new, info = type(kernel).step(witness, Energy(function, temperature), state, key=key)
    fresh_energy, fresh_gradient = jax.vmap(jax.value_and_grad(function), in_axes=-1, out_axes=-1)(new.position)
    result = {
        "old": state.position,
        "new": new.position,
        "energy": new.energy,
        "gradient": new.gradient,
        "fresh_energy": fresh_energy,
        "fresh_gradient": fresh_gradient,
        "acceptance": info.acceptance,
        "is_accepted": info.is_accepted,
        "proposal": info.proposal.position,
    }
    if witness.seen:
        phase, proposal = witness.seen[-1]
        energy = jax.vmap(function, in_axes=-1, out_axes=-1)
        potential = (energy(info.proposal.position) - energy(state.position)) / temperature
        kinetic = jnp.sum(proposal.phase.momentum**2 - phase.momentum**2, axis=0) / 2
        result["log_ratio"] = proposal.log_jacobian - potential - kinetic
        result["size"] = 1 + jnp.abs(energy(state.position)) + jnp.sum(phase.momentum**2, axis=0)
    return new, result


class _Runner:
    """Steps of the kernel on alterations of its energy, in one precision, on one compilation."""

    def __init__(self, subject: Subject, num_chains: int):
        self.dtype = subject.finest
        self.subject = subject
        with precision(self.dtype):
            self.kernel = cast(subject.kernel, self.dtype)
        self.position = subject.points(num_chains)

    def run(self, purpose: str, *, temperature: float = 1.0, num_steps: int = 1, position=None, **alteration):
        """What every step of a short run did. The same purpose draws the same random numbers."""
        with precision(self.dtype):
            function = cast(Altered(self.subject.function, **alteration), self.dtype)
            position = jnp.asarray(self.position if position is None else position, self.dtype)
            state = begin(self.kernel, function, position, self.subject.key(f"{purpose} init"))
            steps = []
            for i in range(num_steps):
                key = self.subject.key(f"{purpose} {i}")
                state, step = _advance(self.kernel, function, jnp.asarray(temperature, self.dtype), state, key)
                steps.append({name: np.asarray(value) for name, value in step.items()})
        return {name: np.concatenate([step[name] for step in steps], axis=-1) for name in steps[0]}


@np.errstate(invalid="ignore", over="ignore")
def transition_laws(subject: Subject, names: tuple[str, ...], num_chains: int) -> list[Law]:
    """Acceptance, cache and temperature."""
    runner = _Runner(subject, num_chains)
    # Rounding in U is relative to the terms it is summed from, and these laws are about formulas.
    tolerance = float(np.finfo(runner.dtype).eps ** 0.5)
    plain = runner.run("steps", num_steps=NUM_STEPS)
    hot = runner.run("tempered", temperature=2.0)
    laws = []
    if "acceptance" in names:
        laws.append(_acceptance(runner, [plain, hot], tolerance))
    if "cache" in names:
        laws.append(_cache([plain, hot], tolerance))
    if "temperature" in names:
        halved = runner.run("tempered", factor=0.5)
        error = np.concatenate(
            [
                np.max(_relative(hot["new"], halved["new"]), axis=0),
                np.abs(hot["acceptance"] - halved["acceptance"]),
            ]
        )
        text = f"a step at temperature 2 against one of U / 2 with the same key; {num_chains} chains"
        laws.append(_law("temperature", error, tolerance, text))
    return laws


def _acceptance(runner: _Runner, runs: list[dict], tolerance: float) -> Law:
    if "log_ratio" not in runs[0]:
        return not_run("acceptance", "the kernel does not propose and accept within its step", required=False)
    # A wall through the middle of the target, the energy behind it NaN or infinite: nothing may enter.
    middle = np.median(runner.position[0])
    outside = runner.position[0] > middle
    inside = np.where(outside[None], runner.position[:, ~outside][:, [0]], runner.position)
    walls = [runner.run(f"wall {value}", wall=middle, wall_value=value, position=inside) for value in (np.nan, np.inf)]
    num_refused = sum(int(np.sum(~np.isfinite(run["log_ratio"]))) for run in walls)
    runs = [*runs, *walls]
    merged = {name: np.concatenate([run[name] for run in runs], axis=-1) for name in ("log_ratio", "size")}
    acceptance = np.concatenate([run["acceptance"] for run in runs])
    accepted = np.concatenate([run["is_accepted"] for run in runs])
    ratio = np.where(np.isfinite(merged["log_ratio"]), merged["log_ratio"], -np.inf)
    error = np.abs(acceptance - np.exp(np.minimum(ratio, 0))) / merged["size"]
    # The decision itself: sure where the probability is 0, and in each step as frequent as it says elsewhere.
    error = np.where((acceptance == 0) & accepted, 1.0, error)
    by_step = (-1, runner.position.shape[1])
    variance = np.sum((acceptance * (1 - acceptance)).reshape(by_step), axis=1)
    # A few rare events are not normal: no deviation is counted as less than two of them.
    excess = np.sum((accepted - acceptance).reshape(by_step), axis=1) / np.sqrt(np.maximum(variance, 4))
    excess = float(np.max(np.abs(excess)))
    text = (
        f"min(1, exp(log ratio)) recomputed against what step reports; {error.size} steps, "
        f"{num_refused} into NaN or infinity, acceptances at most {excess:.1f} standard deviations off"
    )
    law = _law("acceptance", error, tolerance, text)
    return law if excess <= MAX_Z else Law(law.name, "failed", law.measured, law.tolerance, text)


def _cache(runs: list[dict], tolerance: float) -> Law:
    errors, count = [], 0
    for run in runs:
        errors += [
            np.abs(run["energy"] - run["fresh_energy"]) / np.maximum(1, np.abs(run["fresh_energy"])),
            np.max(np.abs(run["gradient"] - run["fresh_gradient"]), axis=0)
            / np.maximum(1, np.max(np.abs(run["fresh_gradient"]), axis=0)),
        ]
        if "log_ratio" in run:  # exactly: a chain is where it was or where it was proposed to go
            chosen = np.where(run["is_accepted"], run["proposal"], run["old"])
            errors.append(np.max(np.abs(run["new"] - chosen), axis=0))
        count += run["is_accepted"].size
    text = f"cached U and gradient against fresh ones, and the state chosen; {count} steps at temperatures 1, 2"
    return _law("cache", np.concatenate(errors), tolerance, text)


def _relative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(a - b) / np.maximum(1, np.abs(b))


def _law(name: str, error: np.ndarray, tolerance: float, text: str) -> Law:
    worst = float(np.nan_to_num(error, nan=np.inf, posinf=np.inf).max())
    return Law(name, "passed" if worst <= tolerance else "failed", worst, tolerance, text)
