"""A mode that a path has missed, combined with the evidence of the path elsewhere.

An importance sample gives the mass of the mode. It is compared with the mass of the path in the
same region, not with the total evidence of the path: against the total, a missed mode as heavy as
everything else would not be noticed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtri

from weighbridge.core.islands import Combined
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MIN_MISSED_ERRORS, MIN_MISSED_GAIN
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.labels import Cell
from weighbridge.estimators.bridging.bridge import Decision
from weighbridge.estimators.bridging.gaussians import Gaussian
from weighbridge.models.exchangeable import relabelled

# Mass of a Gaussian outside its ellipsoid.
OUTSIDE = 1e-6
# The relative error in the wider region may be larger by this factor.
UNCERTAIN = 5.0
# The path is uncertain about a mode if the error of its mass is above this share of the evidence.
MIN_UNCERTAIN_SHARE = 0.05
# With a smaller error (nats) a joined answer does not suffer from islands that disagree.
SETTLED = 0.5

Combine = Callable[[np.ndarray], Combined]


class Mode(NamedTuple):
    """An importance sample of one mode.

    Attributes:
        position: draws.
        log_weight: their log weights, not normalised.
        gaussian: the Gaussian fitted to the mode.
        cell: the cell of its labelling, if components may be permuted.
    """

    position: np.ndarray
    log_weight: np.ndarray
    gaussian: Gaussian
    cell: Cell | None = None

    @property
    def is_own(self) -> np.ndarray:
        """Which draws are in the smallest region."""
        return np.asarray(self.distance(self.position) <= self.radius(np.empty(0)))

    def distance(self, position: np.ndarray) -> np.ndarray:
        """Distance of positions from the mean, in standard deviations of the Gaussian."""
        mean, root = self.gaussian
        standard = solve_triangular(root, (position - mean).T, lower=True)
        return np.asarray(np.sqrt(np.sum(standard**2, axis=0)))

    def radius(self, others: np.ndarray) -> float:
        r"""Radius of the region of the mode, given the distances of the particles of the path.

        .. math:: E = \{\theta : |S^{-1} (\theta - m)| \le r\}, \qquad r^2 \ge \chi^2_D(10^{-6})

        The region extends halfway to the nearest particle outside the smallest region. Between
        them the path found nothing, and the mode may have tails.
        """
        least = math.sqrt(chdtri(len(self.gaussian[0]), OUTSIDE))
        beyond = others[others > least]
        return least if not len(beyond) else 0.5 * (least + float(beyond.min()))


class Joined(NamedTuple):
    """The mode combined with the path elsewhere.

    Attributes:
        log_evidence: of both together.
        std_error: its standard error.
        position: draws of the mode and particles of the path.
        log_weight: their log weights, not normalised.
        gain: mass of the mode minus the path's mass in its region, as a share of the path's
            evidence.
        gain_error: its standard error, from both.
        path_error: the path's part of it.
        num_modes: number of modes.
        is_sure: whether the masses of the modes are well known, and several climbs found each: then
            other modes are unlikely to have been missed.
    """

    log_evidence: float
    std_error: float
    position: np.ndarray
    log_weight: np.ndarray
    gain: float
    gain_error: float
    path_error: float = 0.0
    num_modes: int = 1
    is_sure: bool = False

    @property
    def is_uncertain(self) -> bool:
        """Whether the path's mass in the mode is far less certain than that of the sample."""
        own = math.sqrt(max(self.gain_error**2 - self.path_error**2, 0.0))
        return self.is_possible and self.path_error > max(MIN_UNCERTAIN_SHARE, 2.0 * own)

    @property
    def is_possible(self) -> bool:
        """Whether the path does not have clearly more there than the sample found."""
        return self.gain > -MIN_MISSED_ERRORS * self.gain_error

    @property
    def is_clear(self) -> bool:
        """Whether the path has clearly missed a part of the mode, however small."""
        return self.gain > MIN_MISSED_ERRORS * self.gain_error

    @property
    def is_missed(self) -> bool:
        """Whether the path has clearly missed the mode, or most of it."""
        return self.is_clear and self.gain > math.expm1(MIN_MISSED_GAIN)

    def widened(self, decision: Decision) -> Decision:
        """The answer of the decision; if it lacks a little of the mode, with a larger error."""
        error = 0.0 if math.isnan(self.std_error) else self.std_error
        lacking = self.log_evidence - decision.log_evidence
        if lacking <= MIN_MISSED_ERRORS * math.hypot(error, decision.std_error):
            return decision
        return decision._replace(std_error=math.hypot(decision.std_error, lacking))

    def overrules(self, decision: Decision) -> bool:
        """Whether it replaces an answer of the path, or of a bridge that is clearly lower."""
        if decision.diagnostics["answer"] != "bridge":
            return True
        error = 0.0 if math.isnan(self.std_error) else self.std_error
        allowed = max(MIN_MISSED_ERRORS * math.hypot(error, decision.std_error), MIN_MISSED_GAIN)
        return self.log_evidence - decision.log_evidence > allowed

    def settle(self, decision: Decision, flags: tuple[Status, ...]) -> tuple[Decision, bool]:
        """The answer in view of these modes, and whether the draws must include them.

        Modes whose masses are well known, and which several climbs found, are a note; others are
        flagged.

        Args:
            decision: the choice between path and bridge.
            flags: the flags of the path.
        """
        if not self.is_missed:
            sharper = self.is_sure and self.std_error < 0.5 * decision.std_error
            if sharper:
                return self._noted(decision, flags), True
            return self.widened(decision), False
        if not self.overrules(decision):
            return decision, False
        if self.is_sure:
            return self._noted(decision, flags), True
        return decision.overruled(self.log_evidence, self.std_error, flags), True

    def _noted(self, decision: Decision, flags: tuple[Status, ...]) -> Decision:
        """The modes and the path elsewhere as the answer, with a note."""
        # The islands may disagree about the modes only.
        settled = self.std_error < SETTLED
        flags = tuple(f for f in flags if not (settled and f is Status.ISLANDS_DISAGREE))
        path = decision.diagnostics["path_log_evidence"]
        note = (
            f"{self.num_modes} mode{'s' if self.num_modes > 1 else ''} of the posterior, where the "
            f"path alone is too uncertain or has found too little (log evidence {path:.4g}), "
            "joined by importance sampling, with the error of that."
        )
        notes = (*decision.diagnostics.get("notes", ()), note)
        diagnostics = decision.diagnostics | {"answer": "neither", "notes": notes}
        return Decision(self.log_evidence, self.std_error, flags, diagnostics)


