"""The nine posteriors once more, with SciPy's densities, point by point, and the data and answers of posteriordb.

Each function states log p(parameters, data), and the log-Jacobian from the unconstrained side, of its constrained
parameters. It shares no code with the package.
"""

import json
from pathlib import Path

import numpy as np
from scipy import integrate
from scipy.stats import beta, cauchy, gamma, lognorm, norm

FOLDER = Path(__file__).parent / "data" / "posteriordb"


def load(name):
    """The data of a posterior, and the reference summary of every scalar by name."""
    return tuple(json.loads((FOLDER / name / file).read_text()) for file in ("data.json", "reference.json"))


def grouped(reference, key):
    """One figure of the reference for each parameter, the entries of an array together."""
    values = {}
    for name, summary in reference.items():
        values.setdefault(name.split("[")[0], []).append(summary[key])
    return {name: np.array(v) if f"{name}[1]" in reference else np.array(v[0]) for name, v in values.items()}


def eight_schools(p, d):
    total = cauchy.logpdf(p["tau"], scale=5) + norm.logpdf(p["mu"], scale=5) + np.log(p["tau"])
    for y, sigma, trans in zip(d["y"], d["sigma"], p["theta_trans"], strict=True):
        total += norm.logpdf(trans) + norm.logpdf(y, p["mu"] + p["tau"] * trans, sigma)
    return total


def kidiq(p, d):
    total = cauchy.logpdf(p["sigma"], scale=2.5) + np.log(p["sigma"])
    for y, hs, iq in zip(d["kid_score"], d["mom_hs"], d["mom_iq"], strict=True):
        total += norm.logpdf(y, p["beta"] @ [1, hs, iq, hs * iq], p["sigma"])
    return total


def kilpisjarvi(p, d):
    total = norm.logpdf(p["alpha"], d["pmualpha"], d["psalpha"]) + norm.logpdf(p["beta"], d["pmubeta"], d["psbeta"])
    for x, y in zip(d["x"], d["y"], strict=True):
        total += norm.logpdf(y, p["alpha"] + p["beta"] * x, p["sigma"])
    return total + np.log(p["sigma"])


def lotka_volterra(p, d):
    a, b, c, d_ = p["theta"]
    solution = integrate.solve_ivp(
        lambda t, z: [(a - b * z[1]) * z[0], (-c + d_ * z[0]) * z[1]],
        (0, d["ts"][-1]),
        p["z_init"],
        method="DOP853",
        t_eval=d["ts"],
        rtol=1e-12,
        atol=1e-12,
    ).y.T
    total = sum(np.log(p[name]).sum() for name in ("theta", "z_init", "sigma"))
    for rate, mean, sd in ((a, 1, 0.5), (b, 0.05, 0.05), (c, 1, 0.5), (d_, 0.05, 0.05)):
        total += norm.logpdf(rate, mean, sd)
    for k in range(2):
        total += lognorm.logpdf(p["sigma"][k], 1, scale=np.exp(-1)) + lognorm.logpdf(p["z_init"][k], 1, scale=10)
        total += lognorm.logpdf(d["y_init"][k], p["sigma"][k], scale=p["z_init"][k])
        for n in range(d["N"]):
            total += lognorm.logpdf(d["y"][n][k], p["sigma"][k], scale=solution[n, k])
    return total


def garch(p, d):
    room = 1 - p["alpha1"]
    total = np.log(p["alpha0"] * p["alpha1"] * room) + np.log(p["beta1"] * (room - p["beta1"]) / room)
    sd = d["sigma1"]
    for t, y in enumerate(d["y"]):
        if t > 0:
            sd = np.sqrt(p["alpha0"] + p["alpha1"] * (d["y"][t - 1] - p["mu"]) ** 2 + p["beta1"] * sd**2)
        total += norm.logpdf(y, p["mu"], sd)
    return total


def autoregression(p, d):
    total = norm.logpdf(p["alpha"], scale=10) + norm.logpdf(p["beta"], scale=10).sum()
    total += cauchy.logpdf(p["sigma"], scale=2.5) + np.log(p["sigma"])
    for t in range(d["K"], d["T"]):
        mean = p["alpha"] + sum(p["beta"][k] * d["y"][t - 1 - k] for k in range(d["K"]))
        total += norm.logpdf(d["y"][t], mean, p["sigma"])
    return total


def gaussian_process(p, d):
    x, y = np.array(d["x"]), np.array(d["y"])
    covariance = np.zeros((d["N"], d["N"]))
    for i in range(d["N"]):
        for j in range(d["N"]):
            covariance[i, j] = p["alpha"] ** 2 * np.exp(-((x[i] - x[j]) ** 2) / (2 * p["rho"] ** 2))
        covariance[i, i] += p["sigma"]
    total = gamma.logpdf(p["rho"], 25, scale=1 / 4) + norm.logpdf(p["alpha"], scale=2) + norm.logpdf(p["sigma"])
    total -= (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1]) / 2
    return total + np.log(p["rho"] * p["alpha"] * p["sigma"])


def mixture(p, d):
    y, theta = np.array(d["y"]), p["theta"]
    parts = [norm.pdf(y, p["mu"][k], p["sigma"][k]) for k in range(2)]
    total = np.log(theta * parts[0] + (1 - theta) * parts[1]).sum()
    total += norm.logpdf(p["mu"], scale=2).sum() + norm.logpdf(p["sigma"], scale=2).sum() + beta.logpdf(theta, 5, 5)
    return total + np.log(p["mu"][1] - p["mu"][0]) + np.log(p["sigma"]).sum() + np.log(theta * (1 - theta))


def nes(p, d):
    total = np.log(p["sigma"])
    for n in range(d["N"]):
        ages = [float(d["age_discrete"][n] == age) for age in (2, 3, 4)]
        row = [1, d["real_ideo"][n], d["race_adj"][n], *ages, d["educ1"][n], d["gender"][n], d["income"][n]]
        total += norm.logpdf(d["partyid7"][n], p["beta"] @ row, p["sigma"])
    return total


LOG_DENSITIES = {
    "arK-arK": autoregression,
    "eight_schools-eight_schools_noncentered": eight_schools,
    "garch-garch11": garch,
    "gp_pois_regr-gp_regr": gaussian_process,
    "hudson_lynx_hare-lotka_volterra": lotka_volterra,
    "kidiq-kidscore_interaction": kidiq,
    "kilpisjarvi_mod-kilpisjarvi": kilpisjarvi,
    "low_dim_gauss_mix-low_dim_gauss_mix": mixture,
    "nes1980-nes": nes,
}
