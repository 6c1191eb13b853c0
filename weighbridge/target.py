"""Log densities that can be called, and are pytrees: exact, tempered, on mini-batches.

A target is the log prior plus a sum of likelihood terms. What changes while sampling (the
temperature, the mini-batch) is a leaf of the pytree, so that changing it never retraces.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, Self, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.base import Array, PyTree
from weighbridge.model import Model
from weighbridge.priors import Parameters
from weighbridge.pytrees import register_dataclass

# Rows are summed in blocks of this many, so that memory stays flat in the data size.
BLOCK_ROWS = 4096
# Likewise where the number of rows is not known beforehand: few, so that little is wasted on a
# last block that is not full, and a block of a thousand particles stays in the cache.
SPAN_BLOCK = 64

Carry = TypeVar("Carry")


class Term(Protocol):
    """A piece of the log-likelihood: exact, tempered or estimated on a mini-batch."""

    @property
    def axes(self) -> Any:
        """Where the island axis of its leaves lies, for jax.vmap; None where there is none."""
        ...

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """Value of the term at a position, whose parameters come along."""
        ...

    def subsample(self, step: Array) -> Term:
        """The same term on the mini-batch of this step; an exact term returns itself."""
        ...

    def gradient_variance(self, model: Model, position: Array) -> Array:
        """Variance of the term's gradient over mini-batches, per coordinate."""
        ...

    def guide(self) -> Term:
        """A cheaper term, whose gradient may lead moves that are accepted by this one."""
        ...

    def guide_noise(self) -> Array | float:
        """Variance of what the guide differs by from this term, but for a constant."""
        ...


class OwnGuide:
    """What terms have in common whose own gradient leads the moves."""

    def guide(self) -> Term:
        """The term itself."""
        return cast(Term, self)

    def guide_noise(self) -> Array | float:
        """There is no difference."""
        return 0.0


class ExactTerm(OwnGuide):
    """What exact terms have in common: no mini-batch, no noise, the same for all islands."""

    @property
    def axes(self) -> None:
        """No leaf has an island axis."""
        return

    def subsample(self, step: Array) -> Self:
        """An exact term does not change."""
        return self

    def gradient_variance(self, model: Model, position: Array) -> Array:
        """An exact term has no gradient noise."""
        return jnp.zeros_like(position)


@partial(register_dataclass, data_fields=["values", "weight"], meta_fields=[])
@dataclass(frozen=True)
class Rows(ExactTerm):
    """The exact log-likelihood of some rows, sum_k weight_k log p(row_k | theta).

    Padding rows have weight 0 and add exactly nothing.
    """

    values: PyTree
    weight: Array | np.ndarray

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """Sum over the rows, block by block."""
        num_rows = self.weight.shape[0]
        if num_rows <= BLOCK_ROWS:
            return _weighted_sum(model, parameters, self)
        num_blocks = num_rows // BLOCK_ROWS
        head = jax.tree_util.tree_map(
            lambda leaf: leaf[: num_blocks * BLOCK_ROWS].reshape(
                num_blocks, BLOCK_ROWS, *leaf.shape[1:]
            ),
            self,
        )
        add = jax.checkpoint(lambda rows: _weighted_sum(model, parameters, rows))
        total, _ = jax.lax.scan(lambda carry, rows: (carry + add(rows), None), 0.0, head)
        tail = jax.tree_util.tree_map(lambda leaf: leaf[num_blocks * BLOCK_ROWS :], self)
        return total + _weighted_sum(model, parameters, tail)


def _weighted_sum(model: Model, parameters: Parameters, rows: Rows) -> Array:
    log_likelihoods = model.row_log_likelihoods(parameters, rows.values)
    return jnp.sum(jnp.where(rows.weight > 0, rows.weight * log_likelihoods, 0.0))


@partial(register_dataclass, data_fields=["rows", "start", "stop"], meta_fields=[])
@dataclass(frozen=True)
class Span(ExactTerm):
    r"""The exact log-likelihood of some consecutive rows of a store, however many they are.

    .. math:: \sum_{start \le k < stop} w_k \log p(y_k | \theta)

    Both ends are numbers of the pytree: a stream may grow within its store, and a chunk may have
    any size, without a new trace. The cost is that of the rows from start to stop, to whole blocks.
    The gradient is summed along with the value, so memory is flat too; there is no second
    derivative.

    Args:
        rows: the store, a multiple of ``SPAN_BLOCK`` rows; those that are not yet in use must be
            valid for the model.
        start: the first row.
        stop: the row after the last.

    >>> import numpyro.distributions as dist
    >>> model = Model({"mu": dist.Normal(0, 1)}, lambda p, y: -0.5 * (y - p["mu"]) ** 2)
    >>> store = Rows(np.arange(64.0), np.ones(64))
    >>> float(Span(store, 1, 4)(model, jnp.ones(1), {"mu": jnp.ones(())}))
    -2.5
    """

    rows: Rows
    start: Array | np.ndarray | int
    stop: Array | np.ndarray | int

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """Sum over the rows, block by block."""
        return _span_sum(model, parameters, self)

    def over_blocks(
        self, add: Callable[[Rows, Carry], Carry], carry: Carry, block: int = SPAN_BLOCK
    ) -> Carry:
        """Go through the blocks that hold the rows; in each the others have weight 0."""

        def body(number: Array, carry: Carry) -> Carry:
            first = number * block
            rows = jax.tree_util.tree_map(
                lambda leaf: jax.lax.dynamic_slice_in_dim(jnp.asarray(leaf), first, block),
                self.rows,
            )
            index = first + jnp.arange(block)
            inside = (index >= self.start) & (index < self.stop)
            return add(Rows(rows.values, jnp.where(inside, rows.weight, 0.0)), carry)

        begin, end = self.start // block, -(-self.stop // block)
        return cast(Carry, jax.lax.fori_loop(begin, end, body, carry))


