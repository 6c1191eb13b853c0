"""Writes the report of a watch, one self-contained HTML page."""

from __future__ import annotations

import datetime
import html
import math
from pathlib import Path

import weighbridge
from weighbridge.core.atomic_write import write_whole
from weighbridge.core.checkpoint_file import check_place
from weighbridge.core.errors import CheckpointError
from weighbridge.monitoring.report.chronicle import read_chronicle
from weighbridge.monitoring.report.figures import figures
from weighbridge.monitoring.report.page import document, facts, paragraph
from weighbridge.monitoring.report.records import Chronicle, ReportedPoint
from weighbridge.monitoring.report.tables import (
    against,
    change_table,
    evidence_table,
    evidence_text,
    flag_table,
    posterior_tables,
    quality_tables,
)
from weighbridge.monitoring.report.words import (
    duration,
    known,
    number_or,
    probability_text,
    seconds_since,
    when,
)
from weighbridge.weighing.comparison import Comparison

FILE_NAME = "report.html"
# A run without an event for this many seconds may be dead.
SILENCE = 3600.0
REASONS = {
    "end": ("finished", "good", "the source has ended"),
    "signal": ("stopped", "warn", "it was told to stop (a signal)"),
    "error": ("failed", "bad", "an error stopped it"),
}


def write_report(directory: str | Path, output: str | Path | None = None) -> Path:
    """Write the page of a run, finished or still running.

    Args:
        directory: the run directory of ``weighbridge watch``.
        output: the file to write; by default ``report.html`` in the run directory.

    Returns:
        The file that was written.
    """
    path = Path(directory) / FILE_NAME if output is None else Path(output)
    page = render(read_chronicle(directory), datetime.datetime.now(datetime.UTC))
    check_place(path)
    try:
        # Replace the file in one step: a browser may be reading the previous page.
        write_whole(path, page.encode())
    except OSError as error:
        raise CheckpointError(
            f"Could not write {path}: {error.strerror or error}. Choose another folder."
        ) from error
    return path


def render(chronicle: Chronicle, now: datetime.datetime) -> str:
    """The page of a run.

    Args:
        chronicle: summary of its events.
        now: the time of the report, with its time zone.

    >>> from weighbridge.monitoring.report.records import ReportedPoint
    >>> update = ReportedPoint(10, {"a": -9.5}, {"a": 0.1}, {"a": 1.0}, {"a": 0.0}, {"a": 2.0})
    >>> page = render(Chronicle(points=[update], models=["a"]), datetime.datetime.now(datetime.UTC))
    >>> page.startswith("<!doctype html>"), "<script" in page
    (True, False)
    """
    models = chronicle.models
    several = f"{len(models)} models" if len(models) != 1 else models[0]
    title = f"{several}, {chronicle.rows:,} rows"
    sections = [
        f"<h1>{html.escape(title)}</h1>",
        _state(chronicle, now),
        _header(chronicle),
    ]
    if chronicle.points and models:
        by_path, answer = _compared(chronicle.points[-1], models), chronicle.answer
        compared = by_path if answer is None else _compared(answer, models)
        is_of_all = compared.num_observations >= by_path.num_observations
        sections += [
            _verdict(compared if is_of_all else by_path, chronicle),
            "<h2>Evidence</h2>",
            *_evidence(compared, by_path, chronicle),
            "<h2>Along the rows</h2>",
            figures(chronicle, by_path.leader),
        ]
    elif chronicle.points:
        sections.append(paragraph("No evidence of any model was written down.", "verdict"))
    else:
        sections.append(paragraph("No rows have been weighed yet.", "verdict"))
    sections += [
        "<h2>Change points</h2>",
        change_table(chronicle),
        "<h2>Posterior</h2>",
        posterior_tables(chronicle),
        "<h2>Data and checkpoints</h2>",
        quality_tables(chronicle),
        "<h2>Reasons for caution</h2>",
        flag_table(chronicle),
        f'<footer class="soft">Written by weighbridge {weighbridge.__version__} at '
        f"{when(now.isoformat())}. Evidence in nats (natural logarithms).</footer>",
    ]
    return document(f"weighbridge: {title}", "\n".join(sections))


