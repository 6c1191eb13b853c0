"""The tops of a posterior that many quick climbs reach: from the prior, and from hot particles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtri

from weighbridge.core.random import Stream, random_key, random_numbers
from weighbridge.estimators.annealing.cloud import Cloud, draw_cloud, shares
from weighbridge.estimators.annealing.labels import Cell
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.path_density import log_densities
from weighbridge.estimators.second_look.climbs import climb_together
from weighbridge.estimators.second_look.joining import MIN_UNCERTAIN_SHARE, OUTSIDE
from weighbridge.models.exchangeable import relabelled

# The power of the likelihood when it is climbed almost alone.
ALONE = 64.0
# Peaks that are told apart; ends of climbs this near (in standard deviations) are at one peak.
MAX_PEAKS, SAME_PEAK = 32, 1.0
# Ends of climbs beyond this many standard deviations from every peak call for more climbs.
ELSEWHERE = 6.0
# Batches of climbs from the prior if there are several peaks.
BATCHES = 3
# Half of a step of finite differences, in spreads of the prior.
DIFFERENCE = 1e-5
# A peak is at most this many spreads of the prior wide in each direction.
WIDEST = 10.0
# A density that reads more numbers than this is climbed by fewer climbs in each island.
MANY_NUMBERS, FEW_CLIMBS = 2000, 4
# Likewise in more dimensions than this.
MANY_COORDINATES = 50


class Peak(NamedTuple):
    """A local maximum.

    Attributes:
        position: coordinates.
        covariance: minus the inverse of the curvature.
        log_mass: by Laplace's method.
        found_by: how many climbs ended there.
        is_flat: whether it is a ridge or a plain: its curvature tells nothing of its mass.
        is_known: whether the particles of the path carry its mass, or it is flat.
    """

    position: np.ndarray
    covariance: np.ndarray
    log_mass: float
    found_by: int
    is_flat: bool = False
    is_known: bool = False

    def distance(self, position: np.ndarray) -> np.ndarray:
        """Distance of positions, in standard deviations."""
        root = np.linalg.cholesky(self.covariance)
        white = solve_triangular(root, (position - self.position).T, lower=True)
        return np.asarray(np.sqrt(np.sum(white**2, axis=0)))


# Curvatures and distances may overflow where climbs went astray; such ends are left out.
@np.errstate(all="ignore")
def find_peaks(
    seed: int,
    path: Path,
    cloud: Cloud,
    islands: np.ndarray,
    cell: Cell | None,
    hot: np.ndarray,
) -> list[Peak]:
    """The peaks that climbs reach, the highest first.

    Climbs begin at draws from the prior and at particles of low powers; and at draws that first
    climbed the likelihood alone, whose top may be where the prior hardly ever draws. If the path
    does not carry the mass of all peaks, other climbs begin at crossings of their ends (some
    coordinates from one end, and the others from another one) and at more draws.

    Args:
        seed: the same seed gives the same starts.
        path: ends at the posterior; differentiable.
        cloud: particles at the end of the path, in the labelling of ``cell``.
        islands: log evidence of each island.
        cell: the cell of the labelling, if components may be permuted.
        hot: particles of low powers, particles x coordinates; may be empty.
    """
    climb = _Climbs(seed, path, cloud.position.shape, cell)
    found = climb.up(climb.starts(hot, 0))
    alone = climb.up(climb.starts(hot, 0), ALONE)
    peaks = _known(climb.peaks(*found), cloud, islands)
    if all(peak.is_flat for peak in peaks) or not len(alone[0]):
        return peaks
    near = np.min([peak.distance(alone[0]) for peak in peaks], axis=0) <= ELSEWHERE
    if near.all() and all(peak.is_known for peak in peaks):
        return peaks
    batches = [found, climb.up(climb.crossings(found[0], alone[0]))]
    peaks = _known(climb.peaks(*_together(batches)), cloud, islands)
    if all(peak.is_known for peak in peaks):
        return peaks
    batches += [climb.up(climb.starts(hot, number)) for number in range(1, BATCHES)]
    return _known(climb.peaks(*_together(batches)), cloud, islands)


def _together(batches: list[tuple[np.ndarray, np.ndarray]]) -> Iterator[np.ndarray]:
    return (np.concatenate(parts) for parts in zip(*batches))


def _known(peaks: list[Peak], cloud: Cloud, islands: np.ndarray) -> list[Peak]:
    """The peaks, marked as known if the particles of the path carry the mass of all of them.

    They do if islands agree about the mass at every peak, and if those peaks at which they have
    less than half of what Laplace's method says lack little together. All peaks are marked, or
    none: one that has much by chance also looks uncertain, and one that has little looks certain,
    so that choosing some of them would make the answer too low.
    """
    hills = [peak for peak in peaks if not peak.is_flat]
    if not hills:
        return peaks
    count, _, dimension = cloud.position.shape
    total = np.logaddexp.reduce([peak.log_mass for peak in hills])
    share = shares(cloud).reshape(count, -1) * count
    top = islands.max() if np.isfinite(islands).any() else 0.0
    value = np.exp(islands - top)
    value = value / max(value.mean(), 1e-300)
    radius = math.sqrt(chdtri(dimension, OUTSIDE))
    lacking, unsure = 0.0, 0.0
    for peak in hills:
        inside = peak.distance(cloud.position.reshape(-1, dimension)) <= radius
        mass = value * np.sum(np.where(inside.reshape(share.shape), share, 0.0), axis=1)
        wanted = math.exp(peak.log_mass - total)
        lacking += wanted - mass.mean() if mass.mean() < 0.5 * wanted else 0.0
        unsure = max(unsure, float(np.std(mass)) / math.sqrt(max(count - 3, 1)))
    is_known = max(lacking, unsure) <= MIN_UNCERTAIN_SHARE
    return [peak._replace(is_known=is_known or peak.is_flat) for peak in peaks]


class _Climbs:
    """Climbs in as many places at once as the run has particles, or fewer if they take long."""

    def __init__(self, seed: int, path: Path, shape: tuple[int, ...], cell: Cell | None) -> None:
        self.path, self.cell = path, cell
        islands, particles, dimension = shape
        self.numbers = random_numbers(seed, Stream.MODE_STARTS, 0, 2)
        self.key = int(self.numbers.integers(2**62))
        self.draws = islands, particles
        is_long = path.num_numbers > MANY_NUMBERS or dimension > MANY_COORDINATES
        at_once = min(particles, FEW_CLIMBS) if is_long else particles
        self.shape = islands, at_once, dimension
        self.count = islands * at_once
        low, high = np.quantile(self._prior(0), [1 / 6, 5 / 6], axis=0)
        self.scale = np.where(high > low, 0.5 * (high - low), 1.0)

    def _prior(self, batch: int) -> np.ndarray:
        """Draws from the prior, as many as there are particles."""
        islands, particles = self.draws
        key = random_key(self.key + batch)
        draws = draw_cloud(self.path.model, key, np.arange(islands), particles).position
        return draws.reshape(-1, self.shape[2])

    def starts(self, hot: np.ndarray, batch: int) -> np.ndarray:
        """Draws from the prior, and hot particles in every fourth place."""
        prior = self._prior(batch)
        chosen = prior[:: len(prior) // self.count][: self.count].copy()
        if len(hot):
            places = slice(3, None, 4)
            number = len(chosen[places])
            chosen[places] = hot[self.numbers.integers(len(hot), size=number)]
        return chosen

    def crossings(self, *ends: np.ndarray) -> np.ndarray:
        """Ends of climbs in every second place, else coordinates of two ends each."""
        every = np.concatenate(ends)
        # The last kind of ends has half of the places: it has not climbed the posterior yet.
        first = self.numbers.integers(len(every), size=self.count)
        first[::2] = len(every) - 1 - self.numbers.integers(len(ends[-1]), size=len(first[::2]))
        second = self.numbers.integers(len(every), size=self.count)
        mixed = self.numbers.random((self.count, self.shape[2])) < 0.5
        mixed[::2] = True
        return np.where(mixed, every[first], every[second])

    def up(self, starts: np.ndarray, power: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """The ends of climbs where the density is finite, and their heights."""
        ends, heights = climb_together(partial(self._measure, power), starts, self.scale)
        finite = np.isfinite(heights)
        ends, heights = ends[finite], heights[finite]
        if self.cell is not None and len(ends):
            ends = relabelled(self.cell.model, ends, self.cell.reference)
        return ends, heights

    def peaks(self, ends: np.ndarray, heights: np.ndarray) -> list[Peak]:
        """The ends gathered to peaks, the highest first."""
        order = np.argsort(-heights, kind="stable")
        ends, heights = ends[order], heights[order]
        left, found = np.ones(len(ends), bool), list[Peak]()
        while left.any() and len(found) < MAX_PEAKS:
            top = int(np.argmax(left))
            peak = self._peak(ends[top], float(heights[top]))
            left[top] = False
            if peak is None:
                continue
            near = left & (peak.distance(ends) <= SAME_PEAK)
            left &= ~near
            found.append(peak._replace(found_by=1 + int(near.sum())))
        return found

    def _peak(self, top: np.ndarray, height: float) -> Peak | None:
        """A peak with its curvature, from differences of the gradient."""
        half = np.diag(DIFFERENCE * self.scale)
        slopes = self._measure(1.0, np.concatenate([top + half, top - half]))[1]
        ahead, behind = np.split(slopes * self.scale, 2)
        curvature = (behind - ahead) / (2.0 * DIFFERENCE)
        if not np.isfinite(curvature).all():
            return None
        try:
            values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
            axes = self.scale[:, None] * vectors / np.sqrt(np.maximum(values, WIDEST**-2))
            covariance = axes @ axes.T
            root = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return None
        log_det = 2.0 * np.sum(np.log(np.diag(root)))
        width = 0.5 * (len(top) * math.log(2.0 * math.pi) + float(log_det))
        return Peak(top, covariance, height + width, 1, bool(values[0] < WIDEST**-2))

    def _measure(self, power: float, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log density and gradient at any number of places, as many at once as there are climbs."""
        heights, slopes = [], []
        for start in range(0, len(where), self.count):
            block = where[start : start + self.count]
            padded = np.concatenate([block, np.repeat(block[-1:], self.count - len(block), axis=0)])
            height, slope = log_densities(
                self.path,
                padded.reshape(self.shape),
                differentiable=True,
                power=power,
                bounded=False,
            )
            assert slope is not None
            heights.append(height.reshape(-1)[: len(block)])
            slopes.append(slope.reshape(self.count, -1)[: len(block)])
        return np.concatenate(heights), np.concatenate(slopes)
