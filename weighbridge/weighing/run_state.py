"""The state of a session in a checkpoint, and the checks of a checkpoint before it is restored."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from weighbridge.core.errors import CheckpointError
from weighbridge.data.fingerprint import Fingerprint
from weighbridge.data.row_checking import RowPolicy
from weighbridge.data.values import left_out_before
from weighbridge.models.model import Model
from weighbridge.weighing.run_content import SESSION, check_run_arrays
from weighbridge.weighing.session import Session

Arrays = dict[str, np.ndarray]
Plain = dict[str, Any]

# The kind of JAX's random keys, written to checkpoints. The keys themselves need not be saved:
# they follow from the seed of a run and from its counts.
KEY_KIND = "threefry2x32"
# Names of the columns of kept rows; the data determine their number and types.
COLUMN = re.compile(r"rows/(store_)?(?P<number>\d+)")
# Names of the columns of the rows that the next chunk is compared with.
REFERENCE = re.compile(r"reference/(?P<number>\d+)")
# Arrays whose length depends on the data.
ANY_LENGTH = ("rows/layout",)


def identity(model: Model, method: Any) -> Plain:
    """Hashes of a model and a method, which identify a saved run."""
    return {"model": model.fingerprint(), "method": describe_method(method)}


def describe_method(method: Any) -> str:
    """A hash of a method's settings; numbers count by value, not by the type of their array."""
    fields = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
    leaves, structure = jax.tree_util.tree_flatten(fields)
    numbers = [np.asarray(leaf).tolist() for leaf in leaves]
    return hashlib.sha256(repr((structure, numbers)).encode()).hexdigest()[:16]


def check_identity(file: Path, saved: Any, model: Model, method: Any, whose: str = "") -> None:
    """Refuse a run that was saved with another model or another method.

    Args:
        file: the file, for the message.
        saved: the result of ``identity`` when the run was saved.
        model: the model that it must have.
        method: the method that it must have.
        whose: name of the model, if there are several.
    """
    wanted = identity(model, method)
    found = saved if isinstance(saved, dict) else {}
    about = f" of {whose!r}" if whose else ""
    if found.get("model") != wanted["model"]:
        raise CheckpointError(
            f"{file} was saved with another model{about} (another prior or log-likelihood). Load "
            "it with the model it was saved with, or start a new run."
        )
    if found.get("method") != wanted["method"]:
        raise CheckpointError(
            f"{file} was saved with another method{about} or other settings. Give the method "
            "and the settings it was saved with, or start a new run."
        )


def session_state(session: Session) -> tuple[Arrays, Plain]:
    """Arrays and plain values from which ``restore_session`` continues."""
    arrays, plain = session.run.state()
    return arrays, {
        "elapsed": session.elapsed,
        "weight_counts_rows": session.weight_counts_rows,
        "fingerprint": None if session.fingerprint is None else session.fingerprint.plain(),
        "columns_left_out": [str(name) for name in session.left_out],
        "largest": None if session.largest is None else list(session.largest),
        "run": plain,
    }


def restore_session(session: Session, arrays: Arrays, plain: Mapping[str, Any]) -> None:
    """Continue from the result of ``session_state``; restore the session's row checker first.

    A state that does not fit the run is refused here, and not by a later update.
    """
    SESSION(plain, "session")
    check_run_arrays(arrays)
    counts_rows = plain["weight_counts_rows"]
    fresh_arrays, fresh_plain = session.run.state()
    _check_shapes(fresh_arrays, arrays)
    check_types(fresh_plain, plain["run"])
    _check_columns(arrays, session.checker.state()["structure"], bool(counts_rows))
    if bool(plain["run"].get("restarts")) != ("closed_path" in arrays):
        raise ValueError("the path before the last restart is missing, or there was no restart")
    session.run.restore(arrays, plain["run"])
    session.weight_counts_rows = counts_rows
    session.elapsed = float(plain["elapsed"])
    # Older files do not have these.
    for name in map(str, plain.get("columns_left_out", ())):
        session.left_out.setdefault(name, left_out_before(name))
    largest = plain.get("largest")
    if largest is not None:
        row, column, size = largest
        session.largest = (int(row), str(column), float(size))
    known = plain.get("fingerprint")
    session.fingerprint = None if known is None else Fingerprint.from_plain(known)
    _check_path_ends(session)


def _check_path_ends(session: Session) -> None:
    """Refuse a path that does not end at the rows that the run has seen."""
    run = session.run
    end = run.path[-1].rows if run.path else 0.0
    if not math.isclose(end, run.num_observations, rel_tol=1e-9):
        raise ValueError(f"the path ends at {end} rows, and {run.num_observations} were seen")
    if bool(run.path) != bool(run.num_rows):
        raise ValueError(f"the run has {run.num_rows} rows and a path of {len(run.path)} points")


