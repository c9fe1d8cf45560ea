"""What a run looks like: tables, and plots that return figures."""

from leapling.report.plots import plot_autocorrelation, plot_chains, plot_training
from leapling.report.tables import markdown_table

__all__ = ["markdown_table", "plot_autocorrelation", "plot_chains", "plot_training"]
