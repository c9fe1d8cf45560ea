"""Figures of many panels: complete, legible, and honest about zeros and what is not finite."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from leapling.report import (
    plot_ablations,
    plot_autocorrelation_panels,
    plot_burn_in,
    plot_chain_grid,
    plot_ess_bars,
    plot_inertia,
    plot_modes,
    plot_surface,
)
from leapling.targets import DiagonalGaussian, RoughWell, mog, scg

TARGETS = ("ICG, 50-d", "Rough Well", "SCG", "MoG")
METHODS = (
    "L2HMC",
    "HMC M=10, authors' steps (ess_paper)",
    "HMC M=10 (ess_paper)",
    "HMC tuned (ess_paper)",
    "HMC tuned (min_ess)",
    "HMC whitened (ess_paper)",
    "HMC whitened (min_ess)",
)
SHORT = ("L2HMC", "HMC M=10", "HMC tuned", "HMC whitened", "LAHMC")
VARIANTS = ("full", "no reciprocal term", *(f"lambda^2 x {f}" for f in ("0.01", "0.1", "10", "100")), "no S", "no Q")
NARROW = {"figure.figsize": (3.4, 2.4)}  # a column of two


# --- data like that of the experiments -------------------------------------------------------------------------------


def seeds(rng: np.random.Generator, level: float, num: int = 5) -> list[float]:
    return list(level * np.exp(0.15 * rng.normal(size=num)))


def ess_rows(targets=TARGETS, methods=METHODS) -> list[dict]:
    rng = np.random.default_rng(0)
    rows = []
    for i, target in enumerate(targets):
        for j, method in enumerate(methods):
            values = seeds(rng, 0.7 * 10 ** -(rng.uniform(0, 2.5) if j else 0.4 * i))
            rows.append({"target": target, "method": method, "values": values})
    rows[-1]["values"] = [0.0, 0.0, 1e-4, float("nan"), 2e-4]
    rows[-2]["values"] = [0.0] * 5
    return rows


PRINTED: dict[str, float] = dict(zip(TARGETS, (0.783, 0.625, 0.497, 0.0324), strict=True))


def ablation_rows() -> list[dict]:
    rng = np.random.default_rng(1)
    return [
        {"target": target, "variant": variant, "values": seeds(rng, 0.5 * 10 ** -rng.uniform(0, spread), 3)}
        for target, spread in zip(TARGETS, (0.1, 1, 2, 5), strict=True)
        for variant in VARIANTS
    ]


def surface() -> list[dict]:
    def row(step_size: float, num_steps: int, number: int) -> dict:
        value = 0.02 * np.exp(-((np.log(step_size * num_steps) - 0.5) ** 2) / 2) * np.exp(-((step_size / 0.9) ** 8))
        return {"step_size": step_size, "num_steps": num_steps, "value": float(value), "round": number}

    points = [(0.8 * f, n) for f in (0.2, 0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 1.0) for n in (1, 2, 4, 7, 12, 20, 60, 300)]
    rows = []
    for number in range(3):
        rows += [row(*point, number) for point in points]
        points = [(r["step_size"], r["num_steps"]) for r in sorted(rows[-len(points) :], key=lambda r: -r["value"])]
        points = points[: len(points) // 4]
    step, num = points[0]
    near = [(f * step, max(1, round(g * num))) for f in (0.84, 0.92, 1, 1.09, 1.19) for g in (0.8, 0.9, 1, 1.1, 1.25)]
    return rows + [row(*point, 3) for point in near]


def autocorrelations(labels=SHORT) -> dict:
    lags = np.arange(1001)
    rng = np.random.default_rng(2)
    panels = {}
    for i, target in enumerate(TARGETS):
        rates = [0.5, 0.97, 0.9, 0.8, 0.95] if i < 3 else [0.97, 0.9999, 0.9995, 0.999, 0.99995]
        curves = {
            label: rate**lags + 0.005 * rng.normal(size=lags.size) for label, rate in zip(labels, rates, strict=False)
        }
        costs = dict(zip(labels, (20.0, 10.0, 57.3, 3.0, 24.6), strict=False))
        panels[target] = (curves, costs)
    return panels


def chain_grid(methods=("L2HMC", "HMC, M of L2HMC", "HMC tuned")) -> dict:
    rng = np.random.default_rng(3)
    turn = np.array([[1, -1], [1, 1]]) / np.sqrt(2)
    scales = {"ICG, 50-d": (0.1, 10), "Rough Well": (1, 1), "SCG": (0.1, 10), "MoG": (0.3, 0.3)}
    energies = (DiagonalGaussian(np.array([0.01, 100.0])), RoughWell(), scg(), mog())
    grid = {}
    for (target, sds), energy in zip(scales.items(), energies, strict=True):
        chains = {}
        for i, method in enumerate(methods):
            chain = rng.normal(size=(500, 2)) if i != 1 else 0.15 * np.cumsum(rng.normal(size=(500, 2)), axis=0)
            chain = chain * np.array(sds) if i != 1 else np.clip(chain, -2, 2) * np.array(sds)
            if target == "SCG":
                chain = chain @ turn
            if target == "MoG":
                chain = chain + np.array([2.0, 0]) * (rng.choice([-1, 1], 500)[:, None] if i == 0 else 1)
            chains[method] = chain.astype(np.float32)
        grid[target] = (chains, energy)
    return grid


def traces() -> dict:
    rng = np.random.default_rng(4)
    methods = {"L2HMC": 0.1, "HMC M=25": 0.001, "HMC tuned": 0.004, "A-NICE-MC": 0.4, "NICE, paper's loss": 0.0}

    def trace(rate: float, distance: float) -> np.ndarray:
        side = np.cumprod(1 - 2 * (rng.uniform(size=1000) < rate))
        return (distance * side + 0.5 * rng.normal(size=1000)).astype(np.float32)

    return {
        "MoG": {label: trace(rate, 2) for label, rate in list(methods.items())[:3]},
        "mog2, equal": {label: trace(rate, 5) for label, rate in methods.items()},
        "mog2, unequal": {label: trace(rate, 5) for label, rate in methods.items()},
    }


def burn_in() -> tuple[dict, dict]:
    rng = np.random.default_rng(5)
    transitions = np.array([1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200])
    rates = {"L2HMC, lambda_b = 0": 0.1, "L2HMC, lambda_b = 1": 0.3, "HMC M=10": 0.02}
    curves, floors = {}, {}
    for i, target in enumerate(TARGETS):
        gradients = np.concatenate([[1], 1 + 10 * transitions])
        floors[target] = 0.03
        curves[target] = {
            label: (gradients, 0.03 + 10.0**i * np.exp(-rate * gradients / 10) * np.exp(0.1 * rng.normal(size=13)))
            for label, rate in rates.items()
        }
    return curves, floors


def inertia() -> tuple[np.ndarray, dict]:
    rng = np.random.default_rng(6)
    sd = np.geomspace(0.1, 10, 50)
    return sd, {"L2HMC": 0.1 * sd**0.7 * np.exp(0.1 * rng.normal(size=50)), "HMC M=10": np.full(50, 0.18)}


FIGURES = {
    "ess": lambda **k: plot_ess_bars(ess_rows(), printed=dict(PRINTED), xlabel="ess_paper per transition", **k),
    "ablations": lambda **k: plot_ablations(ablation_rows(), reference="full", xlabel="min_ess per transition", **k),
    "surface": lambda **k: plot_surface(surface(), label="min_ess per gradient", **k),
    "autocorrelation": lambda **k: plot_autocorrelation_panels(autocorrelations(), **k),
    "chains": lambda **k: plot_chain_grid(chain_grid(), **k),
    "modes": lambda **k: plot_modes(traces(), **k),
    "burn-in": lambda **k: plot_burn_in(*burn_in(), **k),
    "inertia": lambda **k: plot_inertia(*inertia(), **k),
    "response": lambda **k: plot_inertia(*inertia(), ylabel="response of $x'_i$ to $v_i$", **k),
}


# --- what can be seen ------------------------------------------------------------------------------------------------


def draw(figure: Figure) -> np.ndarray:
    """Render for good, warnings being errors, and return the picture."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def visible_texts(figure: Figure) -> list[Text]:
    """Every text with ink on the figure; of ticks those within the limits."""
    ticks, hidden = [], set()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                hidden |= {tick.label1, tick.label2}
                if low <= tick.get_loc() <= high:
                    ticks += [label for label in (tick.label1, tick.label2) if label.get_visible()]
    others = [text for text in figure.findobj(Text) if text not in hidden and text.get_visible()]
    return [text for text in [*ticks, *others] if isinstance(text, Text) and text.get_text().strip()]


def flaws(figure: Figure) -> list[str]:
    """Texts that overlap or leave the figure, and panels in which there is nothing."""
    draw(figure)
    texts = visible_texts(figure)
    boxes = [text.get_window_extent() for text in texts]
    found = []
    for i, (text, box) in enumerate(zip(texts, boxes, strict=True)):
        if box.x0 < -0.5 or box.y0 < -0.5 or box.x1 > figure.bbox.x1 + 0.5 or box.y1 > figure.bbox.y1 + 0.5:
            found.append(f"{text.get_text()!r} is cut off")
        found += [f"{text.get_text()!r} on {texts[j].get_text()!r}" for j in range(i) if box.overlaps(boxes[j])]
    found += [f"{ax} is empty" for ax in figure.axes if not (ax.lines or ax.collections or ax.patches or ax.images)]
    return found


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]
