"""Evidence estimators: the annealing core, and the methods on it."""

from weighbridge.estimators.methods import Method, resolve, resolve_sequential
from weighbridge.estimators.moves import AdaptiveHMC
from weighbridge.estimators.sgais import SGAIS, SGAISRun
from weighbridge.estimators.tempering import AIS, SMC, PriorSampling, Tempering, Thermodynamic

__all__ = [
    "AIS",
    "SGAIS",
    "SMC",
    "AdaptiveHMC",
    "Method",
    "PriorSampling",
    "SGAISRun",
    "Tempering",
    "Thermodynamic",
    "resolve",
    "resolve_sequential",
]
