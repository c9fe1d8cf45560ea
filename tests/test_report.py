"""Tables as written by hand; figures that are complete, and survive awkward data."""

import subprocess
import sys
from typing import Any

import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from leapling.report import markdown_table, plot_autocorrelation, plot_chains, plot_training
from leapling.report.regions import mass_regions
from leapling.report.style import looks
from leapling.report.training import running_mean
from leapling.targets import scg

LAGS = np.arange(60)
NAN = np.full(60, np.nan)


def draw(figure: Figure) -> np.ndarray:
    """Render for good, warnings being errors, and return the picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def texts(figure: Figure) -> list[str]:
    (ax,) = figure.axes
    return [text.get_text() for text in ax.texts]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_table_is_exact():
    rows = [
        {"method": "L2HMC", "ess": 0.27649, "num": 10_000_200, "note": "a|b"},
        {"method": "HMC", "ess": None, "num": np.int64(5), "note": 3},
        {"method": "NUTS", "ess": np.float32(12345.6), "num": 0},
    ]
    table = markdown_table(rows, {"method": "method", "ess": "ess_paper", "num": "n", "note": "note"})
    assert table == (
        "| method | ess_paper |          n | note |\n"
        "| ------ | --------: | ---------: | ---- |\n"
        "| L2HMC  |     0.276 | 10,000,200 | a\\|b |\n"
        "| HMC    |         - |          5 | 3    |\n"
        "| NUTS   |    12,300 |          0 | -    |"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.500"),
        (1.0, "1.00"),
        (100.4, "100"),
        (999.6, "1,000"),
        (0.0, "0.00"),
        (-0.012345, "-0.0123"),
        (1.5e-7, "1.50e-07"),
        (2.5e12, "2.5e+12"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (True, "True"),
        (None, "-"),
        (12345, "12,345"),
    ],
)
def test_numbers_have_three_digits(value, text):
    assert markdown_table([{"x": value}], {"x": ""}).splitlines()[2].strip("| ") == text


def test_a_table_without_rows_is_its_header():
    assert markdown_table([], {"a": "first", "b": "b"}) == "| first | b   |\n| ----- | --- |"


def test_autocorrelation_is_drawn_against_gradients():
    curves = {"L2HMC": 0.5**LAGS, "HMC tuned": 0.9**LAGS}
    figure = plot_autocorrelation(curves, {"L2HMC": 10.0, "HMC tuned": 40.0})
    (ax,) = figure.axes
    assert ax.get_xscale() == "log"
    assert ax.get_xlabel() == "gradient evaluations"
    assert ax.get_ylabel() == "autocorrelation"
    lines: dict[Any, Any] = {line.get_label(): line for line in ax.lines}
    np.testing.assert_allclose(lines["HMC tuned"].get_xdata(), 40 * LAGS[1:15])  # as far as the other goes, 590
    np.testing.assert_allclose(lines["L2HMC"].get_ydata(), curves["L2HMC"][1:])
    assert to_hex(lines["L2HMC"].get_color()) == looks(["L2HMC"])["L2HMC"]["color"]
    draw(figure)


def test_lines_are_named_where_they_end_when_names_fit_and_in_a_legend_otherwise():
    apart = {"L2HMC": 0.99**LAGS, "HMC tuned": 0.9**LAGS}
    figure = plot_autocorrelation(apart, dict.fromkeys(apart, 10.0))
    assert texts(figure) == list(apart)
    assert legend(figure) == []
    together = {name: 0.9**LAGS for name in apart}
    figure = plot_autocorrelation(together, dict.fromkeys(apart, 10.0))
    assert texts(figure) == []
    assert legend(figure) == list(apart)
    draw(figure)


def test_direct_names_overlap_nothing():
    curves = {name: rate**LAGS for name, rate in {"L2HMC": 0.2, "HMC tuned": 0.5, "HMC M=10": 0.8}.items()}
    figure = plot_autocorrelation(curves, dict.fromkeys(curves, 10.0), style={"figure.figsize": (3.4, 2.4)})
    (ax,) = figure.axes
    draw(figure)
    names: list[Any] = list(ax.texts)
    assert len(names) == 3
    boxes = [name.get_window_extent() for name in names]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    # All three end near zero, so the names stand where the lines begin.
    assert all(abs(name.xy[0] - 10) < 1e-9 for name in names)


@pytest.mark.parametrize("curve", [NAN, np.where(LAGS > 5, np.nan, 0.5**LAGS), np.ones(1), np.ones(2), -(0.5**LAGS)])
def test_awkward_curves_are_drawn(curve):
    picture = draw(plot_autocorrelation({"L2HMC": curve}, {"L2HMC": 10.0}))
    assert picture.shape == (600, 1000, 4)


def test_a_curve_of_nothing_finite_is_named_as_such():
    figure = plot_autocorrelation({"L2HMC": 0.5**LAGS, "odd": NAN}, {"L2HMC": 10.0, "odd": 1.0})
    assert legend(figure) == ["L2HMC", "odd (no finite values)"]


@pytest.mark.parametrize("cost", [{}, {"L2HMC": 0.0}, {"L2HMC": float("nan")}])
def test_a_curve_needs_its_cost(cost):
    with pytest.raises(ValueError, match="gradients_per_draw of 'L2HMC'"):
        plot_autocorrelation({"L2HMC": 0.5**LAGS}, cost)


def test_chains_share_axes_and_show_the_first_draws():
    rng = np.random.default_rng(0)
    chains = {name: rng.normal(size=(500, 2)) * 10 for name in ("L2HMC", "HMC tuned", "HMC M=10", "other")}
    figure = plot_chains(chains, scg(), num_draws=30)
    assert [ax.get_title("left").split("\n")[0] for ax in figure.axes] == list(chains)
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in figure.axes}) == 1
    low, high = figure.axes[0].get_xlim()
    for ax, chain in zip(figure.axes, chains.values(), strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_xydata(), chain[:30])
        assert ax.get_xlabel()
        assert low < chain[:, 0].min()
        assert high > chain[:, 0].max()
    draw(figure)


@pytest.mark.parametrize("energy", [None, scg()])
@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, 1e20])
@pytest.mark.parametrize("num", [1, 40])
def test_awkward_chains_are_drawn(energy, value, num):
    chain = np.zeros((num, 2))
    chain[-1] = value
    assert draw(plot_chains({"stuck": chain}, energy)).any()


@pytest.mark.parametrize("shape", [(40,), (40, 1), (40, 3), (4, 40, 2), (0, 2)])
def test_a_chain_is_two_dimensional(shape):
    with pytest.raises(ValueError, match=r"\(draw, 2\) is needed"):
        plot_chains({"L2HMC": np.zeros(shape)})


def test_regions_hold_their_mass():
    """A standard normal's region of mass p is the disc where U < -log(1 - p)."""
    regions = mass_regions(lambda x: jnp.sum(x**2) / 2, [(-6.0, 6.0), (-6.0, 6.0)])
    assert regions is not None
    np.testing.assert_allclose(regions[3][1:], np.sqrt(-np.log(1 - np.array([0.5, 0.9, 0.99]))), rtol=1e-2)


