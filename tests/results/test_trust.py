"""Grave flags: no error is stated beside one, and the answer says what to think of it."""

import copy
import dataclasses
import json
import math
import pickle

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge import Status
from weighbridge.core.thresholds import MAX_USEFUL_ERROR, MIN_LARGE_ERROR
from weighbridge.results.evidence_ratio import EvidenceRatio
from weighbridge.results.trust import UNTRUSTED

GRAVE = [flag for flag in Status if flag.grave]
LIGHT = [flag for flag in Status if not flag.grave]


def made(error=0.1, flags=(), method="smc", **diagnostics):
    trace, draws = wb.Trace(power=np.ones(1), log_evidence=np.array([-9.0])), {"a": np.arange(4.0)}
    weights = np.full(4, -np.log(4.0))
    return wb.Evidence(-9.0, error, 20, method, trace, draws, weights, diagnostics, tuple(flags))


def test_flags_that_speak_of_more_than_the_error_are_grave():
    """What a flag says and how grave it is must agree."""
    assert not Status.OK.grave
    for flag in LIGHT:
        assert "more than its error" not in flag.meaning, flag
    for flag in (Status.RESERVOIR, Status.RESTARTED, Status.TOLERANCE_NOT_REACHED):
        assert not flag.grave
    for flag in (Status.ISLANDS_DISAGREE, Status.FLAT, Status.STOPPED_EARLY, Status.DRIFTING):
        assert flag.grave


@pytest.mark.parametrize("flag", GRAVE, ids=lambda flag: flag.name)
def test_no_error_is_stated_beside_a_grave_flag(flag):
    result = made(flags=[Status.LOW_ESS, flag])
    # HUGE_ERROR is about the size of the error: 0.1 takes it away.
    if flag is Status.HUGE_ERROR:
        assert (result.std_error, result.flags) == (0.1, (Status.LOW_ESS,))
        return
    assert math.isnan(result.std_error)
    assert result.claimed_error == result.diagnostics[UNTRUSTED] == 0.1
    assert result.status is flag
    assert not result.is_trusted
    assert "+-" not in str(result)


@pytest.mark.parametrize("flag", LIGHT, ids=lambda flag: flag.name)
def test_other_flags_leave_the_error(flag):
    result = made(flags=[flag])
    assert (result.std_error, result.claimed_error) == (0.1, 0.1)
    assert result.is_trusted
    assert UNTRUSTED not in result.diagnostics
    assert str(result).startswith("log evidence -9.00 +- 0.10")


def test_the_answer_of_a_path_is_a_lower_bound():
    path, nested = made(flags=[Status.ISLANDS_DISAGREE]), made(method="nested", flags=GRAVE[:1])
    assert path.is_lower_bound
    assert str(path).startswith("log evidence at least -9.00, a lower bound (smc")
    assert not nested.is_lower_bound
    assert str(nested).startswith("log evidence -9.00, not to be trusted (nested")
    assert "not to be trusted" in repr(nested)
    # What is missing for certain makes a lower bound of any answer; a bias of batches of none.
    assert made(method="nested", flags=[Status.STOPPED_EARLY]).is_lower_bound
    assert not made(flags=[Status.ISLANDS_DISAGREE, Status.UNADJUSTED]).is_lower_bound


def test_a_large_error_is_never_ok():
    for error, flags in (
        (MIN_LARGE_ERROR - 1e-9, ()),
        (MIN_LARGE_ERROR, (Status.LARGE_ERROR,)),
        (MAX_USEFUL_ERROR, (Status.LARGE_ERROR,)),
        (MAX_USEFUL_ERROR + 1e-9, (Status.HUGE_ERROR,)),
        (math.inf, (Status.HUGE_ERROR,)),
        (math.nan, ()),
    ):
        result = made(error)
        assert result.flags == flags
        assert math.isnan(result.std_error) == (math.isnan(error) or error > MAX_USEFUL_ERROR)
    # The flag follows the error, as when rounds are merged to a smaller one.
    assert dataclasses.replace(made(3.0), std_error=0.5).flags == ()
    assert dataclasses.replace(made(30.0), std_error=3.0).flags == (Status.LARGE_ERROR,)


def test_an_error_comes_back_with_the_flag_gone():
    result = made(flags=[Status.STALLED])
    again = dataclasses.replace(result, flags=())
    assert again.std_error == 0.1
    assert UNTRUSTED not in again.diagnostics
    assert dataclasses.replace(result, std_error=0.2).claimed_error == 0.2
    assert UNTRUSTED not in made(math.nan, [Status.STALLED]).diagnostics


