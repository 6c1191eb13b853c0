"""Rounds of islands: more of them until the error is small enough, then all as one result."""

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
from weighbridge.core.thresholds import MAX_HEATING_BIAS
from weighbridge.estimators.methods import Method
from weighbridge.estimators.second_look.audit import drift_diagnostics, is_drifting
from weighbridge.results.evidence_result import Evidence

# Errors of a round's answer.
ERRORS = ("genealogy_error", "settled_error")


@dataclass(frozen=True)
class Limits:
    """When to stop adding islands.

    Args:
        tolerance: standard error (nats) to reach; None runs one round.
        time_limit: seconds after which no further round begins.
    """

    tolerance: float | None = None
    time_limit: float | None = None

    def check(self, method: Method) -> None:
        """Refuse limits that mean nothing, or that this method cannot meet."""
        for name, value in (("tolerance", self.tolerance), ("time_limit", self.time_limit)):
            if value is not None and not value > 0:
                raise MethodError(f"{name} must be positive, not {value!r}.")
        if self.tolerance is not None and (method.num_islands < 4 or not method.states_error):
            raise MethodError(
                "A tolerance needs a method that states its error: one with four or more islands, "
                "and not SGAIS.published()."
            )


class Rounds(NamedTuple):
    """How rounds of islands are run.

    Attributes:
        one_round: runs islands from a first number on, of the models named.
        method: whose islands they are.
        repeatable: whether there can be a second round.
        least: islands from which on an answer by their path alone may be enough.
    """

    one_round: Callable[[int, Sequence[str]], dict[str, Evidence]]
    method: Method
    repeatable: bool
    least: int = 0