@jax.custom_vjp
def _span_sum(model: Model, parameters: Parameters, span: Span) -> Array:
    return span.over_blocks(
        lambda rows, total: total + _weighted_sum(model, parameters, rows),
        jnp.zeros(()),
    )


def _span_forward(model: Model, parameters: Parameters, span: Span) -> tuple[Array, Parameters]:
    # A loop of unknown length cannot be differentiated backwards: the gradient comes along.
    def add(rows: Rows, carry: tuple[Array, Parameters]) -> tuple[Array, Parameters]:
        found = jax.value_and_grad(_weighted_sum, argnums=1)(model, parameters, rows)
        return cast(tuple[Array, Parameters], jax.tree_util.tree_map(jnp.add, carry, found))

    zero = (jnp.zeros(()), jax.tree_util.tree_map(jnp.zeros_like, parameters))
    return span.over_blocks(add, zero)


def _span_backward(gradient: Parameters, cotangent: Array) -> tuple[None, Parameters, None]:
    return None, {name: cotangent * slope for name, slope in gradient.items()}, None


_span_sum.defvjp(_span_forward, _span_backward)


@partial(register_dataclass, data_fields=["data"], meta_fields=[])
@dataclass(frozen=True)
class Total(ExactTerm):
    """The log-likelihood of a model that does not factorise over rows."""

    data: PyTree = None

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """Call ``f(parameters)`` or ``f(parameters, data)``, whichever the model has."""
        function = model.total_log_likelihood
        assert function is not None
        value = on_data(function, self.data)(parameters)
        return jnp.asarray(value, jnp.result_type(value, float))


