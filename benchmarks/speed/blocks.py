"""Rows to sum at once: time of a gradient for many particles, by the size of a block of rows.

``python -m benchmarks.speed.blocks`` writes results/blocks.md; ``weighbridge.models.targets`` and
``weighbridge.estimators.annealing.moves.kernels`` choose by it.
"""

from __future__ import annotations

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import weighbridge as wb
from benchmarks import report
from weighbridge.core.compilation import jit
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.moves import kernels
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import Span

NUM_ROWS = 2048
NUM_PARTICLES = 1024
REPEATS = 7
BLOCKS = (8, 16, 32, 64, 128, 256)
PROBLEMS = {
    "linear regression, 6 parameters": (wb.zoo.linear.model(), wb.zoo.linear.simulate),
    "softmax regression, 44 parameters": (wb.zoo.logistic.model(), wb.zoo.logistic.simulate),
    "mixture of 5, 24 parameters": (wb.zoo.mixture.model(), wb.zoo.mixture.simulate),
}


@partial(jit, static_argnums=3)
def gradients(model: wb.Model, rows: Rows, positions: Array, block: int) -> Array:
    """Gradients of the log-likelihood of all rows at every particle, summed block by block."""

    def of_particle(position: Array) -> Array:
        def add(rows: Rows, total: Array) -> Array:
            term = lambda u: rows(model, u, model.transform(u)[0])  # noqa: E731
            return total + jax.grad(term)(position)

        zero = jnp.zeros_like(position)
        return Span(rows, 0, rows.weight.shape[0]).over_blocks(add, zero, block)

    found: Array = jax.vmap(of_particle)(positions)
    return found


def measure(model: wb.Model, rows: Rows, block: int) -> float:
    """Nanoseconds for each row and particle, the best of several calls."""
    positions = 0.3 * np.random.default_rng(0).normal(size=(NUM_PARTICLES, model.dimension))
    jax.block_until_ready(gradients(model, rows, positions, block))
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(gradients(model, rows, positions, block))
        seconds.append(time.perf_counter() - began)
    return 1e9 * min(seconds) / NUM_ROWS / NUM_PARTICLES


def whole(flat_up_to: int) -> float:
    """Seconds of SMC on linear regression, 1,000 rows, for a value of FLAT_UP_TO."""
    usual = kernels.FLAT_UP_TO
    try:
        kernels.FLAT_UP_TO = flat_up_to
        jax.clear_caches()
        data, seconds = wb.zoo.linear.simulate(1000, seed=1), []
        for seed in range(4):
            began = time.perf_counter()
            wb.evidence(wb.zoo.linear.model(), data, "smc", seed=seed)
            seconds.append(time.perf_counter() - began)
    finally:
        kernels.FLAT_UP_TO = usual
    return min(seconds[1:])


def main() -> None:
    table = []
    with jax.enable_x64(True):
        for name, (model, simulate) in PROBLEMS.items():
            rows = Rows(simulate(NUM_ROWS, seed=1), np.ones(NUM_ROWS))
            table.append([name, *(f"{measure(model, rows, block):.1f}" for block in BLOCKS)])
            print(" | ".join(table[-1]), flush=True)
    body = report.table(("model", *(f"{block} rows" for block in BLOCKS)), table)
    body += (
        f"\n\nNanoseconds for each of {NUM_ROWS:,} rows and {NUM_PARTICLES:,} particles of a "
        "gradient of the log-likelihood in double precision, by the rows that are summed at once."
    )
    apart, flat = whole(0), whole(kernels.FLAT_UP_TO)
    body += (
        f"\n\nA whole run of SMC on linear regression, 1,000 rows: {apart:.2f} s with islands and "
        f"particles as two axes, {flat:.2f} s with all particles along one."
    )
    report.write("blocks", "Rows in a block", body)


if __name__ == "__main__":
    main()
