"""Published SGAIS: accuracy against exact evidence, heating, speed, and the cost of an update.

``python -m benchmarks.sgais.published`` writes results/foundation.md. It runs on one core.
Speeds are ratios within this run; compile time is reported apart.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

if __name__ == "__main__":
    os.sched_setaffinity(0, {0})

import jax
import jax.numpy as jnp
import numpy as np

import weighbridge as wb
from benchmarks import report
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.rows import Rows

NUM_ROWS = 100_000
SIZES = (1_000, 10_000, NUM_ROWS)
PUBLISHED = wb.SGAIS.published()


class CompileClock:
    """Seconds that JAX spent on tracing and compiling, and how many programs it compiled."""

    def __init__(self) -> None:
        self.seconds, self.programs = 0.0, 0
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, duration: float, **_: object) -> None:
        if event.startswith("/jax/core/compile"):
            self.seconds += duration
            self.programs += event.endswith("backend_compile_duration")


def timed(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def accuracy() -> str:
    """Errors of published SGAIS on linear regression along one run of each seed."""
    data = wb.zoo.linear.simulate(NUM_ROWS, seed=0)
    exact = wb.zoo.linear.log_evidence_path(data, SIZES)
    errors, biases = [], []
    for seed in range(8):
        result = wb.evidence(wb.zoo.linear.model(), data, PUBLISHED, seed=seed)
        at = [int(np.flatnonzero(result.trace.rows == size)[0]) for size in SIZES]
        errors.append(result.trace.log_evidence[at] - exact)
        biases.append(result.diagnostics["heating_bias"])
    errors_array = np.array(errors)
    rows = []
    for k, size in enumerate(SIZES):
        column = errors_array[:, k]
        rows.append(
            [
                f"{size:,}",
                f"{exact[k]:.1f}",
                f"{np.median(column):.1f}",
                f"{column.min():.1f} to {column.max():.1f}",
                f"{100 * np.median(np.abs(column / exact[k])):.2f} %",
                f"{100 * np.max(np.abs(column / exact[k])):.2f} %",
            ]
        )
    header = ("rows", "exact", "median error (nats)", "range, 8 seeds", "median |error|", "worst")
    formula = -6 * NUM_ROWS * 0.1 / (4 * 0.2 * 500)
    return (
        "## Accuracy: published SGAIS, linear regression, 5 features\n\n"
        + report.table(header, rows)
        + f"\n\nHeating formula -D N 0.1 / (4 alpha B) at {NUM_ROWS:,} rows: {formula:.0f} nats; "
        f"from the measured temperature: {np.median(biases):.0f} nats."
    )


def stability() -> str:
    """Evidence per row over seeds, for models without an exact value."""
    problems = {
        "softmax, 10 features, 4 classes": (
            wb.zoo.logistic.model(),
            wb.zoo.logistic.simulate(10_000, seed=0),
        ),
        "mixture, 5 components, 2-D": (
            wb.zoo.mixture.model(),
            wb.zoo.mixture.simulate(10_000, seed=0),
        ),
    }
    rows = []
    for name, (model, data) in problems.items():
        per_row = [
            wb.evidence(model, data, PUBLISHED, seed=seed).log_evidence / 10_000
            for seed in range(3)
        ]
        spread = (max(per_row) - min(per_row)) / abs(np.mean(per_row))
        rows.append([name, ", ".join(f"{x:.4f}" for x in per_row), f"{100 * spread:.2f} %"])
    header = ("model, 10,000 rows", "log evidence per row, 3 seeds", "range")
    return "## Stability: published SGAIS\n\n" + report.table(header, rows)


def speed(clock: CompileClock) -> str:
    """Run time against that of as many row gradients, compile time, and cost of an update."""
    model = wb.zoo.linear.model()
    data = wb.zoo.linear.simulate(NUM_ROWS, seed=0)
    other = wb.zoo.linear.simulate(NUM_ROWS, seed=1)
    first = timed(lambda: wb.evidence(model, data, PUBLISHED, seed=0))
    compiled = clock.seconds
    programs = clock.programs
    times = [timed(partial(wb.evidence, model, other, PUBLISHED, seed=s)) for s in (1, 2, 3)]
    extra = clock.programs - programs
    result = wb.evidence(model, other, PUBLISHED, seed=1)
    num_steps = int(result.trace.annealing_steps.sum())
    num_calls = num_steps * PUBLISHED.num_moves
    rows_per_call = PUBLISHED.chunk_size + PUBLISHED.batch_size
    count = num_calls * PUBLISHED.num_particles * rows_per_call
    passes = min(_row_gradients(model, other, count, 10, NUM_ROWS) for _ in range(3))
    whole = min(_row_gradients(model, other, count, count // NUM_ROWS, NUM_ROWS) for _ in range(3))
    small = min(_row_gradients(model, other, count, 200, rows_per_call) for _ in range(3))
    online = wb.Online(model, PUBLISHED, seed=0)
    seconds = []
    for start in range(0, NUM_ROWS, 500):
        chunk = {name: column[start : start + 500] for name, column in other.items()}
        update = online.update(chunk)
        seconds.append(update.elapsed / max(update.annealing_steps, 1))
    early = float(np.median(seconds[15:35]))
    late = float(np.median(seconds[170:190]))
    warm = min(times)
    rows = [
        ["first call, empty cache: compile / all", f"{compiled:.1f} s / {first:.1f} s"],
        ["programs compiled by a second run with other data", str(extra)],
        [f"{NUM_ROWS:,} rows, warm (best of 3)", f"{warm:.2f} s"],
        [
            f"the {count:,} row gradients of it in one jitted call, as passes over all rows with "
            "10 particles (best of 3)",
            f"{passes:.3f} s",
        ],
        ["ratio to that", f"{warm / passes:.1f}"],
        [
            f"the same, as one batch of {count // NUM_ROWS} particles on all rows",
            f"{whole:.3f} s",
        ],
        ["ratio to that", f"{warm / whole:.1f}"],
        [
            "the same, as 200 particles on the same 1,000 rows, which stay in cache",
            f"{small:.3f} s",
        ],
        ["ratio to that", f"{warm / small:.1f}"],
        ["annealing step at 90,000 rows / at 10,000 rows (medians)", f"{late / early:.2f}"],
    ]
    return "## Speed: published SGAIS, linear regression, one core\n\n" + report.table(
        ("what", "measured"), rows
    )


def _row_gradients(
    model: wb.Model, data: dict[str, np.ndarray], count: int, num_particles: int, num_rows: int
) -> float:
    """Time of ``count`` row gradients alone, some particles on some rows at a time."""
    with jax.enable_x64(True):
        rows = Rows({name: column[:num_rows] for name, column in data.items()}, np.ones(num_rows))
        calls = round(count / (num_particles * num_rows))
        shape = (calls, num_particles, model.dimension)
        positions = np.random.default_rng(0).normal(size=shape)

        @jax.jit
        def gradients(rows: Rows, positions: jax.Array) -> jax.Array:
            of_all = jax.vmap(jax.grad(Target(model, (rows,))))
            return jnp.sum(jax.lax.map(of_all, positions))

        gradients(rows, positions).block_until_ready()
        return timed(lambda: gradients(rows, positions).block_until_ready())


def main() -> None:
    os.environ["WEIGHBRIDGE_COMPILATION_CACHE"] = "0"
    clock = CompileClock()
    parts = [speed(clock), accuracy(), stability()]
    report.write("foundation", "Published SGAIS, measured", "\n\n".join(parts))


if __name__ == "__main__":
    main()
