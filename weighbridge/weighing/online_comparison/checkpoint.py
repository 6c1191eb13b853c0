"""The state of an online comparison in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from weighbridge.core.errors import CheckpointError
from weighbridge.estimators.registry import Method, resolve_sequential
from weighbridge.models.model import Model
from weighbridge.weighing.online_comparison.catching_up import CatchUp
from weighbridge.weighing.online_comparison.entrants import Entrants
from weighbridge.weighing.run_content import COMPARISON, HISTORY, check_rows_left_out
from weighbridge.weighing.run_state import (
    REFERENCE,
    Arrays,
    Plain,
    check_counts,
    check_identity,
    check_table,
    identity,
    restore_session,
    session_state,
)

SCHEMA = "weighbridge.online_comparison.5"


def entrants_state(entrants: Entrants) -> tuple[Arrays, Plain]:
    """Arrays and plain values from which ``restore_entrants`` continues."""
    arrays: Arrays = {}
    models = []
    for number, (name, session) in enumerate(entrants.sessions.items()):
        own, plain = session_state(session)
        arrays |= {f"{number}/{key}": value for key, value in own.items()}
        models.append(
            {
                "name": name,
                **identity(session.model, session.method),
                "prior_odds": entrants.prior_odds[name],
                "caught_up": entrants.caught_up[name]._asdict(),
                "session": plain,
            }
        )
    kept, same = without_copies(arrays)
    contest, changes = entrants.contest, None
    if contest.detector is not None:
        # The rows with which the next chunk is compared are saved as arrays.
        reference, noted = contest.detector.state()
        kept |= reference
        changes = {
            "settings": asdict(contest.detector.settings),
            "parents": dict(contest.parents),
            "contest": {**noted, "num_rows": contest.rows_tested},
        }
    return kept, {
        "models": models,
        "checker": contest.checker.state(),
        "identifiers": contest.continuity.state(),
        "changes": changes,
        "same": same,
    }


def check_comparison(arrays: Arrays, metadata: Mapping[str, Any]) -> None:
    """Raise an error if the content is not a valid comparison, of any models."""
    COMPARISON(metadata, "metadata")
    check_rows_left_out(metadata["checker"])
    names = [entry["name"] for entry in metadata["models"]]
    parents = {} if metadata["changes"] is None else metadata["changes"]["parents"]
    own = set(names) - set(parents)
    if len(set(names)) != len(names) or not own:
        raise ValueError(f"the models are {names}")
    if not set(parents) <= set(names) or not set(parents.values()) <= own:
        raise ValueError(f"models that began anew are {parents}, of {names}")
    if set(metadata["same"]) & set(arrays):
        raise ValueError("rows are both kept and those of another model")
    HISTORY.check(arrays["history"], "history", {})
    check_table(arrays, REFERENCE, metadata["checker"]["structure"], counts_rows=False)


def check_entrants(
    file: Path,
    plain: Mapping[str, Any],
    models: Mapping[str, Model],
    methods: Mapping[str, str | Method],
) -> dict[str, float]:
    """Raise an error if the saved comparison has other models or methods.

    Args:
        file: the file, for the message.
        plain: the plain values from ``entrants_state``, as saved.
        models: the expected models.
        methods: the expected methods.

    Returns:
        The prior odds of the models, in their order.
    """
    entries = {entry["name"]: entry for entry in plain["models"]}
    parents = {} if plain["changes"] is None else dict(plain["changes"]["parents"])
    own = [name for name in entries if name not in parents]
    if set(own) != set(models):
        raise CheckpointError(
            f"{file} was saved with the models {own}, not {list(models)}. Load it with those."
        )
    for name, entry in entries.items():
        root = parents.get(name, name)
        check_identity(file, entry, models[root], resolve_sequential(methods[root]), name)
    return {name: entries[name]["prior_odds"] for name in own}


def restore_entrants(entrants: Entrants, arrays: Arrays, plain: Mapping[str, Any]) -> None:
    """Continue from the saved values of ``entrants_state``."""
    arrays = with_copies(arrays, plain["same"])
    contest, changes = entrants.contest, plain["changes"]
    contest.checker.restore(plain["checker"])
    contest.continuity.restore(plain["identifiers"])
    entries = {entry["name"]: entry for entry in plain["models"]}
    if changes is not None and contest.detector is not None:
        contest.detector.restore(arrays, changes["contest"])
        contest.rows_tested = int(changes["contest"]["num_rows"])
        for name in entries:
            if name in changes["parents"]:
                entrants.join(name, changes["parents"][name], float(entries[name]["prior_odds"]))
    for number, (name, entry) in enumerate(entries.items()):
        prefix = f"{number}/"
        own = {k[len(prefix) :]: value for k, value in arrays.items() if k.startswith(prefix)}
        restore_session(entrants.sessions[name], own, entry["session"])
        entrants.caught_up[name] = CatchUp(**entry["caught_up"])
    _check_same_rows(entrants)


def _check_same_rows(entrants: Entrants) -> None:
    """Check that all models have seen the admitted rows, or a sample that represents them."""
    counts = {round(session.run.num_observations) for session in entrants.sessions.values()}
    if len(counts) > 1:
        raise ValueError(f"the models have seen different numbers of rows, {counts}")
    for name, session in entrants.sessions.items():
        if entrants.caught_up[name].sampling_error == 0:
            check_counts(session)
    contest = entrants.contest
    if contest.detector is not None:
        admitted = contest.checker.rows_read - contest.checker.rows_left_out
        if contest.rows_tested != admitted:
            raise ValueError(f"{contest.rows_tested} rows were looked at, and {admitted} admitted")


def without_copies(arrays: Arrays) -> tuple[Arrays, dict[str, str]]:
    """Leave out arrays of rows that another model has too; also return where they are.

    Models that started together, with the same seed, keep the same rows.

    >>> kept, same = without_copies({"0/rows/1": np.ones(2), "1/rows/1": np.ones(2)})
    >>> list(kept), same
    (['0/rows/1'], {'1/rows/1': '0/rows/1'})
    """
    kept: Arrays = {}
    same: dict[str, str] = {}
    for name, array in arrays.items():
        twin = None
        if "/rows/" in name:
            _, _, rest = name.partition("/")
            twins = (other for other in kept if other.partition("/")[2] == rest)
            twin = next((other for other in twins if _equal(kept[other], array)), None)
        if twin is None:
            kept[name] = array
        else:
            same[name] = twin
    return kept, same


def with_copies(arrays: Arrays, same: Mapping[str, str]) -> Arrays:
    """All arrays, with those that ``without_copies`` left out."""
    return arrays | {name: arrays[twin] for name, twin in same.items()}


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two arrays are equal, bit for bit."""
    alike = first.shape == second.shape and first.dtype == second.dtype
    return alike and first.tobytes() == second.tobytes()
