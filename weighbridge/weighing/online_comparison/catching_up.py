"""Catching up: a model that joins a comparison late absorbs the rows that the others have seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import DataError, MethodError
from weighbridge.core.pickling import travels
from weighbridge.core.types import PyTree
from weighbridge.data.cutting import rechunk, slice_rows
from weighbridge.data.row_checking import RowChecker
from weighbridge.data.sources.opening import open_source
from weighbridge.data.values import num_rows
from weighbridge.estimators.sequential import Kept
from weighbridge.models.row_likelihood import split_weight
from weighbridge.models.row_values import row_blocks
from weighbridge.weighing.session import Session

# Posterior draws over which the log-likelihood of a row is averaged.
NUM_DRAWS = 16


@travels()
class CatchUp(NamedTuple):
    """How a model caught up.

    Attributes:
        how: "start" if there were no earlier rows, "replayed" if it read them from a source,
            "reservoir" if it took the rows that another model had kept.
        num_rows: number of rows that it absorbed.
        sampling_error: standard error of its log evidence because these rows were only a sample;
            0 if they were all rows.
    """

    how: Literal["start", "replayed", "reservoir"]
    num_rows: int
    sampling_error: float = 0.0

    def __str__(self) -> str:
        if self.how == "start":
            return "there were no rows to catch up with"
        if self.how == "replayed":
            return f"{self.num_rows:,} rows were replayed from the source"
        if self.sampling_error == 0:
            return f"all {self.num_rows:,} rows were still in the reservoir"
        return (
            f"a reservoir of {self.num_rows:,} rows stands for all before: its log evidence is "
            f"uncertain by {self.sampling_error:.3g} nats, from now on"
        )


def replay(session: Session, data: Any, seen: RowChecker) -> CatchUp:
    """Let a new model absorb the rows that a comparison has seen, from a source of these rows.

    Args:
        session: the session of the new model; after an error it must not be used.
        data: as for ``wb.evidence``; rows after those that the comparison has seen are not read.
        seen: the checker of the rows of the comparison.
    """
    source = open_source(data, on_bad_row=seen.on_bad_row)
    if source.num_rows is not None and source.num_rows < seen.rows_read:
        raise _too_few(source.num_rows, seen.rows_read)
    # Rows that were left out then are left out again, but not written to quarantine twice.
    checker = RowChecker("skip", seen.check_rows, columns_read=seen.columns_read)
    checker.unread = source.unread
    nothing = {"rows_read": 0, "rows_skipped": 0, "rows_quarantined": 0}
    checker.restore(seen.state() | nothing)

    def admitted() -> Iterator[PyTree]:
        for block in source.blocks():
            left = seen.rows_read - checker.rows_read
            rows = checker(slice_rows(block, 0, left))
            if num_rows(rows):
                _admit(session, rows, seen.gaps)
                yield rows
            if checker.rows_read == seen.rows_read:
                return

    sizes = partial(session.method.chunk_after, in_memory=source.in_memory)
    for chunk in rechunk(admitted(), sizes):
        session.absorb(chunk)
    if checker.rows_read < seen.rows_read:
        raise _too_few(checker.rows_read, seen.rows_read)
    if checker.rows_skipped != seen.rows_left_out:
        raise DataError(
            f"The source does not hold the rows that were seen: {checker.rows_skipped} of its "
            f"first {seen.rows_read} are bad, and {seen.rows_left_out} of those seen were. Give "
            "the source that the comparison was updated from."
        )
    return CatchUp("replayed", session.run.num_rows)


def _too_few(rows: int, wanted: int) -> DataError:
    return DataError(
        f"The source has {rows:,} rows, and the comparison has seen {wanted:,}. Give the source "
        "that it was updated from, from its first row on."
    )


def take_kept(session: Session, others: Mapping[str, Session], seen: RowChecker) -> CatchUp:
    r"""Let a new model absorb the rows that another model has kept, weighted to represent all.

    Of n rows R are kept. If R < n, each kept row counts n / R times. The log evidence then has the
    standard error of a sum that is estimated from a sample, where l_k is the log-likelihood of a
    row averaged over the posterior:

    .. math:: n \, \mathrm{sd}(l_k) \sqrt{\frac{1 - R/n}{R}}

    The posterior fits the sample better than it fits all rows. In D dimensions this raises the log
    evidence by about :math:`(n/R - 1) D / 2`, which is also included in the error.

    Args:
        session: the session of the new model; after an error it must not be used.
        others: sessions of the models that have seen all rows.
        seen: the checker of the rows of the comparison.
    """
    found = {name: kept for name, other in others.items() if (kept := other.run.kept())}
    if not found:
        raise MethodError(
            "No running model keeps its rows or a uniform sample of them. Give the source of the "
            "rows: add(name, model, source)."
        )
    name = max(found, key=lambda n: (found[n].is_complete, len(found[n].weight)))
    kept, other = found[name], others[name]
    values = _with_weight(kept, bool(other.weight_counts_rows), seen.state()["structure"])
    _admit(session, values, seen.gaps)
    rows, weight = split_weight(values, bool(session.weight_counts_rows))
    scale = 1.0
    if not kept.is_complete:
        scale = other.run.num_rows / len(weight)
        if session.weight_counts_rows == other.weight_counts_rows:
            scale = other.run.num_observations / float(weight.sum())
    sizes = partial(session.method.chunk_after, in_memory=True)
    for chunk, its_weight in rechunk([(rows, scale * weight)], sizes):
        session.run.absorb(chunk, its_weight)
    if kept.is_complete:
        session.fingerprint = other.fingerprint
        return CatchUp("reservoir", len(weight))
    session.fingerprint = None
    error = _sampling_error(session, rows, weight, other.run.num_rows)
    return CatchUp("reservoir", len(weight), error)


def _admit(session: Session, values: PyTree, gaps: set[str]) -> None:
    """Check the rows that the others have used: a row that the new model cannot use is an error."""
    session.check_model(values)
    read = session.columns_read(values) if gaps else set()
    for name in sorted(gaps):
        if read is None or name in read:
            raise DataError(
                f"The new model reads column {name!r}, which has gaps in rows that were taken "
                "because no other model reads it. Start a new comparison with all models, which "
                "leaves such rows out for all."
            )
    for reason, mask in session.check_rows(values).items():
        if np.any(mask):
            raise DataError(
                f"The new model cannot take {int(np.sum(mask))} of the rows that the others have "
                f"({reason}): they would not be weighed on the same rows. Start a new comparison "
                "with all models, which leaves such rows out for all."
            )


def _with_weight(kept: Kept, counts_rows: bool, structure: Any) -> PyTree:
    """The original rows, with the column ``weight`` put back if it was split off."""
    if not counts_rows:
        return kept.values
    kinds = {name: kind for name, _, kind in structure}
    return {**kept.values, "weight": kept.weight.astype(kinds["weight"])}


@double_precision
def _sampling_error(session: Session, rows: PyTree, weight: np.ndarray, seen: int) -> float:
    samples = session.result().resample(NUM_DRAWS, seed=0)
    likelihood = np.concatenate(
        [b.mean(axis=0) for _, b in row_blocks(session.model, samples, rows)]
    )
    count = len(weight)
    counted = np.where(weight > 0, weight * likelihood, 0.0)
    spread = seen * float(np.std(counted, ddof=1)) * math.sqrt((1 - count / seen) / count)
    return math.hypot(spread, 0.5 * session.model.dimension * (seen / count - 1))
