"""Rows that one of several models cannot use: they are left out for all models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weighbridge.core.types import PyTree
from weighbridge.data.row_checking import RowPolicy
from weighbridge.data.values import LeftOut, num_rows
from weighbridge.models.row_gate import Admission
from weighbridge.weighing.competitor import Competitor


class CommonRows:
    """Finds the rows that every model can use, so that evidences are of the same rows.

    Models differ in the values that they refuse (labels, counts below zero) and in the columns
    that they see. Every model is checked, also one that a later round of islands does not run.

    Args:
        competitors: the models, by name.
        on_bad_row: what to do with bad rows; with "raise" this class checks nothing, and the
            first model that meets a bad row raises the error.
        left_out: columns that were left out because they do not hold numbers.

    >>> import weighbridge as wb
    >>> from weighbridge.weighing.competitor import as_it_is
    >>> model = wb.zoo.gaussian.model()
    >>> two = {"a": Competitor(model, as_it_is), "b": Competitor(model, lambda y: y[:, None][:, 0])}
    >>> CommonRows(two, "skip", {}).unusable(np.array([1.0, np.nan]))
    array([False,  True])
    """

    def __init__(
        self, competitors: Mapping[str, Competitor], on_bad_row: RowPolicy, left_out: LeftOut
    ) -> None:
        by_rows = [c for c in competitors.values() if c.model.log_likelihood is not None]
        asked = by_rows if on_bad_row != "raise" and len(competitors) > 1 else []
        self._gates = [(c.view, Admission(c.model, "skip", None, left_out)) for c in asked]

    def unusable(self, block: PyTree) -> np.ndarray | None:
        """Mask of the rows that at least one model cannot use; None if nothing was checked."""
        if not self._gates or not num_rows(block):
            return None
        bad: np.ndarray = np.any([gate.find_bad(view(block)) for view, gate in self._gates], axis=0)
        return bad
