"""L2HMC is the kernel of Levy et al. 2018: against the paper transcribed, autodiff, HMC and itself."""

import dataclasses
from functools import partial
from operator import attrgetter
from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from reference_l2hmc import REAL, Reference
from reference_l2hmc import loss as paper_loss

from leapling.energy import as_energy, tempered
from leapling.kernels import HMC, L2HMC, MetropolisKernel, Phase, Proposal, base, cast
from leapling.training.objectives import Jump

KEY = jax.random.key(0)
CHAINS = 16
evaluate = eqx.filter_jit(base.evaluate)
to_dtype = eqx.filter_jit(cast)
SCALE = 0.7  # the loss's lambda

# dim (1 has empty masks), steps, size of the context, whether each chain has a context of its own.
SETTINGS = [
    (1, 10, 2, True),
    (2, 5, 0, False),
    (3, 10, 0, False),
    (4, 1, 2, False),
    (5, 10, 2, False),
    (6, 5, 0, False),
    (7, 1, 0, False),
    (8, 10, 0, False),
]
NUM_KERNELS = 8
MIN_NOT_PRESERVING = 30  # cases of each setting with |log|J|| above 1


def representable(value):
    """Rounded to float32, so that casting the kernel later changes its arithmetic alone."""
    return jnp.asarray(np.asarray(value, np.float32).astype(float))


class Ripples(eqx.Module):
    """A quadratic with ripples, whose NumPy side is written by hand."""

    A: Float[Array, "dim dim"]
    w: Float[Array, " dim"]
    c: Float[Array, " dim"]

    def __init__(self, dim, rng):
        B = rng.normal(size=(dim, dim))
        self.A = representable(B @ B.T / dim + 0.3 * np.eye(dim))
        self.w = representable(rng.normal(size=dim))
        self.c = representable(rng.normal(size=dim))

    def __call__(self, x):
        return 0.5 * x @ self.A @ x + jnp.sum(self.c * jnp.cos(self.w * x))

    def U(self, x):
        A, w, c = (np.asarray(a, REAL) for a in (self.A, self.w, self.c))
        return x @ A @ x / 2 + np.sum(c * np.cos(w * x))

    def grad_U(self, x):
        A, w, c = (np.asarray(a, REAL) for a in (self.A, self.w, self.c))
        return A @ x - c * w * np.sin(w * x)


