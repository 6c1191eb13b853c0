"""The demonstration: a stream whose world changes twice, weighed online by three mixtures.

The stream is the distribution-shift study of Cameron, Eggers & Kroon (2019), Entropy 21:1109,
section 6.2: three clusters, then five, then seven, some of them overlapping.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from weighbridge import plots
from weighbridge.base import DataError
from weighbridge.comparison import compare
from weighbridge.estimators import SGAIS
from weighbridge.online import Online
from weighbridge.progress import choose_reporter
from weighbridge.zoo import mixture

CHANGE_POINTS = (500, 1_500)
COMPONENTS = (3, 5, 7)
CHUNK_SIZE = 250
METHOD = SGAIS(num_islands=4, num_particles=16, chunk_size=CHUNK_SIZE)
# A fall of the log predictive per row by this many of its standard errors is a change.
ALARM = 6.0


def run(num_rows: int, seed: int, output: Path) -> None:
    """Weigh the three mixtures on the stream, say what they found, and draw the figure."""
    if num_rows < 4 * CHUNK_SIZE:
        raise DataError(f"The demo needs at least {4 * CHUNK_SIZE:,} rows, not {num_rows:,}.")
    plots.check_figure_place(output)
    print(
        f"A stream of {num_rows:,} points in the plane: three clusters, five from row "
        f"{CHANGE_POINTS[0]:,}, seven from row {CHANGE_POINTS[1]:,}.\n"
        "Mixtures of 3, 5 and 7 Gaussians are weighed as the points arrive.\n"
    )
    began = time.perf_counter()
    stream = mixture.simulate_shift(num_rows, change_points=CHANGE_POINTS, seed=seed)
    models = {f"mixture:{k}": Online(mixture.model(k), METHOD, seed) for k in COMPONENTS}
    predictive: dict[str, list[float]] = {name: [] for name in models}
    reporter = choose_reporter(True)
    reporter.start(num_rows)
    starts = range(0, num_rows, CHUNK_SIZE)
    try:
        for start in starts:
            chunk = stream[start : start + CHUNK_SIZE]
            for name, online in models.items():
                update = online.update(chunk)
                predictive[name].append(update.log_predictive / len(chunk))
                seen = update.num_observations
                reporter.update(seen, update.log_evidence, update.annealing_steps, name)
    finally:
        reporter.close()

    results = {name: online.result() for name, online in models.items()}
    print(f"{compare(results)}\n")
    changes = find_changes(np.array(list(predictive.values())), starts, CHUNK_SIZE)
    found = " and ".join(f"at row {change:,}" for change in changes) or "nowhere"
    true = " and ".join(f"at row {change:,}" for change in CHANGE_POINTS if change < num_rows)
    print(f"The evidence says that the world changed {found} (truth: {true}).")
    figure = plots.plot_paths(
        {name: result.trace for name, result in results.items()}, changes=changes
    )
    plots.save_figure(figure, output)
    print(f"Figure: {output} ({time.perf_counter() - began:.0f} s in all)")


def find_changes(predictive: np.ndarray, starts: Sequence[int], chunk_size: int) -> list[int]:
    """Rows at which every model was taken by surprise.

    A chunk is a change if its log predictive per row lies below the median since the last
    change by ``ALARM`` standard errors for every model. The standard error is that of a mean of
    ``chunk_size`` log densities of a two-dimensional Gaussian, whose variance is 1, or the
    robust spread of the chunks before, whichever is larger.

    Args:
        predictive: log predictive per row, models by chunks.
        starts: first row of each chunk.
        chunk_size: rows of a chunk.

    >>> calm, shaken = [-3.0, -3.0, -3.0], [-4.0, -3.4, -3.3]
    >>> find_changes(np.array([[-9.0, *calm, *shaken]]), range(0, 3500, 500), 500)
    [2000]
    """
    changes: list[int] = []
    first = 1  # the first chunk after the prior or after a change is learning, not a baseline
    for chunk in range(2, predictive.shape[1]):
        if chunk <= first:
            continue
        past = predictive[:, first:chunk]
        baseline = np.median(past, axis=1)
        spread = 1.4826 * np.median(np.abs(past - baseline[:, None]), axis=1)
        error = np.maximum(spread, 1 / np.sqrt(chunk_size))
        if np.all(baseline - predictive[:, chunk] > ALARM * error):
            changes.append(starts[chunk])
            first = chunk + 1
    return changes
