"""Log densities that can be called, and are pytrees: exact, tempered, on mini-batches.

A target is the log prior plus a sum of likelihood terms. What changes while sampling (the
temperature, the mini-batch) is a leaf of the pytree, so that changing it never retraces.
"""

from weighbridge.target.batches import Batches, Subsampled
from weighbridge.target.density import Target
from weighbridge.target.rows import BLOCK_ROWS, Rows
from weighbridge.target.span import SPAN_BLOCK, Span
from weighbridge.target.tempered import Tempered
from weighbridge.target.term import ExactTerm, OwnGuide, Term
from weighbridge.target.total import Total, on_data

__all__ = [
    "BLOCK_ROWS",
    "SPAN_BLOCK",
    "Batches",
    "ExactTerm",
    "OwnGuide",
    "Rows",
    "Span",
    "Subsampled",
    "Target",
    "Tempered",
    "Term",
    "Total",
    "on_data",
]