def test_an_energy_that_is_nowhere_finite_has_no_regions():
    assert mass_regions(lambda x: jnp.sum(x) * jnp.nan, [(-1.0, 1.0), (-1.0, 1.0)]) is None


def test_training_has_a_panel_for_each_quantity():
    history = {name: np.linspace(1, 2, 300) for name in ("loss", "acceptance", "step_size", "temperature")}
    figure = plot_training(history)
    assert [ax.get_ylabel() for ax in figure.axes] == ["loss", "acceptance", "step size"]
    assert figure.axes[-1].get_xlabel() == "iteration"
    draw(figure)


def test_a_spike_does_not_flatten_the_loss():
    loss = np.linspace(0, -10, 1000)
    loss[3] = 1e9
    low, high = plot_training({"loss": loss}).axes[0].get_ylim()
    assert -15 < low < -9.5
    assert -0.5 < high < 5


@pytest.mark.parametrize("values", [np.full(9, np.nan), np.ones(1), np.array([np.inf, 1.0, np.nan]), np.ones(1000)])
def test_awkward_histories_are_drawn(values):
    assert draw(plot_training({"loss": values, "acceptance": values})).any()


def test_a_history_without_anything_to_plot_is_refused():
    with pytest.raises(ValueError, match="acceptance and step_size is needed"):
        plot_training({"temperature": np.ones(3)})


def test_running_mean_passes_over_what_is_not_finite():
    values = np.array([1.0, np.nan, 3.0, np.inf, np.nan, np.nan, 5.0])
    np.testing.assert_allclose(running_mean(values, 3), [1, 2, 3, 3, np.nan, 5, 5])


@pytest.mark.parametrize("plot", [plot_training, plot_chains, lambda data: plot_autocorrelation(data, {})])
def test_no_data_is_refused(plot):
    with pytest.raises(ValueError, match="needed"):
        plot({})


def test_style_overrides_and_global_settings_stay():
    before = matplotlib.rcParams.copy()
    figure = plot_training({"loss": np.ones(5)}, style={"figure.figsize": (7.0, 1.0), "axes.labelsize": 11})
    assert figure.get_figwidth() == 7.0
    assert figure.axes[0].yaxis.label.get_fontsize() == 11
    assert matplotlib.rcParams == before
    # Ticks keep the style even when the figure is drawn later, under the global settings.
    figure = plot_chains({"L2HMC": np.eye(2)}, style={"xtick.labelsize": 5})
    draw(figure)
    assert {label.get_fontsize() for label in figure.axes[0].get_xticklabels()} == {5.0}
    assert {label.get_fontsize() for label in figure.axes[0].get_yticklabels()} == {7.0}


def test_importing_the_package_does_not_import_pyplot():
    code = "import leapling, leapling.report, sys; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
