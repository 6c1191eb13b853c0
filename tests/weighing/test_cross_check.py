"""wb.cross_check: unlike methods on one model, their agreement in units of their errors."""

import math

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.status import Status
from weighbridge.weighing import agreement, cross_checking
from weighbridge.weighing.agreement import path_lower_bound

MODEL, DATA = wb.zoo.gaussian.model(), wb.zoo.gaussian.simulate(50, seed=1)
EXACT = wb.zoo.gaussian.log_evidence(DATA)
NESTED = wb.NestedSampling(num_live=100)


def found(z, error, method, flags=(), **diagnostics):
    return wb.Evidence(
        z, error, 9, method, wb.Trace(), {}, np.zeros(1), diagnostics, tuple(flags), 1.0
    )


def check(*results):
    return wb.CrossCheck({result.method: result for result in results})


# --- the verdict ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "error", "verdict"),
    [
        (-9.35, 0.1, "agree"),  # 2.5 errors
        (-9.5, 0.1, "agree"),  # 3.5 errors, but not more than half a nat
        (-9.6, 0.1, "disagree"),  # 4.2 errors
        (-10.0, 0.25, "disagree"),  # 3.7 errors and a nat
        (-9.0005, 1e-9, "agree"),  # rounding
    ],
)
def test_results_disagree_beyond_their_errors(other, error, verdict):
    first = found(-9.0, min(error, 0.1), "smc")
    assert check(first, found(other, error, "nested")).verdict == verdict


def test_flagged_results_leave_it_undecided():
    flagged = found(-3.0, 0.1, "nested", [Status.FLAT])
    undecided = check(found(-9.0, 0.1, "smc"), flagged)
    assert undecided.verdict == "undecided"
    assert "undecided" in str(undecided)
    with pytest.raises(wb.MethodError, match="There is no answer"):
        _ = undecided.answer
    # The others decide without it.
    three = check(found(-9.0, 0.1, "smc"), flagged, found(-9.1, 0.05, "bridge"))
    assert (three.verdict, three.answer.method) == ("agree", "bridge")
    assert "flat likelihood" in str(three)


def test_the_bound_of_a_path_is_markovs():
    islands = np.array([-9.0, -10.0])
    path = found(-9.3, 0.1, "smc", island_log_evidence=islands)
    mean = float(np.log(np.mean(np.exp(islands))))
    for b in (1.0, 3.0):
        bound = path_lower_bound(path, 1 - math.exp(-b))
        assert bound == pytest.approx(mean - b, abs=1e-12)
    assert check(path).lower_bound(0.9) == pytest.approx(mean + math.log(0.1))
    with pytest.raises(wb.MethodError, match="between 0 and 1"):
        check(path).lower_bound(95.0)


def test_means_of_logs_bridges_and_biased_moves_give_no_bound():
    told = {"island_log_evidence": np.array([-9.0, -10.0])}
    for method in ("thermodynamic", "bridge", "nested", "sgais", "importance", "harmonic_mean"):
        assert math.isnan(path_lower_bound(found(-9.0, 0.1, method, **told), 0.9))
    assert math.isnan(path_lower_bound(found(-9.0, 0.1, "ais", [Status.UNADJUSTED], **told), 0.9))
    part = found(-9.0, 0.1, "smc", power_reached=0.5, **told)
    assert math.isnan(path_lower_bound(part, 0.9))


def test_the_bound_holds_as_often_as_it_says():
    """Log-normal weights with a mean of 1: the mean of 8 islands, 2,000 times."""
    rng = np.random.default_rng(0)
    held = []
    for logs in rng.normal(-2.0, 2.0, size=(2000, 8)):  # E exp = 1
        path = found(0.0, 0.1, "smc", island_log_evidence=logs)
        held.append(path_lower_bound(path, 0.8) <= 0.0)
    assert np.mean(held) >= 0.8


# --- runs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checked():
    return wb.cross_check(MODEL, DATA, ["smc", NESTED, "importance"], seed=1)


def test_methods_agree_on_a_known_answer(checked):
    assert checked.verdict == "agree"
    assert abs(checked.answer.log_evidence - EXACT) < 1e-6
    assert list(checked.to_pandas().index) == ["smc", "nested", "importance"]
    assert all(abs(z) < 4 for z in checked.differences.values())
    assert checked.lower_bound() < EXACT
    assert "smc, nested, importance agree" in str(checked)
    again = wb.cross_check(MODEL, DATA, ["smc", NESTED, "importance"], seed=1)
    assert again.differences == checked.differences


