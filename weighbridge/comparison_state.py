"""What a checkpoint holds of an online comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from weighbridge.catching_up import CatchUp
from weighbridge.saving import (
    LARGEST_ERROR,
    Arrays,
    Plain,
    check_types,
    identity,
    restore_session,
    session_state,
)
from weighbridge.session import Session

SCHEMA = "weighbridge.online_comparison.4"


class Part(NamedTuple):
    """One model of a comparison, as far as it is saved."""

    session: Session
    prior_odds: float
    caught_up: CatchUp


def save_parts(parts: Mapping[str, Part]) -> tuple[Arrays, list[Plain]]:
    """Arrays of all models, each under its number, and their plain values."""
    arrays: Arrays = {}
    entries = []
    for number, (name, part) in enumerate(parts.items()):
        own, plain = session_state(part.session)
        arrays |= {f"{number}/{key}": value for key, value in own.items()}
        entries.append(
            {
                "name": name,
                **identity(part.session.model, part.session.method),
                "prior_odds": part.prior_odds,
                "caught_up": part.caught_up._asdict(),
                "session": plain,
            }
        )
    return arrays, entries


def restore_part(session: Session, arrays: Arrays, entry: Mapping[str, Any], number: int) -> Part:
    """Continue one model from what ``save_parts`` gave."""
    prefix = f"{number}/"
    own = {k[len(prefix) :]: value for k, value in arrays.items() if k.startswith(prefix)}
    restore_session(session, own, entry["session"])
    caught_up = CatchUp(**entry["caught_up"])
    known = caught_up.how in ("start", "replayed", "reservoir")
    check_types(CatchUp("start", 0)._asdict(), caught_up._asdict(), "caught_up")
    if not known or not 0 <= caught_up.sampling_error < LARGEST_ERROR:
        raise ValueError(f"a model that caught up by {caught_up!r}")
    return Part(session, float(entry["prior_odds"]), caught_up)


def without_copies(arrays: Arrays) -> tuple[Arrays, dict[str, str]]:
    """Leave out rows that another model has kept as well; tells where they are to be found.

    Models that began together with one seed keep the same rows.

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
    """All arrays again."""
    return arrays | {name: arrays[twin] for name, twin in same.items()}


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two arrays are the same bit for bit."""
    alike = first.shape == second.shape and first.dtype == second.dtype
    return alike and first.tobytes() == second.tobytes()
