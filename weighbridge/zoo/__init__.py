"""Models that are ready to use, with simulated data and exact evidences where they exist."""

from weighbridge.zoo import autoregressive, gaussian, linear, logistic, mixture
from weighbridge.zoo.registry import Entry, entries, parse

__all__ = [
    "Entry",
    "autoregressive",
    "entries",
    "gaussian",
    "linear",
    "logistic",
    "mixture",
    "parse",
]
