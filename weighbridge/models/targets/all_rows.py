"""The likelihood of all the data as one term, for any kind of model."""

from __future__ import annotations

import numpy as np

from weighbridge.core.errors import ModelError
from weighbridge.core.types import PyTree
from weighbridge.data.cutting import pad
from weighbridge.data.values import num_rows
from weighbridge.models.model import Model
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import SPAN_BLOCK, Span
from weighbridge.models.targets.term import Term
from weighbridge.models.targets.total import Total


def likelihood_term(
    model: Model, values: PyTree | None, weight: np.ndarray | None
) -> tuple[Term, int]:
    """The term of all the data, padded to one of a few sizes, and the number of observations."""
    if model.log_likelihood is None:
        return Total(values), 0 if values is None else num_rows(values)
    if values is None or weight is None:
        raise ModelError("This model has a log-likelihood of rows: give it data.")
    rows = num_rows(values)
    # Sizes have three binary digits after the first, so at most an eighth is padding. It costs no
    # time.
    grain = max(2 ** max(rows.bit_length() - 4, 0), SPAN_BLOCK)
    store = Rows(*pad(values, weight, -(-rows // grain) * grain))
    return Span(store, 0, rows), round(float(weight.sum()))
