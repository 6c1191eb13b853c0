"""Figures. Matplotlib is imported only when one is drawn."""

from weighbridge.plots.answer import Answer, explain_answer
from weighbridge.plots.bounds import plot_bounds
from weighbridge.plots.canvas import check_figure_place, new_figure, save_figure
from weighbridge.plots.chains import plot_chains
from weighbridge.plots.checks import plot_checks
from weighbridge.plots.correlation import plot_autocorrelation
from weighbridge.plots.elpd import plot_elpd, plot_elpd_comparison
from weighbridge.plots.energy import plot_energy
from weighbridge.plots.history import plot_history
from weighbridge.plots.integral import plot_integral
from weighbridge.plots.labelling import Labelling
from weighbridge.plots.models import plot_comparison
from weighbridge.plots.optimum import plot_optimum
from weighbridge.plots.paths import plot_paths
from weighbridge.plots.posterior import plot_posterior
from weighbridge.plots.predictions import plot_bands, plot_draws
from weighbridge.plots.ranks import plot_ranks
from weighbridge.plots.sensitivity import plot_sensitivity

__all__ = [
    "Answer",
    "Labelling",
    "check_figure_place",
    "explain_answer",
    "new_figure",
    "plot_autocorrelation",
    "plot_bands",
    "plot_bounds",
    "plot_chains",
    "plot_checks",
    "plot_comparison",
    "plot_draws",
    "plot_elpd",
    "plot_elpd_comparison",
    "plot_energy",
    "plot_history",
    "plot_integral",
    "plot_optimum",
    "plot_paths",
    "plot_posterior",
    "plot_ranks",
    "plot_sensitivity",
    "save_figure",
]