def _state(chronicle: Chronicle, now: datetime.datetime) -> str:
    if chronicle.stopped is not None:
        word, kind, why = REASONS.get(
            chronicle.stopped, ("stopped", "warn", f"reason: {chronicle.stopped}")
        )
    else:
        silence = seconds_since(chronicle.last_seen, now)
        lost = math.isnan(silence) or silence > SILENCE
        word, kind = ("no sign of life", "warn") if lost else ("running", "good")
        why = "no stop was recorded" + (
            "" if math.isnan(silence) else f"; last event {duration(silence)} before this report"
        )
        why += ": it may have been killed" if lost else ""
    state = (
        f'<p><span class="state {kind}">{word}</span> '
        f'<span class="soft">{html.escape(why)}</span></p>'
    )
    if chronicle.error:
        state += paragraph(chronicle.error, "bad")
    if chronicle.checkpoints_failed and not chronicle.is_saved:
        rows = chronicle.last_checkpoint
        kept = "nothing is saved" if rows is None else f"only the first {rows:,} rows are saved"
        state += paragraph(f"The latest checkpoint could not be written: {kept}.", "bad")
    return state


def _header(chronicle: Chronicle) -> str:
    exact = {True: "exact", False: "not exact: the source cannot go back", None: ""}
    restarts = {0: "never", 1: "once"}.get(chronicle.resumed, f"{chronicle.resumed:,} times")
    speed = chronicle.rows / chronicle.elapsed if chronicle.elapsed > 0 else math.nan
    return facts(
        [
            ("Models", "; ".join(chronicle.models)),
            ("Source", chronicle.source),
            ("Rows", f"{chronicle.rows:,} in {chronicle.num_updates:,} updates"),
            ("Speed", "" if math.isnan(speed) else f"{speed:,.0f} rows per second of computing"),
            ("Started", when(chronicle.started)),
            ("Last seen", when(chronicle.last_seen)),
            ("Resumed", restarts),
            ("A resumed run is", exact[chronicle.seekable]),
            ("weighbridge", chronicle.version),
        ]
    )


def _compared(point: ReportedPoint, names: list[str]) -> Comparison:
    """The numbers of a point as a comparison; models with unknown evidence come last."""
    evidences = {n: known(point.log_evidences, n, -math.inf) for n in names}
    best = max(evidences.values(), default=-math.inf)
    return Comparison(
        log_evidences=evidences,
        std_errors={n: known(point.std_errors, n) for n in names},
        log_bayes_factors={n: evidences[n] - best for n in names},
        probabilities={n: known(point.probabilities, n) for n in names},
        probability_errors={n: known(point.probability_errors, n) for n in names},
        num_observations=point.rows,
        trust={n: point.trust.get(n, "") for n in names},
    )


def _evidence(compared: Comparison, by_path: Comparison, chronicle: Chronicle) -> list[str]:
    """The answer as the watch prints it at its end, and the estimate of the path, as on screen."""
    path = f"By the path after {by_path.num_observations:,} rows, as the screen shows it."
    if chronicle.answer is None:
        return [paragraph(path, "soft"), evidence_table(by_path)]
    rows = f"{compared.num_observations:,} rows"
    told = f"The answer after {rows}, as it is printed at the end: better known than the path's."
    return [
        paragraph(told, "soft"),
        evidence_table(compared),
        "<h3>By the path</h3>",
        paragraph(path, "soft"),
        evidence_table(by_path),
    ]


def _verdict(compared: Comparison, chronicle: Chronicle) -> str:
    rows = f"After {compared.num_observations:,} rows"
    ranked = compared.ranking
    if len(ranked) == 1:
        name = ranked[0]
        value = evidence_text(compared, name)
        first = f"{rows} the log evidence of {name} is {value}."
        rest = "There is no other model to weigh it against."
    else:
        likely = max(ranked, key=lambda n: number_or(compared.probabilities[n], -1.0))
        probability = probability_text(compared.probabilities[likely])
        error = probability_text(compared.probability_errors[likely])
        sure = f" \N{PLUS-MINUS SIGN} {error}" if error not in ("0", "unknown") else ""
        first = f"{rows}, {likely} is the most probable model: probability {probability}{sure}."
        if not compared.is_decided:
            first = (
                f"{rows}, it is undecided which model is the best: the evidence of "
                f"{' and '.join(n for n in ranked if compared.trust.get(n))} is not to be trusted. "
                f"{likely} would have probability {probability}."
            )
        others = [f"against {name}: {against(compared, name)}" for name in ranked[1:]]
        rest = f"The evidence {'; '.join(others)}."
        ahead = max(ranked, key=lambda n: number_or(compared.log_evidences[n], -math.inf))
        if likely != ahead:
            rest += f" By the evidence alone, without the prior odds, {ahead} is ahead."
    if chronicle.num_changes:
        plural = "" if chronicle.num_changes == 1 else "s"
        rest += (
            f" {chronicle.num_changes:,} change point{plural} found, the latest at row "
            f"{chronicle.changes[-1].row:,}."
        )
    raised = sum(bool(flags) for flags in chronicle.flags.values())
    if raised:
        rest += " There are reasons for caution: see the end of the page."
    return f'<div class="verdict">{paragraph(first)}{paragraph(rest)}</div>'
