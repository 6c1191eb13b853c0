"""Stochastic gradient annealed importance sampling as published: mini-batches without anchors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.base import Kernel, MethodError, PyTree, Status
from weighbridge.data import pad
from weighbridge.estimators.anneal import Annealed, Cloud, Path, Settings, anneal, draw_cloud
from weighbridge.estimators.moves import Repeat
from weighbridge.estimators.sequential import (
    cloud_state,
    posterior,
    require_counts,
    restored_cloud,
    unexplained,
)
from weighbridge.kernels import SGHMC
from weighbridge.model import Model
from weighbridge.numerics import check_seed, double_precision
from weighbridge.particles import Combined, combine_islands, systematic_indices
from weighbridge.reservoir import Reservoir
from weighbridge.result import Evidence, Trace
from weighbridge.target import Batches, Rows

TRACE_COLUMNS = ("rows", "log_evidence", "std_error", "annealing_steps", "ess", "temperature")
# What is counted over all annealing steps.
COUNTED = ("num_diverged", "num_undefined", "num_infinite", "dropped")
# Names of random streams; see also STEP_STREAM.
BATCH_STREAM, SETTLE_STREAM = 1, 3
# Learning rate and momentum decay of the paper, for one observation.
PUBLISHED_KERNEL = SGHMC(step_size=0.1, friction=0.2)
# Spread of log Z over islands (nats) at which islands are resampled: beyond it their mean is
# little but their maximum.
SETTLE_AT = 2.0
# A heating bias (nats) below this is no reason for a flag: it is in the error bar.
HEAT_MATTERS = 1.0
# Effective particles of an island below which its estimate hangs on one of them.
FEW_PARTICLES = 1.5
# A spread beyond this is not the slow growth of a long stream: islands sit in different modes.
# They are kept apart, for their spread is all that shows it.
DISAGREEMENT = 4.0


@dataclass(frozen=True)
class PublishedSGAIS:
    r"""Stochastic gradient annealed importance sampling as published.

    The rows come in chunks. Each is brought in through the densities

    .. math:: f_n^{(\lambda)}(\theta) = p(y_n | \theta)^\lambda
              \prod_{k<n} p(y_k | \theta) \; p(\theta), \qquad \lambda: 0 \to 1

    with steps of lambda chosen by the ESS, weights that need only the chunk itself, and moves
    that see the past through mini-batches. The cost of a chunk does not grow with what has been
    seen. Cameron, Eggers & Kroon (2019), Entropy 21:1109, algorithm 1.

    The moves are not adjusted: mini-batch noise heats the particles to a temperature that grows
    with the rows seen, which biases the log evidence. The temperature is measured on the way,
    and the bias that it implies is part of the standard error. ``SGAIS`` is what to use;
    ``SGAIS.published()`` gives this one with the parameters of the paper.

    Args:
        num_islands: independent populations; their spread is the error bar.
        num_particles: particles of each island.
        chunk_size: rows brought in at once.
        batch_size: rows of a mini-batch.
        num_moves: kernel steps for each intermediate density.
        target_ess: ESS of the incremental weights, as a fraction of the particles.
        resample_below: resample when the carried ESS falls below this fraction; 0 never does.
        kernel: the move, with step sizes for ONE observation: for n rows it is rescaled to
            variances 1/n, so a learning rate of 0.1 becomes 0.1/n.
        step_follows_power: whether n counts the rows of the current chunk only to the power
            that they are in with, so that the first moves are as long as the prior is wide, or
            from the start, as published.
        reservoir: rows kept for mini-batches; beyond it they are a uniform sample of the past.
        states_error: whether the spread of islands may be believed as an error.
    """

    num_islands: int = 16
    num_particles: int = 32
    chunk_size: int = 500
    batch_size: int = 500
    num_moves: int = 20
    target_ess: float = 0.5
    resample_below: float = 0.5
    kernel: Kernel = PUBLISHED_KERNEL
    step_follows_power: bool = True
    reservoir: int = 1_000_000
    states_error: bool = True

    def combine(self, islands: np.ndarray) -> Combined:
        """One log evidence from those of the islands."""
        return combine_islands(islands)

    @property
    def name(self) -> str:
        """What results call the method."""
        return "sgais" if self.states_error else "sgais, published"

    def __post_init__(self) -> None:
        sizes = ("num_islands", "num_particles", "chunk_size", "batch_size", "num_moves")
        require_counts(self, *sizes, "reservoir")
        if self.num_particles < 2:
            raise MethodError("num_particles must be at least 2: one particle has no spread.")
        for name in ("target_ess", "resample_below"):
            if not isinstance(getattr(self, name), int | float):
                raise MethodError(f"{name} must be a number, not {getattr(self, name)!r}.")
        if not 0 < self.target_ess < 1:
            raise MethodError(
                f"target_ess must lie between 0 and 1, not {self.target_ess!r}: it is a fraction "
                "of the particles."
            )
        if not 0 <= self.resample_below <= 1:
            raise MethodError(f"resample_below must lie in [0, 1], not {self.resample_below!r}.")
        if not isinstance(self.kernel, Kernel):
            raise MethodError(f"kernel must be a kernel such as wb.SGHMC(), not {self.kernel!r}.")

    def chunk_after(self, rows_seen: int, *, in_memory: bool) -> int:
        """Rows of the next chunk: always as many."""
        return self.chunk_size

    def start(self, model: Model, *, seed: int = 0, first_island: int = 0) -> PublishedRun:
        """Begin a run; ``absorb`` then takes chunks."""
        return PublishedRun(self, model, seed, first_island)


class PublishedRun:
    """A run under way: particles, the rows kept for mini-batches, and the path so far."""

    @double_precision
    def __init__(
        self, method: PublishedSGAIS, model: Model, seed: int, first_island: int = 0
    ) -> None:
        model.require_rows()
        check_seed(seed)
        self.method, self.model, self.seed, self.first_island = method, model, seed, first_island
        self.rows = Reservoir(method.reservoir, seed)
        self.num_observations = 0.0
        self.num_chunks = 0
        self.temperature = 1.0
        self.heating_bias = 0.0
        self.settled_variance = 0.0
        self.widest_spread = 0.0
        self.counts = dict.fromkeys((*COUNTED, "stalled"), 0)
        self.path: list[tuple[float, ...]] = []
        self.islands = np.arange(first_island, first_island + method.num_islands)
        key = jax.random.key(seed, impl="threefry2x32")
        self.cloud = draw_cloud(model, key, self.islands, method.num_particles)
        self.log_evidences = np.zeros(method.num_islands)

    @property
    def num_rows(self) -> int:
        """Rows seen, whatever they count."""
        return self.rows.num_seen

    @double_precision
    def absorb(self, values: PyTree, weight: np.ndarray) -> None:
        """Bring in one chunk of at most ``chunk_size`` rows; on an error nothing has changed."""
        count = float(weight.sum())
        seen = self.num_observations + count
        if count > 0:
            chunk = Rows(*pad(values, weight, self.method.chunk_size))
            outcome = self._anneal(chunk, seen)
            self._check(outcome, chunk)
            self.cloud = outcome.cloud
            self._record(outcome, seen, count)
            self._settle()
        self.rows.append(values, weight)
        self.num_observations = seen
        self.num_chunks += 1

    def _anneal(self, chunk: Rows, seen: float) -> Annealed:
        method = self.method
        settings = Settings(
            target_ess=method.target_ess,
            resample_below=method.resample_below,
            conditional=float(method.resample_below > 0),
        )
        mover = Repeat(
            kernel=method.kernel,
            num_moves=method.num_moves,
            rows_past=1.0 + self.num_observations if method.step_follows_power else seen,
            rows_chunk=seen - self.num_observations if method.step_follows_power else 0.0,
        )
        return anneal(
            self.seed,
            self.num_chunks,
            self.islands,
            self.cloud,
            partial(self._path, chunk),
            mover,
            settings,
        )

    def _path(self, chunk: Rows, step: int) -> Path:
        """The path with fresh mini-batches of the past, one stack per island."""
        method, islands = self.method, self.islands
        num_batches = method.num_moves if method.kernel.uses_batches else 1
        shape = (num_batches, method.batch_size)
        kept = self.rows.num_kept
        if kept:
            chosen = _draw_rows(self.seed, self.num_chunks, step, islands, kept, shape)
            batches = Rows(*self.rows.gather(chosen))
        else:  # nothing is past yet: any valid row will do, at scale 0
            first = np.zeros((len(islands), *shape), int)
            batches = Rows(
                *jax.tree_util.tree_map(lambda leaf: leaf[first], (chunk.values, chunk.weight))
            )
        scale = np.full(len(islands), self.rows.num_seen / method.batch_size)
        past = Batches(batches, scale, np.zeros(len(islands), int))
        return Path(self.model, (past,), chunk)

    def _check(self, outcome: Annealed, chunk: Rows) -> None:
        """Refuse a chunk that no particle can explain, and say why."""
        undefined = int(np.sum(outcome.steps[0].num_undefined))
        dead = not np.isfinite(outcome.cloud.log_weight).any()
        if dead or (undefined and self.num_chunks == 0):
            raise unexplained(
                self.model,
                self.cloud.position,
                chunk,
                self.num_rows,
                undefined=undefined > 0,
                draw="prior draw" if self.num_chunks == 0 else "particle",
            )

    def _record(self, outcome: Annealed, seen: float, count: float) -> None:
        for step in outcome.steps:
            for name in COUNTED:
                self.counts[name] += int(getattr(step, name).sum())
        self.counts["stalled"] += outcome.stalled
        last = outcome.steps[-1]
        self.log_evidences = np.asarray(last.log_evidence)
        self.temperature = float(np.mean(getattr(last.moves, "temperature", math.nan)))
        if not math.isnan(self.temperature):
            # A posterior at temperature T loses (T - 1) D / 2 nats for each e-fold of rows.
            dimension = self.model.dimension
            self.heating_bias += 0.5 * dimension * (self.temperature - 1.0) * count / seen
        log_evidence, std_error = self._combine()
        self.path.append(
            (
                seen,
                log_evidence,
                std_error,
                float(len(outcome.steps)),
                float(last.carried_ess.mean()),
                self.temperature,
            )
        )

    def _settle(self) -> None:
        """Resample islands that have drifted apart, and carry the error made so far over.

        Each becomes a copy of one drawn by its evidence; all continue from the mean evidence.
        From here on they differ only by what comes, so the variance until here is set aside.
        """
        log_evidences = self.log_evidences
        combined = combine_islands(log_evidences)
        self.widest_spread = max(self.widest_spread, float(np.nan_to_num(combined.spread)))
        if not SETTLE_AT < combined.spread < DISAGREEMENT or math.isnan(combined.std_error):
            return
        # Rounds of islands with one seed differ by their first island.
        counter = [0, self.first_island, 0, self.num_chunks]
        generator = np.random.Generator(
            np.random.Philox(key=[self.seed, SETTLE_STREAM], counter=counter)
        )
        chosen = systematic_indices(generator.random(), log_evidences)
        self.settled_variance += combined.std_error**2
        shift = combined.log_evidence - log_evidences[:, None]
        position, log_weight, origin = map(np.asarray, self.cloud)
        self.cloud = Cloud(
            jnp.asarray(position[chosen]),
            jnp.asarray((log_weight + shift)[chosen]),
            jnp.asarray(origin[chosen]),
        )
        self.log_evidences = np.full(len(chosen), combined.log_evidence)

    def _combine(self) -> tuple[float, float]:
        combined = combine_islands(self.log_evidences)
        if not self.method.states_error or not self._knows_heat():
            return combined.log_evidence, math.nan
        variance = combined.std_error**2 + self.settled_variance
        return combined.log_evidence, math.hypot(math.sqrt(variance), self.heating_bias)

    def _knows_heat(self) -> bool:
        """Whether the kernel tells its temperature; without it no error can be stated."""
        return not math.isnan(self.temperature)

    def _latest(self, column: str) -> float:
        return self.path[-1][TRACE_COLUMNS.index(column)]

    def flags(self) -> tuple[Status, ...]:
        """Reasons for caution, the gravest first."""
        combined = combine_islands(self.log_evidences)
        _, std_error = self._combine()
        chance_error = math.sqrt(combined.std_error**2 + self.settled_variance)
        found = {
            Status.DIVERGED: self.counts["num_diverged"] + self.counts["num_undefined"] > 0,
            Status.PARTICLES_DROPPED: self.counts["dropped"] > 0,
            Status.STALLED: self.counts["stalled"] > 0,
            Status.RESERVOIR: not self.rows.is_complete,
            Status.HEATED: abs(self.heating_bias) > max(HEAT_MATTERS, 2 * chance_error),
            Status.LOW_ESS: bool(self.path) and self._latest("ess") < FEW_PARTICLES,
            Status.ISLANDS_DISAGREE: self.widest_spread > DISAGREEMENT,
            Status.ERROR_UNKNOWN: math.isnan(std_error),
        }
        return tuple(flag for flag, raised in found.items() if raised)

    @double_precision
    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence so far."""
        log_evidence, std_error = self._combine()
        columns = np.array(self.path).T
        samples, log_weights = posterior(self.model, *self.cloud[:2])
        return Evidence(
            log_evidence=log_evidence,
            std_error=std_error,
            num_observations=round(self.num_observations),
            method=self.method.name,
            trace=Trace(**dict(zip(TRACE_COLUMNS, columns))),
            samples=samples,
            log_weights=log_weights,
            diagnostics={
                "island_log_evidence": self.log_evidences,
                "heating_bias": -self.heating_bias,
                "settled_error": math.sqrt(self.settled_variance),
                "rows_kept": self.rows.num_kept,
                **self.counts,
                **extra,
            },
            flags=self.flags(),
            elapsed=elapsed,
        )

    # --- a run can be saved between chunks and resumed bit for bit -------------------------

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which ``restore`` continues."""
        arrays = {f"rows/{name}": value for name, value in self.rows.state().items()}
        arrays |= cloud_state(self.cloud)
        arrays["log_evidences"] = self.log_evidences
        arrays["path"] = np.array(self.path, float).reshape(-1, len(TRACE_COLUMNS))
        return arrays, {
            "num_observations": self.num_observations,
            "num_chunks": self.num_chunks,
            "temperature": self.temperature,
            "heating_bias": self.heating_bias,
            "settled_variance": self.settled_variance,
            "widest_spread": self.widest_spread,
            "counts": self.counts,
        }

    @double_precision
    def restore(self, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Continue from what ``state`` gave."""
        prefix = "rows/"
        self.rows.restore({k[len(prefix) :]: v for k, v in arrays.items() if k.startswith(prefix)})
        self.cloud = restored_cloud(arrays, self.cloud)
        self.log_evidences = arrays["log_evidences"]
        self.path = [tuple(map(float, row)) for row in arrays["path"]]
        self.num_observations = float(plain["num_observations"])
        self.num_chunks = int(plain["num_chunks"])
        self.temperature = float(plain["temperature"])
        self.heating_bias = float(plain["heating_bias"])
        self.settled_variance = float(plain["settled_variance"])
        self.widest_spread = float(plain["widest_spread"])
        self.counts = {name: int(value) for name, value in plain["counts"].items()}


def _draw_rows(
    seed: int, chunk: int, step: int, islands: np.ndarray, kept: int, shape: tuple[int, int]
) -> np.ndarray:
    """Rows of the mini-batches of each island, drawn with replacement.

    A counter-based generator on the host: its stream is named by seed, chunk, step and island,
    and no program has to be compiled for it.
    """
    generators = (
        np.random.Generator(
            np.random.Philox(key=[seed, BATCH_STREAM], counter=[0, island, step, chunk])
        )
        for island in islands
    )
    return np.stack([generator.integers(0, kept, shape) for generator in generators])
