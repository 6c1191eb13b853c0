"""weighbridge weighs Bayesian models against each other, on data of any size, as they arrive."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from weighbridge import zoo
    from weighbridge.averaging import average
    from weighbridge.base import (
        CheckpointError,
        DataError,
        MethodError,
        MissingDependencyError,
        ModelError,
        Status,
        WeighbridgeError,
    )
    from weighbridge.comparison import Comparison, compare
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
    )
    from weighbridge.estimators.bidirectional import bidirectional
    from weighbridge.interop import from_numpyro
    from weighbridge.kernels import (
        HMC,
        PSGLD,
        SGHMC,
        SGLD,
        SGNHT,
        Metropolis,
        RiemannianSGHMC,
        RobbinsMonro,
        Slice,
        Stretch,
    )
    from weighbridge.lags import Lagged, lagged
    from weighbridge.model import Model
    from weighbridge.online import Online
    from weighbridge.prediction import Prediction
    from weighbridge.result import Evidence
    from weighbridge.run import Update, evidence

# Imported on first use: `weighbridge --help` must not wait for JAX.
_HOMES = {
    "averaging": ("average",),
    "base": (
        "CheckpointError",
        "DataError",
        "MethodError",
        "MissingDependencyError",
        "ModelError",
        "Status",
        "WeighbridgeError",
    ),
    "comparison": ("Comparison", "compare"),
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
    ),
    "estimators.bidirectional": ("bidirectional",),
    "interop": ("from_numpyro",),
    "kernels": (
        "HMC",
        "Metropolis",
        "PSGLD",
        "RiemannianSGHMC",
        "RobbinsMonro",
        "SGHMC",
        "SGLD",
        "SGNHT",
        "Slice",
        "Stretch",
    ),
    "lags": ("Lagged", "lagged"),
    "model": ("Model",),
    "online": ("Online",),
    "prediction": ("Prediction",),
    "result": ("Evidence",),
    "run": ("Update", "evidence"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AIS",
    "AdaptiveHMC",
    "AdaptiveWalk",
    "Bounds",
    "CheckpointError",
    "Comparison",
    "DataError",
    "Evidence",
    "HMC",
    "IBIS",
    "Lagged",
    "MethodError",
    "Metropolis",
    "MissingDependencyError",
    "Model",
    "ModelError",
    "Online",
    "PSGLD",
    "Prediction",
    "PriorSampling",
    "PublishedSGAIS",
    "Repeat",
    "RiemannianSGHMC",
    "RobbinsMonro",
    "SGAIS",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SMC",
    "SequentialSGMCMC",
    "Slice",
    "Status",
    "Stretch",
    "Thermodynamic",
    "Update",
    "WeighbridgeError",
    "average",
    "bidirectional",
    "compare",
    "evidence",
    "from_numpyro",
    "lagged",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name == "zoo":
        return importlib.import_module("weighbridge.zoo")
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"weighbridge.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'weighbridge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
