"""Models weighed against each other as the rows arrive: update, look, add, save, resume."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from weighbridge import checkpoint
from weighbridge.averaging import average
from weighbridge.base import CheckpointError, MethodError, Status
from weighbridge.catching_up import CatchUp, replay, take_kept
from weighbridge.changes import Change, Changes
from weighbridge.comparison import (
    Comparison,
    check_prior_odds,
    compare_results,
    model_probabilities,
)
from weighbridge.comparison_state import (
    SCHEMA,
    Part,
    restore_part,
    save_parts,
    with_copies,
    without_copies,
)
from weighbridge.comparison_update import ComparisonUpdate
from weighbridge.contest import Contest, Methods, check_models, choose_methods, latest
from weighbridge.data import RowPolicy, as_values
from weighbridge.estimators import Method, resolve_sequential
from weighbridge.history import History
from weighbridge.model import Model
from weighbridge.numerics import check_seed
from weighbridge.parallel import in_threads
from weighbridge.prediction import Function, Prediction
from weighbridge.result import Evidence
from weighbridge.saving import KEY_KIND, Arrays, check_identity, refusing, row_policy
from weighbridge.session import Session
from weighbridge.watched_contest import WatchedContest


class OnlineComparison:
    r"""Models on one stream, weighed against each other as the rows arrive.

    .. math:: P(m | y_{1:n}) = Z_m(y_{1:n}) \, \pi_m / \sum_k Z_k(y_{1:n}) \, \pi_k

    Every model sees the same rows: one that is bad for one of them is left out for all, and an
    update that fails for one leaves all as they were. Models are updated in parallel threads; the
    numbers are those of a ``wb.Online`` for each, with the same seed for all as in ``wb.compare``.

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

    Attributes:
        history: a table with an entry for each update.
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
    ) -> None:
        check_models(models)
        check_seed(seed)
        names = list(models)
        self.seed, self.on_bad_row, self.quarantine = seed, on_bad_row, quarantine
        self.prior_odds = dict(zip(names, check_prior_odds(names, prior_odds).tolist()))
        self.history = History()
        self.extra: dict[str, Any] = {}
        self._methods = choose_methods(names, method)
        self._contest = self._open_contest(changes)
        self._sessions = self._contest.sessions
        for name, chosen in self._methods.items():
            self._sessions[name] = self._contest.begin(models[name], chosen)
        self._caught_up = {name: CatchUp("start", 0) for name in names}

    def _open_contest(self, changes: Changes | None) -> Contest:
        if changes is None:
            return Contest(self.seed, self.on_bad_row, self.quarantine)
        if not isinstance(changes, Changes):
            raise MethodError(f"changes must be a wb.Changes or None, not {changes!r}.")
        return WatchedContest(self.seed, self.on_bad_row, self.quarantine, changes, self._leader)

    def _leader(self) -> str:
        """The most probable model."""
        heights = {
            name: latest(self._sessions[name])[0] + math.log(odds)
            for name, odds in self.prior_odds.items()
        }
        return max(heights, key=heights.__getitem__)

    # --- what is known ---------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Names of the models."""
        return list(self._sessions)

    @property
    def num_observations(self) -> int:
        """Rows seen so far, repeated rows counted."""
        return round(next(iter(self._sessions.values())).run.num_observations)

    @property
    def log_evidences(self) -> dict[str, float]:
        """Log evidence of each model on everything seen, by the path; 0 before the first row."""
        return {name: latest(session)[0] for name, session in self._sessions.items()}

    @property
    def std_errors(self) -> dict[str, float]:
        """Their standard errors; NaN where unknown."""
        return {
            name: math.hypot(latest(session)[1], self._caught_up[name].sampling_error)
            for name, session in self._sessions.items()
        }

    @property
    def probabilities(self) -> dict[str, float]:
        """Posterior probability of each model."""
        return self._probabilities()[0]

    @property
    def probability_errors(self) -> dict[str, float]:
        """Their standard deviations under the errors of the log evidences."""
        return self._probabilities()[1]

    @property
    def changes(self) -> list[Change]:
        """Changes of the stream that were found so far."""
        contest = self._contest
        return list(contest.changes) if isinstance(contest, WatchedContest) else []

    @property
    def flags(self) -> dict[str, tuple[Status, ...]]:
        """Every reason for caution of each model."""
        return {
            name: self._own_flags(name) + (session.run.flags() if session.run.path else ())
            for name, session in self._sessions.items()
        }

    def _probabilities(self) -> tuple[dict[str, float], dict[str, float]]:
        return model_probabilities(self.log_evidences, self.std_errors, self.prior_odds, self.seed)

    def _own_flags(self, name: str) -> tuple[Status, ...]:
        sampled = self._caught_up[name].sampling_error > 0
        return (Status.PAST_SAMPLED,) if sampled else ()

    def result(self) -> Comparison:
        """The comparison on everything seen, with the evidence of every model.

        That crosses a bridge where the method has one, and is then better known than the path that
        updates tell.
        """
        found = in_threads(Session.result, self._sessions)
        results = {name: self._with_past(name, result) for name, result in found.items()}
        return compare_results(results, self.prior_odds, self.seed)

    def _with_past(self, name: str, result: Evidence) -> Evidence:
        """A result with the error that its model caught up with."""
        error = self._caught_up[name].sampling_error
        return replace(
            result,
            std_error=math.hypot(result.std_error, error),
            flags=self._own_flags(name) + result.flags,
            diagnostics={**result.diagnostics, "sampling_error": error},
        )

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

    def update(self, data: Any, identifier: str | int | None = None) -> ComparisonUpdate:
        """Absorb rows, any number of them, into every model.

        All rows are checked before the first is absorbed, and whatever fails, for whichever model,
        every one of them is then as before.

        Args:
            data: the rows.
            identifier: of these rows. If it came before they are not absorbed again, and if whole
                numbers leave out some that is noticed: see ``notices`` of the update.
        """
        began, before, known = time.perf_counter(), self.log_evidences, len(self.changes)
        taken = self._contest.take(as_values(data), identifier)
        self._welcome(before, taken.annealing_steps)
        probabilities, errors = self._probabilities()
        log_evidences = self.log_evidences
        update = ComparisonUpdate(
            num_observations=self.num_observations,
            log_evidences=log_evidences,
            std_errors=self.std_errors,
            log_predictives={n: log_evidences[n] - before[n] for n in log_evidences},
            annealing_steps={n: taken.annealing_steps[n] for n in log_evidences},
            probabilities=probabilities,
            probability_errors=errors,
            rows_skipped=taken.rows_skipped,
            rows_quarantined=taken.rows_quarantined,
            flags=self.flags,
            elapsed=time.perf_counter() - began,
            notices=taken.notices,
            changes=tuple(self.changes[known:]),
        )
        if taken.is_new:
            self.history.record(update)
        return update

    def _welcome(self, before: dict[str, float], steps: dict[str, float]) -> None:
        """Give models that began anew at a change their prior odds; the least probable go."""
        contest = self._contest
        if not isinstance(contest, WatchedContest):
            return
        settings = contest.detector.changes
        for name in contest.parents:
            if name not in self.prior_odds:
                elder, _, _ = name.rpartition(" | ")
                self.prior_odds[name] = self.prior_odds[elder] * settings.changes_per_row
                self._methods[name] = self._methods[elder]
                self._caught_up[name] = self._caught_up[elder]
                before[name], steps[name] = before[elder], steps.get(name, 0.0)
        while len(contest.parents) > settings.max_competitors:
            probabilities = self.probabilities
            least = min(contest.parents, key=probabilities.__getitem__)
            contest.leave(least)
            del self.prior_odds[least], self._methods[least], self._caught_up[least]

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
        if name in self._sessions:
            raise MethodError(f"There is a model {name!r} already. Choose another name.")
        check_models({name: model})
        odds = {**self.prior_odds, name: prior_odds}
        check_prior_odds(list(odds), odds)
        chosen = self._methods[self.names[0]] if method is None else method
        contest = self._contest
        anew = isinstance(contest, WatchedContest) and contest.detector.changes.policy == "restart"
        if anew and self.changes:
            raise MethodError(
                "The models have begun anew at changes of the stream, and one that is added now "
                'has not. Start a new comparison, or use wb.Changes(policy="keep").'
            )
        session = contest.begin(model, chosen)
        if not self._contest.checker.rows_read:
            caught_up = CatchUp("start", 0)
        elif source is not None:
            caught_up = replay(session, source, self._contest.checker)
        else:
            exact = {n: s for n, s in self._sessions.items() if not self._own_flags(n)}
            caught_up = take_kept(session, exact, self._contest.checker.state()["structure"])
        self._sessions[name], self._methods[name] = session, chosen
        self._caught_up[name] = caught_up
        self.prior_odds = odds
        return caught_up

    def caught_up(self, name: str) -> CatchUp:
        """How a model came to know what it knows of the first rows."""
        return self._caught_up[name]

    # --- saved and resumed bit for bit -----------------------------------------------------------

    def save(self, path: str | Path, *, extra: Mapping[str, Any] | None = None) -> None:
        """Write all of it to one file, whole or not at all.

        Args:
            path: the file; what is there is replaced.
            extra: plain values to keep beside the run, such as the cursor of its source.
        """
        arrays, entries = save_parts(
            {
                name: Part(session, self.prior_odds[name], self._caught_up[name])
                for name, session in self._sessions.items()
            }
        )
        kept, same = without_copies(arrays)
        numbers, about_history = self.history.state()
        watched = self._watch_state(kept)
        metadata = {
            "models": entries,
            "seed": self.seed,
            "key": KEY_KIND,
            "on_bad_row": self.on_bad_row,
            "checker": self._contest.checker.state(),
            "identifiers": self._contest.continuity.state(),
            "changes": watched,
            "history": about_history,
            "same": same,
            "extra": dict(extra or {}),
        }
        checkpoint.write(path, SCHEMA, {**kept, "history": numbers}, metadata)

    @classmethod
    def load(
        cls,
        path: str | Path,
        models: Mapping[str, Model],
        method: Methods = "auto",
        *,
        on_bad_row: RowPolicy | None = None,
        quarantine: str | Path | None = None,
        limit: int = checkpoint.LARGEST_FILE,
    ) -> OnlineComparison:
        """Continue a saved comparison, bit for bit as if it had never stopped.

        A file that is damaged, or of other models, methods or another version of the format, is
        refused with a ``CheckpointError``; nothing in it is run.

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
        arrays, metadata = checkpoint.read(path, SCHEMA, limit)
        with refusing(path):
            entries = {entry["name"]: entry for entry in metadata["models"]}
            watched = metadata["changes"]
            parents = {} if watched is None else dict(watched["parents"])
            own = [name for name in entries if name not in parents]
            if set(own) != set(models):
                raise CheckpointError(
                    f"{path} was saved with the models {own}, not {list(models)}. Load it with "
                    "those."
                )
            for name, entry in entries.items():
                root = parents.get(name, name)
                chosen = resolve_sequential(methods[root])
                check_identity(path, entry, models[root], chosen, name)
            online = cls(
                {name: models[name] for name in own},
                methods,
                metadata["seed"],
                prior_odds={name: entries[name]["prior_odds"] for name in own},
                on_bad_row=row_policy(path, metadata["on_bad_row"], on_bad_row, quarantine),
                quarantine=quarantine,
                changes=None if watched is None else Changes(**watched["settings"]),
            )
            online._restore(with_copies(arrays, metadata["same"]), metadata, entries)
        return online

    def _restore(
        self, arrays: Arrays, metadata: Mapping[str, Any], entries: Mapping[str, Any]
    ) -> None:
        self._contest.checker.restore(metadata["checker"])
        self._contest.continuity.restore(metadata["identifiers"])
        self._restore_watch(arrays, metadata["changes"], entries)
        for number, (name, entry) in enumerate(entries.items()):
            part = restore_part(self._sessions[name], arrays, entry, number)
            self._caught_up[name] = part.caught_up
        counts = {round(s.run.num_observations) for s in self._sessions.values()}
        if len(counts) > 1:
            raise ValueError(f"the models have seen different numbers of rows, {counts}")
        self.history.restore(arrays["history"], metadata["history"])
        self.extra = dict(metadata["extra"])

    def _watch_state(self, arrays: Arrays) -> dict[str, Any] | None:
        """What is known of changes; rows that the next chunk is compared with go to the arrays."""
        contest = self._contest
        if not isinstance(contest, WatchedContest):
            return None
        kept, plain = contest.state()
        arrays.update(kept)
        settings = asdict(contest.detector.changes)
        return {"settings": settings, "parents": dict(contest.parents), "contest": plain}

    def _restore_watch(
        self, arrays: Arrays, saved: Mapping[str, Any] | None, entries: Mapping[str, Any]
    ) -> None:
        contest = self._contest
        if saved is None or not isinstance(contest, WatchedContest):
            return
        contest.restore(arrays, saved["contest"])
        for name in entries:
            if name in saved["parents"]:
                parent = saved["parents"][name]
                contest.join(name, parent)
                self.prior_odds[name] = float(entries[name]["prior_odds"])
                self._methods[name] = self._methods[parent]
                self._caught_up[name] = CatchUp("start", 0)
