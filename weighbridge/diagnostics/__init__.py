"""Diagnostics of Markov chains: have they converged, and how much are their draws worth?

Arrays are chains x draws, and then whatever shape one draw has. What ArviZ has is ArviZ's.
"""

from weighbridge.diagnostics.convergence import ess, mcse, rhat
from weighbridge.diagnostics.correlation import autocorrelation, autocorrelation_length, thin
from weighbridge.diagnostics.energy import energy_fraction
from weighbridge.diagnostics.findings import warnings_of
from weighbridge.diagnostics.summary import Summary, summarise

__all__ = [
    "Summary",
    "autocorrelation",
    "autocorrelation_length",
    "energy_fraction",
    "ess",
    "mcse",
    "rhat",
    "summarise",
    "thin",
    "warnings_of",
]
