"""Estimators for scikit-learn and river that compare models and average their predictions.

>>> from weighbridge.adapters import WeighbridgeClassifier
>>> WeighbridgeClassifier(seed=3)
WeighbridgeClassifier(seed=3)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weighbridge.adapters.river import RiverClassifier
    from weighbridge.adapters.sklearn import WeighbridgeClassifier, WeighbridgeRegressor

# Imported on first use: each needs a library that may not be installed.
_HOME_OF = {
    "RiverClassifier": "river",
    "WeighbridgeClassifier": "sklearn",
    "WeighbridgeRegressor": "sklearn",
}

__all__ = ["RiverClassifier", "WeighbridgeClassifier", "WeighbridgeRegressor"]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"weighbridge.adapters.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'weighbridge.adapters' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
