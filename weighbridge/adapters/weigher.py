"""The part that all adapters share: a comparison that predicts fast and can be copied."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from weighbridge.core import checkpoint_file
from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import ModelError
from weighbridge.core.types import Array, PyTree
from weighbridge.data.cutting import pad, split
from weighbridge.data.values import num_rows
from weighbridge.estimators.registry import Method
from weighbridge.models.model import Model
from weighbridge.results.prediction import Function
from weighbridge.weighing.online_comparison.checkpoint import SCHEMA
from weighbridge.weighing.online_comparison.online_comparison import OnlineComparison

# The schema of pickles that have no entry for it.
FIRST_SCHEMA = "weighbridge.online_comparison.4"
# Rows are predicted in blocks of the last size; a smaller block is padded to one of these sizes.
BLOCKS = (1, 64, 1024)
# A model with a lower probability is left out of a prediction.
NEGLIGIBLE = 1e-12


class Weigher:
    """Compares models on the rows so far, and averages their predictions of new rows.

    Args:
        models: ``wb.Model`` by name.
        functions: for each model the quantity to average: ``function(parameters, row)``, an array.
        method: of the comparison.
        seed: of the comparison.
        prior_odds: of the comparison.
    """

    def __init__(
        self,
        models: Mapping[str, Model],
        functions: Mapping[str, Function],
        method: str | Method,
        seed: int,
        prior_odds: Mapping[str, float] | None = None,
    ) -> None:
        self.models, self.functions, self.method = dict(models), dict(functions), method
        self.comparison = OnlineComparison(models, method, seed, prior_odds=prior_odds)
        self._draws: dict[str, tuple[PyTree, np.ndarray]] | None = None

    def update(self, rows: PyTree) -> None:
        """Absorb rows into every model."""
        self.comparison.update(rows)
        self._draws = None

    @double_precision
    def evaluate(
        self, rows: PyTree, reduce: Callable[[list[np.ndarray], list[np.ndarray]], np.ndarray]
    ) -> np.ndarray:
        """Evaluate the functions at all draws, and reduce the values to one result for each row.

        Args:
            rows: columns by name.
            reduce: takes the values of each model (draws x rows x value) and the log weights of
                its draws; the weights of all draws of all models sum to one.
        """
        draws = self._posterior()
        pieces = []
        for block in split(rows, BLOCKS[-1]):
            count = num_rows(block)
            some, _ = pad(block, np.ones(count), next(size for size in BLOCKS if count <= size))
            values = [
                np.asarray(_values(self.functions[name], parameters, some), np.float64)
                for name, (parameters, _) in draws.items()
            ]
            reduced = reduce(values, [log_weights for _, log_weights in draws.values()])
            pieces.append(reduced[:count])
        return np.concatenate(pieces)

    def _posterior(self) -> dict[str, tuple[PyTree, np.ndarray]]:
        """Draws of each model that is not negligible, with log weights times its probability."""
        if self._draws is None:
            found = self.comparison.result()
            self._draws = {
                name: (
                    jax.tree_util.tree_map(jnp.asarray, result.samples),
                    result.log_weights + np.log(found.probabilities[name]),
                )
                for name, result in found.results.items()
                if found.probabilities[name] > NEGLIGIBLE
            }
        return self._draws

    # Copies and pickles hold a checkpoint instead of the running state, so that they are equal.
    def __getstate__(self) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            self.comparison.save(path)
            arrays, metadata = checkpoint_file.read(path, SCHEMA)
        return {
            "models": self.models,
            "functions": self.functions,
            "method": self.method,
            "schema": SCHEMA,
            "arrays": arrays,
            "metadata": metadata,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.models, self.functions = state["models"], state["functions"]
        self.method, self._draws = state["method"], None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            schema = state.get("schema", FIRST_SCHEMA)
            checkpoint_file.write(path, schema, state["arrays"], state["metadata"])
            self.comparison = OnlineComparison.load(path, self.models, self.method)


@functools.partial(jax.jit, static_argnums=0)
def _values(function: Function, parameters: PyTree, rows: PyTree) -> Array:
    over_rows = jax.vmap(function, in_axes=(None, 0))
    values: Array = jax.vmap(over_rows, in_axes=(0, None))(parameters, rows)
    return values


@dataclass(frozen=True)
class LabelScores:
    """The log-likelihood of a row with each possible label.

    >>> scores = LabelScores(lambda p, row: p["b"] * row["y"], 3)
    >>> scores({"b": 2.0}, {"x": 0.0}).tolist()
    [0.0, 2.0, 4.0]
    """

    log_likelihood: Function
    num_classes: int

    def __call__(self, parameters: Any, row: Any) -> Array:
        """One value for each label."""

        def of_label(label: Array) -> Any:
            return self.log_likelihood(parameters, {**row, "y": label})

        values: Array = jax.vmap(of_label)(jnp.arange(self.num_classes))
        return values


def label_functions(models: Mapping[str, Model], num_classes: int) -> dict[str, Function]:
    """For each model the function that scores the labels."""
    for name, model in models.items():
        if model.log_likelihood is None:
            raise ModelError(f"The model {name!r} must have a log_likelihood of one row.")
    return {
        name: LabelScores(model.log_likelihood, num_classes)
        for name, model in models.items()
        if model.log_likelihood is not None
    }


@dataclass(frozen=True)
class Moments:
    """Mean and variance of a prediction, which is a NumPyro distribution or a number.

    >>> import numpyro.distributions as dist
    >>> Moments(lambda p, row: dist.Normal(p["b"], 2.0))({"b": 3.0}, {}).tolist()
    [3.0, 4.0]
    """

    function: Function

    def __call__(self, parameters: Any, row: Any) -> Array:
        """The mean, and then the variance."""
        prediction = self.function(parameters, row)
        known = isinstance(prediction, dist.Distribution)
        mean = jnp.asarray(prediction.mean if known else prediction, float)
        if mean.shape:
            raise ModelError(
                f"A function must give one number, or the distribution of one, for each row; its "
                f"shape is {mean.shape}."
            )
        return jnp.stack([mean, jnp.asarray(prediction.variance if known else 0.0, float)])


def class_probabilities(values: list[np.ndarray], log_weights: list[np.ndarray]) -> np.ndarray:
    r"""Probability of each label, from the log-likelihoods of all draws of all models.

    .. math:: p(y | x) \propto \sum_m P(m) \, E_m[p(x, y | \theta)]

    >>> scores = np.log([[[0.25, 0.75]], [[0.5, 0.5]]])
    >>> class_probabilities([scores], [np.log([0.5, 0.5])])
    array([[0.375, 0.625]])
    """
    together = np.concatenate([v + w[:, None, None] for v, w in zip(values, log_weights)])
    highest = together.max(axis=(0, 2), keepdims=True)
    mass = np.exp(together - highest).sum(axis=0)
    return np.asarray(mass / mass.sum(axis=1, keepdims=True))


def mean_and_variance(values: list[np.ndarray], log_weights: list[np.ndarray]) -> np.ndarray:
    """Mean and variance of the mixture of the predictions of all draws of all models.

    >>> mean_and_variance([np.array([[[0.0, 1.0]], [[2.0, 1.0]]])], [np.log([0.5, 0.5])])
    array([[1., 2.]])
    """
    means, variances = np.moveaxis(np.concatenate(values), -1, 0)
    weights = np.exp(np.concatenate(log_weights))[:, None]
    weights = weights / weights.sum()
    mean = np.sum(weights * means, axis=0)
    variance = np.sum(weights * (variances + (means - mean) ** 2), axis=0)
    return np.stack([mean, variance], axis=1)
