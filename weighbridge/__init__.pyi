"""The public names, each with its home: the lazy loader in ``__init__.py`` reads them here."""

from weighbridge import adapters as adapters
from weighbridge import diagnostics as diagnostics
from weighbridge import zoo as zoo
from weighbridge.checking.calibration import Calibration as Calibration
from weighbridge.checking.calibration import sbc as sbc
from weighbridge.checking.cross_validation import Elpd as Elpd
from weighbridge.checking.cross_validation import loo as loo
from weighbridge.checking.cross_validation import waic as waic
from weighbridge.checking.elpd_comparison import ElpdComparison as ElpdComparison
from weighbridge.checking.elpd_comparison import compare_loo as compare_loo
from weighbridge.checking.model_check.checking import check_model as check_model
from weighbridge.checking.model_check.report import Check as Check
from weighbridge.checking.model_check.report import ModelReport as ModelReport
from weighbridge.checking.predictive import PredictiveCheck as PredictiveCheck
from weighbridge.checking.predictive import predictive_check as predictive_check
from weighbridge.checking.sensitivity import Sensitivity as Sensitivity
from weighbridge.checking.sensitivity import prior_sensitivity as prior_sensitivity
from weighbridge.core.errors import CheckpointError as CheckpointError
from weighbridge.core.errors import DataError as DataError
from weighbridge.core.errors import ForkError as ForkError
from weighbridge.core.errors import InUseError as InUseError
from weighbridge.core.errors import MethodError as MethodError
from weighbridge.core.errors import MissingDependencyError as MissingDependencyError
from weighbridge.core.errors import ModelError as ModelError
from weighbridge.core.errors import WeighbridgeError as WeighbridgeError
from weighbridge.core.errors import WeighbridgeWarning as WeighbridgeWarning

