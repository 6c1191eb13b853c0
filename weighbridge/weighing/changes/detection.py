"""Detect a change: test how a model's particles predict new rows, and the rows before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import special

from weighbridge.core.compilation import double_precision, jit
from weighbridge.core.errors import CheckpointError
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.resampling import systematic_indices
from weighbridge.core.types import Array, PyTree
from weighbridge.data.cutting import join, pad, split
from weighbridge.data.values import num_rows
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.sequential import row_log_likelihoods
from weighbridge.models.model import Model
from weighbridge.models.row_likelihood import split_weight
from weighbridge.weighing.changes.permutation import RowStatistics, compare_rows
from weighbridge.weighing.changes.settings import Change, Changes

# Rows that are scored at once; chunks are padded to whole blocks.
BLOCK_ROWS = 256
# Particles that score the rows, drawn by their weights: more would cost more and add little.
NUM_DRAWS = 256
# Principal directions of the rows' influence on the posterior: the most that are used, and the
# least variance of one relative to the largest. Rows carry no information about the others.
MOST_DIRECTIONS, LEAST_SHARE = 32, 0.01
# The leverage of rows is cut off here: a correction for more of it is not reliable.
LARGEST_LEVERAGE = 0.3
# Lower bounds of a row's log-likelihoods, since some particles may exclude the row: the largest
# of them minus EXCLUDED (nats), and IMPOSSIBLE for a row that all particles exclude.
EXCLUDED, IMPOSSIBLE = 50.0, -1e6
# Rows of the reference for each dimension of the model, so that the fit to them matters little.
ROWS_PER_DIMENSION = 10
# Chunks whose numbers of annealing steps are kept.
REMEMBERED_CHUNKS = 50


class Judge(NamedTuple):
    """The model that tests a chunk, and its particles, which are fitted to the rows before.

    Attributes:
        model: a model with a log-likelihood of rows.
        cloud: the particles.
        half_life: observations after which a row counts half; None if it always counts fully.
        counts_rows: whether the rows' column ``weight`` is how often each row counts.
    """

    model: Model
    cloud: Cloud
    half_life: float | None = None
    counts_rows: bool = False


class Detector:
    """The rows since the last change, and the test of a chunk against them.

    A run, or a contest of several runs, calls ``examine`` before it absorbs a chunk, and ``note``
    afterwards.

    Args:
        settings: the settings of the detection.
        seed: the seed of the permutations.

    Attributes:
        found: the changes so far.
    """

    def __init__(self, settings: Changes, seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.found: list[Change] = []
        self.num_chunks = 0
        self.steps: list[float] = []
        self.kept: list[np.ndarray] = []  # columns of the rows, then their weights

    @property
    def num_kept(self) -> int:
        """The number of rows that the next chunk is compared with."""
        return len(self.kept[-1]) if self.kept else 0

    def examine(
        self, judge: Judge, values: PyTree, weight: np.ndarray, first_row: int
    ) -> Change | None:
        """Test a chunk before it is absorbed, and return the change or None; nothing is kept.

        Args:
            judge: a model with its particles.
            values: the rows of the chunk.
            weight: how often each row counts.
            first_row: number of the chunk's first row in the stream.
        """
        model, cloud, half_life, counts_rows = judge
        fewest = max(self.settings.min_rows, ROWS_PER_DIMENSION * model.dimension)
        if self.num_kept < min(fewest, self.settings.window):
            return None
        *leaves, kept_weight = self.kept
        kept = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(values), leaves)
        rows = join([kept, values])
        weight = np.concatenate([kept_weight, weight])
        if counts_rows:
            rows, weight = split_weight(rows, counts_rows)
        old, new = slice(len(kept_weight)), slice(len(kept_weight), None)
        counted = np.concatenate([_fade(weight[old], half_life), np.zeros(len(weight[new]))])
        score, influence = row_statistics(model, cloud, rows, counted)
        permutations = random_numbers(self.seed, Stream.CHANGES, 0, 0, self.num_chunks)
        rate = self.settings.false_alarm_rate
        verdict = compare_rows(
            RowStatistics(score[old], influence[old], weight[old]),
            RowStatistics(score[new], influence[new], weight[new]),
            permutations,
            rate,
        )
        if verdict.p_value > rate:
            return None
        return Change(
            row=first_row + verdict.first,
            p_value=verdict.p_value,
            score=verdict.score,
            seen_in=verdict.seen_in,
            chunk_start=first_row,
            chunk_end=first_row + num_rows(values),
        )

    def note(self, values: PyTree, weight: np.ndarray, steps: float, change: Change | None) -> None:
        """Record a chunk after it was examined and absorbed.

        Args:
            values: the rows of the chunk.
            weight: how often each row counts.
            steps: annealing steps of the chunk; NaN if a new run absorbed it.
            change: the change that was found, or None.
        """
        if change is not None:
            self.found.append(self.compared(change, steps))
        self.keep(values, weight, steps, change)

    def keep(self, values: PyTree, weight: np.ndarray, steps: float, change: Change | None) -> None:
        """Add an absorbed chunk to the reference rows; after a change they begin at its row."""
        columns = [*jax.tree_util.tree_leaves(values), weight]
        if change is not None:
            first = change.row - change.chunk_start
            self.kept = [column[first:].copy() for column in columns]
            self.steps = []
        else:
            before = self.kept or [column[:0] for column in columns]
            start = -self.settings.window
            self.kept = [np.concatenate(pair)[start:] for pair in zip(before, columns, strict=True)]
            self.steps = [*self.steps, steps][-REMEMBERED_CHUNKS:]
        self.num_chunks += 1

    def compared(self, change: Change, steps: float) -> Change:
        """The change, with the annealing steps of its chunk divided by the median before."""
        usual = float(np.median(self.steps)) if self.steps else 0.0
        return replace(change, annealing_steps=steps / usual) if usual > 0 else change

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which ``restore`` continues."""
        arrays = {f"reference/{i}": column for i, column in enumerate(self.kept)}
        noted = {
            "changes": repr(self.settings),
            "num_chunks": self.num_chunks,
            "steps": list(self.steps),
        }
        return arrays, {"detector": noted, "changes": [change.plain() for change in self.found]}

    def restore(self, arrays: Mapping[str, np.ndarray], plain: Mapping[str, Any]) -> None:
        """Continue from a saved ``state``."""
        noted = plain["detector"]
        if noted["changes"] != repr(self.settings):
            raise CheckpointError(
                f"The run was saved with changes={noted['changes']}, not {self.settings!r}. Load "
                "it with those."
            )
        count = sum(name.startswith("reference/") for name in arrays)
        self.kept = [np.array(arrays[f"reference/{i}"]) for i in range(count)]
        lengths = {len(column) for column in self.kept}
        if len(lengths) > 1 or max(lengths, default=0) > self.settings.window:
            raise ValueError(f"the rows since the last change have the lengths {lengths}")
        stored = {re.sub("rows/(store_)?", "", name): column for name, column in arrays.items()}
        for number, column in enumerate(self.kept):
            twin = stored.get(str(number), column)
            if (twin.shape[1:], twin.dtype) != (column.shape[1:], column.dtype):
                raise ValueError(f"column {number} of the rows since the last change is another")
        self.num_chunks = int(noted["num_chunks"])
        self.steps = [float(steps) for steps in noted["steps"]]
        self.found = [Change.from_plain(change) for change in plain["changes"]]


