"""What a run looks like: tables, and plots that take data and return figures, without pyplot or global settings."""

from leapling.report.autocorrelation import plot_autocorrelation, plot_autocorrelation_panels
from leapling.report.chains import plot_chain_grid, plot_chains
from leapling.report.curves import plot_burn_in, plot_inertia
from leapling.report.dots import plot_ablations, plot_ess_bars
from leapling.report.modes import plot_modes
from leapling.report.pages import page, page_markdown
from leapling.report.surface import plot_surface
from leapling.report.tables import markdown_table
from leapling.report.training import plot_training

__all__ = [
    "markdown_table",
    "page",
    "page_markdown",
    "plot_ablations",
    "plot_autocorrelation",
    "plot_autocorrelation_panels",
    "plot_burn_in",
    "plot_chain_grid",
    "plot_chains",
    "plot_ess_bars",
    "plot_inertia",
    "plot_modes",
    "plot_surface",
    "plot_training",
]
