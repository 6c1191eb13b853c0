"""The row policy covers files: bad rows and whole files are set aside, and the rest is read."""

import io
import json

import numpy as np
import numpyro.distributions as dist
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weighbridge as wb
from weighbridge.cli.commands import weigh
from weighbridge.cli.tables import InputTable
from weighbridge.core.progress.reporters import Silent
from weighbridge.data.feeds.chunking import chunks
from weighbridge.data.feeds.continuity import Continuity
from weighbridge.data.feeds.opening import open_feed
from weighbridge.data.quarantine import Quarantine
from weighbridge.data.row_checking import RowChecker
from weighbridge.data.sources import csv_records
from weighbridge.data.sources.opening import open_source
from weighbridge.models.columns_read import columns_needed
from weighbridge.weighing.rounds import Limits

SMALL = wb.SGAIS(num_islands=2, num_particles=8)


def refuses(*parts):
    return pytest.raises(wb.DataError, match="(?s)" + ".*".join(parts))


def csv_of(rows, header="x,y"):
    return "\n".join([header, *rows]) + "\n"


GOOD = [f"{k},{k / 2}" for k in range(40)]
BAD = {3: "3,oops", 10: "10", 17: '17,"8.5', 30: "30,15,0"}


def spoiled():
    return [BAD.get(k, row) for k, row in enumerate(GOOD)]