def _fade(weight: np.ndarray, half_life: float | None) -> np.ndarray:
    """How much each past row still counts in the posterior; the latest rows count most."""
    if half_life is None:
        return np.ones(len(weight))
    return np.asarray(0.5 ** (np.cumsum(weight[::-1])[::-1] / half_life))


@double_precision
def row_statistics(
    model: Model, cloud: Cloud, values: PyTree, counted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""Log predictive density of rows (the score), and their influence on the posterior.

    With the log-likelihood :math:`l_{ij}` of row i at particle j of weight :math:`w_j`, and the
    share :math:`c_i` of the row that the particles have already seen (1 for a row that they were
    fitted to, 0 for a new row),

    .. math:: s_i = \log \sum_j w_j e^{(1 - c_i) l_{ij}} - \log \sum_j w_j e^{-c_i l_{ij}},
              \qquad v_{ij} = l_{ij} - \sum_k w_k l_{ik}

    The score of a seen row is its leave-one-out predictive density (Gelfand, Dey & Chang 1992,
    Bayesian Statistics 4:147-167), so the optimism of the fit cancels to first order.

    The influence is v along its principal directions over the rows, at most as many as the model
    has dimensions, each scaled to variance 1. To first order it is the whitened gradient of the
    row's log-likelihood, and the squared length of its sum over a chunk is the statistic of Rao's
    score test of a change of the parameters. A seen row has moved the posterior towards itself:
    its v is divided by :math:`1 - c_i h`, where the leverage h is the mean over seen rows of the
    variance of v over particles, with a correction of higher order.

    Args:
        model: a model with a log-likelihood of rows.
        cloud: its particles; their weights include the evidence of their islands.
        values: the rows.
        counted: c, one number for each row.

    Returns:
        Scores [rows] and influences [rows, directions].
    """
    log_weight = np.nan_to_num(np.asarray(cloud.log_weight).reshape(-1), nan=-np.inf)
    chosen = systematic_indices(0.5, log_weight, min(NUM_DRAWS, len(log_weight)))
    positions = np.asarray(cloud.position).reshape(len(log_weight), -1)[chosen]
    blocks = []
    for block in split(values, BLOCK_ROWS):
        size = num_rows(block)
        padded, _ = pad(block, np.ones(size), BLOCK_ROWS)
        blocks.append(np.asarray(_block_values(model, positions, padded))[:, :size].T)
    found = np.maximum(np.nan_to_num(np.concatenate(blocks), nan=-np.inf), IMPOSSIBLE)
    found = np.maximum(found, found.max(axis=1, keepdims=True) - EXCLUDED)
    seen = counted[:, None]
    score = special.logsumexp((1.0 - seen) * found, axis=1) - special.logsumexp(
        -seen * found, axis=1
    )
    influence = found - found.mean(axis=1, keepdims=True)
    leverage = _leverage(influence, counted)
    return score, _whitened(influence / (1.0 - leverage * seen), model.dimension)


def _leverage(influence: np.ndarray, counted: np.ndarray) -> float:
    """Mean leverage of the seen rows: the share of a row in its own prediction."""
    if not counted.any():
        return 0.0
    variance = float(np.average(np.mean(influence**2, axis=1), weights=counted))
    # The variance of a seen row is itself too small, by a factor of about 1 - leverage.
    return min(variance / max(1.0 - variance, 0.5), LARGEST_LEVERAGE)


def _whitened(influence: np.ndarray, dimension: int) -> np.ndarray:
    """The influence along its principal directions over the rows, with variance 1 in each."""
    centred = influence - influence.mean(axis=0)
    variance, vectors = np.linalg.eigh(centred.T @ centred / len(influence))
    used = np.argsort(variance)[::-1][: min(dimension, MOST_DIRECTIONS)]
    used = used[variance[used] > LEAST_SHARE * max(variance[-1], np.finfo(float).tiny)]
    return np.asarray(centred @ vectors[:, used] / np.sqrt(variance[used]))


@jit
def _block_values(model: Model, positions: Array, values: PyTree) -> Array:
    return row_log_likelihoods(model, positions[None], values)[0]
