"""``wb.sample``: draws from a posterior by any kernel, chains in parallel."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.admission import require_model
from weighbridge.base import DataError, Kernel, MethodError, ModelError, PyTree
from weighbridge.chains import ChainRun, Warmup, has_metric, is_tunable
from weighbridge.data import RowPolicy
from weighbridge.estimators.host_likelihood import PROBES, OnHost, host_likelihood
from weighbridge.held import hold
from weighbridge.kernels.nuts import NUTS
from weighbridge.model import Model
from weighbridge.numerics import check_count, check_seed, double_precision
from weighbridge.posterior import Posterior
from weighbridge.progress import ChainReporter, choose_chain_reporter
from weighbridge.target import Rows, Subsampled, Target, Term, Total

# Names the stream of random numbers that mini-batches of a chain are drawn from.
SAMPLE_BATCHES = 13
# Rows of a mini-batch, for kernels that take one at every step.
BATCH_ROWS = 256
# Draws that are given their names at once.
BLOCK_DRAWS = 1024


def sample(
    model: Model,
    data: Any = None,
    kernel: Kernel | None = None,
    *,
    num_samples: int = 1000,
    num_warmup: int = 1000,
    num_chains: int = 4,
    seed: int = 0,
    warmup: Warmup | None = None,
    thin: int = 1,
    initial: Any = None,
    batch_size: int = BATCH_ROWS,
    resume: Posterior | str | Path | None = None,
    progress: bool | None = None,
    on_bad_row: RowPolicy = "raise",
    quarantine: str | Path | None = None,
) -> Posterior:
    r"""Draw from the posterior p(theta | data), by several Markov chains.

    Chains start at random within [-2, 2] of the unconstrained space. The warm-up is Stan's: step
    size by dual averaging, metric in windows that double. Chains run in parallel, as many as
    there are cores. Ctrl-C ends the run and gives back the draws so far.

    Args:
        model: a ``wb.Model``.
        data: in any form that ``wb.evidence`` takes.
        kernel: how to move, by default ``wb.NUTS()``. Kernels on mini-batches, such as
            ``wb.SGHMC``, have step sizes for ONE observation.
        num_samples: draws of each chain.
        num_warmup: steps of its warm-up, which are not kept.
        num_chains: of them; four or more for R-hat to mean something.
        seed: the same seed gives the same numbers.
        warmup: what is learned; see ``wb.Warmup``.
        thin: keep one of so many steps.
        initial: where to start: a mapping of parameters, chains along the first axis, or their
            unconstrained positions, chains x coordinates (x walkers before the coordinates for an
            ensemble).
        batch_size: rows of a mini-batch, for kernels that use them.
        resume: a posterior, or a file that its ``save`` wrote: go on where its chains stand,
            without a warm-up.
        progress: True or False; by default bars on a terminal.
        on_bad_row: what to do with rows that cannot be used: "raise", "skip" them, or
            "quarantine": append them to a file, with the reason.
        quarantine: that file.

    Returns:
        Named draws with their statistics.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(100, seed=1)
    >>> posterior = wb.sample(wb.zoo.gaussian.model(), data, num_samples=500, num_warmup=300)
    >>> posterior.samples["mu"].shape, posterior.warnings
    ((4, 500), ())
    >>> exact = data.sum() / 101  # prior N(0, 1), noise 1
    >>> table = posterior.summary()
    >>> bool(abs(table["mu", "mean"] - exact) < 5 * table["mu", "MCSE"])
    True
    """
    check_seed(seed)
    counts = {"num_samples": num_samples, "num_chains": num_chains, "thin": thin}
    for name, value in {**counts, "batch_size": batch_size}.items():
        check_count(name, value, 1)
    check_count("num_warmup", num_warmup, 0)
    chosen = NUTS() if kernel is None else kernel
    if not isinstance(chosen, Kernel):
        raise MethodError(f"kernel must be a kernel such as wb.NUTS(), not {chosen!r}.")
    require_model(model)
    posterior = Posterior.load(resume) if isinstance(resume, str | Path) else resume
    rows = hold(model, data, "wb.sample", on_bad_row, quarantine)
    prepared = _prepare(model, rows, chosen, batch_size)
    reporter = choose_chain_reporter(progress)
    sampler = Sampler(prepared, seed, num_chains, warmup or Warmup(), thin, reporter)
    if posterior is not None:
        return sampler.resume(posterior, num_samples)
    return sampler.run(num_samples, num_warmup, initial)


@dataclass(frozen=True)
class Prepared:
    """A kernel and the target that it will move on, for each chain."""

    model: Model
    kernel: Any
    target: Callable[[int, int], Target]
    digest: str
    num_walkers: int | None


def _prepare(
    model: Model, rows: tuple[PyTree, np.ndarray | None], kernel: Any, batch_size: int
) -> Prepared:
    values, weight = rows
    if getattr(kernel, "ensemble", False):
        count = getattr(kernel, "num_walkers", _usual_walkers)
        num_walkers = int(count(model.dimension))
    else:
        num_walkers = None
    digest = _digest(values, weight)
    if weight is None:
        if kernel.uses_batches:
            model.require_rows()
        exact = Target(model, (_whole_likelihood(model, values, kernel),))
        return Prepared(model, kernel, lambda seed, chain: exact, digest, num_walkers)
    observed = Rows(jax.tree_util.tree_map(np.asarray, values), weight)
    if not kernel.uses_batches:
        exact = Target(model, (observed,))
        return Prepared(model, kernel, lambda seed, chain: exact, digest, num_walkers)
    kernel = kernel.rescale(1.0 / (1.0 + float(weight.sum())))
    size = min(batch_size, len(weight))

    def on_batches(seed: int, chain: int) -> Target:
        counter = [0, chain, 0, 0]
        bits = np.random.Generator(np.random.Philox(key=[seed, SAMPLE_BATCHES], counter=counter))
        numbers = bits.integers(0, 2**32, 2, np.uint32)
        key = jax.random.wrap_key_data(jnp.asarray(numbers), impl="threefry2x32")
        terms: tuple[Term, ...] = (Subsampled(observed, key, size),)
        return Target(model, terms)

    return Prepared(model, kernel, on_batches, digest, num_walkers)


def _usual_walkers(dimension: int) -> int:
    """Walkers of an ensemble that does not say how many it wants."""
    return max(2 * dimension + 2, 16)


def _whole_likelihood(model: Model, data: PyTree, kernel: Any) -> Term:
    """A likelihood that does not factorise: compiled, or called on the host if it cannot be."""
    somewhere = np.random.default_rng(0).normal(size=(1, PROBES, model.dimension))
    likelihood = host_likelihood(model, data, jnp.asarray(somewhere))
    if likelihood is None:
        return Total(data)
    if getattr(kernel, "uses_gradient", True):
        raise ModelError(
            f"{type(kernel).__name__} needs gradients, and the total_log_likelihood of this model "
            "runs on the host, where there are none. Write it with jax.numpy, or use a kernel "
            "without gradients: wb.Slice(), wb.Stretch(), wb.AdaptiveMetropolis()."
        )
    return OnHost(likelihood)


def _digest(values: PyTree, weight: np.ndarray | None) -> str:
    """A hash of the data, to tell whether a saved posterior belongs to them."""
    found = hashlib.sha256()
    for leaf in jax.tree_util.tree_leaves((values, weight)):
        found.update(np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()[:16]


class Sampler:
    """Several chains on one target, in threads."""

    def __init__(
        self,
        prepared: Prepared,
        seed: int,
        num_chains: int,
        warmup: Warmup,
        thin: int,
        reporter: ChainReporter,
    ) -> None:
        self.prepared = prepared
        self.seed, self.warmup, self.thin = seed, warmup, thin
        self.reporter = reporter
        self.num_warmup = 0
        self.seconds = (0.0, 0.0)
        self.stopped = False
        self.failed = False
        self.compiled = threading.Event()
        self.before: Posterior | None = None
        kernel = prepared.kernel
        self.runs = [
            ChainRun(number, seed, prepared.target(seed, number), kernel)
            for number in range(num_chains)
        ]

    @double_precision
    def run(self, num_samples: int, num_warmup: int, initial: Any) -> Posterior:
        """Warm up and draw."""
        began = time.perf_counter()
        self.num_warmup = num_warmup
        first = self._initial(initial)
        for run, position in zip(self.runs, first):
            run.start(position, self.prepared.num_walkers, self.warmup)
        self._all(
            lambda run: run.warm_up(num_warmup, self.warmup, self._go_on(run, num_warmup, True)),
            num_warmup,
        )
        warm = time.perf_counter() - began
        if self.stopped:
            raise KeyboardInterrupt("Interrupted during the warm-up: there are no draws yet.")
        return self._draw(num_samples, warm)

    @double_precision
    def resume(self, posterior: Posterior, num_samples: int) -> Posterior:
        """Go on from a saved posterior."""
        state = posterior.state
        if state.get("digest") != self.prepared.digest:
            raise DataError("The posterior to resume was drawn with other data.")
        if state.get("fingerprint") != self.prepared.model.fingerprint():
            raise ModelError("The posterior to resume was drawn from another model.")
        if state.get("kernel") != type(self.prepared.kernel).__name__:
            raise MethodError(
                f"The posterior to resume was drawn by {state.get('kernel')}: give that kernel."
            )
        self.seed, self.thin = int(state["seed"]), int(state["thin"])
        self.warmup = Warmup(*state["warmup"])
        self.runs = []
        for number, leaves in enumerate(state["chains"]):
            target = self.prepared.target(self.seed, number)
            run = ChainRun(number, self.seed, target, self.prepared.kernel)
            run.start(None, self.prepared.num_walkers, self.warmup)
            run.restore(leaves, int(state["num_done"][number]))
            self.runs.append(run)
        self.before = posterior
        self.num_warmup, self.seconds = posterior.num_warmup, posterior.seconds
        return self._draw(num_samples, 0.0)

    @double_precision
    def extend(self, num_samples: int) -> Posterior:
        """More draws of the same chains."""
        check_count("num_samples", num_samples, 1)
        self.stopped = False
        return self._draw(num_samples, 0.0)

    def _draw(self, num_samples: int, warm: float) -> Posterior:
        began = time.perf_counter()
        self._all(
            lambda run: run.draw(num_samples, self.thin, self._go_on(run, num_samples, False)),
            num_samples,
        )
        drawn = time.perf_counter() - began
        self.seconds = (self.seconds[0] + warm, self.seconds[1] + drawn)
        return self._posterior()

    def _initial(self, initial: Any) -> list[np.ndarray | None]:
        """Where each chain is to start; None where it may choose."""
        count, model = len(self.runs), self.prepared.model
        if initial is None:
            return [None] * count
        if isinstance(initial, Mapping):
            lengths = {name: len(np.atleast_1d(value)) for name, value in initial.items()}
            number = min(lengths.values(), default=0)
            positions = (
                np.stack(
                    [
                        model.ravel({name: np.asarray(v)[k] for name, v in initial.items()})
                        for k in range(number)
                    ]
                )
                if number
                else np.zeros((0, model.dimension))
            )
        else:
            positions = np.asarray(initial, float)
        walkers = self.prepared.num_walkers
        shape = (model.dimension,) if walkers is None else (walkers, model.dimension)
        if positions.shape[1:] != shape:
            raise MethodError(
                f"initial has the shape {positions.shape}; one position for each chain is "
                f"{shape} in the unconstrained space."
            )
        if len(positions) < count:
            raise MethodError(
                f"There are {count} chains and only {len(positions)} initial points: give one "
                "for each chain, or fewer chains."
            )
        return list(positions[:count])

    def _go_on(self, run: ChainRun, total: int, warming: bool) -> Callable[[], bool]:
        """Asked before every block: tells the progress, and whether to go on."""
        first = run.num_done

        def asked() -> bool:
            if run.num_done > first:
                self.compiled.set()
            done = (run.num_done - first) // (1 if warming else self.thin)
            self.reporter.update(run.number, done, total, warming, run.num_divergent)
            return not (self.stopped or self.failed)

        return asked

    def _all(self, work: Callable[[ChainRun], bool], total: int) -> None:
        """Do the work of all chains in threads; an interrupt ends them at their next block."""
        first, *others = self.runs
        workers = min(len(os.sched_getaffinity(0)), len(self.runs))
        with ThreadPoolExecutor(workers) as pool:
            alone = pool.submit(_in_double, work, first)
            alone.add_done_callback(lambda _: self.compiled.set())
            try:
                # The first chain compiles what the others then find compiled.
                self.compiled.wait()
                pending = {alone, *(pool.submit(_in_double, work, run) for run in others)}
                while pending:
                    done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
                    _raise_first(done)
            except KeyboardInterrupt:
                self.stopped = True
            except BaseException:
                self.failed = True
                raise
            finally:
                self.reporter.close()

    def _posterior(self) -> Posterior:
        """All draws so far, as many as every chain has."""
        kept = min(run.num_draws for run in self.runs)
        if not kept and self.before is None:
            raise KeyboardInterrupt("Interrupted before the first draw.")
        kernel = self.prepared.kernel
        positions = np.stack([_join(run.positions, kept) for run in self.runs])
        stats = self._stats(kept)
        if self.prepared.num_walkers is not None:
            positions = _walkers_as_chains(positions)
            walkers = self.prepared.num_walkers
            stats = {name: _spread_out(values, walkers) for name, values in stats.items()}
        if self.before is not None:
            positions = np.concatenate([self.before.positions, positions], axis=1)
            stats = {
                name: np.concatenate([self.before.stats[name], values], axis=1)
                for name, values in stats.items()
            }
        remarks = ("The run was interrupted: it has fewer draws than were asked for.",)
        return Posterior(
            samples=_named(self.prepared.model, positions),
            positions=positions,
            stats=stats,
            kernel=tuned_kernel([run.chain.kernel for run in self.runs]),
            num_warmup=self.num_warmup,
            seconds=self.seconds,
            remarks=remarks if self.stopped else (),
            max_depth=getattr(kernel, "max_depth", None),
            state={
                "chains": [run.state() for run in self.runs],
                "num_done": [run.num_done for run in self.runs],
                "seed": self.seed,
                "thin": self.thin,
                "warmup": [self.warmup.metric, self.warmup.target_acceptance],
                "kernel": type(kernel).__name__,
                "digest": self.prepared.digest,
                "fingerprint": self.prepared.model.fingerprint(),
            },
            _extend=self.extend,
        )

    def _stats(self, kept: int) -> dict[str, np.ndarray]:
        infos = [jax.tree_util.tree_map(lambda *b: _join(b, kept), *run.infos) for run in self.runs]
        fields = infos[0]._asdict() if hasattr(infos[0], "_asdict") else {}
        stats = {name: np.stack([getattr(info, name) for info in infos]) for name in fields}
        if is_tunable(self.prepared.kernel):
            sizes = [float(np.mean(run.chain.kernel.step_size)) for run in self.runs]
            stats["step_size"] = np.repeat(np.array(sizes)[:, None], kept, axis=1)
        return stats


def tuned_kernel(kernels: list[Any]) -> Any:
    """One kernel with the average tuning of several chains'."""
    first = jax.tree_util.tree_map(np.asarray, kernels[0])
    if is_tunable(first):
        logs = [np.log(np.asarray(kernel.step_size)) for kernel in kernels]
        first = replace(first, step_size=np.exp(np.mean(logs, axis=0)))
    if has_metric(first):
        scales = [np.asarray(kernel.scale) for kernel in kernels]
        if scales[0].ndim == 2:
            covariance = np.mean([scale @ scale.T for scale in scales], axis=0)
            return replace(first, scale=np.linalg.cholesky(covariance))
        first = replace(first, scale=np.sqrt(np.mean(np.square(scales), axis=0)))
    return first


