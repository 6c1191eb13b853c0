"""``wb.sample``: draws from a posterior with any kernel, chains in parallel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from weighbridge.core.checks import check_count, check_seed
from weighbridge.core.errors import MethodError
from weighbridge.core.progress.chains import choose_chain_reporter
from weighbridge.core.types import Kernel
from weighbridge.data.row_checking import RowPolicy
from weighbridge.data.sources.opening import open_source
from weighbridge.models.held import hold
from weighbridge.models.model import Model
from weighbridge.models.row_gate import require_model
from weighbridge.results.posterior import Posterior
from weighbridge.sampling.chain_targets import prepare
from weighbridge.sampling.kernels.nuts import NUTS
from weighbridge.sampling.memory import check_memory
from weighbridge.sampling.sampler import Sampler
from weighbridge.sampling.warmup.settings import Warmup

# Rows of a mini-batch, for kernels that use a new one at every step.
BATCH_ROWS = 256


def check_adaptation(kernel: Kernel, num_warmup: int) -> None:
    """Refuse a warm-up that ends while the kernel still adapts: draws would not be exact."""
    num_adapt = int(kernel.num_adapt)
    if num_adapt > num_warmup:
        raise MethodError(
            f"{type(kernel).__name__} adapts for {num_adapt:,} steps, but the warm-up has "
            f"{num_warmup:,}: draws would come from a kernel that still changes. Use "
            f"num_warmup={num_adapt} or more, or a smaller num_adapt in the kernel."
        )


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
    r"""Draw from the posterior p(theta | data) with several Markov chains.

    Chains start at random within [-2, 2] of the unconstrained space. The warm-up is Stan's: the
    step size by dual averaging, the metric in windows that double. Chains run in parallel, as many
    as there are cores. Ctrl-C stops the run and returns the draws so far; a second Ctrl-C ends it
    at once.

    Args:
        model: a ``wb.Model``.
        data: observations in any form that ``wb.evidence`` accepts.
        kernel: the kernel, by default ``wb.NUTS()``. Kernels on mini-batches, such as ``wb.SGHMC``,
            have step sizes for ONE observation.
        num_samples: number of draws of each chain.
        num_warmup: number of warm-up steps of each chain, which are not kept; at least the
            ``num_adapt`` of a kernel that adapts itself.
        num_chains: number of chains; use four or more for a meaningful R-hat.
        seed: the same seed gives the same numbers.
        warmup: what the warm-up learns; see ``wb.Warmup``.
        thin: keep every ``thin``-th step.
        initial: initial points: a mapping of parameters, chains along the first axis, or
            unconstrained positions, chains x coordinates (for an ensemble chains x walkers x
            coordinates).
        batch_size: rows of a mini-batch, for kernels that use them.
        resume: a posterior, or a file written by its ``save``: continue its chains without a
            warm-up.
        progress: True or False; by default bars on a terminal or in a notebook; elsewhere, a run of
            more than 10 s writes a few lines to standard error.
        on_bad_row: what to do with rows that cannot be used: "raise" an error, "skip" them, or
            "quarantine" them: append them to a file, with the reason.
        quarantine: the file for quarantined rows.

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
    if resume is None:
        check_adaptation(chosen, num_warmup)
    require_model(model)
    posterior = Posterior.load(resume) if isinstance(resume, str | Path) else resume
    source = None if data is None else open_source(data, on_bad_row=on_bad_row)
    rows = hold(model, source, "wb.sample", on_bad_row, quarantine)
    left_out = () if source is None else tuple(source.ignored_columns)
    prepared = prepare(model, rows, chosen, batch_size)
    tuning = warmup or Warmup()
    num_draws = num_samples * (prepared.num_walkers or 1)
    check_memory(model.dimension, num_chains, num_draws, dense=tuning.metric == "dense")
    reporter = choose_chain_reporter(progress)
    sampler = Sampler(prepared, seed, num_chains, tuning, thin, reporter)
    if posterior is not None:
        drawn = sampler.resume(posterior, num_samples)
        left_out = tuple(dict.fromkeys((*posterior.columns_left_out, *left_out)))
    else:
        drawn = sampler.run(num_samples, num_warmup, initial)
    return replace(drawn, columns_left_out=left_out)