def run_rounds(plan: Rounds, names: Sequence[str], limits: Limits) -> dict[str, Evidence]:
    """Run rounds of islands until every model's error is within the tolerance, or time is up.

    A run that is interrupted gives back what there is of every model: its finished rounds, or what
    the first one has come to. Models of which there is nothing are left out.

    Args:
        plan: how they are run.
        names: of the models.
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
        stuck = {n for n in pending if late or not repeatable or _hopeless(rounds[n], tolerance)}
        pending = [name for name in pending if name not in stuck]
        missed |= {n for n in stuck if not merged_error(rounds[n], method)[0] <= tolerance}
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
    """What an interrupted search for a smaller error has found."""
    late = () if result.std_error <= tolerance else (Status.TOLERANCE_NOT_REACHED,)
    flags = dict.fromkeys((Status.INTERRUPTED, *result.flags, *late))
    return replace(result, flags=tuple(flags))


def _surely(results: Sequence[Evidence], method: Method, least: int) -> float:
    """The error of several rounds, with what it may be off by itself added.

    A standard deviation of J islands is uncertain by a share of about 1 / sqrt(2 (J - 1)): to stop
    where it happens to be small is to stop too early. That of a path, which no bridge confirms, is
    unknown from too few.
    """
    count = sum(len(r.diagnostics["island_log_evidence"]) for r in results)
    if count < least and not all(_by_bridge(r) for r in results):
        return math.inf
    return merged_error(results, method)[0] * (1.0 + 1.0 / math.sqrt(2.0 * (count - 1)))


def _bias(results: Sequence[Evidence]) -> float:
    """What more islands do not shrink."""
    names = ("heating_bias", "noise_bias")
    return float(np.mean([sum(r.diagnostics.get(n, 0.0) for n in names) for r in results]))


def _hopeless(results: Sequence[Evidence], tolerance: float) -> bool:
    """Whether more islands are of no use.

    No error can be stated, a bias that they do not shrink is too large, or the answer is not that
    of the islands because all of them miss the same.
    """
    return (
        any(math.isnan(r.std_error) or Status.MASS_MISSED in r.flags for r in results)
        or abs(_bias(results)) > tolerance
    )


def merged_error(results: Sequence[Evidence], method: Method) -> tuple[float, Combined]:
    """The standard error of several rounds together, and their answers combined.

    Rounds are independent, so answers by a bridge are averaged; if fewer than half of the rounds
    have one, or if one of them hit nothing, the islands' paths count instead.
    """
    combined = _all_islands(results, method)
    if len(results) == 1:
        return results[0].std_error, combined
    bridged = [r for r in results if _by_bridge(r)]
    # To leave out a round that hit nothing would be to count the others' hits twice.
    is_flat = any(Status.FLAT in r.flags for r in results)
    if 2 * len(bridged) >= len(results) and not is_flat:
        std_error = math.hypot(*(r.std_error for r in bridged)) / len(bridged)
        mean = float(np.mean([r.log_evidence for r in bridged]))
        return std_error, combined._replace(log_evidence=mean, std_error=std_error)
    biases = [_bias([r]) for r in results]
    errors = [r.diagnostics.get("path_error", r.std_error) for r in results]
    # Each round's own error, and the spread over the islands of all rounds: the larger counts.
    within = float(np.mean([error**2 - b**2 for error, b in zip(errors, biases)]))
    chance = max(within / len(results), combined.std_error**2)
    std_error = math.hypot(math.sqrt(chance), _bias(results))
    return std_error, combined._replace(std_error=std_error)


def _by_bridge(result: Evidence) -> bool:
    return bool(result.diagnostics.get("answer") == "bridge")


def _all_islands(results: Sequence[Evidence], method: Method) -> Combined:
    """The paths of all islands as one."""
    return method.combine(np.concatenate([r.diagnostics["island_log_evidence"] for r in results]))


def merge(results: Sequence[Evidence], method: Method) -> Evidence:
    """Several rounds of islands as one result.

    The evidence, its error, the posterior, the counts and the flags are of all rounds. Rounds
    choose their own powers, so the path and the diagnostics of its steps are the first round's:
    ``diagnostics["trace_islands"]`` says of how many islands they tell.
    """
    if len(results) == 1:
        return results[0]
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
            # Of a mean over rounds.
            found[name] = math.hypot(*errors) / len(errors) if known else None
    by_path = answer.log_evidence == path.log_evidence
    if "path_log_evidence" in found:
        path_error = answer.std_error if by_path else path.std_error
        found |= {"path_log_evidence": path.log_evidence, "path_error": path_error}
    if "answer" in found:
        found["answer"] = "path" if by_path else "bridge"
    if "path_repaired" in found:
        found["path_repaired"] = max(r.diagnostics["path_repaired"] for r in results)
    found |= drift_diagnostics(_drifts(results))
    if "heating_bias" in found:
        found["heating_bias"] = _bias(results)
    return found


def _drifts(results: Sequence[Evidence]) -> list[np.ndarray]:
    """How far islands went on drifting, of the rounds that looked."""
    return [r.diagnostics["island_drift"] for r in results if "island_drift" in r.diagnostics]


def _flags(
    results: Sequence[Evidence], method: Method, std_error: float, combined: Combined
) -> tuple[Status, ...]:
    """What any round had to say of its path, and a fresh judgement of the answer as a whole."""
    raised = dict.fromkeys(flag for result in results for flag in result.flags)
    bias = abs(_bias(results))
    chance_error = math.sqrt(max(std_error**2 - bias**2, 0.0))
    # Where islands are evened out on the way, the end cannot show what a round saw before.
    seen_before = method.evens_islands and Status.ISLANDS_DISAGREE in raised
    drifts = _drifts(results)
    path_error = _all_islands(results, method).std_error
    judged = {
        Status.DRIFTING: bool(drifts) and is_drifting(np.concatenate(drifts), path_error),
        # Where another round has hit what one did not, the spread of their islands shows it.
        Status.FLAT: all(Status.FLAT in result.flags for result in results),
        Status.HEATED: bias > max(MAX_HEATING_BIAS, 2 * chance_error),
        Status.ISLANDS_DISAGREE: seen_before or combined.spread > method.disagreement,
        Status.ERROR_UNKNOWN: math.isnan(std_error),
    }
    fresh = [flag for flag, is_so in judged.items() if is_so and flag not in raised]
    return (*fresh, *(flag for flag in raised if judged.get(flag, True)))