# Pickles name it; it is not for users.
from weighbridge.core.pickling import _from_pickle as _from_pickle
from weighbridge.core.status import Status as Status
from weighbridge.core.tables.findings import Findings as Findings
from weighbridge.core.tables.table import Table as Table
from weighbridge.core.types import Kernel as Kernel
from weighbridge.data.feeds.base import Notice as Notice
from weighbridge.data.feeds.base import Parcel as Parcel
from weighbridge.data.feeds.chunking import chunks as chunks
from weighbridge.data.feeds.continuity import Continuity as Continuity
from weighbridge.data.feeds.opening import open_feed as open_feed
from weighbridge.data.feeds.redis_stream import RedisStream as RedisStream
from weighbridge.data.fingerprint import Fingerprint as Fingerprint
from weighbridge.data.lags import Lagged as Lagged
from weighbridge.data.lags import lagged as lagged
from weighbridge.diagnostics import Summary as Summary
from weighbridge.diagnostics import ess as ess
from weighbridge.diagnostics import mcse as mcse
from weighbridge.diagnostics import rhat as rhat
from weighbridge.estimators.annealing.moves.kernels import AdaptiveHMC as AdaptiveHMC
from weighbridge.estimators.annealing.moves.kernels import Repeat as Repeat
from weighbridge.estimators.annealing.moves.walks import AdaptiveWalk as AdaptiveWalk
from weighbridge.estimators.bidirectional.bidirectional import bidirectional as bidirectional
from weighbridge.estimators.bidirectional.bounds import Bounds as Bounds
from weighbridge.estimators.bidirectional.bounds import Verdict as Verdict
from weighbridge.estimators.bridging.bridge_method import Bridge as Bridge
from weighbridge.estimators.bridging.posterior_bridge import bridge as bridge
from weighbridge.estimators.harmonic_mean import HarmonicMean as HarmonicMean
from weighbridge.estimators.ibis.ibis import IBIS as IBIS
from weighbridge.estimators.integration.integration import Integral as Integral
from weighbridge.estimators.integration.integration import integrate as integrate
from weighbridge.estimators.laplace.laplace import Laplace as Laplace
from weighbridge.estimators.maximization.information import Information as Information
from weighbridge.estimators.maximization.information import fisher_information as fisher_information
from weighbridge.estimators.maximization.information import score as score
from weighbridge.estimators.maximization.maximization import Optimum as Optimum
from weighbridge.estimators.maximization.maximization import maximize as maximize
from weighbridge.estimators.nested.nested_sampling import NestedSampling as NestedSampling
from weighbridge.estimators.nested.result import NestedEvidence as NestedEvidence
from weighbridge.estimators.nested.result import merge as merge
from weighbridge.estimators.online_nested.online_nested import (
    OnlineNestedSampling as OnlineNestedSampling,
)
from weighbridge.estimators.protocols import BatchMethod as BatchMethod
from weighbridge.estimators.protocols import SequentialMethod as SequentialMethod
from weighbridge.estimators.ratios.importance_ratio import importance_ratio as importance_ratio
from weighbridge.estimators.ratios.product_space import product_space as product_space
from weighbridge.estimators.ratios.savage_dickey import savage_dickey as savage_dickey
from weighbridge.estimators.reweighting.importance import Importance as Importance
from weighbridge.estimators.reweighting.reweight import Reweighted as Reweighted
from weighbridge.estimators.reweighting.reweight import reweight as reweight
from weighbridge.estimators.sequential_sgmcmc import SequentialSGMCMC as SequentialSGMCMC
from weighbridge.estimators.sgais.published import PublishedSGAIS as PublishedSGAIS
from weighbridge.estimators.sgais.sgais import SGAIS as SGAIS
from weighbridge.estimators.tempering.ais import AIS as AIS
from weighbridge.estimators.tempering.prior_sampling import PriorSampling as PriorSampling
from weighbridge.estimators.tempering.smc import SMC as SMC
from weighbridge.estimators.tempering.thermodynamic import Thermodynamic as Thermodynamic
from weighbridge.models.model import Model as Model
from weighbridge.models.numpyro.reading import from_numpyro as from_numpyro
from weighbridge.models.transforms import BoxCox as BoxCox
from weighbridge.models.transforms import YeoJohnson as YeoJohnson
from weighbridge.models.transforms import in_coordinates as in_coordinates
from weighbridge.monitoring.checkpoint_store import CheckpointStore as CheckpointStore
from weighbridge.monitoring.watch_plan import Keeping as Keeping
from weighbridge.monitoring.watch_plan import Plan as Plan
from weighbridge.monitoring.watch_plan import Watched as Watched
from weighbridge.monitoring.watching import watch as watch
from weighbridge.results.arviz_import import from_arviz as from_arviz
from weighbridge.results.evidence_ratio import EvidenceRatio as EvidenceRatio
from weighbridge.results.evidence_result import Evidence as Evidence
from weighbridge.results.posterior import Posterior as Posterior
from weighbridge.results.prediction import Prediction as Prediction
from weighbridge.results.trace import Trace as Trace
from weighbridge.sampling.kernels.adaptive_metropolis import (
    AdaptiveMetropolis as AdaptiveMetropolis,
)
from weighbridge.sampling.kernels.ensemble import Stretch as Stretch
from weighbridge.sampling.kernels.gibbs import Gibbs as Gibbs
from weighbridge.sampling.kernels.hmc import HMC as HMC
from weighbridge.sampling.kernels.independence import Independence as Independence
from weighbridge.sampling.kernels.mala import MALA as MALA
from weighbridge.sampling.kernels.metropolis import Metropolis as Metropolis
from weighbridge.sampling.kernels.metropolis_hastings import (
    MetropolisHastings as MetropolisHastings,
)
from weighbridge.sampling.kernels.nuts import NUTS as NUTS
from weighbridge.sampling.kernels.nuts import XHMC as XHMC
from weighbridge.sampling.kernels.parallel_tempering import ParallelTempering as ParallelTempering
from weighbridge.sampling.kernels.parts.schedule import RobbinsMonro as RobbinsMonro
from weighbridge.sampling.kernels.population import PopulationMonteCarlo as PopulationMonteCarlo
from weighbridge.sampling.kernels.psgld import PSGLD as PSGLD
from weighbridge.sampling.kernels.rejection import Rejection as Rejection
from weighbridge.sampling.kernels.rsghmc import RiemannianSGHMC as RiemannianSGHMC
from weighbridge.sampling.kernels.sghmc import SGHMC as SGHMC
from weighbridge.sampling.kernels.sgld import SGLD as SGLD
from weighbridge.sampling.kernels.sgnht import SGNHT as SGNHT
from weighbridge.sampling.kernels.simulated_tempering import (
    SimulatedTempering as SimulatedTempering,
)
from weighbridge.sampling.kernels.slice import Slice as Slice
from weighbridge.sampling.kernels.windowed_hmc import WindowedHMC as WindowedHMC
from weighbridge.sampling.sampling import sample as sample
from weighbridge.sampling.warmup.settings import Warmup as Warmup
from weighbridge.weighing.averaging import average as average
from weighbridge.weighing.changes.settings import Change as Change
from weighbridge.weighing.changes.settings import Changes as Changes
from weighbridge.weighing.comparing import compare as compare
from weighbridge.weighing.comparison import Comparison as Comparison
from weighbridge.weighing.cross_check import CrossCheck as CrossCheck
from weighbridge.weighing.cross_checking import cross_check as cross_check
from weighbridge.weighing.online import Online as Online
from weighbridge.weighing.online_comparison.catching_up import CatchUp as CatchUp
from weighbridge.weighing.online_comparison.history import History as History
from weighbridge.weighing.online_comparison.online_comparison import (
    OnlineComparison as OnlineComparison,
)
from weighbridge.weighing.online_comparison.update import ComparisonUpdate as ComparisonUpdate
from weighbridge.weighing.session import Update as Update
from weighbridge.weighing.weighing import evidence as evidence
from weighbridge.zoo.exact_posterior import ExactPosterior as ExactPosterior

__version__: str
__all__: list[str]
