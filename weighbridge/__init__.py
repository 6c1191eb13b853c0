"""weighbridge weighs Bayesian models against each other, on data of any size, as they arrive."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from weighbridge import zoo
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
        SGAIS,
        SMC,
        AdaptiveHMC,
        PriorSampling,
        Thermodynamic,
    )
    from weighbridge.interop import from_numpyro
    from weighbridge.kernels import HMC, SGHMC, SGLD, Metropolis, RobbinsMonro
    from weighbridge.model import Model
    from weighbridge.online import Online
    from weighbridge.result import Evidence
    from weighbridge.run import Update, evidence

# Imported on first use: `weighbridge --help` must not wait for JAX.
_HOMES = {
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
    "estimators": ("AIS", "AdaptiveHMC", "PriorSampling", "SGAIS", "SMC", "Thermodynamic"),
    "interop": ("from_numpyro",),
    "kernels": ("HMC", "SGHMC", "SGLD", "Metropolis", "RobbinsMonro"),
    "model": ("Model",),
    "online": ("Online",),
    "result": ("Evidence",),
    "run": ("Update", "evidence"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AIS",
    "AdaptiveHMC",
    "CheckpointError",
    "Comparison",
    "DataError",
    "Evidence",
    "HMC",
    "MethodError",
    "Metropolis",
    "MissingDependencyError",
    "Model",
    "ModelError",
    "Online",
    "PriorSampling",
    "RobbinsMonro",
    "SGAIS",
    "SGHMC",
    "SGLD",
    "SMC",
    "Status",
    "Thermodynamic",
    "Update",
    "WeighbridgeError",
    "compare",
    "evidence",
    "from_numpyro",
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
