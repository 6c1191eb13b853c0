"""Any event log makes a page, or an error that says what to do; what it holds is only text."""

import copy
import datetime
import json
import random
from html.parser import HTMLParser

import pytest

from tests.helpers.crafting import WRONG, changed, places
from tests.helpers.events import change, start, update
from weighbridge import DataError, WeighbridgeError
from weighbridge.monitoring.report.chronicle import read_chronicle
from weighbridge.monitoring.report.writing import render, write_report

NOW = datetime.datetime(2026, 1, 6, tzinfo=datetime.UTC)
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
# Beside what is wrong in any file: what is wrong in a log of times, names and counts.
STRANGE = WRONG | {
    "evil": EVIL,
    "first hour": "0001-01-01T00:00:00+23:59",
    "last hour": "9999-12-31T23:59:59-23:59",
    "400 digits": "9" * 400,
    "long text": "x" * 100_000,
    "control": "\0\x1b[31m\u202e",
    "evil names": {EVIL: {EVIL: EVIL}, "\udfff": [EVIL]},
    "many": {str(k): 1.0 for k in range(5_000)},
    "deep": json.loads("[" * 300 + "]" * 300),
}
EVENTS = [
    start(0),
    update(10),
    change(10, 7),
    {"event": "notice", "rows": 10, "kind": "gap", "text": "rows are missing"},
    update(20, flags={"line": ["LOW_ESS"], "curve": []}),
    {"event": "checkpoint", "rows": 20, "file": "checkpoint-1"},
    start(20),
    update(30),
    {"event": "checkpoint_failed", "rows": 30, "reason": "No space left on device"},
    {
        "event": "posterior",
        "rows": 30,
        "summary": {"line": {"w": {"mean": 1.0, "sd": 0.1, "hdi_low": 0.8, "hdi_high": 1.2}}},
        "answer": {
            "log_evidences": {"line": -44.5, "curve": -41.5},
            "std_errors": {"line": 0.125, "curve": 0.125},
            "probabilities": {"line": 0.05, "curve": 0.95},
            "probability_errors": {"line": 0.01, "curve": 0.01},
        },
    },
    {"event": "stop", "rows": 30, "reason": "error", "error": "The disk is full. Make room."},
]


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def check_page(directory):
    """The page can be written, is of bounded size, and holds nothing but its own tags."""
    page = render(read_chronicle(directory), NOW)
    assert len(page.encode()) < 5_000_000
    found = Tags()
    found.feed(page)
    assert not found.tags & {"script", "img", "iframe", "object"}
    assert not {name for name in found.attributes if name.startswith("on")}
    return page


def write_log(directory, events):
    lines = [json.dumps(event) if isinstance(event, dict) else event for event in events]
    (directory / "events.jsonl").write_text("\n".join(lines) + "\n")


def all_changes():
    for number, event in enumerate(EVENTS):
        for path in places(event):
            for wrong in (*STRANGE, "missing"):
                yield number, path, wrong


def altered(number, path, wrong):
    events = copy.deepcopy(EVENTS)
    if wrong in STRANGE and wrong not in WRONG:
        *before, last = path
        inner = events[number]
        for step in before:
            inner = inner[step]
        inner[last] = STRANGE[wrong]
    else:
        events[number] = changed(events[number], path, wrong)
    return events


def attack_report(directory, changes):
    outcome = {"page": 0, "error": 0}
    for what in changes:
        write_log(directory, altered(*what))
        try:
            check_page(directory)
        except WeighbridgeError:
            outcome["error"] += 1
        except Exception as error:
            raise AssertionError(f"{what} raised {error!r}") from error
        else:
            outcome["page"] += 1
    return outcome


def test_some_crafted_events(tmp_path):
    changes = random.Random(0).sample(list(all_changes()), 100)
    assert attack_report(tmp_path, changes) == {"page": 100, "error": 0}


@pytest.mark.long
def test_all_crafted_events(tmp_path):
    changes = list(all_changes())
    outcome = attack_report(tmp_path, changes)
    print(f"\n{len(changes)} logs: {outcome}")
    assert outcome["error"] == 0  # the other events of the log are as they should be


def test_events_in_any_order_and_cut_lines(tmp_path):
    generator = random.Random(1)
    for _ in range(30):
        lines = [json.dumps(event) for event in EVENTS]
        generator.shuffle(lines)
        cut = generator.randrange(len(lines))
        lines[cut] = lines[cut][: generator.randrange(len(lines[cut]))]
        write_log(tmp_path, lines[: generator.randint(2, len(lines))])
        check_page(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n\n",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"event": ' + b"9" * 5000 + b"}",
        b'{"event": 3}\n',
        b"null\n",
        b'{"a":' * 50_000,
    ],
)
def test_a_log_without_an_event_is_told(tmp_path, text):
    (tmp_path / "events.jsonl").write_bytes(text)
    with pytest.raises(DataError, match=r"events\.jsonl is (empty|damaged)"):
        write_report(tmp_path)


@pytest.mark.parametrize("kind", ["update", "start", "stop", "change", "posterior", "nothing"])
def test_one_event_alone_and_empty(tmp_path, kind):
    write_log(tmp_path, [{"event": kind}])
    check_page(tmp_path)
    write_log(tmp_path, [{"event": "update", "rows": 5}, {"event": kind, "rows": 9}])
    check_page(tmp_path)


def test_numbers_that_json_does_not_have(tmp_path):
    write_log(
        tmp_path,
        [
            '{"event": "update", "rows": Infinity, "log_evidences": {"a": NaN, "b": -Infinity}}',
            '{"event": "update", "rows": 1e400, "log_evidences": {"a": 1e400, "b": -1e400}}',
            f'{{"event": "update", "rows": {"9" * 400}, "log_evidences": {{"a": {"9" * 400}}}}}',
        ],
    )
    assert "unknown" in check_page(tmp_path)


def test_many_kinds_of_flags_and_notices_take_bounded_room(tmp_path):
    events = [
        {"event": "update", "rows": k, "log_evidences": {f"m{k}": -1.0}, "flags": {"a": [f"f{k}"]}}
        for k in range(3000)
    ]
    events += [{"event": "notice", "rows": 3000, "kind": f"k{k}"} for k in range(3000)]
    write_log(tmp_path, events)
    assert len(check_page(tmp_path)) < 1_000_000


def test_why_a_watch_failed_is_on_the_page(tmp_path):
    write_log(tmp_path, EVENTS)
    page = check_page(tmp_path)
    assert "The disk is full. Make room." in page
    assert "only the first 20 rows are saved" in page


def test_the_answer_and_the_path_are_both_named(tmp_path):
    write_log(tmp_path, EVENTS)
    page = check_page(tmp_path)
    minus = "\N{MINUS SIGN}"
    assert f"{minus}41.50" in page
    assert f"{minus}42.00" in page  # the path's, which updates tell
    assert page.index(f"{minus}41.50") < page.index("By the path") < page.index(f"{minus}42.00")


def test_a_checkpoint_that_was_written_after_a_failure_is_enough(tmp_path):
    later = {"event": "checkpoint", "rows": 30, "file": "checkpoint-2"}
    write_log(tmp_path, [*EVENTS[:-1], later])
    assert "rows are saved" not in check_page(tmp_path)
