"""All modes of a posterior, with their curvatures: for Laplace's method and as proposals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from weighbridge.core.errors import ModelError
from weighbridge.core.random import Stream, random_key, random_numbers
from weighbridge.core.thresholds import MAX_UNSEEN_MODES
from weighbridge.estimators.annealing.labels import Cell
from weighbridge.estimators.laplace.charts import Chart
from weighbridge.estimators.laplace.climbing import climb
from weighbridge.estimators.laplace.hills import Hill, hill_of
from weighbridge.estimators.laplace.summit import Kind, Summit, ascend
from weighbridge.estimators.maximization.simulated_annealing import Problem, polish
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.proposals.mixture import Mixture
from weighbridge.models.exchangeable import (
    Reference,
    features,
    find_reference,
    log_num_labellings,
    relabelled,
)
from weighbridge.models.model import Model, draw_positions

# Prior draws: they give the scale of each coordinate, and the best and some others are starts.
NUM_DRAWS = 256
# Ends of climbs within this distance of a mode, in its standard deviations, are that mode.
SAME_MODE = 0.1
# Ends of climbs that are no modes are kept if they may hold this share of the evidence.
LEAST_SHARE = 0.01
# Share of a proposal that is divided evenly over the modes, whatever their masses seem to be.
EVENLY = 0.1
# While more than this share of the climbs were the only one to find their mode, there are further
# ones, up to so many times as many.
MOST_BATCHES = 16
# Draws by which components are labelled; equal components differ by less than this, in spreads.
LABEL_DRAWS, EQUAL = 256, 1e-3


class Modes(NamedTuple):
    """The modes of a posterior in unconstrained coordinates, that with the largest mass first.

    Attributes:
        position: modes x coordinates.
        log_density: unnormalised log posterior at each.
        root: lower triangular roots of the covariances -H^-1, modes x coordinates x coordinates.
        found_by: how many climbs ended at each.
        log_copies: log of the number of copies of each under permutations of exchangeable
            components: log K! if all its components differ.
        kinds: what each is; anything but ``Kind.MODE`` has no usable curvature in some direction.
        cell: the labelling in which the modes are; None if nothing is exchangeable.
        num_starts: number of climbs.
        num_evaluations: evaluations of the density, derivatives included.
    """

    position: np.ndarray
    log_density: np.ndarray
    root: np.ndarray
    found_by: np.ndarray
    log_copies: np.ndarray
    kinds: tuple[Kind, ...]
    cell: Cell | None
    num_starts: int
    num_evaluations: int

    @property
    def log_mass(self) -> np.ndarray:
        r"""Log of the evidence of each mode and its copies by Laplace's method.

        .. math:: \log f(u_k) + \tfrac{D}{2} \log 2\pi - \tfrac12 \log \det(-H_k)
                  + \log(\text{copies})
        """
        log_root = np.sum(np.log(np.diagonal(self.root, axis1=1, axis2=2)), axis=1)
        width = 0.5 * self.position.shape[1] * math.log(2.0 * math.pi) + log_root
        return np.asarray(self.log_density + width + self.log_copies)

    @property
    def unseen(self) -> float:
        """Probability that another climb would end at a mode that is not among these."""
        return unseen_share(self.log_mass, self.found_by, self.num_starts)

    def mixture(self, freedom: float = math.inf) -> Mixture:
        """A mixture with a component at each mode, as a proposal.

        Shares are those of the masses by Laplace's method, with a tenth divided evenly.

        Args:
            freedom: degrees of freedom; infinity for Gaussians.
        """
        mass = np.exp(self.log_mass - np.logaddexp.reduce(self.log_mass))
        share = (1.0 - EVENLY) * mass + EVENLY / len(mass)
        return Mixture(share, self.position, self.root, np.full(len(mass), freedom))


def find_modes(
    density: JointDensity,
    *,
    num_starts: int = 16,
    seed: int = 0,
    chart: Chart | None = None,
    report: Callable[[float], None] | None = None,
) -> Modes:
    """All modes of a posterior that climbs from several starts reach.

    Half of the starts are the best of some prior draws, the others any draws. All climb at once by
    L-BFGS; then Newton's method with the exact curvature takes each different end to its mode. Ends
    at the same mode are merged, after exchangeable components have been put in one labelling.

    A likelihood on the host has no gradient: then Nelder-Mead climbs, and derivatives are finite
    differences; this is refused in more than 12 dimensions.

    If many modes were found by a single climb, there are probably others, and there are further
    climbs, up to 16 times as many; ``unseen`` is what is left. A mode that attracts hardly any
    start is not found, and nothing can show this.

    Args:
        density: the unnormalised log posterior.
        num_starts: number of climbs at first.
        seed: the same seed gives the same starts.
        chart: other coordinates whose density has the modes; the result is in unconstrained ones.
        report: called with the share of the work that is done.

    >>> import numpyro.distributions as dist
    >>> from weighbridge.core.compilation import in_double_precision
    >>> model = Model({"mu": dist.Normal(0, 1)}, lambda p, y: dist.Normal(p["mu"], 1).log_prob(y))
    >>> with in_double_precision():
    ...     modes = find_modes(JointDensity(model, np.array([0.0, 3.0]), np.ones(2)), num_starts=4)
    >>> round(float(modes.position[0, 0]), 6), round(float(modes.root[0, 0, 0] ** 2), 6)
    (1.0, 0.333333)
    """
    model, chart = density.model, Chart() if chart is None else chart
    before = density.num_evaluations
    draws = _prior_draws(model, seed, 0)
    scale = _spread(draws)
    chart.check(model, draws[:16])
    hill = hill_of(density, chart, scale)
    found, evaluations, num_climbs = Range(hill, model, scale), 0, 0
    for batch in range(MOST_BATCHES):
        if batch:
            draws = _prior_draws(model, seed, batch)
        starts = _choose(hill, draws, num_starts)
        if len(starts) and hill.has_gradient:
            ends, taken = climb(chart, density.path, starts, scale, report)
            evaluations += taken
        else:
            ends = _climb_on_host(hill, starts, scale)
        found.add(ends, seed)
        num_climbs += len(starts)
        if num_climbs and found.unseen(num_climbs) <= MAX_UNSEEN_MODES:
            break
    if not found.summits:
        raise ModelError(
            "The density is zero, or not a number, at every prior draw that was tried, so no mode "
            "can be found. Check the log-likelihood, and the scale of the data."
        )
    evaluations += density.num_evaluations - before
    return found.modes(num_climbs, evaluations)


def _prior_draws(model: Model, seed: int, batch: int) -> np.ndarray:
    numbers = random_numbers(seed, Stream.MODE_STARTS, batch)
    key = random_key(int(numbers.integers(2**63)))
    return np.asarray(draw_positions(model, key, NUM_DRAWS))


def _spread(draws: np.ndarray) -> np.ndarray:
    """Half the width of the middle two thirds of the prior: its standard deviation, if normal."""
    low, high = np.quantile(draws, [1 / 6, 5 / 6], axis=0)
    spread = 0.5 * (high - low)
    return np.asarray(np.where(spread > 0, spread, 1.0))


def _choose(hill: Hill, draws: np.ndarray, num_starts: int) -> np.ndarray:
    """Starts: the best of the draws, and others at random."""
    heights = hill.heights(draws)
    order = np.argsort(-heights, kind="stable")[: int(np.isfinite(heights).sum())]
    best = order[: num_starts - num_starts // 2]
    others = np.sort(order[len(best) :])[: num_starts // 2]
    return np.asarray(draws[np.concatenate([best, others])])


def _climb_on_host(hill: Hill, starts: np.ndarray, scale: np.ndarray) -> np.ndarray:
    problem = Problem(hill.heights, hill.heights, None, None)
    return np.array([polish(problem, start, scale)[0] for start in starts])


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


class Range:
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
            near = SAME_MODE if summit.kind is Kind.MODE else 1.0
            if summit.distance(position[None])[0] < near:
                return number
        return None

    def unseen(self, num_climbs: int) -> float:
        """Probability that another climb ends at a mode that is not known yet.

        About the share of climbs that were the only one to find their mode: Good (1953),
        Biometrika 40:237-264.
        """
        if not self.summits:
            return 1.0
        return unseen_share(self._log_mass(), np.array(self.found_by), num_climbs)

    def _log_mass(self) -> np.ndarray:
        masses = np.array([summit.log_mass for summit in self.summits])
        return np.asarray(masses + self._log_copies())

    def _log_copies(self) -> np.ndarray:
        return np.array([_log_copies(summit, self.cell) for summit in self.summits])

    def modes(self, num_starts: int, evaluations: int) -> Modes:
        """All modes, the largest mass first; of each kind that is no mode, the most important."""
        mass, copies = self._log_mass(), self._log_copies()
        is_mode = np.array([summit.kind is Kind.MODE for summit in self.summits])
        top = float(np.max(mass[is_mode], initial=-np.inf))
        kept: list[int] = []
        for number in np.argsort(-mass, kind="stable"):
            if not is_mode[number]:
                kind = self.summits[number].kind
                same = any(self.summits[other].kind is kind for other in kept)
                if same or mass[number] < top + math.log(LEAST_SHARE):
                    continue
            kept.append(int(number))
        chosen = [self.summits[number] for number in kept]
        return Modes(
            np.stack([summit.position for summit in chosen]),
            np.array([summit.log_density for summit in chosen]),
            np.stack([summit.root for summit in chosen]),
            np.array([self.found_by[number] for number in kept]),
            copies[kept],
            tuple(summit.kind for summit in chosen),
            self.cell,
            num_starts,
            evaluations,
        )


def unseen_share(log_mass: np.ndarray, found_by: np.ndarray, num_climbs: int) -> float:
    """The share of climbs that were the only one, or one of two, to find a mode with some mass.

    Those of a pair count a quarter each, so that a lucky number of single ones is no proof.

    >>> unseen_share(np.zeros(4), np.array([6, 1, 1, 2]), 10)
    0.25
    """
    has_mass = log_mass > np.logaddexp.reduce(log_mass) + math.log(LEAST_SHARE)
    alone, pairs = ((found_by[has_mass] == count).sum() for count in (1, 2))
    return float(alone + 0.5 * pairs) / num_climbs
