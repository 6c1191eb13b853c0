"""The report of a watch: what it reads, what it leaves out, and that a page is only a page."""

import datetime
import html
import json
import re
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from tests.helpers.events import BEGAN, change, clock, start, update
from weighbridge import CheckpointError, DataError, Status, cli
from weighbridge.monitoring.report.chronicle import read_chronicle
from weighbridge.monitoring.report.records import BINS, KEPT
from weighbridge.monitoring.report.writing import render, write_report
from weighbridge.weighing.comparison import jeffreys

EVIL = "<script>alert('x')</script>"


def stop(rows, reason="end"):
    return {"event": "stop", "time": clock(rows), "rows": rows, "reason": reason}


def write(folder, events, ending="\n"):
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    (folder / "events.jsonl").write_text("\n".join(lines) + ending)
    return folder


def page_of(folder, now=BEGAN + datetime.timedelta(seconds=700)):
    return render(read_chronicle(folder), now)


class Text(HTMLParser):
    """The words of a page; refuses one whose elements do not close in order."""

    VOID = frozenset({"meta"})

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.words = [], set(), []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split()).replace("\N{MINUS SIGN}", "-")


def test_a_finished_run_is_told_in_full(tmp_path):
    summary = {"mean": 1.25, "sd": 0.03, "hdi_low": 1.2, "hdi_high": 1.3}
    events = [
        start(),
        update(100),
        {"event": "notice", "time": clock(1), "rows": 100, "kind": "gap", "text": "7 is missing"},
        {"event": "posterior", "time": clock(1), "rows": 100, "summary": {"line": {"w[0]": {}}}},
        {"event": "checkpoint", "time": clock(1), "rows": 100, "file": "a"},
        update(200, flags={"line": ["NOISY"], "curve": []}),
        change(200, 160),
        {"event": "something new", "time": clock(2), "rows": 200},
        {"event": "checkpoint_failed", "time": clock(2), "rows": 200, "reason": "disk full"},
        {"event": "posterior", "time": "", "rows": 200, "summary": {"line": {"w[0]": summary}}},
        stop(200),
    ]
    chronicle = read_chronicle(write(tmp_path, events))
    assert chronicle.models == ["line", "curve"]
    assert [point.rows for point in chronicle.points] == [100, 200]
    assert (chronicle.rows_skipped, chronicle.rows_quarantined) == (2, 4)
    assert (chronicle.stopped, chronicle.elapsed, chronicle.resumed) == ("end", 1.0, 0)
    assert (chronicle.checkpoints, chronicle.last_checkpoint) == (1, 100)
    assert chronicle.posterior == {"line": {"w[0]": summary}}
    told = Text(page_of(tmp_path)).text
    assert "After 200 rows, curve is the most probable model: probability 0.8750 ± 0.0100" in told
    assert f"against line: {jeffreys(20.0)}" in told
    assert "-280.00 0.5 0 0.8750" in told
    assert "-300.00 0.25 -20.00 0.56 0.1250 0.0100 decisive" in told
    assert "1 160 9.5 0.0005 line" in told
    assert "w[0] 1.250 0.030 1.200 1.300" in told
    assert "finished the source has ended" in told
    assert "Gaps in the source 1" in told
    assert "7 is missing" in told
    assert "1, the latest because: disk full" in told
    assert Status.NOISY.remedy in told
    assert "line in 1 of 2 updates" in told
    for title in ("Log Bayes factor against curve", "Probability", "Annealing steps"):
        assert title in told


def test_what_was_done_again_counts_once_and_as_the_last_run_saw_it(tmp_path):
    before = [start(), update(100), update(200, -9.0), change(200, 150), update(300, -9.0)]
    after = [start(100), update(200), change(200, 140), update(300), update(400), stop(400)]
    chronicle = read_chronicle(write(tmp_path, [*before, *after]))
    assert [point.rows for point in chronicle.points] == [100, 200, 300, 400]
    assert [p.log_evidences["line"] for p in chronicle.points] == [-150, -300, -450, -600]
    assert [found.row for found in chronicle.changes] == [140]
    assert (chronicle.resumed, chronicle.rows_skipped, chronicle.num_updates) == (1, 4, 4)
    assert chronicle.started == clock(0)
    # A run that has resumed and not yet caught up is where it is, not where it was.
    caught_up = read_chronicle(write(tmp_path, [*before, *after[:2]]))
    assert [point.rows for point in caught_up.points] == [100, 200]
    # Rows that come again without a start between them: the last line wins.
    again = read_chronicle(write(tmp_path, [update(100, -9.0), update(100), update(200)]))
    assert [p.log_evidences["line"] for p in again.points] == [-150, -300]
    # An update whose rows were all left out is of as many rows, and counts.
    left_out = read_chronicle(write(tmp_path, [update(100), update(100), start(100), update(100)]))
    assert (left_out.num_updates, left_out.rows_quarantined, left_out.rows) == (3, 6, 100)
    # A run that began anew knows nothing of the one before it.
    anew = read_chronicle(write(tmp_path, [*before, stop(300), start(), update(50)]))
    assert ([point.rows for point in anew.points], anew.num_changes) == ([50], 0)


@pytest.mark.parametrize(
    ("ending", "word"),
    [
        ([], "running"),
        ([stop(100, "signal")], "stopped"),
        ([stop(100, "error")], "failed"),
        ([stop(100, "end"), start(100)], "running"),
    ],
)
def test_running_or_stopped(tmp_path, ending, word):
    page = page_of(write(tmp_path, [start(), update(100), *ending]))
    assert re.search(r'<span class="state \w+">(.*?)</span>', page)[1] == word


