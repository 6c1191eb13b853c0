"""The expected content of a saved run: particles, rows, path and counts, with their limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from weighbridge.core.saved_content import (
    Check,
    Numbers,
    anything,
    check_arrays,
    items,
    maybe,
    one_of,
    real,
    record,
    text,
    truth,
    tuple_of,
    whole,
)
from weighbridge.results.saved_content import ERROR, FINGERPRINT, FLAGS, LOG, SECONDS

# Larger saved log evidences, log weights and standard errors are rejected.
LARGEST_ERROR = 1e100
# The most moves of one annealing step that a file may ask for; the default is ten at most.
MOST_MOVES = 10_000
UNKNOWN = real(-math.inf, math.inf, nan=True)
ANY = Numbers("fiub", None, -math.inf, math.inf, nan=True)
LOG_WEIGHTS = Numbers("f", ("islands", "particles"), -math.inf, LARGEST_ERROR)

ARRAYS = {
    "position": Numbers("f", ("islands", "particles", "coordinates")),
    "log_weight": LOG_WEIGHTS,
    "gained": LOG_WEIGHTS,
    "origin": Numbers("i", ("islands", "particles"), least=0),
    "log_evidences": Numbers("f", ("islands",), -math.inf, LARGEST_ERROR),
    "acceptance": Numbers("f", ("stages",), 0, 1, nan=True),
    "mover/step_size": Numbers("f", None, least=1e-300),
    "mover/num_moves": Numbers("iu", None, least=1, most=MOST_MOVES),
    "mover/.*": Numbers("fiub"),
    r"rows/(store_)?\d+|reference/\d+": Numbers("fiub"),
    "rows/counts": Numbers("i", None, least=0),
    "(anchor|error)/.*": Numbers("f"),
    ".*": ANY,
}
# The columns of a path, in this order; the last ones may be missing.
PATH = (
    Numbers("f", None, least=0),  # rows
    Numbers("f", None, least=-math.inf),  # log evidence
    Numbers("f", None, 0, math.inf, nan=True),  # its standard error
    Numbers("f", None, least=0, nan=True),  # annealing steps
    Numbers("f", None, least=0, nan=True),  # effective particles
    Numbers("f", None, 0, math.inf, nan=True),  # temperature
)

CHANGES = record(
    {
        "false_alarm_rate": real(0, 1),
        "policy": text,
        "window": whole(),
        "min_rows": whole(),
        "compete": truth,
        "changes_per_row": real(0, 1),
        "max_competitors": whole(),
    }
)
CHANGE = record(
    {
        "row": whole(),
        "p_value": real(0, 1),
        "score": UNKNOWN,
        "seen_in": text,
        "chunk_start": whole(),
        "chunk_end": whole(),
        "annealing_steps": UNKNOWN,
        "model": text,
    }
)
DETECTOR = record(
    {"changes": text, "num_chunks": whole(), "steps": items(real(0, nan=True))}, others=anything
)
CLOSED = record(
    {
        "num_rows": whole(),
        "num_observations": real(0),
        "path_log_evidence": LOG,
        "path_error": ERROR,
        "log_evidence": LOG,
        "std_error": ERROR,
        "flags": FLAGS,
    },
    others=anything,
)


def _segment(value: Any, where: str) -> None:
    """Check the run of a segment, which is itself a saved run."""
    RUN(value, where)


# Entries that methods, and the classes that wrap their runs, may save. Which of them one run must
# have is read from the state of a fresh run (``run_state.check_types``).
RUN_ENTRIES: dict[str, Check] = {
    "num_observations": real(0),
    "num_chunks": whole(),
    "temperature": real(0, math.inf, nan=True),
    "heating_bias": real(),
    "settled_variance": real(0),
    "widest_spread": real(0, math.inf, nan=True),
    "repaired": real(0),
    "counts": record({}, others=whole()),
    "anchor_rows": whole(),
    "batch_rows": tuple_of(whole(1), whole(1)),
    "noise_bias": UNKNOWN,
    "largest_noise": real(0, math.inf, nan=True),
    "labelled": one_of(0, 1),
    "verified_rows": whole(),
    "start_error": ERROR,
    "start_flags": FLAGS,
    "moved_rows": whole(),
    "num_stages": whole(),
    "num_columns": whole(),
    "run": _segment,
    "restarts": items(whole(), different=True),
    "closed": CLOSED,
    "detector": DETECTOR,
    "changes": items(CHANGE),
}
RUN = record({}, RUN_ENTRIES, others=anything)
SESSION = record(
    {"elapsed": SECONDS, "weight_counts_rows": maybe(truth), "run": RUN},
    {  # older files do not have these
        "fingerprint": maybe(FINGERPRINT),
        "columns_left_out": items(text),
        "largest": maybe(tuple_of(whole(), text, real(0))),
    },
    others=anything,
)
CHECKER = record(
    {
        "structure": maybe(items(tuple_of(text, items(whole()), text))),
        "rows_read": whole(),
        "rows_skipped": whole(),
        "rows_quarantined": whole(),
        "quarantine_size": whole(),
    },
    {"gaps": items(text, different=True)},  # older files do not have it
    others=anything,
)
ONLINE = record(
    {
        "seed": whole(most=2**63 - 1),
        "on_bad_row": one_of("raise", "skip", "quarantine"),
        "changes": maybe(CHANGES),
        "checker": CHECKER,
        "session": SESSION,
        "extra": record({}, others=anything),
    },
    others=anything,
)
CAUGHT_UP = record(
    {
        "how": one_of("start", "replayed", "reservoir"),
        "num_rows": whole(),
        "sampling_error": real(0, LARGEST_ERROR),
    }
)
ENTRANT = record(
    {
        "name": text,
        "model": text,
        "method": text,
        "prior_odds": real(1e-300),
        "caught_up": CAUGHT_UP,
        "session": SESSION,
    },
    others=anything,
)
COMPARISON = record(
    {
        "models": items(ENTRANT),
        "seed": whole(most=2**63 - 1),
        "on_bad_row": one_of("raise", "skip", "quarantine"),
        "checker": CHECKER,
        "identifiers": record({}, others=anything),
        "changes": maybe(
            record(
                {
                    "settings": CHANGES,
                    "parents": record({}, others=text),
                    "contest": record(
                        {"detector": DETECTOR, "changes": items(CHANGE), "num_rows": whole()}
                    ),
                }
            )
        ),
        "same": record({}, others=text),
        "history": record({"models": items(text, different=True)}),
        "extra": record({}, others=anything),
    },
    others=anything,
)
HISTORY = Numbers("f", ("columns", "entries"), -math.inf, math.inf, nan=True)


def check_run_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse arrays with values that no run can have."""
    sizes = check_arrays(arrays, ARRAYS)
    if "origin" in arrays and arrays["origin"].size:
        Numbers("i", None, 0, sizes["particles"] - 1).check(arrays["origin"], "origin", sizes)
    for name in ("path", "closed_path"):
        if name in arrays:
            _check_path(arrays[name], name)
    weight = arrays.get("log_weight")
    if weight is not None and weight.size and not np.isfinite(weight).any():
        raise ValueError("all particles have weight zero")


def _check_path(path: np.ndarray, name: str) -> None:
    if path.ndim != 2:
        raise ValueError(f"{name} has the shape {path.shape}, not points x columns")
    for number, (column, wanted) in enumerate(zip(path.T, PATH)):
        wanted.check(column, f"column {number} of {name}", {})
    if np.any(np.diff(path[:, 0]) < 0):
        raise ValueError(f"the number of rows decreases along {name}")


def check_rows_left_out(checker: Mapping[str, Any]) -> None:
    """Refuse counts by which more rows were left out than were read."""
    CHECKER(checker, "checker")
    left_out = checker["rows_skipped"] + checker["rows_quarantined"]
    if left_out > checker["rows_read"]:
        raise ValueError(f"{left_out} of {checker['rows_read']} rows were left out")
