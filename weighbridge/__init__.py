"""weighbridge weighs Bayesian models against each other, on data of any size, as they arrive."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.2.0"


def _public_names() -> dict[str, str]:
    """The module that holds each public name, as ``__init__.pyi`` says: the one list of them."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {entry.name: node.module or "" for node in imports for entry in node.names}


_HOME_OF = _public_names()
__all__ = [name for name in sorted(_HOME_OF) if not name.startswith("_")]


def __getattr__(name: str) -> Any:
    """Import on first use: ``weighbridge --help`` must not wait for JAX."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME_OF[name]
    if home == __name__:  # a room that is public itself
        return importlib.import_module(f"{home}.{name}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
