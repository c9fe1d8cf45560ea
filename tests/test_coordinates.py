"""Maps of coordinates: there and back, their volumes and gradients against autodiff, and whitening by draws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flows import bent, unit

from leapling.coordinates import Affine, LowRank, Pulled, whitened_by, whitening
from leapling.coordinates.base import pull, push
from leapling.coordinates.flow import Flow
from leapling.kernels import cast
from leapling.kernels.base import evaluate
from leapling.targets import scg

RANDOM = np.random.default_rng(0)
DIM = 3
AFFINE = Affine(RANDOM.normal(size=DIM), RANDOM.normal(size=(DIM, DIM)) + 3 * np.eye(DIM))


MAPS = {
    "diagonal": Affine([1.0, -2.0, 0.5], [0.1, -3.0, 1.0]),
    "dense": AFFINE,
    "low rank": LowRank([1.0, -2.0, 0.5], [0.1, 3.0, 1.0], np.linalg.qr(RANDOM.normal(size=(DIM, 2)))[0], [4.0, 0.2]),
    "rank 0": LowRank(np.zeros(DIM), np.full(DIM, 2.0), np.zeros((DIM, 0)), []),
    "affine flow": bent("affine", AFFINE),
    "spline flow": bent("spline", AFFINE),
    "flow in a flow": bent("affine", bent("affine", AFFINE, 1), 2),
}
every_map = pytest.mark.parametrize("f", MAPS.values(), ids=MAPS)


def quartic(x):
    return jnp.sum(x**4) / 10 + x[0] * x[1]


def points(shape=(DIM, 7)):
    return jnp.asarray(1.5 * np.random.default_rng(1).normal(size=shape))


@eqx.filter_jit
def both(f, z):
    x, log_det = f.forward_and_log_det(z)
    return x, log_det, *f.backward_and_log_det(x)


@every_map
def test_there_and_back(f):
    """One chain, and a batch of any shape."""
    z = points((DIM, 2, 3))
    x, log_det, back, log_det_back = both(f, z)
    assert log_det.shape == log_det_back.shape == (2, 3)
    np.testing.assert_allclose(back, z, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log_det_back, -log_det, rtol=1e-9, atol=1e-9)
    alone = both(f, z[:, 1, 2])
    for one, batch in zip(alone, (x, log_det, back, log_det_back), strict=True):
        np.testing.assert_allclose(one, batch[..., 1, 2], rtol=1e-10, atol=1e-12)


@every_map
def test_log_determinants_are_those_of_the_jacobians(f):
    z = points()
    _, log_det, _, _ = both(f, z)
    jacobians = eqx.filter_jit(lambda f, z: jax.vmap(jax.jacrev(f.forward), -1)(z))(f, z)
    assert f is not MAPS["affine flow"] or np.std(log_det) > 0.1  # not constant: it matters where it is
    np.testing.assert_allclose(log_det, np.linalg.slogdet(jacobians)[1], rtol=1e-9, atol=1e-10)


def relative(error, size):
    """Of each chain, to the largest of its numbers: maps mix coordinates, and so their rounding."""
    return np.max(np.abs(error) / np.maximum(1, np.max(np.abs(size), axis=0)))


@eqx.filter_jit
def pulled_and_pushed(f, z, temperature):
    x = evaluate(quartic, f.forward(z))
    pulled, log_det = pull(f, x, temperature)
    pushed, log_det_again = push(f, pulled, temperature)
    # The equation itself: what is divided by T later is U(f(z)) - T log|det df/dz|, the volume then not.
    of_z = lambda z: quartic(f.forward(z)) - temperature * f.forward_and_log_det(z)[1]  # noqa: E731
    called = jax.vmap(Pulled(quartic, f, temperature), -1)(z)
    return x, pulled, pushed, (log_det, log_det_again), called, jax.vmap(jax.value_and_grad(of_z), -1, (0, -1))(z)


@every_map
def test_states_are_pulled_and_pushed(f):
    """Against U and its gradient by autodiff, at two temperatures."""
    z = points()
    for temperature in (1.0, 2.5):
        x, pulled, pushed, log_dets, called, (energy, gradient) = pulled_and_pushed(f, z, jnp.asarray(temperature))
        np.testing.assert_allclose(pulled.position, z, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(pulled.energy, energy, rtol=1e-9)
        np.testing.assert_allclose(called, energy, rtol=1e-9)
        np.testing.assert_allclose(*log_dets, rtol=1e-9, atol=1e-9)
        assert relative(pulled.gradient - gradient, gradient) < 1e-8
        np.testing.assert_allclose(pushed.position, x.position, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(pushed.energy, x.energy, rtol=1e-9, atol=1e-9)
        assert relative(pushed.gradient - x.gradient, x.gradient) < 1e-7


@every_map
def test_single_precision_stays_single(f):
    z = points()
    exact, rough = both(f, z), both(cast(f, np.float32), z.astype(np.float32))
    assert {a.dtype for a in rough} == {np.dtype(np.float32)}
    for ours, theirs in zip(rough, exact, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_flow_made_in_one_precision_runs_in_the_other():
    with jax.enable_x64(False):
        flow = Flow(Affine([0.0, 1.0], [1.0, 2.0]), "spline", num_layers=2, width=4, key=jax.random.key(0))
        assert both(flow, jnp.ones(2))[0].dtype == np.float32
    assert both(cast(flow, np.float64), jnp.ones(2))[0].dtype == np.float64


def test_flows_of_one_shape_are_compiled_once():
    count = 0

    @eqx.filter_jit
    def forward(flow, z):
        nonlocal count
        count += 1
        return flow.forward(z)

    for seed in range(2):
        forward(Flow(AFFINE, "spline", num_layers=2, width=4, key=jax.random.key(seed)), points())
    assert count == 1


@pytest.mark.parametrize(("dim", "num_layers"), [(2, 2), (3, 3), (5, 5), (10, 10)])
def test_every_coordinate_conditions_every_other(dim, num_layers):
    """With each layer changing what is behind its half: over all of them, all ordered pairs meet."""
    flow = Flow(unit(dim), "affine", num_layers=num_layers, width=2, key=jax.random.key(0))
    meets = np.zeros((dim, dim), bool)
    for order in np.asarray(flow.layers.bijection.outer.permutation[0]):
        meets[np.ix_(order[: dim // 2], order[dim // 2 :])] = True
    assert meets[~np.eye(dim, dtype=bool)].all()


# --- whitening ---------------------------------------------------------------------------------------------------


def covariance_of(f) -> np.ndarray:
    """Of x = f(z), z white."""
    factor = np.asarray(f.forward(jnp.eye(f.dim)) - f.forward(jnp.zeros((f.dim, 1))))
    return factor @ factor.T


def test_whitened_draws_are_white():
    target = scg()
    z = whitening(target.mean, target.covariance).backward(target.sample(jax.random.key(0), 50_000))
    np.testing.assert_allclose(np.cov(z), np.eye(2), atol=0.03)


@pytest.mark.parametrize("shape", ["diagonal", "dense"])
def test_whitened_by_draws(shape):
    covariance = np.array([[4.0, 1.8], [1.8, 1.0]])
    draws = np.random.default_rng(0).multivariate_normal([3.0, -1.0], covariance, size=20_000)
    f = whitened_by(draws, shape)
    z = np.asarray(f.backward(jnp.asarray(draws.T)))
    np.testing.assert_allclose(z.mean(axis=1), 0, atol=0.02)
    np.testing.assert_allclose(np.cov(z)[0, 1], 0.9 if shape == "diagonal" else 0, atol=0.02)
    np.testing.assert_allclose(np.diag(np.cov(z)), 1, atol=0.05)


@pytest.mark.parametrize("num", [200, 20_000])
def test_wild_draws_do_not_set_the_scale(num):
    draws = np.random.default_rng(0).normal(size=(num, 3))
    draws[5, 0] = 1e12
    f = whitened_by(draws, "diagonal")
    assert np.all(np.abs(np.sqrt(np.diag(covariance_of(f))) - 1) < 0.15)
    assert np.all(np.abs(np.asarray(f.mean)) < 0.2)


def test_all_modes_count():
    """The small one of two, 5% of the draws and far away, is not taken for outliers."""
    random = np.random.default_rng(0)
    draws = random.normal(size=(4000, 2)) + np.where(random.uniform(size=(4000, 1)) < 0.05, 10.0, 0.0)
    f = whitened_by(draws, "dense")
    np.testing.assert_allclose(covariance_of(f), np.cov(draws.T), rtol=0.05)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_low_rank_is_dense_on_a_spiked_covariance(rho, monkeypatch):
    """One direction with most of the variance, the scales apart by 1,000: what is left after it is 1 - rho, not 1."""

    def worst(f):
        """How far the covariance of z, and with it the scale of a direction, is from 1 at most."""
        z = np.asarray(f.backward(jnp.asarray(np.linalg.cholesky(correlation) * scale[:, None]) + f.mean[:, None]))
        return np.max(np.abs(np.log(np.linalg.eigvalsh(z @ z.T))))

    dim = 150
    scale = np.geomspace(1, 1000, dim)
    correlation = rho + (1 - rho) * np.eye(dim)
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(dim), correlation, size=6000) * scale
    f = whitened_by(draws, "dense")
    assert isinstance(f, LowRank)
    assert f.stretch.shape == (1,)
    assert sum(leaf.size for leaf in jax.tree.leaves(f)) < 4 * dim
    np.testing.assert_allclose(covariance_of(f) / np.outer(scale, scale), correlation, atol=0.1)
    monkeypatch.setattr("leapling.coordinates.moments.MAX_DENSE_DIM", dim)
    dense = whitened_by(draws, "dense")
    assert isinstance(dense, Affine)
    np.testing.assert_allclose(covariance_of(dense) / np.outer(scale, scale), correlation, atol=0.1)
    assert worst(f) < worst(dense) < 0.5  # with few directions there is less to get wrong


def test_noise_is_not_taken_for_directions():
    draws = np.random.default_rng(0).normal(size=(600, 300))
    f = whitened_by(draws, "dense")
    assert isinstance(f, LowRank)
    assert f.stretch.shape == (0,)


def test_what_never_moved_keeps_its_scale():
    draws = np.random.default_rng(0).normal(size=(500, 2))
    draws[:, 1] = 7.0
    for shape in ("diagonal", "dense"):
        f = whitened_by(draws, shape)
        assert covariance_of(f)[1, 1] <= 1.0
        assert float(f.mean[1]) == 7.0
    repeated = np.repeat(np.random.default_rng(0).normal(size=(300, 1)), 120, axis=1)
    assert np.isfinite(np.asarray(whitened_by(repeated, "dense").backward(jnp.asarray(repeated.T)))).all()


EYE = np.eye(2)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Affine([0.0, 0.0], [1.0]), r"a factor of shape \(dim,\) or \(dim, dim\)"),
        (lambda: Affine([0.0, 0.0], np.ones((2, 2))), "factor invertible"),
        (lambda: Affine([0.0, 0.0], [1.0, 0.0]), "factor invertible"),
        (lambda: Affine([0.0, np.nan], [1.0, 1.0]), "must be finite"),
        (lambda: LowRank([0.0, 0.0], [1.0, 1.0], EYE, [1.0]), r"\(2,\), \(2,\), \(2, 2\), \(1,\); .* are needed"),
        (lambda: LowRank([0.0, 0.0], [1.0], EYE, [1.0, 1.0]), "are needed"),
        (lambda: LowRank([0.0, 0.0], [1.0, -1.0], EYE, [1.0, 1.0]), "above 0"),
        (lambda: LowRank([0.0, 0.0], [1.0, 1.0], EYE, [1.0, 0.0]), "above 0"),
        (lambda: LowRank([0.0, 0.0], [1.0, 1.0], 2 * EYE, [1.0, 1.0]), "orthonormal columns"),
        (lambda: Flow(Affine([0.0], [1.0]), key=jax.random.key(0)), "at least 2 coordinates, got 1"),
        (lambda: Flow(AFFINE, "cubic", key=jax.random.key(0)), "no flow of kind 'cubic'; choose from affine, spline"),
        (lambda: Flow(AFFINE, num_layers=0, key=jax.random.key(0)), "num_layers must be at least 1, got 0"),
        (lambda: Flow(AFFINE, width=0, key=jax.random.key(0)), "width must be at least 1, got 0"),
        (lambda: whitened_by(np.zeros((9, 2)), "full"), "no shape 'full'; choose from diagonal, dense"),
        (lambda: whitened_by(np.zeros((1, 2)), "dense"), "at least 2 finite draws"),
        (lambda: whitened_by(np.full((9, 2), np.nan), "dense"), "at least 2 finite draws"),
    ],
)
def test_bad_arguments_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
