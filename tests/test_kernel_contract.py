"""Every kernel through the same laws of the contract; exactness has files of its own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leapling.chains import sample
from leapling.energy import Energy, as_energy, tempered
from leapling.kernels import HMC, L2HMC, NICE, Phase, PositionMALA, Tempering
from leapling.kernels.base import evaluate, refresh

DIM, CHAINS = 3, 5


def l2hmc(**options):
    """Weights far from HMC: heads of order one."""
    kernel = L2HMC(DIM, 4, step_size=0.2, key=jax.random.key(0), **options)
    return eqx.tree_at(
        lambda k: (k.v_network.heads.weight, k.x_network.heads.weight),
        kernel,
        replace_fn=lambda w: 20 * w,
    )


KERNELS = {
    "HMC": lambda: HMC(0.2, 4),
    "HMC with jitter": lambda: HMC(0.2, 4, step_size_jitter=0.3, length_jitter=0.5),
    "HMC of two stages": lambda: HMC(0.3, 2, integrator="two-stage"),
    "L2HMC": l2hmc,
    "L2HMC with one context": lambda: l2hmc(context_dim=2).given(jnp.ones(2)),
    "L2HMC with a context per chain": lambda: l2hmc(context_dim=2).given(jnp.ones((2, CHAINS))),
    "NICE": lambda: NICE(DIM, 3, widths=(6,), key=jax.random.key(0)),
    "PositionMALA": lambda: PositionMALA(lambda x: 1 / jnp.sqrt(1 + x**2), 0.2),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def quartic(x):
    return 0.5 * jnp.sum(x**2) + 0.25 * jnp.sum(x**4)


def start(kernel, energy=quartic, shape=(DIM, CHAINS)):
    return kernel.init(energy, jax.random.normal(jax.random.key(1), shape))


class CountingEnergy:
    """Counts points at run time, through a host callback; values alone and values with gradients apart."""

    def __init__(self):
        self.values = self.fused = 0

        def value(x):
            self.values += x[..., 0].size
            return np.sum(x**2, -1) / 2

        def value_and_gradient(x):
            self.fused += x[..., 0].size
            return np.sum(x**2, -1) / 2, x

        @jax.custom_vjp
        def energy(x):
            return jax.pure_callback(value, jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="broadcast_all")

        def forward(x):
            shapes = (jax.ShapeDtypeStruct((), x.dtype), jax.ShapeDtypeStruct(x.shape, x.dtype))
            return jax.pure_callback(value_and_gradient, shapes, x, vmap_method="broadcast_all")

        energy.defvjp(forward, lambda gradient, ct: (ct * gradient,))
        self.energy = energy


@every_kernel
def test_m_fused_evaluations_per_transition_and_not_one_more(name):
    counting, kernel = CountingEnergy(), KERNELS[name]()
    state = jax.block_until_ready(start(kernel, counting.energy))
    assert (counting.values, counting.fused) == (0, CHAINS)
    step = eqx.filter_jit(kernel.step)
    for i in range(3):
        counting.fused = 0
        state, info = jax.block_until_ready(step(counting.energy, state, key=jax.random.key(i)))
        reported = np.asarray(info.num_gradients)
        assert (counting.values, counting.fused) == (0, reported.sum())
        assert (reported == (1 if name in ("NICE", "PositionMALA") else 4)).all() or "jitter" in name


def test_a_whole_run_is_charged_what_it_evaluates():
    counting = CountingEnergy()
    draws = sample(HMC(0.2, 4), counting.energy, num_draws=6, num_warmup=2, thin=3, num_chains=CHAINS, dim=DIM)
    assert counting.values == 0
    assert draws.num_gradients == counting.fused == CHAINS * (1 + 4 * (2 + 6 * 3))


def test_a_tempered_run_is_charged_for_every_replica():
    counting = CountingEnergy()
    kernel = Tempering(HMC(0.2, 4), [1.0, 0.5, 0.2])
    draws = sample(kernel, counting.energy, num_draws=6, num_chains=CHAINS, dim=DIM)
    assert draws.num_gradients == counting.fused == CHAINS * (1 + 6 * 3 * 4)


# Step-size jitter is drawn for the batch at once, so these two laws leave it out.
DETERMINISTIC = {**KERNELS, "HMC with jitter": lambda: HMC(0.2, 4, length_jitter=0.5)}


@every_kernel
def test_a_batch_moves_as_its_chains_would_alone(name):
    kernel, energy = DETERMINISTIC[name](), as_energy(quartic)
    phase = refresh(start(kernel), key=jax.random.key(2))
    batch = kernel.propose(energy, phase, key=jax.random.key(3))
    one_kernel = kernel.given(jnp.ones(2)) if name == "L2HMC with a context per chain" else kernel
    for i in range(CHAINS):
        alone = one_kernel.propose(energy, jax.tree.map(lambda a, i=i: a[..., i], phase), key=jax.random.key(3))
        for a, b in zip(jax.tree.leaves(alone.phase), jax.tree.leaves(batch.phase), strict=True):
            np.testing.assert_allclose(a, b[..., i], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(alone.log_jacobian, batch.log_jacobian[..., i], rtol=1e-9, atol=1e-12)


@every_kernel
def test_two_chain_axes_are_one_flattened(name):
    kernel, energy = DETERMINISTIC[name](), as_energy(quartic)
    flat = refresh(start(kernel, shape=(DIM, 6)), key=jax.random.key(2))
    square = jax.tree.map(lambda a: a.reshape(*a.shape[:-1], 2, 3), flat)
    if name == "L2HMC with a context per chain":
        contexts = jax.random.normal(jax.random.key(4), (2, 6))
        kernel, square_kernel = kernel.given(contexts), kernel.given(contexts.reshape(2, 2, 3))
    else:
        square_kernel = kernel
    moved = kernel.propose(energy, flat, key=jax.random.key(3)).phase.state.position
    moved_square = square_kernel.propose(energy, square, key=jax.random.key(3)).phase.state.position
    np.testing.assert_allclose(moved_square.reshape(DIM, 6), moved, rtol=1e-10, atol=1e-12)


@every_kernel
def test_a_non_finite_ratio_is_a_counted_rejection(name):
    def walled(x):
        return jnp.where(jnp.all(jnp.abs(x) < 2), 0.5 * jnp.sum(x**2), jnp.nan)

    kernel = KERNELS[name]()
    state = kernel.init(walled, jnp.full((DIM, CHAINS), 1.99))
    rejected = 0
    for i in range(10):
        after, info = eqx.filter_jit(kernel.step)(walled, state, key=jax.random.key(i))
        bad = ~np.asarray(info.is_accepted)
        rejected += int(np.sum(np.asarray(info.is_divergent)))
        assert np.isfinite(info.acceptance).all()
        assert not np.any(np.asarray(info.is_divergent) & np.asarray(info.is_accepted))
        for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
            assert np.array_equal(a[..., bad], b[..., bad])
            assert np.isfinite(a).all()
    assert rejected > 0


@every_kernel
def test_new_values_of_the_same_shapes_compile_nothing(name):
    kernel = KERNELS[name]()
    traces = 0

    def energy(x):
        nonlocal traces
        traces += 1
        return quartic(x)

    step = eqx.filter_jit(
        lambda kernel, temperature, state, key: kernel.step(tempered(energy, temperature), state, key=key)
    )
    state = start(kernel)
    step(kernel, jnp.asarray(1.0), state, jax.random.key(0))
    compiled = traces
    other = jax.tree.map(lambda a: a * 1.1 if eqx.is_inexact_array(a) else a, kernel)
    step(other, jnp.asarray(2.0), state, jax.random.key(1))
    assert traces == compiled > 0


@every_kernel
def test_temperature_divides_and_is_never_cached(name):
    """A step at temperature 3 from an untempered state is a step on U / 3, and leaves an untempered state."""
    kernel = KERNELS[name]()
    hot, info = kernel.step(tempered(quartic, 3.0), start(kernel), key=jax.random.key(5))
    third, info_third = kernel.step(
        lambda x: quartic(x) / 3, start(kernel, lambda x: quartic(x) / 3), key=jax.random.key(5)
    )
    np.testing.assert_allclose(hot.position, third.position, rtol=1e-10)
    np.testing.assert_allclose(info.acceptance, info_third.acceptance, rtol=1e-9)
    np.testing.assert_allclose(hot.energy, jax.vmap(quartic, -1)(hot.position), rtol=1e-12)


@every_kernel
def test_chains_may_have_temperatures_of_their_own(name):
    """Each then moves, and is accepted, as all would at its temperature."""
    kernel, temperatures = DETERMINISTIC[name](), np.array([0.5, 1.0, 1.7, 3.0, 8.0])
    end, info = kernel.step(tempered(quartic, temperatures), start(kernel), key=jax.random.key(5))
    for i, temperature in enumerate(temperatures):
        alone, alone_info = kernel.step(tempered(quartic, temperature), start(kernel), key=jax.random.key(5))
        np.testing.assert_allclose(end.position[:, i], alone.position[:, i], rtol=1e-10)
        np.testing.assert_allclose(info.acceptance[i], alone_info.acceptance[i], rtol=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 5, 8])
def test_masks_hold_half_of_the_coordinates(dim):
    masks = np.asarray(L2HMC(dim, 50, key=jax.random.key(3)).masks)
    assert masks.dtype == bool
    assert (masks.sum(axis=1) == dim // 2).all()
    if dim > 1:
        assert 0.3 < (masks.mean(axis=0) / (dim // 2 / dim)).min() < 1.7  # every coordinate has its turn


def test_momentum_and_direction_are_fresh():
    state = evaluate(quartic, jnp.zeros((DIM, 20_000)))
    first, second = (refresh(state, key=jax.random.key(i)) for i in range(2))
    assert isinstance(first, Phase)
    for phase in (first, second):
        assert abs(float(phase.momentum.mean())) < 0.03
        assert abs(float(phase.momentum.var()) - 1) < 0.03
        assert abs(float(phase.direction.mean()) - 0.5) < 0.02
    assert abs(np.corrcoef(np.ravel(first.momentum), np.ravel(second.momentum))[0, 1]) < 0.02


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: HMC(0.0), "step_size must be a finite number above 0, got 0"),
        (lambda: HMC(-1), "step_size must be a finite number above 0, got -1"),
        (lambda: HMC(float("nan")), "step_size must be a finite number above 0, got nan"),
        (lambda: HMC(0.1, 0), "num_steps must be a whole number of at least 1, got 0"),
        (lambda: HMC(0.1, 2.5), "num_steps must be a whole number of at least 1, got 2.5"),
        (lambda: HMC(0.1, 2, length_jitter=1.0), r"length_jitter must be in \[0, 1\), got 1"),
        (lambda: L2HMC(0, key=jax.random.key(0)), "dim must be at least 1, got 0"),
        (lambda: L2HMC(2, 0, key=jax.random.key(0)), "num_steps must be at least 1, got 0"),
        (lambda: L2HMC(2, widths=(), key=jax.random.key(0)), "at least one hidden layer"),
        (lambda: L2HMC(2, step_size=-0.1, key=jax.random.key(0)), "step_size must be a finite number above 0"),
        (lambda: L2HMC(2, key=jax.random.key(0)).given(jnp.ones(3)), "takes a context of size 0, got one of shape"),
        (lambda: l2hmc(context_dim=2).step(quartic, start(l2hmc()), key=jax.random.key(0)), "and has none; bind one"),
        (lambda: Energy(lambda x: x).value_and_grad(jnp.ones(2)), r"array of shape \(2,\) .* must return a scalar"),
    ],
)  # fmt: skip
def test_bad_construction_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
