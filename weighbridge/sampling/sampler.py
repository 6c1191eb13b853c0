"""Several chains on one target, in threads: warm-up, draws, extension and resumption."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import jax
import numpy as np

from weighbridge.core.checks import check_count
from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import CheckpointError, DataError, MethodError, ModelError
from weighbridge.core.interrupts import interruptible
from weighbridge.core.progress.chains import ChainReporter
from weighbridge.core.threads import num_cores
from weighbridge.models.targets.host import OnHost
from weighbridge.results.posterior import Posterior
from weighbridge.sampling.chain import ChainRun
from weighbridge.sampling.chain_draws import (
    first_draws,
    named_draws,
    spread_out,
    tuned_kernel,
    walkers_as_chains,
)
from weighbridge.sampling.chain_steps import is_tunable
from weighbridge.sampling.chain_targets import ChainTargets
from weighbridge.sampling.warmup.settings import Warmup

# Schema of resumable chains. Draws saved with chains of another version can still be read.
SCHEMA = "weighbridge.chains.2"


class Sampler:
    """Several chains on one target, in threads."""

    def __init__(
        self,
        prepared: ChainTargets,
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
        self.is_stopped: Callable[[], bool] = lambda: False
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
        self.reporter.update(0, 0, num_warmup or num_samples, True, 0)
        try:
            for run, position in zip(self.runs, first):
                run.start(position, self.prepared.num_walkers, self.warmup)
        except BaseException:
            self.reporter.close()
            raise
        self._all(
            lambda run: run.warm_up(num_warmup, self.warmup, self._go_on(run, num_warmup, True))
        )
        warm = time.perf_counter() - began
        if self.stopped:
            raise KeyboardInterrupt("Interrupted during the warm-up: there are no draws yet.")
        return self._draw(num_samples, warm)

    @double_precision
    def resume(self, posterior: Posterior, num_samples: int) -> Posterior:
        """Continue from a saved posterior."""
        state = posterior.state
        if state.get("schema") != SCHEMA:
            raise CheckpointError(
                "The posterior to resume was written before 0.2: finish it with 0.1, or start anew."
            )
        if state.get("digest") != self.prepared.digest:
            raise DataError("The posterior to resume was drawn with other data.")
        if state.get("fingerprint") != self.prepared.model.fingerprint():
            raise ModelError("The posterior to resume was drawn from another model.")
        if state.get("kernel") != type(self.prepared.kernel).__name__:
            raise MethodError(
                f"The posterior to resume was drawn by {state.get('kernel')}: give that kernel."
            )
        self._check_draws(posterior)
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
        drawn = self._draw(num_samples, 0.0)
        if not np.all(np.isfinite(drawn.positions)):
            raise CheckpointError(
                "The continued chains are no longer finite: the file was "
                "altered, or the steps are too large. Use another copy, or draw again."
            )
        return drawn

    def _check_draws(self, posterior: Posterior) -> None:
        """Refuse to continue from draws that do not belong to the chains."""
        walkers = self.prepared.num_walkers or 1
        chains, coordinates = len(posterior.state["chains"]), self.prepared.model.dimension
        found = posterior.positions.shape
        if (found[0], found[2]) != (chains * walkers, coordinates) or not chains:
            raise CheckpointError(
                f"The posterior to resume holds draws of the shape {found}, but its {chains} "
                f"chains make {chains * walkers} x draws x {coordinates}. Use another copy, or "
                "draw again."
            )

    @double_precision
    def extend(self, num_samples: int) -> Posterior:
        """More draws of the same chains."""
        check_count("num_samples", num_samples, 1)
        self.stopped = False
        return self._draw(num_samples, 0.0)

    def _draw(self, num_samples: int, warm: float) -> Posterior:
        began = time.perf_counter()
        self._all(
            lambda run: run.draw(num_samples, self.thin, self._go_on(run, num_samples, False))
        )
        drawn = time.perf_counter() - began
        self.seconds = (self.seconds[0] + warm, self.seconds[1] + drawn)
        return self._posterior()

    def _initial(self, initial: Any) -> list[np.ndarray | None]:
        """The starting position of each chain; None if the chain may choose."""
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
        """A function called before every block: reports progress, returns whether to continue."""
        first = run.num_done

        def asked() -> bool:
            if run.num_done > first:
                self.compiled.set()
            done = (run.num_done - first) // (1 if warming else self.thin)
            self.reporter.update(run.number, done, total, warming, run.num_divergent)
            return not (self.is_stopped() or self.failed)

        return asked

    def _all(self, work: Callable[[ChainRun], bool]) -> None:
        """Do the work of all chains in threads; an interrupt ends them after the current block."""
        first, *others = self.runs
        workers = min(num_cores(), len(self.runs))
        pool = ThreadPoolExecutor(workers)
        with interruptible(self.reporter.say) as interruption:
            # Chains end at their next block; it is an error if there is no draw by then.
            interruption.has_something = True
            self.is_stopped = interruption.is_due
            alone = pool.submit(_in_double, work, first)
            alone.add_done_callback(lambda _: self.compiled.set())
            try:
                # The first chain compiles the programs for all chains.
                while not self.compiled.wait(0.2):
                    pass
                pending = {alone, *(pool.submit(_in_double, work, run) for run in others)}
                while pending:
                    done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
                    _raise_first(done)
                self.stopped = interruption.is_due()
            except BaseException:
                self.failed = True
                raise
            finally:
                # After a second interrupt, do not wait for the running blocks.
                pool.shutdown(wait=not (self.failed and interruption.is_due()))
                self.reporter.close()

    def _posterior(self) -> Posterior:
        """All draws so far, as many as every chain has."""
        kept = min(run.num_draws for run in self.runs)
        if not kept and self.before is None:
            raise KeyboardInterrupt("Interrupted before the first draw.")
        kernel = self.prepared.kernel
        positions = np.stack([first_draws(run.positions, kept) for run in self.runs])
        stats = self._stats(kept)
        if self.prepared.num_walkers is not None:
            positions = walkers_as_chains(positions)
            walkers = self.prepared.num_walkers
            stats = {name: spread_out(values, walkers) for name, values in stats.items()}
        if self.before is not None:
            positions = np.concatenate([self.before.positions, positions], axis=1)
            stats = _joined(self.before.stats, stats)
        remarks = ("The run was interrupted: it has fewer draws than were asked for.",)
        return Posterior(
            samples=named_draws(self.prepared.model, positions),
            positions=positions,
            stats=stats,
            kernel=tuned_kernel([run.chain.kernel for run in self.runs]),
            num_warmup=self.num_warmup,
            seconds=self.seconds,
            remarks=remarks if self.stopped else (),
            max_depth=getattr(kernel, "max_depth", None),
            state={
                "schema": SCHEMA,
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
        infos = [
            jax.tree_util.tree_map(lambda *b: first_draws(b, kept), *run.infos) for run in self.runs
        ]
        fields = infos[0]._asdict() if hasattr(infos[0], "_asdict") else {}
        stats = {name: np.stack([getattr(info, name) for info in infos]) for name in fields}
        if "energy" in stats and self.thin > 1:  # else the energies themselves are enough
            blocks = [first_draws(run.energies, kept) for run in self.runs]
            stats["step_energies"] = np.stack(blocks)
        if is_tunable(self.prepared.kernel):
            sizes = [float(np.mean(np.asarray(run.chain.kernel.step_size))) for run in self.runs]
            stats["step_size"] = np.repeat(np.array(sizes)[:, None], kept, axis=1)
        return stats


def _joined(before: Mapping[str, np.ndarray], stats: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Statistics of the earlier and of the new draws."""
    for name, values in stats.items():
        shape = before[name].shape if name in before else None
        if shape is None or (shape[:1], shape[2:]) != (values.shape[:1], values.shape[2:]):
            raise CheckpointError(
                f"The posterior to resume has no {name!r} for each draw, which this kernel "
                "reports. Use another copy, or draw again."
            )
    return {name: np.concatenate([before[name], new], axis=1) for name, new in stats.items()}


def _in_double(work: Callable[[ChainRun], bool], run: ChainRun) -> bool:
    # Each thread has its own precision setting.
    with jax.enable_x64(True):
        try:
            return work(run)
        except Exception:
            for term in run.target.terms:
                if isinstance(term, OnHost) and term.likelihood.failure is not None:
                    raise term.likelihood.failure from None  # JAX would wrap the original error
            raise


def _raise_first(done: Any) -> None:
    for future in done:
        future.result()
