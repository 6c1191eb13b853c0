"""Evidence estimators: the annealing core, and the methods on it."""

from weighbridge.estimators.ais import AIS
from weighbridge.estimators.bounds import Bounds, Verdict
from weighbridge.estimators.ibis import IBIS
from weighbridge.estimators.ibis_run import IBISRun
from weighbridge.estimators.methods import Method, choose, resolve, resolve_sequential
from weighbridge.estimators.moves import AdaptiveHMC, Repeat
from weighbridge.estimators.prior_sampling import PriorSampling
from weighbridge.estimators.published import PublishedRun, PublishedSGAIS
from weighbridge.estimators.sequential import SequentialMethod, SequentialRun
from weighbridge.estimators.sequential_sgmcmc import SequentialSGMCMC, SequentialSGMCMCRun
from weighbridge.estimators.sgais import SGAIS
from weighbridge.estimators.sgais_run import SGAISRun
from weighbridge.estimators.smc import SMC
from weighbridge.estimators.tempering import Tempering
from weighbridge.estimators.thermodynamic import Thermodynamic
from weighbridge.estimators.walks import AdaptiveWalk

__all__ = [
    "AIS",
    "IBIS",
    "SGAIS",
    "SMC",
    "AdaptiveHMC",
    "AdaptiveWalk",
    "Bounds",
    "IBISRun",
    "Method",
    "PriorSampling",
    "PublishedRun",
    "PublishedSGAIS",
    "Repeat",
    "SGAISRun",
    "SequentialMethod",
    "SequentialRun",
    "SequentialSGMCMC",
    "SequentialSGMCMCRun",
    "Tempering",
    "Thermodynamic",
    "Verdict",
    "choose",
    "resolve",
    "resolve_sequential",
]
