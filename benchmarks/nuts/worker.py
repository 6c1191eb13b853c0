"""One sampler on one problem in a process of its own: draws, gradients, seconds."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.nuts.problems import Problem, problem

# A function from a seed to draws, their number of gradients, and their seconds.
Run = Callable[[int], tuple[np.ndarray, float, float]]
# Warm: from a key and a start to the state after the warm-up. Draw: from there to draws and
# numbers of gradients.
Warm = Callable[[Any, Any], Any]
Draw = Callable[[Any, Any], tuple[Any, Any]]


def ours(case: Problem) -> Run:
    import numpyro.distributions as dist

    import weighbridge as wb

    prior = {"z": dist.Normal(0.0, 1.0).expand([case.dimension]).to_event(1)}
    model = wb.Model(prior, total_log_likelihood=lambda p: case.log_likelihood(p["z"]))

    def run(seed: int) -> tuple[np.ndarray, float, float]:
        found = wb.sample(
            model,
            num_samples=case.num_samples,
            num_warmup=case.num_warmup,
            num_chains=case.num_chains,
            seed=seed,
        )
        return found.positions, float(found.stats["num_leapfrog"].sum()), found.seconds[1]

    return run


def numpyro(case: Problem) -> Run:
    from numpyro.infer.hmc import hmc

    init, step = hmc(lambda z: -case.log_density(z), algo="NUTS")

    def several(state: Any, count: int) -> Any:
        def once(state: Any, _: Any) -> Any:
            state = step(state)
            return state, (state.z, state.num_steps)

        return jax.lax.scan(once, state, length=count)

    several = jax.jit(several, static_argnums=1)

    def warm(key: Any, start: Any) -> Any:
        return several(init(start, case.num_warmup, rng_key=key), case.num_warmup)[0]

    return _chains(case, warm, lambda _, state: several(state, case.num_samples)[1])


def blackjax(case: Problem) -> Run:
    import blackjax as peer

    @jax.jit
    def warm(key: Any, start: Any) -> Any:
        adaptation = peer.window_adaptation(peer.nuts, case.log_density)
        return adaptation.run(key, start, num_steps=case.num_warmup)[0]

    @jax.jit
    def draw(key: Any, warmed: Any) -> Any:
        state, tuned = warmed
        step = peer.nuts(case.log_density, **tuned).step

        def once(state: Any, key: Any) -> Any:
            state, info = step(key, state)
            return state, (state.position, info.num_integration_steps)

        return jax.lax.scan(once, state, jax.random.split(key, case.num_samples))[1]

    return _chains(case, warm, draw)


def _chains(case: Problem, warm: Warm, draw: Draw) -> Run:
    """One chain after the other; only the draws are timed."""

    def run(seed: int) -> tuple[np.ndarray, float, float]:
        chains, gradients, seconds = [], 0.0, 0.0
        for chain in range(case.num_chains):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), chain), 3)
            start = jax.random.uniform(keys[0], (case.dimension,), minval=-2.0, maxval=2.0)
            warmed = jax.block_until_ready(warm(keys[1], start))
            began = time.perf_counter()
            positions, steps = jax.block_until_ready(draw(keys[2], warmed))
            seconds += time.perf_counter() - began
            chains.append(np.asarray(positions))
            gradients += float(jnp.sum(steps))
        return np.stack(chains), gradients, seconds

    return run


def main() -> None:
    # Before any computation, because JAX starts its threads at the first call.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sampler, name, folder, cache = sys.argv[1:]
    jax.config.update("jax_enable_x64", True)
    if cache:
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    case = problem(name, Path(folder) / "digits.npz")
    began = time.perf_counter()
    run = {"ours": ours, "numpyro": numpyro, "blackjax": blackjax}[sampler](case)
    run(0)
    first = time.perf_counter() - began
    seconds, runs = [], []
    for seed in range(1, case.num_runs + 1):
        began = time.perf_counter()
        runs.append(run(seed))
        seconds.append(time.perf_counter() - began)
    np.save(Path(folder) / f"{sampler}-{name}.npy", np.stack([found[0] for found in runs]))
    gradients = sum(found[1] for found in runs)
    drawing = sum(found[2] for found in runs)
    second = float(np.median(seconds))
    print(json.dumps({"first": first, "second": second, "gradients": gradients, "draws": drawing}))


if __name__ == "__main__":
    main()
