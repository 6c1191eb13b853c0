"""The score and the Fisher information of a likelihood at a point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.compilation import double_precision, jit, own
from weighbridge.core.errors import DataError, MethodError, ModelError
from weighbridge.core.pickling import travels
from weighbridge.core.random import random_key
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.summaries import scalar_entries
from weighbridge.core.tables.table import Table
from weighbridge.core.types import Array, PyTree
from weighbridge.data.cutting import pad, slice_rows
from weighbridge.data.values import num_rows
from weighbridge.models.held import hold
from weighbridge.models.model import Model, draw_positions
from weighbridge.models.priors import Parameters
from weighbridge.models.row_gate import require_model
from weighbridge.models.targets.host import PROBES, host_likelihood
from weighbridge.models.targets.total import on_data

KINDS = ("observed", "outer_products")
# Rows of a block: sums over all rows are sums over blocks, so that memory stays flat.
BLOCK = 1024


@travels()
@dataclass(frozen=True, eq=False)
class Information(Tabular, Shown):
    """The Fisher information of a likelihood at a point, in the model's own coordinates.

    Attributes:
        matrix: entries x entries, in the order of ``labels``.
        parameters: the point.
        kind: "observed" or "outer_products".
    """

    matrix: np.ndarray
    parameters: dict[str, np.ndarray]
    kind: str

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the rows and columns of the matrix, such as ``"w[0]"``."""
        return tuple(scalar_entries({n: v[None] for n, v in self.parameters.items()}))

    def block(self, first: str, second: str | None = None) -> np.ndarray:
        """The part that belongs to two parameters, of shape (shape of first) + (of second).

        Args:
            first: name of a parameter.
            second: name of another one; by default the same.
        """
        second = first if second is None else second
        places, start = {}, 0
        for name, value in self.parameters.items():
            places[name] = slice(start, start + value.size)
            start += value.size
        for name in (first, second):
            if name not in places:
                raise MethodError(f"There is no parameter {name!r}; there are {list(places)}.")
        shape = self.parameters[first].shape + self.parameters[second].shape
        return self.matrix[places[first], places[second]].reshape(shape)

    @property
    def covariance(self) -> np.ndarray:
        """The inverse: the covariance of an efficient estimator (the bound of Cramer and Rao)."""
        try:
            root = np.linalg.inv(np.linalg.cholesky(self.matrix))
        except np.linalg.LinAlgError as error:
            raise MethodError(
                "The information is not positive definite, so it has no inverse: the data do not "
                "determine all parameters (entries of a simplex are not free), or the point is no "
                "maximum of the likelihood."
            ) from error
        return np.asarray(root.T @ root)

    @property
    def std_errors(self) -> dict[str, np.ndarray]:
        """Roots of the diagonal of ``covariance``, by parameter."""
        spread, start, found = np.sqrt(np.diag(self.covariance)), 0, {}
        for name, value in self.parameters.items():
            found[name] = spread[start : start + value.size].reshape(value.shape)
            start += value.size
        return found

    def _frame(self) -> Frame:
        return Frame(dict(zip(self.labels, self.matrix.T.tolist())), list(self.labels), "entry")

    def _page(self) -> Page:
        table = Table(self.labels, dict(zip(self.labels, self.matrix.tolist())))
        return Page(f"Fisher information ({self.kind})", table.columns, table.texts())

    def __str__(self) -> str:
        return str(Table(self.labels, dict(zip(self.labels, self.matrix.tolist()))))


@double_precision
def score(model: Model, data: Any, parameters: Mapping[str, Any]) -> dict[str, np.ndarray]:
    r"""The gradient of the log-likelihood by the parameters, at a point.

    .. math:: S(\theta) = \nabla_\theta \sum_n \log p(y_n | \theta)

    It is zero at the maximum of the likelihood, and zero on average over data at their true
    parameters. The coordinates are the model's own; no prior and no Jacobian is in it.

    Args:
        model: a ``wb.Model``, with a likelihood in JAX.
        data: in any form that ``wb.evidence`` takes; None for a model that contains its data.
        parameters: the point, by name, inside the support of the prior.

    Returns:
        The derivatives by name, each of the shape of its parameter; exact sums over all rows.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(100, seed=0)
    >>> round(float(wb.score(wb.zoo.gaussian.model(), data, {"mu": data.mean() - 0.5})["mu"]), 6)
    50.0
    """
    point, vector, blocks = _prepare(model, data, parameters, "wb.score")
    total = np.zeros(len(vector))
    for values, weight in blocks:
        total += np.asarray(_gradient(model, values, weight, vector))
    _check_finite(total)
    return _by_name(model, point, total)


