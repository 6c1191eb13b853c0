"""Compare the speed of two revisions: ``python tools/same_speed.py REVISION_A REVISION_B``.

It makes a worktree of each revision and starts ``tools/timed_runs.py`` (of this checkout) on both.
Each run is first made once on both, to compile it, and then in turns: A, B, A, B, ... Other load on
the machine affects both alike, so the median ratio of the pairs is more reliable than the seconds.
The exit status is 1 if a median ratio lies outside 0.9 to 1.1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = Path(__file__).with_name("timed_runs.py")
NAMES = ("sgais-linear-1e6", "smc-shells-2", "nuts-softmax")
LOWEST, HIGHEST = 0.9, 1.1


class Timed:
    """A process with the package of one revision, which makes runs when it is asked to.

    Args:
        process: of ``timed_runs.py``.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def seconds(self, name: str) -> float:
        """Make a run, and return how long it took."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"The run {name} failed.")
        return float(line)


@contextmanager
def timed(revision: str) -> Iterator[Timed]:
    """A process on a worktree of a revision, with an empty compilation cache of its own."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), revision], check=True)
        environment = os.environ | {
            "PYTHONPATH": str(tree),
            "WEIGHBRIDGE_COMPILATION_CACHE": str(Path(folder) / "cache"),
        }
        process = subprocess.Popen(
            [sys.executable, str(RUNS)],
            cwd=tree,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield Timed(process)
        finally:
            process.kill()
            process.wait()
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main() -> None:
    """Time both revisions in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default="", help="runs whose name holds this text")
    arguments = parser.parse_args()
    names = [name for name in NAMES if arguments.only in name]
    bad = 0
    with ExitStack() as stack:
        both = [stack.enter_context(timed(r)) for r in (arguments.first, arguments.second)]
        print("run, seconds before, seconds after, ratios of the pairs, their median")
        for name in names:
            for one in both:
                one.seconds(name)
            pairs = [[one.seconds(name) for one in both] for _ in range(arguments.pairs)]
            ratios = [after / before for before, after in pairs]
            before, after = (statistics.median(times) for times in zip(*pairs))
            ratio = statistics.median(ratios)
            bad += not LOWEST <= ratio <= HIGHEST
            listed = " ".join(f"{one:.3f}" for one in ratios)
            print(f"{name}, {before:.3f}, {after:.3f}, {listed}, {ratio:.3f}", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
