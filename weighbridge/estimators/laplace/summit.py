"""From a point near the top of a hill to the mode, by Newton's method; and what was found there."""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

import numpy as np

from weighbridge.core import interrupts
from weighbridge.estimators.laplace.hills import Expansion, Hill

MAX_NEWTON_STEPS = 100
# The smallest curvature that a step uses, in units of one over the prior's variance; the longest
# step, in standard deviations of the prior.
LEAST_CURVATURE, LONGEST_STEP = 1e-3, 3.0
# Along a line, shares of a step that are tried together.
SHARES = 0.5 ** np.arange(16)
# A mode is found if the next step promises less than this (nats): with exact derivatives, with
# finite differences, and for values so large that their rounding is larger.
CLOSE, CLOSE_ON_HOST, ROUNDING = 1e-8, 1e-5, 1e-13
# A mode ten standard deviations of the prior wide, in some direction, has no curvature of its own.
# In D dimensions D times the variance is allowed: a prior may be narrow for each coordinate, and
# wide for their sum.
SINGULAR = 0.01
# A bounded coordinate beyond this value is at the edge of its support.
EDGE = 30.0


class SummitKind(enum.Enum):
    """What the end of a climb is."""

    MODE = "mode"
    SADDLE = "saddle point"
    SINGULAR = "singular curvature"
    EDGE = "at the edge of the support"
    UNCONVERGED = "not converged"


class Summit(NamedTuple):
    """The end of a climb.

    Attributes:
        position: an unconstrained vector.
        log_density: of the unconstrained coordinates there, not normalised.
        root: lower triangular root of the covariance that the curvature gives. Where the curvature
            is not that of a mode, its directions have at most the width of ``SINGULAR``.
        kind: what it is.
    """

    position: np.ndarray
    log_density: float
    root: np.ndarray
    kind: SummitKind

    @property
    def log_mass(self) -> float:
        r"""Laplace's method: log f + D/2 log 2 pi - 1/2 log det(-H)."""
        dimension = len(self.position)
        log_root = float(np.sum(np.log(np.diag(self.root))))
        return self.log_density + 0.5 * dimension * math.log(2.0 * math.pi) + log_root

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Distance of points from this one, in its own standard deviations."""
        white = np.linalg.solve(self.root, (points - self.position).T)
        return np.asarray(np.sqrt(np.sum(white**2, axis=0)))


def ascend(hill: Hill, start: np.ndarray, scale: np.ndarray, bounded: np.ndarray) -> Summit:
    r"""Newton's method with the absolute values of curvatures, so that it climbs everywhere.

    .. math:: u' = u + t \, V |\Lambda|^{-1} V^\top \nabla h, \qquad -\nabla^2 h = V \Lambda V^\top

    Where the gradient vanishes at a saddle point, it leaves in the direction that curves upwards.
    Dauphin et al. (2014), Advances in Neural Information Processing Systems 27.

    Args:
        hill: the log density.
        start: an unconstrained position where it is not zero.
        scale: spread of the prior, the unit of each coordinate.
        bounded: which coordinates approach a bound of the support as they go to infinity.
    """
    position, here = start, hill.expand(start)
    close = max(CLOSE if hill.has_gradient else CLOSE_ON_HOST, ROUNDING * abs(here.value))
    promise = math.inf
    for _ in range(MAX_NEWTON_STEPS):
        interrupts.check()
        if not _is_finite(here):
            break
        values, vectors = _axes(here, scale)
        along = vectors.T @ (scale * here.gradient)
        step = along / np.maximum(np.abs(values), LEAST_CURVATURE)
        promise = 0.5 * float(along @ step)
        step *= min(1.0, LONGEST_STEP / max(float(np.linalg.norm(step)), 1e-300))
        if promise < close:
            if values[0] > 0 and hill.has_gradient:  # the last step: heights cannot tell any more
                position = position + scale * (vectors @ step)
                here = hill.expand(position)
                break
            if values[0] >= 0:
                break
            step = np.zeros_like(step)
            step[0] = min(LONGEST_STEP, 1.0 / math.sqrt(abs(values[0])))
            tries = np.concatenate([SHARES, -SHARES])
        else:
            tries = SHARES
        where = position + tries[:, None] * (scale * (vectors @ step))
        heights = hill.heights(where)
        best = int(np.argmax(heights))
        if not heights[best] > here.value:
            break
        position, here = where[best], hill.expand(where[best])
        if np.any(np.abs(position[bounded]) > 2 * EDGE):
            break
    converged = promise < 100 * close
    return _summit(position, here, scale, bounded, converged=converged)


def _is_finite(here: Expansion) -> bool:
    return bool(
        math.isfinite(here.value)
        and np.isfinite(here.gradient).all()
        and np.isfinite(here.curvature).all()
    )


def _axes(here: Expansion, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, ascending, and eigenvectors of minus the curvature, in units of the prior."""
    values, vectors = np.linalg.eigh(-scale[:, None] * here.curvature * scale)
    return values, vectors


def _summit(
    position: np.ndarray,
    here: Expansion,
    scale: np.ndarray,
    bounded: np.ndarray,
    *,
    converged: bool,
) -> Summit:
    dimension = len(position)
    height = here.value + here.log_volume
    if not _is_finite(here):
        return Summit(position, height, np.diag(scale), SummitKind.UNCONVERGED)
    values, vectors = _axes(here, scale)
    least = SINGULAR / dimension
    kind = SummitKind.MODE
    if values[0] < least:
        weak = vectors[:, values < least]
        towards_bound = float(np.sum(weak[bounded] ** 2) / weak.shape[1])
        far = bool(np.any(np.abs(position[bounded]) > 3 * scale[bounded]))
        if towards_bound > 0.5 and far:
            kind = SummitKind.EDGE
        else:
            kind = SummitKind.SADDLE if values[0] < -least else SummitKind.SINGULAR
    if not converged and kind is not SummitKind.EDGE:
        kind = SummitKind.UNCONVERGED
    if np.any(np.abs(position[bounded]) > EDGE):
        kind = SummitKind.EDGE
    half = scale[:, None] * vectors / np.sqrt(np.maximum(values, least))
    return Summit(position, height, triangular(half), kind)


def triangular(half: np.ndarray) -> np.ndarray:
    """The lower triangular root with a positive diagonal of ``half @ half.T``.

    >>> triangular(np.array([[3.0, 4.0], [0.0, 1.0]])).round(6).tolist()
    [[5.0, 0.0], [0.8, 0.6]]
    """
    upper = np.asarray(np.linalg.qr(half.T, mode="r"))
    signs = np.where(np.diag(upper) < 0, -1.0, 1.0)
    return np.asarray(upper.T * signs)