def test_copies_pickles_and_files_keep_it(tmp_path):
    result = made(flags=[Status.STALLED], notes=("A mode was joined with its error.",))
    result.save(tmp_path / "result")
    read = wb.Evidence.load(tmp_path / "result")
    for other in (copy.deepcopy(result), pickle.loads(pickle.dumps(result)), read):
        assert str(other) == str(result)
        assert other.claimed_error == 0.1
        assert math.isnan(other.std_error)
        assert other.diagnostics["notes"] == result.notes
    told = json.loads(result.to_json())
    assert (told["std_error"], told["trusted"], told["lower_bound"]) == (None, False, True)


def test_notes_are_printed_after_the_flags_and_are_no_reason_for_caution():
    note = "A mode was joined with its error."
    result = made(flags=[Status.LOW_ESS], notes=(note,))
    lines = str(result).splitlines()
    assert lines[1:] == [f"  {Status.LOW_ESS}", f"  {note}"]
    assert note in result._repr_html_()
    assert note in str(result.summary())
    assert made(notes=(note,)).status is Status.OK
    assert note in str(made(notes=(note,)).summary())


def test_figures_and_pages_show_it():
    result = made(flags=[Status.STALLED])
    assert "at least" in result._repr_html_()
    figure = result.plot()
    texts = figure.findobj(lambda thing: hasattr(thing, "get_text"))
    assert any("at least -9.00" in text.get_text() for text in texts)


def test_ratios_of_evidences_follow():
    variances = 0.01 * (1.0 - np.eye(2))
    flags = (Status.CHAINS_DISAGREE,)
    ratio = EvidenceRatio(("a", "b"), np.array([0.0, 2.0]), variances, "bridge", flags=flags)
    assert math.isnan(ratio.std_error)
    assert (ratio.best, ratio.leader) == (None, "b")
    assert "2.00, not to be trusted" in str(ratio)
    assert np.array_equal(ratio.diagnostics["untrusted_variances"], variances)
    table = wb.compare(ratio)
    assert (table.best, table.is_decided) == (None, False)
    assert math.isnan(table.probability_errors["a"])
    light = EvidenceRatio(("a", "b"), np.array([0.0, 2.0]), variances, "bridge")
    assert (light.std_error, light.best, wb.compare(light).best) == (0.1, "b", "b")


def test_an_update_of_a_stream_states_no_error_either():
    flat = wb.Model({"mu": dist.Normal(0.0, 1.0)}, lambda p, y: 0.0 * (p["mu"] + y))
    small = wb.SGAIS(num_islands=4, num_particles=16)
    update = wb.Online(flat, small, seed=0).update(np.ones(8))
    assert Status.FLAT in update.flags
    assert math.isnan(update.std_error)
    assert not update.is_trusted
    models = {"flat": flat, "real": wb.zoo.gaussian.model()}
    together = wb.OnlineComparison(models, small, seed=0)
    both = together.update(np.ones(8))
    assert math.isnan(both.std_errors["flat"])
    assert both.trust == {"flat": "at least", "real": ""}
    assert (both.leader, both.best) == ("flat", "flat")  # a lower bound that leads
    assert "lower bound" in str(both)
    assert both.to_pandas().loc["flat", "trust"] == "at least"
    assert together.result().trust == both.trust


@pytest.mark.parametrize("method", ["smc", "nested", "ibis"])
def test_a_likelihood_without_parameters_is_exact(method):
    """A null hypothesis needs a prior all the same; its likelihood reads no parameter."""
    rows = np.array([0.5, -1.0, 2.0])
    null = wb.Model({"unused": dist.Normal(0, 1)}, lambda p, y: dist.Normal(0.0, 1.0).log_prob(y))
    exact = float(-0.5 * np.sum(rows**2) - 1.5 * math.log(2 * math.pi))
    result = wb.evidence(null, rows, method, seed=0, progress=False)
    assert Status.FLAT not in result.flags
    assert result.is_trusted
    assert 0.0 < result.std_error < 1e-9
    assert abs(result.log_evidence - exact) < 1e-12
    # The same numbers, but nobody can know that the function is constant.
    zero = wb.Model(
        {"x": dist.Normal(0, 1)}, lambda p, y: dist.Normal(0.0 * p["x"], 1.0).log_prob(y)
    )
    flat = wb.evidence(zero, rows, method, seed=0, progress=False)
    assert Status.FLAT in flat.flags
    assert math.isnan(flat.std_error)
    if method == "ibis":
        online = wb.Online(null, method, seed=0)
        assert online.update(rows).is_trusted
        assert wb.OnlineComparison({"null": null}, method).update(rows).trust == {"null": ""}