def test_a_run_that_was_killed_is_not_called_running(tmp_path):
    write(tmp_path, [start(), update(100)])
    told = Text(page_of(tmp_path, BEGAN + datetime.timedelta(days=2))).text
    assert "no sign of life" in told
    assert "last event 2 d before this report: it may have been killed" in told


@pytest.mark.parametrize("half", ['{"event": "upd', '{"event": "update", "rows": 300', "{"])
def test_the_last_line_may_be_half_written(tmp_path, half):
    chronicle = read_chronicle(write(tmp_path, [start(), update(100), half], ending=""))
    assert (chronicle.rows, chronicle.unreadable) == (100, 0)


def test_a_whole_last_line_without_newline_counts(tmp_path):
    assert read_chronicle(write(tmp_path, [start(), update(100)], ending="")).rows == 100


def test_damaged_lines_are_counted_and_odd_values_do_no_harm(tmp_path):
    odd = update(200, log_evidences={"line": None, "curve": 1e308}, std_errors=[1], flags="x")
    odd |= {"annealing_steps": {"line": "many"}, "rows_skipped": None, "elapsed": {}}
    lines = [start(), update(100), "half a li", "[1, 2]", "\x00\x00", odd, change(200, 10**400)]
    page = page_of(write(tmp_path, lines))
    told = Text(page).text
    assert "Lines that could not be read 3" in told
    assert "unknown" in told
    assert "nan" not in page.lower()
    assert "inf%" not in page


def test_everything_from_the_file_is_escaped(tmp_path):
    names = (EVIL, '"quoted" & <b>')
    events = [
        start(models=names, source=EVIL, version=EVIL, time=EVIL),
        update(100, names=names, flags={EVIL: [EVIL]}),
        change(100, 50, model=EVIL),
        {"event": "notice", "time": EVIL, "rows": 100, "kind": EVIL, "text": EVIL},
        {"event": "checkpoint_failed", "time": EVIL, "rows": 100, "reason": EVIL},
        {"event": "posterior", "rows": 100, "summary": {EVIL: {EVIL: {"mean": EVIL}}}},
        stop(100, EVIL) | {"time": EVIL},
    ]
    page = page_of(write(tmp_path, events))
    assert "<script" not in page
    assert html.escape(EVIL) in page
    assert "script" not in Text(page).tags
    assert "b" not in Text(page).tags


def test_the_page_needs_nothing_else(tmp_path):
    page = page_of(write(tmp_path, [start(), update(100), stop(100)]))
    assert not re.search(r"\b(src|href)=|url\(|@import|https?:", page)
    assert "prefers-color-scheme:dark" in page


def test_a_long_run_makes_a_page_of_the_same_size(tmp_path):
    def run(count):
        updates = [update(k) for k in range(1, count + 1)]
        updates[count // 2]["annealing_steps"] = {"line": 77.0, "curve": 1.0}
        changes = [change(k, k) for k in range(1, count + 1, 3)]
        return write(tmp_path, [start(), *updates, *changes, stop(count)])

    chronicle = read_chronicle(run(4000))
    assert len(chronicle.points) <= BINS + 1
    assert chronicle.num_updates == chronicle.rows_skipped == 4000
    assert chronicle.points[-1].rows == 4000
    assert max(point.annealing_steps["line"] for point in chronicle.points) == 77.0
    assert len(chronicle.changes) == KEPT
    assert len(chronicle.change_rows) <= 2 * BINS
    short = len(page_of(run(2000)))
    assert len(page_of(run(4000))) < 1.1 * short


def test_one_model_and_none(tmp_path):
    one = Text(page_of(write(tmp_path, [start(models=["line"]), update(10, names=["line"])]))).text
    assert "After 10 rows the log evidence of line is -15.00 ± 0.25." in one
    assert "Bayes factor against" not in one
    none = Text(page_of(write(tmp_path, [start()]))).text
    assert "No rows have been weighed yet." in none


def test_prior_odds_are_told_from_the_evidence(tmp_path):
    odds = {"line": 0.75, "curve": 0.25}
    told = Text(page_of(write(tmp_path, [start(), update(10, probabilities=odds)]))).text
    assert "line is the most probable model" in told
    assert "without the prior odds, curve is ahead" in told


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no events\.jsonl"):
        read_chronicle(tmp_path)
    with pytest.raises(DataError, match="is no folder"):
        read_chronicle(tmp_path / "missing")
    with pytest.raises(DataError, match="is empty"):
        read_chronicle(write(tmp_path, [], ending=""))
    with pytest.raises(DataError, match="no line of it is an event"):
        read_chronicle(write(tmp_path, ["a,b", "1,2"]))


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("weighbridge.monitoring.report.lines.LONGEST_LINE", 5000)
    monkeypatch.setattr("weighbridge.monitoring.report.lines.BLOCK", 1000)
    assert read_chronicle(write(tmp_path, [start(), *map(update, range(100))])).rows == 99
    with pytest.raises(DataError, match="more than 5000 bytes"):
        read_chronicle(write(tmp_path, ["x" * 9000, update(1)]))


def test_the_command(tmp_path):
    write(tmp_path, [start(), update(100), stop(100)])
    done = CliRunner().invoke(cli.app, ["report", str(tmp_path)])
    assert done.exit_code == 0
    assert done.stdout.strip() == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    elsewhere = tmp_path / "elsewhere.html"
    assert write_report(tmp_path, elsewhere) == elsewhere
    assert "<h2>Evidence</h2>" in elsewhere.read_text()
    failed = CliRunner().invoke(cli.app, ["report", str(tmp_path / "nothing")])
    assert failed.exit_code == 1
    assert "weighbridge watch" in failed.stderr
    with pytest.raises(CheckpointError, match="there is no folder"):
        write_report(tmp_path, tmp_path / "missing" / "page.html")