def test_it_can_be_saved(checked, tmp_path):
    checked.save(tmp_path / "check")
    came = wb.CrossCheck.load(tmp_path / "check")
    assert str(came) == str(checked)
    assert isinstance(came.results["nested"], wb.NestedEvidence)
    with pytest.raises(wb.CheckpointError):
        wb.Evidence.load(tmp_path / "check")


def test_two_of_a_kind_are_numbered():
    both = wb.cross_check(MODEL, DATA, [NESTED, wb.NestedSampling(num_live=120)])
    assert list(both.results) == ["nested", "nested (2)"]


def test_a_method_that_fails_is_told_and_if_all_fail_that_is_the_error(monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("no memory")

    monkeypatch.setattr(wb.NestedSampling, "estimate", fail)
    left = wb.cross_check(MODEL, DATA, ["smc", "nested"])
    assert left.failures == {"nested": "RuntimeError: no memory"}
    assert left.verdict == "undecided"
    with pytest.raises(RuntimeError, match="no memory"):
        wb.cross_check(MODEL, DATA, ["nested", NESTED])


def test_time_is_shared():
    slow = wb.cross_check(MODEL, DATA, [wb.SMC(num_particles=4096, moves="slice"), NESTED],
                          time_limit=0.2)  # fmt: skip
    assert slow.verdict == "undecided"
    assert any("INTERRUPTED" in s or "STOPPED" in s for s in slow.to_pandas()["status"]) or (
        "stopped by the time limit" in slow.failures.values()
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: wb.cross_check(MODEL, DATA, "smc"), wb.MethodError, "list of names"),
        (lambda: wb.cross_check(MODEL, DATA, ["smc"]), wb.MethodError, "two methods or more"),
        (lambda: wb.cross_check(MODEL, DATA, ["smc", "nest"]), wb.MethodError, "no method"),
        (lambda: wb.cross_check(MODEL, iter([DATA])), wb.DataError, "arrays or files"),
        (lambda: wb.cross_check(MODEL), wb.DataError, "give it data"),
        (lambda: wb.cross_check("model", DATA), wb.WeighbridgeError, "Model"),
        (lambda: wb.cross_check(MODEL, DATA, time_limit=-1.0), wb.MethodError, "positive"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- comparisons ----------------------------------------------------------------------------------


@pytest.mark.long
def test_a_comparison_flags_a_model_whose_methods_disagree(monkeypatch):
    monkeypatch.setattr(
        cross_checking,
        "choose_unlike",
        lambda offer, known: [cross_checking.Choice(NESTED)],
    )
    models = {"near": MODEL, "far": wb.zoo.gaussian.model(prior_mean=-2.0)}
    rows = np.append(DATA, np.nan)
    small = wb.SMC(num_islands=8, num_particles=32)
    settings = {"seed": 1, "on_bad_row": "skip", "cross_check": True}
    table = wb.compare(models, rows, small, **settings)
    assert {n: c.verdict for n, c in table.cross_checks.items()} == dict.fromkeys(models, "agree")
    assert "near: cross-check: smc, nested agree" in str(table)
    assert not any(table.flags.values())
    monkeypatch.setattr(agreement, "agree", lambda one, other: one.log_evidence < EXACT - 1)
    table = wb.compare(models, rows, small, **settings)
    assert table.flags["near"] == (Status.METHODS_DISAGREE,)
    assert math.isnan(table.std_errors["near"])
    assert table.flags["far"] == ()


def test_results_cannot_be_cross_checked():
    result = found(-9.0, 0.1, "smc")
    with pytest.raises(wb.MethodError, match="cross_check are for models"):
        wb.compare({"a": result, "b": result}, cross_check=True)


@pytest.mark.long
def test_the_default_methods_agree_on_a_ridge():
    ridge = wb.Model(
        {"x": dist.Normal(0, 3).expand([2]).to_event(1)},
        lambda p, y: dist.Normal(p["x"][0] + p["x"][1], 1.0).log_prob(y),
    )
    rows = np.random.default_rng(0).normal(1.0, 1.0, size=20)
    cross = wb.cross_check(ridge, rows)
    assert list(cross.results) == ["smc", "nested", "bridge"]
    covariance = np.eye(20) + 18.0 * np.ones((20, 20))
    exact = -0.5 * (
        20 * math.log(2 * math.pi)
        + np.linalg.slogdet(covariance)[1]
        + rows @ np.linalg.solve(covariance, rows)
    )
    assert cross.verdict == "agree"
    assert abs(cross.answer.log_evidence - exact) < 4 * cross.answer.std_error + 1e-6