def _named(model: Model, positions: np.ndarray) -> dict[str, np.ndarray]:
    """Named parameters of all draws, in blocks of one size: more draws compile nothing."""
    shape, flat = positions.shape[:-1], positions.reshape(-1, positions.shape[-1])
    blocks = []
    for start in range(0, len(flat), BLOCK_DRAWS):
        chosen = np.minimum(np.arange(start, start + BLOCK_DRAWS), len(flat) - 1)
        blocks.append(model.unravel(flat[chosen]))
    joined = {name: np.concatenate([b[name] for b in blocks])[: len(flat)] for name in model.names}
    return {name: values.reshape(*shape, *values.shape[1:]) for name, values in joined.items()}


def _in_double(work: Callable[[ChainRun], bool], run: ChainRun) -> bool:
    # The precision of a thread is its own.
    with jax.enable_x64(True):
        try:
            return work(run)
        except Exception:
            for term in run.target.terms:
                if isinstance(term, OnHost) and term.likelihood.failure is not None:
                    raise term.likelihood.failure from None  # JAX tells it in its own words
            raise


def _raise_first(done: Any) -> None:
    for future in done:
        future.result()


def _join(blocks: Any, kept: int) -> np.ndarray:
    return np.concatenate(blocks)[:kept]


def _walkers_as_chains(values: np.ndarray) -> np.ndarray:
    """Chains x draws x walkers x ... as (chains walkers) x draws x ..."""
    moved = np.moveaxis(values, 2, 1)
    return moved.reshape(-1, *moved.shape[2:])


def _spread_out(values: np.ndarray, num_walkers: int) -> np.ndarray:
    """A statistic of each walker; one of the ensemble holds for all of its walkers."""
    if values.ndim > 2 and values.shape[2] == num_walkers:
        return _walkers_as_chains(values)
    return np.repeat(values, num_walkers, axis=0)
