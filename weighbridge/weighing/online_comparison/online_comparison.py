"""Models compared on a stream of rows; models can join, and a run can be saved and resumed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weighbridge.core import checkpoint_file
from weighbridge.core.progress.reporters import CHECKING, WEIGHING, Reporter, telling
from weighbridge.core.rollback import restored_on_error
from weighbridge.core.status import Status
from weighbridge.core.threads import Turns
from weighbridge.data.quarantine import Unread
from weighbridge.data.row_checking import RowPolicy
from weighbridge.estimators.registry import Method
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
from weighbridge.weighing.run_state import KEY_KIND, row_policy


class OnlineComparison:
    r"""Models on one stream, compared as the rows arrive.

    .. math:: P(m | y_{1:n}) = Z_m(y_{1:n}) \, \pi_m / \sum_k Z_k(y_{1:n}) \, \pi_k

    Every model sees the same rows: a row that one model cannot use is left out for all models, and
    an update that fails for one model changes none. Models are updated in parallel threads. The
    numbers are those of a ``wb.Online`` for each model, with the same seed, as in ``wb.compare``.
    Several threads may use one object: their calls wait for each other. A forked process may not:
    there a call is an error.

    Args:
        models: ``wb.Model`` by name.
        method: a method object, or its name; or one for each model, by name.
        seed: the same seed and the same updates give the same numbers.
        prior_odds: prior weight of each model; equal by default.
        on_bad_row: what to do with rows that cannot be used: "raise", "skip" them and count them,
            or "quarantine": count them and append them to a file, with the reason.
        quarantine: that file.
        changes: how to detect changes of the stream, and what to do then; None: no detection. The
            model that leads before a chunk tests it. With ``compete`` a model "NAME | changed at
            ROW" joins when NAME detects a change. Its evidence is that of NAME on the rows before
            the change, times the evidence of the later rows from the prior. Its prior odds are
            those of NAME times ``changes_per_row``.
        progress: True or False, or a reporter; by default the progress of slow calls is
            shown on a terminal or in a notebook, and elsewhere if a call takes more than 10 s.

    Attributes:
        history: a table with an entry for each update.
        progress: the argument; it may be changed, and is not saved.
        extra: values that were saved with the loaded run, such as the cursor of its source.

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

    # --- current estimates -----------------------------------------------------------------------

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
        """Number of rows seen so far, each counted with its weight."""
        return round(next(iter(self._entrants.sessions.values())).run.num_observations)

    @property
    def rows_read(self) -> int:
        """Number of rows given so far, including bad rows."""
        return self._entrants.contest.checker.rows_read

    @property
    def log_evidences(self) -> dict[str, float]:
        """Log evidence of each model on all rows seen, from the path; 0 before the first row."""
        return self._turns.take(self._entrants.log_evidences)

    @property
    def std_errors(self) -> dict[str, float]:
        """Standard errors of the log evidences; NaN if unknown, and with a grave flag."""
        return self._turns.take(self._entrants.std_errors)

    @property
    def probabilities(self) -> dict[str, float]:
        """Posterior probability of each model."""
        return self._turns.take(self._entrants.probabilities)[0]

    @property
    def probability_errors(self) -> dict[str, float]:
        """Standard deviations of the probabilities, due to the errors of the log evidences."""
        return self._turns.take(self._entrants.probabilities)[1]

    @property
    def changes(self) -> list[Change]:
        """Changes of the stream detected so far."""
        return self._turns.take(self._entrants.contest.changes)

    @property
    def flags(self) -> dict[str, tuple[Status, ...]]:
        """All reasons for caution, for each model."""
        return self._turns.take(self._entrants.flags)

    def result(self) -> Comparison:
        """The comparison on all rows seen, with the evidence of every model.

        If the method has a bridge, the evidence may come from it. It is then more precise than the
        path estimates of updates.
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
        """Draws from the predictions of all models, weighted by the models' probabilities.

        Args:
            functions: a function as for ``Evidence.predict``, one for each model or one for all.
            inputs: rows to predict, the same for every model.
            num_draws: total number of draws.
            seed: the same seed gives the same numbers.
        """
        return average(self.result(), functions, inputs, num_draws=num_draws, seed=seed)

    # --- adding rows -----------------------------------------------------------------------------

    def set_file_aside(self, file: str, reason: str) -> None:
        """Note in the quarantine file, if there is one, that a file could not be read."""
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
        """Absorb any number of rows into every model.

        All rows are checked before the first is absorbed. After an error in any model, all models
        are in the same state as before the call.

        Args:
            data: the rows.
            identifier: identifier of these rows. Rows with an identifier that came before are not
                absorbed again. Gaps in whole-number identifiers are reported. See ``notices`` of
                the update.
            unread: rows of the data, counted from 0, that a feed could not read, and why; their
                values are NaN. Their text is written to the quarantine file.
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
                trust=entrants.trust(),
                elapsed=time.perf_counter() - began,
                notices=taken.notices,
                changes=tuple(contest.changes()[known:]),
            )
            if taken.is_new:
                self.history.record(update)
            return update

    # --- adding models ---------------------------------------------------------------------------

    def add(
        self,
        name: str,
        model: Model,
        source: Any = None,
        *,
        method: str | Method | None = None,
        prior_odds: float = 1.0,
    ) -> CatchUp:
        """Add a model, which first catches up; after an error nothing has changed.

        Args:
            name: name of the model.
            model: a ``wb.Model``.
            source: data with the rows seen so far, from the first row on; the model reads them.
                Without a source, the model takes the rows that another model has kept. If these
                are a sample, the sampling error is part of its standard error from then on.
            method: a method object, or its name; by default that of the first model.
            prior_odds: prior weight of the model, on the scale of the other weights.

        Returns:
            How it caught up; it can be printed.
        """
        return self._turns.take(self._add, name, model, source, method, prior_odds)

    def _add(
        self, name: str, model: Model, source: Any, method: str | Method | None, prior_odds: float
    ) -> CatchUp:
        with restored_on_error(self._entrants):
            return self._entrants.add(name, model, source, method, prior_odds)

    def caught_up(self, name: str) -> CatchUp:
        """How a model got the rows before it joined."""
        return self._entrants.caught_up[name]

    # --- saved and resumed bit for bit -----------------------------------------------------------

    def save(self, path: str | Path, *, extra: Mapping[str, Any] | None = None) -> None:
        """Write the comparison to one file, completely or not at all.

        Args:
            path: the file; an existing file is replaced.
            extra: plain values to save with the comparison, such as the cursor of its source.
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

        A file that is damaged, or of other models, methods or another version of the format,
        raises a ``CheckpointError``. No code from the file is executed. The digest of a file
        protects against damage, not against attackers: keep checkpoints where only you can write.

        Args:
            path: a file that ``save`` wrote.
            models: the models of that comparison by name, including those that were added.
            method: the method of that comparison, or that of each model by name.
            on_bad_row: what to do with bad rows from now on; by default as before.
            quarantine: the file for bad rows, if they are quarantined; a checkpoint does not
                contain its path.
            limit: largest size of a file in bytes; a larger file is an error.
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
