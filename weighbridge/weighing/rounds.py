"""Run rounds of islands until the error is small enough, and merge them into one result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.errors import MethodError
from weighbridge.core.islands import Combined
from weighbridge.core.status import Status
from weighbridge.estimators.registry import Method
from weighbridge.estimators.second_look.audit import drift_diagnostics, is_drifting
from weighbridge.estimators.sequential import is_heated
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.trust import UNTRUSTED

# Diagnostics that are standard errors; for several rounds they are combined as for a mean.
ERRORS = ("genealogy_error", "settled_error")


@dataclass(frozen=True)
class Limits:
    """When to stop adding islands.

    Args:
        tolerance: standard error (nats) to reach; None runs one round.
        time_limit: seconds after which no further round begins, and "auto" tries no further
            method; for other methods it needs a tolerance.
        leaves_grave: whether no round is added to a result with a grave flag, because another
            method can follow.
    """

    tolerance: float | None = None
    time_limit: float | None = None
    leaves_grave: bool = False

    def check(self, method: Method, *, decides: bool = False) -> None:
        """Raise an error for invalid limits, or limits that this method cannot meet.

        Args:
            method: the method, or the first one of "auto".
            decides: whether "auto" may go on with others.
        """
        for name, value in (("tolerance", self.tolerance), ("time_limit", self.time_limit)):
            if value is not None and not value > 0:
                raise MethodError(f"{name} must be positive, not {value!r}.")
        if self.time_limit is not None and self.tolerance is None and not decides:
            raise MethodError(
                "time_limit ends the rounds of islands that a tolerance asks for, and without a "
                "tolerance there is one round. Give a tolerance too, leave time_limit out, or use "
                'method="auto", which tries no further method after it.'
            )
        if self.tolerance is not None and (method.num_islands < 4 or not method.states_error):
            states = "" if method.states_error else " and does not state its error"
            raise MethodError(
                "A tolerance needs a method that states its error, with four or more islands: "
                f"{method.name!r} has {method.num_islands}{states}. Leave the tolerance out and "
                "give the method more islands or draws, or use another method."
            )


class Rounds(NamedTuple):
    """How rounds of islands are run.

    Attributes:
        one_round: runs one round, given the number of its first island and the names of models.
        method: the method of the islands.
        repeatable: whether there can be a second round.
        least: the fewest islands with which a result from the path alone may be enough.
    """

    one_round: Callable[[int, Sequence[str]], dict[str, Evidence]]
    method: Method
    repeatable: bool
    least: int = 0


def run_rounds(plan: Rounds, names: Sequence[str], limits: Limits) -> dict[str, Evidence]:
    """Run rounds of islands until every model's error is within the tolerance, or time is up.

    An interrupted run returns, for every model, its finished rounds, or the unfinished result of
    its first round. Models without any result are left out.

    Args:
        plan: how the rounds are run.
        names: names of the models.
        limits: when to stop.
    """
    began = time.perf_counter()
    one_round, method, repeatable, least = plan
    rounds: dict[str, list[Evidence]] = {name: [] for name in names}
    pending = list(names)
    missed: set[str] = set()
    tolerance = limits.tolerance
    while pending:
        first_island = len(rounds[pending[0]]) * method.num_islands
        for name, result in one_round(first_island, pending).items():
            if Status.INTERRUPTED not in result.flags or not rounds[name]:
                rounds[name].append(result)
        if interrupts.is_due():
            break
        interrupts.keep()
        if tolerance is None:
            break
        late = limits.time_limit is not None and time.perf_counter() - began >= limits.time_limit
        pending = [n for n in pending if not _surely(rounds[n], method, least) <= tolerance]
        left = {n for n in pending if limits.leaves_grave and not rounds[n][-1].is_trusted}
        stuck = {n for n in pending if late or not repeatable or _hopeless(rounds[n], tolerance)}
        stuck |= left
        pending = [name for name in pending if name not in stuck]
        missed |= {n for n in stuck if not _error(rounds[n], method) <= tolerance}
    merged = {name: merge(results, method) for name, results in rounds.items() if results}
    if not merged:
        raise interrupts.Interrupted("Interrupted before there was anything to give back.")
    for name in missed:
        flags = (*merged[name].flags, Status.TOLERANCE_NOT_REACHED)
        merged[name] = replace(merged[name], flags=flags)
    if interrupts.is_due() and tolerance is not None:
        for name in set(pending) & set(merged):
            if not _surely(rounds[name], method, least) <= tolerance:
                merged[name] = _given_up(merged[name], tolerance)
    return merged


def _given_up(result: Evidence, tolerance: float) -> Evidence:
    """Flag a result whose rounds were interrupted before the tolerance was surely reached."""
    late = () if result.claimed_error <= tolerance else (Status.TOLERANCE_NOT_REACHED,)
    flags = dict.fromkeys((Status.INTERRUPTED, *result.flags, *late))
    return replace(result, flags=tuple(flags))


def _surely(results: Sequence[Evidence], method: Method, least: int) -> float:
    """The error of several rounds, increased by its own uncertainty.

    A standard deviation from J islands has a relative error of about 1 / sqrt(2 (J - 1)). Without
    this factor, rounds would stop too early when the estimate happens to be small. The error of a
    path that nothing confirms counts as infinite if there are too few islands.
    """
    count = sum(len(r.diagnostics["island_log_evidence"]) for r in results)
    if count < least and not all(_by_bridge(r) for r in results):
        return math.inf
    return _error(results, method) * (1.0 + 1.0 / math.sqrt(2.0 * (count - 1)))


def _error(results: Sequence[Evidence], method: Method) -> float:
    """The standard error of several rounds, as the method merges them."""
    own = method.merge_rounds(results) if len(results) > 1 else None
    return merged_error(results, method)[0] if own is None else own.claimed_error


def _bias(results: Sequence[Evidence]) -> float:
    """The bias, which more islands do not reduce; mean over rounds. Only paths have one."""
    names = ("heating_bias", "noise_bias", "dimension_bias")
    paths = [{} if _by_bridge(r) else r.diagnostics for r in results]
    return float(np.mean([sum(path.get(name, 0.0) for name in names) for path in paths]))


def _hopeless(results: Sequence[Evidence], tolerance: float) -> bool:
    """Whether more islands cannot reach the tolerance.

    This is so if the error is unknown, if a part of it that more islands do not reduce is too large
    (the bias, or the evidence that was left when a run was cut short), or if modes were joined to
    the first islands, which others may miss: their mean would drop what the first round found.
    """
    return (
        any(math.isnan(r.claimed_error) or _is_joined(r) for r in results)
        or abs(_bias(results)) > tolerance
        or any(r.diagnostics.get("cut_off", 0.0) > tolerance for r in results)
    )


def merged_error(results: Sequence[Evidence], method: Method) -> tuple[float, Combined]:
    """The standard error of several rounds together, and their answers combined.

    Rounds are independent, so the answers of their bridges are averaged. If fewer than half of the
    rounds have such an answer, or if the likelihood was flat in a round, the paths are used.
    """
    combined = _all_islands(results, method)
    if len(results) == 1:
        return results[0].claimed_error, combined
    bridged = [r for r in results if _by_bridge(r)]
    # A flat round may have missed all the mass. Without it the mean would be too high.
    is_flat = any(Status.FLAT in r.flags for r in results)
    if 2 * len(bridged) >= len(results) and not is_flat:
        std_error = math.hypot(*(r.claimed_error for r in bridged)) / len(bridged)
        mean = float(np.mean([r.log_evidence for r in bridged]))
        return std_error, combined._replace(log_evidence=mean, std_error=std_error)
    biases = [_bias([r]) for r in results]
    errors = [r.diagnostics.get("path_error", r.claimed_error) for r in results]
    # The larger of two errors counts: the rounds' own, and the spread over all islands.
    within = float(np.mean([error**2 - b**2 for error, b in zip(errors, biases)]))
    chance = max(within / len(results), combined.std_error**2)
    std_error = math.hypot(math.sqrt(chance), _bias(results))
    return std_error, combined._replace(std_error=std_error)


def _by_bridge(result: Evidence) -> bool:
    """Whether the answer is not that of the path, but of a bridge to it or of the mode."""
    seen = result.diagnostics
    return bool(seen.get("answer") in ("bridge", "mode") and "path_log_evidence" in seen)


def _is_joined(result: Evidence) -> bool:
    return Status.MASS_MISSED in result.flags or result.diagnostics.get("answer") == "neither"


def _all_islands(results: Sequence[Evidence], method: Method) -> Combined:
    """The path estimates of the islands of all rounds, combined."""
    return method.combine(np.concatenate([r.diagnostics["island_log_evidence"] for r in results]))


def merge(results: Sequence[Evidence], method: Method) -> Evidence:
    """Several rounds of islands as one result.

    The evidence, its error, the posterior, the counts and the flags are of all rounds. Each round
    chooses its own powers, so the path and the diagnostics of its steps are those of the first
    round; ``diagnostics["trace_islands"]`` is its number of islands. A method may merge its rounds
    itself (``Method.merge_rounds``).
    """
    if len(results) == 1:
        return results[0]
    own = method.merge_rounds(results)
    if own is not None:
        return replace(own, diagnostics=own.diagnostics | {"num_rounds": len(results)})
    std_error, combined = merged_error(results, method)
    log_weights = np.concatenate([r.log_weights + r.log_evidence for r in results])
    log_weights = log_weights - log_weights.max()
    first = results[0]
    return replace(
        first,
        log_evidence=combined.log_evidence,
        std_error=std_error,
        samples={n: np.concatenate([r.samples[n] for r in results]) for n in first.samples},
        log_weights=log_weights - np.log(np.sum(np.exp(log_weights))),
        diagnostics=_diagnostics(results, combined, method),
        flags=_flags(results, method, std_error, combined),
        elapsed=sum(result.elapsed for result in results),
    )


def _diagnostics(results: Sequence[Evidence], answer: Combined, method: Method) -> dict[str, Any]:
    found, path = dict(results[0].diagnostics), _all_islands(results, method)
    islands = [r.diagnostics["island_log_evidence"] for r in results]
    found.pop(UNTRUSTED, None)  # of the first round
    found |= {
        "num_rounds": len(results),
        "trace_islands": len(islands[0]),
        "island_log_evidence": np.concatenate(islands),
    }
    for name in method.counts:
        if name in found:
            found[name] = sum(r.diagnostics[name] for r in results)
    for name in ERRORS:
        if name in found:
            errors = [r.diagnostics[name] for r in results]
            known = all(error is not None for error in errors)
            # The error of a mean over rounds.
            found[name] = math.hypot(*errors) / len(errors) if known else None
    by_path = answer.log_evidence == path.log_evidence
    if "path_log_evidence" in found:
        path_error = answer.std_error if by_path else path.std_error
        found |= {"path_log_evidence": path.log_evidence, "path_error": path_error}
    if any(r.diagnostics.get("answer", "mode") != "mode" for r in results):
        found["answer"] = "path" if by_path else "bridge"
    if "path_repaired" in found:
        found["path_repaired"] = max(r.diagnostics["path_repaired"] for r in results)
    found |= drift_diagnostics(_drifts(results))
    if "heating_bias" in found:
        found["heating_bias"] = _bias(results)
    return found


def _drifts(results: Sequence[Evidence]) -> list[np.ndarray]:
    """The drift of the islands, for the rounds in which it was measured."""
    return [r.diagnostics["island_drift"] for r in results if "island_drift" in r.diagnostics]


def _flags(
    results: Sequence[Evidence], method: Method, std_error: float, combined: Combined
) -> tuple[Status, ...]:
    """The flags of all rounds; some of them are judged again for the merged answer."""
    raised = dict.fromkeys(flag for result in results for flag in result.flags)
    bias = abs(_bias(results))
    chance_error = math.sqrt(max(std_error**2 - bias**2, 0.0))
    # If the method resamples islands, their final spread hides an earlier disagreement.
    seen_before = method.evens_islands and Status.ISLANDS_DISAGREE in raised
    drifts = _drifts(results)
    path_error = _all_islands(results, method).std_error
    judged = {
        Status.DRIFTING: bool(drifts) and is_drifting(np.concatenate(drifts), path_error),
        # If only some rounds are flat, the spread of the islands shows the difference.
        Status.FLAT: all(Status.FLAT in result.flags for result in results),
        Status.HEATED: is_heated(bias, chance_error),
        Status.ISLANDS_DISAGREE: seen_before or combined.spread > method.disagreement,
        Status.ERROR_UNKNOWN: math.isnan(std_error),
    }
    fresh = [flag for flag, is_so in judged.items() if is_so and flag not in raised]
    return (*fresh, *(flag for flag in raised if judged.get(flag, True)))
