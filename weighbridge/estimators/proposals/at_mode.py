"""A Gaussian fitted around the mode of a posterior, if all climbs from the prior end there."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_factor, cho_solve

from weighbridge.core import interrupts
from weighbridge.core.compilation import jit_for_speed
from weighbridge.core.random import Stream, random_key, random_numbers
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.cloud import draw_cloud
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.path_density import log_densities
from weighbridge.estimators.proposals.mixture import Mixture
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import sums_at
from weighbridge.models.targets.span import SPAN_BLOCK, Span
from weighbridge.models.targets.unbounded import UnboundedError

# Climbs, each from a draw from the prior of its own; draws with these numbers are used here only.
NUM_CLIMBS = 32
FIRST_CLIMB = 1 << 33
# Further climbs, with the curvature at the mode, which therefore need few steps; a mode that
# attracts one prior draw of a hundred is missed by all climbs together in one run of thirteen.
NUM_FURTHER, FURTHER_CLIMB, FURTHER_STEPS = 224, 3 << 32, 100
# Steps of a climb, and the gain of all climbs together, relative to the height, that ends them.
CLIMB_STEPS, CLIMB_GAIN = 200, 1e-10
# Hessians that are taken at most. With less than this to gain (nats) the top is found.
MOST_HESSIANS, TOP = 4, 0.01
# A climb has ended at the mode if it is nearer than this, in posterior standard deviations, in all
# coordinates together. In D dimensions posterior draws are about sqrt(D) away.
NEAR, LAST_STEPS = 1.0, 5
# Pairs of draws z and -z that centre and stretch the Gaussian, how often they do so at most, and
# the last shift, in posterior standard deviations.
NUM_PAIRS, MOST_FITS, SHIFT = 64, 6, 0.3
# Rows of a block of a Hessian, which holds some numbers for each row and parameter in memory.
HESSIAN_BLOCK = 256


def gaussian_at_mode(path: Path, seed: int, first_island: int) -> Mixture | None:
    r"""A Gaussian around the mode of a log posterior of rows.

    Its mean and the size of its covariance are those of the best Gaussian approximation,

    .. math:: E_q[\nabla \log f] = 0, \qquad
              \mathrm{tr} \bigl( \Sigma \, E_q[-\nabla^2 \log f] \bigr) = D

    and the shape of its covariance is that of the inverse of P, the negative Hessian at the mode.
    In many dimensions the mode itself is a poor centre: in a skewed posterior it is far from the
    mean. The mode is found by L-BFGS from 32 draws from the prior, all of which climb together, and
    then by Newton steps. Then 224 further draws must climb to it. A Hessian costs about D passes
    over the rows; one or two are needed. The expectations are averages over draws of the Gaussian.

    Args:
        path: its density at power 1 is the posterior; the likelihood is a ``Span`` of rows.
        seed: of all draws.
        first_island: another first island has other draws.

    Returns:
        The Gaussian. None if a climb does not end at this mode, since there are others (a mode that
        attracts fewer than one prior draw of a hundred may still be missed); if the density is not
        finite on the way; if it has no second derivatives, or is not curved in all directions; or
        if the rows say nothing about the parameters.

    >>> import numpyro.distributions as dist
    >>> from weighbridge.core.compilation import in_double_precision
    >>> from weighbridge.estimators.proposals.joint_density import JointDensity
    >>> model = Model({"mu": dist.Normal(0, 1)}, lambda p, y: dist.Normal(p["mu"], 1).log_prob(y))
    >>> with in_double_precision():
    ...     density = JointDensity(model, np.array([1.0, 2.0]), np.ones(2))
    ...     found = gaussian_at_mode(density.path, 0, 0)
    >>> round(float(found.mean[0, 0]), 4), round(float(found.root[0, 0, 0]), 4)
    (1.0, 0.5774)

    Tierney & Kadane (1986), J. American Statistical Association 81:82-86; Opper & Archambeau
    (2009), The variational Gaussian approximation revisited, Neural Computation 21:786-792.
    """
    assert isinstance(path.chunk, Span)
    # Copied to the device once: L-BFGS calls the program many times.
    rows = jax.tree_util.tree_map(jnp.asarray, path.chunk.rows)
    path = replace(path, chunk=replace(path.chunk, rows=rows))
    if not _has_hessian(path):
        return None
    key = random_key(seed)
    start, further = (
        draw_cloud(path.model, key, np.array([first + first_island]), count).position[0]
        for first, count in ((FIRST_CLIMB, NUM_CLIMBS), (FURTHER_CLIMB, NUM_FURTHER))
    )
    numbers = random_numbers(seed, Stream.MODE_DRAWS, first_island)
    try:
        return _found(path, start, further, numbers)
    except UnboundedError:  # the density is infinite where no particle of a path may ever come
        return None


def _found(
    path: Path, start: np.ndarray, further: np.ndarray, numbers: np.random.Generator
) -> Mixture | None:
    """The Gaussian, if all climbs from these starts end at one mode."""
    spread = np.std(start, axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    ends = _climbed(path, start, np.diag(scale), CLIMB_STEPS)
    top = None if ends is None else _top(path, ends)
    if ends is None or top is None:
        return None
    mode, factor = top
    if not _all_at(path, ends, mode, factor):
        return None
    root = np.linalg.cholesky(cho_solve(factor, np.eye(len(mode))))
    ends = _climbed(path, further, root, FURTHER_STEPS)
    if ends is None or not _all_at(path, ends, mode, factor):
        return None
    return _fitted(path, mode, root, numbers)


def _has_hessian(path: Path) -> bool:
    """Whether the density has second derivatives; one with a gradient of its own may have none."""
    try:
        _exact.shape(path.model, np.zeros(path.model.dimension), path.chunk, SPAN_BLOCK)
    except Exception:
        return False
    return True


def _fitted(
    path: Path, mean: np.ndarray, root: np.ndarray, numbers: np.random.Generator
) -> Mixture | None:
    """The Gaussian, centred and stretched until the gradients of its draws average to zero.

    With white noise z, the mean of -z' R' grad log f(m + R z) is the trace, by Stein's lemma.
    """
    for _ in range(MOST_FITS):
        interrupts.check()
        half = numbers.standard_normal((NUM_PAIRS, len(mean)))
        noise = np.concatenate([half, -half])
        _, slope = _heights(path, mean + noise @ root.T)
        white = slope @ root
        shift = white.mean(axis=0)
        # In units of that of white noise, so that a Gaussian posterior is met exactly.
        curvature = -float(np.sum(white * noise) / np.sum(noise**2))
        if not (np.isfinite(shift).all() and curvature > 0):
            return None
        mean = mean + root @ shift
        root = root / math.sqrt(curvature)
        if np.linalg.norm(shift) < SHIFT:
            return Mixture.of(mean, root)
    return None


def _climbed(path: Path, start: np.ndarray, root: np.ndarray, steps: int) -> np.ndarray | None:
    """The ends of climbs from these positions; None if the density is not finite everywhere.

    The sum of all heights is maximised, so that one pass over the rows serves all climbs. They
    climb in the coordinates v of start + root v.
    """

    def downhill(place: np.ndarray) -> tuple[float, np.ndarray]:
        interrupts.check()
        height, slope = _heights(path, start + place.reshape(start.shape) @ root.T)
        total = float(np.sum(height))
        if not math.isfinite(total):
            return 1e300, np.zeros_like(place)
        return -total, -(np.nan_to_num(slope) @ root).reshape(-1)

    # Imported here: it takes a tenth of a second, and most models do not need it.
    from scipy.optimize import minimize

    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": CLIMB_GAIN, "gtol": 1e-9}
    found = minimize(downhill, np.zeros(start.size), jac=True, method="L-BFGS-B", options=options)
    if not abs(found.fun) < 1e300:
        return None
    return np.asarray(start + found.x.reshape(start.shape) @ root.T)


def _top(path: Path, ends: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, bool]] | None:
    """The mode near the highest of these positions, and the Cholesky factor of P there."""
    height, _ = _heights(path, ends)
    position = ends[np.argmax(height)]
    before = -math.inf
    for _ in range(MOST_HESSIANS):
        interrupts.check()
        value, slope, curvature, flat = (np.asarray(part) for part in _expansion(path, position))
        if flat or not (np.isfinite(curvature).all() and value > before - TOP):
            return None
        try:
            factor = cho_factor(-0.5 * (curvature + curvature.T), lower=True)
        except np.linalg.LinAlgError:
            return None
        step = cho_solve(factor, slope)
        position, before = position + step, float(value)
        if 0.5 * slope @ step < TOP:
            return position, factor
    return None


def _all_at(
    path: Path, ends: np.ndarray, mode: np.ndarray, factor: tuple[np.ndarray, bool]
) -> bool:
    """Whether a few Newton steps with one Hessian bring all ends to the mode."""
    root = np.tril(factor[0])
    for _ in range(LAST_STEPS):
        if np.max(np.linalg.norm((ends - mode) @ root, axis=1)) < NEAR:
            return True
        _, slope = _heights(path, ends)
        if not np.isfinite(slope).all():
            return False
        ends = ends + cho_solve(factor, slope.T).T
    return False


def _heights(path: Path, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log densities and gradients at positions x coordinates."""
    height, slope = log_densities(path, position[None], differentiable=True)
    assert slope is not None
    return height[0], slope[0]


def _expansion(path: Path, position: np.ndarray) -> tuple[Array, Array, Array, Array]:
    """Log density, gradient and Hessian at a position, and whether the rows say nothing there."""
    span = path.chunk
    assert isinstance(span, Span)
    block = math.gcd(len(span.rows.weight), HESSIAN_BLOCK)
    return _exact(path.model, position, span, block)


@partial(jit_for_speed, static_argnums=3)
def _exact(
    model: Model, position: Array, span: Span, block: int
) -> tuple[Array, Array, Array, Array]:
    def log_prior(position: Array) -> Array:
        return model.transform(position)[1]

    value, slope = jax.value_and_grad(log_prior)(position)
    sums = sums_at(model, position, span, block, curved=True)
    assert sums.curvature is not None
    curvature = jax.jacfwd(jax.grad(log_prior))(position) + sums.curvature
    flat = jnp.all(sums.curvature == 0.0)
    return value + sums.value, slope + sums.gradient, curvature, flat
