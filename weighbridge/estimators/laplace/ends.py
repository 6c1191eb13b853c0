"""The ends of climbs, gathered to different modes; and whether there are likely to be others."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.thresholds import MAX_UNSEEN_MODES
from weighbridge.estimators.annealing.labels import Cell
from weighbridge.estimators.laplace.hills import Hill
from weighbridge.estimators.laplace.summit import Summit, SummitKind, ascend
from weighbridge.estimators.proposals.mixture import Mixture
from weighbridge.models.exchangeable import (
    Reference,
    features,
    find_reference,
    log_num_labellings,
    relabelled,
)
from weighbridge.models.model import Model

# Ends of climbs within this distance of a mode, in its standard deviations, are that mode.
SAME_MODE = 0.1
# Modes with less than this share of the evidence do not count.
LEAST_SHARE = 0.01
# Draws by which components are labelled; equal components differ by less than this, in spreads.
LABEL_DRAWS, EQUAL = 256, 1e-3
# Climbs for each mode and for one more, so that a further mode that attracts as many starts as the
# others is missed in one of 3,000 runs.
CLIMBS_FOR_EACH = 8


class Ends:
    """The different summits found so far, and how many climbs ended at each."""

    def __init__(self, hill: Hill, model: Model, scale: np.ndarray) -> None:
        self.hill, self.model, self.scale = hill, model, scale
        self.bounded = model.bounded
        self.cell: Cell | None = None
        self.summits: list[Summit] = []
        self.found_by: list[int] = []

    def add(self, ends: np.ndarray, seed: int) -> None:
        """Take the ends of climbs to their modes, and count those at the same mode together."""
        heights = self.hill.heights(ends) if len(ends) else np.empty(0)
        order = np.argsort(-heights, kind="stable")[: int(np.isfinite(heights).sum())]
        ends = ends[order]
        if not len(ends):
            return
        if self.model.exchangeable:
            if self.cell is None:
                # The labelling of the best end so far, with the spreads of draws around it.
                top = ascend(self.hill, ends[0], self.scale, self.bounded)
                first = find_reference(self.model, ends[:1], 0)
                self.cell = Cell(self.model, _reference(self.model, top, first, seed))
            ends = relabelled(self.model, ends, self.cell.reference)
        for end in ends:
            number = self._known(end)
            if number is None:
                summit = ascend(self.hill, end, self.scale, self.bounded)
                number = self._known(summit.position)
                if number is None:
                    number = len(self.summits)
                    self.summits.append(summit)
                    self.found_by.append(0)
            self.found_by[number] += 1

    def _known(self, position: np.ndarray) -> int | None:
        for number, summit in enumerate(self.summits):
            near = SAME_MODE if summit.kind is SummitKind.MODE else 1.0
            if summit.distance(position[None])[0] < near:
                return number
        return None

    def unseen(self, num_climbs: int) -> float:
        """Probability that another climb ends at a mode that is not known yet.

        About the share of climbs that were the only one to find their mode: Good (1953),
        Biometrika 40:237-264.
        """
        return unseen_share(self.log_mass(), np.array(self.found_by), num_climbs)

    def are_all(self, num_climbs: int) -> bool:
        """Whether these climbs are enough to have found all modes, as far as they can tell."""
        if not self.summits:
            return False
        num_modes = int(_has_mass(self.log_mass()).sum())
        enough = num_climbs >= CLIMBS_FOR_EACH * (num_modes + 1) or num_modes == 1
        return enough and self.unseen(num_climbs) <= MAX_UNSEEN_MODES

    def log_mass(self) -> np.ndarray:
        """Log of the evidence of each summit and its copies, by Laplace's method."""
        masses = np.array([summit.log_mass for summit in self.summits])
        return np.asarray(masses + self.log_copies())

    def log_copies(self) -> np.ndarray:
        """Log of the number of copies of each under permutations of components."""
        return np.array([_log_copies(summit, self.cell) for summit in self.summits])


def unseen_share(log_mass: np.ndarray, found_by: np.ndarray, num_climbs: int) -> float:
    """The share of climbs that were the only one, or one of two, to find a mode with some mass.

    Those of a pair count a quarter each, so that a lucky number of single ones is no proof.

    >>> unseen_share(np.zeros(4), np.array([6, 1, 1, 2]), 10)
    0.25
    """
    alone, pairs = ((found_by[_has_mass(log_mass)] == count).sum() for count in (1, 2))
    return float(alone + 0.5 * pairs) / num_climbs


def _has_mass(log_mass: np.ndarray) -> np.ndarray:
    return np.asarray(log_mass > np.logaddexp.reduce(log_mass) + math.log(LEAST_SHARE))


def _reference(model: Model, top: Summit, first: Reference, seed: int) -> Reference:
    """The labelling of a mode, with the spreads of draws around it."""
    numbers = random_numbers(seed, Stream.MODE_STARTS, 0, 1)
    draws = Mixture.of(top.position, top.root).draw(numbers, LABEL_DRAWS)
    usable = np.isfinite(features(model, draws)).all(axis=(1, 2))
    return find_reference(model, draws[usable]) if usable.sum() > LABEL_DRAWS // 2 else first


def _log_copies(summit: Summit, cell: Cell | None) -> float:
    """log of K! over the number of permutations that change nothing, since components are equal."""
    if cell is None:
        return 0.0
    components = features(cell.model, summit.position[None])[0] / cell.reference.spread
    alike = np.abs(components[:, None] - components[None]).max(axis=2) < EQUAL
    groups = Counter(tuple(row) for row in alike.tolist())
    equal = sum(math.lgamma(count + 1) for count in groups.values())
    return log_num_labellings(cell.model) - equal
