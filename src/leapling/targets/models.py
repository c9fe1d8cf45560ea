"""Nine Bayesian models of posteriordb (Magnusson et al. 2025), each a log-density of named parameters given data.

p are the parameters and d the data, as arrays of one dtype. What has no prior here is flat, and a prior on half a line
is the plain density there, not divided by one half.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from leapling.supports import Parameters, constraints
from leapling.targets.densities import beta, cauchy, gamma, log_normal, normal
from leapling.targets.predator_prey import log_populations


@dataclass(frozen=True)
class Model:
    """log p(p, d); the arrays d made from the data as stored; the supports of p; what is reported in place of p."""

    log_density: Callable[[Parameters, Parameters], Float[Array, ""]]
    data: Callable[[Mapping[str, Any]], dict[str, Any]]
    supports: Callable[[ModuleType, dict[str, np.ndarray]], dict[str, Any]]
    report: Callable[[Parameters], Parameters] = lambda p: p


def columns(*names: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda data: {name: data[name] for name in names}


def fitted(design: Float[Array, "rows columns"], coefficients: Float[Array, " columns"]) -> Float[Array, " rows"]:
    return jnp.matmul(design, coefficients, precision="highest")


def eight_schools(p, d):
    theta = p["mu"] + p["tau"] * p["theta_trans"]
    prior = normal(p["theta_trans"], 0, 1) + normal(p["mu"], 0, 5) + cauchy(p["tau"], 0, 5)
    return prior + normal(d["y"], theta, d["sigma"])


EIGHT_SCHOOLS = Model(
    eight_schools,
    columns("y", "sigma"),
    lambda c, d: {"theta_trans": (c.real, d["y"].shape), "mu": (c.real, ()), "tau": (c.positive, ())},
    lambda p: {"theta": p["mu"] + p["tau"] * p["theta_trans"], "mu": p["mu"], "tau": p["tau"]},
)


def regression(p, d):
    return normal(d["y"], fitted(d["design"], p["beta"]), p["sigma"])


def regression_supports(c, d):
    return {"beta": (c.real, (d["design"].shape[1],)), "sigma": (c.positive, ())}


def kidiq_data(data):
    mom_hs, mom_iq = np.asarray(data["mom_hs"]), np.asarray(data["mom_iq"])
    design = np.stack([np.ones(len(mom_iq)), mom_hs, mom_iq, mom_hs * mom_iq], axis=1)
    return {"design": design, "y": data["kid_score"]}


KIDIQ = Model(lambda p, d: regression(p, d) + cauchy(p["sigma"], 0, 2.5), kidiq_data, regression_supports)


def nes_data(data):
    age = np.asarray(data["age_discrete"])
    groups = [(age == group).astype(float) for group in (2, 3, 4)]
    before, behind = ("real_ideo", "race_adj"), ("educ1", "gender", "income")
    parts = [np.ones(len(age)), *(data[k] for k in before), *groups, *(data[k] for k in behind)]
    return {"design": np.stack(parts, axis=1), "y": data["partyid7"]}


NES = Model(regression, nes_data, regression_supports)


def kilpisjarvi(p, d):
    prior = normal(p["alpha"], d["pmualpha"], d["psalpha"]) + normal(p["beta"], d["pmubeta"], d["psbeta"])
    return prior + normal(d["y"], p["alpha"] + p["beta"] * d["x"], p["sigma"])


KILPISJARVI = Model(
    kilpisjarvi,
    columns("x", "y", "pmualpha", "psalpha", "pmubeta", "psbeta"),
    lambda c, d: {"alpha": (c.real, ()), "beta": (c.real, ()), "sigma": (c.positive, ())},
)


def autoregression(p, d):
    prior = normal(p["alpha"], 0, 10) + normal(p["beta"], 0, 10) + cauchy(p["sigma"], 0, 2.5)
    return prior + normal(d["y"], p["alpha"] + fitted(d["lags"], p["beta"]), p["sigma"])


def autoregression_data(data):
    """Column k of the lags holds y_{t-k} for every t > K."""
    order, y = data["K"], np.asarray(data["y"])
    return {"lags": np.stack([y[order - k : len(y) - k] for k in range(1, order + 1)], axis=1), "y": y[order:]}


AUTOREGRESSION = Model(
    autoregression,
    autoregression_data,
    lambda c, d: {"alpha": (c.real, ()), "beta": (c.real, (d["lags"].shape[1],)), "sigma": (c.positive, ())},
)


def garch(p, d):
    residual = d["y"] - p["mu"]

    def next_variance(variance, before):
        variance = p["alpha0"] + p["alpha1"] * before**2 + p["beta1"] * variance
        return variance, variance

    first = d["sigma1"] ** 2
    _, later = jax.lax.scan(next_variance, first, residual[:-1])
    return normal(residual, 0, jnp.sqrt(jnp.concatenate([first[None], later])))


def stationary(p):
    """beta1 < 1 - alpha1: the variance does not grow for ever."""
    return constraints().interval(0.0, 1 - p["alpha1"])


GARCH = Model(
    garch,
    columns("y", "sigma1"),
    lambda c, d: {
        "mu": (c.real, ()),
        "alpha0": (c.positive, ()),
        "alpha1": (c.unit_interval, ()),
        "beta1": (stationary, ()),
    },
)


def gaussian_process(p, d):
    prior = gamma(p["rho"], 25, 4) + normal(p["alpha"], 0, 2) + normal(p["sigma"], 0, 1)
    distance = (d["x"][:, None] - d["x"][None, :]) / p["rho"]
    covariance = p["alpha"] ** 2 * jnp.exp(-(distance**2) / 2) + p["sigma"] * jnp.eye(len(d["x"]), dtype=d["x"].dtype)
    # With K = L L^T: y^T K^-1 y = |L^-1 y|^2, and det K is the square of the product of the diagonal of L.
    factor = jnp.linalg.cholesky(covariance)
    white = jax.scipy.linalg.solve_triangular(factor, d["y"], lower=True)
    return prior + normal(white, 0, 1) - jnp.sum(jnp.log(jnp.diagonal(factor)))


GAUSSIAN_PROCESS = Model(
    gaussian_process,
    columns("x", "y"),
    lambda c, d: {"rho": (c.positive, ()), "alpha": (c.positive, ()), "sigma": (c.positive, ())},
)


def mixture(p, d):
    prior = normal(p["mu"], 0, 2) + normal(p["sigma"], 0, 2) + beta(p["theta"], 5, 5)
    log_share = jnp.log(jnp.stack([p["theta"], 1 - p["theta"]]))
    scaled = (d["y"][None] - p["mu"][:, None]) / p["sigma"][:, None]
    log_joint = (log_share - jnp.log(p["sigma"]))[:, None] - scaled**2 / 2 - math.log(2 * math.pi) / 2
    return prior + jnp.sum(jax.nn.logsumexp(log_joint, axis=0))


MIXTURE = Model(
    mixture,
    columns("y"),
    lambda c, d: {"mu": (c.ordered_vector, (2,)), "sigma": (c.positive, (2,)), "theta": (c.unit_interval, ())},
)


def lotka_volterra(p, d):
    theta, z_init, sigma = p["theta"], p["z_init"], p["sigma"]
    prior = normal(theta[::2], 1, 0.5) + normal(theta[1::2], 0.05, 0.05)
    prior += log_normal(sigma, -1, 1) + log_normal(z_init, math.log(10), 1)
    log_z = log_populations(theta, z_init, d["durations"])
    return prior + log_normal(d["y_init"], jnp.log(z_init), sigma) + log_normal(d["y"], log_z, sigma[None])


LOTKA_VOLTERRA = Model(
    lotka_volterra,
    lambda data: {"durations": np.diff(data["ts"], prepend=0), "y_init": data["y_init"], "y": data["y"]},
    lambda c, d: {"theta": (c.positive, (4,)), "z_init": (c.positive, (2,)), "sigma": (c.positive, (2,))},
)

MODELS: dict[str, Model] = {
    "arK-arK": AUTOREGRESSION,
    "eight_schools-eight_schools_noncentered": EIGHT_SCHOOLS,
    "garch-garch11": GARCH,
    "gp_pois_regr-gp_regr": GAUSSIAN_PROCESS,
    "hudson_lynx_hare-lotka_volterra": LOTKA_VOLTERRA,
    "kidiq-kidscore_interaction": KIDIQ,
    "kilpisjarvi_mod-kilpisjarvi": KILPISJARVI,
    "low_dim_gauss_mix-low_dim_gauss_mix": MIXTURE,
    "nes1980-nes": NES,
}
