"""weighbridge weighs Bayesian models against each other, on data of any size, as they arrive."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from weighbridge import adapters, diagnostics, zoo
    from weighbridge.averaging import average
    from weighbridge.base import (
        CheckpointError,
        DataError,
        ForkError,
        InUseError,
        MethodError,
        MissingDependencyError,
        ModelError,
        Status,
        WeighbridgeError,
        WeighbridgeWarning,
    )
    from weighbridge.calibration import Calibration, sbc
    from weighbridge.catching_up import CatchUp
    from weighbridge.chains import Warmup
    from weighbridge.changes import Change, Changes
    from weighbridge.comparing import compare
    from weighbridge.comparison import Comparison
    from weighbridge.comparison_update import ComparisonUpdate
    from weighbridge.criticism import Elpd, ElpdComparison, compare_loo, loo, waic
    from weighbridge.diagnostics import Summary, ess, mcse, rhat
    from weighbridge.estimators import (
        AIS,
        IBIS,
        SGAIS,
        SMC,
        AdaptiveHMC,
        AdaptiveWalk,
        Bounds,
        PriorSampling,
        PublishedSGAIS,
        Repeat,
        SequentialSGMCMC,
        Thermodynamic,
        Verdict,
    )
    from weighbridge.estimators.bidirectional import bidirectional
    from weighbridge.export import Table
    from weighbridge.feeds import Continuity, Notice, Parcel, RedisStream, chunks, open_feed
    from weighbridge.fingerprint import Fingerprint
    from weighbridge.history import History
    from weighbridge.integration import Integral, integrate
    from weighbridge.interop import from_numpyro
    from weighbridge.kernels import (
        HMC,
        MALA,
        NUTS,
        PSGLD,
        SGHMC,
        SGLD,
        SGNHT,
        XHMC,
        AdaptiveMetropolis,
        Gibbs,
        Independence,
        Metropolis,
        MetropolisHastings,
        ParallelTempering,
        PopulationMonteCarlo,
        Rejection,
        RiemannianSGHMC,
        RobbinsMonro,
        SimulatedTempering,
        Slice,
        Stretch,
        WindowedHMC,
    )
    from weighbridge.lags import Lagged, lagged
    from weighbridge.maximization import Optimum, maximize
    from weighbridge.model import Model
    from weighbridge.model_check import Check, ModelReport, check_model
    from weighbridge.online import Online
    from weighbridge.online_comparison import OnlineComparison
    from weighbridge.posterior import Posterior
    from weighbridge.prediction import Prediction
    from weighbridge.predictive import PredictiveCheck, predictive_check
    from weighbridge.result import Evidence, Trace
    from weighbridge.sampling import sample
    from weighbridge.sensitivity import Sensitivity, prior_sensitivity
    from weighbridge.session import Update
    from weighbridge.store import CheckpointStore
    from weighbridge.watching import Keeping as Keeping
    from weighbridge.watching import Plan as Plan
    from weighbridge.watching import Watched as Watched
    from weighbridge.watching import watch as watch
    from weighbridge.weighing import evidence

# Imported on first use: `weighbridge --help` must not wait for JAX.
_HOMES = {
    "averaging": ("average",),
    "base": (
        "CheckpointError",
        "DataError",
        "ForkError",
        "InUseError",
        "MethodError",
        "MissingDependencyError",
        "ModelError",
        "Status",
        "WeighbridgeError",
        "WeighbridgeWarning",
    ),
    "calibration": ("Calibration", "sbc"),
    "chains": ("Warmup",),
    "changes": ("Change", "Changes"),
    "comparing": ("compare",),
    "comparison": ("Comparison",),
    "comparison_update": ("ComparisonUpdate",),
    "criticism": ("Elpd", "ElpdComparison", "compare_loo", "loo", "waic"),
    "diagnostics": ("Summary", "ess", "mcse", "rhat"),
    "estimators": (
        "AIS",
        "AdaptiveHMC",
        "AdaptiveWalk",
        "Bounds",
        "IBIS",
        "PriorSampling",
        "PublishedSGAIS",
        "Repeat",
        "SGAIS",
        "SMC",
        "SequentialSGMCMC",
        "Thermodynamic",
        "Verdict",
    ),
    "estimators.bidirectional": ("bidirectional",),
    "feeds": ("Continuity", "Notice", "Parcel", "RedisStream", "chunks", "open_feed"),
    "integration": ("Integral", "integrate"),
    "interop": ("from_numpyro",),
    "kernels": (
        "NUTS",
        "XHMC",
        "AdaptiveMetropolis",
        "Gibbs",
        "HMC",
        "Independence",
        "MALA",
        "Metropolis",
        "MetropolisHastings",
        "ParallelTempering",
        "PopulationMonteCarlo",
        "PSGLD",
        "Rejection",
        "RiemannianSGHMC",
        "RobbinsMonro",
        "SGHMC",
        "SGLD",
        "SGNHT",
        "SimulatedTempering",
        "Slice",
        "Stretch",
        "WindowedHMC",
    ),
    "lags": ("Lagged", "lagged"),
    "maximization": ("Optimum", "maximize"),
    "model": ("Model",),
    "model_check": ("Check", "ModelReport", "check_model"),
    "online": ("Online",),
    "online_comparison": ("OnlineComparison",),
    "posterior": ("Posterior",),
    "prediction": ("Prediction",),
    "predictive": ("PredictiveCheck", "predictive_check"),
    "result": ("Evidence", "Trace"),
    "sensitivity": ("Sensitivity", "prior_sensitivity"),
    "sampling": ("sample",),
    "session": ("Update",),
    "store": ("CheckpointStore",),
    "catching_up": ("CatchUp",),
    "export": ("Table",),
    "fingerprint": ("Fingerprint",),
    "history": ("History",),
    # Pickles name it; it is not for users.
    "travel": ("_from_pickle",),
    "watching": ("Keeping", "Plan", "Watched", "watch"),
    "weighing": ("evidence",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Calibration",
    "sbc",
    "AIS",
    "AdaptiveHMC",
    "AdaptiveMetropolis",
    "AdaptiveWalk",
    "Bounds",
    "CatchUp",
    "Change",
    "Changes",
    "Check",
    "CheckpointError",
    "CheckpointStore",
    "Comparison",
    "ComparisonUpdate",
    "Continuity",
    "DataError",
    "Elpd",
    "ElpdComparison",
    "Evidence",
    "Fingerprint",
    "ForkError",
    "Gibbs",
    "HMC",
    "History",
    "IBIS",
    "InUseError",
    "Independence",
    "Integral",
    "Lagged",
    "MALA",
    "MethodError",
    "Metropolis",
    "MetropolisHastings",
    "MissingDependencyError",
    "Model",
    "ModelError",
    "ModelReport",
    "NUTS",
    "Notice",
    "Online",
    "OnlineComparison",
    "Optimum",
    "PSGLD",
    "Parcel",
    "Posterior",
    "ParallelTempering",
    "PopulationMonteCarlo",
    "Prediction",
    "PredictiveCheck",
    "PriorSampling",
    "PublishedSGAIS",
    "RedisStream",
    "Rejection",
    "Repeat",
    "RiemannianSGHMC",
    "RobbinsMonro",
    "SGAIS",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SMC",
    "Sensitivity",
    "SequentialSGMCMC",
    "SimulatedTempering",
    "Slice",
    "Status",
    "Stretch",
    "Summary",
    "Table",
    "Thermodynamic",
    "Trace",
    "Update",
    "Verdict",
    "Warmup",
    "WeighbridgeError",
    "WeighbridgeWarning",
    "WindowedHMC",
    "XHMC",
    "adapters",
    "average",
    "bidirectional",
    "check_model",
    "chunks",
    "compare",
    "compare_loo",
    "diagnostics",
    "ess",
    "evidence",
    "from_numpyro",
    "integrate",
    "lagged",
    "maximize",
    "loo",
    "mcse",
    "open_feed",
    "predictive_check",
    "prior_sensitivity",
    "rhat",
    "sample",
    "waic",
    "zoo",
    "Keeping",
    "Plan",
    "Watched",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name in ("adapters", "diagnostics", "zoo"):
        return importlib.import_module(f"weighbridge.{name}")
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"weighbridge.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'weighbridge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
