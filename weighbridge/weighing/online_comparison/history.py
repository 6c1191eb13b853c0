"""The history of an online comparison: a table of bounded length."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.core.pickling import travels
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.table import Table
from weighbridge.plots.history import plot_history
from weighbridge.weighing.online_comparison.update import ComparisonUpdate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# The largest number of entries.
LONGEST = 4096
# Entries of a long history that are printed, at the start and at the end.
SHOWN = 5

COMMON = ("rows", "rows_skipped", "rows_quarantined", "elapsed")
OF_MODEL = (
    "log_evidence",
    "std_error",
    "log_predictive",
    "annealing_steps",
    "probability",
    "probability_error",
)
# Columns that are added up when entries are merged; of other columns the later value is kept.
ADDED_UP = ("rows_skipped", "rows_quarantined", "elapsed", "log_predictive", "annealing_steps")


@travels()
class History(Tabular, Shown, Mapping[str, np.ndarray]):
    """A table with an entry for each update: columns as arrays, by name.

    Columns are ``rows``, ``rows_skipped``, ``rows_quarantined``, ``elapsed``, and for each model
    such as ``log_evidence[linear]``: ``log_evidence``, ``std_error``, ``log_predictive``,
    ``annealing_steps``, ``probability``, ``probability_error``; NaN before a model was added.

    Memory is bounded: beyond 4096 entries, pairs of entries in the older half are merged. A merged
    entry has the sums over its updates of bad rows, seconds, log predictives and annealing steps.
    Its other values are those after the last of these updates.

    >>> history = History()
    >>> for rows in (10, 20):
    ...     history.add({"rows": rows}, {"a": {"log_evidence": -1.5 * rows, "probability": 1.0}})
    >>> history["log_evidence[a]"].tolist(), history.models
    ([-15.0, -30.0], ['a'])
    >>> print(history)
       rows  log evidence a       +-  probability a
    1    10          -15.00  unknown         1.0000
    2    20          -30.00  unknown         1.0000
    """

    def __init__(self, longest: int = LONGEST) -> None:
        self.longest = longest
        self.models: list[str] = []
        self._entries: list[dict[str, float]] = []

    def add(
        self, common: Mapping[str, float], of_models: Mapping[str, Mapping[str, float]]
    ) -> None:
        """Add an entry with the values after an update."""
        self.models += [name for name in of_models if name not in self.models]
        entry = {name: float(value) for name, value in common.items()}
        for model, values in of_models.items():
            entry |= {f"{name}[{model}]": float(value) for name, value in values.items()}
        self._entries.append(entry)
        if len(self._entries) > self.longest:
            self._thin()

    def record(self, update: ComparisonUpdate) -> None:
        """Add the entry of an update."""
        columns = {
            "log_evidence": update.log_evidences,
            "std_error": update.std_errors,
            "log_predictive": update.log_predictives,
            "annealing_steps": update.annealing_steps,
            "probability": update.probabilities,
            "probability_error": update.probability_errors,
        }
        self.add(
            {
                "rows": update.num_observations,
                "rows_skipped": update.rows_skipped,
                "rows_quarantined": update.rows_quarantined,
                "elapsed": update.elapsed,
            },
            {
                model: {name: column[model] for name, column in columns.items()}
                for model in update.log_evidences
            },
        )

    def _thin(self) -> None:
        """Merge pairs of entries in the older half."""
        half = len(self._entries) // 4 * 2
        pairs = zip(self._entries[0:half:2], self._entries[1:half:2])
        self._entries[:half] = [_merged(first, second) for first, second in pairs]

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._columns():
            raise KeyError(f"The history has the columns {self._columns()}, not {name!r}.")
        return np.array([entry.get(name, math.nan) for entry in self._entries])

    def _columns(self) -> list[str]:
        return [*COMMON, *(f"{name}[{model}]" for model in self.models for name in OF_MODEL)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns())

    def __len__(self) -> int:
        return len(self._columns())

    @property
    def num_entries(self) -> int:
        """Number of entries, the same in every column."""
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<History: {self.num_entries} entries of {', '.join(self.models)}>"

    def __str__(self) -> str:
        return str(self._table())

    def _page(self) -> Page:
        table = self._table()
        entries = f"{self.num_entries:,} {'entry' if self.num_entries == 1 else 'entries'}"
        return Page(f"{entries} of {', '.join(self.models)}", table.columns, table.texts())

    def _small_figure(self) -> Figure | None:
        return self.plot() if self._entries else None

    def _table(self) -> Table:
        """The first and the last entries."""
        columns = ["rows"]
        for model in self.models:
            columns += [f"log evidence {model}", "+-", f"probability {model}"]
        table: dict[str, list[str]] = {}
        for number, entry in enumerate(self._entries, 1):
            if SHOWN < number <= self.num_entries - SHOWN and self.num_entries > 2 * SHOWN + 1:
                table["..."] = [""] * len(columns)
                continue
            table[str(number)] = [f"{entry['rows']:,.0f}"]
            for model in self.models:
                table[str(number)] += _cells(entry, model)
        return Table(tuple(columns), table)

    def _frame(self) -> Frame:
        return Frame(dict(self))

    def plot(self, *, changes: Sequence[float] = (), axes: Surface | None = None) -> Figure:
        """Log Bayes factors against the best model so far, probabilities and annealing steps.

        Args:
            changes: rows at which the stream changed, drawn as vertical lines: for example
                ``[change.row for change in online.changes]``.
            axes: where to draw: an empty matplotlib figure or subfigure, or three axes.

        >>> history = History()
        >>> for rows in (10, 20):
        ...     of_model = {"log_evidence": -rows, "probability": 0.5, "annealing_steps": 2.0}
        ...     history.add({"rows": rows}, {"a": of_model, "b": of_model})
        >>> [axes.get_ylabel().split()[0] for axes in history.plot().axes]
        ['log', 'probability', 'annealing']
        """
        curves = {
            model: {name: self[f"{name}[{model}]"] for name in OF_MODEL} for model in self.models
        }
        return plot_history(self["rows"], curves, changes=changes, axes=axes)

    def state(self) -> tuple[np.ndarray, dict[str, Any]]:
        """Numbers and names from which ``restore`` makes the same history."""
        numbers = np.array([self[name] for name in self]).reshape(len(self), -1)
        return numbers, {"models": list(self.models)}

    def restore(self, numbers: np.ndarray, names: Mapping[str, Any]) -> None:
        """Continue from a saved ``state``."""
        models = [str(name) for name in names["models"]]
        columns = [*COMMON, *(f"{name}[{model}]" for model in models for name in OF_MODEL)]
        if numbers.dtype != np.float64 or numbers.shape[:1] != (len(columns),):
            raise ValueError(f"the history is {numbers.dtype} of shape {numbers.shape}")
        self.models = models
        self._entries = [dict(zip(columns, entry)) for entry in numbers.T.tolist()]


def _merged(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Merge two entries: values of the second, with sums in the columns that are added up."""
    merged = dict(second)
    for name, value in first.items():
        if name.partition("[")[0] in ADDED_UP and not math.isnan(value):
            merged[name] = merged.get(name, 0.0) + value
    return merged


def _cells(entry: Mapping[str, float], model: str) -> list[str]:
    height, error, probability = (
        entry.get(f"{name}[{model}]", math.nan)
        for name in ("log_evidence", "std_error", "probability")
    )
    if math.isnan(height):
        return ["", "", ""]
    return [
        f"{height:.2f}",
        "unknown" if math.isnan(error) else f"{error:.2g}",
        f"{probability:.4f}",
    ]