def make(rng, dim, steps, context=0, per_chain=False, *, step_size, log_scale=0.0, chains=(CHAINS,)):
    """A kernel with large random weights in every array, an energy, and phases of both directions."""

    def draw(path, leaf):
        name = jax.tree_util.keystr(path)
        if name == ".masks":
            return jnp.asarray(rng.permuted(np.tile(np.arange(dim) < dim // 2, (steps, 1)), axis=1))
        if name == ".log_step_size":
            return representable(np.log(eps))
        # Hidden units are shifted so that few are dead, and a dead one would hide what feeds it.
        mean = 0.5 if name.endswith(".bias") and "heads" not in name else 0
        mean = log_scale if name.endswith("log_scale_s") else mean
        scale = 0.5 if leaf.ndim == 1 else np.sqrt(1.3 / leaf.shape[1])
        return representable(mean + scale * rng.normal(size=leaf.shape))

    eps = jnp.asarray(step_size)
    blank = eqx.filter_eval_shape(L2HMC, dim, steps, widths=(8, 7), step_size=eps, context_dim=context, key=KEY)
    kernel = jax.tree_util.tree_map_with_path(draw, blank)
    if context:
        kernel = kernel.given(representable(rng.normal(size=(context, *(chains if per_chain else ())))))
    energy = tempered(Ripples(dim, rng), jnp.asarray(rng.choice([1.0, 1.75])))
    x, v = (representable(rng.normal(size=(dim, *chains))) for _ in "xv")
    direction = jnp.asarray(np.arange(np.prod(chains, dtype=int)).reshape(chains) % 2 == 0)
    return kernel, energy, Phase(evaluate(energy, x), v, direction)


class Recorded(MetropolisKernel):
    """A proposal already made, for the accept step."""

    proposal: Proposal

    def propose(self, energy, phase, *, key):
        return self.proposal


def step_from(kernel, energy, phase):
    """`step`, with the momentum and the direction given in place of drawn."""
    with mock.patch.object(base, "refresh", return_value=phase):
        return kernel.step(energy, phase.state, key=KEY)[1]


@eqx.filter_jit
def run(kernel, energy, phase):
    proposal = kernel.propose(energy, phase, key=KEY)
    info = step_from(Recorded(proposal), energy, phase)
    return proposal, info, Jump(scale=SCALE).losses(phase.state, info)


def reference(kernel, energy, chain) -> Reference:
    def weights(network):
        named = {"W1": network.first, "W2": network.second, "W3": network.time, "b": network.bias}
        for i, layer in enumerate(network.hidden, 4):
            named |= {f"W{i}": layer.weight, f"b{i}": layer.bias}
        for i, head in enumerate("sqt"):
            rows = slice(i * kernel.dim, (i + 1) * kernel.dim)
            named |= {f"W_{head}": network.heads.weight[rows], f"b_{head}": network.heads.bias[rows]}
        named |= {"log_lambda_s": network.log_scale_s, "log_lambda_q": network.log_scale_q}
        return named | ({} if network.context is None else {"W_c": network.context})

    context = kernel.context if kernel.context is None or kernel.context.ndim == 1 else kernel.context[:, chain]
    return Reference(
        {"v": weights(kernel.v_network), "x": weights(kernel.x_network)},
        kernel.masks,
        np.exp(REAL(kernel.log_step_size)),
        energy.function.U,
        energy.function.grad_U,
        energy.temperature,
        context,
    )


def scaled(error, value):
    """Largest error, relative to max(1, |value|)."""
    return np.max(np.abs(np.asarray(error)) / np.maximum(1, np.abs(np.asarray(value))))


def disagreement(kernel, energy, phase, chains=None) -> dict[str, float]:
    """The largest difference between kernel and paper for each output."""
    proposal, info, loss = run(kernel, energy, phase)
    ours = {
        "x": proposal.phase.state.position,
        "v": proposal.phase.momentum,
        "log|J|": info.log_jacobian,
        "log A": jnp.minimum(info.log_jacobian - info.energy_change, 0),
        "A": info.acceptance,
        "loss": loss,
    }
    if phase.direction.ndim == 0:
        ours = {name: value[..., None] for name, value in ours.items()}
        phase = jax.tree.map(lambda leaf: leaf[..., None], phase)
    assert np.all(proposal.phase.direction == ~phase.direction.reshape(proposal.phase.direction.shape))
    worst = dict.fromkeys(ours, 0.0)
    for chain in range(phase.direction.shape[0]) if chains is None else chains:
        paper = reference(kernel, energy, chain)
        x, v = phase.state.position[:, chain], phase.momentum[:, chain]
        d = 1 if phase.direction[chain] else -1
        new_x, new_v, log_J = paper.propose(x, v, d)
        log_A = paper.log_A(x, v, new_x, new_v, log_J)
        A = np.exp(log_A)
        theirs = (new_x, new_v, log_J, log_A, A, paper_loss(x, new_x, A, SCALE))
        for name, value in zip(ours, theirs, strict=True):
            error = scaled(np.asarray(ours[name][..., chain], REAL) - value, value)
            worst[name] = max(worst[name], float(error))
    return worst


# With these step sizes cond(J) is small enough for float64 to resolve 1e-12.
STEP_SIZE = {1: 0.4, 2: 0.4, 5: 0.15, 10: 0.05}


@pytest.mark.parametrize("setting", [*SETTINGS, (3, 2, 3, True)])
def test_agrees_with_the_paper(setting):
    rng = np.random.default_rng(setting)
    for _ in range(2):
        kernel, energy, phase = make(rng, *setting, step_size=STEP_SIZE[setting[1]])
        _, info, _ = run(kernel, energy, phase)
        assert np.max(np.abs(info.log_jacobian)) > 0.1
        assert np.any((np.asarray(info.acceptance) > 1e-3) & (np.asarray(info.acceptance) < 1))
        assert max(disagreement(kernel, energy, phase).values()) < 1e-12


@pytest.mark.parametrize("setting", [(1, 1, 0), (4, 5, 2)])
def test_one_chain_agrees_with_the_paper(setting):
    kernel, energy, phase = make(np.random.default_rng(setting), *setting, step_size=0.2, chains=())
    for direction in (True, False):
        one = Phase(phase.state, phase.momentum, jnp.asarray(direction))
        assert max(disagreement(kernel, energy, one).values()) < 1e-12


def perturbations(kernel, rng):
    """Every array of the kernel, one at a time, and the parts of them that have a name in the paper."""

    def nudged(path: str, part: Any = ...):
        """The kernel with +-0.1 added to `part` of the array at `path`."""

        def nudge(leaf):
            changed = np.array(leaf)
            changed[part] += 0.1 * rng.choice([-1, 1], size=changed[part].shape)
            return jnp.asarray(changed)

        return eqx.tree_at(attrgetter(path), kernel, replace_fn=nudge)

    yield "log_step_size", nudged("log_step_size")
    yield "context", nudged("context")
    for t in range(kernel.num_steps):
        masks = np.array(kernel.masks)
        masks[t] = ~masks[t]
        yield f"masks of {t}", eqx.tree_at(attrgetter("masks"), kernel, jnp.asarray(masks))
    for net in ("v_network", "x_network"):
        for name in ("first", "second", "context", "bias", "log_scale_s", "log_scale_q"):
            yield f"{net}.{name}", nudged(f"{net}.{name}")
        yield f"{net}.time of cos", nudged(f"{net}.time", np.s_[:, 0])
        yield f"{net}.time of sin", nudged(f"{net}.time", np.s_[:, 1])
        for part in ("weight", "bias"):
            layer = eqx.tree_at(
                attrgetter(part),
                getattr(kernel, net).hidden[0],
                replace_fn=lambda a: jnp.asarray(np.array(a) + 0.1),
            )
            yield f"{net}.hidden.{part}", eqx.tree_at(attrgetter(f"{net}.hidden"), kernel, (layer,))
            for i, head in enumerate("SQT"):
                rows = np.s_[i * kernel.dim : (i + 1) * kernel.dim]
                yield f"{net}.heads.{part} of {head}", nudged(f"{net}.heads.{part}", rows)


@pytest.mark.parametrize("setting", [(1, 10, 2, True), (5, 10, 2, False)])
def test_every_array_matters_and_is_where_the_paper_has_it(setting):
    rng = np.random.default_rng(7)
    kernel, energy, phase = make(rng, *setting, step_size=STEP_SIZE[10])
    forward = np.asarray(phase.direction)
    before = np.concatenate(coordinates(run(kernel, energy, phase)[0].phase))
    # With one coordinate one half of each x update moves nothing, and the other sees no position.
    idle = {"x_network.first", *(f"masks of {t}" for t in range(10))} if kernel.dim == 1 else set()
    touched = jax.tree.map(lambda leaf: np.zeros(leaf.shape, bool), kernel)
    for name, changed in perturbations(kernel, rng):
        touched = jax.tree.map(lambda t, a, b: t | (np.asarray(a) != np.asarray(b)), touched, kernel, changed)
        change = np.abs(np.concatenate(coordinates(run(changed, energy, phase)[0].phase)) - before)
        for chains in (forward, ~forward):  # both directions must feel it
            largest = np.max(change[:, chains])
            assert (largest == 0) if name in idle else (largest > 1e-6), name
        assert max(disagreement(changed, energy, phase, chains=range(4)).values()) < 1e-12, name
    assert all(np.all(leaf) for leaf in jax.tree.leaves(touched))

    force = eqx.tree_at(lambda e: e.function.w, energy, replace_fn=lambda w: w + 0.1)
    phase = Phase(evaluate(force, phase.state.position), phase.momentum, phase.direction)
    change = np.abs(np.concatenate(coordinates(run(kernel, force, phase)[0].phase)) - before)
    assert np.min(np.max(change, axis=0)) > 1e-6
    assert max(disagreement(kernel, force, phase).values()) < 1e-12


# Compiling is nearly all that this costs.
@partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
def jacobians(kernel, energy, phase):
    """d(x', v') / d(x, v) of each chain, in reverse mode: the kernel's gradient guard has no forward one."""
    x, v = phase.state.position, phase.momentum
    dim = x.shape[0]

    def propose(xv):
        moved = Phase(base.evaluate(energy, xv[:dim]), xv[dim:], phase.direction)
        return jnp.concatenate(coordinates(kernel.propose(energy, moved, key=KEY).phase))

    _, pull = jax.vjp(propose, jnp.concatenate([x, v]))
    # Chains do not meet, so one pull of a row for all chains is that row of every chain's Jacobian.
    rows = jnp.broadcast_to(jnp.eye(2 * dim)[:, :, None], (2 * dim, 2 * dim, x.shape[1]))
    return jnp.moveaxis(jax.vmap(lambda row: pull(row)[0])(rows), -1, 0)


def coordinates(phase):
    return phase.state.position, phase.momentum


@pytest.mark.parametrize("setting", SETTINGS)
def test_involution_and_log_jacobian(setting):
    """Errors, relative to max(1, |value|), are at most 100 machine epsilons times cond(J)."""
    assert len(SETTINGS) * MIN_NOT_PRESERVING >= 200
    rng = np.random.default_rng(setting)
    num_not_preserving = 0
    for step_size in np.linspace(0.1, 0.5, NUM_KERNELS):
        case = make(rng, *setting, step_size=step_size, log_scale=1.0 if setting[1] == 1 else 0.0)
        J = np.asarray(jacobians(*case))
        log_det = np.linalg.slogdet(J)[1]
        inverse_norm = 1 / np.linalg.svd(J)[1][:, -1]
        for dtype in (jnp.float32, jnp.float64):
            eps = np.finfo(dtype).eps
            bound = 100 * eps * np.linalg.cond(J)
            kernel, energy, phase = case if dtype == jnp.float64 else to_dtype(case, dtype)
            there, _, _ = run(kernel, energy, phase)
            back, _, _ = run(kernel, energy, there.phase)
            assert there.log_jacobian.dtype == back.phase.momentum.dtype == dtype

            assert np.all(there.phase.direction != phase.direction)
            assert np.all(back.phase.direction == phase.direction)
            start, end, returned = (
                np.concatenate(coordinates(p)).astype(float) for p in (phase, there.phase, back.phase)
            )
            error = np.abs(returned - start)
            assert np.all(error / np.maximum(1, np.abs(start)) <= bound)
            # What rounding (x', v') costs on the way back: contraction and shift count here, not in cond(J).
            assert np.all(error <= 100 * eps * inverse_norm * np.maximum(1, np.abs(end).max(axis=0)))

            for log_jacobian in (there.log_jacobian, -back.log_jacobian):
                error = np.abs(np.asarray(log_jacobian, float) - log_det)
                assert np.all(error / np.maximum(1, np.abs(log_det)) <= bound)
            if dtype == jnp.float32:  # counted only where even this bound says something
                num_not_preserving += np.sum((np.abs(log_det) > 1) & (bound < 0.1))
    assert num_not_preserving >= MIN_NOT_PRESERVING


@eqx.filter_jit
def run_hmc(kernel, energy, phase):
    return kernel.propose(energy, phase, key=KEY)


@pytest.mark.parametrize("setting", SETTINGS)
def test_zero_heads_are_hmc(setting):
    kernel, energy, phase = make(np.random.default_rng(setting), *setting, step_size=0.3)
    for net in ("v_network", "x_network"):
        no_heads = jax.tree.map(jnp.zeros_like, getattr(kernel, net).heads)
        kernel = eqx.tree_at(attrgetter(f"{net}.heads"), kernel, no_heads)
    ours, _, _ = run(kernel, energy, phase)
    # HMC negates the momentum when it ends. For d = -1 it starts from -v, and twice negated is not at all.
    sign = jnp.where(phase.direction, 1.0, -1.0)[None]
    hmc = HMC(step_size=kernel.step_size, num_steps=setting[1])
    theirs = run_hmc(hmc, energy, Phase(phase.state, sign * phase.momentum, phase.direction))
    for name, a, b in [
        ("position", ours.phase.state.position, theirs.phase.state.position),
        ("momentum", ours.phase.momentum, -sign * theirs.phase.momentum),
        ("energy", ours.phase.state.energy, theirs.phase.state.energy),
        ("gradient", ours.phase.state.gradient, theirs.phase.state.gradient),
    ]:
        assert scaled(a - b, b) < 1e-12, name
    assert np.all(ours.log_jacobian == 0)
    moved = np.abs(ours.phase.state.position - phase.state.position)
    assert np.min(np.max(moved, axis=0)) > 1e-3


class Cliff(eqx.Module):
    """A normal with something bad beyond x[0] = 1. One formula for all kinds: one compilation."""

    jump: Array
    slope: Array
    curvature: Array
    double_exp: Array
    log: Array
    root: Array

    def __call__(self, x):
        over = x[0] - 1
        steep = jnp.where(over > 0, self.jump + self.slope * over + self.curvature * over**2, 0)
        double_exp = jnp.exp(jnp.exp(self.double_exp * over))
        undefined = -jnp.log(1 - self.log * over) - jnp.sqrt(1 - self.root * over)
        return jnp.sum(x**2) / 2 + steep + double_exp + undefined


CLIFFS = [
    {"jump": np.inf},
    {"jump": np.nan},
    {"log": 20.0},  # the energy is NaN, the force is finite
    {"root": 20.0},  # both are NaN
    {"double_exp": 10.0},  # both overflow
    {"slope": 1e308},
    {"curvature": 1e200},
    {"curvature": -1e150},  # thrown outward, to an energy of -inf
    {"curvature": 1e6},  # finite, and hopeless
]


@eqx.filter_jit
@eqx.filter_value_and_grad(has_aux=True)
def total_loss(kernel, energy, phase):
    info = step_from(kernel, energy, phase)
    return jnp.sum(Jump(scale=SCALE).losses(phase.state, info)), info


@pytest.mark.parametrize("dim", [1, 3])
def test_a_diverged_chain_leaves_the_gradient_of_the_others_alone(dim):
    for i, kind in enumerate(CLIFFS):
        rng = np.random.default_rng([dim, i])
        kernel, _, phase = make(rng, dim, 5, step_size=0.1)
        x = phase.state.position.at[0].set(jnp.asarray(rng.uniform(0.5, 0.95, CHAINS)))
        cliff = Cliff(*(jnp.asarray(kind.get(field.name, 0.0)) for field in dataclasses.fields(Cliff)))
        energy = tempered(cliff, jnp.asarray(1.0))
        phase = Phase(evaluate(energy, x), 3 * phase.momentum, phase.direction)
        (_, info), _ = total_loss(kernel, energy, phase)
        bad = np.flatnonzero(info.is_divergent)
        good = [c for c in np.argsort(-info.acceptance) if not info.is_divergent[c]][:4]
        assert len(bad) > 0, kind
        assert len(good) == 4, kind

        # Four good chains among bad ones, which are repeated to fill a batch of the shape already compiled.
        chosen = np.concatenate([good, np.resize(bad, CHAINS - 4)])
        mixed = jax.tree.map(lambda leaf, chosen=chosen: leaf[..., chosen], phase)
        (_, info), gradient = total_loss(kernel, energy, mixed)
        assert np.all(info.is_divergent[4:])
        assert np.all(info.acceptance[4:] == 0)
        assert not np.any(info.is_accepted[4:])
        assert np.max(info.acceptance[:4]) > 1e-3

        # The good chains alone, four times over, which again is the shape already compiled.
        _, alone = total_loss(kernel, energy, jax.tree.map(lambda leaf: leaf[..., np.arange(CHAINS) % 4], mixed))
        for (path, ours), expected in zip(
            jax.tree_util.tree_leaves_with_path(gradient), jax.tree.leaves(alone), strict=True
        ):
            assert np.all(np.isfinite(ours)), (kind, jax.tree_util.keystr(path))
            assert scaled(4 * ours - expected, expected) < 1e-10, (kind, jax.tree_util.keystr(path))
        assert max(np.max(np.abs(leaf)) for leaf in jax.tree.leaves(alone)) > 1e-2


def quadratic(x):
    return jnp.sum(x**2) / 2


@pytest.mark.parametrize(
    ("kernel_dtype", "dtype", "shape", "message"),
    [
        (jnp.float32, jnp.float64, (3, 4), "kernel is float32 and the positions are float64"),
        (jnp.float64, jnp.float32, (3, 4), "kernel is float64 and the positions are float32"),
        (jnp.float64, jnp.float64, (2, 4), "made for 3 coordinates"),
        (jnp.float64, jnp.float64, (4,), "made for 3 coordinates"),
    ],
)
def test_refuses_positions_it_was_not_made_for(kernel_dtype, dtype, shape, message):
    def propose(x, eps):
        kernel = L2HMC(3, 2, step_size=eps, key=KEY, dtype=kernel_dtype)
        phase = Phase(base.evaluate(quadratic, x), x, jnp.ones(shape[1:], bool))
        return kernel.propose(as_energy(quadratic), phase, key=KEY)

    def step(x, eps):
        kernel = L2HMC(3, 2, step_size=eps, key=KEY, dtype=kernel_dtype)
        return kernel.step(quadratic, kernel.init(quadratic, x), key=KEY)

    for attempt in (propose, step):  # traced, not compiled
        with pytest.raises(ValueError, match=message):
            eqx.filter_eval_shape(attempt, jnp.ones(shape, dtype), jnp.asarray(0.1))


@pytest.mark.parametrize(
    ("energy", "message"),
    [
        (lambda x: x**2, "must return a scalar"),
        (lambda x: jnp.sum(x**2, keepdims=True), "must return a scalar"),
        (lambda x: jnp.sum(x.astype(jnp.float32) ** 2), "returned float32 for a float64 position"),
    ],
)
@pytest.mark.parametrize("chains", [(), (4,)])
def test_refuses_an_energy_of_another_shape_or_dtype(energy, message, chains):
    def init(x, eps):
        return L2HMC(3, 2, step_size=eps, key=KEY).init(energy, x)

    def step(x, eps):
        kernel = L2HMC(3, 2, step_size=eps, key=KEY)
        return kernel.step(energy, kernel.init(quadratic, x), key=KEY)

    for attempt in (init, step):
        with pytest.raises(ValueError, match=message):
            eqx.filter_eval_shape(attempt, jnp.ones((3, *chains)), jnp.asarray(0.1))
