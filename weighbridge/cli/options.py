"""The options that commands share, and the method and the reporter that they ask for."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from weighbridge.core.progress.reporters import Reporter
    from weighbridge.estimators.methods import Method


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
        "see `weighbridge models`). With @A,B behind it it takes these columns: linear@a,b.",
    ),
]
DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A CSV, Parquet or NPZ file, or - for CSV on standard input."
    ),
]
TargetOption = Annotated[str | None, typer.Option("--target", help="Column that is predicted.")]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        "--features",
        help="Columns to use besides the target: A,B,... (default: all numeric ones). One model's "
        "own follow its name: linear@a,b linear@a,b,c.",
    ),
]
StandardiseOption = Annotated[
    bool,
    typer.Option(
        "--standardise",
        help="Scale each column but the target to mean 0 and standard deviation 1 first. For a "
        "model from a file true/false, 'weight' and what --schema calls int stay as they are.",
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


def choose_method(
    name: str,
    particles: int | None,
    islands: int | None,
    chunk_size: int | None,
    batch_size: int | None,
    reservoir: int | None = None,
    half_life: float | None = None,
) -> str | Method:
    """The method of that name with the settings given; MethodError if it has no such setting.

    Without settings "auto" stays a name: what it is depends on the models.
    """
    from dataclasses import fields, replace

    from weighbridge.core.errors import MethodError
    from weighbridge.estimators.methods import resolve

    chosen: Any = resolve(name)  # a dataclass, as every method is
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
    """What shows the progress, unless it is to be quiet."""
    from weighbridge.core.progress.reporters import choose_reporter

    return choose_reporter(not quiet)
