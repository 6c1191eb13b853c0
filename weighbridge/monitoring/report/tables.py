"""The tables of a report: evidence, changes, posterior, data and flags."""

from __future__ import annotations

import html
import math

from weighbridge.core.status import Status
from weighbridge.monitoring.report.page import facts, paragraph, table
from weighbridge.monitoring.report.records import KEPT, Chronicle
from weighbridge.monitoring.report.words import (
    error_text,
    fixed,
    known,
    plus_minus,
    probability_text,
    sentence,
    short,
    to_error,
)
from weighbridge.results.trust import NOT_TRUSTED
from weighbridge.results.wording import error_or_trust, with_bound, with_trust
from weighbridge.weighing.comparison import GRAVE, Comparison


def evidence_table(compared: Comparison) -> str:
    """Evidence, Bayes factors and probabilities of the models, the best first."""
    sign = "\N{PLUS-MINUS SIGN}"
    columns = (
        *("model", "log evidence", sign, "log Bayes factor", sign, "probability", sign),
        "evidence against it",
    )
    rows = []
    for name in compared.ranking:
        best = name == compared.leader
        rows.append(
            (
                name,
                with_bound(fixed(compared.log_evidences[name]), compared.trust.get(name, "")),
                _error(compared, name),
                "0" if best else factor_text(compared, name),
                "" if best else error_text(compared.bayes_factor_error(name)),
                probability_text(compared.probabilities[name]),
                probability_text(compared.probability_errors[name])
                if compared.is_decided
                else NOT_TRUSTED,
                against(compared, name),
            )
        )
    return table(columns, rows, words=(0, 7)) + paragraph(
        f"Log Bayes factors are against the best model; {sign} is one standard error. The words "
        "are Jeffreys' (1961), where the error is small enough for them.",
        "soft",
    )


def against(compared: Comparison, name: str) -> str:
    """The strength of the evidence against a model; "unknown" if its evidence is unknown."""
    if name == compared.leader:
        return "the best" if compared.is_decided else GRAVE
    finite = math.isfinite(compared.log_bayes_factors[name])
    return compared.verdict(name) if finite else "unknown"


def _error(compared: Comparison, name: str) -> str:
    """The error of a log evidence, or why there is none."""
    error, word = compared.std_errors[name], compared.trust.get(name, "")
    return error_or_trust(error, word) if word else error_text(error)


def factor_text(compared: Comparison, name: str) -> str:
    """A log Bayes factor, perhaps as a bound."""
    return f"{compared.bound(name)} {fixed(compared.log_bayes_factors[name])}".strip()


def evidence_text(compared: Comparison, name: str) -> str:
    """A log evidence with its error, or with what to think of it."""
    value, error = compared.log_evidences[name], compared.std_errors[name]
    word = compared.trust.get(name, "")
    return with_trust(fixed(value), "", word) if word else plus_minus(value, error)


def change_table(chronicle: Chronicle) -> str:
    """The change points, with the numbers of the figures."""
    if not chronicle.num_changes:
        return paragraph("No change was found.")
    rows = [
        (str(k), f"{change.row:,}", short(change.score), short(change.p_value), change.model)
        for k, change in enumerate(
            chronicle.changes, chronicle.num_changes - len(chronicle.changes) + 1
        )
    ]
    shown = table(("", "first row after it", "score", "p-value", "found by"), rows, words=(0, 4))
    return shown + _more(chronicle.num_changes - len(rows), "earlier ones")


def posterior_tables(chronicle: Chronicle) -> str:
    """The parameters of each model."""
    if not chronicle.posterior:
        return paragraph("No summary has been written yet.")
    columns = ("parameter", "mean", "sd", "HDI low", "HDI high")
    keys = ("mean", "sd", "hdi_low", "hdi_high")
    parts = [
        paragraph(
            f"After {chronicle.posterior_rows:,} rows. HDI: highest-density interval, the "
            "shortest that holds its probability.",
            "soft",
        )
    ]
    for model, parameters in list(chronicle.posterior.items())[:KEPT]:
        rows = [
            (name, *(to_error(known(n, key), known(n, "sd")) for key in keys))
            for name, n in list(parameters.items())[:KEPT]
        ]
        parts += [
            f"<h3>{html.escape(model)}</h3>",
            table(columns, rows, words=(0,)),
            _more(len(parameters) - len(rows), "parameters"),
        ]
    return "\n".join(parts)


def quality_tables(chronicle: Chronicle) -> str:
    """Bad rows, notices and checkpoints."""
    counts = chronicle.notice_counts
    kinds = {"gap": "Gaps in the source", "duplicate": "Duplicate pieces left out"}
    pairs = [
        ("Rows weighed", f"{chronicle.rows:,}"),
        ("Bad rows skipped", f"{chronicle.rows_skipped:,}"),
        ("Bad rows quarantined", f"{chronicle.rows_quarantined:,}"),
        *((label, f"{counts[kind]:,}") for kind, label in kinds.items()),
        *((f"Notices: {k}", f"{c:,}") for k, c in counts.most_common(KEPT) if k not in kinds),
        ("Checkpoints", f"{chronicle.checkpoints:,}" + _latest_checkpoint(chronicle)),
        ("Checkpoints that failed", f"{chronicle.checkpoints_failed:,}" + _failure(chronicle)),
        ("Lines that could not be read", f"{chronicle.unreadable:,}"),
    ]
    parts = [facts(pairs)]
    if chronicle.notices:
        rows = [(f"{n.rows:,}", n.kind, n.text) for n in chronicle.notices]
        parts.append(table(("after rows", "notice", ""), rows, words=(0, 1, 2)))
        parts.append(_more(counts.total() - len(rows), "earlier ones"))
    return "\n".join(parts)


def _latest_checkpoint(chronicle: Chronicle) -> str:
    rows = chronicle.last_checkpoint
    return "" if rows is None else f", the latest after {rows:,} rows"


def _failure(chronicle: Chronicle) -> str:
    return f", the latest because: {chronicle.last_failure}" if chronicle.last_failure else ""


def flag_table(chronicle: Chronicle) -> str:
    """The flags, their meanings and their remedies."""
    if not chronicle.flag_counts:
        return paragraph("None was raised.")
    rows = []
    for flag in list(dict.fromkeys(flag for flag, _ in chronicle.flag_counts))[:KEPT]:
        status = Status.__members__.get(flag)
        counts = {name: c for (f, name), c in chronicle.flag_counts.items() if f == flag}
        now = [name for name in counts if flag in chronicle.flags.get(name, [])]
        past = [f"{name} in {count:,}" for name, count in list(counts.items())[:KEPT]]
        rows.append(
            (
                status.label if status else flag,
                ", ".join(now) or "none",
                f"{', '.join(past)} of {chronicle.num_updates:,} updates",
                f"{sentence(status.meaning)} {status.remedy}" if status else "",
            )
        )
    return table(("flag", "now", "raised", "what it means, and what to do"), rows, range(4))


def _more(count: int, what: str) -> str:
    return paragraph(f"and {count:,} {what}", "soft") if count > 0 else ""
