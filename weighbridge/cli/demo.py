"""The demonstration: three mixtures compared online on a stream that changes twice.

The stream is like the distribution-shift study of Cameron, Eggers & Kroon (2019), Entropy 21:1109,
section 6.2, with fewer clusters, so that it takes less than a minute: two clusters, then three,
then five, some of them overlapping. Chunks grow, so most annealing steps, from the prior to the
first posterior and through the changes, are made with few rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from weighbridge.core.errors import DataError
from weighbridge.core.progress.reporters import choose_reporter
from weighbridge.estimators.sgais.sgais import SGAIS
from weighbridge.plots.canvas import check_figure_place, save_figure
from weighbridge.weighing.changes.settings import Changes
from weighbridge.weighing.online_comparison.online_comparison import OnlineComparison
from weighbridge.zoo import mixture

CHANGE_POINTS = (200, 700)
COMPONENTS = CLUSTERS = (2, 3, 5)
LEAST_ROWS = 1_000
FIRST_CHUNK, LARGEST_CHUNK = 64, 2_000
METHOD = SGAIS(chunk_size=LARGEST_CHUNK)
CHANGES = Changes(false_alarm_rate=1e-3)


def chunks(stream: np.ndarray) -> Iterator[np.ndarray]:
    """Cut the stream into chunks of half as many rows as were seen before, within limits.

    >>> [len(chunk) for chunk in chunks(np.zeros((4_000, 2)))]
    [64, 64, 64, 96, 144, 216, 324, 486, 729, 1093, 720]
    """
    start = 0
    while start < len(stream):
        size = min(max(start // 2, FIRST_CHUNK), LARGEST_CHUNK)
        yield stream[start : start + size]
        start += size


def simulate(num_rows: int, seed: int) -> np.ndarray:
    """The stream: the clusters of each phase are those of one of the mixtures."""
    return mixture.simulate_shift(
        num_rows, change_points=CHANGE_POINTS, num_clusters=CLUSTERS, seed=seed
    )


def run(num_rows: int, seed: int, output: Path) -> None:
    """Compare the three mixtures on the stream, print the result, and draw the figure."""
    if num_rows < LEAST_ROWS:
        raise DataError(f"The demo needs at least {LEAST_ROWS:,} rows, not {num_rows:,}.")
    check_figure_place(output)
    print(
        f"A stream of {num_rows:,} points in the plane: two clusters, three from row "
        f"{CHANGE_POINTS[0]:,}, five from row {CHANGE_POINTS[1]:,}.\n"
        "Mixtures of 2, 3 and 5 Gaussians are compared as the points arrive.\n"
    )
    began = time.perf_counter()
    stream = simulate(num_rows, seed)
    models = {f"mixture:{k}": mixture.model(k) for k in COMPONENTS}
    online = OnlineComparison(models, METHOD, seed, changes=CHANGES, progress=False)
    reporter = choose_reporter(True)
    reporter.start(num_rows)
    try:
        for chunk in chunks(stream):
            update = online.update(chunk)
            for name in models:
                log_evidence, steps = update.log_evidences[name], update.annealing_steps[name]
                reporter.update(update.num_observations, log_evidence, steps, name)
    finally:
        reporter.close()

    comparison = online.result()
    print(f"{comparison}\n")
    changes = [change.row for change in online.changes]
    found = " and ".join(f"at row {change:,}" for change in changes) or "nowhere"
    true = " and ".join(f"at row {change:,}" for change in CHANGE_POINTS if change < num_rows)
    print(f"Changes of the distribution were found {found} (truth: {true}).")
    save_figure(online.history.plot(changes=changes), output)
    print(f"Figure: {output} ({time.perf_counter() - began:.0f} s in all)")
