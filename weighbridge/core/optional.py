"""Optional modules: import them when needed, and test for their classes without importing."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from weighbridge.core.errors import MissingDependencyError


def require(module: str) -> Any:
    """Import an optional module, or raise an error that explains how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"Reading this data needs {module.split('.')[0]}, which cannot be imported. "
            'Install it with: pip install "weighbridge[data]"'
        ) from error


def is_a(thing: Any, module: str, *names: str) -> bool:
    """Whether `thing` is of a class of an optional module, without importing that module."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(thing, tuple(getattr(loaded, name) for name in names))
