"""The evidence of the points of any number of nested runs, merged by their birth contours."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.status import Status
from weighbridge.core.thresholds import (
    MANY_NESTED_PARAMETERS,
    MAX_NESTED_MEMORY,
    MAX_NESTED_STUCK,
    MIN_CHANCE_P_VALUE,
    MIN_INSERTION_P_VALUE,
    MIN_NESTED_ACCEPTANCE,
    MIN_NESTED_EXTRA_MOVES,
    MIN_NESTED_JUMPS,
    MIN_POINTS_FOR_EACH,
    MIN_SPREAD_P_VALUE,
)
from weighbridge.estimators.nested.insertion import insertion_test
from weighbridge.estimators.nested.points import Points, num_live
from weighbridge.estimators.nested.volumes import (
    dimensionality,
    information,
    linear_error,
    log_shrinkage,
    log_sums,
    simulated_error,
)
from weighbridge.results.trace import Trace

# Columns of a result's trace that hold the points of its runs.
COLUMNS = {
    "log_likelihood": "logL",
    "birth": "logL_birth",
    "tie": "tie",
    "birth_tie": "tie_birth",
    "insertion": "insertion",
    "among": "among",
    "island": "island",
}
# Diagnostics that are summed over merged results.
COUNTS = (
    *("num_evaluations", "num_batches", "num_moves", "num_accepted", "num_stuck", "num_walkers"),
    *("num_undefined", "num_jumped"),
)


# Moves in the metric of the live points.
SHAPED_MOVES = ("slice", "random_walk", "galilean")


class WeighedPoints(NamedTuple):
    """What follows from the points alone.

    Attributes:
        order: the points from the lowest to the highest.
        log_evidence, std_error: the answer.
        log_weights: normalised, of the points in order.
        trace: the table of the points.
        diagnostics: measurements.
        flags: reasons for caution that the points show.
    """

    order: np.ndarray
    log_evidence: float
    std_error: float
    log_weights: np.ndarray
    trace: Trace
    diagnostics: dict[str, Any]
    flags: list[Status]


def weigh_points(
    points: Points, shrinkage: str, seed: int, remembered: float = 0.0
) -> WeighedPoints:
    """The evidence of points of any number of runs, merged by their birth contours.

    Args:
        points: of all runs, in any order.
        shrinkage: "exponential" or "mean".
        seed: for simulated volumes.
        remembered: what walkers remember of their starts, see ``raised_by_memory``.
    """
    order = np.lexsort((points.tie, points.log_likelihood))
    level = points.log_likelihood[order]
    ordered = Points(*(leaf[order] for leaf in points))
    nlive = num_live(ordered)
    sums = log_sums(level, log_shrinkage(nlive, shrinkage))
    islands = np.unique(points.island)
    first = int(islands[0])
    error = simulated_error(level, nlive, seed, first)
    each = [_of_island(ordered.take(ordered.island == island), shrinkage) for island in islands]
    separate, errors = (np.array(values) for values in zip(*each))
    p_value, widened = spread_of_runs(separate, errors)
    widened = max(widened, raised_by_memory(remembered))
    generator = random_numbers(seed, Stream.NESTED_RANKS, first, 2**33)
    # The new points of a batch in the order in which they were ranked: by likelihood, a window that
    # ends within a batch would hold its low points only.
    born = np.lexsort((ordered.among, ordered.birth_tie, ordered.birth))
    test = insertion_test(ordered.insertion[born], ordered.among[born], generator)
    spent = information(sums.log_weights, level, sums.trapezium)
    diagnostics = {
        "island_log_evidence": separate,
        "lower_sum": sums.lower,
        "upper_sum": sums.upper,
        "volume_error": error,
        "linear_error": linear_error(sums, level, nlive),
        "spread_p_value": p_value,
        "insertion_p_value": test.p_value,
        "rolling_p_value": test.rolling_p_value,
        "information": spent,
        "dimensionality": dimensionality(sums.log_weights, level),
        "shrinkage": shrinkage,
        "seed": seed,
    }
    cumulative = sums.trapezium + np.logaddexp.accumulate(sums.log_weights)
    columns = {name: getattr(ordered, leaf) for leaf, name in COLUMNS.items()}
    trace = Trace(
        log_evidence=cumulative,
        log_volume=sums.log_volumes,
        nlive=nlive,
        **columns,
    )
    flags = rank_flags(min(test.p_value, test.rolling_p_value))
    if p_value < MIN_SPREAD_P_VALUE / 10:
        flags.append(Status.ISLANDS_DISAGREE)
    return WeighedPoints(
        order, sums.trapezium, error * widened, sums.log_weights, trace, diagnostics, flags
    )


def _of_island(points: Points, shrinkage: str) -> tuple[float, float]:
    """Log evidence of one run, and its error to first order."""
    nlive = num_live(points)
    sums = log_sums(points.log_likelihood, log_shrinkage(nlive, shrinkage))
    return sums.trapezium, linear_error(sums, points.log_likelihood, nlive)


def spread_of_runs(separate: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """P-value of the spread of the runs, and by how much the error is raised because of it.

    Args:
        separate: log evidence of each run.
        errors: its standard error.

    >>> spread_of_runs(np.array([0.0, 1.0, 0.5, 0.2]), np.ones(4))[1]
    1.0
    """
    # Imported here: most runs of a short script do not need the rest of the module.
    from scipy.special import gammaincc

    finite = np.isfinite(separate)
    if not finite.all():
        return (1.0, 1.0) if not finite.any() else (0.0, math.inf)
    if len(separate) < 2 or not (errors > 0).all():
        return 1.0, 1.0
    weight = errors**-2.0
    mean = np.sum(weight * separate) / np.sum(weight)
    square, degrees = float(np.sum(weight * (separate - mean) ** 2)), len(separate) - 1
    p_value = float(gammaincc(degrees / 2, square / 2))
    return p_value, math.sqrt(square / degrees) if p_value < MIN_SPREAD_P_VALUE else 1.0


def raised_by_memory(remembered: float) -> float:
    r"""By how much the error is raised because walkers remember their starts.

    .. math:: \sqrt{(1 + r) / (1 - r)}

    New points that have the rank correlation r with their starts tell less about the volume than
    independent ones. This is the factor for the mean of a chain with the correlation r from one
    generation to the next: an approximation.

    >>> raised_by_memory(0.0), raised_by_memory(-0.1), round(raised_by_memory(0.12), 3)
    (1.0, 1.0, 1.128)
    """
    share = min(max(remembered, 0.0), 0.9)
    return math.sqrt((1.0 + share) / (1.0 - share))


def rank_flags(p_value: float) -> list[Status]:
    """Flags for new points that are not inserted uniformly among the live ones.

    >>> [flag.name for p_value in (0.1, 1e-3, 1e-7) for flag in rank_flags(p_value)]
    ['RANKS_NOT_UNIFORM', 'RANKS_FAR_FROM_UNIFORM']
    """
    if p_value < MIN_CHANCE_P_VALUE:
        return [Status.RANKS_FAR_FROM_UNIFORM]
    return [Status.RANKS_NOT_UNIFORM] if p_value < MIN_INSERTION_P_VALUE else []


def walk_flags(
    diagnostics: dict[str, Any], moves: str, dimension: int, num_live: int
) -> list[Status]:
    """Flags for walkers that hardly moved, and for too few live points to shape their moves.

    Args:
        diagnostics: what the walkers did.
        moves: name of the move.
        dimension: number of coordinates.
        num_live: live points of all islands that share the moves.
    """
    flags = []
    needed = MIN_POINTS_FOR_EACH * dimension
    if moves in SHAPED_MOVES and dimension > MANY_NESTED_PARAMETERS and num_live < needed:
        flags.append(Status.FEW_LIVE_POINTS)
    walkers = max(diagnostics["num_walkers"], 1)
    if diagnostics["num_stuck"] / walkers > MAX_NESTED_STUCK:
        flags.append(Status.WALKERS_STUCK)
    # Likelihoods may be forgotten before every coordinate has moved once.
    least = dimension + MIN_NESTED_EXTRA_MOVES
    jump = diagnostics["num_jumped"] / walkers
    too_few = moves == "slice" and 0 < diagnostics["moves_per_walk"] < least
    if (too_few and jump < MIN_NESTED_JUMPS) or diagnostics["remembered"] > MAX_NESTED_MEMORY:
        flags.append(Status.WALKERS_REMEMBER)
    acceptance = diagnostics["num_accepted"] / max(diagnostics["num_moves"], 1)
    if diagnostics["num_moves"] and acceptance < MIN_NESTED_ACCEPTANCE[moves]:
        flags.append(Status.LOW_ACCEPTANCE)
    return flags
