"""Small runs of all parts of the package, by public names only, each with a digest of its numbers.

``python tools/small_runs.py`` prints one line of JSON for each run. ``tools/same_numbers.py`` runs
this file, as it is in this checkout, on two revisions of the package.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import weighbridge as wb

# Fields that may differ although the numbers are equal, such as times and fingerprints.
LEFT_OUT = {"elapsed", "seconds", "fingerprint", "remarks", "state", "kernel"}
RUNS: dict[str, Callable[[], Any]] = {}


def digest(value: Any) -> str:
    """A hash of all the numbers and texts in a result."""
    total = hashlib.sha256()
    _feed(total, value, "")
    return total.hexdigest()[:16]


def _feed(total: Any, value: Any, where: str) -> None:
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.ascontiguousarray(np.asarray(value))
        total.update(f"{where} {array.dtype} {array.shape}".encode() + array.tobytes())
    elif isinstance(value, Mapping):
        for name in sorted(map(str, value)):
            found = {str(k): v for k, v in value.items()}[name]
            if name not in LEFT_OUT and "second" not in name:
                _feed(total, found, f"{where}/{name}")
    elif isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        for number, item in enumerate(value):
            _feed(total, item, f"{where}/{number}")
    elif hasattr(value, "_fields"):
        _feed(total, value._asdict(), where)
    elif dataclasses.is_dataclass(value):
        public = [f.name for f in dataclasses.fields(value) if not f.name.startswith("_")]
        _feed(total, {name: getattr(value, name) for name in public}, where)
    elif value is None or isinstance(value, bool | int | float | str | Path):
        text = value.hex() if isinstance(value, float) else repr(value)
        total.update(f"{where} {text}".encode())
    elif isinstance(value, wb.Status):
        total.update(f"{where} {value.name}".encode())
    elif not callable(value) and not isinstance(value, wb.Model):
        raise TypeError(f"{where} is a {type(value)}: say how to digest it.")


GAUSSIAN = wb.zoo.gaussian.model()
NUMBERS = wb.zoo.gaussian.simulate(60, seed=1)
LINEAR = wb.zoo.linear.model(2)
ROWS = wb.zoo.linear.simulate(60, num_features=2, seed=1)
TWO: dict[str, Any] = {"num_islands": 4, "num_particles": 16}


def on_the_host(parameters: Any) -> float:
    """A likelihood in plain NumPy."""
    return float(-0.5 * np.sum((np.asarray(parameters["u"]) - 0.3) ** 2 / 0.04))


def correlated(parameters: Any) -> Any:
    """With the prior, two coordinates of correlation 0.9."""
    u = parameters["u"]
    return -0.5 * u @ (jnp.linalg.inv(jnp.array([[1.0, 0.9], [0.9, 1.0]])) - jnp.eye(2)) @ u


UNIT = {"u": dist.Normal(0.0, 1.0).expand([2]).to_event(1)}
PLANE = wb.Model(UNIT, total_log_likelihood=correlated)
HOST = wb.Model(UNIT, total_log_likelihood=on_the_host)


def shrink(key: Any, u: Any) -> Any:
    """A proposal that pulls towards the middle."""
    return 0.7 * u + 0.5 * jax.random.normal(key, u.shape)


def log_shrink(to: Any, given: Any) -> Any:
    """Its log density."""
    return -0.5 * jnp.sum(((to - 0.7 * given) / 0.5) ** 2)


METHODS = {
    "SMC": wb.SMC(**TWO),
    "SMC, slices": wb.SMC(**TWO, moves="slice"),
    "AIS": wb.AIS(**TWO),
    "thermodynamic": wb.Thermodynamic(**TWO),
    "prior sampling": wb.PriorSampling(**TWO),
    "IBIS": wb.IBIS(**TWO),
    "SGAIS": wb.SGAIS(**TWO),
    "SGAIS as published": wb.PublishedSGAIS(**TWO),
    "sequential SG-MCMC": wb.SequentialSGMCMC(num_islands=4),
}
SHAPE = np.array([[1.2, 0.0], [1.1, 0.5]])
KERNELS = {
    "NUTS": wb.NUTS(),
    "NUTS, classic": wb.NUTS(criterion="classic"),
    "XHMC": wb.XHMC(max_depth=5),
    "HMC": wb.HMC(0.1, 8, jitter=0.2),
    "windowed HMC": wb.WindowedHMC(0.1, 8),
    "MALA": wb.MALA(0.1),
    "Metropolis": wb.Metropolis(0.5),
    "adaptive Metropolis": wb.AdaptiveMetropolis(),
    "Metropolis-Hastings": wb.MetropolisHastings(shrink, log_shrink),
    "rejection": wb.Rejection(np.zeros(2), SHAPE, float(np.log(1.2 * 0.5) + 1.0)),
    "slice": wb.Slice(1.0),
    "stretch": wb.Stretch(),
    "Gibbs": wb.Gibbs({"u": wb.HMC(0.2, 5)}),
    "independence": wb.Independence(np.zeros(2), SHAPE),
    "parallel tempering": wb.ParallelTempering(wb.HMC(0.2, 5), num_adapt=8),
    "simulated tempering": wb.SimulatedTempering(wb.HMC(0.2, 5), num_adapt=8),
    "population": wb.PopulationMonteCarlo(2, num_adapt=8),
}
BATCHED = {
    "SGLD": wb.SGLD(wb.RobbinsMonro(1e-3)),
    "PSGLD": wb.PSGLD(0.05),
    "SGHMC": wb.SGHMC(1e-3, 0.1),
    "Riemannian SGHMC": wb.RiemannianSGHMC(0.05),
    "SGNHT": wb.SGNHT(1e-3, 0.1),
}


def run(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """A run of this name."""

    def add(function: Callable[[], Any]) -> Callable[[], Any]:
        RUNS[name] = function
        return function

    return add


def _add_all() -> None:
    short = {"num_samples": 12, "num_warmup": 24, "num_chains": 2, "seed": 5, "progress": False}
    for name, method in METHODS.items():
        RUNS[f"evidence: {name}"] = lambda m=method: wb.evidence(LINEAR, ROWS, m, seed=7)
    for name, kernel in KERNELS.items():
        RUNS[f"sample: {name}"] = lambda k=kernel: wb.sample(PLANE, kernel=k, **short)
    for name, kernel in BATCHED.items():
        RUNS[f"sample: {name}"] = lambda k=kernel: wb.sample(
            LINEAR, ROWS, kernel=k, batch_size=8, **short
        )


_add_all()


@run("evidence: SMC on the host")
def host() -> Any:
    """A likelihood that JAX cannot trace."""
    return wb.evidence(
        HOST, None, wb.SMC(num_islands=4, num_particles=8, moves="random_walk"), seed=7
    )


@run("evidence: rounds to a tolerance")
def rounds() -> Any:
    """Several rounds of islands, merged."""
    return wb.evidence(GAUSSIAN, NUMBERS, wb.SMC(**TWO), seed=7, tolerance=0.05)


@run("compare: two models, bad rows skipped")
def comparison() -> Any:
    """Models of one table."""
    rows = {**ROWS, "y": np.where(np.arange(60) == 7, np.nan, ROWS["y"])}
    models = {"linear": LINEAR, "wide": wb.zoo.linear.model(2, noise=3.0)}
    return wb.compare(models, rows, wb.SGAIS(**TWO), seed=7, on_bad_row="skip")


@run("sample: stopped, saved and resumed")
def resumed() -> Any:
    """Chains that continue from a file."""
    settings: dict[str, Any] = {"kernel": wb.NUTS(), "num_samples": 6, "progress": False}
    first = wb.sample(PLANE, num_warmup=24, num_chains=2, seed=5, **settings)
    with tempfile.TemporaryDirectory() as folder:
        first.save(Path(folder) / "chains")
        return wb.sample(PLANE, resume=Path(folder) / "chains", num_chains=2, **settings)


def _online(method: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        online = wb.Online(GAUSSIAN, method, seed=3)
        online.update(NUMBERS[:25])
        online.save(Path(folder) / "run")
        again = wb.Online.load(Path(folder) / "run", GAUSSIAN, method)
        return again.update(NUMBERS[25:]), again.result()


@run("online: SGAIS, saved and resumed")
def online_sgais() -> Any:
    """A stream that stops once."""
    return _online(wb.SGAIS(**TWO))


@run("online: IBIS, saved and resumed")
def online_ibis() -> Any:
    """The same, row by row."""
    return _online(wb.IBIS(**TWO))


def _stream(changes: Any) -> Any:
    models = {"near": wb.zoo.gaussian.model(2.0), "far": wb.zoo.gaussian.model(-2.0)}
    rows = np.concatenate([NUMBERS, NUMBERS + 6.0, NUMBERS - 6.0])
    method = wb.SGAIS(**TWO)
    stream = wb.OnlineComparison(models, method, seed=3, changes=changes)
    updates = [stream.update(rows[start : start + 30]) for start in range(0, 90, 30)]
    with tempfile.TemporaryDirectory() as folder:
        stream.save(Path(folder) / "run")
        again = wb.OnlineComparison.load(Path(folder) / "run", models, method)
    updates += [again.update(rows[start : start + 30]) for start in range(90, 180, 30)]
    return updates, again.result()


@run("online comparison, resumed")
def stream() -> Any:
    """Two models on one stream."""
    return _stream(None)


@run("online comparison with changes: kept")
def kept() -> Any:
    """Changes are reported."""
    return _stream(wb.Changes(1e-2, min_rows=20))


@run("online comparison with changes: restarted")
def restarted() -> Any:
    """Runs start again at a change."""
    return _stream(wb.Changes(1e-2, min_rows=20, policy="restart"))


@run("online comparison with changes: competing")
def competing() -> Any:
    """A change is a model of its own."""
    return _stream(wb.Changes(1e-2, min_rows=20, compete=True))


@run("watch: a CSV file, stopped and resumed")
def watched() -> Any:
    """The last state of a watch of rows in a file."""
    models = {"a": LINEAR, "b": wb.zoo.linear.model(2, noise=3.0)}
    plan = wb.Plan(models, wb.SGAIS(**TWO), chunk_size=20)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "rows.csv"
        lines = [f"{float(y)!r},{x[0]!r},{x[1]!r}" for x, y in zip(ROWS["x"].tolist(), ROWS["y"])]
        for count in (40, 60):
            data.write_text("\n".join(["y,x1,x2", *lines[:count], ""]))
            found = wb.watch(plan, data, Path(folder) / "run", prepare=Stacked())
        return found.rows, found.comparison


class Stacked:
    """Columns of a file as the linear model takes them."""

    def __call__(self, values: Any) -> Any:
        """Rows of the model, from those of the file."""
        return {"x": np.stack([values["x1"], values["x2"]], axis=1), "y": values["y"]}

    def state(self) -> Any:
        """Nothing is remembered."""
        return None

    def restore(self, state: Any) -> None:
        """Nothing is remembered."""


@run("bidirectional")
def bounds() -> Any:
    """Bounds from both sides."""

    def simulate(parameters: Any, generator: Any) -> Any:
        return parameters["mu"] + generator.normal(size=20)

    return wb.bidirectional(GAUSSIAN, simulate, method=wb.SMC(**TWO), seed=3)


@run("integrate")
def integral() -> Any:
    """An expectation."""
    return wb.integrate(lambda x: x**2, dist.Normal(0.0, 1.0), num_draws=512, seed=3)


@run("maximize")
def optimum() -> Any:
    """The mode."""
    return wb.maximize(LINEAR, ROWS, num_starts=2, num_steps=50, seed=3)


@run("loo, waic, prior sensitivity")
def criticism() -> Any:
    """Checks that use one posterior."""
    posterior = wb.sample(LINEAR, ROWS, num_samples=60, num_warmup=60, seed=5, progress=False)
    return (
        wb.loo(posterior, LINEAR, ROWS),
        wb.waic(posterior, LINEAR, ROWS),
        wb.prior_sensitivity(posterior, LINEAR, ROWS),
    )


def main() -> None:
    """Run all, or those whose name holds the argument."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    for name, function in RUNS.items():
        if wanted not in name:
            continue
        began = time.perf_counter()
        try:
            found = digest(function())
        except Exception as error:  # a run that fails on both sides fails the same way
            found = f"{type(error).__name__}: {error}"[:200]
        line = {"name": name, "digest": found, "seconds": round(time.perf_counter() - began, 1)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
