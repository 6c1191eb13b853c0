"""Estimators that temper the likelihood of all the data: SMC, AIS, thermodynamic, prior sampling.

All run the annealing core on the path p(theta) p(data | theta)^lambda; they differ in the schedule,
in whether they resample, and in how the path becomes a number.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.base import MethodError, ModelError, PyTree, Status
from weighbridge.data import num_rows, pad
from weighbridge.estimators.adaptive import Adaptive, AdaptiveInfo
from weighbridge.estimators.anneal import (
    Annealed,
    Cloud,
    Mover,
    Path,
    Report,
    Settings,
    anneal,
    anneal_step,
    chunk_log_likelihoods,
    draw_cloud,
    moments,
)
from weighbridge.estimators.audit import Audit, audit, bridge_to_gaussians
from weighbridge.estimators.bridge import Bridged
from weighbridge.estimators.host import host_step
from weighbridge.estimators.host_likelihood import HostLikelihood, host_likelihood
from weighbridge.estimators.moves import Repeat, Stay
from weighbridge.estimators.walks import (
    DEFAULT_MOVES,
    MOVES,
    Moves,
    check_moves,
    choose_mover,
    needs_gradient,
    require_walkers,
)
from weighbridge.model import Model, unravel_positions
from weighbridge.numerics import check_seed, double_precision
from weighbridge.particles import Combined, combine_islands, combine_logs, require_resampling
from weighbridge.result import Evidence, Trace
from weighbridge.target import SPAN_BLOCK, Rows, Span, Term, Total

# Effective particles of an island below which its estimate hangs on one of them.
FEW_PARTICLES = 2.0
# Spread of log Z over islands (nats) beyond which their mean is little but their maximum.
DISAGREEMENT = 3.0
LOW_ACCEPTANCE = 0.2


@dataclass(frozen=True)
class Tempering:
    """What the estimators of this file have in common; use one of its subclasses."""

    num_islands: int = 16
    num_particles: int = 64
    target_ess: float = 0.5
    moves: Moves = DEFAULT_MOVES
    max_annealing_steps: int = 2000

    states_error: ClassVar[bool] = True
    # Whether the answer may come from a bridge between the last particles and Gaussians.
    bridges: ClassVar[bool] = False
    resample_below: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        for name in ("num_islands", "num_particles", "max_annealing_steps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise MethodError(f"{name} must be a whole number of at least 1, not {value!r}.")
        if self.num_particles < 2:
            raise MethodError("num_particles must be at least 2: one particle has no spread.")
        if not isinstance(self.target_ess, int | float) or not 0 < self.target_ess < 1:
            raise MethodError(
                f"target_ess must lie between 0 and 1, not {self.target_ess!r}: it is a fraction "
                "of the particles."
            )
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
        mover = choose_mover(self.moves, model.dimension, count, on_host=host is not None)
        require_walkers(mover, self.num_particles // self.chain_length, model.dimension)
        path = Path(model, (), term if host is None else cast(Term, host))
        take_step = anneal_step if host is None else host_step
        scheme = self.resampling_scheme()
        try:
            outcome = anneal(
                seed,
                0,
                islands,
                cloud,
                lambda _: path,
                mover,
                Settings(self.target_ess, self.resample_below),
                schedule=self.schedule(),
                resampling=scheme,
                chain_length=self.chain_length,
                max_steps=self.max_annealing_steps,
                report=report,
                take_step=take_step,
            )
        except Exception as error:
            if host is None:
                _explain(path, mover, error)
            raise
        check_outcome(outcome)
        estimates = self.island_estimates(outcome, path)
        combined = self.combine(estimates)
        second = None
        if first_island == 0:  # further rounds of islands would see the same
            second = audit(
                seed, islands, outcome, path, combined, take_step, scheme, self.chain_length
            )
        crossing = None
        if first_island == 0 and self.bridges:
            crossing = bridge_to_gaussians(seed, path, outcome.cloud)
        answer: Combined | Audit | Bridged = combined
        position, log_weight = map(np.asarray, outcome.cloud[:2])
        if second is not None and second.exceeds(combined):
            answer, position, log_weight = second, second.position, second.log_weight
        elif crossing is not None and crossing.agrees(*combined[:2]):
            answer = crossing
        return Evidence(
            log_evidence=answer.log_evidence,
            std_error=answer.std_error,
            num_observations=count,
            method=self.name,
            trace=_trace(outcome, count),
            samples=_draws(model, position),
            log_weights=_normalised(log_weight),
            diagnostics={
                "island_log_evidence": estimates,
                "genealogy_error": _genealogy_error(outcome, self),
                "annealing_steps": len(outcome.steps),
                **_host_diagnostics(host),
                **_move_diagnostics(outcome),
                **_counts(outcome),
                **_audit_diagnostics(second, combined),
                **_bridge_diagnostics(crossing, answer is crossing),
            },
            flags=_flags(outcome, combined, second),
            elapsed=time.perf_counter() - began,
        )


@dataclass(frozen=True)
class SMC(Tempering):
    r"""Sequential Monte Carlo along p(theta) p(data | theta)^lambda.

    .. math:: \log \hat Z = \sum_t \log \sum_i W_i^{(t)}
              p(y | \theta_i^{(t)})^{\lambda_{t+1} - \lambda_t}

    The next power is where the conditional ESS meets its target; particles are resampled when
    their weights have degenerated, and moved until they have forgotten where they were. Where the
    posterior is near enough to a Gaussian, a bridge between the last particles and Gaussians fitted
    to them (see ``estimators.bridge``) gives the answer, with a far smaller error; where it is not,
    by Pareto k-hat or because the two disagree, the path does. ``diagnostics`` has both. Del Moral,
    Doucet & Jasra (2006), J. R. Stat. Soc. B 68:411-436; Buchholz, Chopin & Jacob (2021), Bayesian
    Analysis 16:745-771.

    Args:
        num_islands: independent populations; their spread is the error bar.
        num_particles: particles of each island.
        target_ess: ESS of a step, as a fraction of the particles.
        moves: how particles move: "hmc", or without gradients "random_walk", "slice" or "stretch";
            a mover (``AdaptiveHMC``, ``AdaptiveWalk``) with settings of its own; or a kernel
            (``SGHMC``) with step sizes for one row, of which 20 steps are made at each power. By
            default HMC, and a random walk where the likelihood is on the host.
        max_annealing_steps: after so many the rest is taken at once, and the result says so.
        resampling: systematic, stratified, multinomial or residual. With multinomial, which
            resamples at every step, ``diagnostics["genealogy_error"]`` is a second opinion on
            the error, from the genealogy of the particles (Lee & Whiteley 2018, Biometrika
            105:609-625).
        waste_free: resample only one of P particles, and keep all states of the chains of P - 1
            moves that start there (Dau & Chopin 2022, J. R. Stat. Soc. B 84:114-148); True for
            P of at most 8, or P itself, which must divide ``num_particles``. A step makes less
            than one move for each particle: take more of them.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(100, seed=1)
    >>> result = wb.evidence(wb.zoo.gaussian.model(), data, SMC(), seed=0)
    >>> abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 4 * result.std_error
    True
    """

    resampling: str = "systematic"
    waste_free: bool | int = False

    bridges: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_resampling(self.resampling)
        if not self.waste_free:
            return
        length = self.chain_length
        if not isinstance(self.waste_free, int) or length < 2 or self.num_particles % length:
            raise MethodError(
                f"waste_free={self.waste_free!r} needs chains of at least 2 states whose length "
                f"divides num_particles={self.num_particles}: take a multiple of 8 particles."
            )
        if not isinstance(self.moves, str | Adaptive):
            raise MethodError(
                f"waste_free=True keeps the states of chains that tune themselves: use moves from "
                f"{list(MOVES)}, or a mover such as wb.AdaptiveHMC()."
            )

    @property
    def chain_length(self) -> int:
        """States of a waste-free chain: for True the largest divisor up to 8."""
        if self.waste_free is True:
            return max(length for length in range(1, 9) if self.num_particles % length == 0)
        return self.waste_free or 1

    @property
    def resample_below(self) -> float:  # type: ignore[override]
        """Multinomial resampling happens at every step, as the theory of its genealogy asks.

        So does waste-free resampling, which would otherwise have more particles at every step.
        """
        return 2.0 if self.resampling == "multinomial" or self.waste_free else 0.5

    def resampling_scheme(self) -> str:
        """Name of the resampling scheme."""
        return self.resampling


@dataclass(frozen=True)
class AIS(Tempering):
    r"""Annealed importance sampling: the same path, never resampled.

    .. math:: \hat Z = \frac1M \sum_i \prod_t p(y | \theta_i^{(t)})^{\lambda_{t+1} - \lambda_t}

    Neal (2001), Statistics and Computing 11:125-139. The adaptive schedule meets a target ESS;
    the fixed ones are linear, or the sigmoidal lambda_t = sigma(delta (2t/T - 1)), shifted and
    scaled to go from 0 to 1 (Grosse, Ghahramani & Adams 2015, arXiv:1511.02543).

    Args:
        num_islands, num_particles, target_ess, moves, max_annealing_steps: as in ``SMC``.
        path: adaptive, linear or sigmoidal.
        num_steps: powers of a fixed schedule.
        steepness: delta of the sigmoidal one.
    """

    target_ess: float = 0.9
    path: Literal["adaptive", "linear", "sigmoidal"] = "adaptive"
    num_steps: int = 100
    steepness: float = 4.0

    resample_below: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path not in ("adaptive", "linear", "sigmoidal"):
            raise MethodError(f"path must be adaptive, linear or sigmoidal, not {self.path!r}.")
        if self.num_steps < 1 or not self.steepness > 0:
            raise MethodError("num_steps must be at least 1, and steepness positive.")

    def schedule(self) -> np.ndarray | None:
        """The fixed powers, or None."""
        if self.path == "adaptive":
            return None
        fraction = np.arange(self.num_steps + 1) / self.num_steps
        if self.path == "sigmoidal":
            curve = 1 / (1 + np.exp(-self.steepness * (2 * fraction - 1)))
            fraction = (curve - curve[0]) / (curve[-1] - curve[0])
        fraction[-1] = 1.0
        return np.asarray(fraction[1:])


@dataclass(frozen=True)
class Thermodynamic(Tempering):
    r"""Thermodynamic integration, or stepping stones, along the tempered path.

    .. math:: \log Z = \int_0^1 E_\lambda[\ell] \, d\lambda \approx \sum_t
        \tfrac{\Delta_t}{2} (E_t + E_{t+1}) - \tfrac{\Delta_t^2}{12} (V_{t+1} - V_t)

    with E and V the mean and variance of the log-likelihood at each power: the trapezium rule with
    its second-order correction (Friel, Hurn & Wyse 2014, Statistics and Computing 24:709-723).
    Stepping stones multiply the ratios of neighbouring normalising constants instead (Xie et al.
    2011, Systematic Biology 60:150-160).

    Args:
        num_islands, num_particles, target_ess, moves, max_annealing_steps: as in ``SMC``.
        rule: trapezium or stepping_stones.
    """

    target_ess: float = 0.9
    rule: Literal["trapezium", "stepping_stones"] = "trapezium"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule not in ("trapezium", "stepping_stones"):
            raise MethodError(f"rule must be trapezium or stepping_stones, not {self.rule!r}.")

    def island_estimates(self, outcome: Annealed, path: Path) -> np.ndarray:
        """Integrate along the path, or add up its stones."""
        if self.rule == "stepping_stones":
            return np.asarray(np.sum([step.log_increment for step in outcome.steps], axis=0))
        last = _final_moments(path, outcome.cloud)
        means = np.array([*(step.mean for step in outcome.steps), last[0]])
        variances = np.array([*(step.variance for step in outcome.steps), last[1]])
        width = np.diff(outcome.powers)[:, None]
        area = 0.5 * width * (means[1:] + means[:-1])
        return np.asarray(np.sum(area - width**2 / 12 * np.diff(variances, axis=0), axis=0))

    def combine(self, islands: np.ndarray) -> Combined:
        """The rule estimates log Z itself, so its islands are averaged as they are."""
        if self.rule == "stepping_stones":
            return combine_islands(islands)
        return combine_logs(islands)


@dataclass(frozen=True)
class PriorSampling(Tempering):
    r"""The mean likelihood over draws from the prior.

    .. math:: \hat Z = \frac1M \sum_i p(y | \theta_i), \qquad \theta_i \sim p(\theta)

    Right in expectation, and hopeless where the likelihood is peaked: then the estimate hangs
    on one draw, and the status says so.

    Args:
        num_islands: independent sets of draws.
        num_particles: draws of each.
    """

    num_particles: int = 4096
    moves: Moves = Stay()  # noqa: RUF009

    resample_below: ClassVar[float] = 0.0

    @property
    def name(self) -> str:
        """What results call the method."""
        return "prior_sampling"

    def schedule(self) -> np.ndarray:
        """All at once."""
        return np.ones(1)


def _final_moments(path: Path, cloud: Cloud) -> np.ndarray:
    if isinstance(path.chunk, HostLikelihood):
        values = path.chunk.of_cloud(path.model, cloud.position)
    else:
        values = _log_likelihoods(path, cloud.position)
    return np.asarray(_moments(values, cloud.log_weight))


_log_likelihoods = jax.jit(chunk_log_likelihoods)
_moments = jax.jit(jax.vmap(moments))


def likelihood_term(
    model: Model, values: PyTree | None, weight: np.ndarray | None
) -> tuple[Term, int]:
    """The term of all the data, padded to one of a few sizes, and the number of observations."""
    if model.log_likelihood is None:
        return Total(values), 0 if values is None else num_rows(values)
    if values is None or weight is None:
        raise ModelError("This model has a log-likelihood of rows: give it data.")
    rows = num_rows(values)
    # Three binary digits after the first: at most an eighth is padding, which costs no time.
    grain = max(2 ** max(rows.bit_length() - 4, 0), SPAN_BLOCK)
    store = Rows(*pad(values, weight, -(-rows // grain) * grain))
    return Span(store, 0, rows), round(float(weight.sum()))


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


def _draws(model: Model, position: np.ndarray) -> dict[str, np.ndarray]:
    draws = unravel_positions(model, position.reshape(-1, model.dimension))
    return {name: np.asarray(draws[name]) for name in model.names}


def _normalised(log_weight: np.ndarray) -> np.ndarray:
    log_weights = log_weight.reshape(-1)
    log_weights = log_weights - log_weights.max()
    return np.asarray(log_weights - np.log(np.sum(np.exp(log_weights))))


def _counts(outcome: Annealed) -> dict[str, int]:
    names = ("num_infinite", "num_undefined", "num_diverged", "dropped")
    totals = {n: sum(int(np.sum(getattr(s, n))) for s in outcome.steps) for n in names}
    return {**totals, "stalled": int(outcome.stalled)}


def _move_diagnostics(outcome: Annealed) -> dict[str, Any]:
    """Acceptance, moves and what was remembered at each power, where the mover tells them."""
    found: dict[str, Any] = {}
    if not isinstance(outcome.steps[0].moves, AdaptiveInfo):
        return found
    for name in ("acceptance", "num_moves", "correlation"):
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


def _audit_diagnostics(second: Audit | None, path: Combined) -> dict[str, float]:
    """What the second look found, and what the path said."""
    if second is None:
        return {}
    return {
        "path_log_evidence": path.log_evidence,
        "path_error": path.std_error,
        "drift": second.drift,
        "quenched_log_evidence": second.log_evidence,
        "quenched_error": second.std_error,
        "quenched_ess": second.ess,
    }


def _bridge_diagnostics(crossing: Bridged | None, is_answer: bool) -> dict[str, Any]:
    """What the bridge gave, and whether it is the answer."""
    if crossing is None:
        return {}
    return {
        "bridge_log_evidence": crossing.log_evidence,
        "bridge_error": crossing.std_error,
        "bridge_khat": max(crossing.khat_proposal, crossing.khat_posterior),
        "answer": "bridge" if is_answer else "path",
    }


def _flags(outcome: Annealed, combined: Combined, second: Audit | None) -> tuple[Status, ...]:
    counts = _counts(outcome)
    acceptance = _move_diagnostics(outcome).get("acceptance", np.ones(1))
    enough = getattr(outcome.mover, "low_acceptance", LOW_ACCEPTANCE)
    found = {
        Status.MASS_MISSED: second is not None and second.exceeds(combined),
        Status.DRIFTING: second is not None and second.drifting,
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
