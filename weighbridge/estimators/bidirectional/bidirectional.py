"""Bidirectional Monte Carlo: bounds on the log evidence from below and from above.

For simulated data an exact posterior draw is known: the parameters of the simulation. Annealing
from the prior to the posterior bounds log Z from below. Annealing from that draw back to the prior
bounds it from above.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np
import numpyro.distributions as dist

from weighbridge.core.checks import check_seed
from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import DataError, MethodError, ModelError
from weighbridge.core.islands import combine_logs
from weighbridge.core.random import Stream, random_key, random_numbers
from weighbridge.core.resampling import systematic_indices
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_TEMPERED_SPREAD
from weighbridge.core.types import PyTree
from weighbridge.data.row_checking import RowChecker
from weighbridge.data.values import as_values, num_rows
from weighbridge.estimators.annealing.cloud import Cloud, draw_cloud
from weighbridge.estimators.annealing.loop import Annealed, PathSeed, anneal
from weighbridge.estimators.annealing.moves.mover import Mover
from weighbridge.estimators.annealing.moves.walks import choose_mover
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings
from weighbridge.estimators.bidirectional.bounds import Bounds, island_logs
from weighbridge.estimators.bidirectional.frozen import Recorded, require_freezable, reversed_moves
from weighbridge.estimators.registry import resolve
from weighbridge.estimators.tempering.ais import AIS
from weighbridge.estimators.tempering.preparation import check_outcome
from weighbridge.estimators.tempering.tempering import Tempering
from weighbridge.models.model import Model
from weighbridge.models.row_likelihood import check_row_function
from weighbridge.models.targets.all_rows import likelihood_term
from weighbridge.models.targets.host import host_likelihood

# Simulates observations from the parameters (NumPy arrays by name) and a generator.
Simulator = Callable[[dict[str, np.ndarray], np.random.Generator], PyTree]

PILOT, FORWARD, BACKWARD = 11, 12, 13
# Sweeps of moves at power 1 before a backward chain starts. They make the starts of the chains
# nearly independent; each start is still an exact posterior draw.
REFRESHING = 4


@double_precision
def bidirectional(
    model: Model,
    simulate: Simulator,
    *,
    method: str | Tempering | None = None,
    seed: int = 0,
) -> Bounds:
    r"""Lower and upper stochastic bounds on log Z, for data simulated from the model.

    The bounds show how far an estimator is from the truth on data that are similar to your own.
    Parameters theta* are drawn from the prior and data from their likelihood, so theta* is an exact
    posterior draw. Let f_t = p(theta) p(data | theta)^{lambda_t}, and let the moves K_t leave f_t
    invariant. A forward chain starts from the prior. For t = 1..T its weight is first multiplied by
    f_t(x_{t-1}) / f_{t-1}(x_{t-1}); then it moves, x_t ~ K_t(x_{t-1}). The reversal of K_t is
    K_t(x' | x) f_t(x) / f_t(x'). A backward chain starts from x_T = theta*. For t = T..1 it first
    moves at power t, from x_t to x_{t-1}; then its weight is divided by the same ratio. For one and
    the same path

    .. math:: \frac{Q_{backward}(x_0 \ldots x_T)}{P_{forward}(x_0 \ldots x_T)}
        = \frac{f_T(x_T)}{Z p(x_0)} \prod_t \frac{f_t(x_{t-1})}{f_t(x_t)}
        = \frac{1}{Z} \prod_t \frac{f_t(x_{t-1})}{f_{t-1}(x_{t-1})} = \frac{w}{Z}

    .. math:: E_P[w] = Z, \quad E_Q[1/w] = 1/Z, \quad
        E_P[\log w] = \log Z - KL(P | Q), \quad E_Q[\log w] = \log Z + KL(Q | P)

    An island averages the weights of its chains; the bounds average the logs over islands. A pilot
    run finds the schedule and the tuning of the moves. Then both are fixed, because chains that
    tune themselves would give no bounds. All backward chains start from the same theta*, and make
    moves at power 1 to become independent of it. The remaining dependence is measured with backward
    chains that start from draws of the pilot and use the same random numbers; it is part of the
    error of the upper bound. If moves do not connect the modes of the posterior and the pilot
    missed one, only Markov's inequality holds: the upper bound is a nats too low with a probability
    of at most exp(-a).

    Grosse, Ghahramani & Adams (2015), arXiv:1511.02543.

    Args:
        model: with a log-likelihood of rows, or of all data.
        simulate: ``f(parameters, generator)`` takes the parameters as NumPy arrays by name and a
            NumPy generator. It returns observations in any form that ``wb.evidence`` takes; inputs
            such as the features of a regression may come from your own data.
        method: ``AIS`` or ``SMC`` with their settings; more annealing steps bring the bounds closer
            to each other. By default AIS with 32 islands of 32 particles.
        seed: the same seed gives the same parameters, data and bounds.

    >>> import weighbridge as wb
    >>> bounds = wb.bidirectional(
    ...     wb.zoo.gaussian.model(), lambda p, generator: generator.normal(p["mu"], 1.0, size=50))
    >>> low, high = bounds.interval
    >>> low < wb.zoo.gaussian.log_evidence(bounds.data) < high, bounds.gap < 0.5
    (True, True)
    >>> result = wb.evidence(wb.zoo.gaussian.model(), bounds.data, "smc")
    >>> bounds.check(result).inside
    True
    """
    began = time.perf_counter()
    check_seed(seed)
    if not isinstance(model, Model):
        raise MethodError(f"model must be a wb.Model, not {type(model).__name__}.")
    chosen = _require_method(method)
    # Another key, so that the true parameters are not a particle of an estimator with this seed.
    key = jax.random.fold_in(random_key(seed), 2**32 - Stream.SIMULATIONS)
    first, second, third = np.arange(3 * chosen.num_islands).reshape(3, -1)
    truth = np.asarray(draw_cloud(model, key, third, chosen.num_particles).position[0, 0])
    parameters = model.unravel(truth)
    values, weight = _simulated(model, simulate, parameters, seed)
    term, count = likelihood_term(model, values, weight)
    cloud = draw_cloud(model, key, first, chosen.num_particles)
    if host_likelihood(model, values, cloud.position) is not None:
        raise ModelError(
            "Bounds need a total_log_likelihood that JAX can compile: write it with jax.numpy."
        )
    mover = choose_mover(
        chosen.moves, model.dimension, count, on_host=False, default=chosen.default_moves
    )
    require_freezable(mover)

    run = _PathRun(chosen, seed, Path(model, (), term))
    pilot = run.pilot(cloud, mover)
    check_outcome(pilot)
    powers = np.array(pilot.powers)
    movers = [step.moves for step in pilot.steps]
    cloud = draw_cloud(model, key, second, chosen.num_particles)
    forward = run.fixed(FORWARD, cloud, 0.0, powers[1:], movers)

    # Each power has the moves of the forward step to this power. At power 0 the weights are final.
    reverse = np.concatenate([np.ones(REFRESHING), powers[::-1]])
    order = [*[movers[-1]] * REFRESHING, *movers[::-1], movers[0]]
    back = [reversed_moves(mover) for mover in order]
    starts = np.broadcast_to(truth, (chosen.num_islands, len(truth)))
    backward = run.fixed(BACKWARD, run.cloud_at(starts), 1.0, reverse, back)
    # The same random numbers from other starts: the differences show the effect of the start.
    starts = _posterior_draws(pilot, seed)
    rehearsal = run.fixed(BACKWARD, run.cloud_at(starts), 1.0, reverse, back)

    with np.errstate(invalid="ignore"):  # an island without weight has no finite log
        lower = combine_logs(island_logs(forward))
        upper = combine_logs(-island_logs(backward))
        by_start = _start_error(-island_logs(backward), -island_logs(rehearsal))
    found = {
        Status.ISLANDS_DISAGREE: max(lower.spread, upper.spread) > MAX_TEMPERED_SPREAD,
        Status.STALLED: pilot.stalled,
        Status.ERROR_UNKNOWN: math.isnan(lower.std_error + upper.std_error),
    }
    return Bounds(
        lower=lower.log_evidence,
        upper=upper.log_evidence,
        lower_error=lower.std_error,
        upper_error=math.hypot(upper.std_error, by_start),
        data=values,
        parameters=parameters,
        schedule=powers,
        forward_log_weights=forward,
        backward_log_weights=backward,
        method=chosen.name,
        num_observations=count,
        flags=tuple(flag for flag, raised in found.items() if raised),
        elapsed=time.perf_counter() - began,
    )


@dataclass(frozen=True)
class _PathRun:
    """The annealing loop on one path of densities, with tuning or with fixed moves."""

    method: Tempering
    seed: int
    path: Path

    def pilot(self, cloud: Cloud, mover: Mover) -> Annealed:
        """Find the schedule and the tuning; it always resamples, for a better metric."""
        method = self.method
        return anneal(
            PathSeed(self.seed, PILOT, np.arange(method.num_islands)),
            cloud,
            lambda _: self.path,
            Recorded(mover),
            Settings(
                method.target_ess,
                0.5,
                schedule=method.schedule(),
                max_steps=method.max_annealing_steps,
            ),
        )

    def fixed(
        self,
        stage: int,
        cloud: Cloud,
        start: float,
        schedule: np.ndarray,
        movers: Sequence[Mover],
    ) -> np.ndarray:
        """Log weights at the end of a schedule, with movers that do not tune themselves."""
        outcome = anneal(
            PathSeed(self.seed, stage, np.arange(self.method.num_islands)),
            cloud,
            lambda _: self.path,
            movers,
            Settings(
                self.method.target_ess,
                self.method.resample_below,
                resampling=self.method.resampling_scheme(),
                schedule=schedule,
                start=start,
            ),
        )
        return np.asarray(outcome.cloud.log_weight)

    def cloud_at(self, starts: np.ndarray) -> Cloud:
        """All particles of an island at one position."""
        shape = (self.method.num_islands, self.method.num_particles)
        position = np.broadcast_to(starts[:, None], (*shape, starts.shape[1]))
        origin = np.broadcast_to(np.arange(shape[1]), shape)
        return Cloud(position, np.zeros(shape), origin)


def _posterior_draws(pilot: Annealed, seed: int) -> np.ndarray:
    """One particle of the pilot for each island, drawn by its weight."""
    num_islands, num_particles, dimension = pilot.cloud.position.shape
    numbers = random_numbers(seed, Stream.PILOT_DRAWS)
    log_weights = np.asarray(pilot.cloud.log_weight).reshape(-1)
    chosen = systematic_indices(numbers.random(), log_weights)
    offsets = numbers.integers(num_particles, size=num_islands)
    chosen = chosen[np.arange(num_islands) * num_particles + offsets]
    positions = np.asarray(pilot.cloud.position).reshape(-1, dimension)
    return np.asarray(positions[chosen])


def _start_error(from_truth: np.ndarray, from_others: np.ndarray) -> float:
    """Standard error of the mean over chains from the truth, due to the choice of the truth.

    The squared difference of two starts has twice the variance of one start, plus the variance
    over islands, which is subtracted. Differences are taken from the mean of the chains from the
    truth, so that an unusual truth gives a large error.
    """
    num_islands = len(from_truth)
    if num_islands < 2:
        return math.nan
    by_chance = (1 + 1 / num_islands) * np.var(from_truth, ddof=1)
    squares = np.mean((from_others - np.mean(from_truth)) ** 2)
    return math.sqrt(max(float(squares - by_chance) / 2, 0.0))


def _require_method(method: str | Tempering | None) -> Tempering:
    """AIS or SMC; other methods are refused."""
    chosen = AIS(32, 32, target_ess=0.95) if method is None else resolve(method)
    if not isinstance(chosen, Tempering) or not chosen.reversible:
        raise MethodError(
            f"Bounds need AIS or SMC, whose paths can be run in reverse, not {chosen.name!r}: "
            "method=wb.AIS(...)."
        )
    if chosen.chain_length > 1:
        raise MethodError("Bounds need SMC without waste-free chains: leave out waste_free.")
    return chosen


def _simulated(
    model: Model, simulate: Simulator, parameters: dict[str, np.ndarray], seed: int
) -> tuple[PyTree, np.ndarray | None]:
    """Simulated observations, checked, and a weight of 1 for every row."""
    total = model.total_log_likelihood
    if total is not None and len(inspect.signature(total).parameters) < 2:
        raise ModelError(
            "The total_log_likelihood takes no data, so none can be simulated for it: give it as "
            "f(parameters, data)."
        )
    if not callable(simulate):
        raise MethodError(
            "simulate must be a function of the parameters and a NumPy generator that returns "
            f"observations, not {simulate!r}."
        )
    data = simulate(dict(parameters), random_numbers(seed, Stream.SIMULATIONS))
    if isinstance(data, dist.Distribution):
        raise DataError(
            f"simulate returned a distribution ({type(data).__name__}), not observations: draw "
            "from it with its sample(jax.random.key(generator.integers(2**31)), ...)."
        )
    try:
        values = as_values(data)
        if model.log_likelihood is not None:
            values = RowChecker("raise", model.check_rows)(values)
    except DataError as error:
        raise DataError(f"simulate returned data that cannot be used. {error}") from error
    if not num_rows(values):
        raise DataError("simulate returned no rows.")
    if model.log_likelihood is None:
        return values, None
    if check_row_function(model, values):
        raise DataError(
            "simulate returned a column 'weight' that counts repeated rows. The parameters are an "
            "exact posterior draw only if every row was simulated: return every row."
        )
    return values, np.ones(num_rows(values))
