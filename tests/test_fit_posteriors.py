"""`fit` on real posteriors: means and mean squares against the reference draws of posteriordb."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference_posteriors import load

import leapling
from leapling.diagnostics import ess_geyer
from leapling.targets import posterior

EFFECTIVE = 4000
LIMIT = 4.5  # combined standard errors, for each of some forty means and mean squares


@pytest.mark.parametrize(
    "name",
    [
        "arK-arK",
        "kidiq-kidscore_interaction",
        "low_dim_gauss_mix-low_dim_gauss_mix",
    ],
)
def test_means_and_mean_squares_agree_with_the_reference(name):
    data, reference = load(name)
    with jax.enable_x64(False):
        target = posterior(name, data)
        fitted = leapling.fit(target.energy, target.dim, budget=20, seed=0, progress=False)
        assert fitted.verdict.exactness["passed"]
        # As many draws as hold EFFECTIVE effective ones by the verdict's own figure.
        per_draw = fitted.verdict.methods[0]["min_ess"]
        num_draws = int(np.clip(EFFECTIVE / (64 * per_draw), 100, 4000))
        draws = fitted.draw(64, num_draws, seed=1, num_warmup=100)
        found = jax.jit(target.constrain)(jnp.asarray(np.moveaxis(draws.positions, 2, 0)))
    assert len(found) >= 4
    for parameter, values in found.items():
        values = np.asarray(values, np.float64)
        for power, of_reference in ((values, "mean"), (values**2, "mean_sq")):
            size = float(ess_geyer(power)) * power.size
            error = np.hypot(power.std() / size**0.5, reference[parameter][f"mcse_{of_reference}"])
            assert abs(power.mean() - reference[parameter][of_reference]) < LIMIT * error, (parameter, of_reference)
