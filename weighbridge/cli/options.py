"""Options that several commands have, and the method and the reporter that they select."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from weighbridge.core.progress.reporters import Reporter
    from weighbridge.estimators.registry import Method


class OnBadRow(enum.StrEnum):
    """What to do with a row that cannot be used."""

    RAISE = "raise"
    SKIP = "skip"
    QUARANTINE = "quarantine"


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A wb.Model in a file (file.py:name), or a model of the zoo (linear, mixture:5; "
        "see `weighbridge models`). Add @A,B to use only these columns: linear@a,b.",
    ),
]
DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A CSV, Parquet or NPZ file, or - for CSV on standard input."
    ),
]
TargetOption = Annotated[str | None, typer.Option("--target", help="Column to predict.")]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        "--features",
        help="Columns to use besides the target: A,B,... (default: all numeric ones). For the "
        "columns of one model write them after its name: linear@a,b linear@a,b,c.",
    ),
]
StandardiseOption = Annotated[
    bool,
    typer.Option(
        "--standardise",
        help="First scale each column except the target to mean 0 and standard deviation 1. For a "
        "model from a file, columns of true/false, 'weight' and int columns of --schema are not "
        "scaled.",
    ),
]
MethodOption = Annotated[
    str,
    typer.Option(
        "--method",
        help="auto, sgais, published (the paper's parameters), smc, ais, ibis, thermodynamic, "
        "prior_sampling, nested, bridge, laplace, importance, harmonic_mean, online_nested or "
        "sequential_sgmcmc.",
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
ChunkOption = Annotated[int | None, typer.Option("--chunk-size", min=1, help="Rows in each chunk.")]
BatchOption = Annotated[
    int | None, typer.Option("--batch-size", min=1, help="Rows of a mini-batch.")
]
BadRowOption = Annotated[
    OnBadRow,
    typer.Option(
        "--on-bad-row",
        help="raise an error; skip: leave bad rows out and count them; quarantine: also write them "
        "to a file.",
    ),
]
QuarantineOption = Annotated[
    Path | None,
    typer.Option("--quarantine", help="File to which bad rows are appended (JSON lines)."),
]
SchemaOption = Annotated[
    str | None,
    typer.Option("--schema", help="Column types, as a=float,b=int, instead of inferring them."),
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        help="Add islands until the standard error of the log evidence (nats) is below this.",
    ),
]
TimeLimitOption = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        help="Seconds after which no more islands are added, and no other method is tried.",
    ),
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


def choose_method(
    name: str,
    particles: int | None,
    islands: int | None,
    chunk_size: int | None,
    batch_size: int | None,
    reservoir: int | None = None,
    half_life: float | None = None,
) -> str | Method:
    """The method of this name with the given settings; MethodError if it lacks one of them.

    Without settings "auto" stays a name, because the choice depends on the models.
    """
    from dataclasses import fields, replace

    from weighbridge.core.errors import MethodError
    from weighbridge.estimators.registry import resolve

    chosen: Any = resolve(name)  # every method is a dataclass
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
    return replace(chosen, **given) if given or name != "auto" else name


def reporter_of(quiet: bool) -> Reporter:
    """The reporter of progress, which shows nothing if ``quiet``."""
    from weighbridge.core.progress.reporters import choose_reporter

    return choose_reporter(not quiet)
