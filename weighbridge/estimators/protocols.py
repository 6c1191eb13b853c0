"""Protocols of methods: those that need all the data at once, and those that take rows in chunks.

A new method inherits from ``BatchMethod`` or ``SequentialMethod`` and overrides the defaults that
do not fit. Callers use these attributes; they never test for a concrete class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np

from weighbridge.core.islands import Combined, combine_islands
from weighbridge.core.progress.reporters import Reporter
from weighbridge.core.thresholds import MAX_TEMPERED_SPREAD
from weighbridge.core.types import PyTree, Report
from weighbridge.estimators.sequential import SequentialRun
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence

# Takes all rows and their weights, the seed and the number of the first island.
AtOnce = Callable[[PyTree, np.ndarray, int, int], Evidence | None]


@runtime_checkable
class Method(Protocol):
    """The attributes of every method.

    Its islands are independent runs. ``Evidence.diagnostics["island_log_evidence"]`` has the log
    evidence of each island; rounds of islands are merged with these numbers.
    """

    @property
    def name(self) -> str:
        """Name of the method in results."""
        ...

    @property
    def num_islands(self) -> int:
        """Number of independent populations; with fewer than 4 a tolerance is refused."""
        return 1

    @property
    def states_error(self) -> bool:
        """Whether the spread over islands is a valid error."""
        return True

    @property
    def disagreement(self) -> float:
        """Islands are flagged as disagreeing if log Z has a larger spread over them (nats)."""
        return MAX_TEMPERED_SPREAD

    @property
    def evens_islands(self) -> bool:
        """Whether islands are equalised during the run, so that the end hides their spread."""
        return False

    @property
    def counts(self) -> tuple[str, ...]:
        """Names of diagnostics that are counts; they are summed over rounds of islands."""
        return ()

    def combine(self, islands: np.ndarray) -> Combined:
        """Combine the log evidences of the islands."""
        return combine_islands(islands)

    def merge_rounds(self, results: Sequence[Evidence]) -> Evidence | None:
        """Several rounds of islands as one result, for a method that merges them itself.

        None, the default: ``weighing/rounds.py`` merges the log evidences of the islands, the
        counts and the flags. Override it if a better merger exists; runs of nested sampling, for
        example, merge into one run with more live points. The error of the merged result also
        decides whether another round is needed for the tolerance.

        Args:
            results: two or more rounds, with different islands.
        """
        return None


@runtime_checkable
class BatchMethod(Method, Protocol):
    """A method that needs all the data at once."""

    def of_a_round(self, dimension: int) -> Self:
        """The method for one round of a run with a tolerance; by default unchanged.

        Args:
            dimension: dimension of the largest model.
        """
        return self

    def within(self, tolerance: float | None, time_limit: float | None) -> Self:
        """The method for a run with these limits; by default unchanged.

        Rounds of islands stop at the limits in any case. Override it for a method that can also
        end a single round earlier.

        Args:
            tolerance: standard error (nats) to reach; None for no limit.
            time_limit: seconds; None for no limit.
        """
        return self

    def report_to(self, reporter: Reporter, label: str, island_round: int) -> Report:
        """The function that ``estimate`` calls with its progress.

        By default it gets a power, the log evidence so far and the number of steps, and shows them
        as the progress along a path of powers. A method without powers overrides this, and calls
        ``reporter.advance`` with its own words: its three numbers may then mean what it likes.

        Args:
            reporter: shows the progress.
            label: name of the model; empty if it is the only one.
            island_round: number of the round of islands from 1; 0 if there is only one.
        """
        return partial(reporter.temper, label=label, island_round=island_round)

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
            values: the observations; None for a model that contains its data.
            weight: how often each row counts; None for a likelihood that does not factorise.
            seed: the same seed gives the same numbers.
            first_island: number of the first island; other islands draw other random numbers.
            report: called with the progress; see ``report_to``.
        """
        ...


class Checkpoint(Protocol):
    """Where a long run is kept: arrays and plain values, under the number of its first island."""

    def find(self, first_island: int) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """What was kept of this run; None if nothing was."""
        ...

    def is_due(self) -> bool:
        """Whether it is time to keep the run again."""
        ...

    def keep(self, first_island: int, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Keep this run, and the others that were kept before."""
        ...

    def refusing(self) -> AbstractContextManager[None]:
        """A block in which every error about what was kept is a ``CheckpointError``."""
        ...


@runtime_checkable
class ResumableMethod(BatchMethod, Protocol):
    """A batch method whose run can be kept in a file and go on from there (``resume=``)."""

    def without_limits(self) -> Self:
        """The method without limits that only end a run earlier: a run goes on with other ones."""
        ...

    def estimate(
        self,
        model: Model,
        values: PyTree | None,
        weight: np.ndarray | None,
        *,
        seed: int = 0,
        first_island: int = 0,
        report: Report | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Evidence:
        """The evidence, as for any batch method.

        Args:
            model: with a log-likelihood of rows or of all data.
            values: the observations; None for a model that contains its data.
            weight: how often each row counts; None for a likelihood that does not factorise.
            seed: the same seed gives the same numbers.
            first_island: number of the first island; other islands draw other random numbers.
            report: called with the progress; see ``report_to``.
            checkpoint: where the run is kept from time to time, and from where it goes on, bit for
                bit as if it had never stopped.
        """
        ...


@runtime_checkable
class SequentialMethod(Method, Protocol):
    """A method that takes rows in chunks; ``start`` begins a run."""

    @property
    def reservoir(self) -> int | None:
        """Most rows that a run keeps; None if it keeps all rows, or none."""
        return None

    @property
    def half_life(self) -> float | None:
        """Observations after which a row counts half; None if rows always count fully."""
        return None

    @property
    def shuffles(self) -> bool | None:
        """Whether rows in memory are shuffled; None: only if their order matters."""
        return False

    def chunk_after(self, rows_seen: int, *, in_memory: bool) -> int:
        """Size of the next chunk after so many rows; it may be larger if all are in memory."""
        ...

    def with_reservoir_for(self, rows: int) -> Self:
        """The method with a reservoir of at least this many rows, which are in memory anyway."""
        if self.reservoir is None:
            return self
        larger = dataclasses.replace(cast(Any, self), reservoir=max(self.reservoir, rows))
        return cast(Self, larger)

    def at_once(self, model: Model) -> AtOnce | None:
        """A function that weighs rows in memory at once, if it may suit the model; else None.

        It is tried before the rows are taken in chunks, and returns None if it does not suit.
        """
        return None

    def start(self, model: Model, *, seed: int = 0, first_island: int = 0) -> SequentialRun:
        """Begin a run; other islands draw other random numbers."""
        ...
