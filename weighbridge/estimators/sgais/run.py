"""A run of SGAIS under way."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import jax.numpy as jnp
import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.compilation import double_precision
from weighbridge.core.islands import Combined
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_BRIDGE_ERRORS, MAX_NOISE_BIAS
from weighbridge.core.types import PyTree
from weighbridge.data.reservoir import Reservoir, Window
from weighbridge.estimators.annealing.cloud import Cloud, centre, shares
from weighbridge.estimators.annealing.labels import Labels, one_labelling
from weighbridge.estimators.annealing.loop import Annealed, anneal
from weighbridge.estimators.annealing.moves.kernels import AdaptiveHMC, Repeat
from weighbridge.estimators.annealing.moves.mover import Mover
from weighbridge.estimators.annealing.moves.walks import REPEATED_MOVES
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings, StepInfo
from weighbridge.estimators.annealing.step import anneal_step, patient_step
from weighbridge.estimators.batch_noise import FIRST_BATCH, NOISELESS, TOO_NOISY
from weighbridge.estimators.bridging.bridge import Bridged, decide
from weighbridge.estimators.bridging.gaussians import bridge_to_gaussians
from weighbridge.estimators.second_look.audit import Audit
from weighbridge.estimators.second_look.streams import amended, look_again
from weighbridge.estimators.sgais.anchor_state import anchor_state, restored_anchor
from weighbridge.estimators.sgais.anchored_terms import Terms
from weighbridge.estimators.sgais.anchoring import Anchor, set_anchor, sums_of_rows
from weighbridge.estimators.sgais.bridge_rows import batch_error, every_row
from weighbridge.estimators.sgais.preparation import (
    BRIDGE_PROBES,
    CHUNK,
    EXACT_ROWS,
    FIRST_TURN,
    PAST,
    SECOND_TURN,
    Preparation,
)
from weighbridge.estimators.sgais.stage import ChunkRows, Stage
from weighbridge.estimators.sgais.streamed import Brought, StreamedRun
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import FIRST_ORDER_ABOVE, Anchored
from weighbridge.models.targets.term import Term
from weighbridge.results.evidence_result import Evidence

if TYPE_CHECKING:
    from weighbridge.estimators.sgais.sgais import SGAIS

# The most rows of a mini-batch, if nothing else is said; and of all rows, where it is of no use.
LARGEST_BATCH, ALL_ROWS = 8192, 1 << 17
# All rows are taken for a chunk of at least a share of them: over many small ones, as those of a
# stream, it would take ever longer.
LARGE_CHUNK = 0.25
# Particles are resampled and moved when the ESS is below this; before, weights are enough.
RESAMPLE_BELOW = 0.6
# A stream's path is held against a bridge when its rows have grown by this factor.
VERIFY_GROWTH = 2.0
# It goes on from there where it has lost mass, or where its own error (nats) says that it knows
# nothing; with the islands of which the bridge reaches this share.
USELESS = 5.0
REACHED = 0.1
# What the bridge's batches are allowed, as a share of what the moves' are.
BRIDGE_NOISE = 0.01
# Moves go on until the correlation with the start is about this: the next step moves them on.
DECORRELATED = 0.2

# Where the numbers of the stages in which a run forgets begin, far from those of chunks.
FORGETTING = 1 << 62


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
        self.verified_rows = EXACT_ROWS
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
        preparation, chunk_rows = self.preparation(), ChunkRows(values, weight)
        stage, fade = preparation.stage(self.cloud, chunk_rows), 1.0
        if self.method.half_life is not None and self.rows.num_seen:
            fade = 0.5 ** ((seen - self.num_observations) / self.method.half_life)
            stage = self._forget(stage, fade)
        stage, outcome = self._anneal_stage(preparation, stage, chunk_rows, seen)

        def accept() -> None:
            if isinstance(self.rows, Window):
                self.rows.fade(fade)
            self._take(stage, outcome)
            self.labelled = stage.labels.standing
            if self.anchor is None and self.num_rows + len(weight) > self.rows.capacity:
                self.anchor = self._first_anchor(chunk_rows)

        return Brought(outcome, accept)

    def preparation(self) -> Preparation:
        """What the stage of the next chunk is made of."""
        return Preparation(
            model=self.model,
            seed=self.seed,
            first_island=self.first_island,
            num_chunks=self.num_chunks,
            terms=self.terms,
            rows=self.rows,
            anchor=self.anchor,
            batch_rows=self.batch_rows,
            labelled=self.labelled,
        )

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

    def _first_anchor(self, chunk_rows: ChunkRows) -> Anchor:
        """With this chunk the reservoir overflows: the last moment to see all rows."""
        cloud = one_labelling(self.model, self.cloud, agreed=self.labelled)[0]
        anchor = set_anchor(self.model, centre(cloud), self.rows, None)
        return anchor._replace(
            sums=anchor.sums.plus(sums_of_rows(self.model, anchor.position, *chunk_rows)),
            num_rows=self.num_rows + len(chunk_rows.weight),
        )

    def _anneal_stage(
        self, preparation: Preparation, stage: Stage, chunk_rows: ChunkRows, seen: float
    ) -> tuple[Stage, Annealed]:
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
                stage = preparation.followed(stage, cloud, chunk_rows, step)
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

    def bridge(self, turn: int = FIRST_TURN) -> Bridged | None:
        """The evidence by a bridge between the particles and Gaussians; None if there is none.

        It is on all rows where they are at hand and not too many. Otherwise it is on mini-batches,
        whose noise is part of its error, around an anchor that is set at the particles' centre
        where rows can be reached. There is none on mini-batches that are of no use, and none of a
        run that forgets: its evidence is no integral, but what the chunks add up to. At another
        ``turn`` it is made of other draws.
        """
        if self.method.half_life is not None:
            return None
        interrupts.check()
        seen = self.rows.num_seen
        cloud, cell = one_labelling(self.model, self.cloud, agreed=self.labelled)
        variance = 0.0
        term: Term | None = None
        # On the way of a stream the programs are those that are there already.
        if self.anchor is not None and turn == FIRST_TURN:
            term = every_row(self.model, self.rows)
        if self.anchor is None:
            term = self.terms.exact(*self.rows.gather(np.arange(seen)))
        elif term is None:
            anchor = self.anchor
            if self.rows.is_complete:
                anchor = set_anchor(self.model, centre(cloud), self.rows, None)
            allowed = BRIDGE_NOISE * self.method.noise
            preparation = self.preparation()
            estimate = preparation.of_all_rows(anchor, cloud, allowed, turn)
            if not sum(estimate.noise) <= TOO_NOISY:
                return None
            probes = preparation.probes(cloud, BRIDGE_PROBES, turn)
            of_batches = batch_error(self.model, self.rows, estimate, probes)
            variance = self._anchor_error(anchor, cloud) ** 2 + sum(estimate.floor) + of_batches**2
            term = estimate.term
        cross = partial(
            bridge_to_gaussians,
            self.seed,
            self.first_island,
            Path(self.model, (), term),
            differentiable=True,
            adjust=cell,
            stage=self.num_chunks,
        )
        crossing = cross(cloud, turn=2 * turn)
        if crossing is not None and math.isnan(crossing.std_error) and len(self.islands) >= 4:
            # One island has all the weight, by a path that may have lost it: let all count alike.
            log_weight = np.asarray(cloud.log_weight)
            log_total = np.logaddexp.reduce(log_weight, axis=1, keepdims=True)
            alike = log_weight - np.where(np.isfinite(log_total), log_total, 0.0)
            alike_cloud = cloud._replace(log_weight=jnp.asarray(alike))
            crossing = cross(alike_cloud, turn=2 * turn + 1)
        if crossing is None:
            return None
        return crossing._replace(std_error=math.hypot(crossing.std_error, math.sqrt(variance)))

    def _verify(self, num_new: int) -> None:
        """Put a stream's path right where a bridge shows that it has lost mass, or itself.

        A mode that takes over from another one, in which all particles are, takes their moves
        along, but not their weights. Where rows come in large chunks the result's bridge is enough.
        """
        rows = self.num_rows
        is_due = rows >= VERIFY_GROWTH * self.verified_rows
        if not is_due or num_new >= LARGE_CHUNK * rows or not self.path:
            return
        self.verified_rows = rows
        log_evidence, std_error = self._combine()
        # What the result will be held against is another bridge.
        crossing = None if math.isnan(std_error) else self.bridge(SECOND_TURN)
        if crossing is None or crossing.reached is None:
            return
        is_answer, caution = crossing.judge(log_evidence, std_error)
        if not is_answer or (caution is None and std_error < USELESS):
            return
        # Islands that are elsewhere would go on with weights that are not theirs.
        sound = (crossing.reached > REACHED) & np.isfinite(self.log_evidences)
        if sound.sum() < max(4, len(sound) / 2):
            return
        gain, chance = crossing.log_evidence - log_evidence, super()._combine()[1]
        if gain > MAX_BRIDGE_ERRORS * math.hypot(crossing.std_error, chance):
            self.repaired += gain
        self.noise_bias = 0.0
        self._go_on_from(crossing.log_evidence, crossing.std_error, sound)

    def _cautions(self) -> dict[Status, bool]:
        noisy = self.noise_bias > max(MAX_NOISE_BIAS, super()._combine()[1])
        lost = self.repaired > 0
        # What moves on batches of no use may have lost, a bridge from there has lost too.
        noisy = noisy or (lost and self.largest_noise > TOO_NOISY)
        return {Status.PATH_LOST: lost, Status.NOISY: noisy} | super()._cautions()

    @double_precision
    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence so far, by the path or by the bridge."""
        found = super().result(elapsed, extra)
        crossing = second = None
        cloud, path_flags = self.cloud, found.flags
        try:
            crossing = self.bridge()
            second, cloud = self._second_look()
        except interrupts.Interrupted:
            path_flags = (Status.INTERRUPTED, *path_flags)
        decision = decide(crossing, found.log_evidence, found.std_error, path_flags)
        run = (self.model, cloud, self.log_evidences)
        found = amended(found, decision, second, run, self._combine_parts)
        flags = tuple(dict.fromkeys(found.flags))
        if self.largest_noise > TOO_NOISY and Status.NOISY in self.flags():
            # Moves that followed nothing may have lost modes, and so would a bridge from there.
            flags = tuple(dict.fromkeys((Status.NOISY, *flags)))
        return replace(
            found,
            flags=flags,
            diagnostics=found.diagnostics
            | {
                "noise_bias": self.noise_bias,
                "largest_noise": self.largest_noise,
                "batch_rows": self.batch_rows[PAST],
                "anchor_order": self._order(),
                **self._memory(),
                "anchor_error": self._anchor_error(self.anchor, self.cloud),
                "path_repaired": self.repaired,
            },
        )

    def _second_look(self) -> tuple[Audit | None, Cloud]:
        """Look for a mode that path and bridge have missed, and the particles it is held against.

        It is looked for while all rows are used: an anchor is where the particles are, and shows
        nothing of other places.
        """
        forgets, plain = self.method.half_life is not None, self.method.kernel is None
        if not self.path or self.anchor is not None or forgets or not plain:
            return None, self.cloud
        labels = Labels(self.model, standing=self.labelled)
        cloud = labels.follow(self.cloud)
        term = self.terms.exact(*self.rows.gather(np.arange(self.rows.num_seen)))
        second = look_again(
            self.seed,
            self.islands,
            cloud,
            self.mover,
            labels.within(Path(self.model, (term.emptied(),), term)),
            take_step=patient_step,
            density=Path(self.model, (), term),
        )
        return second, cloud

    def _combine_parts(self, islands: np.ndarray) -> Combined:
        """Of islands' evidence, or a part of it, with the error made before they were settled."""
        combined = self.method.combine(islands)
        error = math.hypot(combined.std_error, math.sqrt(self.settled_variance))
        return combined._replace(std_error=error)

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
        arrays |= anchor_state(self.anchor)
        return arrays, plain | {
            "anchor_rows": self.anchor.num_rows if self.anchor else 0,
            "batch_rows": [self.batch_rows[PAST], self.batch_rows[CHUNK]],
            "noise_bias": self.noise_bias,
            "largest_noise": self.largest_noise,
            "labelled": int(self.labelled),
            "verified_rows": self.verified_rows,
        }

    @double_precision
    def restore(self, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Continue from what ``state`` gave."""
        super().restore(arrays, plain)
        tuning: Any = (arrays["mover/step_size"], arrays["mover/num_moves"])
        self.mover = self.mover.tuned(*tuning)
        self.anchor = restored_anchor(arrays, int(plain["anchor_rows"]), self.model.dimension)
        past, chunk = plain["batch_rows"]
        self.batch_rows = {PAST: int(past), CHUNK: int(chunk)}
        if min(self.batch_rows.values()) < 1:
            raise ValueError(f"mini-batches of {self.batch_rows} rows")
        self.noise_bias = float(plain["noise_bias"])
        self.largest_noise = float(plain["largest_noise"])
        self.labelled = bool(plain["labelled"])
        self.verified_rows = int(plain["verified_rows"])
        if self.verified_rows < EXACT_ROWS:
            raise ValueError(f"a path last verified at {self.verified_rows} rows")
