"""What a user should know before trusting a result."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from weighbridge.core.pickling import member_by_name


class Status(enum.Enum):
    """What a user should know before trusting a result; each member carries its remedy.

    >>> Status.DIVERGED.remedy.startswith("Use a smaller step size")
    True
    """

    OK = ("ok", "nothing unusual was seen", "None needed.")
    INTERRUPTED = (
        "interrupted",
        "this is what there was when the run was stopped: fewer rows (num_observations), a path "
        "that is not at its end (diagnostics['power_reached'] below 1: not the evidence, and "
        "without an error), or an answer that was not checked",
        "Run it again, and let it end.",
    )
    ERROR_UNKNOWN = (
        "error unknown",
        "the error of the log evidence cannot be stated",
        "Run four or more islands (num_islands=16), and not SGAIS.published() or "
        "SequentialSGMCMC, whose bias no spread over islands shows.",
    )
    ROUNDED = (
        "lost in rounding",
        "the log evidence is so large that double precision rounds it by more than a hundredth of "
        "a nat: what smaller terms tell is lost, and models cannot be compared by it beyond the "
        "standard error, which has the rounding in it",
        "Look for rows or columns with huge values (diagnostics['largest_value'] names one): "
        "correct them, leave them out, or rescale the column (subtract its mean and divide by its "
        "standard deviation).",
    )
    TOO_FEW_MOVES = (
        "moves forget too little",
        "particles still knew where they had started after the moves of most steps, as they do "
        "where there are many more parameters than the moves can follow: islands may then share "
        "a bias, and the log evidence is likely to be too low by more than its error",
        "Use more moves (moves=wb.AdaptiveHMC(decorrelated=0.01, max_moves=50)), more particles "
        "(num_particles), or a model with fewer parameters.",
    )
    HEATED = (
        "heated",
        "mini-batch noise heats the particles, and the bias this causes in the log evidence "
        "exceeds its spread",
        "Use a smaller step size in the kernel or a larger batch_size; the estimated bias is "
        "part of the standard error.",
    )
    MASS_MISSED = (
        "mass missed by the path",
        "a mode holds more evidence than the path found there; the answer and the posterior are by "
        "importance sampling in that mode, and by the path elsewhere",
        "Look at diagnostics['path_log_evidence'] and ['quenched_log_evidence']; other such modes "
        "may exist. Check whether such a mode is meant: a prior that contradicts the data makes "
        "one, and so does a narrow peak of the likelihood. Tighten the prior around what is meant.",
    )
    FLAT = (
        "flat likelihood",
        "the log-likelihood was the same at every prior draw: either the data say nothing about "
        "the parameters, and the answer is exact, or all that they say is in a region that no "
        "draw hit, and the log evidence is too low by an amount that no error shows",
        "Check that the log-likelihood uses its parameters. If it does, use many more particles "
        "(num_particles), or a prior that is closer to where the likelihood is not flat.",
    )
    DRIFTING = (
        "still drifting",
        "particles at the end of the path went on drifting when moved on: they have lagged behind, "
        "and the log evidence is likely to be too low",
        "Use more moves (moves=wb.AdaptiveHMC(decorrelated=0.01, max_moves=50)), "
        'moves="slice", a higher target_ess, '
        "or parameters with less varying scales (a non-centred form).",
    )
    PATH_LOST = (
        "path lost mass",
        "a bridge, at the end or on the way of a stream, finds clearly more evidence than the path "
        "did; the answer is the bridge's, or goes on from there, and the path's error is not to be "
        "believed",
        "Use more particles, a smaller noise, or smaller chunks, and compare diagnostics"
        "['path_log_evidence'] with ['bridge_log_evidence']; ['path_repaired'] is what a stream's "
        "path was put right by.",
    )
    BRIDGE_SHORT = (
        "bridge falls short",
        "the path finds clearly more evidence than the bridge at the end, whose Gaussian does not "
        "reach all modes; the answer is the path's",
        "Compare diagnostics['path_log_evidence'] with ['bridge_log_evidence']; declare components "
        "that may be permuted as exchangeable, and use more particles.",
    )
    NOISY = (
        "mini-batches too noisy",
        "the log density varies more over mini-batches than is allowed, and the bias this may "
        "cause in the path's log evidence, which is in the path's error, exceeds its spread; of an "
        "answer by the bridge the noise of its own batches is in the error, but moves that "
        "followed noise may have lost modes for both",
        "Raise batch_size: from the number of rows on, all of them are used where batches are too "
        "noisy, which takes long (by default, up to 131,072 rows in memory). Or parametrise the "
        "model so that its posterior is nearer to a Gaussian.",
    )
    PARTICLES_DROPPED = (
        "particles dropped",
        "some particles had log-likelihood -inf, and too few were left to reach the target ESS",
        "Use more particles, or a prior that gives every observation a positive density.",
    )
    DIVERGED = (
        "diverged",
        "some moves left the region where the density is finite and were undone",
        "Use a smaller step size in the kernel, or rescale the columns of the data.",
    )
    STALLED = (
        "annealing stalled",
        "the annealing schedule did not reach the end within its step limit",
        "Use smaller chunks, more particles, or more moves per annealing step.",
    )
    LOW_ESS = (
        "few effective particles",
        "the weights have degenerated to a handful of particles",
        "Switch resampling on, or use more particles or a higher target_ess.",
    )
    ISLANDS_DISAGREE = (
        "islands disagree",
        "the log evidence of independent islands differs by several nats",
        "Use more particles per island or more moves per annealing step.",
    )
    LOW_ACCEPTANCE = (
        "low acceptance",
        "moves were mostly rejected, so the particles hardly moved",
        "Use more particles, or moves that fit the model better; check that the log-likelihood "
        "is smooth.",
    )
    UNADJUSTED = (
        "moves are not adjusted",
        "the moves have no accept test, so they sample their target with a bias that depends on "
        "the step size and is not in the standard error",
        'Use adjusted moves (moves="hmc"), or halve the step size until the log evidence stands '
        "still.",
    )
    RESTARTED = (
        "restarted at changes",
        "the run began anew from the prior wherever the data seemed to change; the log evidence is "
        "that of a model that forgot its past at these rows, which were chosen after seeing the "
        "data, and the posterior that of the rows since the last",
        "See diagnostics['restarts']. Compare it only with models that restarted at the same rows, "
        'or use wb.Changes(policy="keep").',
    )
    RESERVOIR = (
        "reservoir in use",
        "mini-batches come from a reservoir that is smaller than the data seen",
        "Raise `reservoir`, or give the data as an array so that every row can be reached.",
    )
    PAST_SAMPLED = (
        "past from a sample",
        "the model was added later, and what came before is known to it by a sample of the rows "
        "alone; the error that this makes is in its standard error, and stays",
        "Add it with a source that can be read again, add(name, model, source), or from the start.",
    )
    TOLERANCE_NOT_REACHED = (
        "tolerance not reached",
        "the standard error is still above the tolerance that was asked for",
        "Allow more time_limit, or use more particles.",
    )

    def __init__(self, label: str, meaning: str, remedy: str) -> None:
        self.label = label
        self.meaning = meaning
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.label}: {self.meaning}. {self.remedy}"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return member_by_name(self)


def gravest(flags: Sequence[Status]) -> Status:
    """The most serious of some flags, which stands first, or ``Status.OK``.

    >>> gravest([Status.LOW_ESS]).name, gravest([]).name
    ('LOW_ESS', 'OK')
    """
    return flags[0] if flags else Status.OK
