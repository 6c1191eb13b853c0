"""Flags of a result: what a user should know before trusting it."""

from __future__ import annotations

import enum
from typing import Any

from weighbridge.core.pickling import member_by_name


class Status(enum.Enum):
    """Flags of a result: what a user should know before trusting it, and the remedy.

    >>> Status.DIVERGED.remedy.startswith("Use a smaller step size")
    True
    """

    OK = ("ok", "nothing unusual was seen", "None needed.")
    INTERRUPTED = (
        "interrupted",
        "the run was stopped early, and the result covers what it had done: fewer rows "
        "(num_observations), a path that has not reached its end (diagnostics['power_reached'] "
        "below 1: this is not the evidence, and has no error), or an answer that was not checked",
        "Run it again without interrupting it.",
    )
    ERROR_UNKNOWN = (
        "error unknown",
        "the error of the log evidence cannot be stated",
        "Run four or more islands (num_islands=16). Do not use SGAIS.published() or "
        "SequentialSGMCMC: the spread over islands does not show their bias.",
    )
    ROUNDED = (
        "lost in rounding",
        "the log evidence is so large that double precision rounds it by more than a hundredth of "
        "a nat; smaller terms are lost, and models can be compared only up to the standard error, "
        "which includes the rounding error",
        "Look for rows or columns with huge values (diagnostics['largest_value'] names one): "
        "correct them, leave them out, or rescale the column (subtract its mean and divide by its "
        "standard deviation).",
    )
    TOO_FEW_MOVES = (
        "moves forget too little",
        "in most annealing steps the particles were still correlated with their start after the "
        "moves, which happens when there are many parameters; the islands may then share a bias, "
        "and the log evidence is probably too low by more than its error",
        "Use more moves (moves=wb.AdaptiveHMC(decorrelated=0.01, max_moves=50)), more particles "
        "(num_particles), or a model with fewer parameters.",
    )
    HEATED = (
        "heated",
        "mini-batch noise heats the particles, and the resulting bias of the log evidence is "
        "larger than its spread",
        "Use a smaller step size in the kernel or a larger batch_size. The estimated bias is "
        "included in the standard error.",
    )
    MASS_MISSED = (
        "mass missed by the path",
        "a mode holds more evidence than the path found there; in that mode, the answer and the "
        "posterior come from importance sampling, elsewhere from the path",
        "Compare diagnostics['path_log_evidence'] with ['quenched_log_evidence']; there may be "
        "more such modes. Check whether the mode is intended: a prior that contradicts the data "
        "can create one, and so can a narrow peak of the likelihood. If not, tighten the prior.",
    )
    FLAT = (
        "flat likelihood",
        "the log-likelihood was the same at every prior draw: either the data do not depend on the "
        "parameters, and the answer is exact, or the likelihood varies only in a region that no "
        "draw hit, and the log evidence is too low by an unknown amount",
        "Check that the log-likelihood uses its parameters. If it does, use many more particles "
        "(num_particles), or a prior that is closer to the region where the likelihood varies.",
    )
    DRIFTING = (
        "still drifting",
        "particles at the end of the path kept drifting when they were moved further: they lag "
        "behind the path, and the log evidence is probably too low",
        "Use more moves (moves=wb.AdaptiveHMC(decorrelated=0.01, max_moves=50)), "
        'moves="slice", a higher target_ess, '
        "or parameters whose scales vary less (a non-centred parametrisation).",
    )
    PATH_LOST = (
        "path lost mass",
        "a bridge, at the end or during a stream, finds clearly more evidence than the path; the "
        "answer is the bridge's, or the run continued from the bridge, and the path's error is "
        "too small",
        "Use more particles, less batch noise, or smaller chunks, and compare diagnostics"
        "['path_log_evidence'] with ['bridge_log_evidence']; ['path_repaired'] is the correction "
        "of a stream's path.",
    )
    BRIDGE_SHORT = (
        "bridge falls short",
        "the path finds clearly more evidence than the bridge at the end, because the bridge's "
        "Gaussian does not reach all modes; the answer is the path's",
        "Compare diagnostics['path_log_evidence'] with ['bridge_log_evidence']; declare components "
        "that may be permuted as exchangeable, and use more particles.",
    )
    NOISY = (
        "mini-batches too noisy",
        "the log density varies more over mini-batches than is allowed; the path's error includes "
        "the bias that this may cause in the path's log evidence, and the bias is larger than the "
        "spread; the error of an answer by the bridge includes the noise of the bridge's batches; "
        "both may miss modes that noisy moves have lost",
        "Raise batch_size: if it is at least the number of rows, all rows are used where batches "
        "are too noisy, which takes long (by default, up to 131,072 rows in memory). Or "
        "reparametrise the model so that its posterior is closer to a Gaussian.",
    )
    PARTICLES_DROPPED = (
        "particles dropped",
        "some particles had log-likelihood -inf, and too few were left to reach the target ESS",
        "Use more particles, or a prior that gives every observation a positive density.",
    )
    DIVERGED = (
        "diverged",
        "some moves left the region where the density is finite, and were undone",
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
        'Use adjusted moves (moves="hmc"), or halve the step size until the log evidence no longer '
        "changes.",
    )
    RESTARTED = (
        "restarted at changes",
        "the run started again from the prior wherever the data seemed to change; the log evidence "
        "is that of a model that restarts at these rows, which were chosen after seeing the data, "
        "and the posterior uses only the rows since the last restart",
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
        "the model was added later, and only a sample of the earlier rows was available to it; the "
        "standard error includes the resulting error, which does not decrease with more rows",
        "Add it with a source that can be read again, add(name, model, source), or from the start.",
    )
    TOLERANCE_NOT_REACHED = (
        "tolerance not reached",
        "the standard error is still above the requested tolerance",
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
