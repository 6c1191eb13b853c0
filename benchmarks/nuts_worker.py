"""One sampler on one problem in a process of its own: draws, gradients, seconds."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks.nuts_problems import Problem, problem  # noqa: E402

Run = tuple[np.ndarray, float, float]


def ours(case: Problem, seed: int) -> Run:
    """Draws, gradients of the draws, and the seconds that they took."""
    import numpyro.distributions as dist

    import weighbridge as wb

    if not hasattr(ours, "model"):
        prior = {"z": dist.Normal(0.0, 1.0).expand([case.dimension]).to_event(1)}
        ours.model = wb.Model(prior, total_log_likelihood=lambda p: case.log_likelihood(p["z"]))  # type: ignore[attr-defined]
    found = wb.sample(
        ours.model,  # type: ignore[attr-defined]
        num_samples=case.num_samples,
        num_warmup=case.num_warmup,
        num_chains=case.num_chains,
        seed=seed,
    )
    return found.positions, float(found.stats["num_leapfrog"].sum()), found.seconds[1]


def numpyro(case: Problem, seed: int) -> Run:
    from numpyro.infer.hmc import hmc

    if not hasattr(numpyro, "run"):
        init, step = hmc(lambda z: -case.log_density(z), algo="NUTS")

        def several(state: Any, count: int) -> Any:
            def once(state: Any, _: Any) -> Any:
                state = step(state)
                return state, (state.z, state.num_steps)

            return jax.lax.scan(once, state, length=count)

        numpyro.run = init, jax.jit(several, static_argnums=1)  # type: ignore[attr-defined]
    init, several = numpyro.run  # type: ignore[attr-defined]
    chains, gradients, seconds = [], 0.0, 0.0
    for chain in range(case.num_chains):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), chain), 2)
        start = jax.random.uniform(keys[0], (case.dimension,), minval=-2.0, maxval=2.0)
        state = init(start, case.num_warmup, rng_key=keys[1])
        state, _ = jax.block_until_ready(several(state, case.num_warmup))
        began = time.perf_counter()
        _, (positions, steps) = jax.block_until_ready(several(state, case.num_samples))
        seconds += time.perf_counter() - began
        chains.append(np.asarray(positions))
        gradients += float(jnp.sum(steps))
    return np.stack(chains), gradients, seconds


def blackjax(case: Problem, seed: int) -> Run:
    import blackjax as peer

    if not hasattr(blackjax, "run"):

        def warm(key: Any, start: Any) -> Any:
            adaptation = peer.window_adaptation(peer.nuts, case.log_density)
            (state, tuned), _ = adaptation.run(key, start, num_steps=case.num_warmup)
            return state, tuned

        def draw(key: Any, state: Any, tuned: Any) -> Any:
            step = peer.nuts(case.log_density, **tuned).step

            def once(state: Any, key: Any) -> Any:
                state, info = step(key, state)
                return state, (state.position, info.num_integration_steps)

            return jax.lax.scan(once, state, jax.random.split(key, case.num_samples))[1]

        blackjax.run = jax.jit(warm), jax.jit(draw)  # type: ignore[attr-defined]
    warm, draw = blackjax.run  # type: ignore[attr-defined]
    chains, gradients, seconds = [], 0.0, 0.0
    for chain in range(case.num_chains):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), chain), 3)
        start = jax.random.uniform(keys[0], (case.dimension,), minval=-2.0, maxval=2.0)
        state, tuned = jax.block_until_ready(warm(keys[1], start))
        began = time.perf_counter()
        positions, steps = jax.block_until_ready(draw(keys[2], state, tuned))
        seconds += time.perf_counter() - began
        chains.append(np.asarray(positions))
        gradients += float(jnp.sum(steps))
    return np.stack(chains), gradients, seconds


def main() -> None:
    sampler, name, folder, cache = sys.argv[1:]
    jax.config.update("jax_enable_x64", True)
    if cache:
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    case = problem(name, Path(folder) / "digits.npz")
    run = {"ours": ours, "numpyro": numpyro, "blackjax": blackjax}[sampler]
    began = time.perf_counter()
    run(case, 0)
    first = time.perf_counter() - began
    seconds, runs = [], []
    for seed in range(1, case.num_runs + 1):
        began = time.perf_counter()
        runs.append(run(case, seed))
        seconds.append(time.perf_counter() - began)
    np.save(Path(folder) / f"{sampler}-{name}.npy", np.stack([found[0] for found in runs]))
    gradients = sum(found[1] for found in runs)
    drawing = sum(found[2] for found in runs)
    second = float(np.median(seconds))
    print(json.dumps({"first": first, "second": second, "gradients": gradients, "draws": drawing}))


if __name__ == "__main__":
    main()
