"""Diagnostics of Markov chains: convergence, and the effective number of draws.

Arrays are chains x draws x shape of one draw. Functions that ArviZ has are taken from ArviZ.
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
