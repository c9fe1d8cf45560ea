"""An energy of one's own, from a function to checked draws: a logistic regression written in plain JAX.

python examples/own_energy.py
"""

import jax
import jax.numpy as jnp
import numpy as np

import leapling

# Forty made-up patients: does the dose (centred) predict recovery?
rng = np.random.default_rng(0)
dose = rng.normal(size=40)
recovered = rng.random(40) < 1 / (1 + np.exp(-(0.5 + 1.5 * dose)))


def energy(parameters):
    """Minus the log posterior of (intercept, slope), each with a N(0, 2^2) prior."""
    intercept, slope = parameters
    logits = intercept + slope * jnp.asarray(dose, parameters.dtype)
    log_likelihood = jnp.sum(jnp.where(recovered, -jax.nn.softplus(-logits), -jax.nn.softplus(logits)))
    return jnp.sum(parameters**2) / (2 * 2**2) - log_likelihood


def main() -> leapling.Draws:
    kernel = leapling.L2HMC(dim=2, num_steps=3, step_size=0.2, key=jax.random.key(0), dtype=np.float32)
    trained = leapling.train(kernel, energy, leapling.Recipe(num_iterations=800), seed=0)
    draws = leapling.sample(trained.kernel, energy, num_draws=500, num_chains=50, num_warmup=200, seed=1)
    print(leapling.check_kernel(trained.kernel, energy, positions=draws.positions[:, -1]))
    for name, values in zip(("intercept", "slope"), np.moveaxis(draws.positions, -1, 0), strict=True):
        print(f"{name:>9}: {values.mean():.2f} +- {values.std():.2f}")
    return draws


if __name__ == "__main__":
    main()
