"""Print the frames between a public call and its algorithm: ``python tools/walks.py``.

For each of four calls it prints the frames of the package that are on the stack when the algorithm
is entered for the first time, outermost first: the functions that a reader has to follow. Wrappers
that only switch on double precision, or let calls wait for each other, count as frames too. Models
of a comparison run in threads. For them the frames of the caller come first, as they are while it
waits for the thread.
"""

from __future__ import annotations

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

    threading.setprofile(look)
    sys.setprofile(look)
    try:
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


def main() -> None:
    """Print the four walks."""
    model, other = wb.zoo.gaussian.model(), wb.zoo.gaussian.model(prior_mean=1.0)
    data = wb.zoo.gaussian.simulate(60, seed=1)
    small = {"num_islands": 4, "num_particles": 16}
    online = wb.Online(model, wb.SGAIS(**small))
    both = wb.OnlineComparison({"a": model, "b": other}, method=wb.SGAIS(**small))
    loop = ("annealing/loop.py", "anneal")
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.csv"
        rows.write_text("y\n" + "".join(f"{y}\n" for y in np.ravel(data)))

        def watch() -> None:
            prior = {"mu": dist.Normal(0, 1)}
            plain = wb.Model(prior, lambda p, row: -0.5 * (row["y"] - p["mu"]) ** 2)
            plan = wb.Plan({"a": plain, "b": plain}, method=wb.SGAIS(**small))
            wb.watch(plan, str(rows), Path(folder) / "run")

        walks = {
            "wb.evidence -> the loop of SMC": (
                loop,
                lambda: wb.evidence(model, data, wb.SMC(**small)),
            ),
            "wb.Online.update -> the loop of a chunk": (loop, lambda: online.update(data)),
            "wb.OnlineComparison.update -> the loop of a chunk": (loop, lambda: both.update(data)),
            "wb.watch -> the file of a checkpoint": (("core/checkpoint_file.py", "write"), watch),
        }
        for title, (entered, call) in walks.items():
            found = frames_at(entered, call)
            files = list(dict.fromkeys(frame.split(":")[0] for frame in found))
            print(f"{title}: {len(found)} frames in {len(files)} files")
            print("".join(f"    {frame}\n" for frame in found))


if __name__ == "__main__":
    main()
