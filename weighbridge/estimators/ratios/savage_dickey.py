"""``wb.savage_dickey``: a model against itself with some of its parameters fixed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from weighbridge.core.checks import check_count, check_seed
from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.progress.announcing import announced
from weighbridge.core.progress.reporters import Reporter, choose_reporter
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_BRIDGE_RHAT
from weighbridge.core.types import PyTree, Report
from weighbridge.estimators.draws_origin import require_origin
from weighbridge.estimators.posterior_draws import PosteriorDraws, read_draws
from weighbridge.estimators.posterior_run import PosteriorRun, report_steps, sample_posterior
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.ratios.common_data import hold_for_all
from weighbridge.estimators.ratios.crossing import Crossed, Side, cross, mean_only
from weighbridge.estimators.ratios.halves import halve, largest_rhat
from weighbridge.estimators.ratios.matching import Matching, match, regress
from weighbridge.estimators.ratios.nested_model import prior_gap, require_names
from weighbridge.estimators.ratios.pinned import AtPoint, Pinned, log_prior_at
from weighbridge.estimators.ratios.points import Point, describe_point, read_point
from weighbridge.models.model import Model
from weighbridge.models.row_gate import require_model
from weighbridge.results.evidence_ratio import OF_DRAWS, EvidenceRatio

Estimator = Literal["auto", "bridge", "iwmde"]
FULL = "full model"
CALLER = "wb.savage_dickey"
NOTHING_LEFT = "The point holds every parameter: nothing is left in the smaller model."
# The draws of the smaller model have their own random numbers.
SMALLER = 1


@double_precision
def savage_dickey(
    model: Model,
    data: Any,
    point: Mapping[str, Any],
    *,
    posterior: Any = None,
    nested: Model | None = None,
    method: Estimator = "auto",
    num_samples: int = 1000,
    seed: int = 0,
    progress: bool | Reporter | None = None,
) -> EvidenceRatio:
    r"""Log Bayes factor of a model with parameters fixed at a point, against the model itself.

    .. math:: \frac{Z_0}{Z} = \frac{p(\beta_0 \mid y)}{p(\beta_0)}

    The posterior density at the point is a ratio of two integrals over the other parameters. It is
    estimated by a bridge between posterior draws of the model and of the model held at the point,
    with a conditional density of what is held; so it is as accurate at six posterior standard
    deviations from the centre as at the centre, where a kernel density has no draws.

    Densities are those of the parameters themselves. The point may be on the edge of the support,
    such as 0 for a scale with a half-normal prior, if the prior density there is finite and not 0.

    Args:
        model: the full model.
        data: in any form that ``wb.evidence`` takes.
        point: the parameters to fix, and their values: ``{"beta": 0.0}``, several at once, or
            entries of a parameter: ``{"w": {2: 0.0}}`` or ``{"w[2]": 0.0}``.
        posterior: draws of the full model that exist already: a ``wb.Posterior``, an
            ``wb.Evidence`` or a mapping of arrays. By default four chains are drawn.
        nested: the smaller model. Its likelihood must be that of the full model at the point. If
            its prior is not p(rest | point), the ratio is for its own prior (what Verdinelli &
            Wasserman correct for), and a remark says so. Without it, the smaller model has the
            prior p(rest | point) of the full model.
        method: "bridge" (the same as "auto"); or "iwmde", importance-weighted marginal density
            estimation, which needs no draws of the smaller model and is for points near the centre.
        num_samples: number of draws of each chain.
        seed: the same seed gives the same numbers.
        progress: True or False, or a reporter, as in ``wb.evidence``.

    Returns:
        The ratio; its ``log_bayes_factor`` is that of the smaller model against the full one.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(20, mean=0.0, seed=1)
    >>> ratio = savage_dickey(wb.zoo.gaussian.model(), data, {"mu": 0.0}, num_samples=500)
    >>> exact = -0.5 * data @ data - 10 * np.log(2 * np.pi) - wb.zoo.gaussian.log_evidence(data)
    >>> bool(abs(ratio.log_bayes_factor - exact) < 5 * ratio.std_error < 0.1)
    True

    References: Dickey (1971), Annals of Math. Stat. 42:204-223; Verdinelli & Wasserman (1995), J.
    Am. Stat. Assoc. 90:614-618; Chen (1994), J. Am. Stat. Assoc. 89:818-824.
    """
    began = time.perf_counter()
    check_seed(seed)
    check_count("num_samples", num_samples, 10)
    require_model(model)
    if method not in get_args(Estimator):
        raise MethodError(f"method must be one of {list(get_args(Estimator))}, not {method!r}.")
    place = read_point(model, point)
    if any(name in place for name, _ in model.exchangeable):
        raise MethodError(
            "The point holds a parameter with exchangeable components: which of them is held "
            "depends on their order, which has no meaning. Compare the evidences of two models."
        )
    if nested is not None:
        require_model(nested)
        require_names(model, nested, place)
    pinned = Pinned.of(model, place)
    log_prior = log_prior_at(pinned, seed)
    held, *others = hold_for_all([model, *([] if nested is None else [nested])], data, CALLER)
    require_origin(posterior, model, held)
    rows = values, weight = held.contents()
    full = JointDensity(model, values, weight)
    smaller: JointDensity | AtPoint
    smaller = JointDensity(pinned, values, weight) if pinned.dimension else AtPoint(pinned, full)
    gap = 0.0
    if nested is not None:
        own_density = JointDensity(nested, *others[0].contents())
        assert isinstance(smaller, JointDensity)
        gap = prior_gap(own_density, smaller, log_prior)
        if gap:
            if method == "iwmde":
                raise MethodError(
                    "The prior of nested is not that of the model at the point, which needs draws "
                    'of nested: use method="bridge".'
                )
            smaller, log_prior, rows = own_density, (0.0, 0.0), others[0].contents()
    run = PosteriorRun(num_samples=num_samples)
    reporter = choose_reporter(progress)
    with announced(reporter, "sampling the posterior"):
        if posterior is None:
            report = report_steps(reporter, FULL, 0)
            posterior = sample_posterior(model, values, weight, run, seed=seed, report=report)
        draws = read_draws(model, posterior)
        work = _Work(full, smaller, pinned.kept, draws, posterior, seed, rows)
        if method == "iwmde":
            found, rhats = _one_sided(work, pinned, place), [largest_rhat(draws)]
        else:
            report = report_steps(reporter, describe_point(place), 0)
            others_draws = _smaller_draws(work, run, report)
            found = _bridged(work, others_draws)
            rhats = [largest_rhat(draws), largest_rhat(others_draws)]
    reporter.close()
    disagree = any(value > MAX_BRIDGE_RHAT for value in rhats)
    log_ratio = found.log_ratio - log_prior[0]
    variance = found.std_error**2 + log_prior[1] ** 2
    return EvidenceRatio(
        names=(FULL, describe_point(place)),
        log_ratios=np.array([0.0, log_ratio]),
        variances=variance * (1.0 - np.eye(2)),
        method="savage_dickey",
        num_observations=full.num_observations,
        diagnostics=found.diagnostics
        | {
            "log_posterior_density": found.log_ratio if not gap else float("nan"),
            "log_prior_density": log_prior[0] if not gap else float("nan"),
            "prior_gap": gap,
            "rhat": float(np.nanmax([*rhats, 0.0])),
            "num_evaluations": full.num_evaluations + smaller.num_evaluations,
        },
        flags=((Status.CHAINS_DISAGREE,) if disagree else ()) + found.flags,
        remarks=(_about_prior(nested, gap, place) if pinned.dimension else NOTHING_LEFT, OF_DRAWS),
        elapsed=time.perf_counter() - began,
        fingerprint=held.fingerprint,
    )


class _Work(NamedTuple):
    """Both densities, and the draws of the full model."""

    full: JointDensity
    smaller: JointDensity | AtPoint
    kept: np.ndarray
    draws: PosteriorDraws
    origin: Any
    seed: int
    rows: tuple[PyTree, np.ndarray | None]


def _smaller_draws(work: _Work, run: PosteriorRun, report: Report) -> PosteriorDraws:
    """Draws of the smaller model; empty vectors if it has no parameters."""
    model = work.smaller.model
    if not model.dimension:
        shape = (run.num_chains, run.num_samples)
        log_weights = np.full(shape, -np.log(run.num_chains * run.num_samples))
        return PosteriorDraws(np.zeros((*shape, 0)), log_weights, True)
    try:
        found = sample_posterior(
            model, *work.rows, run, seed=work.seed, first_island=SMALLER, report=report
        )
    except ModelError as error:
        raise ModelError(
            "The smaller model cannot be sampled. Is the likelihood at the point zero, or not a "
            f"number? Then its evidence is zero: choose a point where it is positive. {error}"
        ) from error
    count = found.positions.shape[0] * found.positions.shape[1]
    log_weights = np.full(found.positions.shape[:2], -np.log(count))
    return PosteriorDraws(found.positions, log_weights, True)


def _bridged(work: _Work, smaller: PosteriorDraws) -> Crossed:
    """The ratio of the integrals by a bridge: half of the draws fit the map, half are compared."""
    numbers = random_numbers(work.seed, Stream.RATIOS)
    to_fit, draws, blocks = halve(work.draws, work.origin, numbers)
    smaller_to_fit, smaller_draws, _ = halve(smaller, None, numbers)
    matching = match(to_fit, smaller_to_fit, work.kept)
    positions, rest = draws.flat()[0], smaller_draws.flat()[0]
    held = matching.marginal.draw(numbers, len(rest))
    moved = np.empty((len(rest), work.full.model.dimension))
    moved[:, ~work.kept], moved[:, work.kept] = held, matching.to_full(held, rest)
    ratios = [_log_ratios(work, matching, where) for where in (positions, moved)]
    return cross(
        Side(draws, ratios[0].reshape(draws.log_weights.shape), blocks),
        Side(smaller_draws, ratios[1].reshape(smaller_draws.log_weights.shape)),
    )


def _one_sided(work: _Work, pinned: Pinned, place: Point) -> Crossed:
    """The same from draws of the full model alone."""
    to_fit, draws, blocks = halve(work.draws, work.origin, random_numbers(work.seed, Stream.RATIOS))
    centre = pinned.base.unravel(to_fit.mean(axis=0))
    there = {n: np.where(*place[n], v) if n in place else v for n, v in centre.items()}
    at = pinned.base.ravel(there)[~work.kept]
    matching = regress(to_fit, work.kept, at if np.isfinite(at).all() else None)
    ratios = _log_ratios(work, matching, draws.flat()[0])
    return mean_only(Side(draws, ratios.reshape(draws.log_weights.shape), blocks))


def _log_ratios(work: _Work, matching: Matching, positions: np.ndarray) -> np.ndarray:
    """Log ratio of the extended density of the smaller model to that of the full one."""
    held, rest = positions[:, ~work.kept], positions[:, work.kept]
    extended = work.smaller(matching.to_smaller(held, rest)) + matching.marginal.log_density(held)
    height = work.full(positions)
    if not (np.isfinite(extended) | np.isfinite(height)).any():
        raise ModelError(
            "The density is zero at all draws: the posterior at the point and that of the model do "
            "not overlap, or the draws do not belong to the model."
        )
    with np.errstate(invalid="ignore"):
        found = extended + matching.log_det - height
    return np.where(np.isnan(found), -np.inf, found)


def _about_prior(nested: Model | None, gap: float, place: Point) -> str:
    where = describe_point(place)
    if nested is None:
        return f"The smaller model has the prior p(rest | {where}) of the full model."
    if not gap:
        return f"The prior of nested is p(rest | {where}) of the full model, as it should be."
    return (
        f"The prior of nested is not p(rest | {where}) of the full model (their logarithms differ "
        f"by up to {gap:.2g}): the ratio is for nested with its own prior."
    )
