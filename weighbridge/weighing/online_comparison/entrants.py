"""The models of an online comparison, their prior odds, and their current evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weighbridge.core.checks import check_seed
from weighbridge.core.errors import MethodError
from weighbridge.core.status import Status
from weighbridge.core.threads import in_threads
from weighbridge.data.row_checking import RowPolicy
from weighbridge.estimators.registry import Method
from weighbridge.models.model import Model
from weighbridge.models.response import check_responses
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.trust import Stated, stated, trust
from weighbridge.weighing.changes.settings import Changes
from weighbridge.weighing.model_probabilities import check_prior_odds, model_probabilities
from weighbridge.weighing.online_comparison.catching_up import CatchUp, replay, take_kept
from weighbridge.weighing.online_comparison.contest import (
    Contest,
    expected_work,
    latest,
)
from weighbridge.weighing.online_comparison.given_models import (
    Methods,
    check_models,
    choose_methods,
)
from weighbridge.weighing.session import Session, check_changes


class Entrants:
    """The models of a contest, with the prior odds and the method of each.

    Args:
        models: ``wb.Model`` by name.
        method: one method for all models, or one for each model.
        seed: the seed of every run.
        prior_odds: prior weight of each model; equal by default.
        on_bad_row: what to do with rows that one of the models cannot use.
        quarantine: the quarantine file.
        changes: how to detect changes of the stream; None: no detection.

    Attributes:
        contest: the runs of the models on the same rows.
        prior_odds: prior weight of each model.
        methods: method of each model, as the user gave it.
        caught_up: how each model got the rows before it joined.

    >>> import weighbridge as wb
    >>> models = {"a": wb.zoo.gaussian.model(), "b": wb.zoo.gaussian.model(prior_mean=1.0)}
    >>> entrants = Entrants(models, wb.SGAIS(num_islands=4, num_particles=16), 0, {"a": 3, "b": 1})
    >>> entrants.probabilities()[0]
    {'a': 0.75, 'b': 0.25}
    """

    def __init__(
        self,
        models: Mapping[str, Model],
        method: Methods,
        seed: int,
        prior_odds: Mapping[str, float] | None = None,
        on_bad_row: RowPolicy = "raise",
        quarantine: str | Path | None = None,
        changes: Changes | None = None,
    ) -> None:
        check_models(models)
        check_seed(seed)
        names = list(models)
        self.seed = seed
        self.prior_odds = dict(zip(names, check_prior_odds(names, prior_odds).tolist()))
        self.methods = choose_methods(names, method)
        check_changes(changes)
        self.contest = Contest(seed, on_bad_row, quarantine, changes, self.leader)

        def begin(name: str) -> Session:
            return self.contest.begin(models[name], self.methods[name])

        # In threads, because every model compiles the program that draws from its prior.
        self.sessions.update(in_threads(begin, dict(zip(names, names))))
        self.caught_up = {name: CatchUp("start", 0) for name in names}

    @property
    def sessions(self) -> dict[str, Session]:
        """The session of each model."""
        return self.contest.sessions

    # --- current estimates -----------------------------------------------------------------------

    def leader(self) -> str:
        """The most probable model."""
        heights = {
            name: latest(self.sessions[name])[0] + math.log(odds)
            for name, odds in self.prior_odds.items()
        }
        return max(heights, key=heights.__getitem__)

    def log_evidences(self) -> dict[str, float]:
        """Log evidence of each model on all rows seen, from the path; 0 before the first row."""
        return {name: latest(session)[0] for name, session in self.sessions.items()}

    def std_errors(self) -> dict[str, float]:
        """Standard errors of the log evidences; NaN if unknown or withheld."""
        return {name: self._stated(name).std_error for name in self.sessions}

    def probabilities(self) -> tuple[dict[str, float], dict[str, float]]:
        """Posterior probability of each model, and its standard deviation."""
        return model_probabilities(
            self.log_evidences(), self.std_errors(), self.prior_odds, self.seed
        )

    def flags(self) -> dict[str, tuple[Status, ...]]:
        """All reasons for caution, for each model."""
        return {name: self._stated(name).flags for name in self.sessions}

    def trust(self) -> dict[str, str]:
        """What grave flags make of the evidence of each model; see ``Evidence.trust``."""
        flags = self.flags()
        return {n: trust(session.method.name, flags[n]) for n, session in self.sessions.items()}

    def _stated(self, name: str) -> Stated:
        """The error of a model, from its path, and its flags."""
        session = self.sessions[name]
        error = math.hypot(latest(session)[1], self.caught_up[name].sampling_error)
        own = session.run.flags() if session.run.path else ()
        return stated(error, self._own_flags(name) + own, session.about_flatness(own))

    def results(self) -> dict[str, Evidence]:
        """The evidence of each model; its error includes the sampling error of catching up."""
        found = in_threads(Session.result, self.sessions, expected_work)
        return {name: self._with_past(name, result) for name, result in found.items()}

    def _own_flags(self, name: str) -> tuple[Status, ...]:
        sampled = self.caught_up[name].sampling_error > 0
        return (Status.PAST_SAMPLED,) if sampled else ()

    def _with_past(self, name: str, result: Evidence) -> Evidence:
        error = self.caught_up[name].sampling_error
        return replace(
            result,
            std_error=math.hypot(result.claimed_error, error),
            flags=self._own_flags(name) + result.flags,
            diagnostics={**result.diagnostics, "sampling_error": error},
        )

    # --- adding and removing models --------------------------------------------------------------

    def add(
        self,
        name: str,
        model: Model,
        source: Any,
        method: str | Method | None,
        prior_odds: float,
    ) -> CatchUp:
        """Let a model catch up, then add it; after an error nothing has changed."""
        if name in self.sessions:
            raise MethodError(f"There is a model {name!r} already. Choose another name.")
        check_models({name: model})
        check_responses({n: s.model for n, s in self.sessions.items()} | {name: model})
        odds = {**self.prior_odds, name: prior_odds}
        check_prior_odds(list(odds), odds)
        chosen = self.methods[next(iter(self.sessions))] if method is None else method
        contest = self.contest
        detector = contest.detector
        if detector is not None and detector.settings.policy == "restart" and detector.found:
            raise MethodError(
                "The models have begun anew at changes of the stream, and one that is added now "
                'has not. Start a new comparison, or use wb.Changes(policy="keep").'
            )
        session = contest.begin(model, chosen)
        if not contest.checker.rows_read:
            caught_up = CatchUp("start", 0)
        elif source is not None:
            caught_up = replay(session, source, contest.checker)
        else:
            exact = {n: s for n, s in self.sessions.items() if not self._own_flags(n)}
            caught_up = take_kept(session, exact, contest.checker)
        self.sessions[name], self.methods[name] = session, chosen
        self.caught_up[name] = caught_up
        self.prior_odds = odds
        return caught_up

    def welcome(self, before: dict[str, float], steps: dict[str, float]) -> None:
        """Set the prior odds of copies that started again at a change; remove surplus copies.

        If there are more than ``max_competitors`` copies, the least probable ones are removed.

        Args:
            before: log evidences before the update; entries for new copies are added.
            steps: annealing steps of the update; entries for new copies are added.
        """
        contest = self.contest
        if contest.detector is None:
            return
        settings = contest.detector.settings
        for name in contest.parents:
            if name not in self.prior_odds:
                elder, _, _ = name.rpartition(" | ")
                self.prior_odds[name] = self.prior_odds[elder] * settings.changes_per_row
                self.methods[name] = self.methods[elder]
                self.caught_up[name] = self.caught_up[elder]
                before[name], steps[name] = before[elder], steps.get(name, 0.0)
        while len(contest.parents) > settings.max_competitors:
            probabilities, _ = self.probabilities()
            least = min(contest.parents, key=probabilities.__getitem__)
            contest.leave(least)
            del self.prior_odds[least], self.methods[least], self.caught_up[least]

    def join(self, name: str, parent: str, prior_odds: float) -> None:
        """Add a copy that started again at a change, when a saved comparison is loaded.

        Args:
            name: name of the copy.
            parent: name of the user's model that it is a copy of.
            prior_odds: prior weight of the copy.
        """
        self.contest.join(name, parent)
        self.prior_odds[name] = prior_odds
        self.methods[name] = self.methods[parent]
        self.caught_up[name] = CatchUp("start", 0)
