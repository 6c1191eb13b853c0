"""A table of all parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weighbridge.core.constants import PROBABILITY
from weighbridge.core.errors import MethodError
from weighbridge.core.tables.summaries import highest_density_interval
from weighbridge.core.tables.table import Table
from weighbridge.diagnostics.convergence import ess, mcse, rhat
from weighbridge.diagnostics.draws import scalar_chains


class Summary(Table):
    """A table with suitable formats: whole ESS, R-hat with three decimals."""

    def _text(self, column: str, value: float | str) -> str:
        if not isinstance(value, str) and column.startswith("ESS"):
            return f"{value:,.0f}"
        if not isinstance(value, str) and column == "R-hat":
            return f"{value:.3f}"
        return super()._text(column, value)


def summarise(samples: Mapping[str, Any], probability: float = PROBABILITY) -> Summary:
    """Mean, standard deviation, interval and diagnostics of every scalar entry.

    Args:
        samples: draws by parameter name, chains x draws x shape.
        probability: mass inside the highest-density interval (HDI).

    Returns:
        A table that can be printed; ``table["w[0]", "R-hat"]`` reads a number.

    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 3))
    >>> table = summarise({"w": draws[..., :2], "b": draws[..., 2]})
    >>> list(table.rows), table.columns[-3:]
    (['w[0]', 'w[1]', 'b'], ('ESS bulk', 'ESS tail', 'R-hat'))
    >>> bool(table["b", "R-hat"] < 1.01)
    True
    """
    if not 0 < probability < 1:
        raise MethodError(f"probability must lie between 0 and 1, not {probability}.")
    interval = f"{100 * probability:g}% HDI"
    columns = ("mean", "sd", f"{interval} low", f"{interval} high", "MCSE")
    rows = {}
    for label, chains in scalar_chains(samples).items():
        values = chains.reshape(-1)
        finite = bool(np.isfinite(values).all())
        weights = np.full(len(values), 1 / len(values))
        ends = (np.nan, np.nan)
        if finite:
            ends = highest_density_interval(values, weights, probability)
        spread = float(values.std(ddof=1)) if finite and len(values) > 1 else np.nan
        mean = float(values.mean()) if finite else np.nan
        error = float(mcse(chains))
        worth = float(ess(chains, "bulk")), float(ess(chains, "tail"))
        rows[label] = (mean, spread, *ends, error, *worth, float(rhat(chains)))
    return Summary((*columns, "ESS bulk", "ESS tail", "R-hat"), rows)
