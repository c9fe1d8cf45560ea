"""Running many chains: shapes, costs, blocks, bounds of memory, and what is refused."""

import subprocess
import sys

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leapling.chains as chains_module
from leapling.chains import sample
from leapling.files import RunError
from leapling.interop import from_netcdf, to_arviz, to_netcdf
from leapling.kernels import HMC, L2HMC
from leapling.targets import scg


def bowl(x):
    return 0.5 * jnp.sum(x**2)


@pytest.fixture(scope="module")
def draws():
    return sample(HMC(0.5, 3), bowl, num_draws=20, num_chains=4, dim=2, num_warmup=5, seed=1)


def test_shapes_and_costs(draws):
    assert draws.positions.shape == (4, 20, 2)
    assert set(draws.statistics) == {
        "acceptance_rate", "accepted", "diverging", "energy", "n_steps", "step_size",
    }  # fmt: skip
    assert all(values.shape == (4, 20) for values in draws.statistics.values())
    assert (draws.statistics["n_steps"] == 3).all()
    assert draws.num_gradients == 4 * (1 + 3 * 25)
    np.testing.assert_allclose(draws.statistics["energy"], 0.5 * (draws.positions**2).sum(-1), rtol=1e-12)
    np.testing.assert_allclose(draws.statistics["step_size"], 0.5)


def test_blocks_do_not_change_the_draws(draws, monkeypatch):
    monkeypatch.setattr(chains_module, "BLOCK_DRAWS", 7)
    again = sample(HMC(0.5, 3), bowl, num_draws=20, num_chains=4, dim=2, num_warmup=5, seed=1)
    assert np.array_equal(again.positions, draws.positions)
    assert again.num_gradients == draws.num_gradients


def test_thinning_keeps_every_kth_and_charges_all(draws):
    thinned = sample(HMC(0.5, 3), bowl, num_draws=5, thin=4, num_chains=4, dim=2, num_warmup=5, seed=1)
    assert np.array_equal(thinned.positions, draws.positions[:, 3::4])
    assert (thinned.statistics["n_steps"] == 12).all()
    assert thinned.num_gradients == draws.num_gradients


def test_statistics_only(draws):
    lean = sample(HMC(0.5, 3), bowl, num_draws=20, num_chains=4, dim=2, num_warmup=5, seed=1, keep="statistics")
    with pytest.raises(ValueError, match="kept statistics only"):
        _ = lean.positions
    assert np.array_equal(lean.statistics["energy"], draws.statistics["energy"])


def test_given_positions_and_continuation():
    starts = np.arange(6.0).reshape(3, 2)
    draws = sample(HMC(1e-9, 1), bowl, num_draws=2, initial_positions=starts, warn=False)
    np.testing.assert_allclose(draws.positions[:, 0], starts, atol=1e-6)
    more = sample(HMC(1e-9, 1), bowl, num_draws=2, initial_state=draws.state, seed=2, warn=False)
    np.testing.assert_allclose(more.positions[:, 0], starts, atol=1e-6)
    assert more.num_gradients == 3 * 2  # nothing is evaluated to start again


def test_dtype_follows_the_positions():
    for dtype in (np.float32, np.float64):
        draws = sample(HMC(0.5, 2), bowl, num_draws=2, initial_positions=np.ones((2, 3), dtype))
        assert draws.positions.dtype == dtype
    kernel = L2HMC(3, 2, key=jax.random.key(0), dtype=np.float32)
    assert sample(kernel, bowl, num_draws=2, num_chains=2).positions.dtype == np.float32
    with pytest.raises(ValueError, match="kernel is float32 and the positions are float64"):
        sample(kernel, bowl, num_draws=2, initial_positions=np.ones((2, 3)))


def test_stationary_moments():
    target = scg()
    exact = np.asarray(target.sample(jax.random.key(3), 2000)).T
    draws = sample(HMC(0.15, 20), target, num_draws=20, initial_positions=exact)
    np.testing.assert_allclose(draws.positions.reshape(-1, 2).var(0), target.variance, rtol=0.1)


def test_frozen_chains_are_reported():
    with pytest.warns(UserWarning, match="2 of 2 chains accepted nothing in 50 transitions"):
        draws = sample(HMC(1e3, 3), lambda x: jnp.sum(x**4), num_draws=50, num_chains=2, dim=2)
    assert draws.num_frozen == 2


