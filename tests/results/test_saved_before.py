"""Files that 0.1 saved: results are read, and runs are refused with what to do about it."""

from pathlib import Path

import numpy as np
import pytest

import weighbridge as wb
from weighbridge.core import checkpoint_file
from weighbridge.models.program_text import describe

SAVED = Path(__file__).parents[1] / "saved"
MODEL = wb.zoo.linear.model(2)
DATA = wb.zoo.linear.simulate(20, num_features=2, seed=1)
ADVICE = "written before 0.2: finish it with 0.1, or start anew"


def test_evidence_of_before_the_move_is_read():
    result = wb.Evidence.load(SAVED / "evidence-0.1.safetensors")
    assert (result.log_evidence, result.method) == (-37.066701584191414, "smc")
    assert {name: draws.shape for name, draws in result.samples.items()} == {
        "w": (32, 2),
        "b": (32,),
    }
    assert result.samples["w"].sum() == pytest.approx(-6.436902238257786, rel=1e-14)
    assert result.flags == (wb.Status.ERROR_UNKNOWN,)
    assert result.fingerprint.num_rows == 20
    fresh = wb.Fingerprint().add(DATA, np.ones(20))
    assert fresh.differences(result.fingerprint) == []


def test_a_posterior_of_before_the_move_is_read_and_its_chains_are_not_resumed():
    path = SAVED / "posterior-0.1.safetensors"
    posterior = wb.Posterior.load(path)
    assert posterior.samples["w"].shape == (2, 16, 2)
    assert posterior.samples["w"].sum() == pytest.approx(-8.00675081577043, rel=1e-14)
    assert len(posterior.summary().rows) == 3
    with pytest.raises(wb.CheckpointError, match=ADVICE):
        wb.sample(MODEL, DATA, wb.NUTS(), num_samples=1, num_chains=2, resume=path)


RUNS = {
    "online.5": (wb.Online.load, MODEL),
    "online_comparison.4": (wb.OnlineComparison.load, {"a": MODEL}),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_of_before_the_move_is_refused(tmp_path, kind):
    checkpoint_file.write(tmp_path / "run", f"weighbridge.{kind}", {"a": np.ones(1)}, {})
    load, what = RUNS[kind]
    with pytest.raises(wb.CheckpointError, match=ADVICE):
        load(tmp_path / "run", what)


def with_text(p, row):
    """One text."""
    return p["a"] * row


def with_another(p, row):
    """Another text, which computes nothing."""
    return p["a"] * row


def with_none(p, row):
    return p["a"] * row


def returns_text(p, row):
    return "One text."


def test_docstrings_do_not_tell_programs_apart():
    assert describe(with_text) == describe(with_another) == describe(with_none)
    assert describe(with_text) != describe(returns_text)


def test_where_a_class_of_ours_lives_does_not_matter():
    def made(module, name="Moved"):
        return type(name, (), {"__module__": module})

    here, there = made("weighbridge.zoo.old"), made("weighbridge.models.new")
    assert describe(here) == describe(there)
    assert describe(here) != describe(made("weighbridge.zoo.old", "Other"))
    assert describe(made("user.one")) != describe(made("user.two"))
