"""The commands on the rows of a table: ``evidence`` and ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weighbridge.cli.ending import showing_partial_results, with_exit_codes
from weighbridge.cli.options import (
    BadRowOption,
    BatchOption,
    ChunkOption,
    DataArgument,
    FactorPlotOption,
    FeaturesOption,
    IslandsOption,
    JsonOption,
    MethodOption,
    ModelArgument,
    OnBadRow,
    ParticlesOption,
    PlotOption,
    QuarantineOption,
    QuietOption,
    SchemaOption,
    SeedOption,
    StandardiseOption,
    TargetOption,
    TimeLimitOption,
    ToleranceOption,
    choose_method,
    reporter_of,
)


@with_exit_codes
def evidence(
    model: ModelArgument,
    data: DataArgument,
    target: TargetOption = None,
    features: FeaturesOption = None,
    standardise: StandardiseOption = False,
    method: MethodOption = "auto",
    seed: SeedOption = 0,
    tolerance: ToleranceOption = None,
    time_limit: TimeLimitOption = None,
    particles: ParticlesOption = None,
    islands: IslandsOption = None,
    chunk_size: ChunkOption = None,
    batch_size: BatchOption = None,
    on_bad_row: BadRowOption = OnBadRow.RAISE,
    quarantine: QuarantineOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    plot: PlotOption = None,
    save: Annotated[Path | None, typer.Option("--save", help="Save the result here.")] = None,
) -> None:
    """Log evidence of one model on a table.

    Ctrl-C shows the result so far, with a flag, and exits with 130. A second Ctrl-C exits at once.
    """
    reporter = reporter_of(quiet)
    with showing_partial_results(reporter):
        from weighbridge.cli import commands
        from weighbridge.cli.tables import InputTable
        from weighbridge.core import checkpoint_file
        from weighbridge.plots.canvas import check_figure_place, save_figure
        from weighbridge.weighing.rounds import Limits

        if save is not None:
            checkpoint_file.check_place(save)
        if plot is not None:
            check_figure_place(plot)
        table = InputTable(data, target, features, standardise, schema)
        chosen = choose_method(method, particles, islands, chunk_size, batch_size)
        limits = Limits(tolerance, time_limit)
        results = commands.weigh(
            [model], table, chosen, seed, on_bad_row.value, reporter, limits, quarantine
        )
        result = results[model]
        print(result.to_json() if json else result, flush=True)
        if save is not None:
            result.save(save)
        if plot is not None:
            save_figure(result.plot(), plot)


@with_exit_codes
def compare(
    models_and_data: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL MODEL... DATA",
            help="Two models or more, then the data (as in `weighbridge evidence`).",
        ),
    ],
    target: TargetOption = None,
    features: FeaturesOption = None,
    standardise: StandardiseOption = False,
    method: MethodOption = "auto",
    seed: SeedOption = 0,
    tolerance: ToleranceOption = None,
    time_limit: TimeLimitOption = None,
    particles: ParticlesOption = None,
    islands: IslandsOption = None,
    chunk_size: ChunkOption = None,
    batch_size: BatchOption = None,
    on_bad_row: BadRowOption = OnBadRow.RAISE,
    quarantine: QuarantineOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    plot: FactorPlotOption = None,
) -> None:
    """Bayes factors and probabilities of several models, in one pass over a table.

    Ctrl-C shows the result so far, with a flag, and exits with 130. A second Ctrl-C exits at once.
    """
    if len(models_and_data) < 3:
        raise typer.BadParameter("give two models or more, and then the data")
    reporter = reporter_of(quiet)
    with showing_partial_results(reporter):
        from weighbridge.cli import commands
        from weighbridge.cli.tables import InputTable
        from weighbridge.plots.canvas import check_figure_place, save_figure
        from weighbridge.weighing.comparing import compare_results
        from weighbridge.weighing.rounds import Limits

        *names, data = models_and_data
        if plot is not None:
            check_figure_place(plot)
        table = InputTable(data, target, features, standardise, schema)
        chosen = choose_method(method, particles, islands, chunk_size, batch_size)
        limits = Limits(tolerance, time_limit)
        results = commands.weigh(
            names, table, chosen, seed, on_bad_row.value, reporter, limits, quarantine
        )
        missing = tuple(name for name in names if name not in results)
        comparison = compare_results(results, missing=missing)
        print(comparison.to_json() if json else comparison, flush=True)
        if plot is not None and comparison.is_complete:
            save_figure(comparison.plot(), plot)
