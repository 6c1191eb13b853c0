"""The command ``weighbridge``: evidence and comparison of models from a shell."""

from __future__ import annotations

import contextlib
import enum
import functools
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

import weighbridge

if TYPE_CHECKING:
    import threading

    from weighbridge.estimators import Method
    from weighbridge.progress import Reporter

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
# The library's messages name arguments of Python; these are the options of the same meaning.
OPTIONS = (
    (r"(pass )?on_bad_row='(skip|quarantine)'", r"use --on-bad-row \2"),
    (r"quarantine=PATH", "--quarantine FILE"),
    (r"schema=\{'([^']*)': (\w+)\}", r"--schema \1=\2"),
    (r"with columns=\[\.\.\.\]", "with --features"),
    (r"^(tolerance) must", r"--\1 must"),
    (r"\btime_limit\b", "--time-limit"),
    (r"\bchunk_size\b", "--chunk-size"),
    (r"\bhalf_life\b", "--half-life"),
    (r"\bfalse_alarm_rate\b", "--false-alarm-rate"),
)

Parameters = ParamSpec("Parameters")

app = typer.Typer(
    help="Weigh Bayesian models against each other, on data of any size, while the data arrive.\n\n"
    "Exit codes: 0 done, 1 the model or the data cannot be used (the message says why), "
    "2 wrong usage, 130 interrupted. Results go to standard output, all else to standard error.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class OnBadRow(enum.StrEnum):
    """What to do with a row that cannot be used."""

    RAISE = "raise"
    SKIP = "skip"
    QUARANTINE = "quarantine"


def _answering(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Turn errors into one line on standard error and an exit code."""

    @functools.wraps(command)
    def wrapper(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            print("weighbridge: interrupted", file=sys.stderr)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except Exception as error:
            from weighbridge.base import WeighbridgeError

            if not isinstance(error, WeighbridgeError):
                raise
            for text in (str(error), *getattr(error, "__notes__", ())):
                print(f"weighbridge: {_as_options(text)}", file=sys.stderr)
            raise typer.Exit(EXIT_ERROR) from None

    return wrapper


def _as_options(text: str) -> str:
    for argument, option in OPTIONS:
        text = re.sub(argument, option, text)
    return text


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"weighbridge {weighbridge.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A wb.Model in a file (file.py:name), or a model of the zoo (linear, mixture:5; "
        "see `weighbridge models`).",
    ),
]
DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A CSV, Parquet or NPZ file, or - for CSV on standard input."
    ),
]
TargetOption = Annotated[
    str | None, typer.Option("--target", help="Column that a zoo model predicts.")
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        "--features", help="Columns to use besides the target: A,B,... (default: all numeric ones)."
    ),
]
StandardiseOption = Annotated[
    bool,
    typer.Option(
        "--standardise", help="Scale each feature to mean 0 and standard deviation 1 first."
    ),
]
MethodOption = Annotated[
    str,
    typer.Option(
        "--method",
        help="auto, sgais, published (the paper's parameters), smc, ais, ibis, thermodynamic, "
        "prior_sampling or sequential_sgmcmc.",
    ),
]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="The same seed gives the same numbers.")
]
ParticlesOption = Annotated[
    int | None, typer.Option("--particles", min=2, help="Particles of each island.")
]
IslandsOption = Annotated[
    int | None, typer.Option("--islands", min=1, help="Independent populations, for the error bar.")
]
ChunkOption = Annotated[
    int | None, typer.Option("--chunk-size", min=1, help="Rows brought in at once.")
]
BatchOption = Annotated[
    int | None, typer.Option("--batch-size", min=1, help="Rows of a mini-batch.")
]
BadRowOption = Annotated[
    OnBadRow,
    typer.Option(
        "--on-bad-row",
        help="raise, or leave such rows out and count them: skip, or quarantine them in a file.",
    ),
]
QuarantineOption = Annotated[
    Path | None,
    typer.Option("--quarantine", help="File that quarantined rows are appended to (JSON lines)."),
]
SchemaOption = Annotated[
    str | None,
    typer.Option("--schema", help="Column types, as a=float,b=int, instead of inferring them."),
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        help="Standard error of the log evidence (nats) to reach, by adding islands.",
    ),
]
TimeLimitOption = Annotated[
    float | None,
    typer.Option("--time-limit", help="Seconds after which no more islands are added."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Write a figure of the path to this file.")
]
FactorPlotOption = Annotated[
    Path | None,
    typer.Option("--plot", help="Write a figure of Bayes factors and probabilities to this file."),
]


@app.command()
@_answering
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
    """Log evidence of one model on a table."""
    from weighbridge import checkpoint, commands, plots
    from weighbridge.rounds import Limits
    from weighbridge.tables import Table

    if save is not None:
        checkpoint.check_place(save)
    if plot is not None:
        plots.check_figure_place(plot)
    table = Table(data, target, features, standardise, schema)
    chosen = _method(method, particles, islands, chunk_size, batch_size)
    limits = Limits(tolerance, time_limit)
    results = commands.weigh(
        [model], table, chosen, seed, on_bad_row.value, _reporter(quiet), limits, quarantine
    )
    result = results[model]
    print(result.to_json() if json else result, flush=True)
    if save is not None:
        result.save(save)
    if plot is not None:
        plots.save_figure(plots.plot_paths({model: result.trace}), plot)


@app.command()
@_answering
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
    """Bayes factors and probabilities of several models, in one pass over a table."""
    if len(models_and_data) < 3:
        raise typer.BadParameter("give two models or more, and then the data")
    from weighbridge import commands, plots
    from weighbridge.comparison import compare as compare_results
    from weighbridge.rounds import Limits
    from weighbridge.tables import Table

    *names, data = models_and_data
    if plot is not None:
        plots.check_figure_place(plot)
    table = Table(data, target, features, standardise, schema)
    chosen = _method(method, particles, islands, chunk_size, batch_size)
    limits = Limits(tolerance, time_limit)
    results = commands.weigh(
        names, table, chosen, seed, on_bad_row.value, _reporter(quiet), limits, quarantine
    )
    comparison = compare_results(results)
    print(comparison.to_json() if json else comparison, flush=True)
    if plot is not None:
        plots.save_figure(comparison.plot(), plot)


class WhatToDo(enum.StrEnum):
    """What to do at a change point."""

    OFF = "off"
    KEEP = "keep"
    RESTART = "restart"
    COMPETE = "compete"


@app.command()
@_answering
def watch(
    models_and_source: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... SOURCE",
            help="Models (as in `weighbridge evidence`), then where the rows come from: files, a "
            "directory, - for JSON lines or CSV on standard input, or redis://HOST/DB?stream=NAME.",
        ),
    ],
    checkpoint: Annotated[
        Path,
        typer.Option(
            "--checkpoint", metavar="DIR", help="Run directory; started again, it goes on."
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
        int, typer.Option("--chunk-size", min=1, help="Rows of an update.")
    ] = 500,
    batch_size: BatchOption = None,
    reservoir: Annotated[
        int | None, typer.Option("--reservoir", min=1, help="Rows kept for mini-batches.")
    ] = None,
    half_life: Annotated[
        float | None,
        typer.Option("--half-life", help="Rows after which what was seen counts half."),
    ] = None,
    changes: Annotated[
        WhatToDo,
        typer.Option(
            "--changes",
            help="At a change point: off (do not look for them), keep (tell), restart from the "
            "prior, or compete (the changed world becomes a model of its own).",
        ),
    ] = WhatToDo.KEEP,
    false_alarm_rate: Annotated[
        float, typer.Option("--false-alarm-rate", help="Of the change detector, per chunk.")
    ] = 1e-3,
    identifier: Annotated[
        str | None,
        typer.Option("--identifier", help="Field of JSON lines that tells rows that come twice."),
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
    """Weigh models as rows arrive, through crashes and bad rows, until they end or it is stopped.

    SIGINT and SIGTERM stop it cleanly after the chunk under way; a second one at once.
    """
    if len(models_and_source) < 2:
        raise typer.BadParameter("give one model or more, and then the source")
    import threading

    from weighbridge.changes import Changes
    from weighbridge.commands import WatchOptions, watch_table
    from weighbridge.live import choose_display
    from weighbridge.tables import Table
    from weighbridge.watching import Keeping

    *names, source = models_and_source
    chosen = _method(method, particles, islands, None, batch_size, reservoir, half_life)
    looks = None
    if changes is not WhatToDo.OFF:
        restarts = changes is WhatToDo.RESTART
        looks = Changes(
            false_alarm_rate,
            "restart" if restarts else "keep",
            compete=changes is WhatToDo.COMPETE,
        )
    options = WatchOptions(
        seed,
        chunk_size,
        follow,
        identifier,
        on_bad_row.value,
        looks,
        Keeping(keep, every_rows, every_seconds),
    )
    stop = threading.Event()
    table = Table(source, target, features, schema=schema)
    display = choose_display(quiet)
    with _stopping(stop, display.say):
        try:
            watched = watch_table(names, table, chosen, checkpoint, options, display, stop)
        finally:
            display.close()
    if watched.comparison is not None:
        print(watched.comparison, flush=True)
    how = "the rows have ended" if watched.reason == "end" else "stopped"
    display.say(f"{how} at row {watched.rows:,}; everything is in {checkpoint}")


@contextlib.contextmanager
def _stopping(stop: threading.Event, say: Callable[[str], None]) -> Iterator[None]:
    """A block in which the first signal asks for an end, and the second one makes it."""

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            _stop()
        stop.set()
        say("stopping after this chunk; once more to stop at once")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@app.command()
@_answering
def report(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The run directory of a watch, finished or running."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Where to write the page (default: report.html in DIR)."),
    ] = None,
) -> None:
    """One self-contained HTML page of what a watch has found so far."""
    from weighbridge.reporting import write_report

    print(write_report(directory, output), flush=True)


@app.command()
@_answering
def models() -> None:
    """List the models of the zoo."""
    from weighbridge.zoo import entries

    for entry in entries().values():
        target = "needs --target" if entry.needs_target else "no target"
        name = f"{entry.name}[:{entry.option}]"
        print(f"{name:24}{entry.summary} ({target})")


@app.command()
@_answering
def demo(
    rows: Annotated[int, typer.Option("--rows", help="Rows of the stream.")] = 3_000,
    seed: SeedOption = 0,
    output: Annotated[Path, typer.Option("--output", help="Where to write the figure.")] = Path(
        "weighbridge-demo.png"
    ),
) -> None:
    """A stream whose world changes twice, weighed online by mixtures of 3, 5 and 7 components."""
    from weighbridge import demo as demonstration

    demonstration.run(rows, seed, output)


def _method(
    name: str,
    particles: int | None,
    islands: int | None,
    chunk_size: int | None,
    batch_size: int | None,
    reservoir: int | None = None,
    half_life: float | None = None,
) -> Method:
    from dataclasses import fields, replace

    from weighbridge.base import MethodError
    from weighbridge.estimators import resolve

    chosen = resolve(name)
    settings = {
        "num_particles": ("--particles", particles),
        "num_islands": ("--islands", islands),
        "chunk_size": ("--chunk-size", chunk_size),
        "batch_size": ("--batch-size", batch_size),
        "reservoir": ("--reservoir", reservoir),
        "half_life": ("--half-life", half_life),
    }
    known = {field.name for field in fields(chosen)}
    given: dict[str, Any] = {
        key: value for key, (_, value) in settings.items() if value is not None
    }
    for key in given:
        if key not in known:
            options = ", ".join(option for k, (option, _) in settings.items() if k in known)
            raise MethodError(f"{name} has no {settings[key][0]}; it has {options or 'none'}.")
    return replace(chosen, **given)


def _reporter(quiet: bool) -> Reporter:
    from weighbridge.progress import choose_reporter

    return choose_reporter(not quiet)


def _stop(*_: object) -> None:
    """Leave at once on an interrupt.

    An exception raised here may land in a callback, where it is lost, or in the import of a
    native module, which may crash of it. Nothing is left to tidy up but the cursor that a
    progress bar hides.
    """
    show_cursor = b"\x1b[?25h" if os.isatty(2) else b""
    os.write(2, show_cursor + b"weighbridge: interrupted\n")
    os._exit(EXIT_INTERRUPTED)


def main() -> None:
    """Entry point of the command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    app()