def on_data(function: Callable[..., Any], data: PyTree) -> Callable[[Any], Any]:
    """A function of parameters from one of parameters, or of parameters and data.

    >>> on_data(lambda p, y: p + y, 2)(1), on_data(lambda p, power=3: p**power, None)(2)
    (3, 8)
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [p for p in inspect.signature(function).parameters.values() if p.kind in kinds]
    # What has a default may be a setting of the function's own, unless there are data to take.
    takes_data = len(found) > 1 and (
        data is not None or found[1].default is inspect.Parameter.empty
    )
    return (lambda parameters: function(parameters, data)) if takes_data else function


@partial(register_dataclass, data_fields=["term", "temperature"], meta_fields=[])
@dataclass(frozen=True)
class Tempered:
    """A term raised to a power: temperature * log p(rows | theta)."""

    term: Term
    temperature: Array | float

    @property
    def axes(self) -> Any:
        """Those of the term; the power is common to all."""
        return Tempered(self.term.axes, None)  # type: ignore[arg-type]

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """The power times the term."""
        return self.temperature * self.term(model, position, parameters)

    def subsample(self, step: Array) -> Tempered:
        """Temper the term on its mini-batch."""
        return replace(self, term=self.term.subsample(step))

    def gradient_variance(self, model: Model, position: Array) -> Array:
        """The power enters squared."""
        return self.temperature**2 * self.term.gradient_variance(model, position)

    def guide(self) -> Tempered:
        """The guide of the term, to the same power."""
        guide = self.term.guide()
        return self if guide is self.term else replace(self, term=guide)

    def guide_noise(self) -> Array | float:
        """The power enters squared."""
        return self.temperature**2 * self.term.guide_noise()


@partial(register_dataclass, data_fields=["batches", "scale", "batch"], meta_fields=[])
@dataclass(frozen=True)
class Batches(OwnGuide):
    r"""A log-likelihood estimated on mini-batches that were drawn beforehand.

    .. math:: \hat\ell(\theta) = \frac{n}{|B|} \sum_{k \in B} w_k \log p(y_k | \theta)

    Step t uses batch t modulo the number of batches.

    Args:
        batches: rows with two leading axes, batches and rows of a batch.
        scale: n / |B|, with n the number of rows that the batches were drawn from.
        batch: the batch in use; ``subsample`` changes it.
    """

    batches: Rows
    scale: Array | np.ndarray | float
    batch: Array | np.ndarray | int = 0

    @property
    def axes(self) -> int:
        """Every island has mini-batches of its own."""
        return 0

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """The scaled sum over the batch in use."""
        return jnp.asarray(self.scale) * _weighted_sum(model, parameters, self._rows())

    def subsample(self, step: Array) -> Batches:
        """Go to the batch of this step."""
        return replace(self, batch=step % self.batches.weight.shape[0])

    def gradient_variance(self, model: Model, position: Array) -> Array:
        """Estimate (n / |B|)^2 |B| Var_k[w_k grad log p(y_k | theta)] from the batch itself."""
        return _batch_gradient_variance(model, position, self._rows(), self.scale)

    def _rows(self) -> Rows:
        rows = jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf)[self.batch], self.batches)
        return cast(Rows, rows)


@partial(
    register_dataclass,
    data_fields=["rows", "key", "step"],
    meta_fields=["batch_size"],
)
@dataclass(frozen=True)
class Subsampled(OwnGuide):
    """A log-likelihood estimated on mini-batches drawn on the fly, with replacement.

    The batch of a step follows from the key and the step alone. Particles that share the
    target share the batch.
    """

    rows: Rows
    key: Array
    batch_size: int
    step: Array | int = 0

    @property
    def axes(self) -> int:
        """Every island has mini-batches of its own."""
        return 0

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """The scaled sum over the batch of this step."""
        return self._scale() * _weighted_sum(model, parameters, self._batch())

    def subsample(self, step: Array) -> Subsampled:
        """Go to the batch of this step."""
        return replace(self, step=step)

    def gradient_variance(self, model: Model, position: Array) -> Array:
        """Estimate the variance of the gradient over batches from the batch itself."""
        return _batch_gradient_variance(model, position, self._batch(), self._scale())

    def _scale(self) -> float:
        return self.rows.weight.shape[0] / self.batch_size

    def _batch(self) -> Rows:
        key = jax.random.fold_in(self.key, self.step)
        chosen = jax.random.randint(key, (self.batch_size,), 0, self.rows.weight.shape[0])
        rows = jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf)[chosen], self.rows)
        return cast(Rows, rows)


def _batch_gradient_variance(
    model: Model, position: Array, rows: Rows, scale: Array | np.ndarray | float
) -> Array:
    function = model.require_rows()

    def gradient(row: PyTree, weight: Array | np.ndarray) -> Array:
        slope: Array = jax.grad(lambda u: function(model.transform(u)[0], row))(position)
        return jnp.asarray(weight) * slope

    gradients = jax.vmap(gradient)(rows.values, rows.weight)
    return jnp.asarray(scale) ** 2 * gradients.shape[0] * jnp.var(gradients, axis=0, ddof=1)


@partial(register_dataclass, data_fields=["model", "terms"], meta_fields=[])
@dataclass(frozen=True)
class Target:
    r"""The log density of a posterior on unconstrained vectors.

    .. math:: \log f(u) = \log p(u) + \sum_t \ell_t(T(u))

    >>> import numpy as np, numpyro.distributions as dist
    >>> model = Model({"mu": dist.Normal(0, 1)}, lambda p, y: dist.Normal(p["mu"], 1).log_prob(y))
    >>> rows = Rows(np.array([0.0, 1.0]), np.ones(2))
    >>> with jax.enable_x64(True):
    ...     density = Target(model, (Tempered(rows, 0.5),))(np.zeros(1))
    >>> round(float(density), 6)
    -2.087877
    """

    model: Model
    terms: tuple[Term, ...]

    def __call__(self, position: Array) -> Array:
        """Log density at an unconstrained position."""
        parameters, log_density = self.model.transform(position)
        for term in self.terms:
            log_density = log_density + term(self.model, position, parameters)
        return log_density

    def subsample(self, step: Array) -> Target:
        """The same target on the mini-batch of this step."""
        return replace(self, terms=tuple(term.subsample(step) for term in self.terms))

    def guide(self) -> Target | None:
        """The target whose gradient leads moves, if it is another one."""
        terms = tuple(term.guide() for term in self.terms)
        same = all(guide is term for guide, term in zip(terms, self.terms))
        return None if same else replace(self, terms=terms)

    def guide_noise(self) -> Array:
        """Variance of what the guide's log density differs by, but for a constant."""
        return jnp.asarray(sum(term.guide_noise() for term in self.terms))

    def tempered(self, power: Array | float) -> Target:
        """The same prior, with the likelihood raised to a power: 0 is the prior, 1 the target."""
        return replace(self, terms=tuple(Tempered(term, power) for term in self.terms))

    def gradient_variance(self, position: Array) -> Array:
        """Variance of the gradient over mini-batches, per coordinate."""
        total = jnp.zeros_like(position)
        for term in self.terms:
            total = total + term.gradient_variance(self.model, position)
        return total