def test_interrupted_run_returns_what_it_has(monkeypatch):
    monkeypatch.setattr(chains_module, "BLOCK_DRAWS", 10)
    store = chains_module._store

    def stop_in_the_third_block(host, name, block, done, num_draws):
        if done == 20:
            raise KeyboardInterrupt
        store(host, name, block, done, num_draws)

    monkeypatch.setattr(chains_module, "_store", stop_in_the_third_block)
    draws = sample(HMC(0.5, 3), bowl, num_draws=40, num_chains=2, dim=2)
    assert draws.is_interrupted
    assert draws.positions.shape == (2, 20, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_draws": 0, "num_chains": 2, "dim": 2}, "num_draws must be at least 1, got 0"),
        ({"num_draws": 5, "num_chains": 2, "dim": 2, "thin": 0}, "thin must be at least 1, got 0"),
        ({"num_draws": 5, "dim": 2}, "num_chains must be at least 1 .* got None"),
        ({"num_draws": 5, "num_chains": 2}, "number of coordinates is not known .* give dim="),
        ({"num_draws": 5, "num_chains": 2, "dim": 2, "keep": "all"}, "keep must be .* got 'all'"),
        ({"num_draws": 5, "initial_positions": np.ones(3)}, r"shape \(chain, dim\), got float64 of shape \(3,\)"),
        ({"num_draws": 5, "initial_positions": np.ones((2, 2), int)}, "real numbers .* got int64"),
        ({"num_draws": 5, "initial_positions": np.ones((2, 2)), "num_chains": 3}, "hold 2 chains and num_chains is 3"),
        ({"num_draws": 5, "initial_positions": np.ones((2, 2)), "dim": 3}, "dim says 3, initial_positions says 2"),
        (
            {"num_draws": 5, "initial_positions": np.array([[1, 2], [np.nan, 0]])},
            r"position is not finite at 1 of 2 starting points \(the first is chain 1",
        ),
    ],
)  # fmt: skip
def test_bad_arguments(options, said):
    with pytest.raises(ValueError, match=said):
        sample(HMC(0.5, 3), bowl, **options)


def test_arviz_reads_the_draws(draws, tmp_path):
    data = to_arviz(draws)
    assert data["posterior"]["x"].shape == (4, 20, 2)
    assert data["sample_stats"]["diverging"].dtype == bool
    to_netcdf(draws, tmp_path / "draws.nc", seed=1)
    stored = az.from_netcdf(tmp_path / "draws.nc")
    assert np.array_equal(stored["posterior"]["x"], draws.positions)
    groups = from_netcdf(tmp_path / "draws.nc")
    assert groups["sample_stats"]["accepted"].dtype == bool
    assert groups["posterior"].attrs["num_gradients"] == draws.num_gradients
    assert [path.name for path in tmp_path.iterdir()] == ["draws.nc"]


def test_damaged_draws_are_named(draws, tmp_path):
    path = tmp_path / "draws.nc"
    with pytest.raises(RunError, match="there is no file"):
        from_netcdf(path)
    to_netcdf(draws, path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(RunError, match=r"draws.nc is not a readable file of draws"):
        from_netcdf(path)


LARGE = """
import resource, sys
import jax, numpy as np
from leapling import L2HMC, sample
from leapling.targets import DiagonalGaussian, scg
if sys.argv[1] == "chains":
    kernel = L2HMC(2, 10, key=jax.random.key(0))
    draws = sample(kernel, scg(), num_draws=100, num_chains=100_000)
    assert draws.positions.shape == (100_000, 100, 2)
else:
    target = DiagonalGaussian(np.ones(10_000))
    kernel = L2HMC(10_000, 5, step_size=0.05, key=jax.random.key(0))
    draws = sample(kernel, target, num_draws=20, num_chains=64, num_warmup=5, warn=False)
    assert draws.positions.shape == (64, 20, 10_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.parametrize("what", ["chains", "dimensions"])
def test_large_runs_fit_in_4_gib(what):
    done = subprocess.run([sys.executable, "-c", LARGE, what], capture_output=True, text=True, check=True)
    assert 0.1 < float(done.stdout) < 4