def make_folder(folder):
    """Good files, and between them one of each kind of bad ones."""
    (folder / "1.csv").write_text(csv_of(GOOD))
    (folder / "2.csv").write_text(csv_of(spoiled()))
    (folder / "3.csv").write_text(csv_of(["1", "2"], "x"))  # a column is missing
    pq.write_table(pa.table({"x": np.arange(500.0), "y": np.arange(500.0)}), folder / "4.parquet")
    whole = (folder / "4.parquet").read_bytes()
    (folder / "4.parquet").write_bytes(whole[: len(whole) // 2])
    (folder / "5.jsonl").write_text('{"x": 7, "y": 8}\n{"x": 7}\nnonsense\n{"x": 9, "y": 1}\n')
    (folder / "6.csv").write_text(csv_of(GOOD))


def good_rows():
    """Of that folder, the rows that should count."""
    kept = [k for k in range(40) if k not in BAD]
    x = [*range(40), *kept, 7, 9, *range(40)]
    y = [*(np.arange(40) / 2), *(np.array(kept) / 2), 8, 1, *(np.arange(40) / 2)]
    return np.array([x, y], np.float64).T


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", 60)


def checked(blocks, unread=None, quarantine=None):
    checker = RowChecker("skip" if quarantine is None else "quarantine", quarantine=quarantine)
    rows = []
    for block in blocks:
        checker.unread = unread() if callable(unread) else unread or {}
        rows.append(checker(block))
    return np.concatenate([np.stack([r["x"], r["y"]], axis=1) for r in rows]), checker


def test_rows_around_bad_ones_are_kept_in_order(tmp_path, small_blocks):
    path = tmp_path / "a.csv"
    path.write_text(csv_of(spoiled()))
    source = open_source(path, on_bad_row="quarantine")
    quarantine = Quarantine(tmp_path / "q.jsonl")
    rows, checker = checked(source.blocks(), source.unread, quarantine)
    assert rows[:, 0].tolist() == [k for k in range(40) if k not in BAD]
    assert (checker.rows_read, checker.rows_quarantined) == (40, 4)
    lines = [json.loads(line) for line in quarantine.path.read_text().splitlines()]
    assert {line["row"]: line["text"] for line in lines} == BAD
    assert [line["line"] for line in lines] == [row + 2 for row in BAD]
    assert {line["file"] for line in lines} == {"a.csv"}
    for line, part in zip(lines, ("'oops'", "has 1 fields", "not closed", "has 3 fields")):
        assert part in line["reason"]


@pytest.mark.parametrize(("number", "part"), [(3, "oops"), (10, "1 fields"), (17, "quote")])
def test_without_a_policy_file_and_line_are_named(tmp_path, number, part):
    path = tmp_path / "a.csv"
    path.write_text(csv_of([*GOOD[:number], BAD[number], *GOOD]))
    with refuses("a.csv") as refused:
        list(open_source(path).blocks())
    assert f"line {number + 2}" in str(refused.value)
    assert part in str(refused.value)
    with refuses("a.csv", f"line {number + 2}"):
        list(chunks(open_feed(path), 7))


def test_a_bad_first_row_does_not_decide_about_a_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(csv_of(["?,1", "7", *GOOD]))
    rows, checker = checked(open_source(path, on_bad_row="skip").blocks())
    assert len(rows) == 40
    assert checker.rows_skipped == 2


def test_names_among_numbers_are_no_bad_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,name\n1,7\n2,anna\n3,bert\n")
    source = open_source(path, on_bad_row="skip")
    assert [list(block) for block in source.blocks()] == [["x"]]
    assert source.ignored_columns == ["name"]


def test_a_folder_is_read_around_what_is_bad(tmp_path, small_blocks):
    make_folder(tmp_path)
    source = open_source(str(tmp_path / "*"), on_bad_row="skip")
    rows, checker = checked(source.blocks())
    np.testing.assert_array_equal(rows, good_rows())
    assert checker.rows_skipped == 6
    assert list(source.set_aside) == [str(tmp_path / name) for name in ("3.csv", "4.parquet")]


@pytest.mark.parametrize("kind", ["folder", "files", "stream"])
def test_feeds_read_around_what_is_bad(tmp_path, small_blocks, kind):
    make_folder(tmp_path)
    data = {"folder": tmp_path, "files": str(tmp_path / "*")}.get(kind)
    expected, bad = good_rows(), 6
    if kind == "stream":
        data = io.BytesIO(csv_of(spoiled()).encode())
        expected, bad = expected[40:76], 4
    cut = list(chunks(open_feed(data, on_bad_row="skip"), 7))
    rows, checker = checked([chunk.values for chunk in cut])
    np.testing.assert_array_equal(rows, expected)
    assert checker.rows_skipped == bad
    assert sum(len(chunk.unread) for chunk in cut) == bad
    for chunk in cut:
        for row, _ in chunk.unread:
            assert np.isnan(chunk.values["x"][row]) or np.isnan(chunk.values["y"][row])
    files = [n.identifier for chunk in cut for n in chunk.notices if isinstance(n.identifier, str)]
    assert files == ([] if kind == "stream" else ["3.csv", "4.parquet"])


@pytest.mark.parametrize("kind", ["folder", "files"])
def test_reading_on_from_any_place_gives_the_same(tmp_path, small_blocks, kind):
    make_folder(tmp_path)
    feed = open_feed(tmp_path if kind == "folder" else str(tmp_path / "*"), on_bad_row="skip")
    whole = list(chunks(feed, 7))
    for number, chunk in enumerate(whole):
        rest = list(chunks(feed, 7, chunk.cursor))
        assert len(rest) == len(whole) - number - 1
        for one, other in zip(rest, whole[number + 1 :]):
            np.testing.assert_array_equal(one.values["y"], other.values["y"])
            assert (one.cursor, one.unread) == (other.cursor, other.unread)


def test_nothing_readable_is_an_error_with_any_policy(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"nothing")
    with refuses("a.parquet", "damaged"):
        open_source(tmp_path / "a.parquet", on_bad_row="skip")


def two_columns(parameters, row):
    return dist.Normal(parameters["mu"], 1.0).log_prob(row["y"])


MODEL = wb.Model({"mu": dist.Normal(0, 1)}, two_columns)


@pytest.mark.long
def test_evidence_and_its_quarantine(tmp_path):
    (tmp_path / "in").mkdir()
    make_folder(tmp_path / "in")
    quarantine = tmp_path / "q.jsonl"
    found = wb.evidence(
        MODEL,
        str(tmp_path / "in" / "*"),
        SMALL,
        on_bad_row="quarantine",
        quarantine=quarantine,
        progress=False,
    )
    good = good_rows()
    clean = wb.evidence(MODEL, iter([{"x": good[:, 0], "y": good[:, 1]}]), SMALL, progress=False)
    assert found.log_evidence == clean.log_evidence
    assert found.rows_quarantined == 6
    assert len(found.files_left_out) == 2
    lines = [json.loads(line) for line in quarantine.read_text().splitlines()]
    assert [line["row"] for line in lines][-2:] == [None, None]
    assert "nonsense" in [line.get("text") for line in lines]


@pytest.mark.long
def test_a_watch_goes_on_and_is_not_confused_by_a_restart(tmp_path):
    (tmp_path / "in").mkdir()
    make_folder(tmp_path / "in")
    plan = wb.Plan({"one": MODEL}, SMALL, chunk_size=50, on_bad_row="quarantine")
    watched = wb.watch(plan, tmp_path / "in", tmp_path / "run")
    assert watched.rows == len(good_rows())
    text = (tmp_path / "run" / "quarantine.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert sorted(line["file"] for line in lines if line["row"] is None) == ["3.csv", "4.parquet"]
    assert sum("text" in line for line in lines) == 6
    (tmp_path / "in" / "7.csv").write_text(csv_of(GOOD))
    assert wb.watch(plan, tmp_path / "in", tmp_path / "run").rows == len(good_rows()) + 40
    assert (tmp_path / "run" / "quarantine.jsonl").read_text() == text


def test_gaps_in_columns_that_no_model_reads_cost_nothing():
    assert columns_needed(MODEL, {"y": np.zeros(2), "note": np.zeros(2)}) == {"y"}
    checker = RowChecker("skip", columns_read=lambda _: {"y"})
    gap = {"note": np.array([1.0, np.nan]), "y": np.array([np.nan, 2.0])}
    assert checker(gap)["y"].tolist() == [2.0]
    assert (checker.rows_skipped, checker.gaps) == (1, {"note"})
    again = RowChecker("skip")
    again.restore(checker.state())
    assert again.gaps == {"note"}


@pytest.mark.long
def test_evidence_with_gaps_in_columns_that_are_not_read():
    y = wb.zoo.gaussian.simulate(30, seed=1)
    note = np.where(np.arange(30) % 3, 1.0, np.nan)
    clean = wb.evidence(MODEL, {"y": y}, SMALL, progress=False)
    gaps = wb.evidence(MODEL, {"y": y, "note": note}, SMALL, progress=False)
    assert gaps.num_observations == 30
    assert gaps.log_evidence == clean.log_evidence
    both = wb.OnlineComparison({"y": MODEL}, SMALL)
    both.update({"y": y, "note": note})
    reads_note = wb.Model({"mu": dist.Normal(0, 1)}, lambda p, row: p["mu"] * row["note"])
    with refuses("reads column 'note'", "gaps"):
        both.add("note", reads_note)


@pytest.mark.long
def test_standardised_rows_are_put_aside_as_they_came(tmp_path):
    path, quarantine = tmp_path / "a.csv", tmp_path / "q.jsonl"
    path.write_text("a,y,other\n100,1,\n200,,3\n300,2,\n")
    table = InputTable(str(path), target="y", features="a", standardise=True)
    weigh(["linear"], table, SMALL, 0, "quarantine", Silent(), Limits(), quarantine)
    (line,) = [json.loads(line) for line in quarantine.read_text().splitlines()]
    assert line["values"] == {"a": 200.0, "y": "NaN"}


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_ragged_rows_of_other_bytes_are_told_like_others(tmp_path, policy):
    """Two of them, of which one is no UTF-8: Arrow cannot show that one."""
    path = tmp_path / "rows.csv"
    path.write_bytes(b"x,y\n1,2\n,3,4\n5\xa66\n7,8\n")
    if policy == "raise":
        with refuses("line 3 has 3 fields"):
            list(chunks(open_feed(path), 10))
        return
    (chunk,) = chunks(open_feed(path, on_bad_row=policy), 10)
    np.testing.assert_array_equal(chunk.values["y"], [2, np.nan, np.nan, 8])
    assert [row for row, _ in chunk.unread] == [1, 2]


@pytest.mark.parametrize("kind", ["folder", "files"])
def test_a_file_of_another_shape_is_set_aside_and_a_resumed_run_sees_the_same(tmp_path, kind):
    for name, shape in {"1": (4, 2), "2": (4,), "3": (4, 3), "4": (4, 2)}.items():
        np.savez(tmp_path / f"{name}.npz", y=np.ones(shape))
    data = tmp_path if kind == "folder" else str(tmp_path / "*")
    with refuses("The columns changed"):
        list(chunks(open_feed(data), 2))
    whole = list(chunks(open_feed(data, on_bad_row="skip"), 2))
    assert [chunk.values["y"].shape for chunk in whole] == [(2, 2)] * 4
    told = [(n.kind, n.identifier) for chunk in whole for n in chunk.notices]
    assert told == [("unreadable", "2.npz"), ("unreadable", "3.npz")]
    for number, chunk in enumerate(whole):
        cursor = json.loads(json.dumps(chunk.cursor))
        rest = list(chunks(open_feed(data, on_bad_row="skip"), 2, cursor))
        assert [one.cursor for one in rest] == [one.cursor for one in whole[number + 1 :]]


def test_files_of_one_name_in_two_folders_all_count(tmp_path):
    paths = [tmp_path / folder / "a.csv" for folder in ("x", "y", "z")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(csv_of(GOOD))
    cut = list(chunks(open_feed(paths), 40, None, Continuity()))
    assert [len(chunk.values["x"]) for chunk in cut] == [40, 40, 40]
    assert not any(chunk.notices for chunk in cut)


def test_a_table_of_broken_records_alone_is_not_empty(tmp_path):
    (tmp_path / "1.csv").write_text(csv_of(GOOD[:3]))
    (tmp_path / "2.csv").write_text(csv_of(["1", "1,2,3"]))
    (chunk,) = chunks(open_feed(tmp_path, on_bad_row="skip"), 10)
    assert [row for row, _ in chunk.unread] == [3, 4]
    assert [notice.kind for notice in chunk.notices] == ["unreadable"]
    (tmp_path / "0.csv").write_text(csv_of(["1", "1,2,3"]))  # nor if it is the first
    (chunk,) = chunks(open_feed(tmp_path, on_bad_row="skip"), 10)
    told = [notice.text for notice in chunk.notices if notice.identifier == "0.csv"]
    assert ["No record can be read" in text for text in told] == [True]
