"""A run of nested sampling that is kept in a file: stopped, gone on, refused, damaged."""

import dataclasses
import math
import signal
import subprocess
import sys
import textwrap

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from tests.helpers.crafting import attack
from weighbridge.core import checkpoint_file, interrupts
from weighbridge.core.status import Status
from weighbridge.weighing import resuming

SMALL = wb.NestedSampling(num_live=100, num_moves=8)
DYNAMIC = wb.NestedSampling(num_live=120, num_moves=8, goal="posterior")
GALILEAN = wb.NestedSampling(num_live=100, moves="galilean")
GAUSSIAN = wb.zoo.gaussian.model()
ROWS = wb.zoo.gaussian.simulate(30, seed=1)


def normal(p):
    return jnp.sum(dist.Normal(0.0, 1.0).log_prob(p["x"]))


def numpy_normal(p):
    x = np.asarray(p["x"])
    return -0.5 * np.sum(x**2, axis=-1) - 0.5 * x.shape[-1] * math.log(2 * math.pi)


BOX = {"x": dist.Uniform(-10, 10).expand([3]).to_event(1)}
MODEL = wb.Model(BOX, total_log_likelihood=normal)


@pytest.fixture
def every_batch(monkeypatch):
    """The file is written after every batch."""
    monkeypatch.setattr(resuming, "BETWEEN", 0.0)
    monkeypatch.setattr(resuming, "MOST_TIME", math.inf)


def require_same(one, other):
    assert (one.log_evidence, one.std_error) == (other.log_evidence, other.std_error)
    assert one.flags == other.flags
    assert list(one.trace) == list(other.trace)
    for name in one.trace:
        np.testing.assert_array_equal(one.trace[name], other.trace[name])
    for name in one.samples:
        np.testing.assert_array_equal(one.samples[name], other.samples[name])
    np.testing.assert_array_equal(one.log_weights, other.log_weights)
    assert one.diagnostics.keys() == other.diagnostics.keys()
    for name in one.diagnostics:
        np.testing.assert_array_equal(one.diagnostics[name], other.diagnostics[name])


@pytest.mark.parametrize(
    "method", [SMALL, DYNAMIC, GALILEAN], ids=["static", "dynamic", "galilean"]
)
def test_a_run_in_pieces_is_the_uninterrupted_run_to_the_bit(method, tmp_path):
    whole = wb.evidence(MODEL, None, method, seed=3)
    calls, file = whole.diagnostics["num_evaluations"], tmp_path / "run"
    stages = set()
    for share in (0.02, 0.3, 0.7, 0.9):
        some = dataclasses.replace(method, max_calls=int(share * calls))
        found = wb.evidence(MODEL, None, some, seed=3, resume=file)
        stages.add(checkpoint_file.read(file, None)[1]["runs"]["0"]["stage"])
        assert found.diagnostics["ended"] == "max_calls", share
    assert "climbing" in stages
    assert not method.goal or "added" in stages
    require_same(wb.evidence(MODEL, None, method, seed=3, resume=str(file)), whole)
    # A finished run is read, not made again.
    again = wb.evidence(MODEL, None, method, seed=3, resume=file)
    require_same(again, whole)


def test_a_run_by_rejection_in_pieces(tmp_path):
    method = wb.NestedSampling(num_live=40, moves="prior")
    whole = wb.evidence(GAUSSIAN, ROWS, method, seed=3)
    calls = int(0.05 * whole.diagnostics["num_evaluations"])
    some = dataclasses.replace(method, max_calls=calls)
    found = wb.evidence(GAUSSIAN, ROWS, some, seed=3, resume=tmp_path / "run")
    assert found.diagnostics["ended"] == "max_calls"
    require_same(wb.evidence(GAUSSIAN, ROWS, method, seed=3, resume=tmp_path / "run"), whole)


def test_a_run_stopped_by_ctrl_c_goes_on(tmp_path, monkeypatch):
    whole = wb.evidence(MODEL, None, SMALL, seed=4)
    checks = []

    def due():
        checks.append(1)
        return len(checks) > 7

    monkeypatch.setattr(interrupts, "is_due", due)
    stopped = wb.evidence(MODEL, None, SMALL, seed=4, resume=tmp_path / "run")
    assert stopped.status is Status.INTERRUPTED
    assert stopped.std_error > whole.std_error
    monkeypatch.undo()
    require_same(wb.evidence(MODEL, None, SMALL, seed=4, resume=tmp_path / "run"), whole)


@pytest.mark.long
def test_a_run_that_was_killed_goes_on(tmp_path):
    script = """
        import math, os, signal, sys
        import weighbridge as wb
        from weighbridge.weighing import resuming
        from tests.estimators.nested.test_resume import GAUSSIAN, ROWS, SMALL
        resuming.BETWEEN, resuming.MOST_TIME = 0.0, math.inf
        keep, kept = resuming.RunFile.keep, []
        def counted(self, *state):
            keep(self, *state)
            kept.append(1)
            if len(kept) == 6:
                os.kill(os.getpid(), signal.SIGKILL)
        resume, last = (sys.argv[2] or None), sys.argv[1] == "killed"
        if last:
            resuming.RunFile.keep = counted
        found = wb.evidence(GAUSSIAN, ROWS, SMALL, seed=2, resume=resume)
        print(found.log_evidence, found.std_error, len(found.log_weights), found.trace.logL.sum())
    """
    file = str(tmp_path / "run")

    def run(*arguments):
        command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
        return subprocess.run(command, check=False, capture_output=True)

    assert run("killed", file).returncode == -signal.SIGKILL
    assert checkpoint_file.read(file, None)[1]["runs"]["0"]["counts"]["batches"] == 6
    resumed, whole = run("resumed", file), run("whole", "")
    assert resumed.returncode == whole.returncode == 0
    assert resumed.stdout == whole.stdout


