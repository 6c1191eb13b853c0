"""Ready-made models, with simulated data, and with exact evidences where they are known."""

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
