"""All modes of a posterior, with their curvatures: for Laplace's method and as proposals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from weighbridge.core.errors import ModelError
from weighbridge.core.random import Stream, random_key, random_numbers
from weighbridge.estimators.annealing.labels import Cell
from weighbridge.estimators.laplace.charts import Chart
from weighbridge.estimators.laplace.climbing import climb
from weighbridge.estimators.laplace.ends import LEAST_SHARE, Ends, unseen_share
from weighbridge.estimators.laplace.hills import Hill, hill_of
from weighbridge.estimators.laplace.summit import SummitKind
from weighbridge.estimators.maximization.simulated_annealing import Problem, polish
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.proposals.mixture import Mixture
from weighbridge.models.model import Model, draw_positions

# Prior draws: they give the scale of each coordinate, and the best and some others are starts.
NUM_DRAWS = 256
# Share of a proposal that is divided evenly over the modes, whatever their masses seem to be.
EVENLY = 0.1
# While there are likely to be other modes, there are further climbs, up to so many times as many.
MOST_BATCHES = 16
# What results by modes say, since nothing can show a mode that no climb found.
REMARK = "Only modes that climbs from prior draws found are part of this log evidence."


class Modes(NamedTuple):
    """The modes of a posterior in unconstrained coordinates, that with the largest mass first.

    Attributes:
        position: modes x coordinates.
        log_density: unnormalised log posterior at each.
        root: lower triangular roots of the covariances -H^-1, modes x coordinates x coordinates.
        found_by: how many climbs ended at each.
        log_copies: log of the number of copies of each under permutations of exchangeable
            components: log K! if all its components differ.
        kinds: what each is; all but ``SummitKind.MODE`` lack a usable curvature in some direction.
        cell: the labelling in which the modes are; None if nothing is exchangeable.
        num_starts: number of climbs.
        num_evaluations: evaluations of the density, derivatives included.
    """

    position: np.ndarray
    log_density: np.ndarray
    root: np.ndarray
    found_by: np.ndarray
    log_copies: np.ndarray
    kinds: tuple[SummitKind, ...]
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

    Half of the first starts are the best of some prior draws, the others any draws. As many climbs
    from any draws follow, where there are gradients. All climb at once by L-BFGS; then Newton's
    method with the exact curvature takes each different end to its mode. Ends at the same mode are
    merged, after exchangeable components have been put in one labelling.

    A likelihood on the host has no gradient: then Nelder-Mead climbs, and derivatives are finite
    differences; this is refused in more than 12 dimensions.

    Of several modes, there are further climbs, up to 16 times as many: eight for each mode and for
    one more, and while many modes were found by one or two climbs only, since there are probably
    others. ``unseen`` is the probability that is left. A mode that attracts hardly any start is not
    found, and nothing can show this.

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
    found, evaluations, num_climbs = Ends(hill, model, scale), 0, 0
    for batch in range(MOST_BATCHES):
        if batch:
            draws = _prior_draws(model, seed, batch)
        starts = _choose(hill, draws, num_starts, num_best=0 if batch else (num_starts + 1) // 2)
        if len(starts) and hill.has_gradient:
            ends, taken = climb(chart, density.path, starts, scale, _of_batch(report, batch))
            evaluations += taken
        else:
            ends = _climb_on_host(hill, starts, scale)
        found.add(ends, seed)
        num_climbs += len(starts)
        # The best draws may all be in one broad mode, so climbs from any draws come after them.
        if (batch or not hill.has_gradient) and found.are_all(num_climbs):
            break
    if not found.summits:
        raise ModelError(
            "The density is zero, or not a number, at every prior draw that was tried, so no mode "
            "can be found. Check the log-likelihood, and the scale of the data."
        )
    evaluations += density.num_evaluations - before
    return _modes(found, num_climbs, evaluations)


def _prior_draws(model: Model, seed: int, batch: int) -> np.ndarray:
    numbers = random_numbers(seed, Stream.MODE_STARTS, batch)
    key = random_key(int(numbers.integers(2**63)))
    return np.asarray(draw_positions(model, key, NUM_DRAWS))


def _spread(draws: np.ndarray) -> np.ndarray:
    """Half the width of the middle two thirds of the prior: its standard deviation, if normal."""
    low, high = np.quantile(draws, [1 / 6, 5 / 6], axis=0)
    spread = 0.5 * (high - low)
    return np.asarray(np.where(spread > 0, spread, 1.0))


def _choose(hill: Hill, draws: np.ndarray, num_starts: int, num_best: int) -> np.ndarray:
    """Starts: the best of the draws, and others at random."""
    heights = hill.heights(draws)
    order = np.argsort(-heights, kind="stable")[: int(np.isfinite(heights).sum())]
    best = order[:num_best]
    others = np.sort(order[num_best:])[: num_starts - num_best]
    return np.asarray(draws[np.concatenate([best, others])])


def _of_batch(report: Callable[[float], None] | None, batch: int) -> Callable[[float], None] | None:
    """The report of a batch of climbs: half of what the batches before it left to be done."""
    if report is None:
        return None
    left = 0.5**batch
    return lambda share: report(1.0 - left * (1.0 - 0.5 * share))


def _climb_on_host(hill: Hill, starts: np.ndarray, scale: np.ndarray) -> np.ndarray:
    problem = Problem(hill.heights, hill.heights, None, None)
    return np.array([polish(problem, start, scale)[0] for start in starts])


def _modes(ends: Ends, num_starts: int, evaluations: int) -> Modes:
    """All modes, the largest mass first; of each kind that is no mode, the most important."""
    mass, copies = ends.log_mass(), ends.log_copies()
    is_mode = np.array([summit.kind is SummitKind.MODE for summit in ends.summits])
    top = float(np.max(mass[is_mode], initial=-np.inf))
    kept: list[int] = []
    for number in np.argsort(-mass, kind="stable"):
        if not is_mode[number]:
            kind = ends.summits[number].kind
            same = any(ends.summits[other].kind is kind for other in kept)
            if same or mass[number] < top + math.log(LEAST_SHARE):
                continue
        kept.append(int(number))
    chosen = [ends.summits[number] for number in kept]
    return Modes(
        np.stack([summit.position for summit in chosen]),
        np.array([summit.log_density for summit in chosen]),
        np.stack([summit.root for summit in chosen]),
        np.array([ends.found_by[number] for number in kept]),
        copies[kept],
        tuple(summit.kind for summit in chosen),
        ends.cell,
        num_starts,
        evaluations,
    )
