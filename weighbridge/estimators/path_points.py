"""The points of a run's path: evidence, error, steps and ESS after each chunk of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weighbridge.results.evidence_result import Trace

# Most points of a path that are kept, because a stream may have no end.
LONGEST_PATH = 8192


class PathPoint(NamedTuple):
    """The state of a run after some rows.

    Attributes:
        rows: number of rows so far, with repeated rows counted.
        log_evidence: of these rows.
        std_error: of the log evidence.
        annealing_steps: steps since the point before.
        ess: effective particles of an island, averaged over islands.
        temperature: of the moves, for methods that measure it.
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
    """The inverse of ``path_array``.

    >>> path_points(np.array([[5.0, -7.0, 0.1, 3.0, 99.0]]))[0].ess
    99.0
    """
    if array.ndim != 2 or array.shape[1] not in (len(WITHOUT_TEMPERATURE), len(WITH_TEMPERATURE)):
        raise ValueError(f"a path of the shape {array.shape}")
    return [PathPoint(*map(float, row)) for row in array]


def path_trace(path: Sequence[PathPoint], columns: Sequence[str]) -> Trace:
    """A path as the trace of a result.

    >>> path_trace([PathPoint(5.0, -7.0, 0.1, 3.0, 99.0)], WITHOUT_TEMPERATURE).log_evidence
    array([-7.])
    """
    return Trace(**dict(zip(columns, path_array(path, len(columns)).T)))


def shortened(path: list[PathPoint]) -> list[PathPoint]:
    """A path in which pairs of points of the older half are merged; their steps are added.

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
