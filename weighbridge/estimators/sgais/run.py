"""A run of SGAIS; ``SGAISRun.absorb`` processes one chunk of rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.core.compilation import double_precision, in_double_precision
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_BATCH_NOISE, MAX_NOISE_BIAS
from weighbridge.core.types import PyTree
from weighbridge.data.reservoir import Window
from weighbridge.estimators.annealing.cloud import Cloud, centre
from weighbridge.estimators.annealing.labels import one_labelling
from weighbridge.estimators.annealing.loop import Annealed, PathSeed, anneal
from weighbridge.estimators.annealing.memory_needed import check_batch_memory
from weighbridge.estimators.annealing.moves.kernels import AdaptiveHMC, Repeat
from weighbridge.estimators.annealing.moves.mover import Mover
from weighbridge.estimators.annealing.moves.walks import REPEATED_MOVES
from weighbridge.estimators.annealing.reweighting import Settings, StepInfo
from weighbridge.estimators.annealing.step import anneal_step, patient_step
from weighbridge.estimators.batch_noise import FIRST_BATCH, NOISELESS
from weighbridge.estimators.sgais.anchor_state import anchor_state, restored_anchor
from weighbridge.estimators.sgais.anchored_terms import Terms
from weighbridge.estimators.sgais.anchoring import Anchor, anchor_error, set_anchor, sums_of_rows
from weighbridge.estimators.sgais.chunk_stage import LARGE_CHUNK, RESAMPLE_BELOW, ChunkRows, Stage
from weighbridge.estimators.sgais.forgetting import forget, memory
from weighbridge.estimators.sgais.judgement import judge, verify
from weighbridge.estimators.sgais.ledger import Ledger
from weighbridge.estimators.sgais.ledger_run import LedgerRun
from weighbridge.estimators.sgais.preparation import CHUNK, EXACT_ROWS, PAST, Preparation
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import FIRST_ORDER_ABOVE
from weighbridge.results.evidence_result import Evidence

if TYPE_CHECKING:
    from weighbridge.estimators.sgais.sgais import SGAIS

# Default for the most rows of a mini-batch. If even such a batch is useless, all rows are used, up
# to ALL_ROWS.
LARGEST_BATCH, ALL_ROWS = 8192, 1 << 17
# Moves continue until the correlation with their start is about this. More moves are not needed,
# since the particles move again at the next step.
DECORRELATED = 0.2


class SGAISRun(LedgerRun):
    """The state of a run: its ledger, the anchor with its sums, and the moves of particles."""

    @double_precision
    def __init__(self, method: SGAIS, model: Model, seed: int, first_island: int = 0) -> None:
        kernel, forgets = method.kernel, method.half_life is not None
        self.method = method
        heats = kernel is not None
        self.ledger = Ledger(method, model, seed, first_island, forgets=forgets, heats=heats)
        self.anchor: Anchor | None = None
        self.batch_rows = {PAST: FIRST_BATCH, CHUNK: FIRST_BATCH}
        self.noise_bias = 0.0
        self.largest_noise = 0.0
        self.labelled = False
        self.verified_rows = EXACT_ROWS
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

    # --- processing a chunk ----------------------------------------------------------------

    def absorb(self, values: PyTree, weight: np.ndarray) -> None:
        """Process one chunk; after an error the run is unchanged.

        The stage of a chunk is a path of densities, from the posterior before the chunk to the
        posterior with it. They are computed from all rows, or around an anchor with mini-batches.
        If there is a half-life, the weight of past rows is reduced first. The annealing loop then
        reweights the particles by the chunk, resamples them, and moves them. The ledger records
        the outcome and keeps the rows. If chunks are small, the path is compared with a bridge each
        time the number of rows has doubled.
        """
        ledger, chunk = self.ledger, ChunkRows(values, weight)
        if not ledger.num_chunks:
            check_batch_memory(self.method.num_islands, self.terms.capacity, values)
        with in_double_precision(), self.undoable():
            if chunk.num_observations > 0:
                with ledger.naming_rows(chunk):
                    self.terms = replace(self.terms, all_rows=self._all_rows(chunk))
                    preparation = self.preparation()
                    stage = preparation.stage(ledger.cloud, chunk)
                    stage = forget(self, stage, chunk)
                    stage, outcome = self._anneal(preparation, stage, chunk)
                ledger.accept(outcome, chunk)
                self._take(stage, outcome, chunk)
                ledger.record(outcome, chunk)
                ledger.add_point(outcome, chunk, *self.stated())
                ledger.settle()
            ledger.keep(chunk)
            verify(self, len(weight))

    def _all_rows(self, chunk: ChunkRows) -> int:
        """Up to this many rows all are used if even the largest batch is useless.

        It is 0 for a small chunk, or if the user chose a batch size or a kernel.
        """
        as_default = self.method.batch_size is None and self.method.kernel is None
        large = len(chunk.weight) >= LARGE_CHUNK * self.ledger.rows.num_represented
        return ALL_ROWS if large and as_default else 0

    def preparation(self) -> Preparation:
        """The state of the run from which the stage of the next chunk is made."""
        ledger = self.ledger
        return Preparation(
            model=ledger.model,
            seed=ledger.seed,
            first_island=ledger.first_island,
            num_chunks=ledger.num_chunks,
            terms=self.terms,
            rows=ledger.rows,
            anchor=self.anchor,
            batch_rows=self.batch_rows,
            labelled=self.labelled,
        )

    def _anneal(
        self, preparation: Preparation, stage: Stage, chunk: ChunkRows
    ) -> tuple[Stage, Annealed]:
        """Anneal the chunk in; return the stage with its last anchor, and the outcome."""
        method, kernel, ledger = self.method, self.method.kernel, self.ledger
        mover: Mover = self.mover
        if kernel is not None:
            before, seen = ledger.num_observations, ledger.seen_with(chunk)
            mover = Repeat(kernel, REPEATED_MOVES, rows_past=1.0 + before, rows_chunk=seen - before)

        def between(cloud: Cloud, step: StepInfo) -> Cloud:
            nonlocal stage
            cloud = stage.labels.follow(cloud, step)
            if not np.any(np.isfinite(np.asarray(step.log_evidence))):
                return cloud
            if kernel is not None or np.any(np.asarray(step.resampled)):
                stage = preparation.followed(stage, cloud, chunk, step)
            else:
                stage = stage.after(step, *stage.noise)
            return cloud

        outcome = anneal(
            PathSeed(ledger.seed, ledger.num_chunks, ledger.islands),
            stage.cloud,
            lambda _: stage.labels.within(stage.path),
            mover,
            Settings(method.target_ess, RESAMPLE_BELOW),
            take_step=anneal_step if kernel is not None else patient_step,
            between=between,
        )
        return stage, outcome

    def _take(self, stage: Stage, outcome: Annealed, chunk: ChunkRows) -> None:
        """Take over the tuned moves, the anchor and the batch sizes at the end of a stage."""
        rows = self.ledger.rows
        if isinstance(rows, Window):
            rows.fade(stage.fade)
        if self.method.kernel is None:
            self.mover = outcome.mover
        if stage.anchor is not None and stage.past is not None and stage.chunk_sums is not None:
            self.anchor = stage.anchor._replace(sums=stage.anchor.sums.plus(stage.chunk_sums))
            self.batch_rows[PAST] = min(stage.past.wanted, self.terms.largest)
            if stage.chunk.noise is not NOISELESS:
                self.batch_rows[CHUNK] = min(stage.chunk.wanted, self.terms.largest)
            self.largest_noise = max(self.largest_noise, stage.noise[0])
            # Noise of variance v in the chunk raises the log of the mean weight by v / 2.
            self.noise_bias += stage.heat + 0.5 * stage.noise[1]
        self.labelled = stage.labels.standing
        if self.anchor is None and rows.num_seen + len(chunk.weight) > rows.capacity:
            self.anchor = self._first_anchor(chunk)

    def _first_anchor(self, chunk: ChunkRows) -> Anchor:
        """Set the first anchor before the reservoir overflows, while all rows are available."""
        model, rows = self.ledger.model, self.ledger.rows
        cloud = one_labelling(model, self.ledger.cloud, agreed=self.labelled)[0]
        anchor = set_anchor(model, centre(cloud), rows, None)
        return anchor._replace(
            sums=anchor.sums.plus(sums_of_rows(model, anchor.position, *chunk)),
            num_rows=rows.num_seen + len(chunk.weight),
        )

    # --- results -----------------------------------------------------------------------------

    def stated(self) -> tuple[float, float]:
        """Log evidence of the path; its error includes errors of mini-batches and anchor."""
        log_evidence, std_error = self.ledger.stated()
        # A new anchor has the same error as mini-batches of the same reservoir had around the old
        # anchor. The errors of all anchors thus add up to the error of the last one at the end.
        of_anchor = anchor_error(self.anchor, self.ledger.cloud)
        return log_evidence, math.hypot(std_error, self.noise_bias, of_anchor)

    def flags(self) -> tuple[Status, ...]:
        """Reasons for caution, the gravest first."""
        ledger = self.ledger
        noisy = self.noise_bias > max(MAX_NOISE_BIAS, ledger.stated()[1])
        lost = ledger.repaired > 0
        # Moves on useless batches may lose mass; a bridge from their particles misses it too.
        noisy = noisy or (lost and self.largest_noise > MAX_BATCH_NOISE)
        found = {Status.PATH_LOST: lost, Status.NOISY: noisy}
        found |= ledger.cautions(self.stated()[1])
        return tuple(flag for flag, raised in found.items() if raised)

    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence so far, from the path or from the bridge."""
        ledger, name = self.ledger, self.method.name
        with in_double_precision():
            by_path = ledger.evidence(name, self.stated(), self.flags(), elapsed, extra)
            found = judge(self, by_path)
            own = {
                "noise_bias": self.noise_bias,
                "largest_noise": self.largest_noise,
                "batch_rows": self.batch_rows[PAST],
                "anchor_order": self._order(),
                **memory(self),
                "anchor_error": anchor_error(self.anchor, ledger.cloud),
                "path_repaired": ledger.repaired,
            }
            if found.diagnostics["answer"] == "path":
                own["dimension_bias"] = ledger.dimension_bias()
            return replace(found, diagnostics=found.diagnostics | own)

    def _order(self) -> int:
        """Order of the anchor's expansion: 0 without anchor, 1 without curvature, 2 with it."""
        if self.anchor is None:
            return 0
        return 1 if self.anchor.sums.curvature is None else 2

    # --- saved and resumed bit for bit ----------------------------------------------------------

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which ``restore`` continues."""
        arrays, plain = self.ledger.state()
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
        """Continue from a saved ``state``."""
        self.ledger.restore(arrays, plain)
        tuning: Any = (arrays["mover/step_size"], arrays["mover/num_moves"])
        self.mover = self.mover.tuned(*tuning)
        dimension = self.ledger.model.dimension
        self.anchor = restored_anchor(arrays, int(plain["anchor_rows"]), dimension)
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
