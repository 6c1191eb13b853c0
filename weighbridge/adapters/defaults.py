"""The default models of the adapters: regression on all features, and on none."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from weighbridge.core.types import Array
from weighbridge.models.model import Model
from weighbridge.results.prediction import Function

ALL, NONE = "all features", "no features"
# Features are padded to a multiple of this. Data with another number of features compile nothing
# if the padded number is the same.
COLUMNS = 8
# Prior mean of the intercept of a padding class; its probability is zero for every row.
CLOSED = -1e4


class Scaling(NamedTuple):
    """Centre and spread of columns; priors of unit width need columns of unit spread."""

    centre: np.ndarray
    spread: np.ndarray

    @classmethod
    def measure(cls, values: np.ndarray) -> Scaling:
        """The scaling of these rows; the spread of a constant column is set to 1.

        >>> Scaling.measure(np.array([[1.0, 5.0], [3.0, 5.0]]))
        Scaling(centre=array([2., 5.]), spread=array([1., 1.]))
        """
        spread = values.std(axis=0)
        # Rounding can give a constant column a tiny spread.
        constant = spread <= 1e-12 * np.abs(values).max(axis=0, initial=0.0)
        return cls(values.mean(axis=0), np.where(constant, 1.0, spread))

    def apply(self, values: np.ndarray) -> np.ndarray:
        """(values - centre) / spread."""
        return np.asarray((values - self.centre) / self.spread)


def fill_columns(values: np.ndarray) -> np.ndarray:
    """Pad with columns of zeros to a multiple of ``COLUMNS``; the evidence does not change.

    >>> fill_columns(np.ones((2, 3))).shape
    (2, 8)
    """
    missing = -values.shape[1] % COLUMNS
    return np.pad(values, ((0, 0), (0, missing)))


def classification(num_features: int, num_classes: int) -> dict[str, Model]:
    r"""Softmax regression on standardised features, and on none.

    .. math:: p(y | x) \propto \exp(w_y^T x + b_y), \qquad w, b \sim N(0, 1)

    Args:
        num_features: columns of x, before ``fill_columns`` pads them.
        num_classes: K; the labels are 0..K-1.

    >>> classification(3, 3)["no features"]
    Model(b[4]; 4 dimensions)
    """
    columns = num_features + -num_features % COLUMNS
    return _classification(columns, num_classes)


@functools.cache
def _classification(num_columns: int, num_classes: int) -> dict[str, Model]:
    slots = 2 if num_classes <= 2 else num_classes + -num_classes % 4
    # The number of classes only enters the numbers of the prior, so another one compiles nothing.
    level = np.where(np.arange(slots) < num_classes, 0.0, CLOSED)
    intercept = dist.Normal(level, 1.0).to_event(1)
    slopes = dist.Normal(0.0, 1.0).expand([slots, num_columns]).to_event(2)
    return {
        ALL: Model({"w": slopes, "b": intercept}, _log_label_by_features),
        NONE: Model({"b": intercept}, _log_label),
    }


def _log_label_by_features(parameters: Any, row: Any) -> Array:
    return _log_probability(parameters["w"] @ row["x"] + parameters["b"], row["y"])


def _log_label(parameters: Any, row: Any) -> Array:
    return _log_probability(parameters["b"], row["y"])


def _log_probability(scores: Array, label: Array) -> Array:
    log_probabilities = jax.nn.log_softmax(scores)
    return jnp.sum(log_probabilities, where=jnp.arange(scores.size) == label)


def regression(num_features: int) -> dict[str, Model]:
    r"""Linear regression with unknown noise on standardised columns, and one with intercept only.

    .. math:: y \sim N(w^T x + b, s^2), \qquad w, b \sim N(0, 1), \; s^2 \sim IG(1, 0.1)

    Args:
        num_features: columns of x, before ``fill_columns`` pads them.

    >>> regression(3)
    {'all features': Model(w[8], b, s2; 10 dimensions), 'no features': Model(b, s2; 2 dimensions)}
    """
    return _regression(num_features + -num_features % COLUMNS)


@functools.cache
def _regression(num_columns: int) -> dict[str, Model]:
    common = {"b": dist.Normal(0.0, 1.0), "s2": dist.InverseGamma(1.0, 0.1)}
    slopes = dist.Normal(0.0, 1.0).expand([num_columns]).to_event(1)
    return {
        ALL: Model({"w": slopes, **common}, _log_target_on_line),
        NONE: Model(common, _log_target_on_level),
    }


def _on_line(parameters: Any, row: Any) -> dist.Distribution:
    return dist.Normal(row["x"] @ parameters["w"] + parameters["b"], jnp.sqrt(parameters["s2"]))


def _on_level(parameters: Any, row: Any) -> dist.Distribution:
    return dist.Normal(parameters["b"], jnp.sqrt(parameters["s2"]))


def _log_target_on_line(parameters: Any, row: Any) -> Any:
    return _on_line(parameters, row).log_prob(row["y"])


def _log_target_on_level(parameters: Any, row: Any) -> Any:
    return _on_level(parameters, row).log_prob(row["y"])


REGRESSION_FUNCTIONS: dict[str, Function] = {ALL: _on_line, NONE: _on_level}