class Instrument:
    """What a likelihood reads from; it may break."""

    calls = 0
    breaks = ""


@pytest.mark.parametrize("fault", ["raises", "changes its shape"])
def test_a_likelihood_that_fails_half_way_loses_nothing(fault, tmp_path):
    instrument = Instrument()

    def fails(p):
        instrument.calls += 1
        if instrument.breaks and instrument.calls > 200:
            if instrument.breaks == "raises":
                raise RuntimeError("the instrument is off")
            return np.zeros(2)
        return numpy_normal(p)

    model = wb.Model(BOX, total_log_likelihood=fails, on_host=True)
    whole = wb.evidence(model, None, SMALL, seed=1)
    needed = instrument.calls
    instrument.calls, instrument.breaks = 0, fault
    with pytest.raises((RuntimeError, wb.ModelError), match=r"instrument|returned the shape"):
        wb.evidence(model, None, SMALL, seed=1, resume=tmp_path / "run")
    instrument.calls, instrument.breaks = 0, ""
    require_same(wb.evidence(model, None, SMALL, seed=1, resume=tmp_path / "run"), whole)
    # Only the batch that failed was made again.
    assert instrument.calls < needed - 100


def test_another_run_is_refused(tmp_path, every_batch):
    file = tmp_path / "run"
    wb.evidence(GAUSSIAN, ROWS, SMALL, seed=1, resume=file)
    other = wb.zoo.gaussian.model(prior_mean=1.0)
    for model, rows, method, seed, message in (
        (other, ROWS, SMALL, 1, "another model"),
        (GAUSSIAN, ROWS[::-1].copy(), SMALL, 1, "other data"),
        (GAUSSIAN, ROWS, wb.NestedSampling(num_live=104, num_moves=8), 1, "another method"),
        (GAUSSIAN, ROWS, SMALL, 2, "the seed 1"),
    ):
        before = file.read_bytes()
        with pytest.raises(wb.CheckpointError, match=message):
            wb.evidence(model, rows, method, seed=seed, resume=file)
        assert file.read_bytes() == before


def test_what_cannot_be_kept_is_refused_before_the_run(tmp_path):
    with pytest.raises(wb.MethodError, match="'smc' cannot go on from a file"):
        wb.evidence(GAUSSIAN, ROWS, "smc", resume=tmp_path / "run")
    with pytest.raises(wb.MethodError, match="path of a file"):
        wb.evidence(GAUSSIAN, ROWS, SMALL, resume=True)
    with pytest.raises(wb.CheckpointError, match="no folder"):
        wb.evidence(GAUSSIAN, ROWS, SMALL, resume=tmp_path / "none" / "run")
    result = wb.evidence(GAUSSIAN, ROWS, wb.NestedSampling(num_live=40))
    result.save(tmp_path / "result")
    with pytest.raises(wb.CheckpointError, match=r"holds weighbridge\.evidence"):
        wb.evidence(GAUSSIAN, ROWS, SMALL, resume=tmp_path / "result")


def test_a_tolerance_goes_on_from_its_rounds(tmp_path):
    file = tmp_path / "run"
    first = wb.evidence(GAUSSIAN, ROWS, SMALL, seed=1, tolerance=0.2, resume=file)
    more = wb.evidence(GAUSSIAN, ROWS, SMALL, seed=1, tolerance=0.1, resume=file)
    assert more.diagnostics["num_rounds"] > first.diagnostics.get("num_rounds", 1)
    kept = checkpoint_file.read(file, None)[1]["runs"]
    assert len(kept) == more.diagnostics["num_rounds"]
    require_same(more, wb.evidence(GAUSSIAN, ROWS, SMALL, seed=1, tolerance=0.1))


def test_rounds_that_are_cut_short_do_not_go_on_for_ever():
    short = dataclasses.replace(SMALL, max_calls=1500)
    result = wb.evidence(MODEL, None, short, tolerance=0.1)
    assert {Status.STOPPED_EARLY, Status.TOLERANCE_NOT_REACHED} <= set(result.flags)
    hurried = wb.evidence(MODEL, None, SMALL, tolerance=0.1, time_limit=1e-6)
    assert {Status.STOPPED_EARLY, Status.TOLERANCE_NOT_REACHED} <= set(hurried.flags)
    assert SMALL.within(0.1, 5.0).time_limit == 5.0
    assert dataclasses.replace(SMALL, time_limit=2.0).within(0.1, 5.0).time_limit == 2.0


def test_crafted_and_truncated_files_are_refused_or_valid(tmp_path):
    file, method = tmp_path / "run", dataclasses.replace(DYNAMIC, num_live=32, max_calls=2500)
    wb.evidence(GAUSSIAN, ROWS, method, seed=1, resume=file)

    def judge(result):
        assert not math.isnan(result.log_evidence)
        assert len(result.log_weights) == len(result.trace.logL)

    def load(path):
        return wb.evidence(
            GAUSSIAN, ROWS, dataclasses.replace(method, max_calls=1), seed=1, resume=path
        )

    outcome = attack(file, tmp_path / "crafted", load, judge, count=60)
    refused = sum(number for (_, how), number in outcome.items() if how == "refused")
    assert refused > outcome.total / 2
    whole = file.read_bytes()
    for size in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(wb.CheckpointError):
            load(tmp_path / "cut")
