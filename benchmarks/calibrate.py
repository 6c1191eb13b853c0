"""``make calibrate``: are the stated errors true? z = (estimate - exact) / std_error over seeds.

Islands are independent, so one run with many islands is many runs of a few: replicate r has
islands r J to (r + 1) J - 1.
"""

from __future__ import annotations

import math

import numpy as np

import weighbridge as wb
from benchmarks import report
from weighbridge.particles import combine_islands

NUM_REPLICATES = 400
NUM_ISLANDS = 16


def replicate(model: wb.Model, data: object, method: wb.SGAIS) -> tuple[np.ndarray, np.ndarray]:
    """Log evidence and stated error of each replicate."""
    from dataclasses import replace

    many = replace(method, num_islands=NUM_REPLICATES * NUM_ISLANDS)
    result = wb.evidence(model, data, many, seed=0, progress=False)
    islands = result.diagnostics["island_log_evidence"].reshape(NUM_REPLICATES, NUM_ISLANDS)
    bias = result.diagnostics["heating_bias"]
    combined = [combine_islands(row) for row in islands]
    estimates = np.array([c.log_evidence for c in combined])
    return estimates, np.array([math.hypot(c.std_error, bias) for c in combined])


def main() -> None:
    gaussian = wb.zoo.gaussian.simulate(100, seed=1)
    linear = wb.zoo.linear.simulate(1_000, seed=1)
    method = wb.SGAIS(chunk_size=100, batch_size=100)
    problems = {
        "Gaussian-Gaussian, 100 rows": (
            wb.zoo.gaussian.model(),
            gaussian,
            wb.zoo.gaussian.log_evidence(gaussian),
        ),
        "linear regression, 1,000 rows": (
            wb.zoo.linear.model(),
            linear,
            wb.zoo.linear.log_evidence(linear),
        ),
    }
    rows = []
    for name, (model, data, exact) in problems.items():
        estimates, errors = replicate(model, data, method)
        z = (estimates - exact) / errors
        rmse = float(np.sqrt(np.mean((estimates - exact) ** 2)))
        rows.append(
            [
                name,
                f"{np.mean(estimates - exact):.3f}",
                f"{rmse:.3f}",
                f"{np.median(errors):.3f}",
                f"{z.mean():.2f}",
                f"{z.std():.2f}",
                f"{100 * np.mean(np.abs(z) < 2):.0f} %",
            ]
        )
    header = (
        "problem",
        "mean error",
        "root mean square error",
        "median stated error",
        "mean z",
        "sd of z",
        "within 2 stated errors",
    )
    body = (
        f"SGAIS with chunks and mini-batches of 100 rows, {NUM_ISLANDS} islands of "
        f"{method.num_particles} particles, {NUM_REPLICATES} replicates.\n\n"
        + report.table(header, rows)
        + "\n\nThe moves are not adjusted, so the mean error is a bias (heating); the stated error "
        "includes it as it was measured from the particles' temperature."
    )
    report.write("calibration", "Calibration of the stated error", body)


if __name__ == "__main__":
    main()
