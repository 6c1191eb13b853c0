"""Save an anchor as arrays of a checkpoint, and restore it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from weighbridge.estimators.sgais.anchoring import NUM_REPLICATES, Anchor
from weighbridge.models.targets.anchored import Sums


def anchor_state(anchor: Anchor | None) -> dict[str, np.ndarray]:
    """Arrays from which ``restored_anchor`` makes the anchor; empty if there is no anchor."""
    if anchor is None:
        return {}
    arrays = {"anchor/position": anchor.position}
    sums = anchor.sums._asdict()
    arrays |= {f"anchor/{k}": np.asarray(v) for k, v in sums.items() if v is not None}
    errors = {} if anchor.errors is None else anchor.errors._asdict()
    return arrays | {f"error/{k}": np.asarray(v) for k, v in errors.items() if v is not None}


def restored_anchor(arrays: dict[str, np.ndarray], num_rows: int, dimension: int) -> Anchor | None:
    """The anchor from saved arrays, set after ``num_rows`` rows; invalid arrays are refused."""
    if ("anchor/position" in arrays) != (num_rows > 0):
        raise ValueError("the anchor is missing, or the number of rows at which it was set")
    if "anchor/position" not in arrays:
        return None
    zero = Sums.zero(dimension)
    sums = _saved_sums(arrays, "anchor")
    _require_like(zero, sums, "the anchor")
    _require_like(zero.gradient, arrays["anchor/position"], "the anchor's position")
    errors = None
    if "error/value" in arrays:
        errors = _saved_sums(arrays, "error")
        many = jax.tree_util.tree_map(lambda leaf: np.zeros((NUM_REPLICATES, *leaf.shape)), zero)
        _require_like(many, errors, "the error of the anchor's sums")
        if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree_util.tree_leaves(errors)):
            raise ValueError("the error of the anchor's sums is not finite")
    return Anchor(arrays["anchor/position"], sums, num_rows, errors)


def _saved_sums(arrays: dict[str, np.ndarray], prefix: str) -> Sums:
    """Sums from their saved names; sums of first order have no curvature."""
    saved: Any = [arrays.get(f"{prefix}/{name}") for name in Sums._fields]
    return Sums(*saved)


def _require_like(wanted: Any, found: Any, what: str) -> None:
    """Refuse saved arrays that do not have the expected shapes and types."""

    def layout(leaf: Any) -> tuple[tuple[int, ...], str]:
        return np.shape(leaf), str(np.asarray(leaf).dtype)

    shapes = [jax.tree_util.tree_map(layout, leaves) for leaves in (found, wanted)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{what} has the shapes and types {shapes[0]}, not {shapes[1]}")
