"""A mixture of Gaussians with diagonal covariances; the assignments are summed out."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.transforms import AffineTransform

from weighbridge.core.errors import ModelError
from weighbridge.core.types import Array
from weighbridge.models.model import Model
from weighbridge.zoo.arguments import check_count

# A simulation makes this many draws from the prior, and uses the one with the clearest clusters.
NUM_CANDIDATES = 256

# The stream with a shifting distribution: by default its phases use the first 3, 5 and 7 clusters.
SHIFT_CLUSTERS = (3, 5, 7)
SHIFT_MEANS = np.array(
    [[-3.0, -2.0], [3.0, -2.0], [0.0, 3.0], [-1.2, -2.8], [2.0, 2.6], [3.2, 0.0], [-1.6, 1.4]]
)
SHIFT_SCALES = np.array(
    [[0.7, 0.6], [0.6, 0.8], [0.6, 0.7], [0.5, 0.6], [0.7, 0.5], [0.5, 0.8], [0.8, 0.4]]
)


def model(num_components: int = 5, num_features: int = 2) -> Model:
    r"""Gaussian mixture with diagonal covariances.

    .. math::

        p(y) = \sum_k \beta_k \prod_j N(y_j | \mu_{kj}, \sigma^2_{kj}), \qquad
        \beta \sim \text{Dirichlet}(1), \quad
        \sigma^2_{kj} \sim \text{InverseGamma}(1, 1), \quad
        \mu_{kj} \sim N(0, 4 \sigma^2_{kj})

    Args:
        num_components: number of Gaussians K.
        num_features: length of one observation.

    Returns:
        A model of rows that are vectors (the data is one array ``[n, num_features]``), with
        parameters "weights" [K], "s2" and "mu" [K, num_features]. The same arguments give the
        same object.

    >>> model()
    Model(weights[5], s2[5, 2], mu[5, 2]; 24 dimensions)
    >>> model(3).exchangeable
    (('weights', 0), ('mu', 0), ('s2', 0))

    Reference: Cameron, Eggers and Kroon (2019), Entropy 21:1109, appendix B.3.
    """
    return _build(
        check_count("num_components", num_components), check_count("num_features", num_features)
    )


@functools.cache
def _build(num_components: int, num_features: int) -> Model:
    shape = [num_components, num_features]
    return Model(
        prior={
            "weights": dist.Dirichlet(np.ones(num_components)),
            "s2": dist.InverseGamma(1.0, 1.0).expand(shape).to_event(2),
            "mu": _prior_of_means,
        },
        log_likelihood=_log_likelihood,
        response="density",
        exchangeable={"weights": 0, "mu": 0, "s2": 0},
    )


def _prior_of_means(parameters: Any) -> Any:
    # Non-centred: without rows, the prior width of a mean depends on the variance of the component.
    scale = 2.0 * jnp.sqrt(parameters["s2"])
    standard = dist.Normal(jnp.zeros(scale.shape), 1.0).to_event(2)
    return dist.TransformedDistribution(standard, AffineTransform(0.0, scale))


def _log_likelihood(parameters: Any, row: Any) -> Array:
    mean, variance = parameters["mu"], parameters["s2"]
    if row.shape != mean.shape[1:]:
        raise ModelError(
            f"This mixture is a model of vectors of length {mean.shape[1]}; a row of the data has "
            f"the shape {list(row.shape)}. Set num_features, or give one array [n, "
            f"{mean.shape[1]}]."
        )
    # The squares are expanded into one matrix product for all rows and particles, which takes a
    # quarter of the time. Only the powers of y depend on the row: vmap computes the rest once.
    smallest = np.finfo(mean.dtype).tiny
    log_weight = jnp.log(jnp.maximum(parameters["weights"], smallest))
    half_precision = 0.5 / variance
    squares = jnp.sum(half_precision * mean**2 + 0.5 * jnp.log(2 * math.pi * variance), axis=-1)
    constant = (log_weight - squares)[:, None]
    factors = jnp.concatenate([-half_precision, 2 * half_precision * mean, constant], axis=-1)
    log_density: Array = _log_sum_exp(factors @ jnp.concatenate([row**2, row, jnp.ones(1)]))
    return log_density


@jax.custom_jvp
def _log_sum_exp(terms: Array) -> Array:
    """As ``jax.nn.logsumexp``; its gradient over all rows and particles takes less time.

    The usual gradient uses the exponentials of the value again. For that they are copied to another
    order in memory twice, which takes longer than new exponentials.
    """
    largest = jnp.max(terms)
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
    return largest + jnp.log(jnp.sum(jnp.exp(terms - largest)))


@_log_sum_exp.defjvp
def _log_sum_exp_slope(point: Any, change: Any) -> tuple[Array, Array]:
    (terms,), (changes,) = point, change
    total = _log_sum_exp(terms)
    return total, jnp.exp(terms - total) @ changes


def simulate(
    num_rows: int, *, num_components: int = 5, num_features: int = 2, seed: int = 0
) -> np.ndarray:
    """Rows from the mixture with the parameters of ``simulate_parameters``.

    The first rows of a longer simulation are those of a shorter one.

    >>> simulate(100).shape
    (100, 2)
    """
    num_rows = check_count("num_rows", num_rows, least=0)
    truth = simulate_parameters(num_components=num_components, num_features=num_features, seed=seed)
    _, of_rows = np.random.default_rng(seed).spawn(2)
    of_components, of_noise = of_rows.spawn(2)
    component = of_components.choice(num_components, size=num_rows, p=truth["weights"])
    noise = of_noise.standard_normal((num_rows, num_features))
    rows: np.ndarray = truth["mu"][component] + np.sqrt(truth["s2"][component]) * noise
    return rows


def simulate_parameters(
    *, num_components: int = 5, num_features: int = 2, seed: int = 0
) -> dict[str, np.ndarray]:
    """The parameters behind ``simulate``: the draw from the prior with the clearest clusters.

    In most draws from this prior the clusters overlap. Of 256 draws the one is taken that has the
    largest product of two numbers: the smallest distance of two means, in standard deviations, and
    the square root of the smallest weight.

    >>> {name: value.shape for name, value in simulate_parameters().items()}
    {'weights': (5,), 's2': (5, 2), 'mu': (5, 2)}
    """
    num_components = check_count("num_components", num_components)
    num_features = check_count("num_features", num_features)
    of_parameters, _ = np.random.default_rng(seed).spawn(2)
    shape = (NUM_CANDIDATES, num_components, num_features)
    weights = of_parameters.dirichlet(np.ones(num_components), size=NUM_CANDIDATES)
    variance = 1.0 / of_parameters.standard_gamma(1.0, size=shape)
    mean = 2.0 * np.sqrt(variance) * of_parameters.standard_normal(shape)
    gap = mean[:, :, None] - mean[:, None, :]
    pooled = 0.5 * (variance[:, :, None] + variance[:, None, :])
    distance = np.sqrt(np.sum(gap**2 / pooled, axis=-1))
    distance[:, np.arange(num_components), np.arange(num_components)] = np.inf
    clearness = np.min(distance, axis=(1, 2)) * np.sqrt(np.min(weights, axis=1))
    best = int(np.argmax(clearness))
    return {"weights": weights[best], "s2": variance[best], "mu": mean[best]}


def simulate_shift(
    num_rows: int = 100_000,
    *,
    change_points: tuple[int, int] = (1_000, 10_000),
    num_clusters: tuple[int, int, int] = SHIFT_CLUSTERS,
    seed: int = 0,
) -> np.ndarray:
    """A stream in two dimensions whose distribution changes twice: 3, then 5, then 7 clusters.

    Every phase uses the first of seven clusters, all equally likely. The last four overlap the
    first three. Change points after the last row have no effect.

    Args:
        num_rows: length of the stream.
        change_points: the first rows of the second and of the third phase.
        num_clusters: the clusters of each phase, up to 7.
        seed: of the generator.

    Returns:
        One array ``[num_rows, 2]``.

    >>> simulate_shift(2_000).shape
    (2000, 2)

    Reference: the stream of 1,000, 9,000 and 90,000 rows in section 5.1.5 of the thesis that
    extends Cameron, Eggers and Kroon (2019), Entropy 21:1109.
    """
    num_rows = check_count("num_rows", num_rows, least=0)
    first, second = (check_count("change_points", point, least=0) for point in change_points)
    if first > second:
        raise ModelError(f"change_points must not decrease; they are {change_points}.")
    used = [check_count("num_clusters", count) for count in num_clusters]
    if len(used) != 3 or max(used) > len(SHIFT_MEANS):
        raise ModelError(
            f"num_clusters must be three numbers up to {len(SHIFT_MEANS)}, one for each phase, not "
            f"{num_clusters}."
        )
    of_clusters, of_noise = np.random.default_rng(seed).spawn(2)
    phase = np.searchsorted([first, second], np.arange(num_rows), side="right")
    cluster = (of_clusters.random(num_rows) * np.array(used)[phase]).astype(int)
    noise = of_noise.standard_normal((num_rows, 2))
    rows: np.ndarray = SHIFT_MEANS[cluster] + SHIFT_SCALES[cluster] * noise
    return rows
