"""Print the frames between a public call and its algorithm: ``python tools/walks.py``.

For each call it prints the frames of the package that are on the stack when the algorithm is
entered for the first time, outermost first: the functions that a reader has to follow. Wrappers
that only switch on double precision, or let calls wait for each other, count as frames too. Models
of a comparison run in threads. For them the frames of the caller come first, as they are while it
waits for the thread. A call ends where its algorithm is entered.

The way of a CSV row has three walks: to its values, to the algorithm, and to the checkpoint. Their
files together, without those of the estimators, are printed last. ``tests/package/test_walks.py``
has the largest allowed numbers.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import numpyro.distributions as dist

import weighbridge as wb

PACKAGE = Path(wb.__file__).parent
SMALL = {"num_islands": 4, "num_particles": 16}
# File and function at which a walk ends.
LOOP = ("annealing/loop.py", "anneal")
PARSED = ("sources/text_columns.py", "parse_column")
WRITTEN = ("core/checkpoint_file.py", "write")
# Titles of the walks of a CSV row.
ROW_WALKS = (
    "wb.watch -> the values of a CSV row",
    "wb.watch -> the loop of a chunk",
    "wb.watch -> the file of a checkpoint",
)


class _EnteredError(BaseException):
    """The algorithm was entered: the rest of the call is not needed."""


def frames_at(entered: tuple[str, str], call: Callable[[], object]) -> list[str]:
    """Package frames, as file:function, when this function of this file is first entered.

    Args:
        entered: end of the file's path, and the function's name.
        call: the function to run.
    """
    found: list[str] = []

    def look(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if found or event != "call" or code.co_name != entered[1]:
            return
        if not code.co_filename.endswith(entered[0]):
            return
        found.extend(_package_frames(frame))
        if threading.current_thread() is not threading.main_thread():
            waiting = sys._current_frames()[threading.main_thread().ident or 0]
            found.extend(_package_frames(waiting))
        raise _EnteredError

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        with contextlib.suppress(_EnteredError):
            call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found[::-1]


def _package_frames(frame: FrameType | None) -> list[str]:
    """Frames of the package from this one outwards."""
    found = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            found.append(f"{path.relative_to(PACKAGE)}:{frame.f_code.co_name}")
        frame = frame.f_back
    return found


def files_of(frames: list[str]) -> list[str]:
    """The files of these frames, in order and without repeats."""
    return list(dict.fromkeys(frame.split(":")[0] for frame in frames))


def around_estimator(frames: list[str]) -> list[str]:
    """The files of these frames that are not those of an estimator."""
    return [file for file in files_of(frames) if not file.startswith("estimators/")]


def walks(folder: Path) -> dict[str, Callable[[], list[str]]]:
    """The walks by title; each returns its frames.

    Args:
        folder: an empty folder, for a CSV file and the runs of a watch.
    """
    model, other = wb.zoo.gaussian.model(), wb.zoo.gaussian.model(prior_mean=1.0)
    data = wb.zoo.gaussian.simulate(60, seed=1)
    method = wb.SGAIS(**SMALL)
    rows = folder / "rows.csv"
    rows.write_text("y\n" + "".join(f"{y}\n" for y in np.ravel(data)))

    def watch(run: str) -> object:
        plain = wb.Model({"mu": dist.Normal(0, 1)}, lambda p, row: -0.5 * (row["y"] - p["mu"]) ** 2)
        return wb.watch(wb.Plan({"a": plain, "b": plain}, method), str(rows), folder / run)

    return {
        "wb.evidence -> the loop of SMC": lambda: frames_at(
            LOOP, lambda: wb.evidence(model, data, wb.SMC(**SMALL))
        ),
        "wb.Online.update -> the loop of a chunk": lambda: frames_at(
            LOOP, lambda: wb.Online(model, method).update(data)
        ),
        "wb.OnlineComparison.update -> the loop of a chunk": lambda: frames_at(
            LOOP, lambda: wb.OnlineComparison({"a": model, "b": other}, method).update(data)
        ),
        ROW_WALKS[0]: lambda: frames_at(PARSED, lambda: watch("parsed")),
        ROW_WALKS[1]: lambda: frames_at(LOOP, lambda: watch("absorbed")),
        ROW_WALKS[2]: lambda: frames_at(WRITTEN, lambda: watch("saved")),
    }


def main() -> None:
    """Print the walks, and the files of the way of a CSV row."""
    with tempfile.TemporaryDirectory() as folder:
        found = {title: walk() for title, walk in walks(Path(folder)).items()}
    for title, frames in found.items():
        print(f"{title}: {len(frames)} frames in {len(files_of(frames))} files")
        print("".join(f"    {frame}\n" for frame in frames))
    row = files_of([frame for title in ROW_WALKS for frame in found[title]])
    row = around_estimator(row)
    print(f"A CSV row to its checkpoint, around the estimator: {len(row)} files")
    print("".join(f"    {file}\n" for file in row))


if __name__ == "__main__":
    main()
