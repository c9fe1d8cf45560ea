"""Does L2HMC learn a diagonal inertia tensor on ICG, and does it mix across energy levels?"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from leapling.energy import Energy
from leapling.kernels import HMC, L2HMC
from leapling.kernels.base import refresh
from leapling.report import plot_autocorrelation_panels, plot_inertia
from leapling.reproduce.lab import Lab, count, identity, slug, spread
from leapling.reproduce.result import Result
from leapling.targets import Target, icg

NUM_POINTS = 200
COLUMNS = {
    "method": "method",
    "slope": "slope of log step on log sd",
    "slope_response": "slope of log response on log sd",
    "response_ratio": "response, widest over narrowest",
    "lag_x": "lag-one autocorrelation of x",
    "lag_energy": "lag-one autocorrelation of U",
}


def run(lab: Lab) -> Result:
    target = icg()
    sd = np.sqrt(target.variance)
    seeds = lab.scale.seeds
    settings = lab.preset("icg")
    rival, _ = lab.tuned("HMC same M", "icg", "ess_paper")
    assert isinstance(rival, HMC)
    plain = L2HMC(
        target.dim,
        settings.num_steps,
        heads="",
        step_size=float(rival.step_size),
        key=jax.random.key(0),
        dtype=np.float32,
    )
    label = f"HMC M={settings.num_steps}"
    kernels = {"L2HMC": [lab.trained("icg", seed) for seed in seeds], label: [plain]}
    measured = {
        "L2HMC": [lab.measured("L2HMC", "icg", k, s) for k, s in zip(kernels["L2HMC"], seeds, strict=True)],
        label: [lab.measured("HMC same M ess_paper", "icg", rival, seeds[0])],
    }
    rows, steps, responses = [], {}, {}
    for method, several in kernels.items():
        found = [inertia(lab, target, method, kernel, i) for i, kernel in enumerate(several)]
        steps[method] = np.median([f["step"] for f in found], axis=0)
        responses[method] = np.median([f["response"] for f in found], axis=0)
        here = measured[method]
        rows.append(
            {
                "method": method,
                "slope": slope(sd, steps[method]),
                "slope_response": slope(sd, responses[method]),
                "response_ratio": float(responses[method][-1] / responses[method][0]),
                "lag_x": spread([float(m.arrays["rho"][1]) for m in here])["median"],
                "lag_energy": spread([float(m.arrays["rho_energy"][1]) for m in here])["median"],
            }
        )
    result = Result(
        "inertia",
        "ICG: the learned inertia, and mixing across energy levels",
        f"{count(seeds)}, medians. The step of a coordinate is eps exp(eps Q_x), what one leapfrog step multiplies "
        "its momentum by, a geometric mean over exact draws and the M steps; its response is the root mean square of "
        "dx'_i / dv_i over a whole proposal. A full diagonal inertia tensor has slope 1, plain HMC's step 0. "
        f"The widest coordinate has {sd[-1] / sd[0]:.0f} times the sd of the narrowest.",
    )
    result.tables.append(("Steps, responses and autocorrelations", COLUMNS, rows))
    result.figures["inertia"] = ("Step of one leapfrog step against the sd of the coordinate", plot_inertia(sd, steps))
    result.figures["response"] = (
        "Response of a whole proposal to the momentum, against the sd",
        plot_inertia(sd, responses, ylabel="response of $x'_i$ to $v_i$"),
    )
    middle = {m: sorted(found, key=lambda f: f.figures["ess_paper"])[len(found) // 2] for m, found in measured.items()}
    costs = {m: f.figures["gradients_per_draw"] for m, f in middle.items()}
    panels = {
        "position, weighted by variance": ({m: f.arrays["rho"] for m, f in middle.items()}, costs),
        "energy U": ({m: f.arrays["rho_energy"] for m, f in middle.items()}, costs),
    }
    result.figures["energy"] = (
        "Autocorrelation of the position and of the energy",
        plot_autocorrelation_panels(panels),
    )
    return result


def inertia(lab: Lab, target: Target, method: str, kernel: L2HMC, seed: int) -> dict[str, np.ndarray]:
    def make():
        key_draw, key_move = jax.random.split(jax.random.key(seed + 4000))
        x = target.sample(key_draw, NUM_POINTS, np.float32)
        step, response = _inertia(kernel, target, x, key_move)
        return {}, {"step": np.asarray(step), "response": np.asarray(response)}

    name = slug("inertia", method, seed)
    return lab.pieces.get(name, {"kernel": identity(kernel), "points": NUM_POINTS}, make)[1]


@eqx.filter_jit
def _inertia(kernel: L2HMC, target: Target, x: Array, key: Array) -> tuple[Array, Array]:
    phase = refresh(kernel.init(target, x), key=key)
    v = phase.momentum

    def log_step(_, step) -> tuple[None, Float[Array, " dim"]]:
        mask, offset = step

        def q_of_one(x: Array, v: Array) -> Array:
            return jnp.where(mask, *(kernel.x_network(jnp.where(half, 0, x), v, offset)[1] for half in (mask, ~mask)))

        q = jax.vmap(q_of_one, in_axes=1, out_axes=1)(x, v)
        return None, jnp.mean(kernel.log_step_size + kernel.step_size * q, axis=1)

    _, log_steps = jax.lax.scan(log_step, None, (kernel.masks, kernel.x_network.offsets(kernel.taus)))

    def end(v: Array) -> Array:
        moved = kernel.propose(Energy(target), eqx.tree_at(lambda p: p.momentum, phase, v), key=key)
        return moved.phase.state.position

    _, pull_back = jax.vjp(end, v)

    def response(i: Array) -> Array:
        row = pull_back(jnp.zeros_like(v).at[i].set(1))[0]
        return jnp.sqrt(jnp.mean(row[i] ** 2))

    return jnp.exp(jnp.mean(log_steps, axis=0)), jax.lax.map(response, jnp.arange(len(v)))


def slope(sd: np.ndarray, step: np.ndarray) -> float:
    return float(np.polyfit(np.log(sd), np.log(step), 1)[0])
