"""Wrong objectives: the source of the right one with one edit each, and the law that must see it."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.kernels import L2HMC, Info, State
from leapling.kernels.base import evaluate
from leapling.targets import DiagonalGaussian

X, Y = (jax.random.normal(jax.random.key(i), (2, 6)) for i in (0, 1))
RATES = jnp.asarray([0.1, 0.4, 1.0, 0.7, 0.9, 0.0])


def load(name: str, old: str, new: str) -> Any:
    """A module of `leapling.training`, edited."""
    source = Path(str(import_module(f"leapling.training.{name}").__file__)).read_text()
    assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in {name}.py"
    full_name = f"mutant_{name}"
    module = sys.modules[full_name] = ModuleType(full_name)
    exec(compile(source.replace(old, new), full_name, "exec"), vars(module))
    return module


def transition(proposal, rates) -> tuple[State, Info]:
    none, two = jnp.zeros(6), jnp.full(6, 2, jnp.int32)
    energy = jnp.sum(proposal**2, axis=0) / 2
    start = State(X, jnp.sum(X**2, axis=0) / 2, X)
    return start, Info(rates, rates > 0, State(proposal, energy, X), none, none, none > 0, two)


def dependence_by_hand(x, y) -> float:
    """The definition: over all ordered choices of four chains, of k_ij (l_ij + l_qr - 2 l_iq)."""
    whitened = [(a - np.mean(x, 1, keepdims=True)) / np.std(x, 1, keepdims=True) for a in (x, y)]
    distances = [np.sum((a[:, :, None] - a[:, None]) ** 2, axis=0) for a in whitened]
    k, l = (np.exp(-d / (2 * np.median(distances[0]))) for d in distances)  # noqa: E741
    choices = [c for c in np.ndindex(6, 6, 6, 6) if len(set(c)) == 4]
    return float(np.mean([k[i, j] * (l[i, j] + l[q, r] - 2 * l[i, q]) for i, j, q, r in choices]))


def hsic(module) -> bool:
    """The average over every outcome of the accept decisions."""
    expected = 0.0
    for bits in range(64):
        accepted = (bits >> np.arange(6)) % 2 == 1
        probability = float(np.prod(np.where(accepted, RATES, 1 - RATES)))
        expected += probability and probability * dependence_by_hand(np.asarray(X), np.where(accepted, Y, X))
    expected /= dependence_by_hand(np.asarray(X), np.asarray(X))
    return bool(np.isclose(module.HSIC()(*transition(Y, RATES)), expected, rtol=1e-8))


def jumps(module) -> bool:
    start, info = transition(Y, RATES)
    after = np.asarray(info.proposal.energy)
    energy = -np.mean(RATES * (after - start.energy) ** 2) / np.var(start.energy)
    centre = np.mean(X, axis=1, keepdims=True)
    change = np.sum((Y - centre) ** 2, axis=0) - np.sum((X - centre) ** 2, axis=0)
    radius = -np.mean(RATES * change**2) / 4 / 2
    found = (module.EnergyJump()(start, info), module.ChEES()(start, info))
    return bool(np.allclose(found, (energy, radius), rtol=1e-10))


def log_det(module) -> bool:
    """Value and gradient over a full set of probes."""
    matrix, at = jnp.asarray([[1.0, 0.8], [-0.2, 0.5]]), jnp.ones((2, 1))

    def estimate(matrix, row):
        probe = (jnp.eye(2)[row] * 2**0.5)[:, None]
        maps = (lambda y: jnp.matmul(matrix, y)), (lambda y: jnp.matmul(jax.lax.stop_gradient(matrix), y))
        return module.log_det_estimate(*maps, at, jnp.ones(1, bool), probe=probe, num_terms=2)[0]

    values, slopes = jax.vmap(jax.value_and_grad(estimate), (None, 0))(matrix, jnp.arange(2))
    value, slope = jnp.log(0.66), jnp.linalg.inv(matrix).T
    return bool(np.allclose(jnp.mean(values), value)) and bool(np.allclose(jnp.mean(slopes, 0), slope))


def entropy(module) -> bool:
    """One leapfrog step has dx'/dv = eps, whatever the start and the direction."""
    target = DiagonalGaussian(np.array([1.0, 0.3]))
    start = evaluate(target, X)
    kernel = L2HMC(2, 1, step_size=0.9, heads="", key=jax.random.key(0))
    _, info = module.Entropy(2.0).observe(kernel, target, start, key=jax.random.key(2))
    expected = -jnp.mean(jnp.log(info.acceptance)) - 2 * np.log(0.9)
    return bool(np.isclose(module.Entropy(2.0)(start, info), expected, rtol=1e-9))


MUTANTS = {
    "chains that refuse are lost": (hsic, "rest = 1 - sum(", "rest = 0 * sum("),
    "the pairs of a chain with itself count": (hsic, "(1 - jnp.eye(n, dtype=a.dtype))", "1"),
    "one term of three left out": (hsic, " + jnp.sum(k) * jnp.sum(l) / ((n - 1) * (n - 2))", ""),
    "the bandwidth a distance, not its square": (hsic, "jax.lax.stop_gradient(jnp.median(", "jnp.sqrt(jnp.median("),
    "energies in standard deviations": (jumps, "jnp.var(start.energy)", "jnp.std(start.energy)"),
    "no centre": (jumps, "state.position - centre", "state.position"),
    "for each transition, not each gradient": (jumps, "-change / 4 / jnp.mean(", "-change / 4 + 0 * jnp.mean("),
    "the root of the determinant": (log_det, "value = length**2", "value = length"),
    "J e for J^-T e": (log_det, "first / singular)", "first * singular)"),
    "no second diagonal": (log_det, "+ above", "+ 0 * above"),
    "a probe that is not orthogonal": (log_det, "for _ in range(2):", "for _ in range(0):"),
    "the entropy of all coordinates": (entropy, " / start.position.shape[0]", ""),
    "the determinant of the kernel": (entropy, "log_det=spread", "log_det=info.log_jacobian"),
    "the sign of the entropy": (entropy, " - self.beta", " + self.beta"),
}
MODULES = {hsic: "hsic", jumps: "jumps", log_det: "log_det", entropy: "entropy"}


@pytest.mark.parametrize("law", MODULES, ids=lambda law: law.__name__)
def test_the_law_holds(law):
    assert law(import_module(f"leapling.training.{MODULES[law]}"))


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mistake_is_seen(name):
    law, old, new = MUTANTS[name]
    assert not law(load(MODULES[law], old, new))
