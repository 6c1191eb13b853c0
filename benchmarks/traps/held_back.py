"""Runs on the held-back traps: at most two states of the library may ever see them.

Each is logged in a file that is committed. A run that was interrupted goes on as long as the
library's files have not changed.
"""

from __future__ import annotations

import datetime
import json
import subprocess
from pathlib import Path

LOG = Path(__file__).parent / "held_back.json"
MOST = 2
ROOT = Path(__file__).parents[2]


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def library() -> str:
    """The name that git has for the library's files and the traps; an error if they are changed."""
    places = ("weighbridge", "benchmarks/traps", f":!{LOG.relative_to(ROOT)}")
    if _git("status", "--porcelain", "--", *places):
        raise SystemExit("Commit first: held-back traps are for a state that can be found again.")
    return _git("rev-parse", "HEAD:weighbridge")


def logged(log: Path = LOG) -> list[dict[str, str]]:
    """The states that have seen the held-back traps, the latest one last."""
    return list(json.loads(log.read_text())) if log.exists() else []


def admit(state: str, log: Path = LOG) -> int:
    """The number of the run of this state, 1 or 2; a third state is refused."""
    known = logged(log)
    for number, entry in enumerate(known, 1):
        if entry["library"] == state:
            return number
    if len(known) >= MOST:
        raise SystemExit(
            f"The held-back traps were run {MOST} times ({log.name}). Another run would make them "
            "traps for development. Choose a new HELD_BACK in catalogue.py, and say so."
        )
    today = datetime.date.today().isoformat()
    known.append({"library": state, "commit": _git("rev-parse", "HEAD"), "date": today})
    log.write_text(json.dumps(known, indent=1) + "\n")
    return len(known)
