"""Whether a model is another one with some parameters held at a point."""

from __future__ import annotations

import jax
import numpy as np

from weighbridge.core.compilation import jit, own
from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.random import random_key
from weighbridge.core.types import Array
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.ratios.pinned import Pinned
from weighbridge.estimators.ratios.points import Point
from weighbridge.estimators.reweighting.log_ratio import log_slopes
from weighbridge.models.model import Model, draw_positions, unravel_positions
from weighbridge.models.named_draws import locate

# Prior draws of the smaller model at which the two are compared.
COMPARED = 256
# Largest difference of two log densities that are the same, relative to their size.
SAME = 1e-6


def require_names(model: Model, nested: Model, point: Point) -> None:
    """Refuse a smaller model whose parameters are not those that remain."""
    if any(not held.all() for held, _ in point.values()):
        raise MethodError(
            "nested= is for points that hold whole parameters. Leave it out: then the smaller "
            "model has the prior p(rest | point); or give the entries names of their own."
        )
    left = {site.name: site.shape for site in model.sites if site.name not in point}
    found = {site.name: site.shape for site in nested.sites}
    if not left:
        raise MethodError("The point holds every parameter: there is nothing left for nested=.")
    if left != found:
        raise ModelError(
            f"nested has the parameters {found}; the model without those of the point has {left}. "
            "Give them the same names and shapes."
        )


def prior_gap(smaller: JointDensity, pinned: JointDensity, log_prior: tuple[float, float]) -> float:
    r"""The largest difference of the priors of the smaller model and of the full one at the point.

    .. math:: \max_\phi |\log p_{nested}(\phi) - \log p(\phi \mid \beta_0)|

    over prior draws of the smaller model; 0 if they are the same up to rounding. Another likelihood
    than that of the full model at the point is refused, and so is a prior with mass where the full
    model has none.

    Args:
        smaller: density of the smaller model.
        pinned: density of the full model held at the point.
        log_prior: log prior density of the point, and its standard error.
    """
    nested, held = smaller.model, pinned.model
    assert isinstance(held, Pinned)
    positions = np.asarray(draw_positions(nested, random_key(0), COMPARED))
    named = {n: np.asarray(v) for n, v in unravel_positions(nested, own(positions)).items()}
    values = dict(zip(dict(held.held), held.values))
    point = {n: np.broadcast_to(v, (COMPARED, *np.shape(v))) for n, v in values.items()}
    located, outside = locate(held.base, {**named, **point})
    wrong = np.any([outside[name] for name in named], axis=0)  # the point may be on an edge
    moved = np.where(np.isfinite(located[:, held.kept]), located[:, held.kept], 0.0)
    prior_height, height = _priors(held, moved), _priors(nested, positions)
    wrong |= ~np.isfinite(prior_height).all(axis=0)
    if wrong.any():
        raise ModelError(
            f"The prior of nested has mass outside the support of the model's prior at the point "
            f"({np.mean(wrong):.1%} of its draws): it is not the model with these parameters fixed."
        )
    likelihoods = [smaller(positions) - height[1], pinned(moved) - prior_height[1]]
    both = np.isfinite(likelihoods).all(axis=0)
    if not np.allclose(likelihoods[0][both], likelihoods[1][both], rtol=SAME, atol=SAME):
        raise ModelError(
            "The likelihood of nested is not that of the model at the point (they differ by up to "
            f"{np.max(np.abs(likelihoods[0] - likelihoods[1])[both]):.3g} nats at the same "
            "parameters): it is not nested in the model. Weigh both models and use wb.compare."
        )
    gap = float(np.max(np.abs(height[0] - (prior_height[0] - log_prior[0]))))
    scale = 1.0 + float(np.max(np.abs(height[0])))
    return gap if gap > SAME * scale + 5.0 * log_prior[1] else 0.0


def _priors(model: Model, positions: np.ndarray) -> np.ndarray:
    """Log prior densities of the parameters themselves, and of the unconstrained vectors."""
    height = np.asarray(_log_priors(model, own(positions)))
    return np.stack([height - log_slopes(model, positions), height])


@jit
def _log_priors(model: Model, positions: Array) -> Array:
    log_prior: Array = jax.vmap(lambda u: model.transform(u)[1])(positions)
    return log_prior
