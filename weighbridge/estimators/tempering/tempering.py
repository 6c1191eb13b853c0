"""What estimators that temper the likelihood of all the data have in common.

All run the annealing core on the path p(theta) p(data | theta)^lambda; they differ in the schedule,
in whether they resample, and in how the path becomes a number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.checks import check_seed, require_counts, require_fraction, require_particles
from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.islands import Combined, combine_islands
from weighbridge.core.resampling import is_same
from weighbridge.core.status import Status
from weighbridge.core.types import PyTree
from weighbridge.data.values import num_rows
from weighbridge.estimators.annealing.cloud import Cloud, draw_cloud
from weighbridge.estimators.annealing.host_step import host_step
from weighbridge.estimators.annealing.labels import Labels, one_labelling
from weighbridge.estimators.annealing.loop import Annealed, Report, anneal
from weighbridge.estimators.annealing.memory import check_memory
from weighbridge.estimators.annealing.moves.adaptive import AdaptiveInfo
from weighbridge.estimators.annealing.moves.kernels import AdaptiveHMC, Repeat
from weighbridge.estimators.annealing.moves.mover import Mover
from weighbridge.estimators.annealing.moves.walks import (
    DEFAULT_MOVES,
    AdaptiveWalk,
    Moves,
    check_moves,
    choose_mover,
    needs_gradient,
    require_walkers,
)
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings, StepInfo
from weighbridge.estimators.annealing.step import anneal_step, quick_step
from weighbridge.estimators.bridging.bridge import decide
from weighbridge.estimators.bridging.gaussians import bridge_to_gaussians
from weighbridge.estimators.second_look.audit import Audit, audit
from weighbridge.estimators.sequential import posterior
from weighbridge.estimators.tempering.leading import Lead
from weighbridge.models.model import Model
from weighbridge.models.targets.all_rows import likelihood_term
from weighbridge.models.targets.host import HostLikelihood, host_likelihood
from weighbridge.models.targets.term import Term
from weighbridge.models.targets.unbounded import UnboundedError
from weighbridge.results.evidence_result import Evidence, Trace

# Effective particles of an island below which its estimate hangs on one of them.
FEW_PARTICLES = 2.0
# Spread of log Z over islands (nats) beyond which their mean is little but their maximum.
DISAGREEMENT = 3.0
LOW_ACCEPTANCE = 0.2
# Correlation with the start that moves may leave where there are more parameters than particles.
REMEMBERED = 0.25
# Rows times coordinates from which on a step is compiled to run fast, and not to compile fast.
MANY_NUMBERS = 100_000


@dataclass(frozen=True)
class Tempering:
    """What the estimators of this file have in common; use one of its subclasses."""

    num_islands: int = 16
    num_particles: int = 64
    target_ess: float = 0.5
    moves: Moves | None = None
    max_annealing_steps: int = 2000

    states_error: ClassVar[bool] = True
    # Whether the answer may come from a bridge between the last particles and Gaussians.
    bridges: ClassVar[bool] = False
    resample_below: ClassVar[float] = 0.5
    # Moves of a method that is given none, and whose likelihood has a gradient.
    default_moves: ClassVar[AdaptiveHMC] = DEFAULT_MOVES

    def __post_init__(self) -> None:
        require_counts(self, "max_annealing_steps")
        require_particles(self)
        require_fraction(self, "target_ess")
        check_moves(self.moves)

    @property
    def name(self) -> str:
        """What results call the method."""
        return type(self).__name__.lower()

    @property
    def chain_length(self) -> int:
        """More than 1 for waste-free resampling."""
        return 1

    def resampling_scheme(self) -> str:
        """Name of the resampling scheme."""
        return "systematic"

    def schedule(self) -> np.ndarray | None:
        """Powers to go through, or None to choose them by the ESS."""
        return None

    def island_estimates(self, outcome: Annealed, path: Path) -> np.ndarray:
        """Log evidence of each island, from the path."""
        return np.asarray(outcome.steps[-1].log_evidence)

    def combine(self, islands: np.ndarray) -> Combined:
        """One log evidence from those of the islands."""
        return combine_islands(islands)

    @double_precision
    def estimate(
        self,
        model: Model,
        values: PyTree | None,
        weight: np.ndarray | None,
        *,
        seed: int = 0,
        first_island: int = 0,
        report: Report | None = None,
    ) -> Evidence:
        """The evidence of a model on data that are in memory.

        Args:
            model: with a log-likelihood of rows or of all data.
            values: the observations, or None for a model that has its own.
            weight: how often each row counts.
            seed: the same seed gives the same numbers.
            first_island: number of the first island; other islands draw other numbers.
            report: told the power reached, the log evidence so far and the number of steps.
        """
        began = time.perf_counter()
        check_seed(seed)
        term, count = likelihood_term(model, values, weight)
        islands = np.arange(first_island, first_island + self.num_islands)
        key = jax.random.key(seed, impl="threefry2x32")
        cloud = draw_cloud(model, key, islands, self.num_particles)
        host = host_likelihood(model, values, cloud.position)
        mover = choose_mover(
            self.moves,
            model.dimension,
            count,
            on_host=host is not None,
            default=self.default_moves,
        )
        require_walkers(mover, self.num_particles // self.chain_length, model.dimension)
        size = (model.dimension, self.num_islands, self.num_particles)
        check_memory(*size, dense=getattr(mover, "dense", False))
        # Particles that move by each other, or on the host, cannot be held back one by one.
        by_each_other = isinstance(mover, AdaptiveWalk) and mover.kernel.ensemble
        labels = Labels(model, possible=host is None and not by_each_other)
        by_gradient = host is None and isinstance(mover, AdaptiveHMC)
        weighed = term if host is None else cast(Term, host)
        lead = Lead(model, weighed, seed, first_island, possible=by_gradient)

        def between(cloud: Cloud, step: StepInfo) -> Cloud:
            cloud = labels.follow(cloud, step)
            lead.follow(cloud, step)
            return cloud

        take_step: Callable[..., Any] = host_step
        if host is None:
            many = values is not None and num_rows(values) * model.dimension >= MANY_NUMBERS
            take_step = anneal_step if many else quick_step
        go = partial(
            anneal,
            seed,
            islands=islands,
            resampling=self.resampling_scheme(),
            take_step=partial(take_step, chain_length=self.chain_length),
        )
        try:
            outcome = go(
                0,
                cloud=cloud,
                path_at=lambda _: labels.within(lead.path()),
                mover=mover,
                settings=Settings(self.target_ess, self.resample_below),
                schedule=self.schedule(),
                max_steps=self.max_annealing_steps,
                report=report,
                between=between,
                may_end_early=True,
            )
        except UnboundedError as error:
            raise error.in_term(model, term) from None
        except Exception as error:
            if host is None:
                _explain(lead.path(), mover, error)
            raise
        check_outcome(outcome)
        path = labels.within(lead.path_beyond())
        if not outcome.is_whole:
            return self._so_far(model, outcome, count, time.perf_counter() - began)
        estimates = self.island_estimates(outcome, path)
        combined = self.combine(estimates)
        crossing, second, interrupted = None, None, False
        try:
            interrupts.check()
            if self.bridges:
                cloud, cell = one_labelling(model, outcome.cloud, agreed=False)
                differentiable = needs_gradient(mover)
                crossing = bridge_to_gaussians(
                    seed, first_island, path, cloud, differentiable=differentiable, adjust=cell
                )
            interrupts.check()
            holds = crossing is not None and crossing.judge(*combined[:2]) == (True, None)
            # Further rounds would fall into the same modes; a drift shows better in many.
            second = audit(seed, go, outcome, path, roam=not holds, quench=first_island == 0)
        except interrupts.Interrupted:
            interrupted = True  # the path has an answer of its own
        flags = _flags(outcome, combined, second)
        decision = decide(crossing, *combined[:2], flags)
        position, log_weight = map(np.asarray, outcome.cloud[:2])
        joined = second and second.missed(outcome.cloud, estimates, self.combine)
        if joined is not None and not joined.is_missed:
            decision = joined.widened(decision)
        elif joined is not None and joined.overrules(decision):
            decision = decision.overruled(joined.log_evidence, joined.std_error, flags)
            position, log_weight = joined.position, joined.log_weight
        samples, log_weights = posterior(model, position, log_weight)
        return Evidence(
            log_evidence=decision.log_evidence,
            std_error=decision.std_error,
            num_observations=count,
            method=self.name,
            trace=_trace(outcome, count),
            samples=samples,
            log_weights=log_weights,
            diagnostics={
                "island_log_evidence": estimates,
                "genealogy_error": _genealogy_error(outcome, self),
                "annealing_steps": len(outcome.steps),
                **_host_diagnostics(host),
                **_move_diagnostics(outcome),
                **_counts(outcome),
                **({} if second is None else second.diagnostics),
                **decision.diagnostics,
                **({"power_reached": 1.0} if interrupted else {}),
            },
            flags=(Status.INTERRUPTED,) * interrupted + decision.flags,
            elapsed=time.perf_counter() - began,
        )

    def _so_far(self, model: Model, outcome: Annealed, count: int, elapsed: float) -> Evidence:
        r"""What a path that was interrupted has come to.

        .. math:: Z_\lambda = \int p(\theta) p(data | \theta)^\lambda d \theta

        at the power reached, which is not the evidence: no error is stated.
        """
        islands = np.asarray(outcome.steps[-1].log_evidence)
        combined = combine_islands(islands)
        samples, log_weights = posterior(model, *map(np.asarray, outcome.cloud[:2]))
        flags = (f for f in _flags(outcome, combined, None) if f is not Status.ERROR_UNKNOWN)
        return Evidence(
            log_evidence=combined.log_evidence,
            std_error=math.nan,
            num_observations=count,
            method=self.name,
            trace=_trace(outcome, count),
            samples=samples,
            log_weights=log_weights,
            diagnostics={
                "power_reached": outcome.powers[-1],
                "island_log_evidence": islands,
                "annealing_steps": len(outcome.steps),
                **_move_diagnostics(outcome),
                **_counts(outcome),
            },
            flags=(Status.INTERRUPTED, *flags),
            elapsed=elapsed,
        )


def _explain(path: Path, mover: Mover, error: Exception) -> None:
    """Say so if it is a callback that JAX cannot run, or only the gradient that it cannot trace."""
    if "CpuCallback" in str(error) and "dtype" in str(error):
        raise ModelError(
            "The log-likelihood calls back to Python from within JAX (pure_callback) in double "
            "precision, which JAX allows only where jax_enable_x64 is set for all. Declare its "
            "result as float32, or give the function in Python itself as total_log_likelihood: "
            "it is then called on the host."
        ) from error
    if not needs_gradient(mover):
        return
    abstract: Any = jax.ShapeDtypeStruct
    target, position = path.target(jnp.ones(())), abstract((path.model.dimension,), np.float64)
    try:
        jax.eval_shape(target, position)
    except Exception:
        return
    try:
        jax.eval_shape(jax.grad(target), position)
    except Exception:
        raise MethodError(
            "The log-likelihood of this model has no gradient that JAX can trace "
            f"({type(error).__name__}), and these moves need one: use moves that do not, "
            'moves="random_walk", "slice" or "stretch".'
        ) from error


def check_outcome(outcome: Annealed) -> None:
    """Refuse a path on which no particle, or not every one, has a log-likelihood."""
    first = outcome.steps[0]
    if int(first.num_undefined.sum()):
        raise ModelError(
            f"The log-likelihood is not a number (NaN) for {int(first.num_undefined.sum())} prior "
            "draws. Check it for log(0), 0/0 or overflow; it must return -inf where the density is "
            "zero."
        )
    if not np.isfinite(outcome.steps[-1].log_evidence).any():
        raise ModelError(
            "The log-likelihood of these data is -inf for every prior draw: no parameter value "
            "that was tried can have produced them. Check the support of the likelihood and the "
            "scale of the data, or use more particles."
        )


def _trace(outcome: Annealed, count: int) -> Trace:
    steps = outcome.steps
    combined = [combine_islands(np.asarray(step.log_evidence)) for step in steps]
    return Trace(
        rows=np.full(len(steps), float(count)),
        power=np.array(outcome.powers[1:]),
        log_evidence=np.array([c.log_evidence for c in combined]),
        std_error=np.array([c.std_error for c in combined]),
        annealing_steps=np.arange(1.0, len(steps) + 1),
        ess=np.array([step.ess.mean() for step in steps]),
    )


def _counts(outcome: Annealed) -> dict[str, int]:
    names = ("num_infinite", "num_undefined", "num_diverged", "dropped")
    totals = {n: sum(int(np.sum(getattr(s, n))) for s in outcome.steps) for n in names}
    return {**totals, "stalled": int(outcome.stalled)}


def _move_diagnostics(outcome: Annealed) -> dict[str, Any]:
    """Acceptance, moves and what was remembered at each power, where the mover tells them."""
    found: dict[str, Any] = {}
    if not isinstance(outcome.steps[0].moves, AdaptiveInfo):
        return found
    for name in ("acceptance", "num_moves", "correlation", "lingering"):
        found[name] = np.array([np.mean(getattr(s.moves, name)) for s in outcome.steps])
    return found


def _host_diagnostics(host: HostLikelihood | None) -> dict[str, int]:
    """How often a function on the host was called, and for how many parameter sets."""
    if host is None:
        return {}
    return {"host_calls": host.num_calls, "host_evaluations": host.num_evaluations}


def is_unadjusted(mover: object) -> bool:
    """Whether moves have no accept test: kernels that take a new mini-batch each time have none."""
    return isinstance(mover, Repeat) and mover.kernel.uses_batches and int(mover.num_moves) > 0


def _genealogy_error(outcome: Annealed, method: Tempering) -> float | None:
    r"""Standard error of log Z from the genealogy of one run; None where it is unavailable.

    With E_i the first ancestor of particle i, after n resampling steps of N particles,

    .. math:: V = 1 - \bigl(\tfrac{N}{N-1}\bigr)^{n+1} \sum_{E_i \ne E_j} W_i W_j
    """
    if method.resampling_scheme() != "multinomial" or method.chain_length > 1:
        return None
    origin = np.asarray(outcome.cloud.origin)
    log_weight = np.asarray(outcome.cloud.log_weight)
    num_particles = origin.shape[1]
    num_resampled = sum(int(np.all(step.resampled)) for step in outcome.steps)
    variances = []
    for ancestors, weights in zip(origin, log_weight):
        share = np.exp(weights - weights.max())
        family = np.bincount(ancestors, share / share.sum(), minlength=num_particles)
        if np.count_nonzero(family) == 1:  # coalesced: nothing is left to learn from
            return None
        factor = (num_particles / (num_particles - 1)) ** (num_resampled + 1)
        variances.append(1 - factor * (1 - np.sum(family**2)))
    variance = float(np.mean(variances)) / len(variances)
    return math.sqrt(variance) if variance > 0 else None


def remembers_too_much(outcome: Annealed) -> bool:
    """Whether moves in many dimensions left particles too near to where they had started.

    Where an island has fewer particles than there are parameters, its copies after resampling span
    a few directions only, and moves must take them to the others. What they still know of their
    start, over the later half of the steps, is the mean over coordinates; particles in separate
    modes, which remember their mode for ever, are rather few coordinates in that many dimensions.
    """
    num_particles, dimension = outcome.cloud.position.shape[1:]
    found = _move_diagnostics(outcome).get("correlation")
    if found is None or dimension <= num_particles:
        return False
    return float(np.mean(found[len(found) // 2 :])) > REMEMBERED


def _is_flat(first: StepInfo) -> bool:
    """Whether the log-likelihood is the same at every prior draw, to rounding."""
    mean, deviation = np.asarray(first.mean), np.sqrt(np.asarray(first.variance))
    same = is_same(np.concatenate([mean, mean + deviation]))
    return same and not np.any(np.asarray(first.num_infinite))


def _flags(outcome: Annealed, combined: Combined, second: Audit | None) -> tuple[Status, ...]:
    counts = _counts(outcome)
    acceptance = _move_diagnostics(outcome).get("acceptance", np.ones(1))
    enough = getattr(outcome.mover, "low_acceptance", LOW_ACCEPTANCE)
    found = {
        Status.FLAT: _is_flat(outcome.steps[0]),
        Status.ROUNDED: combined.is_rounded,
        Status.DRIFTING: second is not None and second.is_drifting(combined),
        Status.TOO_FEW_MOVES: remembers_too_much(outcome),
        Status.LOW_ESS: float(outcome.steps[-1].carried_ess.mean()) < FEW_PARTICLES,
        Status.ISLANDS_DISAGREE: combined.spread > DISAGREEMENT,
        Status.LOW_ACCEPTANCE: float(np.median(acceptance)) < enough,
        Status.UNADJUSTED: is_unadjusted(outcome.mover),
        Status.DIVERGED: counts["num_diverged"] + counts["num_undefined"] > 0,
        Status.PARTICLES_DROPPED: counts["dropped"] > 0,
        Status.STALLED: counts["stalled"] > 0,
        Status.ERROR_UNKNOWN: math.isnan(combined.std_error),
    }
    return tuple(flag for flag, raised in found.items() if raised)
