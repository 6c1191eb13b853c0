"""Logistic (softmax) regression: labels of several classes from a vector of features."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from weighbridge.core.types import Array, PyTree
from weighbridge.models.model import Model
from weighbridge.zoo.arguments import check_count


def model(num_features: int = 10, num_classes: int = 4) -> Model:
    r"""Softmax regression with standard normal priors.

    .. math:: p(y | x) = \frac{\exp(w_y^T x + b_y)}{\sum_k \exp(w_k^T x + b_k)}

    Args:
        num_features: length of x.
        num_classes: number of classes K; the labels are 0..K-1.

    Returns:
        A model of rows ``{"x": (num_features,), "y": ()}``. The same arguments give the same
        object.

    >>> model(num_features=2, num_classes=3)
    Model(w[3, 2], b[3]; 9 dimensions)
    >>> model().dimension
    44

    Reference: Cameron, Eggers and Kroon (2019), Entropy 21:1109, appendix B.2.
    """
    return _build(
        check_count("num_features", num_features), check_count("num_classes", num_classes, least=2)
    )


@functools.cache
def _build(num_features: int, num_classes: int) -> Model:
    return Model(
        prior={
            "w": dist.Normal(0.0, 1.0).expand([num_classes, num_features]).to_event(2),
            "b": dist.Normal(0.0, 1.0).expand([num_classes]).to_event(1),
        },
        log_likelihood=_log_likelihood,
        response="probability",
        check_rows=functools.partial(_check_rows, num_classes=num_classes),
    )


def _log_likelihood(parameters: Any, row: Any) -> Array:
    log_probabilities = jax.nn.log_softmax(parameters["w"] @ row["x"] + parameters["b"])
    # A masked sum costs half as much as indexing, whose gradient is a scatter. It also works with
    # labels from a table, which may be floats.
    return jnp.sum(log_probabilities, where=jnp.arange(log_probabilities.size) == row["y"])


def _check_rows(values: PyTree, *, num_classes: int) -> dict[str, np.ndarray]:
    if not isinstance(values, dict) or "y" not in values:
        return {}  # tracing the log-likelihood reports a missing column
    label = np.asarray(values["y"])
    label = label.reshape(len(label), -1)
    whole = np.all(label == np.floor(label), axis=1)
    inside = np.all((label >= 0) & (label <= num_classes - 1), axis=1)
    return {
        "column 'y': label is not an integer": ~whole,
        f"column 'y': label outside 0..{num_classes - 1}": whole & ~inside,
    }


def simulate(
    num_rows: int, *, num_features: int = 10, num_classes: int = 4, seed: int = 0
) -> dict[str, np.ndarray]:
    """Rows from the model: parameters from the prior, x standard normal.

    The first rows of a longer simulation are those of a shorter one.

    >>> data = simulate(100, num_features=2, num_classes=3)
    >>> data["x"].shape, data["y"].dtype, int(data["y"].max())
    ((100, 2), dtype('int64'), 2)
    """
    num_rows = check_count("num_rows", num_rows, least=0)
    num_features = check_count("num_features", num_features)
    num_classes = check_count("num_classes", num_classes, least=2)
    of_parameters, of_features, of_labels = np.random.default_rng(seed).spawn(3)
    slopes = of_parameters.standard_normal((num_classes, num_features))
    intercepts = of_parameters.standard_normal(num_classes)
    features = of_features.standard_normal((num_rows, num_features))
    # The index of the largest score plus Gumbel noise has the softmax probabilities.
    noise = of_labels.gumbel(size=(num_rows, num_classes))
    labels = np.argmax(features @ slopes.T + intercepts + noise, axis=1)
    return {"x": features, "y": labels.astype(np.int64)}
