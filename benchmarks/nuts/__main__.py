"""``python -m benchmarks.nuts``: our NUTS beside NumPyro's and BlackJAX's, on one core each.

The peers' environment (``make bench-peers`` sets it up) has BlackJAX and the digits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.nuts.problems import TITLES
from weighbridge.diagnostics import ess

PEER = Path(".venv-peers/main/bin/python")
SAMPLERS = {"ours": sys.executable, "numpyro": sys.executable, "blackjax": str(PEER)}
DIGITS = """
import sys, numpy as np
from sklearn.datasets import load_digits
found = load_digits()
np.savez(sys.argv[1], inputs=found.data[:500] / 16.0, labels=found.target[:500])
"""
HEADER = (
    "problem",
    "sampler",
    "gradients",
    "ESS, mean (least)",
    "ESS per 1,000 gradients",
    "us a gradient",
    "first s",
    "first s, cache filled",
    "second s",
    "compile s",
)


def call(sampler: str, name: str, folder: str, cache: str) -> dict[str, float]:
    command = [SAMPLERS[sampler], "-m", "benchmarks.nuts.worker", sampler, name, folder, cache]
    environment = os.environ | {"WEIGHBRIDGE_COMPILATION_CACHE": "0", "JAX_PLATFORMS": "cpu"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(f"{sampler} on {name} failed:\n{found.stderr[-2000:]}")
    return dict(json.loads(found.stdout.splitlines()[-1]))


def measure(sampler: str, name: str, folder: str) -> dict[str, Any]:
    """One run without a cache, then two with a cache; the second of them finds it filled."""
    cache = str(Path(folder) / f"cache-{sampler}-{name}")
    cold = call(sampler, name, folder, "")
    call(sampler, name, folder, cache)
    cached = call(sampler, name, folder, cache)
    draws = np.load(Path(folder) / f"{sampler}-{name}.npy")
    counts = np.array([np.atleast_1d(ess(run)) for run in draws])
    return cold | {
        "cached": cached["first"],
        "ess": float(counts.mean(axis=1).sum()),
        "least": float(counts.min(axis=1).mean()),
        "runs": len(draws),
    }


def row(name: str, sampler: str, found: dict[str, Any]) -> list[str]:
    return [
        TITLES[name],
        sampler,
        f"{found['gradients'] / found['runs']:,.0f}",
        f"{found['ess'] / found['runs']:,.0f} ({found['least']:,.0f})",
        f"{1000 * found['ess'] / found['gradients']:.1f}",
        f"{1e6 * found['draws'] / found['gradients']:.1f}",
        f"{found['first']:.1f}",
        f"{found['cached']:.1f}",
        f"{found['second']:.2f}",
        f"{found['first'] - found['second']:.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.nuts", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--merge", action="store_true", help="keep rows that were measured before")
    options = parser.parse_args()
    known = report.load("nuts") if options.merge else {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PEER, "-c", DIGITS, str(Path(folder) / "digits.npz")], check=True)
        for name in options.only:
            for sampler in SAMPLERS:
                found = known[f"{name}/{sampler}"] = measure(sampler, name, folder)
                print(*row(name, sampler, found), sep=" | ", flush=True)
            report.save("nuts", known)
    rows = [row(*key.split("/"), found) for key, found in known.items()]
    rows.sort(key=lambda cells: list(TITLES.values()).index(cells[0]))
    body = report.table(HEADER, rows) + (
        "\n\nOne core each, double precision, diagonal metric, target acceptance 0.8; 4 chains of "
        "1,000 steps of warm-up and 1,000 draws (the network: 1 chain of 300 and 200), one after "
        "the other where the sampler does not run them in threads. Gradients, ESS (bulk, over "
        "coordinates) and time of a gradient are of the draws after the warm-up, averaged over "
        "five further runs (the network: six) with seeds of their own. First is the first call of "
        "a fresh process, "
        "warm-up included, with nothing compiled beforehand; with its cache filled; second is the "
        "median of the further runs; compile is the difference."
    )
    report.write("nuts", "NUTS beside its peers", body)


if __name__ == "__main__":
    main()
