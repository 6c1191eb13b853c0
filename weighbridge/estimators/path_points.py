"""The points of a run's path: the log evidence after the first rows, for more and more rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weighbridge.results.evidence_result import Trace

# The most points of a path that are kept, since a stream may be endless.
LONGEST_PATH = 8192


class PathPoint(NamedTuple):
    """The log evidence after some rows.

    Attributes:
        rows: rows seen so far; a repeated row counts several times.
        log_evidence: log evidence of these rows.
        std_error: standard error of the log evidence.
        annealing_steps: annealing steps since the point before.
        ess: effective sample size of an island, averaged over islands.
        temperature: temperature of the moves, for methods that measure it.
    """

    rows: float
    log_evidence: float
    std_error: float
    annealing_steps: float
    ess: float
    temperature: float = math.nan


# Columns of saved paths and of traces, for methods that measure a temperature and for others.
WITH_TEMPERATURE = PathPoint._fields
WITHOUT_TEMPERATURE = PathPoint._fields[:-1]


def path_array(path: Sequence[PathPoint], num_columns: int) -> np.ndarray:
    """A path as an array, points x columns.

    >>> path_array([PathPoint(5.0, -7.0, 0.1, 3.0, 99.0)], 5).tolist()
    [[5.0, -7.0, 0.1, 3.0, 99.0]]
    """
    return np.array([point[:num_columns] for point in path], float).reshape(-1, num_columns)


def path_points(array: np.ndarray) -> list[PathPoint]:
    """The path from the result of ``path_array``.

    >>> path_points(np.array([[5.0, -7.0, 0.1, 3.0, 99.0]]))[0].ess
    99.0
    """
    if array.ndim != 2 or array.shape[1] not in (len(WITHOUT_TEMPERATURE), len(WITH_TEMPERATURE)):
        raise ValueError(f"a path has the shape {array.shape}, not points x 5 or 6 columns")
    return [PathPoint(*map(float, row)) for row in array]


def path_trace(path: Sequence[PathPoint], columns: Sequence[str]) -> Trace:
    """A path as the trace of a result.

    >>> path_trace([PathPoint(5.0, -7.0, 0.1, 3.0, 99.0)], WITHOUT_TEMPERATURE).log_evidence
    array([-7.])
    """
    return Trace(**dict(zip(columns, path_array(path, len(columns)).T)))


def shortened(path: list[PathPoint]) -> list[PathPoint]:
    """A path with every two points of its older half merged, and their steps added up.

    >>> path = [PathPoint(1.0, -1.0, 0.1, 3.0, 9.0), PathPoint(2.0, -2.0, 0.1, 4.0, 9.0)] * 2
    >>> shortened(path)[0].rows, shortened(path)[0].annealing_steps, len(shortened(path))
    (2.0, 7.0, 3)
    """
    half = len(path) // 4 * 2
    merged = [
        second._replace(annealing_steps=first.annealing_steps + second.annealing_steps)
        for first, second in zip(path[0:half:2], path[1:half:2])
    ]
    return merged + path[half:]
