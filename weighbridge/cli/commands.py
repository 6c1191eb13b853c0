"""The work of ``evidence``, ``compare`` and ``watch``, without their command-line options."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from weighbridge.cli.named_models import Loaded, load_all
from weighbridge.cli.scaling import Scales, measure
from weighbridge.cli.tables import (
    Columns,
    InputTable,
    check_comparable,
    columns_used,
    competitors_of,
    features_of,
    longest_lag,
    note,
    scaled_features,
    stack_columns,
)
from weighbridge.cli.views import PeekedFeed, models_and_views
from weighbridge.core.addresses import without_secrets
from weighbridge.core.errors import DataError
from weighbridge.core.progress.announcing import announce
from weighbridge.core.progress.reporters import Reporter, Silent
from weighbridge.data.lags import lagged
from weighbridge.data.row_checking import RowChecker, RowPolicy
from weighbridge.data.sources.source import Source
from weighbridge.data.values import columns_remark, num_rows
from weighbridge.estimators.choosing import choose
from weighbridge.estimators.registry import Method
from weighbridge.monitoring.run_lock import locked
from weighbridge.monitoring.terminal import Display
from weighbridge.monitoring.watch_plan import Keeping, Plan, Watched
from weighbridge.monitoring.watching import Watch, saved_cursor
from weighbridge.results.evidence_result import Evidence
from weighbridge.weighing.rounds import Limits
from weighbridge.weighing.weighing import weigh_together


def weigh(
    specs: Sequence[str],
    table: InputTable,
    method: str | Method,
    seed: int,
    on_bad_row: RowPolicy,
    reporter: Reporter,
    limits: Limits,
    quarantine: Path | None = None,
) -> dict[str, Evidence]:
    """The evidence of each model; without a tolerance, one pass over the table serves all."""
    loaded = load_all(specs)
    choice = choose(method, [requested.model for requested in loaded.values()])
    limits.check(choice.method, decides=choice.decides)
    check_comparable(loaded, table)
    source = table.open(loaded, on_bad_row)
    for remark in columns_remark(source.ignored_columns):
        note(remark)
    if table.target in source.left_out:
        raise DataError(
            f"The target {table.target!r} does not hold numbers. Turn its values into numbers "
            "first (labels into 0, 1, 2, ...)."
        )
    for name in [n for requested in loaded.values() for n in requested.features or ()]:
        if name in source.left_out:
            raise source.left_out[name]
    order = longest_lag(loaded)
    scales = _measure(source, table, loaded) if table.standardise else None
    blocks = source.blocks()
    first = next((block for block in blocks if num_rows(block)), None)
    if first is None:
        raise DataError(f"{without_secrets(table.data)} has no rows.")
    competitors = competitors_of(loaded, table, first, scales)
    # The first block was read to learn the columns. Reuse it: a pipe cannot be read again.
    begun = [itertools.chain([first], blocks)]

    def start() -> Iterator[Columns]:
        everything = begun.pop() if begun else source.blocks()
        if on_bad_row != "raise":
            return iter(everything)
        return _refuse_bad_numbers(everything, columns_used(loaded, table, first, competitors))

    named = Source(
        start,
        num_rows=None if isinstance(reporter, Silent) else table.count_rows(source),
        reopenable=source.reopenable,
        unread=source.unread,
        set_aside=source.set_aside,
    )
    if order:
        requested = next(iter(loaded.values()))  # all models describe the same columns
        named = _lag(named, features_of(table, first, requested), order)
    try:
        return weigh_together(
            competitors,
            named,
            choice,
            seed=seed,
            limits=limits,
            on_bad_row=on_bad_row,
            quarantine=quarantine,
            reporter=reporter,
        )
    except DataError as error:
        if "column 'y'" in str(error) and "y" not in first:  # zoo models call the target 'y'
            error.add_note(f"Here 'y' is the target, column {table.target!r}.")
        raise


def _lag(
    rows: Source,
    names: list[str],
    order: int,
) -> Source:
    """The features of a table as a series: each row with the rows before it."""
    first = "row" if order == 1 else f"{order} rows"
    note(f"the evidence is conditional on the first {first}, which only serve as past values")
    # One array without names, so that a column named 'weight' or 'past' has no special meaning.
    series = Source(
        lambda: (stack_columns(block, names) for block in rows.blocks()),
        num_rows=rows.num_rows,
        reopenable=rows.reopenable,
        unread=rows.unread,
        set_aside=rows.set_aside,
    )
    source: Source = lagged(series, order)
    return source


def _refuse_bad_numbers(blocks: Iterable[Columns], used: set[str] | None) -> Iterator[Columns]:
    """Refuse blocks with missing or infinite numbers in the columns that are used.

    The models would refuse them too, but their messages would not have the table's column names.
    """
    check = RowChecker("raise", columns_read=lambda _: used)
    for block in blocks:
        yield check(block)


def _measure(source: Source, table: InputTable, loaded: Loaded) -> Scales:
    """Mean and standard deviation of every feature, from a separate pass over the data."""
    if not source.reopenable:
        raise DataError(
            "--standardise needs two passes over the data, and a stream can be read only once. "
            "Give a file."
        )

    def features() -> Iterator[Columns]:
        names: dict[str, None] = {}
        for block in source.blocks():
            if not names:
                wanted = (scaled_features(table, block, requested) for requested in loaded.values())
                names = dict.fromkeys(name for some in wanted for name in some)
            yield {name: block[name] for name in names}

    try:
        scales = measure(features())
    except DataError as error:
        if any(requested.model is not None for requested in loaded.values()):
            error.add_note("Columns declared as int in --schema are not standardised.")
        raise
    remarks = ", ".join(f"{name} ({m:.4g}, {s:.4g})" for name, (m, s) in scales.items())
    note(f"standardised, with column (mean, standard deviation): {remarks}")
    note("the evidence refers to the standardised columns")
    return scales


def watch_table(
    specs: Sequence[str],
    table: InputTable,
    plan: Plan,
    directory: Path,
    keeping: Keeping,
    display: Display,
    stop: threading.Event,
) -> Watched:
    """Compare models on a table that may grow, until it ends or ``stop`` is set.

    Args:
        specs: the models, as the user names them.
        table: where the rows come from, and the columns that the models get.
        plan: the settings of the watch; its models are set here, since they depend on the columns.
        directory: the run directory.
        keeping: when to write checkpoints, and how many to keep.
        display: shows every update.
        stop: set it to stop.
    """
    loaded = load_all(specs)
    check_comparable(loaded, table)
    with locked(directory, display.say):
        announce(display, f"waiting for the first rows of {without_secrets(table.data)}")
        feed = PeekedFeed(table.follow_rows(loaded, plan.on_bad_row), stop, saved_cursor(directory))
        if feed.first is None:
            if stop.is_set():
                return Watched("signal", 0, None)
            raise DataError(f"{without_secrets(table.data)} has no rows.")
        for remark in columns_remark(feed.left_out):
            display.say(remark)
        announce(display, "compiling the models")
        models, views = models_and_views(loaded, table, feed.first)
        plan = replace(plan, models=models)
        return Watch(plan, feed, directory, views, keeping, display, stop).run()
