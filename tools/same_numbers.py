"""Compare the numbers of two revisions: ``python tools/same_numbers.py REVISION_A REVISION_B``.

It makes a worktree of each revision and runs ``tools/small_runs.py`` (of this checkout) on both at
the same time, each with its own empty compilation cache. It prints which runs are equal to the bit,
which differ and which fail. The exit status is 1 if any run differs or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RUNS = Path(__file__).with_name("small_runs.py")
ROOT = Path(__file__).resolve().parent.parent


def results_of(revision: str, only: str) -> dict[str, dict[str, str]]:
    """The digests of all runs on a revision, by name."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / f"tree-{revision.replace('/', '-')}"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), revision], check=True)
        try:
            environment = os.environ | {
                "PYTHONPATH": str(tree),
                "WEIGHBRIDGE_COMPILATION_CACHE": str(Path(folder) / "cache"),
            }
            command = [sys.executable, str(RUNS), only]
            process = subprocess.Popen(
                command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True
            )
            found = {}
            for line in process.stdout or ():
                entry = json.loads(line)
                found[entry["name"]] = entry
                told = f"{revision[:12]} {entry['name']} {entry['digest']} {entry['seconds']} s"
                print(told, file=sys.stderr, flush=True)
            if process.wait():
                sys.exit(f"The runs on {revision} ended with status {process.returncode}.")
            return found
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--only", default="", help="runs whose name holds this text")
    arguments = parser.parse_args()
    with ThreadPoolExecutor() as pool:
        both = [arguments.first, arguments.second]
        first, second = pool.map(lambda revision: results_of(revision, arguments.only), both)
    bad = 0
    for name in first | second:
        one, two = first.get(name, {}).get("digest"), second.get(name, {}).get("digest")
        failed = any(digest is None or ":" in digest for digest in (one, two))
        verdict = "FAILED" if failed else "equal" if one == two else "DIFFERS"
        bad += verdict != "equal"
        print(f"{verdict:8} {name:45} {one} {'' if one == two else two}")
    print(f"{len(first | second)} runs, {bad} of them not equal.")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