def join(modes: Sequence[Mode], cloud: Cloud, islands: np.ndarray, combine: Combine) -> Joined:
    r"""The importance samples inside the regions of their modes, and the path outside of them.

    .. math:: Z = \sum_k \int_{E_k \setminus E_{<k}} f + \int_{\bar E} f, \qquad E = \bigcup_k E_k

    Nothing is counted twice.

    Args:
        modes: importance samples, and their regions E_k.
        cloud: particles at the end of the path.
        islands: log evidence of each island.
        combine: combines the log evidences of islands, with an error.
    """
    dimension = modes[0].position.shape[-1]
    position = np.asarray(cloud.position).reshape(-1, dimension)
    cell = modes[0].cell
    if cell is not None:
        position = relabelled(cell.model, position, cell.reference)
    log_weight = np.asarray(cloud.log_weight)
    log_total = np.logaddexp.reduce(log_weight, axis=1, keepdims=True)
    # An island without weight has no share.
    share = log_weight - np.where(np.isfinite(log_total), log_total, 0.0) + islands[:, None]
    alive = np.isfinite(share.reshape(-1))
    radii: list[float] = []
    kept: list[np.ndarray] = []
    for mode in modes:
        # The region of a mode does not reach into another one.
        others = [position[alive], *(o.position[o.is_own] for o in modes if o is not mode)]
        radius, draws = _region(mode, np.concatenate([mode.distance(o) for o in others]))
        for earlier, reach in zip(modes, radii):
            draws = np.where(earlier.distance(mode.position) <= reach, -np.inf, draws)
        radii.append(radius)
        kept.append(draws - math.log(len(draws)))
    is_in = [mode.distance(position) <= radius for mode, radius in zip(modes, radii)]
    inside = np.any(is_in, axis=0).reshape(share.shape)
    outside = np.where(inside, -np.inf, share)
    path = combined_parts(np.logaddexp.reduce(outside, axis=1), combine)
    masses, relatives = np.transpose([_mean_weight(draws) for draws in kept])
    masses = masses + np.log([len(draws) for draws in kept])
    within = float(np.logaddexp.reduce(masses))
    log_evidence = float(np.logaddexp(within, path.log_evidence))
    mode_error = math.hypot(*(relatives * np.exp(masses - log_evidence)))
    path_error = path.std_error * math.exp(path.log_evidence - log_evidence)
    unknown = not np.isfinite(islands).all() or len(islands) < 4
    found = np.where(inside, share, -np.inf)
    relative = mode_error * math.exp(log_evidence - within) if math.isfinite(within) else 0.0
    return Joined(
        log_evidence,
        math.nan if unknown else math.hypot(mode_error, path_error),
        np.concatenate([*(mode.position for mode in modes), position]),
        np.concatenate([*kept, outside.reshape(-1) - math.log(len(islands))]),
        *_gain(within, relative, np.logaddexp.reduce(found, axis=1), islands),
    )


