"""method="auto": it listens to flags, goes on with other methods, and keeps all that it found."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.interrupts import ended_after, interruptible, is_due
from weighbridge.core.progress.reporters import Reporter
from weighbridge.core.status import Status
from weighbridge.estimators import choosing
from weighbridge.estimators.choosing import Choice, Offer, choose, choose_next, choose_unlike
from weighbridge.weighing import attempts
from weighbridge.weighing.attempts import Attempt, answer
from weighbridge.weighing.rounds import Limits, Rounds, run_rounds

MODEL, DATA = wb.zoo.gaussian.model(), wb.zoo.gaussian.simulate(50, seed=1)
EXACT = wb.zoo.gaussian.log_evidence(DATA)
SMALL = wb.NestedSampling(num_live=100)


@pytest.fixture
def distrusted(monkeypatch):
    """A list of methods whose results are not trusted; nested sampling is small, to be quick."""
    names = ["sgais", "smc"]
    trusted = attempts.distrust
    monkeypatch.setattr(
        attempts, "distrust", lambda r: "made up" if r.method in names else trusted(r)
    )
    monkeypatch.setattr(choosing, "NestedSampling", lambda: SMALL)
    return names


def found(method, log_evidence, std_error=0.1, flags=(), islands=None, trouble=None):
    """An attempt with this result."""
    told = {} if islands is None else {"island_log_evidence": np.asarray(islands)}
    result = wb.Evidence(
        log_evidence, std_error, 9, method, wb.Trace(), {}, np.zeros(1), told, tuple(flags)
    )
    trouble = choosing.distrust(result) if trouble is None else trouble
    return Attempt(Choice(choosing.resolve(method), "why"), result, 1.0, trouble)


# --- which method ---------------------------------------------------------------------------------


def test_streams_and_rows_begin_with_sgais_and_totals_with_smc():
    assert choose("auto", [MODEL]).method == wb.SGAIS()
    whole = wb.Model({"m": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -(p["m"] ** 2))
    assert choose("auto", [MODEL, whole]).method == wb.SMC()  # the same for all models


def test_a_likelihood_on_the_host_gets_slice_moves():
    host = wb.Model(
        {"x": dist.Normal(0, 1).expand([2]).to_event(1)},
        total_log_likelihood=lambda p: -0.5 * np.sum(np.asarray(p["x"]) ** 2, axis=-1),
    )
    result = wb.evidence(host, seed=0)
    (tried,) = result.diagnostics["attempts"]
    assert tried["why"] in result.diagnostics["chosen"]
    assert "without gradients" in tried["why"]
    assert abs(result.log_evidence + math.log(2)) < 4 * result.std_error


@pytest.mark.parametrize(
    ("offer", "tried", "flags", "following"),
    [
        (Offer(True, True, 5, 1000), ["sgais"], [Status.ISLANDS_DISAGREE], "nested"),
        (Offer(True, True, 5, 1000), ["sgais"], [Status.NOISY], "smc"),
        (Offer(True, True, 5, 1000), ["sgais", "smc"], [Status.DRIFTING], "nested"),
        (Offer(True, True, 5, 1000), ["sgais", "nested"], [Status.TOO_FEW_MOVES], "bridge"),
        # A bridge does not see modes that its chains miss.
        (Offer(True, True, 5, 1000), ["sgais", "nested"], [Status.ISLANDS_DISAGREE], None),
        (Offer(True, True, 200, 1000), ["sgais"], [Status.ISLANDS_DISAGREE], "bridge"),
        (Offer(True, True, 5, 100_000), ["sgais"], [Status.ISLANDS_DISAGREE], "bridge"),
        (Offer(True, True, 5, 1_000_000), ["sgais"], [Status.NOISY], None),
        (Offer(False, False, 5), ["smc"], [Status.FLAT], "nested"),
        (Offer(False, False, 500), ["smc"], [Status.FLAT], None),
    ],
)
def test_what_follows(offer, tried, flags, following):
    choice = choose_next(offer, tried, flags)
    assert (choice and choice.method.name) == following


def test_unlike_methods_are_not_of_the_family_that_is_known():
    rows, many = Offer(True, True, 5, 1000), Offer(True, True, 100, 1000)
    assert [c.method.name for c in choose_unlike(rows, ["sgais"])] == ["nested", "bridge"]
    assert [c.method.name for c in choose_unlike(rows, ["ais"])] == ["nested", "bridge"]
    assert [c.method.name for c in choose_unlike(many)] == ["smc", "bridge"]
    assert [c.method.name for c in choose_unlike(rows, ["nested"])] == ["smc", "bridge"]


# --- which answer ---------------------------------------------------------------------------------


def test_the_answer_is_the_one_without_a_grave_flag():
    tried = [found("smc", -9.0, flags=[Status.ISLANDS_DISAGREE]), found("nested", -8.0, 0.2)]
    result = answer(tried)
    assert (result.method, result.log_evidence, result.std_error) == ("nested", -8.0, 0.2)
    assert result.flags == ()
    assert [a["trouble"] for a in result.diagnostics["attempts"]] == ["islands disagree", ""]
    assert "This is the answer of nested" in result.remarks[-1]


def test_of_two_that_agree_the_more_exact_one_is_the_answer():
    assert answer([found("smc", -9.0, 0.01), found("nested", -9.1, 0.1)]).method == "smc"


def test_two_that_disagree_are_flagged():
    result = answer([found("smc", -9.0, 0.1), found("nested", -8.0, 0.1)])
    assert result.flags == (Status.METHODS_DISAGREE,)
    assert Status.METHODS_DISAGREE.grave
    assert (result.log_evidence, math.isnan(result.std_error)) == (-8.0, True)


def test_an_answer_below_what_a_path_found_is_flagged():
    path = found("smc", -9.0, flags=[Status.ISLANDS_DISAGREE], islands=[-8.9, -9.1] * 4)
    assert answer([path, found("nested", -9.3)]).flags == ()
    result = answer([path, found("nested", -19.0)])
    assert result.flags[0] is Status.METHODS_DISAGREE
    assert result.log_evidence == -9.0


def test_if_none_is_to_be_trusted_it_is_the_largest_of_the_paths():
    flagged = [Status.ISLANDS_DISAGREE]
    tried = [
        found("sgais", -9.0, flags=flagged),
        found("nested", -5.0, flags=[Status.WALKERS_STUCK]),
    ]
    assert answer(tried).method == "sgais"
    assert answer([*tried, found("smc", -7.0, flags=flagged)]).log_evidence == -7.0


def test_a_large_error_is_a_reason_to_go_on():
    assert found("smc", -9.0, 1.5).trouble == "an error of 1.5 nats"
    assert found("smc", -9.0, math.nan).trouble == "error unknown"


# --- runs -----------------------------------------------------------------------------------------


def test_a_good_first_method_is_all_there_is():
    result = wb.evidence(MODEL, DATA, seed=3)
    assert [a["method"] for a in result.diagnostics["attempts"]] == ["sgais"]
    assert "chosen" not in result.diagnostics
    alone = wb.evidence(MODEL, DATA, "sgais", seed=3)
    assert (result.log_evidence, result.std_error) == (alone.log_evidence, alone.std_error)


def test_it_goes_on_and_gives_the_same_numbers_again(distrusted, tmp_path):
    one, other = (wb.evidence(MODEL, DATA, seed=3) for _ in range(2))
    assert one.method == "nested"
    assert isinstance(one, wb.NestedEvidence)
    assert abs(one.log_evidence - EXACT) < 4 * one.std_error
    assert (one.log_evidence, one.std_error) == (other.log_evidence, other.std_error)
    tried = one.diagnostics["attempts"]
    assert [a["method"] for a in tried] == ["sgais", "nested"]
    assert all(abs(a["log_evidence"] - EXACT) < 1.0 for a in tried)
    assert one.elapsed >= sum(a["seconds"] for a in tried)
    one.save(tmp_path / "result")
    assert wb.NestedEvidence.load(tmp_path / "result").diagnostics["attempts"] == tried


def test_it_stays_with_the_first_where_rows_can_be_read_once_or_time_is_up(distrusted):
    for result in (
        wb.evidence(MODEL, iter([DATA]), seed=3),
        wb.evidence(MODEL, DATA, seed=3, time_limit=1e-6),
    ):
        assert [a["method"] for a in result.diagnostics["attempts"]] == ["sgais"]


def test_a_method_that_fails_later_loses_nothing(distrusted, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("no memory")

    monkeypatch.setattr(wb.NestedSampling, "estimate", fail)
    result = wb.evidence(MODEL, DATA, seed=3)
    assert result.method == "sgais"
    last = result.diagnostics["attempts"][-1]
    assert (last["method"], last["trouble"]) == ("nested", "RuntimeError: no memory")


def test_ctrl_c_keeps_the_best_so_far(distrusted, monkeypatch):
    estimate = wb.NestedSampling.estimate
    with interruptible() as interruption:

        def stopped(*args, **kwargs):
            interruption.asked.set()
            return estimate(*args, **kwargs)

        monkeypatch.setattr(wb.NestedSampling, "estimate", stopped)
        result = wb.evidence(MODEL, DATA, seed=3)
    assert result.method == "sgais"
    assert Status.INTERRUPTED in result.flags
    assert abs(result.log_evidence - EXACT) < 1e-6
    assert result.diagnostics["attempts"][-1]["trouble"] == "interrupted"


def test_models_are_compared_by_the_same_rule(distrusted, monkeypatch):
    seen = []

    class Shown(Reporter):
        def announce(self, text, *, at_once=False):
            seen.append(text)

        def advance(self, share, done, log_evidence, steps, label="", island_round=0):
            seen.append(label)

    far = wb.zoo.gaussian.model(prior_mean=-2.0)
    monkeypatch.setattr(
        attempts,
        "distrust",
        lambda r: "made up" if r.method == "sgais" and r.log_evidence < EXACT - 1 else "",
    )
    table = wb.compare({"near": MODEL, "far": far}, DATA, seed=3, progress=Shown())
    assert {n: r.method for n, r in table.results.items()} == {"near": "sgais", "far": "nested"}
    firsts = {r.diagnostics["attempts"][0]["method"] for r in table.results.values()}
    assert firsts == {"sgais"}
    assert "made up: going on with nested" in seen
    assert "far, nested" in seen


def test_bad_rows_are_counted_and_written_once(distrusted, tmp_path):
    rows = np.append(DATA, np.nan)
    file = tmp_path / "bad.jsonl"
    result = wb.evidence(MODEL, rows, seed=3, on_bad_row="quarantine", quarantine=file)
    assert result.method == "nested"
    assert (result.rows_quarantined, result.rows_skipped) == (1, 0)
    assert result.num_observations == len(DATA)
    assert len(file.read_text().splitlines()) == 1


def test_a_flat_likelihood_is_tried_twice_and_stays_flagged():
    flat = wb.Model({"x": dist.Normal(0, 1)}, total_log_likelihood=lambda p: jnp.zeros(()))
    result = wb.evidence(flat)
    assert [a["flags"] for a in result.diagnostics["attempts"]] == [["FLAT"], ["FLAT"]]
    assert Status.FLAT in result.flags


def test_time_limits_are_for_auto_or_for_tolerances():
    with pytest.raises(wb.MethodError, match='method="auto"'):
        wb.evidence(MODEL, DATA, "smc", time_limit=1.0)
    with pytest.raises(wb.MethodError, match="must be positive"):
        wb.evidence(MODEL, DATA, time_limit=0.0)


def test_work_is_ended_after_its_seconds_and_may_go_on_then():
    with interruptible() as interruption:
        with ended_after(1000.0):
            assert not is_due()
        with ended_after(0.0):
            assert is_due()
        assert not is_due()
        assert interruption.until is None


def test_no_rounds_are_added_to_a_result_that_another_method_follows():
    calls = []

    def one_round(first_island, names):
        calls.append(first_island)
        flags = [Status.STALLED] if len(calls) == 1 else []
        told = {"island_log_evidence": np.array([-9.0, -8.5, -9.5, -9.2])}
        result = wb.Evidence(-9.0, 0.3, 9, "smc", wb.Trace(), {}, np.zeros(1), told, tuple(flags))
        return dict.fromkeys(names, result)

    plan = Rounds(one_round, wb.SMC(num_islands=4), True)
    left = run_rounds(plan, ["a"], Limits(0.1, leaves_grave=True))["a"]
    assert (calls, left.status) == ([0], Status.STALLED)


def test_only_the_first_round_is_ended_by_the_time_limit():
    """Rounds that are complete are an answer, even if the tolerance was not reached in time."""
    seen = []
    limited = attempts._first_in_time(lambda first, names: seen.append(is_due()) or {}, 0.0)
    with interruptible():
        limited(0, [])
        limited(4, [])
    assert seen == [True, False]
