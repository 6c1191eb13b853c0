"""The row policy "quarantine": bad rows go to a file, once, with the reason."""

import errno
import io
import json
import os
import re

import numpy as np
import pytest

import weighbridge as wb
from weighbridge.core.errors import DataError
from weighbridge.data import quarantine as quarantine_module
from weighbridge.data.quarantine import BadRow, Quarantine
from weighbridge.data.row_checking import RowChecker

SMALL = wb.SGAIS(num_islands=4, num_particles=16, chunk_size=20)
GAUSSIAN = wb.zoo.gaussian.model()
DATA = wb.zoo.gaussian.simulate(60, seed=1)
BAD = DATA.copy()
BAD[[7, 31, 59]] = [np.nan, np.inf, -np.inf]
GOOD = np.isfinite(BAD)


def refuses(*parts):
    return pytest.raises(DataError, match="(?s)" + ".*".join(re.escape(part) for part in parts))


def lines_of(path):
    def forbid(word):
        raise ValueError(f"{word} is not JSON")

    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line, parse_constant=forbid) for line in text.splitlines()]


def rows_of(path):
    return [line["row"] for line in lines_of(path)]


def test_what_is_written(tmp_path):
    path = tmp_path / "bad.jsonl"
    checker = RowChecker(
        "quarantine", lambda v: {"label outside 0..3": (v["k"] < 0) | (v["k"] > 3)}, path
    )
    assert not path.exists()
    checker({"x": np.zeros((10, 2)), "k": np.ones(10, int)})
    x = np.zeros((4, 2))
    x[1] = [np.inf, -np.inf]
    x[2, 1] = np.nan
    kept = checker({"x": x, "k": np.array([1, 2, 9, 7])})
    assert kept["k"].tolist() == [1]
    assert (checker.rows_read, checker.rows_skipped, checker.rows_quarantined) == (14, 0, 3)
    assert checker.rows_left_out == 3
    assert lines_of(path) == [
        {
            "row": 11,
            "reason": "column 'x[0]' is inf",
            "values": {"k": 2, "x": ["Infinity", "-Infinity"]},
        },
        {
            "row": 12,
            "reason": "column 'x[1]' is nan; label outside 0..3",
            "values": {"k": 9, "x": [0.0, "NaN"]},
        },
        {"row": 13, "reason": "label outside 0..3", "values": {"k": 7, "x": [0.0, 0.0]}},
    ]


def test_a_failed_write_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "bad.jsonl"
    checker = RowChecker("quarantine", quarantine=path)
    checker(np.array([1.0, np.nan]))
    before, state = path.read_bytes(), checker.state()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(quarantine_module.os, "fsync", full)
        with refuses("bad.jsonl", "No space left", "give the rows again"):
            checker(np.array([np.nan, 2.0]))
    assert path.read_bytes() == before
    assert checker.state() == state
    assert checker(np.array([np.nan, 2.0])).tolist() == [2.0]
    assert rows_of(path) == [1, 2]


def test_policies_and_files_must_fit(tmp_path):
    with refuses("'quarantine'", "quarantine=PATH"):
        wb.Online(GAUSSIAN, SMALL, on_bad_row="quarantine")
    with refuses("on_bad_row is 'skip'", "on_bad_row='quarantine'"):
        wb.evidence(GAUSSIAN, DATA, SMALL, on_bad_row="skip", quarantine=tmp_path / "bad.jsonl")
    with refuses("folder"):
        RowChecker("quarantine", quarantine=tmp_path)
    with refuses("folder"):
        RowChecker("quarantine", quarantine=tmp_path / "nowhere" / "bad.jsonl")
    other = tmp_path / "data.csv"
    other.write_text("y\n1\n")
    with refuses("data.csv", "something other"):
        RowChecker("quarantine", quarantine=other)
    assert other.read_text() == "y\n1\n"


def test_a_line_that_a_crash_left_unfinished_is_cut_off(tmp_path):
    path = tmp_path / "bad.jsonl"
    Quarantine(path).add(0, [BadRow(i, "r", {"y": "t" * 5000}) for i in range(3)])
    whole = path.read_bytes()
    for cut in (1, 2, 5000, 5040):
        path.write_bytes(whole[:-cut])
        Quarantine(path).add(0, [BadRow(5, "r", {})])
        assert rows_of(path) == ([0, 1, 2, 5] if cut == 1 else [0, 1, 5])
    path.write_bytes(whole[:100])
    Quarantine(path).add(0, [BadRow(5, "r", {})])
    assert rows_of(path) == [5]


def test_evidence_and_compare(tmp_path):
    path = tmp_path / "bad.jsonl"
    result = wb.evidence(GAUSSIAN, BAD, SMALL, on_bad_row="quarantine", quarantine=path)
    assert rows_of(path) == [7, 31, 59]
    assert result.diagnostics["rows_quarantined"] == result.rows_quarantined == 3
    assert result.rows_skipped == 0
    assert "57 observations, 3 quarantined" in str(result)
    assert json.loads(result.to_json())["rows_quarantined"] == 3
    clean = wb.evidence(GAUSSIAN, BAD[GOOD], SMALL)
    assert result.log_evidence == clean.log_evidence
    table = wb.compare({"a": result, "b": clean})
    assert "57 observations, 3 quarantined" in str(table)
    assert json.loads(table.to_json())["rows_quarantined"] == 3
    tempered = wb.SMC(num_islands=4, num_particles=16)
    wb.evidence(GAUSSIAN, BAD, tempered, on_bad_row="quarantine", quarantine=path)
    assert rows_of(path) == [7, 31, 59] * 2  # another run: told by rows that count anew
    with refuses("every row was skipped"):
        wb.evidence(GAUSSIAN, BAD[[7]], SMALL, on_bad_row="quarantine", quarantine=path)


