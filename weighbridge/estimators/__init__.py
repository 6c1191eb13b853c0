"""Evidence estimators: the annealing core, and one file for each method on it."""

from weighbridge.estimators.methods import resolve
from weighbridge.estimators.sgais import SGAIS, SGAISRun

__all__ = ["SGAIS", "SGAISRun", "resolve"]
