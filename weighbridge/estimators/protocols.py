"""What a method is: one that needs all the data at once, or one that takes rows as they come.

A new method inherits from ``BatchMethod`` or ``SequentialMethod``, which give a default for what
callers ask of it, and overrides what is different. Callers ask attributes, never for a class.
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
    """What every method tells of itself.

    Its islands are independent runs. ``Evidence.diagnostics["island_log_evidence"]`` has the log
    evidence of each, by which rounds of islands are merged to one result.
    """

    @property
    def name(self) -> str:
        """What results call the method."""
        ...

    @property
    def num_islands(self) -> int:
        """Independent populations of a run; with fewer than 4 a tolerance is refused."""
        return 1

    @property
    def states_error(self) -> bool:
        """Whether the spread of islands may be believed as an error."""
        return True

    @property
    def disagreement(self) -> float:
        """Spread of log Z over islands (nats) beyond which they are said to disagree."""
        return MAX_TEMPERED_SPREAD

    @property
    def evens_islands(self) -> bool:
        """Whether islands are made alike on the way, so that the end does not show their spread."""
        return False

    @property
    def counts(self) -> tuple[str, ...]:
        """Diagnostics that count something, and are added up over rounds of islands."""
        return ()

    def combine(self, islands: np.ndarray) -> Combined:
        """One log evidence from those of the islands."""
        return combine_islands(islands)


@runtime_checkable
class BatchMethod(Method, Protocol):
    """A method that needs all the data at once."""

    def of_a_round(self, dimension: int) -> Self:
        """The method for one of the rounds of a tolerance; by default as it is.

        Args:
            dimension: of the largest model.
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
            model: with a log-likelihood of rows or of all data.
            values: the observations, or None for a model that has its own.
            weight: how often each row counts; None for a likelihood that does not factorise.
            seed: the same seed gives the same numbers.
            first_island: number of the first island; other islands draw other numbers.
            report: told how far it is.
        """
        ...


@runtime_checkable
class SequentialMethod(Method, Protocol):
    """A method that takes rows as they come; ``start`` begins a run."""

    @property
    def reservoir(self) -> int | None:
        """Rows that a run keeps; None for one that keeps all, or none."""
        return None

    @property
    def shuffles(self) -> bool | None:
        """Whether rows in memory are taken in random order; None where their order matters."""
        return False

    def chunk_after(self, rows_seen: int, *, in_memory: bool) -> int:
        """Rows that a run takes in at once, after so many; more may do where all are at hand."""
        ...

    def reaching(self, rows: int) -> Self:
        """The method with a reservoir for so many rows, which are in memory anyway."""
        if self.reservoir is None:
            return self
        larger = dataclasses.replace(cast(Any, self), reservoir=max(self.reservoir, rows))
        return cast(Self, larger)

    def start(self, model: Model, *, seed: int = 0, first_island: int = 0) -> SequentialRun:
        """Begin a run; other islands draw other random numbers."""
        ...