def test_further_rounds_write_nothing_twice(tmp_path):
    path = tmp_path / "bad.jsonl"
    one_round = wb.evidence(GAUSSIAN, BAD[GOOD], SMALL)
    policy = {"on_bad_row": "quarantine", "quarantine": path}
    result = wb.evidence(GAUSSIAN, BAD, SMALL, tolerance=0.8 * one_round.std_error, **policy)
    assert len(result.diagnostics["island_log_evidence"]) > SMALL.num_islands
    assert rows_of(path) == [7, 31, 59]
    assert result.rows_quarantined == 3


def test_several_models_share_a_file(tmp_path):
    path = tmp_path / "bad.jsonl"
    shared = Quarantine(path)
    near = RowChecker("quarantine", lambda v: {"below": v < -1}, shared)
    far = RowChecker("quarantine", lambda v: {"below": v < -2}, shared)
    for block in np.split(np.array([0.0, np.nan, -3.0, 1.0, -1.5, np.inf]), 3):
        near(block)
        far(block)
    assert sorted(rows_of(path)) == [1, 2, 4, 5]


def test_online_counts_and_resumes_without_repeating(tmp_path):
    path, saved = tmp_path / "bad.jsonl", tmp_path / "run.ckpt"
    online = wb.Online(GAUSSIAN, SMALL, seed=3, on_bad_row="quarantine", quarantine=path)
    first = online.update(BAD[:20])
    assert (first.rows_quarantined, first.rows_skipped, first.num_observations) == (1, 0, 19)
    online.save(saved)
    second, third = online.update(BAD[20:40]), online.update(BAD[40:])
    assert (second.rows_quarantined, third.rows_quarantined) == (1, 1)
    whole = path.read_bytes()
    assert rows_of(path) == [7, 31, 59]
    with open(path, "ab") as file:
        file.write(b'{"row": 60, "rea')  # a crash while a line is being written
    with pytest.raises(wb.CheckpointError, match="quarantine=PATH"):
        wb.Online.load(saved, GAUSSIAN, SMALL)
    resumed = wb.Online.load(saved, GAUSSIAN, SMALL, quarantine=path)
    assert resumed.update(BAD[20:40]).rows_quarantined == 1
    last = resumed.update(BAD[40:])
    assert path.read_bytes() == whole
    assert last.log_evidence == third.log_evidence
    assert resumed.result().diagnostics["rows_quarantined"] == 3
    resumed.update(np.append(DATA, np.nan))
    assert rows_of(path) == [7, 31, 59, 120]


def test_an_update_that_failed_can_be_given_again(tmp_path, monkeypatch):
    path = tmp_path / "bad.jsonl"
    online = wb.Online(GAUSSIAN, SMALL, seed=3, on_bad_row="quarantine", quarantine=path)
    online.update(DATA[:20])

    def fail(*_):
        raise RuntimeError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(online._session.run, "absorb", fail)
        with pytest.raises(RuntimeError, match="no luck"):
            online.update(BAD[:20])
    assert online.update(BAD[:20]).rows_quarantined == 1
    assert rows_of(path) == [27]
    with monkeypatch.context() as patch:
        patch.setattr(online._session.run, "absorb", fail)
        with pytest.raises(RuntimeError, match="no luck"):
            online.update(BAD[:20])
    changed = BAD[:20].copy()
    changed[7] = np.inf  # another row in its place is not taken for the same
    online.update(changed)
    assert [(line["row"], line["values"]) for line in lines_of(path)] == [
        (27, {"data": "NaN"}),
        (47, {"data": "NaN"}),
        (47, {"data": "Infinity"}),
    ]


def test_sample_has_the_policy_too(tmp_path):
    path = tmp_path / "bad.jsonl"
    options = {"num_samples": 5, "num_warmup": 5, "num_chains": 1, "progress": False}
    kept = wb.sample(GAUSSIAN, BAD, on_bad_row="quarantine", quarantine=path, **options)
    clean = wb.sample(GAUSSIAN, BAD[GOOD], **options)
    assert rows_of(path) == [7, 31, 59]
    assert kept.samples["mu"].tolist() == clean.samples["mu"].tolist()


def test_command_line(tmp_path, monkeypatch, capsys):
    from typer.testing import CliRunner

    from weighbridge.cli import app

    monkeypatch.chdir(tmp_path)
    text = io.StringIO()
    np.savetxt(text, BAD, header="v", comments="")
    (tmp_path / "bad.csv").write_text(text.getvalue())
    small = ["--islands", "4", "--particles", "16", "--chunk-size", "20", "--quiet"]
    policy = ["--on-bad-row", "quarantine"]

    def run(*words):
        return CliRunner().invoke(app, [*words, *small])

    done = run("evidence", "gaussian", "bad.csv", *policy, "--quarantine", "q.jsonl")
    assert "57 observations, 3 quarantined" in done.stdout
    assert rows_of(tmp_path / "q.jsonl") == [7, 31, 59]
    os.unlink("q.jsonl")
    done = run("compare", "gaussian", "gaussian:2", "bad.csv", *policy, "--quarantine", "q.jsonl")
    assert "57 observations, 3 quarantined" in done.stdout
    assert rows_of(tmp_path / "q.jsonl") == [7, 31, 59]
    done = run("evidence", "gaussian", "bad.csv", *policy)
    assert done.exit_code == 1
    assert "--on-bad-row quarantine writes bad rows to a file" in done.stderr
    assert "--quarantine FILE" in done.stderr
