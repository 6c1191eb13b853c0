"""Draws of chains as arrays, chains x draws x shape, and diagnostics of each scalar entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.tables.summaries import scalar_entries

# A chain needs at least this many draws: with fewer it cannot be split in halves that vary.
MIN_DRAWS = 4

Diagnostic = Callable[[np.ndarray], Any]


def array_stats() -> Any:
    """ArviZ's functions on arrays; imported on first use, because the import is slow."""
    from arviz_stats import base

    return base.array_stats


def choose(argument: str, chosen: str, known: Mapping[str, str]) -> str:
    """ArviZ's name for a choice; an unknown choice is refused."""
    if chosen not in known:
        names = ", ".join(repr(name) for name in known)
        raise MethodError(f"{argument} must be one of {names}, not {chosen!r}.")
    return known[chosen]


def check_draws(draws: Any) -> np.ndarray:
    """Draws as an array of numbers, chains x draws x shape."""
    try:
        chains = np.asarray(draws, np.float64)
    except (TypeError, ValueError) as error:
        raise MethodError(f"The draws are not one array of numbers: {error}.") from None
    if chains.ndim < 2:
        raise MethodError(
            f"Draws are chains x draws x shape; these have the shape {chains.shape}. Give one "
            "chain as draws[None]."
        )
    if not (chains.shape[0] and chains.shape[1]):
        raise MethodError(f"There are no draws: their shape is {chains.shape}.")
    return chains


def of_entries(draws: Any, diagnostic: Diagnostic) -> Any:
    """A diagnostic of every scalar entry; NaN for draws without one."""
    chains = check_draws(draws)
    shape = chains.shape[2:]
    answer = np.full(shape, np.nan)
    for index in np.ndindex(shape):
        entry = chains[(slice(None), slice(None), *index)]
        usable = np.isfinite(entry).all() and np.ptp(entry) > 0
        if usable and entry.shape[1] >= MIN_DRAWS:
            with np.errstate(divide="ignore", invalid="ignore"):
                answer[index] = diagnostic(entry)
    return answer if shape else float(answer)


def scalar_chains(samples: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Chains x draws of every scalar entry, by its label."""
    chains = {name: check_draws(draws) for name, draws in samples.items()}
    if not chains:
        raise MethodError("There are no draws: samples is empty.")
    joined = {name: array.reshape(-1, *array.shape[2:]) for name, array in chains.items()}
    shapes = {label: chains[name].shape[:2] for name in chains for label in _labels(joined, name)}
    return {label: flat.reshape(shapes[label]) for label, flat in scalar_entries(joined).items()}


def _labels(samples: Mapping[str, np.ndarray], name: str) -> list[str]:
    return list(scalar_entries({name: samples[name]}))
