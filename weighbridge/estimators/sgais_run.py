"""A run of SGAIS under way."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.anchor import FIRST_ORDER_ABOVE, Anchored, Sums
from weighbridge.base import PyTree, Status
from weighbridge.data import split
from weighbridge.estimators.anchored_terms import Estimate, Terms
from weighbridge.estimators.anchoring import (
    NUM_REPLICATES,
    SUM_ROWS,
    Anchor,
    set_anchor,
    sums_of,
    total,
)
from weighbridge.estimators.anneal import Annealed, anneal
from weighbridge.estimators.annealing_step import anneal_step
from weighbridge.estimators.batch_noise import FIRST_BATCH, NOISELESS, NUM_PROBES, TOO_NOISY
from weighbridge.estimators.bridge import Bridged, decide
from weighbridge.estimators.cloud import Cloud, shares
from weighbridge.estimators.crossing import bridge_to_gaussians
from weighbridge.estimators.labels import Labels, one_labelling
from weighbridge.estimators.mover import Mover
from weighbridge.estimators.moves import AdaptiveHMC, Repeat
from weighbridge.estimators.path import Path
from weighbridge.estimators.reweighting import Settings, StepInfo
from weighbridge.estimators.streamed import BATCH_STREAM, Brought, StreamedRun
from weighbridge.estimators.walks import REPEATED_MOVES
from weighbridge.model import Model
from weighbridge.numerics import double_precision
from weighbridge.reservoir import Reservoir, Window
from weighbridge.result import Evidence

if TYPE_CHECKING:
    from weighbridge.estimators.sgais import SGAIS

# Up to so many rows all of them are used, without a question.
EXACT_ROWS = 1024
# The most rows of a mini-batch, if nothing else is said; and of all rows, where it is of no use.
LARGEST_BATCH, ALL_ROWS = 8192, 1 << 17
# All rows are taken for a chunk of at least a share of them: over many small ones, as those of a
# stream, it would take ever longer.
LARGE_CHUNK = 0.25
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
DECORRELATED = 0.2

# Where the numbers of the stages in which a run forgets begin, far from those of chunks.
FORGETTING = 1 << 62

# Particles move only when they were resampled.
patient_step = partial(anneal_step, patient=True)


class Block(NamedTuple):
    """The rows of a chunk, and how often each counts."""

    values: PyTree
    weight: np.ndarray

    def gather(self, chosen: np.ndarray) -> tuple[PyTree, np.ndarray]:
        """Some of them, by their numbers."""
        values, weight = jax.tree_util.tree_map(
            lambda leaf: np.take(leaf, chosen, axis=0), tuple(self)
        )
        return values, weight


class Stage(NamedTuple):
    """One chunk, ready to be brought in.

    Attributes:
        path: from all before to all with the chunk.
        cloud: the particles, with one labelling.
        anchor: with the sums of all rows before; None while all rows are used.
        chunk_sums: those of the chunk.
        past: how the rows before are estimated; None while all are used.
        chunk: how the chunk is.
        labels: what labelling the particles have, if any.
        fade: what the rows before count.
        noise: the largest so far of the past, and of the chunk.
        heat: what the noise of the past may have added to log Z so far, in nats.
    """

    path: Path
    cloud: Cloud
    anchor: Anchor | None
    chunk_sums: Sums | None
    past: Estimate | None
    chunk: Estimate
    labels: Labels
    fade: float = 1.0
    noise: tuple[float, float] = (0.0, 0.0)
    heat: float = 0.0

    def after(self, step: StepInfo, past: float, chunk: float) -> Stage:
        r"""With what a step has made of its noise.

        Averaged over batches, moves sample the density times e^{s^2(theta) / 2}, s^2 the variance
        of its log. That changes the mean of a step's weights, of relative spread c, by at most
        about s^2 c / 2.
        """
        spread = float(np.max(step.increment) * np.sqrt(np.mean(step.variance)))
        noise = (max(self.noise[0], past), max(self.noise[1], chunk))
        return self._replace(noise=noise, heat=self.heat + 0.5 * past * spread)

    def faded(self, fade: float) -> Stage:
        """Where all rows before count less, if they do."""
        if fade == 1.0:
            return self
        past = tuple(cast(Anchored, term).faded(fade) for term in self.path.past)
        anchor = self.anchor
        if anchor is not None:
            anchor = anchor._replace(sums=anchor.sums.times(fade))
        return self._replace(path=replace(self.path, past=past), anchor=anchor, fade=fade)


class SGAISRun(StreamedRun):
    """A run under way: particles, the anchor with its sums, and rows for mini-batches."""

    @double_precision
    def __init__(self, method: SGAIS, model: Model, seed: int, first_island: int = 0) -> None:
        self.method = method  # before the rows are kept, which it decides about
        super().__init__(method, model, seed, first_island)
        self.anchor: Anchor | None = None
        self.batch_rows = {PAST: FIRST_BATCH, CHUNK: FIRST_BATCH}
        self.noise_bias = 0.0
        self.largest_noise = 0.0
        self.labelled = False
        kernel = method.kernel
        num_batches = REPEATED_MOVES if kernel is not None and kernel.uses_batches else 1
        self.terms = Terms(
            model,
            method.num_islands,
            num_batches=num_batches,
            largest=max((method.batch_size or LARGEST_BATCH) // num_batches, 1),
            exact_rows=EXACT_ROWS,
            noise=method.noise,
            guided=kernel is None,
        )
        self.mover = AdaptiveHMC(
            decorrelated=DECORRELATED,
            dense=model.dimension <= FIRST_ORDER_ABOVE,
        )

    # --- bringing in a chunk ---------------------------------------------------------------

    def _keep(self) -> Reservoir | Window:
        return super()._keep() if self.method.half_life is None else Window()

    def _bring_in(self, values: PyTree, weight: np.ndarray, seen: float) -> Brought:
        method, past = self.method, self.rows.num_represented
        large = len(weight) >= LARGE_CHUNK * past
        as_default = method.batch_size is None and method.kernel is None
        self.terms = replace(self.terms, all_rows=ALL_ROWS if large and as_default else 0)
        stage, fade = self._prepare(values, weight), 1.0
        if self.method.half_life is not None and self.rows.num_seen:
            fade = 0.5 ** ((seen - self.num_observations) / self.method.half_life)
            stage = self._forget(stage, fade)
        stage, outcome = self._anneal_stage(stage, Block(values, weight), seen)

        def accept() -> None:
            if isinstance(self.rows, Window):
                self.rows.fade(fade)
            self._take(stage, outcome)
            self.labelled = stage.labels.standing
            if self.anchor is None and self.num_rows + len(weight) > self.rows.capacity:
                self.anchor = self._first_anchor(values, weight)

        return Brought(outcome, accept)

    def _forget(self, stage: Stage, fade: float) -> Stage:
        r"""Let all rows before count less, and take the particles there.

        .. math:: p(\theta) L(\theta) \to p(\theta) L(\theta)^a

        The evidence stays what it was: only what chunks add to it is counted.
        """
        past = cast(Anchored, stage.path.past[0])
        nothing = stage.chunk.term.emptied()
        # A Gaussian of D dimensions is raised to a power in steps that keep most of its ESS.
        step = 1.0 - 1.0 / math.sqrt(max(self.model.dimension, 2))
        num_steps = max(math.ceil(math.log(fade) / math.log(step)), 1)
        found = anneal(
            self.seed,
            FORGETTING + self.num_chunks,
            self.islands,
            stage.cloud,
            lambda _: stage.labels.within(Path(self.model, (nothing,), past)),
            self.mover,
            Settings(self.method.target_ess, RESAMPLE_BELOW),
            schedule=fade ** (np.arange(1, num_steps + 1) / num_steps),
            start=1.0,
            take_step=patient_step,
            between=stage.labels.follow,
        )
        change = found.steps[-1].log_evidence - self.log_evidences
        cloud = found.cloud._replace(
            log_weight=found.cloud.log_weight - jnp.asarray(change)[:, None]
        )
        return stage.faded(fade)._replace(cloud=cloud)

    def _prepare(self, values: PyTree, weight: np.ndarray) -> Stage:
        """The path of a chunk, with batches large enough."""
        new, past = len(weight), self.rows.num_represented
        exact = not past or (past + new <= EXACT_ROWS and self.anchor is None)
        labels = Labels(self.model, standing=self.labelled)
        # One anchor serves one labelling.
        cloud = labels.follow(self.cloud, must=not exact)
        if exact:
            chunk = self.terms.without_anchor(values, weight)
            path = Path(self.model, (self._before(values, weight),), chunk.term)
            return Stage(path, cloud, None, None, None, chunk, labels)
        probes = self._probes(cloud)
        anchor, before = self._estimated_past(cloud, probes)
        return self._around(anchor, before, cloud, labels, Block(values, weight), probes)

    def _around(
        self,
        anchor: Anchor,
        past: Estimate,
        cloud: Cloud,
        labels: Labels,
        block: Block,
        probes: np.ndarray,
    ) -> Stage:
        """The stage of a past around an anchor, with what the anchor makes of the chunk."""
        sums = self._chunk_sums(anchor.position, *block)
        new = len(block.weight)
        if new <= EXACT_ROWS:
            source, generators = (block.gather, new), self._generators(CHUNK)
            chunk = self.terms.whole(generators, anchor.position, sums, source, probes)
        else:
            whole = (block.gather, new, new)
            chunk = self._estimate(CHUNK, anchor.position, sums, whole, probes)
        path = Path(self.model, (past.term,), chunk.term)
        noise = (past.noise.relative + past.floor.relative, sum(chunk.noise))
        return Stage(path, cloud, anchor, sums, past, chunk, labels, noise=noise)

    def _followed(self, stage: Stage, cloud: Cloud, block: Block, step: StepInfo) -> Stage:
        """The stage after a step, with its anchor among the particles, where they have left it.

        A chunk that says other things than all before takes them far away, and mini-batches that
        were quiet around the anchor are not there.
        """
        anchor, past = stage.anchor, stage.past
        if anchor is None or past is None:
            return stage
        probes = self._probes(cloud)
        now, past_left = self.terms.watch(past, probes, absolute=False)
        chunk_now, chunk_left = self.terms.watch(stage.chunk, probes, absolute=True)
        stage = stage.after(step, now.relative + past.floor.relative, sum(chunk_now))
        if float(step.power) == 1.0 or not (past_left or chunk_left):
            return stage
        anchor = set_anchor(self.model, self._centre(cloud), self.rows, self.anchor or anchor)
        past = self._past_at(anchor, probes, all_rows=self.terms.all_rows)
        found = self._around(anchor, past, stage.cloud, stage.labels, block, probes)
        noise = (max(stage.noise[0], found.noise[0]), max(stage.noise[1], found.noise[1]))
        return found.faded(stage.fade)._replace(noise=noise, heat=stage.heat)

    def _estimated_past(self, cloud: Cloud, probes: np.ndarray) -> tuple[Anchor, Estimate]:
        """The anchor, moved to the particles' centre if it is time, and what it makes of the past.

        It is time when rows have doubled, or when batches are too noisy without.
        """
        anchor, rows = self.anchor, self.rows
        while True:
            fresh = anchor is None or rows.num_seen >= ANCHOR_GROWTH * anchor.num_rows
            if anchor is None or fresh:
                anchor = set_anchor(self.model, self._centre(cloud), rows, anchor)
            newest = fresh or anchor.num_rows == rows.num_seen
            # All rows are for where no anchor helps: a new one is tried before.
            before = self._past_at(anchor, probes, all_rows=self.terms.all_rows if newest else 0)
            if newest or before.noise.relative <= self.method.noise:
                return anchor, before
            anchor = set_anchor(self.model, self._centre(cloud), rows, anchor)

    def _past_at(self, anchor: Anchor, probes: np.ndarray, *, all_rows: int) -> Estimate:
        """All rows before, around an anchor; up to so many themselves, where batches are no use."""
        source = (self.rows.gather, self.rows.num_kept, self.rows.num_represented)
        terms = replace(self.terms, all_rows=all_rows)
        return self._estimate(PAST, anchor.position, anchor.sums, source, probes, terms)

    def _before(self, values: PyTree, weight: np.ndarray) -> Anchored:
        """All rows before; none of the first chunk's own, if there are none."""
        if self.rows.num_seen:
            return self.terms.exact(*self.rows.gather(np.arange(self.rows.num_kept)))
        return self.terms.exact(*next(split((values, weight), 1))).emptied()

    def _estimate(
        self,
        who: int,
        anchor: np.ndarray,
        sums: Sums,
        source: Any,
        probes: np.ndarray,
        terms: Terms | None = None,
    ) -> Estimate:
        return (terms or self.terms).estimated(
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

    def _first_anchor(self, values: PyTree, weight: np.ndarray) -> Anchor:
        """With this chunk the reservoir overflows: the last moment to see all rows."""
        cloud = one_labelling(self.model, self.cloud, agreed=self.labelled)[0]
        anchor = set_anchor(self.model, self._centre(cloud), self.rows, None)
        return anchor._replace(
            sums=anchor.sums.plus(self._chunk_sums(anchor.position, values, weight)),
            num_rows=self.num_rows + len(weight),
        )

    def _chunk_sums(self, position: np.ndarray, values: PyTree, weight: np.ndarray) -> Sums:
        blocks = split((values, weight), SUM_ROWS)
        return total(self.model.dimension, sums_of(self.model, position, blocks))

    def _centre(self, cloud: Cloud) -> np.ndarray:
        share = shares(cloud)
        return np.asarray(share @ np.asarray(cloud.position).reshape(len(share), -1))

    def _probes(self, cloud: Cloud) -> np.ndarray:
        """Some particles, by their weights."""
        share = shares(cloud)
        generator = self._generators(PROBES)[0]
        chosen = generator.choice(len(share), NUM_PROBES, p=share)
        return np.asarray(cloud.position).reshape(len(share), -1)[chosen]

    def _anneal_stage(self, stage: Stage, block: Block, seen: float) -> tuple[Stage, Annealed]:
        """Bring the chunk in; the stage comes back with the anchor that it ended with."""
        method, kernel = self.method, self.method.kernel
        mover: Mover = self.mover
        if kernel is not None:
            past, chunk = 1.0 + self.num_observations, seen - self.num_observations
            mover = Repeat(kernel, REPEATED_MOVES, rows_past=past, rows_chunk=chunk)

        def between(cloud: Cloud, step: StepInfo) -> Cloud:
            nonlocal stage
            cloud = stage.labels.follow(cloud, step)
            if not np.any(np.isfinite(step.log_evidence)):
                return cloud
            if kernel is not None or np.any(step.resampled):
                stage = self._followed(stage, cloud, block, step)
            else:
                stage = stage.after(step, *stage.noise)
            return cloud

        outcome = anneal(
            self.seed,
            self.num_chunks,
            self.islands,
            stage.cloud,
            lambda _: stage.labels.within(stage.path),
            mover,
            Settings(method.target_ess, RESAMPLE_BELOW),
            take_step=anneal_step if kernel is not None else patient_step,
            between=between,
        )
        return stage, outcome

    def _take(self, stage: Stage, outcome: Annealed) -> None:
        """Go on from the end of a stage."""
        if self.method.kernel is None:
            self.mover = outcome.mover
        if stage.anchor is None or stage.past is None or stage.chunk_sums is None:
            return
        self.anchor = stage.anchor._replace(sums=stage.anchor.sums.plus(stage.chunk_sums))
        self.batch_rows[PAST] = min(stage.past.wanted, self.terms.largest)
        if stage.chunk.noise is not NOISELESS:
            self.batch_rows[CHUNK] = min(stage.chunk.wanted, self.terms.largest)
        self.largest_noise = max(self.largest_noise, stage.noise[0])
        # A noisy chunk adds half of its variance to the log of the mean weight.
        self.noise_bias += stage.heat + 0.5 * stage.noise[1]

    # --- what it comes to --------------------------------------------------------------------

    def _knows_heat(self) -> bool:
        return self.method.kernel is None or super()._knows_heat()

    def _combine(self) -> tuple[float, float]:
        log_evidence, std_error = super()._combine()
        # An anchor set anew errs by what mini-batches of the same reservoir did around the old one:
        # what all of them add to the path is what the last one adds to its end.
        of_anchor = self._anchor_error(self.anchor, self.cloud)
        return log_evidence, math.hypot(std_error, self.noise_bias, of_anchor)

    @staticmethod
    def _anchor_error(anchor: Anchor | None, cloud: Cloud) -> float:
        """What errors of an anchor's sums may add to the log evidence at the particles."""
        if anchor is None:
            return 0.0
        share = shares(cloud)
        return anchor.std_error(np.asarray(cloud.position).reshape(len(share), -1), share)

    def bridge(self) -> Bridged | None:
        """The evidence by a bridge between the particles and Gaussians; None if there is none.

        Where rows can be reached the anchor is set at the particles' centre for it. There is none
        on mini-batches that are of no use, and none of a run that forgets: its evidence is no
        integral, but what the chunks add up to.
        """
        if self.method.half_life is not None:
            return None
        seen = self.rows.num_seen
        cloud, cell = one_labelling(self.model, self.cloud, agreed=self.labelled)
        variance = 0.0
        if self.anchor is None:
            term = self.terms.exact(*self.rows.gather(np.arange(seen)))
        else:
            anchor = self.anchor
            if self.rows.is_complete:
                anchor = set_anchor(self.model, self._centre(cloud), self.rows, None)
            estimate = self._for_bridge(anchor, cloud)
            if not sum(estimate.noise) <= TOO_NOISY:
                return None
            variance = self._anchor_error(anchor, cloud) ** 2 + sum(estimate.floor)
            term = estimate.term
        path = Path(self.model, (), term)
        crossing = bridge_to_gaussians(
            self.seed, self.first_island, path, cloud, differentiable=True, adjust=cell
        )
        if crossing is None:
            return None
        return crossing._replace(std_error=math.hypot(crossing.std_error, math.sqrt(variance)))

    def _for_bridge(self, anchor: Anchor, cloud: Cloud) -> Estimate:
        """All rows, with as little noise as batches allow."""
        strict = replace(self.terms, noise=BRIDGE_NOISE * self.method.noise, all_rows=0)
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

    def _cautions(self) -> dict[Status, bool]:
        noisy = self.noise_bias > max(NOISE_MATTERS, super()._combine()[1])
        return {Status.NOISY: noisy} | super()._cautions()

    @double_precision
    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence so far, by the path or by the bridge."""
        found = super().result(elapsed, extra)
        decision = decide(self.bridge(), found.log_evidence, found.std_error, found.flags)
        flags = decision.flags
        if self.largest_noise > TOO_NOISY and Status.NOISY in found.flags:
            # Moves that followed nothing may have lost modes, and so would a bridge from there.
            flags = tuple(dict.fromkeys((Status.NOISY, *flags)))
        return replace(
            found,
            log_evidence=decision.log_evidence,
            std_error=decision.std_error,
            flags=flags,
            diagnostics=found.diagnostics
            | decision.diagnostics
            | {
                "noise_bias": self.noise_bias,
                "largest_noise": self.largest_noise,
                "batch_rows": self.batch_rows[PAST],
                "anchor_order": self._order(),
                **self._memory(),
                "anchor_error": self._anchor_error(self.anchor, self.cloud),
            },
        )

    def _memory(self) -> dict[str, float]:
        """What a run that forgets still remembers."""
        if self.method.half_life is None:
            return {}
        weight = self.rows.gather(np.arange(self.rows.num_kept))[1]
        return {"half_life": self.method.half_life, "rows_remembered": float(weight.sum())}

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
            errors = {} if anchor.errors is None else anchor.errors._asdict()
            arrays |= {f"error/{k}": np.asarray(v) for k, v in errors.items() if v is not None}
        return arrays, plain | {
            "anchor_rows": anchor.num_rows if anchor else 0,
            "batch_rows": [self.batch_rows[PAST], self.batch_rows[CHUNK]],
            "noise_bias": self.noise_bias,
            "largest_noise": self.largest_noise,
            "labelled": int(self.labelled),
        }

    @double_precision
    def restore(self, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Continue from what ``state`` gave."""
        super().restore(arrays, plain)
        tuning: Any = (arrays["mover/step_size"], arrays["mover/num_moves"])
        self.mover = self.mover.tuned(*tuning)
        self.anchor = None
        if ("anchor/position" in arrays) != (int(plain["anchor_rows"]) > 0):
            raise ValueError("the anchor is missing, or its rows are")
        if "anchor/position" in arrays:
            zero = Sums.zero(self.model.dimension)
            saved: Any = [arrays.get(f"anchor/{name}") for name in Sums._fields]
            sums = Sums(*saved)
            _require_like(zero, sums, "the anchor")
            _require_like(zero.gradient, arrays["anchor/position"], "the anchor's position")
            errors = None
            if "error/value" in arrays:
                found: Any = [arrays.get(f"error/{name}") for name in Sums._fields]
                errors = Sums(*found)
                many = jax.tree_util.tree_map(
                    lambda leaf: np.zeros((NUM_REPLICATES, *leaf.shape)), zero
                )
                _require_like(many, errors, "what the anchor may be off by")
                if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree_util.tree_leaves(errors)):
                    raise ValueError("what the anchor may be off by is not finite")
            seen = int(plain["anchor_rows"])
            self.anchor = Anchor(arrays["anchor/position"], sums, seen, errors)
        past, chunk = plain["batch_rows"]
        self.batch_rows = {PAST: int(past), CHUNK: int(chunk)}
        if min(self.batch_rows.values()) < 1:
            raise ValueError(f"mini-batches of {self.batch_rows} rows")
        self.noise_bias = float(plain["noise_bias"])
        self.largest_noise = float(plain["largest_noise"])
        self.labelled = bool(plain["labelled"])


def _require_like(wanted: Any, found: Any, what: str) -> None:
    """Refuse saved arrays of other shapes or types than they must have."""

    def layout(leaf: Any) -> tuple[tuple[int, ...], str]:
        return np.shape(leaf), str(np.asarray(leaf).dtype)

    shapes = [jax.tree_util.tree_map(layout, leaves) for leaves in (found, wanted)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{what} has the shapes and types {shapes[0]}, not {shapes[1]}")
