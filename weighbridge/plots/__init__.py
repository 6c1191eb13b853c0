"""Figures. Matplotlib is imported only when one is drawn."""

from weighbridge.plots.bounds import plot_bounds
from weighbridge.plots.canvas import check_figure_place, new_figure, save_figure
from weighbridge.plots.chains import plot_chains
from weighbridge.plots.checks import plot_checks
from weighbridge.plots.history import plot_history
from weighbridge.plots.models import plot_comparison
from weighbridge.plots.paths import plot_paths
from weighbridge.plots.posterior import plot_posterior
from weighbridge.plots.predictions import plot_bands, plot_draws
from weighbridge.plots.ranks import plot_ranks

__all__ = [
    "check_figure_place",
    "new_figure",
    "plot_bands",
    "plot_bounds",
    "plot_chains",
    "plot_checks",
    "plot_comparison",
    "plot_draws",
    "plot_history",
    "plot_paths",
    "plot_posterior",
    "plot_ranks",
    "save_figure",
]
