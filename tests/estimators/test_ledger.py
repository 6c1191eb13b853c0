"""Runs that own a ledger: what they answer from it, and that a chunk is in it whole or not at all.

What islands that drift apart become is tested in ``test_published``, and how another estimate takes
over in ``test_verified_path``.
"""

from __future__ import annotations

import numpy as np
import pytest

import weighbridge as wb
from weighbridge.estimators.sequential_sgmcmc import SequentialSGMCMCRun
from weighbridge.estimators.sgais.ledger import Ledger
from weighbridge.estimators.sgais.ledger_run import LedgerRun
from weighbridge.estimators.sgais.published import PublishedRun
from weighbridge.estimators.sgais.run import SGAISRun

MODEL = wb.zoo.gaussian.model()
ROWS = np.asarray(wb.zoo.gaussian.simulate(60, seed=1))
SMALL = {"num_islands": 4, "num_particles": 16}
METHODS = {
    "sgais": wb.SGAIS(**SMALL),
    "forgets": wb.SGAIS(**SMALL, half_life=50),
    "published": wb.PublishedSGAIS(**SMALL),
    "sequential_sgmcmc": wb.SequentialSGMCMC(**SMALL, start_with=None),
}


@pytest.mark.parametrize("run", [SGAISRun, PublishedRun, SequentialSGMCMCRun])
def test_no_run_overrides_what_its_ledger_answers(run):
    answers = {name for name in vars(LedgerRun) if not name.startswith("__")}
    assert {"path", "num_observations", "num_rows", "particles", "kept", "undoable"} == answers
    assert not answers & set(vars(run))
    assert run.__bases__ == (LedgerRun,)


@pytest.mark.parametrize("name", METHODS)
def test_a_chunk_is_written_down_once(name):
    run = METHODS[name].start(MODEL, seed=2)
    run.absorb(ROWS, np.ones(60))
    ledger = run.ledger
    assert (run.num_rows, run.num_observations) == (60, 60.0)
    assert run.path is ledger.path
    assert run.path[-1].rows == 60
    assert run.particles() is ledger.cloud
    result = run.result(1.5, {"told": 1})
    assert result.elapsed == 1.5
    assert result.diagnostics["told"] == 1
    assert result.num_observations == 60
    np.testing.assert_array_equal(result.diagnostics["island_log_evidence"], ledger.log_evidences)
    assert (run.kept() is None) == (name == "forgets")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("step", ["accept", "record", "add_point", "settle", "keep"])
def test_an_error_while_a_chunk_is_written_down_leaves_the_run_as_it_was(name, step, monkeypatch):
    run, other = (METHODS[name].start(MODEL, seed=2) for _ in range(2))
    for one in (run, other):
        one.absorb(ROWS[:30], np.ones(30))
    written = getattr(Ledger, step)

    def fail(self, *arguments):
        written(self, *arguments)
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, step, fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            run.absorb(ROWS[30:], np.ones(30))
    for one in (run, other):
        one.absorb(ROWS[30:], np.ones(30))
    (arrays, plain), (others, other_plain) = run.state(), other.state()
    assert repr(plain) == repr(other_plain)  # the temperature of these moves is not a number
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, others[key])


def test_rows_of_the_start_are_taken_back_too(monkeypatch):
    method = wb.SequentialSGMCMC(**SMALL, start_with=wb.PriorSampling(**SMALL))
    run = method.start(MODEL, seed=2)

    def fail(self, chunk):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "keep", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            run.absorb(ROWS, np.ones(60))
    assert run.path == []
    assert run.start_error == 0.0
    np.testing.assert_array_equal(run.ledger.log_evidences, 0.0)
