"""Categories with a Dirichlet prior whose mass is at the edges, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from benchmarks.traps import sites
from benchmarks.traps.trap import Trap


def log_rows(theta: Any, row: Any, xp: Any) -> Any:
    """The probability of the row's category; ``seen`` is one there and zero elsewhere."""
    return xp.log(xp.maximum(xp.sum(theta * row["seen"], axis=-1), 1e-300))


def exact(seen: np.ndarray, concentration: float) -> float:
    """The Dirichlet-multinomial probability of this order of categories."""
    counts, size = seen.sum(axis=0), seen.shape[1]
    each = special.gammaln(counts + concentration) - special.gammaln(concentration)
    whole = size * concentration
    return float(each.sum() + special.gammaln(whole) - special.gammaln(len(seen) + whole))


def build(generator: np.random.Generator) -> Trap:
    """Three to twelve categories, of which some may never be seen."""
    size, num_rows = int(generator.integers(3, 13)), int(10 ** generator.uniform(1.3, 3.3))
    concentration = float(10 ** generator.uniform(-1, 0.3))
    truth = generator.dirichlet(np.full(size, generator.choice([0.3, 1.0])))
    seen = np.eye(size)[generator.choice(size, num_rows, p=truth)]
    return Trap(
        "counts",
        f"{size} categories, concentration {concentration:.2f}, {num_rows} rows",
        (sites.dirichlet("p", size, concentration),),
        log_rows,
        {"seen": seen},
        lambda: exact(seen, concentration),
        rows=True,
    )
