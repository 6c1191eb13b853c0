"""Stochastic gradient annealed importance sampling on anchored targets, chunk by chunk."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from weighbridge.anchor import FIRST_ORDER_ABOVE, Anchored, Sums
from weighbridge.base import Kernel, MethodError, PyTree, Status
from weighbridge.data import split
from weighbridge.estimators.anchoring import (
    FIRST_BATCH,
    NOISELESS,
    NUM_PROBES,
    SUM_ROWS,
    Anchor,
    Estimate,
    Terms,
    set_anchor,
    sums_of,
    total,
)
from weighbridge.estimators.anneal import (
    Annealed,
    Cloud,
    Mover,
    Path,
    Settings,
    anneal,
    anneal_step,
)
from weighbridge.estimators.bridge import Bridged
from weighbridge.estimators.crossing import bridge_to_gaussians
from weighbridge.estimators.labels import one_labelling
from weighbridge.estimators.moves import AdaptiveHMC, Repeat
from weighbridge.estimators.published import BATCH_STREAM, PublishedRun, PublishedSGAIS
from weighbridge.estimators.sequential import require_counts
from weighbridge.estimators.walks import REPEATED_MOVES
from weighbridge.model import Model
from weighbridge.numerics import double_precision
from weighbridge.particles import Combined, combine_islands
from weighbridge.result import Evidence
from weighbridge.target import Rows

# Rows of a chunk of a stream, and of the first chunk where chunks grow.
STREAM_CHUNK = 500
FIRST_CHUNK = 256
# Up to so many rows all of them are used, without a question.
EXACT_ROWS = 1024
# Particles are resampled and moved when the ESS is below this; before, weights are enough.
RESAMPLE_BELOW = 0.6
# The anchor is set anew when the rows have grown by this factor.
ANCHOR_GROWTH = 2.0
# What the bridge's batches are allowed, as a share of what the moves' are.
BRIDGE_NOISE = 0.01
# Batch noise is worth a flag when it may have moved log Z by this much, and more than its error.
NOISE_MATTERS = 0.5
# Who draws the rows of a batch: the past, the chunk, the bridge; and who the probes.
PAST, CHUNK, BRIDGE, PROBES = range(4)
# Moves go on until the correlation with the start is about this: the next step moves them on.
DECORRELATED = 0.3

# Cautions about the path, which do not concern an answer by the bridge.
OF_THE_PATH = (Status.NOISY, Status.ISLANDS_DISAGREE, Status.HEATED, Status.ERROR_UNKNOWN)

# Particles move only when they were resampled.
patient_step = partial(anneal_step, patient=True)


@dataclass(frozen=True)
class SGAIS:
    r"""Stochastic gradient annealed importance sampling, on anchored targets.

    The rows come in chunks. Each is brought in through the densities

    .. math:: f_n^{(\lambda)}(\theta) = p(y_n | \theta)^\lambda
              \prod_{k<n} p(y_k | \theta) \; p(\theta), \qquad \lambda: 0 \to 1

    with steps of lambda chosen by the ESS. Moves see the past through its exact second-order sums
    at an anchor near the posterior's centre, and through mini-batches only for what those leave
    out (see ``Anchored``): its variance over batches is measured, and kept below ``noise`` by the
    size of the batch. The cost of a chunk does not grow with what has been seen. Cameron, Eggers &
    Kroon (2019), Entropy 21:1109; control variates for mini-batches: Baker, Fearnhead, Fox &
    Nemeth (2019), Statistics and Computing 29:599-615.

    At the end, and whenever it is asked for, a two-sided bridge to a Gaussian gives log Z a second
    time, without the errors of the path. It is the answer where Pareto k-hat is below 0.5 in both
    directions, unless the path is clearly higher; ``diagnostics`` has both.

    Args:
        num_islands: independent populations; their spread is the error bar.
        num_particles: particles of each island.
        chunk_size: rows brought in at once, but not more than were seen before. By default 500 of
            a stream, and as many as were seen before where they are in memory.
        batch_size: the most rows of a mini-batch; beyond, the noise is said to be too large.
        noise: variance of the log density over mini-batches that is allowed.
        target_ess: ESS of a step, as a fraction of the particles.
        kernel: how particles move, by default HMC on one batch. A kernel such as ``SGHMC``, with
            step sizes for ONE observation, makes 20 steps at each power, each on a new batch.
        reservoir: rows kept for mini-batches; beyond it they are a uniform sample of the past.

    >>> import weighbridge as wb
    >>> data = wb.zoo.linear.simulate(2000, seed=1)
    >>> result = wb.evidence(wb.zoo.linear.model(), data, SGAIS(), seed=0)
    >>> abs(result.log_evidence - wb.zoo.linear.log_evidence(data)) < 1e-4
    True
    """

    num_islands: int = 16
    num_particles: int = 64
    chunk_size: int | None = None
    batch_size: int = 8192
    noise: float = 0.01
    target_ess: float = 0.5
    kernel: Kernel | None = None
    reservoir: int = 1_000_000

    name: ClassVar[str] = "sgais"
    states_error: ClassVar[bool] = True
    resample_below: ClassVar[float] = RESAMPLE_BELOW

    def __post_init__(self) -> None:
        require_counts(self, "num_islands", "num_particles", "batch_size", "reservoir")
        if self.chunk_size is not None:
            require_counts(self, "chunk_size")
        if self.num_particles < 2:
            raise MethodError("num_particles must be at least 2: one particle has no spread.")
        for name in ("target_ess", "noise"):
            if not isinstance(getattr(self, name), int | float):
                raise MethodError(f"{name} must be a number, not {getattr(self, name)!r}.")
        if not 0 < self.target_ess < 1:
            raise MethodError(
                f"target_ess must lie between 0 and 1, not {self.target_ess!r}: it is a fraction "
                "of the particles."
            )
        if not self.noise > 0:
            raise MethodError(f"noise must be positive, not {self.noise!r}: it is a variance.")
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise MethodError(f"kernel must be a kernel such as wb.SGHMC(), not {self.kernel!r}.")

    @staticmethod
    def published() -> PublishedSGAIS:
        """The algorithm and the parameters of the paper: 10 particles, ESS 5, no resampling.

        Its bias is heating, which no spread shows, so its error is always stated as unknown.

        >>> SGAIS.published().num_particles
        10
        """
        return PublishedSGAIS(
            num_islands=1,
            num_particles=10,
            resample_below=0.0,
            step_follows_power=False,
            states_error=False,
        )

    def chunk_after(self, rows_seen: int, *, in_memory: bool) -> int:
        """Rows of the next chunk.

        >>> [SGAIS().chunk_after(rows, in_memory=True) for rows in (0, 256, 512)]
        [256, 256, 512]
        """
        if self.chunk_size is not None:
            return min(self.chunk_size, max(rows_seen, EXACT_ROWS))
        return max(rows_seen, FIRST_CHUNK) if in_memory else STREAM_CHUNK

    def combine(self, islands: np.ndarray) -> Combined:
        """One log evidence from those of the islands."""
        return combine_islands(islands)

    def start(self, model: Model, *, seed: int = 0, first_island: int = 0) -> SGAISRun:
        """Begin a run; ``absorb`` then takes chunks."""
        return SGAISRun(self, model, seed, first_island)


class Stage(NamedTuple):
    """One chunk, ready to be brought in.

    Attributes:
        path: from all before to all with the chunk.
        cloud: the particles, with one labelling.
        anchor: with the sums of all rows before; None while all rows are used.
        chunk_sums: those of the chunk.
        past: how the rows before are estimated; None while all are used.
        chunk: how the chunk is.
    """

    path: Path
    cloud: Cloud
    anchor: Anchor | None
    chunk_sums: Sums | None
    past: Estimate | None
    chunk: Estimate


class SGAISRun(PublishedRun):
    """A run under way: particles, the anchor with its sums, and rows for mini-batches."""

    method: SGAIS  # type: ignore[assignment]

    @double_precision
    def __init__(self, method: SGAIS, model: Model, seed: int, first_island: int = 0) -> None:
        super().__init__(method, model, seed, first_island)  # type: ignore[arg-type]
        self.anchor: Anchor | None = None
        self.batch_rows = {PAST: FIRST_BATCH, CHUNK: FIRST_BATCH}
        self.noise_bias = 0.0
        self.largest_noise = 0.0
        kernel = method.kernel
        num_batches = REPEATED_MOVES if kernel is not None and kernel.uses_batches else 1
        self.terms = Terms(
            model,
            method.num_islands,
            num_batches=num_batches,
            largest=max(method.batch_size // num_batches, 1),
            capacity=EXACT_ROWS,
            noise=method.noise,
        )
        self.mover = AdaptiveHMC(
            decorrelated=DECORRELATED,
            dense=model.dimension <= FIRST_ORDER_ABOVE,
        )

    # --- bringing in a chunk ---------------------------------------------------------------

    @double_precision
    def absorb(self, values: PyTree, weight: np.ndarray) -> None:
        """Bring in one chunk; on an error nothing has changed."""
        count = float(weight.sum())
        seen = self.num_observations + count
        if count > 0:
            stage = self._prepare(values, weight)
            outcome = self._anneal_stage(stage, seen)
            self._check(outcome, Rows(values, weight))
            self._take(stage, outcome)
            if self.anchor is None and self.num_rows + len(weight) > self.rows.capacity:
                self.anchor = self._first_anchor(values, weight)
            self._record(outcome, seen, count)
            self._settle()
        self.rows.append(values, weight)
        self.num_observations = seen
        self.num_chunks += 1

    def _prepare(self, values: PyTree, weight: np.ndarray) -> Stage:
        """The path of a chunk, with batches large enough."""
        new, past = len(weight), self.rows.num_seen
        cloud = self._relabel(self.cloud)
        if not past or (past + new <= EXACT_ROWS and self.anchor is None):
            chunk = self._whole(values, weight)
            path = Path(self.model, (self._before(values, weight),), chunk.term)
            return Stage(path, cloud, None, None, None, chunk)
        anchor, before, probes = self._estimated_past(cloud)
        sums = self._chunk_sums(anchor.position, values, weight)
        if new <= EXACT_ROWS:
            chunk = self._whole(values, weight)
        else:
            gather = lambda chosen: jax.tree_util.tree_map(  # noqa: E731
                lambda leaf: np.take(leaf, chosen, axis=0), (values, weight)
            )
            chunk = self._estimate(CHUNK, anchor.position, sums, (gather, new, new), probes)
        path = Path(self.model, (before.term,), chunk.term)
        return Stage(path, cloud, anchor, sums, before, chunk)

    def _estimated_past(self, cloud: Cloud) -> tuple[Anchor, Estimate, np.ndarray]:
        """The anchor, moved to the particles' centre if it is time, and what it makes of the past.

        It is time when rows have doubled, or when batches are too noisy without.
        """
        anchor, probes = self.anchor, self._probes(cloud)
        rows = self.rows
        while True:
            fresh = anchor is None or rows.num_seen >= ANCHOR_GROWTH * anchor.num_rows
            if anchor is None or fresh:
                anchor = set_anchor(self.model, self._centre(cloud), rows, anchor)
            source = (rows.gather, rows.num_kept, rows.num_seen)
            before = self._estimate(PAST, anchor.position, anchor.sums, source, probes)
            calm = before.noise.relative <= self.method.noise
            if calm or fresh or anchor.num_rows == rows.num_seen:
                return anchor, before, probes
            anchor = set_anchor(self.model, self._centre(cloud), rows, anchor)

    def _before(self, values: PyTree, weight: np.ndarray) -> Anchored:
        """All rows before; none of the first chunk's own, if there are none."""
        if self.rows.num_seen:
            return self.terms.exact(*self.rows.gather(np.arange(self.rows.num_seen)))
        return replace(self.terms.exact(*next(split((values, weight), 1))), size=0)

    def _whole(self, values: PyTree, weight: np.ndarray) -> Estimate:
        return Estimate(self.terms.exact(values, weight), NOISELESS, len(weight))

    def _estimate(
        self, who: int, anchor: np.ndarray, sums: Sums, source: Any, probes: np.ndarray
    ) -> Estimate:
        return self.terms.estimated(
            self._generators(who),
            anchor,
            sums,
            source,
            probes,
            self.batch_rows[who],
            absolute=who != PAST,
        )

    def _generators(self, who: int) -> list[np.random.Generator]:
        """Of the rows of a batch, one for each group; named by seed, chunk, island and who."""
        groups = range(self.first_island, self.first_island + self.terms.num_groups)
        return [
            np.random.Generator(
                np.random.Philox(
                    key=[self.seed, BATCH_STREAM], counter=[0, group, who, self.num_chunks]
                )
            )
            for group in groups
        ]

    def _relabel(self, cloud: Cloud) -> Cloud:
        # The first particles come from the prior, where no labelling is better than another.
        return one_labelling(self.model, cloud, agreed=self.num_chunks > 1)[0]

    def _first_anchor(self, values: PyTree, weight: np.ndarray) -> Anchor:
        """With this chunk the reservoir overflows: the last moment to see all rows."""
        anchor = set_anchor(self.model, self._centre(self._relabel(self.cloud)), self.rows, None)
        return anchor._replace(
            sums=anchor.sums.plus(self._chunk_sums(anchor.position, values, weight)),
            num_rows=self.num_rows + len(weight),
        )

    def _chunk_sums(self, position: np.ndarray, values: PyTree, weight: np.ndarray) -> Sums:
        blocks = split((values, weight), SUM_ROWS)
        return total(self.model.dimension, sums_of(self.model, position, blocks))

    def _centre(self, cloud: Cloud) -> np.ndarray:
        share = np.asarray(jax.nn.softmax(cloud.log_weight, axis=1)).reshape(-1)
        position = np.asarray(cloud.position).reshape(len(share), -1)
        return np.asarray(np.nan_to_num(share) @ position / np.nansum(share))

    def _probes(self, cloud: Cloud) -> np.ndarray:
        """Some particles, by their weights."""
        share = np.nan_to_num(np.asarray(jax.nn.softmax(cloud.log_weight, axis=1)).reshape(-1))
        generator = self._generators(PROBES)[0]
        chosen = generator.choice(len(share), NUM_PROBES, p=share / share.sum())
        return np.asarray(cloud.position).reshape(len(share), -1)[chosen]

    def _anneal_stage(self, stage: Stage, seen: float) -> Annealed:
        method, kernel = self.method, self.method.kernel
        mover: Mover = self.mover
        if kernel is not None:
            past, chunk = 1.0 + self.num_observations, seen - self.num_observations
            mover = Repeat(kernel, REPEATED_MOVES, rows_past=past, rows_chunk=chunk)
        return anneal(
            self.seed,
            self.num_chunks,
            self.islands,
            stage.cloud,
            lambda _: stage.path,
            mover,
            Settings(method.target_ess, RESAMPLE_BELOW),
            take_step=anneal_step if kernel is not None else patient_step,
            between=self._relabel if self.model.exchangeable else None,
        )

    def _take(self, stage: Stage, outcome: Annealed) -> None:
        """Go on from the end of a stage."""
        self.cloud = outcome.cloud
        if self.method.kernel is None:
            self.mover = outcome.mover
        if stage.anchor is None or stage.past is None or stage.chunk_sums is None:
            return
        self.anchor = stage.anchor._replace(sums=stage.anchor.sums.plus(stage.chunk_sums))
        self.batch_rows[PAST] = min(stage.past.wanted, self.terms.largest)
        if stage.chunk.noise is not NOISELESS:
            self.batch_rows[CHUNK] = min(stage.chunk.wanted, self.terms.largest)
        self.largest_noise = max(self.largest_noise, stage.past.noise.relative)
        self.noise_bias += _bias(stage, outcome)

    # --- what it comes to --------------------------------------------------------------------

    def _knows_heat(self) -> bool:
        return self.method.kernel is None or super()._knows_heat()

    def _combine(self) -> tuple[float, float]:
        log_evidence, std_error = super()._combine()
        return log_evidence, math.hypot(std_error, self.noise_bias)

    def bridge(self) -> Bridged | None:
        """The evidence by a bridge between the particles and Gaussians; None if there is none.

        Where rows can be reached the anchor is set at the particles' centre for it.
        """
        seen = self.rows.num_seen
        cloud, cell = one_labelling(self.model, self.cloud)
        variance = 0.0
        if self.anchor is None:
            term = self.terms.exact(*self.rows.gather(np.arange(seen)))
        else:
            anchor = self.anchor
            if self.rows.is_complete:
                anchor = set_anchor(self.model, self._centre(cloud), self.rows, None)
            estimate = self._for_bridge(anchor, cloud)
            term, variance = estimate.term, anchor.variance + sum(estimate.floor)
        path = Path(self.model, (), term)
        crossing = bridge_to_gaussians(
            self.seed, self.first_island, path, cloud, differentiable=True, adjust=cell
        )
        if crossing is None:
            return None
        return crossing._replace(std_error=math.hypot(crossing.std_error, math.sqrt(variance)))

    def _for_bridge(self, anchor: Anchor, cloud: Cloud) -> Estimate:
        """All rows, with as little noise as batches allow."""
        terms = self.terms
        strict = Terms(
            self.model,
            terms.num_islands,
            num_batches=terms.num_batches,
            largest=terms.largest,
            capacity=EXACT_ROWS,
            noise=BRIDGE_NOISE * self.method.noise,
        )
        source = (self.rows.gather, self.rows.num_kept, self.rows.num_seen)
        return strict.estimated(
            self._generators(BRIDGE),
            anchor.position,
            anchor.sums,
            source,
            self._probes(cloud),
            self.batch_rows[PAST],
            absolute=True,
        )

    def flags(self) -> tuple[Status, ...]:
        """Reasons for caution, the gravest first."""
        chance = super()._combine()[1]
        noisy = self.noise_bias > max(NOISE_MATTERS, chance)
        # What a reservoir leaves open is in the error bar.
        others = tuple(flag for flag in super().flags() if flag is not Status.RESERVOIR)
        return ((Status.NOISY,) if noisy else ()) + others

    @double_precision
    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence so far, by the path or by the bridge."""
        found = super().result(elapsed, extra)
        crossing = self.bridge() if self.method.num_islands >= 4 else None
        flags, caution, by_bridge = found.flags, None, False
        answer = found.log_evidence, found.std_error
        if crossing is not None:
            by_bridge, caution = crossing.judge(*answer)
        if crossing is not None and by_bridge:
            answer = crossing.log_evidence, crossing.std_error
            # What is wrong with the path alone is no caution about the answer.
            flags = tuple(flag for flag in flags if flag not in OF_THE_PATH)
        if caution is not None:
            flags = (caution, *flags)
        return replace(
            found,
            log_evidence=answer[0],
            std_error=answer[1],
            flags=flags,
            diagnostics=found.diagnostics
            | {
                "path_log_evidence": found.log_evidence,
                "path_error": found.std_error,
                "answer": "bridge" if by_bridge else "path",
                "bridge_log_evidence": crossing.log_evidence if crossing else math.nan,
                "bridge_error": crossing.std_error if crossing else math.nan,
                "bridge_khat": (
                    max(crossing.khat_proposal, crossing.khat_posterior) if crossing else math.inf
                ),
                "noise_bias": self.noise_bias,
                "largest_noise": self.largest_noise,
                "batch_rows": self.batch_rows[PAST],
                "anchor_order": self._order(),
                "anchor_error": math.sqrt(self.anchor.variance) if self.anchor else 0.0,
            },
        )

    def _order(self) -> int:
        """0 while all rows are used; 1 where curvatures would be too many."""
        if self.anchor is None:
            return 0
        return 1 if self.anchor.sums.curvature is None else 2

    # --- saved and resumed bit for bit ----------------------------------------------------------

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which ``restore`` continues."""
        arrays, plain = super().state()
        tuning = ("step_size", "num_moves")
        arrays |= {f"mover/{name}": np.asarray(getattr(self.mover, name)) for name in tuning}
        anchor = self.anchor
        if anchor is not None:
            arrays["anchor/position"] = anchor.position
            sums = anchor.sums._asdict()
            arrays |= {f"anchor/{k}": np.asarray(v) for k, v in sums.items() if v is not None}
        return arrays, plain | {
            "anchor_variance": anchor.variance if anchor else 0.0,
            "anchor_rows": anchor.num_rows if anchor else 0,
            "batch_rows": [self.batch_rows[PAST], self.batch_rows[CHUNK]],
            "noise_bias": self.noise_bias,
            "largest_noise": self.largest_noise,
        }

    @double_precision
    def restore(self, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Continue from what ``state`` gave."""
        super().restore(arrays, plain)
        tuning: Any = (arrays["mover/step_size"], arrays["mover/num_moves"])
        self.mover = self.mover.tuned(*tuning)
        self.anchor = None
        if "anchor/position" in arrays:
            saved: Any = [arrays.get(f"anchor/{name}") for name in Sums._fields]
            sums = Sums(*saved)
            variance, seen = float(plain["anchor_variance"]), int(plain["anchor_rows"])
            self.anchor = Anchor(arrays["anchor/position"], sums, variance, seen)
        past, chunk = plain["batch_rows"]
        self.batch_rows = {PAST: int(past), CHUNK: int(chunk)}
        self.noise_bias = float(plain["noise_bias"])
        self.largest_noise = float(plain["largest_noise"])


def _bias(stage: Stage, outcome: Annealed) -> float:
    r"""What the noise of mini-batches may add to log Z in one stage, in nats.

    Averaged over batches, moves sample the density times e^{s^2(theta) / 2}, s^2 the variance of
    its log. That changes the mean of a step's weights, of relative spread c, by at most about
    s^2 c / 2. A noisy chunk adds half of its variance to the log of the mean weight.
    """
    assert stage.past is not None
    spread = sum(float(s.increment * np.sqrt(np.mean(s.variance))) for s in outcome.steps)
    noise = stage.past.noise.relative + stage.past.floor.relative
    return 0.5 * noise * spread + 0.5 * sum(stage.chunk.noise)
