"""Flags of a result: what was found, what it means, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from weighbridge.core.pickling import member_by_name

GRAVE = True


class Status(enum.Enum):
    """A flag of a result: its label, its meaning for the log evidence, its remedy, its gravity.

    With a ``grave`` flag the number and its error must not be used as an answer. Other flags are
    notes, or their error is believed to cover what they tell of.

    >>> Status.DIVERGED.remedy.startswith("Use a smaller step size")
    True
    >>> Status.ISLANDS_DISAGREE.grave, Status.RESERVOIR.grave
    (True, False)
    """

    OK = ("ok", "nothing unusual was seen", "None needed.")
    INTERRUPTED = (
        "interrupted",
        "the run was stopped before its end. The result may have fewer rows (num_observations), an "
        "unfinished path (diagnostics['power_reached'] below 1: then it is not the evidence and "
        "has no error), or an answer without its final checks",
        "Run it again to the end.",
    )
    ERROR_UNKNOWN = (
        "error unknown",
        "the error of the log evidence cannot be stated",
        "Run four or more islands (num_islands=16). Do not use SGAIS.published() or "
        "SequentialSGMCMC: the spread over islands does not show their bias.",
    )
    INFINITE_VARIANCE = (
        "infinite variance",
        "the harmonic mean of the likelihood must not be believed. The inverse likelihood has "
        "infinite variance wherever the prior is wider than the likelihood; then the estimate is "
        "too high, by the more the wider the prior is, with any number of draws in practice. It "
        "hardly depends on the prior, as the evidence does, and its error cannot be stated",
        "Use the same draws in a bridge: wb.bridge(posterior, model, data), or method='bridge', or "
        "any other method, such as wb.SMC() or wb.NestedSampling().",
        GRAVE,
    )
    HUGE_ERROR = (
        "error too large",
        "the standard error was more than 10 nats (diagnostics['untrusted_std_error']): nothing is "
        "known about the log evidence but perhaps a bound, and it cannot be compared",
        "Use another method, such as wb.NestedSampling() or wb.SMC(); more particles "
        "(num_particles); or another parametrisation.",
        GRAVE,
    )
    LARGE_ERROR = (
        "large error",
        "the standard error is 2 nats or more, so large that the model can hardly be compared",
        "Use more particles (num_particles), more islands (num_islands), a tolerance with a "
        "longer time_limit, or another method.",
    )
    ROUNDED = (
        "lost in rounding",
        "the log evidence is so large that double precision rounds it by more than a hundredth of "
        "a nat. Smaller differences between models are lost. The standard error includes this "
        "rounding",
        "Look for rows or columns with huge values (diagnostics['largest_value'] names one). "
        "Correct them, leave them out, or rescale the column (subtract its mean and divide by its "
        "standard deviation).",
    )
    TOO_FEW_MOVES = (
        "moves forget too little",
        "in most steps the particles were still correlated with their positions before the moves. "
        "This happens in models with very many parameters. Islands may then share a bias, and the "
        "log evidence is likely to be too low by more than its error",
        "Use more moves (moves=wb.AdaptiveHMC(decorrelated=0.01, max_moves=50)), more particles "
        "(num_particles), or a model with fewer parameters.",
        GRAVE,
    )
    WALKERS_REMEMBER = (
        "walkers remember their starts",
        "the walkers of nested sampling made so few moves that new points are still correlated "
        "with their starts (diagnostics['remembered']), or that not every coordinate could move. "
        "The stated error allows for this correlation, but only roughly",
        "Use more moves (num_moves), or more live points (num_live).",
    )
    HEATED = (
        "heated",
        "mini-batch noise heats the particles, and the bias that this causes in the log evidence "
        "is larger than the spread over islands",
        "Use a smaller step size in the kernel or a larger batch_size. The standard error includes "
        "the estimated bias.",
    )
    MASS_MISSED = (
        "mass missed by the path",
        "a mode holds more evidence than the path found in it. In this mode the answer and the "
        "posterior come from importance sampling, elsewhere from the path. The mass of a mode is "
        "poorly known, or a single climb found it, so that others may have been missed",
        "Compare diagnostics['path_log_evidence'] with ['quenched_log_evidence']; there may be "
        "more such modes. Check whether you want this mode in the model: it may come from a prior "
        "that contradicts the data, or from a narrow peak of the likelihood. If not, use a "
        "narrower prior that excludes it.",
    )
    FLAT = (
        "flat likelihood",
        "the log-likelihood was the same at every draw from the prior. Either it is constant, and "
        "the answer is exact; or it differs only in a region that no draw hit, and the log "
        "evidence is too low by an unknown amount. So there is no standard error",
        "Check that the log-likelihood uses its parameters. If it does, use many more particles "
        "(num_particles), or a prior that is closer to the region where the likelihood varies.",
        GRAVE,
    )
    DRIFTING = (
        "still drifting",
        "the particles drifted when they were moved further at the end of the path: they had "
        "lagged behind the path, and the log evidence is likely to be too low",
        "Use more moves (moves=wb.AdaptiveHMC(decorrelated=0.01, max_moves=50)), "
        'moves="slice", a higher target_ess, '
        "or parameters with less varying scales (a non-centred form).",
        GRAVE,
    )
    PATH_LOST = (
        "path lost mass",
        "a bridge, at the end or during a stream, finds clearly more evidence than the path. The "
        "answer is that of the bridge or of the mode (diagnostics['answer']), or continues from "
        "there; do not trust the error of the path",
        "Use more particles, a smaller noise, or smaller chunks. Compare diagnostics"
        "['path_log_evidence'] with ['bridge_log_evidence']; ['path_repaired'] is the correction "
        "that was added to the path of a stream.",
    )
    BRIDGE_SHORT = (
        "bridge falls short",
        "the path finds clearly more evidence than the bridge at the end, whose Gaussian does not "
        "cover all modes. The answer is that of the path",
        "Compare diagnostics['path_log_evidence'] with ['bridge_log_evidence']. Declare components "
        "that may be permuted as exchangeable, and use more particles.",
    )
    NOISY = (
        "mini-batches too noisy",
        "the log density varies more over mini-batches than allowed. The bias that this may cause "
        "in the log evidence of the path is larger than the spread over islands; the error of the "
        "path includes it. The error of a bridge includes the noise of its own batches. But noisy "
        "moves may have lost modes for both",
        "Raise batch_size. If it is at least the number of rows, all rows are used where batches "
        "are too noisy, which takes long (the default for up to 131,072 rows in memory). Or "
        "parametrise the model so that its posterior is closer to a Gaussian.",
    )
    RANKS_FAR_FROM_UNIFORM = (
        "new points far from uniform",
        "the insertion test of nested sampling fails beyond any chance, with a p-value below one "
        "in a million (diagnostics['insertion_p_value'], ['rolling_p_value']): the walkers did not "
        "get far enough from their starts, and the log evidence may be wrong by more than its "
        "error",
        "Use more moves (num_moves, for example twice diagnostics['moves_per_walk']), more live "
        "points (num_live), or a parametrisation with less varying scales.",
        GRAVE,
    )
    RANKS_NOT_UNIFORM = (
        "new points not uniform",
        "the insertion test of nested sampling fails: new points are not inserted uniformly among "
        "the live ones (diagnostics['insertion_p_value'], ['rolling_p_value']). This happens by "
        "chance in a few of a hundred right runs; or the walkers did not get far enough from their "
        "starts",
        "Use more moves (num_moves, for example twice diagnostics['moves_per_walk']), more live "
        "points (num_live), or a parametrisation with less varying scales.",
    )
    WALKERS_STUCK = (
        "walkers stuck",
        "more than a hundredth of the walkers of nested sampling did not move at all, so that "
        "points were copied",
        "Check that the log-likelihood is not rounded or nearly constant on thin sets; use more "
        "moves (num_moves) or more live points (num_live).",
        GRAVE,
    )
    FEW_LIVE_POINTS = (
        "few live points",
        "nested sampling has fewer than ten live points for each of many parameters. Their "
        "covariance, which shapes the moves, is poorly known, new points stay near their starts, "
        "and the log evidence is likely to be too high (by 1.5 stated errors in 100 dimensions)",
        "Use more live points (num_live at least ten times the number of parameters), or more "
        "moves (num_moves five times that number), or compare with wb.SMC().",
    )
    STOPPED_EARLY = (
        "stopped early",
        "nested sampling was stopped by max_calls or time_limit, because the likelihood grows "
        "without end, or because moves='prior' would reject 9,999 of 10,000 draws, before the live "
        "points held little evidence (diagnostics['remainder']). The log evidence is likely to be "
        "too low",
        "Raise max_calls or time_limit; use moves='slice' instead of 'prior'; for a likelihood "
        "without a maximum, change the model.",
        GRAVE,
    )
    WEIGHTS_WITHOUT_MEAN = (
        "weights without a mean",
        "the importance weights have such a heavy tail (diagnostics['pareto_k'] is 1 or more) that "
        "their mean does not exist as far as the draws show: the log evidence is too low by an "
        "unknown amount",
        "See the remedy of heavy-tailed weights.",
        GRAVE,
    )
    HEAVY_WEIGHTS = (
        "heavy-tailed weights",
        "a few importance weights dominate, and still larger ones are likely to exist where no "
        "draw was (diagnostics['pareto_k'], with its error, is above 0.7). The log "
        "evidence is likely to be too low; its error is raised for that, by a guess",
        "In wb.Importance: let the proposal adapt (adaptive=True), use heavier tails (degrees=3), "
        "more draws (num_draws), or a proposal fitted to posterior draws (proposal=draws). "
        "In reweighting and in ratios of evidences: the two posteriors are too different, so weigh "
        "each model by itself.",
    )
    MODE_AT_EDGE = (
        "mode at the edge",
        "the density of the chosen coordinates grows towards a bound of the support, or without "
        "end: there is no mode inside, and Laplace's method does not apply",
        'Use coordinates="unconstrained", a prior that vanishes at the bound, or a non-centred '
        'form where a scale goes to zero; or another method, such as "smc" or "nested".',
        GRAVE,
    )
    SINGULAR_CURVATURE = (
        "singular curvature",
        "at the end of a climb the curvature is zero in some direction, or that of a saddle point "
        "(diagnostics['mode_kind']). There the width of the prior is used instead, and the log "
        "evidence of Laplace's method means little; the stated error is its distance from "
        "importance sampling",
        "Look for parameters that the data determine only together, use other coordinates, or "
        'another method, such as "smc" or "nested".',
    )
    MODE_NOT_REACHED = (
        "mode not reached",
        "a climb of Laplace's method ended where the gradient does not vanish. The density may "
        "have a kink, or a ridge that is followed very slowly",
        "Use a likelihood and priors with derivatives everywhere, parameters with less different "
        'scales, or another method, such as "smc" or "nested".',
    )
    MODES_UNSEEN = (
        "modes not found",
        "many modes were found by a single climb each, so there are probably others "
        "(diagnostics['modes_unseen'] is the probability that another climb ends at a new one). "
        "The log evidence is likely to be too low; the stated error includes a guess of that",
        "Use more starts (num_starts), declare components that may be permuted as exchangeable, "
        'or use "nested" or "smc".',
    )
    EXPANSION_FAILED = (
        "expansion failed",
        "Laplace's method fails: importance sampling around the modes cannot tell how far it is "
        "off, and the next term of its expansion is not small (diagnostics['next_order']). The log "
        "evidence may be wrong by any amount",
        'Use another method, such as "smc", "sgais" or "nested", or other coordinates '
        "(coordinates=).",
        GRAVE,
    )
    CHECK_FAILED = (
        "check failed",
        "importance sampling around the modes has so few effective draws, or weights with such "
        "heavy tails (diagnostics['check_ess'], ['check_pareto_k']), that it cannot tell how far "
        "Laplace's method is off. The stated error is the next term of Laplace's expansion, or NaN "
        "if that is too large (diagnostics['next_order'])",
        "Use other coordinates (coordinates=), more draws (num_draws), or another method, such as "
        '"smc", "sgais" or "nested".',
    )
    NOT_GAUSSIAN = (
        "posterior not Gaussian",
        "Laplace's method differs by more than a nat from importance sampling around the modes; "
        "the stated error includes the difference",
        "diagnostics['check_log_evidence'] is the better answer, with the error ['check_error']. "
        "Other coordinates (coordinates=) may make the posterior more Gaussian.",
    )
    CHAINS_DISAGREE = (
        "chains disagree",
        "R-hat of the posterior draws is too large (diagnostics['rhat']): the chains have not "
        "reached the same distribution, and the log evidence may be wrong by more than its error",
        "Draw longer chains with a longer warm-up. If this does not help, the posterior has "
        "several modes: declare components that may be permuted as exchangeable, reparametrise, or "
        'use method="smc" or "nested".',
        GRAVE,
    )
    DRAWS_DO_NOT_FIT = (
        "draws do not fit the model",
        "bridges that weigh draws and proposal differently do not agree, as they must if the draws "
        "are from the posterior of this model with these data. The log evidence is likely to be "
        "wrong by more than its error",
        "Check that the draws were made with the same prior, likelihood and data, and that their "
        "chains have converged. Draws of approximate methods are not from the posterior.",
        GRAVE,
    )
    LITTLE_OVERLAP = (
        "little overlap",
        "a few terms of the bridge decide, since the proposal and the posterior hardly overlap "
        "(diagnostics['khat_proposal'], ['khat_posterior'], ['overlap']). The error of the log "
        "evidence may be too small",
        'Use more draws, another proposal (proposal="warp3" or "mixture"), or a parametrisation '
        "whose posterior is closer to a Gaussian.",
    )
    FEW_EFFECTIVE_DRAWS = (
        "few effective draws",
        "the posterior draws are worth few independent ones (diagnostics['effective_draws']), so "
        "that the error of the log evidence is itself hardly known",
        "Draw longer chains, or reparametrise the model so that the chains mix faster.",
    )
    METHODS_DISAGREE = (
        "methods disagree",
        "methods that fail for different reasons gave log evidences that differ by more than their "
        "errors, or a path found more than the answer. At least one of them is wrong, and nothing "
        "here tells which (diagnostics['attempts'], or a comparison's cross_checks, has all). "
        'method="auto" shows the largest',
        "Look for modes that one of the posteriors lacks (result.plot_posterior()). Weigh the "
        "model again with more particles (wb.SMC(num_particles=1024)) and more live points "
        "(wb.NestedSampling(num_live=4000)), until they agree.",
        GRAVE,
    )
    RARELY_VISITED = (
        "model rarely visited",
        "chains over several models came to one of them so rarely (diagnostics['entries']) that "
        "the error of its log Bayes factor is hardly known, or never, so that there is only a "
        "bound",
        "Leave the odds to be tuned (odds=None), use more sweeps (num_sweeps), or compare the "
        "evidences of the models: wb.compare(models, data).",
    )
    PARTICLES_DROPPED = (
        "particles dropped",
        "some particles had a log-likelihood of -inf, and the others were too few to reach the "
        "target ESS",
        "Use more particles, or a prior that gives every observation a positive density.",
    )
    DIVERGED = (
        "diverged",
        "some moves left the region where the density is finite and were undone",
        "Use a smaller step size in the kernel, or rescale the columns of the data.",
    )
    STALLED = (
        "annealing stalled",
        "the annealing schedule did not reach its end within the allowed number of steps",
        "Use smaller chunks, more particles, or more moves per annealing step.",
        GRAVE,
    )
    LOW_ESS = (
        "few effective particles",
        "a few particles hold almost all of the weight",
        "Switch resampling on, or use more particles or a higher target_ess. In importance "
        "sampling: more draws (num_draws), or a proposal that is closer to the posterior.",
    )
    ISLANDS_DISAGREE = (
        "islands disagree",
        "the log evidence of independent islands differs by several nats",
        "Use more particles per island or more moves per annealing step.",
        GRAVE,
    )
    LOW_ACCEPTANCE = (
        "low acceptance",
        "moves were mostly rejected, so the particles hardly moved",
        "Use more particles, or moves that fit the model better; check that the log-likelihood "
        "is smooth.",
    )
    UNADJUSTED = (
        "moves are not adjusted",
        "the moves have no accept/reject test, so they sample their target with a bias that "
        "depends on the step size. The standard error does not include this bias",
        'Use adjusted moves (moves="hmc"), or halve the step size until the log evidence no longer '
        "changes.",
    )
    RESTARTED = (
        "restarted at changes",
        "the run started again from the prior at each row where a change was found. The log "
        "evidence is that of a model with new parameters from each of these rows on, and the rows "
        "were chosen after seeing the data. The posterior uses only the rows since the last one",
        "See diagnostics['restarts']. Compare the result only with models that restarted at the "
        'same rows, or use wb.Changes(policy="keep").',
    )
    RESERVOIR = (
        "reservoir in use",
        "mini-batches come from a reservoir that holds only a sample of the rows so far",
        "Raise `reservoir`, or give the data as an array so that every row can be used.",
    )
    PAST_SAMPLED = (
        "past from a sample",
        "the model was added later, and used only a sample of the rows before that. Its standard "
        "error includes the error that this causes, which later rows do not reduce",
        "Add the model with a source that can be read again, add(name, model, source), or add it "
        "at the start.",
    )
    TOLERANCE_NOT_REACHED = (
        "tolerance not reached",
        "the standard error is larger than the requested tolerance",
        "Use a longer time_limit, or more particles.",
    )

    def __init__(self, label: str, meaning: str, remedy: str, grave: bool = False) -> None:
        self.label = label
        self.meaning = meaning
        self.remedy = remedy
        self.grave = grave

    def __str__(self) -> str:
        return f"{self.label}: {self.meaning}. {self.remedy}"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return member_by_name(self)


def gravest(flags: Sequence[Status]) -> Status:
    """The first grave flag; if there is none the first flag, or ``Status.OK``.

    >>> gravest([Status.LOW_ESS, Status.STALLED]).name, gravest([]).name
    ('STALLED', 'OK')
    """
    return next(iter([*filter(is_grave, flags), *flags]), Status.OK)


def is_grave(flag: Status) -> bool:
    """Whether a flag is grave; see ``Status``."""
    return flag.grave
