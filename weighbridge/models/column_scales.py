"""Columns of very different scales, which make a run longer."""

from __future__ import annotations

import numpy as np
from jax import tree_util

from weighbridge.core.types import PyTree
from weighbridge.models.columns_read import columns_asked
from weighbridge.models.model import Model

# A remark is made if the standard deviations of two columns differ by more than this factor.
LARGE_RATIO = 1e3
# Number of rows used.
NUM_ROWS = 10_000


def scale_remark(model: Model, values: PyTree) -> str:
    """A remark if the scales of columns differ by more than a factor of 1,000; else empty.

    If all priors have the same width, the posterior is then narrower by this factor in some
    directions than in others, which takes more annealing steps.

    Args:
        model: a model of rows; columns that it does not read do not count.
        values: the first rows.

    >>> import weighbridge as wb
    >>> rows = {"x": np.outer([1.0, 2.0, 4.0], [0.01, 1000.0]), "y": np.array([1.0, 2.0, 4.0])}
    >>> print(scale_remark(wb.zoo.linear.model(2), rows))
    the scales of columns differ by a factor of 1e+05 (x[0] 0.012, x[1] 1.2e+03), which may \
take several times as long: standardise them, or choose units in which they are similar
    """
    found = _deviations(values)
    if not _differ(found):
        return ""
    if isinstance(values, dict):
        asked, everything = columns_asked(model, values)
        found = {key: size for key, size in found.items() if everything or key[0] in asked}
        if not _differ(found):
            return ""
    least, most = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    return (
        f"the scales of columns differ by a factor of {found[most] / found[least]:.0e} "
        f"({_name(least)} {found[least]:.2g}, {_name(most)} {found[most]:.2g}), which may "
        "take several times as long: standardise them, or choose units in which they are similar"
    )


def _differ(found: dict[tuple[str, str], float]) -> bool:
    return bool(found) and max(found.values()) > LARGE_RATIO * min(found.values())


def _deviations(values: PyTree) -> dict[tuple[str, str], float]:
    """Standard deviations of columns that vary, by the name of the column and the entry."""
    found: dict[tuple[str, str], float] = {}
    for path, leaf in tree_util.tree_flatten_with_path(values)[0]:
        if leaf.dtype == np.bool_ or leaf.ndim > 2:
            continue
        rows = leaf[:NUM_ROWS].astype(np.float64).reshape(min(len(leaf), NUM_ROWS), -1)
        rows = rows[np.isfinite(rows).all(axis=1)]
        if not len(rows):
            continue
        top = str(getattr(path[0], "key", "")) if path else ""
        rest = tree_util.keystr(path[1:], simple=True, separator=".")
        for entry, deviation in enumerate(rows.std(axis=0).tolist()):
            if deviation > 0:
                place = f"[{entry}]" if leaf.ndim == 2 else ""
                found[top, f".{rest}{place}" if rest else place] = deviation
    return found


def _name(key: tuple[str, str]) -> str:
    return "".join(key)
