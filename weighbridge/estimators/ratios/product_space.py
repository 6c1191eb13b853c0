"""``wb.product_space``: Bayes factors from one chain over several models."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from weighbridge.core.checks import check_count, check_seed
from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import MethodError
from weighbridge.core.progress.announcing import announced
from weighbridge.core.progress.reporters import Reporter, choose_reporter
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_BRIDGE_RHAT, MIN_MODEL_ENTRIES
from weighbridge.diagnostics import ess
from weighbridge.estimators.bridging.precision import mean_variance
from weighbridge.estimators.posterior_draws import read_draws
from weighbridge.estimators.posterior_run import PosteriorRun, report_steps, sample_posterior
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.ratios.chain_over_models import (
    Member,
    Visits,
    fit_pseudo_prior,
    rough_log_evidence,
    run_chain,
)
from weighbridge.estimators.ratios.common_data import hold_for_all
from weighbridge.estimators.ratios.halves import largest_rhat
from weighbridge.models.held import Held
from weighbridge.models.model import Model
from weighbridge.models.response import check_responses
from weighbridge.models.row_gate import require_model
from weighbridge.results.evidence_ratio import OF_DRAWS, EvidenceRatio
from weighbridge.sampling.chain_targets import prepare

CALLER = "wb.product_space"
PILOT = PosteriorRun(num_samples=500, num_warmup=500)
# Probability that the share of a model that was never visited is below its bound.
CONFIDENCE = 0.95


@double_precision
def product_space(
    models: Mapping[str, Model],
    data: Any = None,
    *,
    odds: Mapping[str, float] | None = None,
    num_sweeps: int = 1000,
    num_chains: int = 16,
    seed: int = 0,
    progress: bool | Reporter | None = None,
) -> EvidenceRatio:
    r"""Log Bayes factors of models from chains that move between them.

    .. math:: \frac{Z_k}{Z_1} = \frac{P(k \mid y) / w_k}{P(1 \mid y) / w_1}

    The chains move over the parameters of all models and an indicator of the present model. A
    pilot draws from the posterior of each model, tunes its moves, fits a pseudo-prior to it, and
    finds odds w with which the chains visit all models about equally often. These are fixed in the
    main run, which is new, and divided out of its answer.

    The models may have different parameters. The standard errors are those of autocorrelated
    chains. A model that is never visited has a one-sided bound of its log Bayes factor, which holds
    with a probability of 95 % if the chains mix; the standard error is then NaN.

    Args:
        models: two or more models by name; the first one is the reference.
        data: in any form that ``wb.evidence`` takes.
        odds: prior weight of each model in the chain, instead of tuned ones. The Bayes factors do
            not depend on it, only their errors do; with equal odds, the chains find the model that
            the data prefer and may never visit the others.
        num_sweeps: number of sweeps of each chain, of which the first tenth is left out.
        num_chains: number of independent chains.
        seed: the same seed gives the same numbers.
        progress: True or False, or a reporter, as in ``wb.evidence``.

    Returns:
        The ratios; ``wb.compare`` makes a table of them.

    >>> import weighbridge as wb
    >>> near, far = wb.zoo.gaussian.model(prior_mean=2.0), wb.zoo.gaussian.model(prior_mean=-2.0)
    >>> data = wb.zoo.gaussian.simulate(5, mean=2.0, seed=1)
    >>> ratio = product_space({"near": near, "far": far}, data, num_sweeps=300)
    >>> exact = [wb.zoo.gaussian.log_evidence(data, prior_mean=mean) for mean in (2.0, -2.0)]
    >>> bool(abs(ratio.log_bayes_factor - (exact[1] - exact[0])) < 5 * ratio.std_error < 0.5)
    True

    References: Carlin & Chib (1995), J. R. Stat. Soc. B 57:473-484; Lodewyckx et al. (2011), J.
    Math. Psych. 55:331-347.
    """
    began = time.perf_counter()
    check_seed(seed)
    check_count("num_sweeps", num_sweeps, 100)
    check_count("num_chains", num_chains, 2)
    names = _check_models(models)
    log_odds = _check_odds(names, odds)
    held = hold_for_all(list(models.values()), data, CALLER)
    reporter = choose_reporter(progress)
    with announced(reporter, "a pilot run of each model"):
        pilots = [
            _pilot(name, models[name], rows, number, seed, reporter)
            for number, (name, rows) in enumerate(zip(names, held))
        ]
        members = [member for member, _ in pilots]
        if log_odds is None:
            numbers = random_numbers(seed, Stream.PRODUCT_SPACE, 0)
            rough = [rough_log_evidence(member, numbers, 4096) for member in members]
            log_odds = -np.array(rough)
        members = [m._replace(log_odds=float(w)) for m, w in zip(members, log_odds)]
        report = report_steps(reporter, "all models", 0)
        visits = run_chain(
            members,
            num_chains,
            num_sweeps,
            seed,
            lambda done: report(done / num_sweeps, float("nan"), done * num_chains),
        )
    reporter.close()
    log_ratios, variances, seen = _log_shares(visits)
    log_ratios = log_ratios - log_odds
    entries = {name: visits.entries(number) for number, name in enumerate(names)}
    unvisited = tuple(name for name, found in zip(names, seen) if not found)
    flags = []
    if any(count < MIN_MODEL_ENTRIES for count in entries.values()):
        flags.append(Status.RARELY_VISITED)
    rhats = [value for _, value in pilots]
    if any(value > MAX_BRIDGE_RHAT for value in rhats):
        flags.append(Status.CHAINS_DISAGREE)
    return EvidenceRatio(
        names=tuple(names),
        log_ratios=log_ratios - log_ratios[0],
        variances=variances,
        method="product_space",
        num_observations=max(member.density.num_observations for member in members),
        unvisited=unvisited,
        diagnostics={
            "shares": dict(zip(names, visits.probability.mean(axis=(0, 1)).tolist())),
            "entries": entries,
            "log_odds": dict(zip(names, (log_odds - log_odds[0]).tolist())),
            "rhat": float(np.nanmax([*rhats, 0.0])),
            "num_evaluations": sum(member.density.num_evaluations for member in members),
        },
        flags=tuple(flags),
        remarks=(*_about_bounds(unvisited), OF_DRAWS),
        elapsed=time.perf_counter() - began,
        fingerprint=held[0].fingerprint,
    )


def _check_models(models: Any) -> list[str]:
    if not isinstance(models, Mapping) or len(models) < 2:
        raise MethodError(
            f'{CALLER} needs a mapping of two or more models: {{"line": ..., "curve": ...}}.'
        )
    for name, model in models.items():
        require_model(model)
        if model.exchangeable:
            raise MethodError(
                f"{name!r} has exchangeable components: its posterior has a copy for each of their "
                "orders, of which a chain would visit some. Compare evidences instead: "
                'wb.compare(models, data, "smc").'
            )
    check_responses(models)
    return [str(name) for name in models]


def _check_odds(names: list[str], odds: Mapping[str, float] | None) -> np.ndarray | None:
    if odds is None:
        return None
    if set(odds) != set(names):
        raise MethodError(f"odds must name each of {names}, and no other model.")
    values = np.array([float(odds[name]) for name in names])
    if not np.isfinite(values).all() or (values <= 0).any():
        raise MethodError(f"odds must be positive, not {dict(odds)}.")
    return np.asarray(np.log(values))


def _pilot(
    name: str, model: Model, held: Held, number: int, seed: int, reporter: Reporter
) -> tuple[Member, float]:
    """A model with its tuned kernel and its pseudo-prior, and the R-hat of its draws."""
    rows = held.contents()
    found = sample_posterior(
        model, *rows, PILOT, seed=seed, first_island=number,
        report=report_steps(reporter, name, 0),
    )  # fmt: skip
    draws = read_draws(model, found)
    starts = draws.flat()[0]
    target = prepare(model, rows, found.kernel, 1).target(seed, 0)
    density = JointDensity(model, *rows)
    member = Member(density, target, found.kernel, fit_pseudo_prior(starts), starts, 0.0)
    return member, largest_rhat(draws)


def _log_shares(visits: Visits) -> tuple[np.ndarray, np.ndarray, list[bool]]:
    """Log shares of the models, variances of their differences, and which were visited.

    The share of a model that was not visited is the upper bound: n effective draws have missed it
    with probability 1 - 0.95 if its share is 1 - 0.05^(1/n).
    """
    probability = visits.probability
    count = probability.shape[-1]
    seen = [bool(np.any(visits.indicator == number)) for number in range(count)]
    shares = probability.mean(axis=(0, 1))
    log_shares = np.empty(count)
    for number in range(count):
        if seen[number]:
            log_shares[number] = np.log(shares[number])
            continue
        series = np.log(np.maximum(probability[..., number], 1e-300))
        effective = float(ess(series, "mean")) if np.ptp(series) > 0 else 1.0
        size = max(min(effective, float(series.size)), 1.0)
        log_shares[number] = np.log(-np.expm1(np.log(1.0 - CONFIDENCE) / size))
    variances = np.zeros((count, count))
    for one in range(count):
        for other in range(one):
            found = np.nan
            if seen[one] and seen[other]:
                terms = (
                    probability[..., one] / shares[one] - probability[..., other] / shares[other]
                )
                found = mean_variance(terms[None])
            variances[one, other] = variances[other, one] = found
    return log_shares, variances, seen


def _about_bounds(unvisited: tuple[str, ...]) -> tuple[str, ...]:
    if not unvisited:
        return ()
    return (
        f"never visited: {', '.join(unvisited)}. The bounds hold with a probability of 95 % if the "
        "chains mix.",
    )
