"""The demonstration: three mixtures compared online on a stream that changes twice.

The stream is the distribution-shift study of Cameron, Eggers & Kroon (2019), Entropy 21:1109,
section 6.2: three clusters, then five, then seven, some of them overlapping.
"""

from __future__ import annotations

import time
from pathlib import Path

from weighbridge.core.errors import DataError
from weighbridge.core.progress.reporters import choose_reporter
from weighbridge.estimators.sgais.sgais import SGAIS
from weighbridge.plots.canvas import check_figure_place, save_figure
from weighbridge.weighing.changes.settings import Changes
from weighbridge.weighing.online_comparison.online_comparison import OnlineComparison
from weighbridge.zoo import mixture

CHANGE_POINTS = (500, 1_500)
COMPONENTS = (3, 5, 7)
CHUNK_SIZE = 250
METHOD = SGAIS(num_islands=4, num_particles=16, chunk_size=CHUNK_SIZE)
CHANGES = Changes(false_alarm_rate=1e-3)


def run(num_rows: int, seed: int, output: Path) -> None:
    """Compare the three mixtures on the stream, print the result, and draw the figure."""
    if num_rows < 4 * CHUNK_SIZE:
        raise DataError(f"The demo needs at least {4 * CHUNK_SIZE:,} rows, not {num_rows:,}.")
    check_figure_place(output)
    print(
        f"A stream of {num_rows:,} points in the plane: three clusters, five from row "
        f"{CHANGE_POINTS[0]:,}, seven from row {CHANGE_POINTS[1]:,}.\n"
        "Mixtures of 3, 5 and 7 Gaussians are compared as the points arrive.\n"
    )
    began = time.perf_counter()
    stream = mixture.simulate_shift(num_rows, change_points=CHANGE_POINTS, seed=seed)
    models = {f"mixture:{k}": mixture.model(k) for k in COMPONENTS}
    online = OnlineComparison(models, METHOD, seed, changes=CHANGES, progress=False)
    reporter = choose_reporter(True)
    reporter.start(num_rows)
    try:
        for start in range(0, num_rows, CHUNK_SIZE):
            update = online.update(stream[start : start + CHUNK_SIZE])
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
