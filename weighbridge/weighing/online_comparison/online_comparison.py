"""Models weighed against each other as the rows arrive: update, look, add, save, resume."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weighbridge.core import checkpoint_file
from weighbridge.core.progress.reporters import CHECKING, WEIGHING, Reporter, telling
from weighbridge.core.rollback import restored_on_error
from weighbridge.core.status import Status
from weighbridge.core.turns import Turns
from weighbridge.data.checking import RowPolicy
from weighbridge.data.quarantine import Unread
from weighbridge.estimators.methods import Method
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.prediction import Function, Prediction
from weighbridge.weighing.averaging import average
from weighbridge.weighing.changes.settings import Change, Changes
from weighbridge.weighing.comparing import compare_results
from weighbridge.weighing.comparison import Comparison
from weighbridge.weighing.online_comparison.catching_up import CatchUp
from weighbridge.weighing.online_comparison.checkpoint import (
    SCHEMA,
    check_comparison,
    check_entrants,
    entrants_state,
    restore_entrants,
)
from weighbridge.weighing.online_comparison.entrants import Entrants
from weighbridge.weighing.online_comparison.given_models import (
    Methods,
    check_models,
    choose_methods,
)
from weighbridge.weighing.online_comparison.history import History
from weighbridge.weighing.online_comparison.update import ComparisonUpdate
from weighbridge.weighing.saving import KEY_KIND, row_policy


class OnlineComparison:
    r"""Models on one stream, weighed against each other as the rows arrive.

    .. math:: P(m | y_{1:n}) = Z_m(y_{1:n}) \, \pi_m / \sum_k Z_k(y_{1:n}) \, \pi_k

    Every model sees the same rows: one that is bad for one of them is left out for all, and an
    update that fails for one leaves all as they were. Models are updated in parallel threads; the
    numbers are those of a ``wb.Online`` for each, with the same seed for all as in ``wb.compare``.
    Threads may share a comparison: their calls take turns. A forked process may not, and is told.

    Args:
        models: ``wb.Model`` by name.
        method: a method object, or its name; or one for each model, by name.
        seed: the same seed and the same updates give the same numbers.
        prior_odds: prior weight of each model; equal by default.
        on_bad_row: what to do with rows that cannot be used: "raise", "skip" them and count them,
            or "quarantine": count them and append them to a file, with the reason.
        quarantine: that file.
        changes: looks for changes of the stream, by the model that leads before each chunk, and
            says what to do about them; None does not. With ``compete`` a model "NAME | changed at
            ROW" joins where NAME found one: its evidence is that of NAME on the rows before times
            that of the rows after from the prior, and its prior odds are those of NAME times
            ``changes_per_row``.
        progress: True or False, or a reporter; by default an update or a result that lasts is
            told on a terminal or in a notebook, and elsewhere if it takes more than 10 s.

    Attributes:
        history: a table with an entry for each update.
        progress: as it was given; it may be changed, and is not saved.
        extra: what was saved beside the run that was loaded, such as the cursor of its source.

    >>> import weighbridge as wb
    >>> near, far = wb.zoo.gaussian.model(prior_mean=2.0), wb.zoo.gaussian.model(prior_mean=-2.0)
    >>> small = wb.SGAIS(num_islands=4, num_particles=16)
    >>> online = OnlineComparison({"near": near, "far": far}, small)
    >>> data = wb.zoo.gaussian.simulate(60, mean=2.0, seed=1)
    >>> first, second = online.update(data[:20]), online.update(data[20:])
    >>> second.best, second.num_observations, online.history["rows"].tolist()
    ('near', 60, [20.0, 60.0])
    """

    def __init__(
        self,
        models: Mapping[str, Model],
        method: Methods = "auto",
        seed: int = 0,
        *,
        prior_odds: Mapping[str, float] | None = None,
        on_bad_row: RowPolicy = "raise",
        quarantine: str | Path | None = None,
        changes: Changes | None = None,
        progress: bool | Reporter | None = None,
    ) -> None:
        self.progress = progress
        self._entrants = Entrants(models, method, seed, prior_odds, on_bad_row, quarantine, changes)
        self.seed, self.on_bad_row, self.quarantine = seed, on_bad_row, quarantine
        self._turns = Turns("This wb.OnlineComparison")
        self.history = History()
        self.extra: dict[str, Any] = {}

    # --- what is known ---------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Names of the models."""
        return list(self._entrants.sessions)

    @property
    def prior_odds(self) -> dict[str, float]:
        """Prior weight of each model."""
        return self._entrants.prior_odds

    @property
    def num_observations(self) -> int:
        """Rows seen so far, repeated rows counted."""
        return round(next(iter(self._entrants.sessions.values())).run.num_observations)

    @property
    def rows_read(self) -> int:
        """Rows that were given so far, bad ones counted."""
        return self._entrants.contest.checker.rows_read

    @property
    def log_evidences(self) -> dict[str, float]:
        """Log evidence of each model on everything seen, by the path; 0 before the first row."""
        return self._turns.take(self._entrants.log_evidences)

    @property
    def std_errors(self) -> dict[str, float]:
        """Their standard errors; NaN where unknown."""
        return self._turns.take(self._entrants.std_errors)

    @property
    def probabilities(self) -> dict[str, float]:
        """Posterior probability of each model."""
        return self._turns.take(self._entrants.probabilities)[0]

    @property
    def probability_errors(self) -> dict[str, float]:
        """Their standard deviations under the errors of the log evidences."""
        return self._turns.take(self._entrants.probabilities)[1]

    @property
    def changes(self) -> list[Change]:
        """Changes of the stream that were found so far."""
        return self._turns.take(self._entrants.contest.changes)

    @property
    def flags(self) -> dict[str, tuple[Status, ...]]:
        """Every reason for caution of each model."""
        return self._turns.take(self._entrants.flags)

    def result(self) -> Comparison:
        """The comparison on everything seen, with the evidence of every model.

        That crosses a bridge where the method has one, and is then better known than the path that
        updates tell.
        """
        results, prior_odds = self._turns.take(self._results)
        return compare_results(results, prior_odds, self.seed)

    def _results(self) -> tuple[dict[str, Evidence], dict[str, float]]:
        with telling(self.progress, CHECKING):
            return self._entrants.results(), dict(self.prior_odds)

    def predict(
        self,
        functions: Mapping[str, Function] | Function,
        inputs: Any = None,
        *,
        num_draws: int = 1000,
        seed: int = 0,
    ) -> Prediction:
        """Draws from the predictions of all models, each with the weight of its evidence.

        Args:
            functions: for each model a function as ``Evidence.predict`` takes it, or one for all.
            inputs: rows to predict, the same for every model.
            num_draws: draws in all.
            seed: the same seed gives the same numbers.
        """
        return average(self.result(), functions, inputs, num_draws=num_draws, seed=seed)

    # --- rows come -------------------------------------------------------------------------------

    def set_file_aside(self, file: str, reason: str) -> None:
        """Note in the quarantine, where there is one, that a file could not be read."""
        quarantine = self._entrants.contest.checker.quarantine
        if quarantine is not None:
            quarantine.set_aside(file, reason)

    def update(
        self,
        data: Any,
        identifier: str | int | None = None,
        *,
        unread: Mapping[int, Unread] | None = None,
    ) -> ComparisonUpdate:
        """Absorb rows, any number of them, into every model.

        All rows are checked before the first is absorbed, and whatever fails, for whichever model,
        every one of them is then as before.

        Args:
            data: the rows.
            identifier: of these rows. If it came before they are not absorbed again, and if whole
                numbers leave out some that is noticed: see ``notices`` of the update.
            unread: rows of the data, counted from 0, that a feed could not read, and why; their
                values are NaN. The quarantine file then has their text.
        """
        return self._turns.take(self._update, data, identifier, unread)

    def _update(
        self, data: Any, identifier: str | int | None, unread: Mapping[int, Unread] | None
    ) -> ComparisonUpdate:
        entrants, contest = self._entrants, self._entrants.contest
        with (
            restored_on_error(self.history),
            restored_on_error(entrants),
            contest.undoable(),
            telling(self.progress, WEIGHING),
        ):
            began, before = time.perf_counter(), entrants.log_evidences()
            known = len(contest.changes())
            taken = contest.take(data, identifier, unread)
            entrants.welcome(before, taken.annealing_steps)
            probabilities, errors = entrants.probabilities()
            log_evidences = entrants.log_evidences()
            update = ComparisonUpdate(
                num_observations=self.num_observations,
                log_evidences=log_evidences,
                std_errors=entrants.std_errors(),
                log_predictives={n: log_evidences[n] - before[n] for n in log_evidences},
                annealing_steps={n: taken.annealing_steps[n] for n in log_evidences},
                probabilities=probabilities,
                probability_errors=errors,
                rows_skipped=taken.rows_skipped,
                rows_quarantined=taken.rows_quarantined,
                flags=entrants.flags(),
                elapsed=time.perf_counter() - began,
                notices=taken.notices,
                changes=tuple(contest.changes()[known:]),
            )
            if taken.is_new:
                self.history.record(update)
            return update

    # --- models come -----------------------------------------------------------------------------

    def add(
        self,
        name: str,
        model: Model,
        source: Any = None,
        *,
        method: str | Method | None = None,
        prior_odds: float = 1.0,
    ) -> CatchUp:
        """Add a model, which catches up with the others; on an error nothing has changed.

        Args:
            name: of the model.
            model: a ``wb.Model``.
            source: where the rows seen so far can be read again, from the first on: it replays
                them. Without, the model takes the rows that another one has kept. If these are a
                sample, the error that this makes is part of its standard error from then on.
            method: a method object, or its name; by default that of the first model.
            prior_odds: prior weight of the model, where those of the others are.

        Returns:
            How it caught up; print it.
        """
        return self._turns.take(self._add, name, model, source, method, prior_odds)

    def _add(
        self, name: str, model: Model, source: Any, method: str | Method | None, prior_odds: float
    ) -> CatchUp:
        with restored_on_error(self._entrants):
            return self._entrants.add(name, model, source, method, prior_odds)

    def caught_up(self, name: str) -> CatchUp:
        """How a model came to know what it knows of the first rows."""
        return self._entrants.caught_up[name]

    # --- saved and resumed bit for bit -----------------------------------------------------------

    def save(self, path: str | Path, *, extra: Mapping[str, Any] | None = None) -> None:
        """Write all of it to one file, whole or not at all.

        Args:
            path: the file; what is there is replaced.
            extra: plain values to keep beside the run, such as the cursor of its source.
        """
        self._turns.take(self._save, path, dict(extra or {}))

    def _save(self, path: str | Path, extra: dict[str, Any]) -> None:
        arrays, plain = entrants_state(self._entrants)
        numbers, about_history = self.history.state()
        metadata = {
            **plain,
            "seed": self.seed,
            "key": KEY_KIND,
            "on_bad_row": self.on_bad_row,
            "history": about_history,
            "extra": extra,
        }
        checkpoint_file.write(path, SCHEMA, {**arrays, "history": numbers}, metadata)

    @classmethod
    def load(
        cls,
        path: str | Path,
        models: Mapping[str, Model],
        method: Methods = "auto",
        *,
        on_bad_row: RowPolicy | None = None,
        quarantine: str | Path | None = None,
        limit: int = checkpoint_file.LARGEST_FILE,
    ) -> OnlineComparison:
        """Continue a saved comparison, bit for bit as if it had never stopped.

        A file that is damaged, or of other models, methods or another version of the format, is
        refused with a ``CheckpointError``; nothing in it is run. The digest of a file guards
        against damage, not against attackers: keep checkpoints where only you can write.

        Args:
            path: what ``save`` wrote.
            models: the models of that comparison by name, those that were added too.
            method: the method of that comparison, or that of each model by name.
            on_bad_row: what to do with bad rows from now on; by default as before.
            quarantine: the file for them, where they are kept: a checkpoint does not say where
                to write.
            limit: bytes beyond which a file is refused unread.
        """
        path = Path(path)
        check_models(models)
        methods = choose_methods(list(models), method)
        arrays, metadata = checkpoint_file.read(path, SCHEMA, limit)
        with checkpoint_file.refusing(path):
            check_comparison(arrays, metadata)
            prior_odds = check_entrants(path, metadata, models, methods)
            watched = metadata["changes"]
            online = cls(
                {name: models[name] for name in prior_odds},
                methods,
                metadata["seed"],
                prior_odds=prior_odds,
                on_bad_row=row_policy(path, metadata["on_bad_row"], on_bad_row, quarantine),
                quarantine=quarantine,
                changes=None if watched is None else Changes(**watched["settings"]),
            )
            restore_entrants(online._entrants, arrays, metadata)
            online.history.restore(arrays["history"], metadata["history"])
            online.extra = dict(metadata["extra"])
        return online
