"""Runs for ``tools/same_speed.py``, by public names only.

It reads the name of a run from standard input, makes the run and prints its duration in seconds.
Each run has a new seed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist

import weighbridge as wb


def _shells(p: Any) -> Any:
    """Two Gaussian shells of radius 2 and width 0.1, centred at +-3.5 on the first axis."""
    centre = jnp.zeros(p["x"].shape).at[0].set(3.5)

    def shell(middle: Any) -> Any:
        radius = jnp.sqrt(jnp.sum((p["x"] - middle) ** 2))
        return dist.Normal(2.0, 0.1).log_prob(radius)

    return jnp.logaddexp(shell(centre), shell(-centre))


def _sgais() -> Callable[[int], object]:
    model, data = wb.zoo.linear.model(), wb.zoo.linear.simulate(1_000_000, seed=1)
    return lambda seed: wb.evidence(model, data, wb.SGAIS(), seed=seed, progress=False)


def _smc() -> Callable[[int], object]:
    prior = {"x": dist.Uniform(-6.0, 6.0).expand([2]).to_event(1)}
    model = wb.Model(prior, total_log_likelihood=_shells)

    def run(seed: int) -> None:
        for one in range(5 * seed, 5 * seed + 5):  # a single run is too short to time
            wb.evidence(model, None, wb.SMC(), seed=one, progress=False)

    return run


def _nuts() -> Callable[[int], object]:
    model = wb.zoo.logistic.model(num_features=3, num_classes=3)
    data = wb.zoo.logistic.simulate(1_000, num_features=3, num_classes=3, seed=1)

    def run(seed: int) -> object:
        return wb.sample(model, data, kernel=wb.NUTS(), seed=seed, progress=False)

    return run


MAKERS = {"sgais-linear-1e6": _sgais, "smc-shells-2": _smc, "nuts-softmax": _nuts}


def main() -> None:
    """Read names of runs, and print their durations in seconds."""
    made: dict[str, Callable[[int], object]] = {}
    count = dict.fromkeys(MAKERS, 0)
    for line in sys.stdin:
        name = line.strip()
        if name not in made:
            made[name] = MAKERS[name]()
        began = time.perf_counter()
        made[name](count[name])
        count[name] += 1
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
