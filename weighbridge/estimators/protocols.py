"""The protocols of methods: those that need all the data at once, and those that take a stream.

A new method inherits from ``BatchMethod`` or ``SequentialMethod``. These have a default for every
attribute that callers use; the method overrides those that differ. Callers use the attributes, and
never test for a concrete class.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np

from weighbridge.core.islands import Combined, combine_islands
from weighbridge.core.thresholds import MAX_TEMPERED_SPREAD
from weighbridge.core.types import PyTree, Report
from weighbridge.estimators.sequential import SequentialRun
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence


@runtime_checkable
class Method(Protocol):
    """The attributes of every method.

    Its islands are independent runs. ``Evidence.diagnostics["island_log_evidence"]`` has the log
    evidence of each island; rounds of islands are merged into one result with these.
    """

    @property
    def name(self) -> str:
        """The name of the method in results."""
        ...

    @property
    def num_islands(self) -> int:
        """Independent populations of a run; with fewer than 4 a tolerance is refused."""
        return 1

    @property
    def states_error(self) -> bool:
        """Whether the spread over islands is a valid standard error."""
        return True

    @property
    def disagreement(self) -> float:
        """Spread of log Z over islands (nats) above which a result is flagged."""
        return MAX_TEMPERED_SPREAD

    @property
    def evens_islands(self) -> bool:
        """Whether islands are equalised on the way, so that their final spread is too small."""
        return False

    @property
    def counts(self) -> tuple[str, ...]:
        """Names of diagnostics that are counts, to be added up over rounds of islands."""
        return ()

    def combine(self, islands: np.ndarray) -> Combined:
        """One log evidence from the log evidences of the islands."""
        return combine_islands(islands)


@runtime_checkable
class BatchMethod(Method, Protocol):
    """A method that needs all the data at once."""

    def of_a_round(self, dimension: int) -> Self:
        """The method for one round of islands, if there is a tolerance; by default unchanged.

        Args:
            dimension: the largest dimension of the models.
        """
        return self

    def estimate(
        self,
        model: Model,
        values: PyTree | None,
        weight: np.ndarray | None,
        *,
        seed: int = 0,
        first_island: int = 0,
        report: Report | None = None,
    ) -> Evidence:
        """The evidence of a model on data that are in memory.

        Args:
            model: a model with a log-likelihood of rows or of all data.
            values: the observations; None for a model that holds its own data.
            weight: how often each row counts; None for a likelihood that does not factorise.
            seed: the same seed gives the same numbers.
            first_island: number of the first island; the random numbers of an island depend on it.
            report: a function that is called with the progress.
        """
        ...


@runtime_checkable
class SequentialMethod(Method, Protocol):
    """A method that takes rows in chunks, as they come; ``start`` begins a run."""

    @property
    def reservoir(self) -> int | None:
        """The most rows that a run keeps; None for a run that keeps all rows, or none."""
        return None

    @property
    def shuffles(self) -> bool | None:
        """Whether rows in memory are shuffled; None: only if their order is not random."""
        return False

    def chunk_after(self, rows_seen: int, *, in_memory: bool) -> int:
        """Rows of the next chunk after so many rows; it may be larger for rows in memory."""
        ...

    def reaching(self, rows: int) -> Self:
        """The method with a reservoir of at least so many rows, which are in memory anyway."""
        if self.reservoir is None:
            return self
        larger = dataclasses.replace(cast(Any, self), reservoir=max(self.reservoir, rows))
        return cast(Self, larger)

    def start(self, model: Model, *, seed: int = 0, first_island: int = 0) -> SequentialRun:
        """Begin a run; the random numbers of an island depend on its number."""
        ...