@double_precision
def fisher_information(
    model: Model, data: Any, parameters: Mapping[str, Any], kind: str = "observed"
) -> Information:
    r"""The Fisher information of the data about the parameters, at a point.

    .. math:: J(\theta) = -\sum_n \nabla^2 \log p(y_n | \theta), \qquad
              \hat I(\theta) = \sum_n s_n s_n^T, \quad s_n = \nabla \log p(y_n | \theta)

    "observed" is the curvature of the log-likelihood of these data. "outer_products" estimates the
    expected information, the variance of the score over data, by the sum over rows of the outer
    products of their scores. If the model is true, both agree in the limit of many rows at the true
    parameters; where they differ much, the model does not fit (White 1982, Econometrica 50:1-25).

    Args:
        model: a ``wb.Model``, with a likelihood in JAX.
        data: in any form that ``wb.evidence`` takes; None for a model that contains its data.
        parameters: the point, by name, inside the support of the prior.
        kind: "observed", or "outer_products" (needs a likelihood of rows).

    Returns:
        The matrix, with its blocks by name; exact sums over all rows.

    >>> import weighbridge as wb
    >>> data = wb.zoo.linear.simulate(100, num_features=2)
    >>> point = {"w": np.zeros(2), "b": 0.0}
    >>> found = wb.fisher_information(wb.zoo.linear.model(2), data, point)
    >>> np.allclose(found.block("w"), data["x"].T @ data["x"]), found.labels
    (True, ('w[0]', 'w[1]', 'b'))
    """
    if kind not in KINDS:
        raise MethodError(f"kind must be one of {list(KINDS)}, not {kind!r}.")
    point, vector, blocks = _prepare(model, data, parameters, "wb.fisher_information")
    if kind == "outer_products":
        model.require_rows()
    program = _curvature if kind == "observed" else _outer_products
    total = np.zeros((len(vector), len(vector)))
    for values, weight in blocks:
        total += np.asarray(program(model, values, weight, vector))
    _check_finite(total)
    return Information(0.5 * (total + total.T), point, kind)


def _prepare(
    model: Model, data: Any, parameters: Mapping[str, Any], caller: str
) -> tuple[dict[str, np.ndarray], np.ndarray, Iterator[tuple[PyTree, Any]]]:
    """The point by name and as one vector, and the data block by block."""
    require_model(model)
    if not isinstance(parameters, Mapping):
        raise MethodError(f"parameters must be a mapping from names to values, not {parameters!r}.")
    unknown = [name for name in parameters if name not in model.names]
    if unknown:
        raise MethodError(f"The model has no parameters {unknown}; it has {list(model.names)}.")
    if not np.isfinite(model.ravel(parameters)).all():
        raise MethodError(
            "The point lies outside the support of the prior, or on its edge, where the likelihood "
            f"need not have derivatives: {dict(parameters)}."
        )
    point = {name: np.asarray(parameters[name], float) for name in model.names}
    vector = np.concatenate([value.reshape(-1) for value in point.values()])
    values, weight = hold(model, data, caller)
    if weight is None:
        probes = np.asarray(draw_positions(model, random_key(0), PROBES))
        if host_likelihood(model, values, probes[None]) is not None:
            raise ModelError(
                f"{caller} needs derivatives, but the total_log_likelihood of this model runs on "
                "the host, without them. Write it with jax.numpy."
            )
        return point, own(vector), iter([(values, None)])
    return point, own(vector), _blocks(values, weight)


def _blocks(values: PyTree, weight: np.ndarray) -> Iterator[tuple[PyTree, Any]]:
    for start in range(0, num_rows(values), BLOCK):
        interrupts.check()
        stop = min(start + BLOCK, num_rows(values))
        size = BLOCK if num_rows(values) > BLOCK else stop - start
        yield pad(slice_rows(values, start, stop), weight[start:stop], size)


def _by_name(
    model: Model, point: Mapping[str, np.ndarray], vector: np.ndarray
) -> dict[str, np.ndarray]:
    named = _split(model, vector)
    return {name: np.asarray(named[name], np.float64) for name in point}


def _split(model: Model, vector: Any) -> Any:
    """Parameters from the vector of their entries."""
    found, start = {}, 0
    for site in model.sites:
        size = int(np.prod(site.shape, dtype=int))
        found[site.name] = vector[start : start + size].reshape(site.shape)
        start += size
    return found


def _check_finite(total: np.ndarray) -> None:
    if not np.isfinite(total).all():
        raise DataError(
            "The derivatives of the log-likelihood are NaN or infinite at this point. Check the "
            "point, and the log-likelihood for log(0), 0/0 or a root of 0 there."
        )


def _log_likelihood(model: Model, values: PyTree, weight: Any, vector: Array) -> Array:
    parameters: Parameters = _split(model, vector)
    if weight is None:
        assert model.total_log_likelihood is not None
        return jnp.asarray(on_data(model.total_log_likelihood, values)(parameters), float)
    rows = model.row_log_likelihoods(parameters, values)
    return jnp.sum(jnp.where(weight > 0, weight * rows, 0.0))


@jit
def _gradient(model: Model, values: PyTree, weight: Any, vector: Array) -> Array:
    found: Array = jax.grad(_log_likelihood, argnums=3)(model, values, weight, vector)
    return found


@jit
def _curvature(model: Model, values: PyTree, weight: Any, vector: Array) -> Array:
    found: Array = -jax.hessian(_log_likelihood, argnums=3)(model, values, weight, vector)
    return found


@jit
def _outer_products(model: Model, values: PyTree, weight: Any, vector: Array) -> Array:
    def row_score(row: PyTree) -> Array:
        of_row = model.require_rows()
        found: Array = jax.grad(lambda vector: of_row(_split(model, vector), row))(vector)
        return found

    scores = jax.vmap(row_score)(values)
    found: Array = scores.T @ (weight[:, None] * scores)
    return found
