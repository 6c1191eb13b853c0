"""Bridge sampling: the evidence from draws of the posterior and of a normalised proposal."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weighbridge.core.status import Status
from weighbridge.core.thresholds import (
    MAX_BRIDGE_ERRORS,
    MAX_BRIDGE_PARETO_K,
    MAX_PROPOSAL_PARETO_K,
)
from weighbridge.diagnostics.pareto import pareto_khat

# The iteration ends when log Z changes by less than this.
CONVERGED = 1e-10
MAX_ITERATIONS = 1000
# Relative rounding error of sums of log densities; the only error if the proposal is exact.
ROUNDING = 1e-14
# Flags of a path that do not apply to an answer of the bridge.
OF_THE_PATH = (
    Status.NOISY,
    Status.ISLANDS_DISAGREE,
    Status.TOO_FEW_MOVES,
    Status.HEATED,
    Status.ERROR_UNKNOWN,
)
# With at least this fraction of effective draws, the tails do not matter.
EVEN = 0.9


class Bridged(NamedTuple):
    """The result of a bridge between two samples.

    Attributes:
        log_evidence: in nats.
        std_error: from the jackknife over groups of draws; NaN with fewer than four groups.
        khat_proposal: Pareto k-hat of posterior / proposal, at draws from the proposal.
        khat_posterior: Pareto k-hat of proposal / posterior, at draws from the posterior.
        overlap: overlap of the two samples, from 0 to 1: the weight of the posterior draws in the
            region of the proposal.
        is_even: whether the ratios vary so little, in both directions, that their tails do not
            matter.
        reached: the overlap of each group of posterior draws.
    """

    log_evidence: float
    std_error: float
    khat_proposal: float
    khat_posterior: float
    overlap: float
    is_even: bool
    reached: np.ndarray | None = None

    def judge(self, log_evidence: float, std_error: float) -> tuple[bool, Status | None]:
        """Whether the bridge is the answer, rather than the estimate of a path, and a flag.

        Neither of them is ever far too high (by Markov's inequality), and both are too low if mass
        was missed. If they disagree, the higher one is the answer, as long as the bridge's ratios
        have light tails in both directions. A smaller stated error alone decides nothing. With
        somewhat heavier tails a bridge does not confirm a path, but it can show that the path lost
        mass; with still heavier ones its error means little.
        """
        if math.isnan(self.std_error):
            return False, None
        if not self.is_light:
            allowed = MAX_BRIDGE_ERRORS * math.hypot(self.std_error, std_error)
            lost = self.is_usable and self.log_evidence - log_evidence > allowed
            return lost, Status.PATH_LOST if lost else None
        if math.isnan(std_error):  # the path states no error, so no disagreement can be found
            return True, None
        apart = self.log_evidence - log_evidence
        allowed = MAX_BRIDGE_ERRORS * math.hypot(self.std_error, std_error)
        if apart > allowed:
            return True, Status.PATH_LOST
        return (True, None) if apart >= -allowed else (False, Status.BRIDGE_SHORT)

    @property
    def khat(self) -> float:
        """The heavier of the two tails."""
        return max(self.khat_proposal, self.khat_posterior)

    @property
    def is_light(self) -> bool:
        """Whether the ratios have light tails in both directions, or hardly vary."""
        return self.is_even or self.khat < MAX_BRIDGE_PARETO_K

    @property
    def is_usable(self) -> bool:
        """Whether the tails are light enough for a mean, if not for its error."""
        return self.is_even or self.khat < MAX_PROPOSAL_PARETO_K


class Decision(NamedTuple):
    """Which of two estimates is the answer.

    Attributes:
        log_evidence: of the answer.
        std_error: of the answer.
        flags: the flags of the answer.
        diagnostics: both estimates.
    """

    log_evidence: float
    std_error: float
    flags: tuple[Status, ...]
    diagnostics: dict[str, Any]

    def overruled(
        self, log_evidence: float, std_error: float, flags: tuple[Status, ...]
    ) -> Decision:
        """The same two estimates, with a third one as the answer, which has a mode both missed."""
        diagnostics = self.diagnostics | {"answer": "neither"}
        flags = (Status.MASS_MISSED, *flags)
        return Decision(log_evidence, std_error, flags, diagnostics)


def decide(
    crossing: Bridged | None, log_evidence: float, std_error: float, flags: tuple[Status, ...]
) -> Decision:
    """Choose between a bridge, if there is one, and a path with its flags; see ``judge``.

    A path with a constant likelihood is exact: a bridge that agrees with it would only add noise.
    """
    by_bridge, caution = False, None
    if crossing is not None:
        by_bridge, caution = crossing.judge(log_evidence, std_error)
        by_bridge = by_bridge and (Status.FLAT not in flags or caution is not None)
    diagnostics: dict[str, Any] = {
        "path_log_evidence": log_evidence,
        "path_error": std_error,
        "answer": "bridge" if by_bridge else "path",
    }
    if crossing is not None:
        diagnostics |= {
            "bridge_log_evidence": crossing.log_evidence,
            "bridge_error": crossing.std_error,
            "bridge_khat": crossing.khat,
        }
        if by_bridge:
            log_evidence, std_error = crossing.log_evidence, crossing.std_error
            flags = tuple(flag for flag in flags if flag not in OF_THE_PATH)
    flags = flags if caution is None else (caution, *flags)
    return Decision(log_evidence, std_error, flags, diagnostics)


def bridge(
    log_ratio_posterior: np.ndarray, log_ratio_proposal: np.ndarray, log_weight: np.ndarray
) -> Bridged:
    r"""The evidence by the optimal bridge of Meng & Wong (1996), Statistica Sinica 6:831-860.

    With l = f / q, the ratio of the unnormalised posterior to a normalised proposal,

    .. math:: Z = \frac{\frac1{N_2} \sum_{j \sim q} l_j / (s_1 l_j + s_2 Z)}
                       {\sum_{i \sim p} W_i / (s_1 l_i + s_2 Z)}, \qquad s_k = N_k / (N_1 + N_2)

    solved by iteration. Draws come in groups (islands) that are independent of each other. The
    error is the jackknife over groups, which is valid for dependent draws within a group. If the
    proposal does not cover a region, the posterior draws in that region correct the estimate for
    it; so the estimate is right as long as the posterior draws are right.

    Args:
        log_ratio_posterior: log l at draws from the posterior, groups x draws.
        log_ratio_proposal: log l at draws from the proposal, groups x draws.
        log_weight: log weights of the posterior draws, groups x draws; they need no normalisation.

    >>> flat = np.full((8, 200), 3.0)
    >>> round(bridge(flat, flat, np.zeros((8, 200))).log_evidence, 10)
    3.0
    """
    usable = np.isfinite(log_weight) & np.isfinite(log_ratio_posterior)
    share = np.exp(np.where(usable, log_weight - np.logaddexp.reduce(log_weight[usable]), -np.inf))
    posterior = np.where(usable, log_ratio_posterior, 0.0)
    sides = Sides(posterior, log_ratio_proposal, share)
    log_evidence = sides.solve()
    inverse = log_weight[usable] - log_ratio_posterior[usable]
    shared = 1 / (0.5 * _exp(posterior - log_evidence) + 0.5)
    # Normalise the weights within each group, however small they are compared with other groups.
    top = np.max(log_weight, axis=1, keepdims=True)
    own = np.where(usable, np.exp(log_weight - np.where(np.isfinite(top), top, 0.0)), 0.0)
    reached = np.sum(own * shared, axis=1) / np.maximum(np.sum(own, axis=1), 1e-300)
    return Bridged(
        log_evidence,
        sides.error(log_evidence),
        pareto_khat(log_ratio_proposal),
        pareto_khat(inverse),
        min(float(np.sum(share * shared)), 1.0),
        min(_evenness(log_ratio_proposal), _evenness(-log_ratio_posterior[usable])) > EVEN,
        reached,
    )


class Sides:
    """Both samples, and the map whose fixed point is log Z.

    Args:
        posterior: log ratios at draws from the posterior, groups x draws.
        proposal: log ratios at draws from the proposal, groups x draws.
        share: normalised weights of the posterior draws.
        balance: share s_1 of the posterior draws in the bridge function, between 0 and 1; by
            default that of their effective number among all draws.

    Attributes:
        path: log Z after every iteration.
    """

    def __init__(
        self,
        posterior: np.ndarray,
        proposal: np.ndarray,
        share: np.ndarray,
        balance: float | None = None,
    ) -> None:
        self.posterior, self.proposal, self.share = posterior, proposal, share
        if balance is None:
            effective = 1 / np.sum(share**2)
            balance = effective / (effective + proposal.size)
        self.first = balance
        self.second = 1 - self.first
        self.path: list[float] = []

    def terms(self, log_evidence: float) -> tuple[np.ndarray, np.ndarray]:
        """Terms of the numerator, and of the denominator times Z without the weights."""
        above = 1 / (self.first + self.second * _exp(log_evidence - self.proposal))
        below = 1 / (self.first * _exp(self.posterior - log_evidence) + self.second)
        return above, below

    def sums(self, log_evidence: float) -> tuple[np.ndarray, np.ndarray]:
        """Numerator, and denominator times Z, of the ratio of sums, for each group."""
        above = 1 / (self.first + self.second * _exp(log_evidence - self.proposal))
        below = self.share / (self.first * _exp(self.posterior - log_evidence) + self.second)
        return np.mean(above, axis=1), np.sum(below, axis=1)

    def solve(self) -> float:
        """Iterate for log Z."""
        if not np.isfinite(self.proposal).any():
            return -math.inf
        log_evidence = float(np.sum(self.share * self.posterior))
        for _ in range(MAX_ITERATIONS):
            above, below = self.sums(log_evidence)
            change = math.log(above.mean()) - math.log(below.sum())
            log_evidence += change
            self.path.append(log_evidence)
            if abs(change) < CONVERGED:
                break
        return log_evidence

    def influences(self, log_evidence: float) -> np.ndarray:
        """By how much each group moves log Z, to first order; they sum to zero."""
        above, below = self.sums(log_evidence)
        from_proposal = above / above.sum() - 1 / len(above)
        from_posterior = below / below.sum() - self.share.sum(axis=1)
        return np.asarray(from_proposal - from_posterior)

    def error(self, log_evidence: float) -> float:
        """The jackknife over groups: the change of the fixed point if one group is left out."""
        num_groups = len(self.share)
        if num_groups < 4 or not math.isfinite(log_evidence):
            return math.nan
        above, below = self.sums(log_evidence)
        weight = self.share.sum(axis=1)
        if min(np.min(above.sum() - above), np.min(below.sum() - below)) <= 0:
            return math.nan  # one group has all of the weight
        without = np.log((above.sum() - above) / (num_groups - 1))
        without -= np.log((below.sum() - below) / np.maximum(1 - weight, 1e-12))
        # The first step of the iteration, divided by one minus its contraction, is the full change.
        step = 1e-4
        shifted = [np.log(a.mean()) - np.log(b.sum()) for a, b in
                   (self.sums(log_evidence + sign * step) for sign in (1, -1))]  # fmt: skip
        contraction = -(shifted[0] - shifted[1]) / (2 * step)
        if not contraction > 0:  # log Z is so large that the step is below its rounding
            return math.nan
        without /= contraction
        # A jackknife of J groups has J - 1 degrees of freedom, as the spread over J islands.
        tails = (num_groups - 1) / (num_groups - 3)
        factor = (num_groups - 1) / num_groups
        chance = math.sqrt(tails * factor * float(np.sum((without - without.mean()) ** 2)))
        return math.hypot(chance, CONVERGED + ROUNDING * abs(log_evidence))


def _exp(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(np.clip(values, -700.0, 700.0)))


def _evenness(log_ratio: np.ndarray) -> float:
    """Effective draws of importance ratios, as a fraction."""
    finite = log_ratio[np.isfinite(log_ratio)]
    if not finite.size:
        return 0.0
    return float(
        np.exp(2 * np.logaddexp.reduce(finite) - np.logaddexp.reduce(2 * finite)) / log_ratio.size
    )
