"""Several models ranked by how well they predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.checking.cross_validation import Elpd, sum_over_rows, written_error
from weighbridge.core.errors import MethodError
from weighbridge.core.pickling import travels
from weighbridge.core.tables.frames import Frame, Tabular, frame_of_models
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.table import Table
from weighbridge.core.thresholds import MIN_ELPD_DIFFERENCE
from weighbridge.plots.elpd import plot_elpd_comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface


@travels()
@dataclass(frozen=True)
class ElpdComparison(Tabular, Shown):
    """Models ranked by how well they predict; it prints as a table.

    Attributes:
        elpds: expected log pointwise predictive density of each model, the best first.
        std_errors: their standard errors.
        differences: elpd of each model minus that of the best.
        difference_errors: their standard errors, from the differences of single rows.
        warnings: warnings of each model; empty if there are none.
    """

    elpds: dict[str, float]
    std_errors: dict[str, float]
    differences: dict[str, float]
    difference_errors: dict[str, float]
    warnings: dict[str, tuple[str, ...]]

    @property
    def best(self) -> str:
        """Name of the model with the largest elpd."""
        return next(iter(self.elpds))

    def verdict(self, name: str) -> str:
        """The conclusion from the difference to the best model."""
        difference, error = self.differences[name], self.difference_errors[name]
        if name == self.best:
            return ""
        if abs(difference) < MIN_ELPD_DIFFERENCE:
            return "no relevant difference"
        return "worse" if abs(difference) > 2 * error else "undecided (error too large)"

    def _table(self) -> Table:
        rows = {
            name: (
                f"{self.elpds[name]:.2f}",
                written_error(self.std_errors[name]),
                f"{self.differences[name]:.2f}",
                written_error(self.difference_errors[name]),
                self.verdict(name),
            )
            for name in self.elpds
        }
        return Table(("elpd", "+-", "difference", "+-", ""), rows)

    def _cautions(self) -> list[str]:
        return [f"{name}: {text}" for name, texts in self.warnings.items() for text in texts]

    def __str__(self) -> str:
        return "\n".join([str(self._table()), *(f"  {text}" for text in self._cautions())])

    def _frame(self) -> Frame:
        names = list(self.elpds)
        columns: dict[str, Mapping[str, float | str]] = {
            "elpd": self.elpds,
            "std_error": self.std_errors,
            "difference": self.differences,
            "difference_error": self.difference_errors,
            "verdict": {name: self.verdict(name) for name in names},
        }
        return frame_of_models(columns, names)

    def _page(self) -> Page:
        table = self._table()
        return Page("", table.columns, table.texts(), self._cautions())

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """The elpd of every model, and its difference to the best, with their errors.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or two axes.
        """
        return plot_elpd_comparison(
            {name: (self.elpds[name], self.std_errors[name]) for name in self.elpds},
            {name: (self.differences[name], self.difference_errors[name]) for name in self.elpds},
            small=MIN_ELPD_DIFFERENCE,
            axes=axes,
        )


def compare_loo(models: Mapping[str, Elpd]) -> ElpdComparison:
    r"""Rank models by their expected predictive density on the same rows.

    The error of a difference comes from the differences of single rows:

    .. math:: \text{se} = \sqrt{n \operatorname{Var}_i (\text{elpd}_i^A - \text{elpd}_i^B)}

    Args:
        models: the results of ``wb.loo`` (or ``wb.waic``) by name.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(50, mean=0.0, seed=1)
    >>> def fit(noise):
    ...     width = 1 / (1 + 50 / noise**2)
    ...     normal = np.random.default_rng(0).normal(size=(4, 500))
    ...     mu = width * data.sum() / noise**2 + normal * width**0.5
    ...     return wb.loo({"mu": mu}, wb.zoo.gaussian.model(noise=noise), data)
    >>> table = compare_loo({"wide": fit(3.0), "right": fit(1.0)})
    >>> table.best, table.verdict("wide")
    ('right', 'worse')

    Reference: Vehtari, Gelman & Gabry (2017), Statistics and Computing 27:1413-1432.
    """
    if not isinstance(models, Mapping) or len(models) < 2:
        raise MethodError("compare_loo needs a mapping from two names or more to results of loo.")
    for name, result in models.items():
        if not isinstance(result, Elpd):
            raise MethodError(
                f"{name!r} must be a result of wb.loo or wb.waic, not {type(result).__name__}."
            )
    ranked = sorted(models, key=lambda name: -models[name].elpd)
    best = models[ranked[0]]
    differences, errors = {}, {}
    for name in ranked:
        result = models[name]
        if result.method != best.method or not np.array_equal(result.weight, best.weight):
            raise MethodError(
                f"{name!r} ({result.method}, {result.num_observations:,} observations) and "
                f"{ranked[0]!r} ({best.method}, {best.num_observations:,}) cannot be compared: use "
                "one method on the same rows for all."
            )
        difference = sum_over_rows(result.pointwise - best.pointwise, best.weight)
        differences[name], errors[name] = difference
    return ElpdComparison(
        elpds={name: models[name].elpd for name in ranked},
        std_errors={name: models[name].std_error for name in ranked},
        differences=differences,
        difference_errors=errors,
        warnings={name: models[name].warnings for name in ranked},
    )
