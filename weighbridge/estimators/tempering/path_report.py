"""Trace and diagnostics of a tempered path, for its result."""

from __future__ import annotations

from typing import Any

import numpy as np

from weighbridge.core.islands import combine_islands
from weighbridge.estimators.annealing.loop import Annealed
from weighbridge.estimators.annealing.moves.adaptive import AdaptiveInfo
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import final_moments
from weighbridge.models.targets.host import HostLikelihood
from weighbridge.results.trace import Trace

# Calls of a function on the host, one parameter set each, from which on a user is told.
MANY_CALLS = 10_000
ONE_BY_ONE = (
    "total_log_likelihood was called on the host with one parameter set at a time, which takes "
    "most of the time of a long run: let it take many at once (a leading axis of every parameter) "
    "and return one number for each, or write it with jax.numpy"
)


def trace_of(outcome: Annealed, path: Path, count: int) -> Trace:
    """The path as a trace, one point for each power.

    It has mean and variance of the log-likelihood under the density of each power, averaged over
    islands. The info of a step has those of the power before it, so they come from the next step,
    and for the last power from the particles themselves.
    """
    steps = outcome.steps
    combined = [combine_islands(np.asarray(step.log_evidence)) for step in steps]
    found = [(step.mean, step.variance) for step in steps[1:]]
    found.append(final_moments(path, outcome.cloud))
    means, variances = np.mean(found, axis=2).T
    return Trace(
        rows=np.full(len(steps), float(count)),
        power=np.array(outcome.powers[1:]),
        log_evidence=np.array([c.log_evidence for c in combined]),
        std_error=np.array([c.std_error for c in combined]),
        annealing_steps=np.arange(1.0, len(steps) + 1),
        ess=np.array([step.ess.mean() for step in steps]),
        log_likelihood_mean=means,
        log_likelihood_variance=variances,
    )


def counts(outcome: Annealed) -> dict[str, int]:
    """Counts of events, summed over all steps."""
    names = ("num_infinite", "num_undefined", "num_diverged", "dropped")
    totals = {n: sum(int(np.sum(getattr(s, n))) for s in outcome.steps) for n in names}
    return {**totals, "stalled": int(outcome.stalled)}


def move_diagnostics(outcome: Annealed) -> dict[str, Any]:
    """Acceptance, number of moves and correlations at each power, if the mover has them."""
    found: dict[str, Any] = {}
    if not isinstance(outcome.steps[0].moves, AdaptiveInfo):
        return found
    for name in ("acceptance", "num_moves", "correlation", "lingering"):
        found[name] = np.array([np.mean(getattr(s.moves, name)) for s in outcome.steps])
    return found


def path_diagnostics(outcome: Annealed, host: HostLikelihood | None) -> dict[str, Any]:
    """Diagnostics of a path, whether it was interrupted or not."""
    return {
        "annealing_steps": len(outcome.steps),
        **host_diagnostics(host),
        **move_diagnostics(outcome),
        **counts(outcome),
    }


def host_diagnostics(host: HostLikelihood | None) -> dict[str, Any]:
    """How often a likelihood in plain Python was called, and for how many parameter sets."""
    if host is None:
        return {}
    found = {"host_calls": host.num_calls, "host_evaluations": host.num_evaluations}
    is_slow = not host.takes_batches and host.num_calls >= MANY_CALLS
    return found | ({"host_remark": ONE_BY_ONE} if is_slow else {})
