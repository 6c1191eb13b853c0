"""The command ``watch``: compare models while rows arrive, until they end or a signal comes."""

from __future__ import annotations

import contextlib
import enum
from pathlib import Path
from typing import Annotated

import typer

from weighbridge.cli.ending import (
    EXIT_ERROR,
    leave_what_is_at_work,
    stopping,
    with_exit_codes,
)
from weighbridge.cli.options import (
    BadRowOption,
    BatchOption,
    FeaturesOption,
    IslandsOption,
    MethodOption,
    OnBadRow,
    ParticlesOption,
    QuietOption,
    SchemaOption,
    SeedOption,
    TargetOption,
    choose_method,
)


class WhatToDo(enum.StrEnum):
    """What to do at a change point."""

    OFF = "off"
    KEEP = "keep"
    RESTART = "restart"
    COMPETE = "compete"


@with_exit_codes
def watch(
    models_and_source: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... SOURCE",
            help="Models (as in `weighbridge evidence`), then the source of the rows: files, a "
            "directory, - for JSON lines or CSV on standard input, or redis://HOST/DB?stream=NAME.",
        ),
    ],
    checkpoint: Annotated[
        Path,
        typer.Option(
            "--checkpoint", metavar="DIR", help="Run directory; a second start continues the run."
        ),
    ],
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for more rows at the end of the source.")
    ] = False,
    target: TargetOption = None,
    features: FeaturesOption = None,
    schema: SchemaOption = None,
    method: MethodOption = "auto",
    seed: SeedOption = 0,
    particles: ParticlesOption = None,
    islands: IslandsOption = None,
    chunk_size: Annotated[
        int, typer.Option("--chunk-size", min=1, help="Rows in each update.")
    ] = 500,
    batch_size: BatchOption = None,
    reservoir: Annotated[
        int | None, typer.Option("--reservoir", min=1, help="Rows kept for mini-batches.")
    ] = None,
    half_life: Annotated[
        float | None,
        typer.Option("--half-life", help="Number of rows after which a row counts half."),
    ] = None,
    changes: Annotated[
        WhatToDo,
        typer.Option(
            "--changes",
            help="Change points: off (do not test for them), keep (report them), restart (start "
            "again from the prior), or compete (add 'changed here' as a competing model).",
        ),
    ] = WhatToDo.KEEP,
    false_alarm_rate: Annotated[
        float,
        typer.Option("--false-alarm-rate", help="False alarms of the change detector per chunk."),
    ] = 1e-3,
    identifier: Annotated[
        str | None,
        typer.Option("--identifier", help="Field that identifies a row: repeats are noticed."),
    ] = None,
    on_bad_row: BadRowOption = OnBadRow.RAISE,
    keep: Annotated[int, typer.Option("--keep", min=1, help="Checkpoints to keep.")] = 3,
    every_rows: Annotated[
        int | None, typer.Option("--every-rows", min=1, help="Rows between two checkpoints.")
    ] = None,
    every_seconds: Annotated[
        float, typer.Option("--every-seconds", min=0.0, help="Seconds between two checkpoints.")
    ] = 60.0,
    quiet: QuietOption = False,
) -> None:
    """Compare models while rows arrive. A run survives crashes and bad rows.

    It ends with the rows, or on SIGINT or SIGTERM: after the current chunk if that ends within
    seconds, else without it. A second signal stops it at once.
    """
    if len(models_and_source) < 2:
        raise typer.BadParameter("give one model or more, and then the source")
    import threading

    from weighbridge.core.progress.announcing import announce
    from weighbridge.monitoring.terminal import choose_display

    display = choose_display(quiet)
    stop = threading.Event()
    with contextlib.closing(display):
        announce(display, "loading")
        from weighbridge.cli.commands import watch_table
        from weighbridge.cli.tables import InputTable
        from weighbridge.monitoring.watch_plan import Keeping, Plan
        from weighbridge.weighing.changes.settings import Changes

        *names, source = models_and_source
        chosen = choose_method(method, particles, islands, None, batch_size, reservoir, half_life)
        detector = None
        if changes is not WhatToDo.OFF:
            restarts = changes is WhatToDo.RESTART
            detector = Changes(
                false_alarm_rate,
                "restart" if restarts else "keep",
                compete=changes is WhatToDo.COMPETE,
            )
        table = InputTable(
            source, target, features, schema=schema, follow=follow, identifier=identifier
        )
        plan = Plan({}, chosen, seed, chunk_size, changes=detector, on_bad_row=on_bad_row.value)
        keeping = Keeping(keep, every_rows, every_seconds)
        with stopping(stop, display.say):
            watched = watch_table(names, table, plan, checkpoint, keeping, display, stop)
    if watched.comparison is not None:
        print(watched.comparison, flush=True)
    how = "the rows have ended" if watched.reason == "end" else "stopped"
    if not watched.problem:
        display.say(f"{how} at row {watched.rows:,}; everything is in {checkpoint}")
        leave_what_is_at_work()
        return
    display.say(
        f"{how} at row {watched.rows:,}, but not everything is in {checkpoint}: {watched.problem} "
        f"If started again, the watch continues from row {watched.saved_rows:,}."
    )
    raise typer.Exit(EXIT_ERROR)
