"""A model against itself: does it compute what a posterior needs, and the same each time?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.admission import require_model
from weighbridge.base import Array, DataError, PyTree
from weighbridge.data import join, num_rows
from weighbridge.estimators.host_likelihood import HostLikelihood, as_numpy, host_likelihood
from weighbridge.export import Table
from weighbridge.gradient_check import gradient_fault
from weighbridge.model import Model, draw_positions, unravel_positions
from weighbridge.numerics import check_seed, double_precision, jit
from weighbridge.pointwise import rows_of, total_log_likelihoods
from weighbridge.program_text import traced_text
from weighbridge.sources import open_source
from weighbridge.target import Rows, Target, Total

# Prior draws at which the log-likelihood is computed, and those for what is costlier.
NUM_DRAWS = 256
NUM_POINTS = 8
# Rows that are looked at one by one, and those of which the gradient is taken.
NUM_SINGLE = 16
NUM_ROWS = 200
# Relative difference between two ways to one number; what comes back from unconstrained space is
# less exact near the edge of a support.
EXACT = 1e-9
ROUND_TRIP = 1e-6
NUDGE = 0.1
MANY_AT_EDGE = 0.05
# Share of prior draws without any likelihood beyond which the prior misses the data.
MANY_IMPOSSIBLE = 0.5

Samples = dict[str, np.ndarray]


@dataclass(frozen=True)
class Check:
    """One check of a model.

    Attributes:
        name: what was checked.
        passed: None if it could not be checked; why is in ``found``.
        found: what was seen.
        remedy: what to do if it failed.
    """

    name: str
    passed: bool | None
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class ModelReport:
    """The checks of a model; print it, or ask whether all ``passed``.

    >>> report = ModelReport((Check("prior", True, "finite"), Check("rows", False, "no", "Sum.")))
    >>> report.passed, report["rows"].passed
    (False, False)
    >>> print(report)
           outcome  found
    prior     pass  finite
    rows      FAIL  no
      rows: Sum.
    """

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"There is no check {name!r}; there are {[c.name for c in self.checks]}.")

    def __str__(self) -> str:
        words = {True: "pass", False: "FAIL", None: "-"}
        width = max((len(check.found) for check in self.checks), default=0)  # texts stand left
        rows = {c.name: (words[c.passed], c.found.ljust(width)) for c in self.checks}
        failed = [check for check in self.checks if check.passed is False]
        remedies = (f"  {check.name}: {check.remedy}" for check in failed)
        return "\n".join([str(Table(("outcome", "found".ljust(width)), rows)), *remedies])


@double_precision
def check_model(model: Model, data: Any = None, *, seed: int = 0) -> ModelReport:
    """Try a model at draws from its prior, before long runs are spent on it.

    Checked are: the way to unconstrained space and back; the log prior; that the log-likelihood
    runs, gives the same number each time, is a number wherever the prior goes and not impossible
    at most of it; that its gradient agrees with finite differences, in double precision; that it
    reads its row, and that rows add up to the whole; and that permuting what is declared
    exchangeable changes nothing.

    Args:
        model: a ``wb.Model``.
        data: as ``wb.evidence`` takes it; without, only the prior of a model of rows is checked.
        seed: of the prior draws.

    Returns:
        A report that prints as a table, with a remedy for each failure.

    >>> import weighbridge as wb
    >>> report = check_model(wb.zoo.linear.model(2), wb.zoo.linear.simulate(50, num_features=2))
    >>> report.passed
    True
    >>> [check.name for check in report.checks]
    ['transform', 'prior', 'runs', 'deterministic', 'finite', 'possible', 'gradient', 'rows']
    """
    check_seed(seed)
    require_model(model)
    values = None if data is None else join(list(open_source(data).blocks()))
    return ModelReport(tuple(_checks(model, values, seed)))


def _checks(model: Model, values: PyTree, seed: int) -> Iterator[Check]:
    position = draw_positions(model, jax.random.key(seed), NUM_DRAWS)
    samples = as_numpy(model, unravel_positions(model, position))
    yield _check_transform(model, np.asarray(position), samples)
    log_prior = np.asarray(_log_densities(Target(model, ()), position))
    yield _check_prior(log_prior)
    if values is None and model.log_likelihood is not None:
        yield Check("runs", None, "not checked: give the data")
        if model.exchangeable:
            yield _check_exchangeable(model, samples, lambda some: np.zeros(num_rows(some)))
        return
    try:
        case = _prepare(model, values, position)
    except DataError:
        raise
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else "the log-likelihood fails"
        if model.log_likelihood is not None and _is_random_row(model, values):
            yield Check("runs", True, "one number for a row")
            yield _told_deterministic(False)
        else:
            yield Check("runs", False, type(error).__name__, said)
        return
    yield Check("runs", True, case.told)
    deterministic = _told_deterministic(case.repeats(position[:NUM_POINTS]))
    yield deterministic
    if not deterministic.passed:
        return
    log_likelihood = case.at(samples)
    yield _check_finite(log_likelihood)
    yield _check_possible(log_likelihood)
    usable = np.flatnonzero(np.isfinite(log_likelihood + log_prior))[:NUM_POINTS]
    yield _check_gradient(case, np.asarray(position)[usable], seed)
    few = {name: draws[usable] for name, draws in samples.items()}
    if model.log_likelihood is not None:
        yield _check_rows(case, few)
    if model.exchangeable:
        yield _check_exchangeable(model, few, case.at)


# --- the prior -------------------------------------------------------------------------------


def _check_transform(model: Model, position: np.ndarray, samples: Samples) -> Check:
    """Parameters to positions and back; and whether other positions are other parameters."""
    again = np.asarray(_flatten(model, samples))
    returned = as_numpy(model, unravel_positions(model, jnp.asarray(again)))
    moved = as_numpy(model, unravel_positions(model, jnp.asarray(position + NUDGE)))
    edge = np.zeros(len(position), bool)
    for site in model.sites:
        same = (moved[site.name] == samples[site.name]).reshape(len(position), -1)
        # Of a simplex some entries may stand still, of a parameter of its own none may.
        edge |= same.any(1) if site.shape == site.unconstrained_shape else same.all(1)
    errors = {
        name: float(np.max(_relative_error(returned[name], draws), initial=0.0))
        for name, draws in samples.items()
    }
    worst = max(errors, key=errors.__getitem__)
    passed = errors[worst] <= ROUND_TRIP and float(edge.mean()) <= MANY_AT_EDGE
    found = f"there and back to {errors[worst]:.1g}"
    if errors[worst] > ROUND_TRIP:
        found = f"{worst!r} comes back changed, by {errors[worst]:.2g} of itself"
    elif edge.any():
        found = f"{edge.mean():.0%} of prior draws round to the edge of their support"
    return Check(
        "transform",
        passed,
        found,
        "Draws at the edge of their support have no place in unconstrained space: use a prior with "
        "less mass there (a Beta or Gamma with shapes well above 0.01), or put the parameter on "
        "a logarithmic scale. A support of your own needs a bijector with an exact inverse.",
    )


_flatten = jit(lambda model, samples: jax.vmap(model.flatten)(samples))
_log_densities = jit(lambda target, position: jax.vmap(target)(position))


def _check_prior(values: np.ndarray) -> Check:
    bad = int(np.sum(~np.isfinite(values)))
    return Check(
        "prior",
        bad == 0,
        f"not finite at {bad} of {len(values)} draws of its own"
        if bad
        else f"log density {values.min():.4g} to {values.max():.4g}",
        "The prior's density must be finite where it draws: look for scales that are zero or "
        "overflow in functions of other parameters, and for draws at the edge of their support.",
    )


# --- the log-likelihood ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Case:
    """A model with its data, admitted as by ``wb.evidence``."""

    model: Model
    values: PyTree
    weight: np.ndarray
    host: HostLikelihood | None

    @property
    def told(self) -> str:
        what = "all the data" if self.model.log_likelihood is None else "a row"
        return f"one number for {what}, {'compiled' if self.host is None else 'on the host'}"

    def at(self, samples: Samples) -> np.ndarray:
        """Log-likelihood of all the data at every draw."""
        return total_log_likelihoods(self.model, samples, self.values, self.weight)

    def target(self) -> Target:
        """The log density; of some of the rows, if the model has rows."""
        if self.model.log_likelihood is None:
            return Target(self.model, (Total(self.values),))
        return Target(self.model, (Rows(*self.some_rows(NUM_ROWS)),))

    def some_rows(self, wanted: int) -> tuple[PyTree, np.ndarray]:
        """Rows from everywhere in the data, and their weights."""
        count = num_rows(self.values)
        chosen = np.unique(np.linspace(0, count - 1, min(wanted, count)).astype(int))
        return jax.tree_util.tree_map(lambda leaf: leaf[chosen], self.values), self.weight[chosen]

    def repeats(self, position: Array) -> bool:
        """Whether two looks at the function, and two runs of it, give the same."""
        if self.host is not None:
            samples = as_numpy(self.model, unravel_positions(self.model, position))
            wanted = np.ones(len(position), bool)
            first, second = (self.host.at(samples, wanted) for _ in range(2))
            return np.array_equal(first, second, equal_nan=True)
        target = self.target()
        # A new closure each time: JAX would answer a second trace of the same one from memory.
        texts = [traced_text(jax.make_jaxpr(lambda u: target(u))(position[0])) for _ in range(2)]
        first, second = (np.asarray(_log_densities(target, position)) for _ in range(2))
        return texts[0] == texts[1] and np.array_equal(first, second, equal_nan=True)


def _prepare(model: Model, values: PyTree, position: Array) -> _Case:
    admitted, weight = rows_of(model, values)
    return _Case(model, admitted, weight, host_likelihood(model, admitted, position[None]))


def _is_random_row(model: Model, values: PyTree) -> bool:
    """Whether two traces of the log-likelihood of one row differ."""
    row = jax.tree_util.tree_map(lambda leaf: leaf[0], values)
    start = np.zeros(model.dimension)
    try:
        texts = [
            traced_text(
                jax.make_jaxpr(lambda u: model.require_rows()(model.transform(u)[0], row))(start)
            )
            for _ in range(2)
        ]
    except Exception:
        return False
    return texts[0] != texts[1]


def _told_deterministic(repeats: bool) -> Check:
    return Check(
        "deterministic",
        repeats,
        "the same number twice" if repeats else "differs from call to call",
        "Take random numbers, clocks and counters out of the log-likelihood; a latent variable "
        "belongs into the prior.",
    )


def _check_finite(log_likelihood: np.ndarray) -> Check:
    bad = int(np.sum(np.isnan(log_likelihood) | (log_likelihood == np.inf)))
    count = len(log_likelihood)
    return Check(
        "finite",
        bad == 0,
        f"NaN or +inf at {bad} of {count} prior draws" if bad else f"no NaN at {count} prior draws",
        "Check the log-likelihood for log(0), 0/0 and overflow; where the density is zero it must "
        "be -inf.",
    )


def _check_possible(log_likelihood: np.ndarray) -> Check:
    """Does the prior go where the data can arise?"""
    share = float(np.mean(log_likelihood == -np.inf))
    finite = log_likelihood[np.isfinite(log_likelihood)]
    told = f"log-likelihood {finite.min():.4g} to {finite.max():.4g}, " if len(finite) else ""
    return Check(
        "possible",
        share <= MANY_IMPOSSIBLE,
        f"{told}-inf at {share:.0%} of prior draws",
        "The data are impossible (-inf) at most prior draws: check the support of the likelihood "
        "and the units of the data, or put the prior where they can arise.",
    )


def _check_gradient(case: _Case, position: np.ndarray, seed: int) -> Check:
    if case.host is not None:
        return Check("gradient", None, "none on the host; use moves that need none")
    if not len(position):
        return Check("gradient", None, "not checked: no prior draw has a finite log-likelihood")
    found, remedy = gradient_fault(case.target(), position, seed)
    return Check("gradient", not remedy, found, remedy)


def _check_rows(case: _Case, samples: Samples) -> Check:
    """Rows one by one, against all at once; and whether they are read at all."""
    model, (values, weight) = case.model, case.some_rows(NUM_SINGLE)
    row = jax.tree_util.tree_map(lambda leaf: leaf[0], values)
    if not _reads_row(model, row):
        return Check(
            "rows",
            False,
            "the log-likelihood does not read its row",
            "log_likelihood(parameters, row) is of ONE row, which it must use: not data from "
            "outside, which would be counted once for every row. A function of all the data is a "
            "total_log_likelihood.",
        )
    whole, singly = np.asarray(_sums(model, samples, Rows(values, weight))), []
    for index in range(len(whole)):
        one = {name: draws[index] for name, draws in samples.items()}
        rows = [jax.tree_util.tree_map(lambda leaf: leaf[k], values) for k in range(len(weight))]  # noqa: B023
        singly.append(sum(w * float(_one_row(model, one, row)) for w, row in zip(weight, rows)))
    error = float(np.max(_relative_error(whole, np.array(singly)), initial=0.0))
    return Check(
        "rows",
        error <= EXACT,
        f"{len(weight)} rows add up to {error:.1g}"
        if error <= EXACT
        else f"rows one by one and all at once differ by {error:.2g} of the sum",
        "The log-likelihood of one row must not depend on the others: look for batching rules of "
        "your own (custom_vmap, callbacks) that mix rows.",
    )


def _reads_row(model: Model, row: PyTree) -> bool:
    """Whether a result can vary with the row: JAX refuses to call one that does fixed."""
    batch = jax.tree_util.tree_map(lambda leaf: np.stack([leaf, leaf]), row)
    function = model.require_rows()
    fixed = jax.vmap(lambda u, r: function(model.transform(u)[0], r), (None, 0), out_axes=None)
    try:
        jax.eval_shape(fixed, np.zeros(model.dimension), batch)
    except ValueError:
        return True
    return False


_sums = jit(lambda model, samples, rows: jax.vmap(lambda p: rows(model, jnp.zeros(()), p))(samples))
_one_row = jit(lambda model, parameters, row: model.require_rows()(parameters, row))


# --- symmetry ------------------------------------------------------------------------------------


def _check_exchangeable(
    model: Model, samples: Samples, log_likelihood: Callable[[Samples], np.ndarray]
) -> Check:
    """Log prior and log-likelihood with the entries in another order."""
    few = {name: draws[:NUM_POINTS] for name, draws in samples.items()}
    axes = dict(model.exchangeable)
    size = next(few[name].shape[1:][axis] for name, axis in axes.items())
    if not num_rows(few):
        return Check("exchangeable", None, "not checked: no draw has a finite log-likelihood")
    worst, where = 0.0, ""
    for order in (
        np.roll(np.arange(size), 1),
        np.r_[np.arange(size)[:2][::-1], np.arange(2, size)],
    ):
        permuted = {
            name: np.take(draws, order, axis=1 + axes[name] % (draws.ndim - 1))
            if name in axes
            else draws
            for name, draws in few.items()
        }
        ways = {"prior": lambda some: _log_priors(model, some), "log-likelihood": log_likelihood}
        for name, density in ways.items():
            error = float(np.max(_relative_error(density(permuted), density(few))))
            if error > worst:
                worst, where = error, name
    return Check(
        "exchangeable",
        worst <= EXACT,
        f"the {where} changes with the order, by {worst:.2g} of itself"
        if worst > EXACT
        else f"{size} entries in any order",
        "Parameters are exchangeable only if every order has the same prior and likelihood: name "
        "all that are permuted together, give them one prior, or leave the declaration out.",
    )


def _log_priors(model: Model, samples: Samples) -> np.ndarray:
    found = jax.vmap(model.log_priors)({name: jnp.asarray(d) for name, d in samples.items()})
    return np.asarray(sum(found.values()))


def _relative_error(values: np.ndarray, expected: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        error = np.abs(values - expected) / np.maximum(np.abs(expected), 1.0)
    return np.where(values == expected, 0.0, np.where(np.isnan(error), np.inf, error))
