"""The application: it registers all commands, and has the code of the short ones."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

import weighbridge
from weighbridge.cli.ending import stop_at_once, with_exit_codes
from weighbridge.cli.options import SeedOption
from weighbridge.cli.watching import watch
from weighbridge.cli.weighing import compare, evidence

app = typer.Typer(
    help="Compare Bayesian models by their evidence, on data of any size, while they arrive.\n\n"
    "Exit codes: 0 done, 1 the model or the data cannot be used (the message gives the reason), "
    "2 wrong usage, 130 interrupted. Results go to standard output, everything else to standard "
    "error.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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


@with_exit_codes
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
    """Write one self-contained HTML page with the results of a watch so far."""
    from weighbridge.monitoring.report.writing import write_report

    print(write_report(directory, output), flush=True)


@with_exit_codes
def models() -> None:
    """List the models of the zoo."""
    from weighbridge.zoo import entries

    for entry in entries().values():
        target = "needs --target" if entry.needs_target else "no target"
        name = f"{entry.name}[:{entry.option}]"
        print(f"{name:24}{entry.summary} ({target})")


@with_exit_codes
def demo(
    rows: Annotated[int, typer.Option("--rows", help="Rows of the stream.")] = 20_000,
    seed: SeedOption = 0,
    output: Annotated[Path, typer.Option("--output", help="Where to write the figure.")] = Path(
        "weighbridge-demo.png"
    ),
) -> None:
    """Compare mixtures of 2, 3 and 5 components on a stream that changes twice."""
    from weighbridge.cli import demo as demonstration

    demonstration.run(rows, seed, output)


for command in (evidence, compare, watch, report, models, demo):  # --help keeps this order
    app.command()(command)


def main() -> None:
    """Entry point of the command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop_at_once)
    app()
