"""A method that neither tempers nor takes rows uses the hooks of the protocol."""

import dataclasses
import io
import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.progress import board
from weighbridge.core.progress.board import Board
from weighbridge.core.progress.reporters import Bar, ProgressLines, Silent
from weighbridge.estimators.protocols import BatchMethod

MODEL = wb.Model({"m": dist.Normal(0, 1)}, lambda p, row: -0.5 * (row - p["m"]) ** 2)
ROWS = np.array([0.3, -0.2])
ERROR = 0.3


@dataclass(frozen=True)
class Counting(BatchMethod):
    """Each round states the same error; merged by itself, rounds halve it."""

    own: bool = True
    limits: tuple[float | None, float | None] = (None, None)
    name: ClassVar[str] = "counting"
    num_islands: ClassVar[int] = 4

    def within(self, tolerance, time_limit):
        return dataclasses.replace(self, limits=(tolerance, time_limit))

    def report_to(self, reporter, label, island_round):
        return partial(self._tell, reporter, label, island_round)

    def _tell(self, reporter, label, island_round, share, log_evidence, steps):
        done = f"{steps} points"
        reporter.advance(share, done, log_evidence, steps, label, island_round)

    def merge_rounds(self, results):
        if not self.own:
            return None
        error = ERROR / 2 ** (len(results) - 1)
        told = {**results[0].diagnostics, "merged": len(results)}
        return dataclasses.replace(results[0], std_error=error, diagnostics=told)

    def estimate(self, model, values, weight, *, seed=0, first_island=0, report=None):
        for steps, share in enumerate((0.0, 0.5, 1.0)):
            report(share, -1.0, steps)
        # Islands of a spread such that the mean of four has about the stated error.
        islands = -1.0 + ERROR * np.array([-2.0, -1.0, 1.0, 2.0])
        told = {"island_log_evidence": islands, "limits": self.limits}
        draws = {"m": np.zeros(4)}
        weights = np.full(4, -math.log(4))
        return wb.Evidence(-1.0, ERROR, 2, self.name, wb.Trace(), draws, weights, diagnostics=told)


class Told(Silent):
    def __init__(self):
        self.lines = []

    def advance(self, share, done, log_evidence, steps, label="", island_round=0):
        self.lines.append((share, done, steps, island_round))


def test_a_method_tells_its_progress_in_its_own_words():
    told = Told()
    wb.evidence(MODEL, ROWS, Counting(), progress=told)
    assert told.lines == [(0.0, "0 points", 0, 0), (0.5, "1 points", 1, 0), (1.0, "2 points", 2, 0)]


def test_a_method_merges_its_own_rounds_until_their_error_is_small_enough():
    told = Told()
    found = wb.evidence(MODEL, ROWS, Counting(), tolerance=0.1, time_limit=60, progress=told)
    # 0.3, 0.15, 0.075, and the last of them times 1 + 1 / sqrt(2 * 11) is below 0.1.
    assert found.diagnostics["merged"] == 3
    assert found.std_error == ERROR / 4
    assert [number for *_, number in told.lines] == [1] * 3 + [2] * 3 + [3] * 3


def test_without_an_own_merger_the_islands_are_merged():
    found = wb.evidence(
        MODEL, ROWS, Counting(own=False), tolerance=0.25, time_limit=60, progress=False
    )
    assert "merged" not in found.diagnostics
    rounds = found.diagnostics["num_rounds"]
    assert rounds > 1
    assert len(found.diagnostics["island_log_evidence"]) == 4 * rounds


@pytest.mark.parametrize("limits", [(None, None), (1.0, None), (1.0, 30.0)])
def test_a_method_knows_the_limits(limits):
    tolerance, time_limit = limits
    found = wb.evidence(
        MODEL, ROWS, Counting(), tolerance=tolerance, time_limit=time_limit, progress=False
    )
    assert found.diagnostics["limits"] == limits


def test_progress_in_own_words_is_printed(monkeypatch):
    monkeypatch.setattr(board, "PATIENCE", 0.0)
    stream = io.StringIO()
    lines = ProgressLines(stream)
    lines.advance(None, "begun", math.nan, 0, "a", 1)
    lines.advance(0.5, "7 points", -1.25, 7, "a", 1)
    lines.close()
    assert "a, round 1: 7 points  log evidence -1.25  steps 7" in stream.getvalue()


def test_progress_in_own_words_moves_a_bar(monkeypatch):
    rows = {}
    monkeypatch.setattr(Board, "put", lambda self, key, row, **_: rows.update({key: row}))
    bar = Bar()
    bar.advance(None, "begun", math.nan, 0)
    assert rows[""].text == "compiling ..."
    bar.advance(0.25, "7 points", -1.25, 7)
    bar.close()
    assert (rows[""].fraction, rows[""].text) == (0.25, "7 points log Z -1.25 7 steps")
