"""The command ``weighbridge``: evidence and comparison of models from a shell."""

from __future__ import annotations

import enum
import functools
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

import weighbridge

if TYPE_CHECKING:
    from weighbridge.estimators import Method
    from weighbridge.progress import Reporter

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
# The library's messages name arguments of Python; these are the options of the same meaning.
OPTIONS = (
    (r"(pass )?on_bad_row='skip'", "use --on-bad-row skip"),
    (r"schema=\{'([^']*)': (\w+)\}", r"--schema \1=\2"),
    (r"with columns=\[\.\.\.\]", "with --features"),
    (r"^(tolerance) must", r"--\1 must"),
    (r"\btime_limit\b", "--time-limit"),
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
    typer.Option("--on-bad-row", help="raise, or skip to leave such rows out and count them."),
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
    schema: SchemaOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    plot: PlotOption = None,
    save: Annotated[Path | None, typer.Option("--save", help="Save the result here.")] = None,
) -> None:
    """Log evidence of one model on a table."""
    from weighbridge import checkpoint, commands, plots
    from weighbridge.rounds import Limits

    if save is not None:
        checkpoint.check_place(save)
    if plot is not None:
        plots.check_figure_place(plot)
    table = commands.Table(data, target, features, standardise, schema)
    chosen = _method(method, particles, islands, chunk_size, batch_size)
    limits = Limits(tolerance, time_limit)
    results = commands.weigh(
        [model], table, chosen, seed, on_bad_row.value, _reporter(quiet), limits
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

    *names, data = models_and_data
    if plot is not None:
        plots.check_figure_place(plot)
    table = commands.Table(data, target, features, standardise, schema)
    chosen = _method(method, particles, islands, chunk_size, batch_size)
    limits = Limits(tolerance, time_limit)
    results = commands.weigh(names, table, chosen, seed, on_bad_row.value, _reporter(quiet), limits)
    comparison = compare_results(results)
    print(comparison.to_json() if json else comparison, flush=True)
    if plot is not None:
        plots.save_figure(comparison.plot(), plot)


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
