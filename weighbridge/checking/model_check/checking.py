"""``wb.check_model``: the checks in their order, at draws from the prior."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from weighbridge.checking.model_check.exchangeable import check_exchangeable
from weighbridge.checking.model_check.likelihood import (
    check_finite,
    check_gradient,
    check_possible,
    is_random_row,
    log_densities,
    prepare,
    told_deterministic,
)
from weighbridge.checking.model_check.prior import check_prior, check_transform
from weighbridge.checking.model_check.report import Check, ModelReport
from weighbridge.checking.model_check.rows import check_rows
from weighbridge.core.checks import check_seed
from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import DataError
from weighbridge.core.random import random_key
from weighbridge.core.types import PyTree
from weighbridge.data.cutting import join
from weighbridge.data.sources.opening import open_source
from weighbridge.data.values import num_rows
from weighbridge.models.model import Model, draw_positions, unravel_positions
from weighbridge.models.row_gate import require_model
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.host import RandomLikelihoodError, as_numpy

# Prior draws at which the log-likelihood is computed, and their number for the costlier checks.
NUM_DRAWS = 256
NUM_POINTS = 8


@double_precision
def check_model(model: Model, data: Any = None, *, seed: int = 0) -> ModelReport:
    """Check a model at draws from its prior, before a long run.

    The checks are: the transform to unconstrained space and back is exact; the log prior is finite;
    the log-likelihood runs, gives the same number each time, is never NaN or +inf, and is -inf at
    less than half of the prior draws; its gradient agrees with finite differences, in double
    precision; it reads its row, and the rows add up to the total; and permuting exchangeable
    parameters changes nothing.

    Args:
        model: a ``wb.Model``.
        data: in any form that ``wb.evidence`` takes. Without data, the log-likelihood of a model of
            rows is not checked.
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
    position = draw_positions(model, random_key(seed), NUM_DRAWS)
    samples = as_numpy(model, unravel_positions(model, position))
    yield check_transform(model, np.asarray(position), samples)
    log_prior = np.asarray(log_densities(Target(model, ()), position))
    yield check_prior(log_prior)
    if values is None and model.log_likelihood is not None:
        yield Check("runs", None, "not checked: give the data")
        if model.exchangeable:
            few = {name: draws[:NUM_POINTS] for name, draws in samples.items()}
            yield check_exchangeable(model, few, lambda some: np.zeros(num_rows(some)))
        return
    try:
        case = prepare(model, values, position)
    except DataError:
        raise
    except RandomLikelihoodError:
        yield Check("runs", True, "one number for all the data, on the host")
        yield told_deterministic(False)
        return
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else "the log-likelihood fails"
        if model.log_likelihood is not None and is_random_row(model, values):
            yield Check("runs", True, "one number for a row")
            yield told_deterministic(False)
        else:
            yield Check("runs", False, type(error).__name__, said)
        return
    yield Check("runs", True, case.told)
    deterministic = told_deterministic(case.repeats(position[:NUM_POINTS]))
    yield deterministic
    if not deterministic.passed:
        return
    log_likelihood = case.at(samples)
    yield check_finite(log_likelihood)
    yield check_possible(log_likelihood)
    usable = np.flatnonzero(np.isfinite(log_likelihood + log_prior))[:NUM_POINTS]
    yield check_gradient(case, np.asarray(position)[usable], seed)
    few = {name: draws[usable] for name, draws in samples.items()}
    if model.log_likelihood is not None:
        yield check_rows(case, few)
    if model.exchangeable:
        yield check_exchangeable(model, few, case.at)
