"""The command ``weighbridge``: evidence and comparison of models from a shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from weighbridge.estimators import SGAIS

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130

app = typer.Typer(
    help="Weigh Bayesian models against each other, on data of any size, while the data arrive.\n\n"
    "Exit codes: 0 done, 1 the model or the data cannot be used (the message says why), "
    "2 wrong usage, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

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
        "--features", help="Columns for a zoo model: A,B,... (default: all other numeric ones)."
    ),
]
StandardiseOption = Annotated[
    bool,
    typer.Option(
        "--standardise", help="Scale each feature to mean 0 and standard deviation 1 first."
    ),
]
MethodOption = Annotated[
    str, typer.Option("--method", help="auto, sgais, or published (the paper's parameters).")
]
SeedOption = Annotated[int, typer.Option("--seed", help="The same seed gives the same numbers.")]
ParticlesOption = Annotated[
    int | None, typer.Option("--particles", help="Particles of each island.")
]
IslandsOption = Annotated[
    int | None, typer.Option("--islands", help="Independent populations, for the error bar.")
]
ChunkOption = Annotated[int | None, typer.Option("--chunk-size", help="Rows brought in at once.")]
BadRowOption = Annotated[
    str, typer.Option("--on-bad-row", help="raise, or skip to leave such rows out and count them.")
]
SchemaOption = Annotated[
    str | None,
    typer.Option("--schema", help="Column types, as a=float,b=int, instead of inferring them."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Write a figure of the path to this file.")
]


@app.command()
def evidence(
    model: ModelArgument,
    data: DataArgument,
    target: TargetOption = None,
    features: FeaturesOption = None,
    standardise: StandardiseOption = False,
    method: MethodOption = "auto",
    seed: SeedOption = 0,
    particles: ParticlesOption = None,
    islands: IslandsOption = None,
    chunk_size: ChunkOption = None,
    on_bad_row: BadRowOption = "raise",
    schema: SchemaOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    plot: PlotOption = None,
    save: Annotated[Path | None, typer.Option("--save", help="Save the result here.")] = None,
) -> None:
    """Log evidence of one model on a table."""
    from weighbridge import commands

    table = commands.Table(data, target, features, standardise, schema)
    chosen = _method(method, particles, islands, chunk_size)
    results = commands.weigh([model], table, chosen, seed, on_bad_row, _reporter(quiet))
    result = results[model]
    if save is not None:
        result.save(save)
    if plot is not None:
        result.plot().savefig(plot, dpi=120)
    print(result.to_json() if json else result)


@app.command()
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
    particles: ParticlesOption = None,
    islands: IslandsOption = None,
    chunk_size: ChunkOption = None,
    on_bad_row: BadRowOption = "raise",
    schema: SchemaOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    plot: PlotOption = None,
) -> None:
    """Bayes factors and probabilities of several models, in one pass over a table."""
    if len(models_and_data) < 3:
        raise typer.BadParameter("give two models or more, and then the data")
    from weighbridge import commands, plots
    from weighbridge.comparison import compare as compare_results

    *names, data = models_and_data
    table = commands.Table(data, target, features, standardise, schema)
    chosen = _method(method, particles, islands, chunk_size)
    results = commands.weigh(names, table, chosen, seed, on_bad_row, _reporter(quiet))
    if plot is not None:
        traces = {name: result.trace for name, result in results.items()}
        plots.plot_paths(traces).savefig(plot, dpi=120)
    comparison = compare_results(results)
    print(comparison.to_json() if json else comparison)
    if not json:
        for name, result in results.items():
            for flag in result.flags:
                print(f"{name}: {flag}")


@app.command()
def models() -> None:
    """List the models of the zoo."""
    from weighbridge.zoo import entries

    for entry in entries().values():
        target = "needs --target" if entry.needs_target else "no target"
        name = f"{entry.name}[:{entry.option}]"
        print(f"{name:22}{entry.summary} ({target})")


@app.command()
def demo(
    rows: Annotated[int, typer.Option("--rows", help="Rows of the stream.")] = 20_000,
    seed: SeedOption = 0,
    output: Annotated[Path, typer.Option("--output", help="Where to write the figure.")] = Path(
        "weighbridge-demo.png"
    ),
) -> None:
    """A stream whose world changes twice, weighed online by mixtures of 3, 5 and 7 components."""
    from weighbridge import demo as demonstration

    demonstration.run(rows, seed, output)


def _method(name: str, particles: int | None, islands: int | None, chunk_size: int | None) -> SGAIS:
    from dataclasses import replace

    from weighbridge.estimators import resolve

    method = resolve(name)
    return replace(
        method,
        num_particles=method.num_particles if particles is None else particles,
        num_islands=method.num_islands if islands is None else islands,
        chunk_size=method.chunk_size if chunk_size is None else chunk_size,
    )


def _reporter(quiet: bool) -> Any:
    from weighbridge.progress import choose_reporter

    return choose_reporter(not quiet)


def main() -> None:
    """Entry point: errors become one line on standard error and an exit code."""
    try:
        app()
    except KeyboardInterrupt:
        print("weighbridge: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(EXIT_ERROR)
    except Exception as error:
        from weighbridge.base import WeighbridgeError

        if not isinstance(error, WeighbridgeError):
            raise
        print(f"weighbridge: {error}", file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(f"weighbridge: {note}", file=sys.stderr)
        sys.exit(EXIT_ERROR)
