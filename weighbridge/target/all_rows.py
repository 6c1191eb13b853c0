"""The likelihood of all the data as one term, whatever form they have."""

from __future__ import annotations

import numpy as np

from weighbridge.base import ModelError, PyTree
from weighbridge.data import num_rows, pad
from weighbridge.model import Model
from weighbridge.target.rows import Rows
from weighbridge.target.span import SPAN_BLOCK, Span
from weighbridge.target.term import Term
from weighbridge.target.total import Total


def likelihood_term(
    model: Model, values: PyTree | None, weight: np.ndarray | None
) -> tuple[Term, int]:
    """The term of all the data, padded to one of a few sizes, and the number of observations."""
    if model.log_likelihood is None:
        return Total(values), 0 if values is None else num_rows(values)
    if values is None or weight is None:
        raise ModelError("This model has a log-likelihood of rows: give it data.")
    rows = num_rows(values)
    # Three binary digits after the first: at most an eighth is padding, which costs no time.
    grain = max(2 ** max(rows.bit_length() - 4, 0), SPAN_BLOCK)
    store = Rows(*pad(values, weight, -(-rows // grain) * grain))
    return Span(store, 0, rows), round(float(weight.sum()))