def check_counts(session: Session) -> None:
    """Refuse a run unless it has seen the admitted rows: others would be lost or count twice."""
    run, checker, seen = session.run, session.checker, session.fingerprint
    admitted = checker.rows_read - checker.rows_left_out
    counts = {run.num_rows, admitted, run.num_rows if seen is None else seen.num_rows}
    if len(counts) > 1:
        raise ValueError(f"{admitted} rows were admitted, and {sorted(counts)} were seen")
    if not session.weight_counts_rows and run.num_observations != run.num_rows:
        raise ValueError(f"{run.num_rows} rows without weights count as {run.num_observations}")


def _check_shapes(fresh: Arrays, saved: Arrays) -> None:
    """Compare with the arrays of a fresh run; arrays that are empty there may grow."""
    for name, expected in fresh.items():
        found = saved[name]
        grows = name in ANY_LENGTH or expected.shape[:1] == (0,)
        start = 1 if grows else 0
        same_shape = found.shape[start:] == expected.shape[start:]
        if found.dtype != expected.dtype or found.ndim != expected.ndim or not same_shape:
            raise ValueError(
                f"{name!r} is {found.dtype} of shape {found.shape}, and {expected.dtype} of "
                f"{expected.shape} was expected"
            )


def check_types(fresh: Any, saved: Any, where: str = "run") -> None:
    """Compare plain values with those of a fresh run.

    >>> check_types({"rows": 0, "errors": [0.5]}, {"rows": 3, "errors": [1]})
    >>> check_types({"rows": 0}, {"rows": "three"})
    Traceback (most recent call last):
    ...
    ValueError: run/rows is 'three', and a value such as 0 was expected
    """
    if fresh is None:  # the value is set later
        return
    if isinstance(fresh, dict):
        if not isinstance(saved, dict) or set(fresh) != set(saved):
            raise ValueError(f"{where} must have the entries {list(fresh)}")
        for name in fresh:
            check_types(fresh[name], saved[name], f"{where}/{name}")
        return
    fits = isinstance(saved, type(fresh) if not isinstance(fresh, float) else float | int)
    if isinstance(saved, bool) or not fits or (fresh and _length(fresh) != _length(saved)):
        raise ValueError(f"{where} is {saved!r}, and a value such as {fresh!r} was expected")
    if isinstance(fresh, list):
        for number, item in enumerate(fresh):
            check_types(item, saved[number], f"{where}/{number}")


def _length(value: Any) -> int:
    """Length of a list; 1 for any other value."""
    return len(value) if isinstance(value, list) else 1


def check_structure(structure: Any) -> None:
    """Refuse a structure that is not a list of names, shapes and types of columns."""
    for name, shape, kind in structure or ():
        sizes = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
        if not isinstance(name, str) or not isinstance(kind, str) or not sizes:
            raise ValueError(f"{(name, shape, kind)!r} is not the name, shape and type of a column")


def _check_columns(arrays: Arrays, structure: Any, counts_rows: bool) -> None:
    """Refuse kept rows unless they have the columns of the stream and one weight each."""
    check_structure(structure)
    if counts_rows and "weight" not in [name for name, *_ in structure or ()]:
        raise ValueError("rows have weights, but there is no column of weights")
    for pattern in (COLUMN, REFERENCE):
        check_table(arrays, pattern, structure, counts_rows)


def check_table(
    arrays: Arrays, pattern: re.Pattern[str], structure: Any, counts_rows: bool
) -> None:
    """Refuse kept rows whose columns are not those of the stream.

    Args:
        arrays: the saved arrays.
        pattern: of the names of the arrays that are columns of the table, with their numbers.
        structure: name, shape and type of each column of the stream.
        counts_rows: whether the stream's column "weight" was taken out, as the last of the table.
    """
    matches = {name: pattern.fullmatch(name) for name in arrays}
    numbered = {int(match["number"]): arrays[name] for name, match in matches.items() if match}
    columns = [numbered[number] for number in range(len(numbered))]
    if not columns:
        return
    if structure is None:
        raise ValueError("there are kept rows, but no columns")
    expected = [
        (tuple(shape), kind)
        for name, shape, kind in structure
        if not (counts_rows and name == "weight")
    ]
    expected.append(((), "float64"))
    found = [(column.shape[1:], str(column.dtype)) for column in columns]
    if found != expected or len({len(column) for column in columns}) > 1:
        raise ValueError(f"the kept rows have the columns {found}, and {expected} was expected")
    if len(columns[-1]) and columns[-1].min() < 0:
        raise ValueError("a kept row has a negative weight")


def row_policy(
    file: Path, saved: Any, on_bad_row: RowPolicy | None, quarantine: str | Path | None
) -> RowPolicy:
    """What to do with bad rows: as the caller asks, or else as before."""
    chosen: RowPolicy = saved if on_bad_row is None else on_bad_row
    if chosen == "quarantine" and quarantine is None:
        raise CheckpointError(
            f"The run in {file} writes bad rows to a file: name the file again (quarantine=PATH)."
        )
    return chosen