def _region(mode: Mode, others: np.ndarray) -> tuple[float, np.ndarray]:
    """The radius of the mode's region, and the log weights of its draws; -inf outside of it.

    The narrower region is used if the wider one would make the mass far less certain: a few draws
    near its edge may have large weights from the density around the mode.
    """
    found = []
    for radius in (mode.radius(others), mode.radius(np.empty(0))):
        inside = mode.distance(mode.position) <= radius
        found.append((radius, np.where(inside, mode.log_weight, -np.inf)))
    wide, narrow = (_mean_weight(draws)[1] for _, draws in found)
    return found[0] if wide <= UNCERTAIN * narrow or narrow == 0.0 else found[1]


def _mean_weight(log_weight: np.ndarray) -> tuple[float, float]:
    """Log of the mean weight, and its relative error."""
    top = float(log_weight.max())
    if not math.isfinite(top):
        return -math.inf, 0.0
    weight = np.exp(log_weight - top)
    relative = np.std(weight, ddof=1) / weight.mean() / math.sqrt(len(weight))
    return top + math.log(weight.mean()), float(relative)


def _gain(
    within: float, relative: float, found: np.ndarray, islands: np.ndarray
) -> tuple[float, float, float]:
    """Mass of modes minus that of the islands there, as a share of their evidence; its error.

    The last number is the islands' part of the error.
    """
    top = max(within, float(islands.max()))
    if not math.isfinite(top):
        return 0.0, 0.0, 0.0
    there, total = np.exp(found - top), float(np.mean(np.exp(islands - top)))
    mass, count = math.exp(within - top), len(islands)
    # The tails of a Student-t over islands, as in their evidence; unknown for fewer than four.
    tails = math.sqrt((count - 1) / (count - 3) / count) if count >= 4 else 0.0
    chance = float(np.std(there, ddof=1)) * tails if count >= 4 else 0.0
    total = max(total, 1e-300)
    gain = (mass - float(there.mean())) / total
    return gain, math.hypot(mass * relative, chance) / total, chance / total


def combined_parts(log_evidences: np.ndarray, combine: Combine) -> Combined:
    """Combine parts of the log evidences of islands; some islands may have found nothing (-inf).

    >>> from weighbridge.core.islands import combine_islands
    >>> combined_parts(np.array([0.0, -np.inf, 0.0, -np.inf]), combine_islands).log_evidence
    -0.69...
    >>> combined_parts(np.full(4, -np.inf), combine_islands)
    Combined(log_evidence=-inf, std_error=0.0, spread=0.0)
    """
    if np.isfinite(log_evidences).all():
        return combine(log_evidences)
    top = float(log_evidences.max())
    if not math.isfinite(top):
        return Combined(top, 0.0, 0.0)
    part, count = np.exp(log_evidences - top), len(log_evidences)
    tails = (count - 1) / max(count - 3, 1)
    spread = float(np.std(part, ddof=1) / part.mean())
    return Combined(top + math.log(part.mean()), spread * math.sqrt(tails / count), spread)
