"""Rounds of islands: when they stop, and that what they say together is true of all of them."""

import math
from dataclasses import replace

import numpy as np
import pytest

import weighbridge as wb
from weighbridge.core.islands import combine_islands
from weighbridge.results.trace import Trace
from weighbridge.weighing.rounds import Limits, Rounds, merge, merged_error, run_rounds

METHOD = wb.SMC(num_islands=4, num_particles=8)


def made(islands, std_error=None, flags=(), **diagnostics):
    islands = np.asarray(islands, float)
    combined = combine_islands(islands)
    return wb.Evidence(
        combined.log_evidence,
        combined.std_error if std_error is None else std_error,
        100,
        "smc",
        Trace(power=np.array([0.5, 1.0])),
        {"mu": islands.copy()},
        np.full(len(islands), -np.log(len(islands))),
        {"island_log_evidence": islands, **diagnostics},
        flags,
        0.5,
    )


def test_one_round_stays_as_it_is():
    only = made([-1.0, -1.1, -0.9, -1.0])
    assert merge([only], METHOD) is only


def test_islands_errors_and_posterior_are_of_all_rounds():
    generator = np.random.default_rng(0)
    rounds = [made(-50 + 0.1 * generator.normal(size=4)) for _ in range(5)]
    merged = merge(rounds, METHOD)
    islands = np.concatenate([r.diagnostics["island_log_evidence"] for r in rounds])
    np.testing.assert_array_equal(merged.diagnostics["island_log_evidence"], islands)
    assert merged.log_evidence == pytest.approx(combine_islands(islands).log_evidence)
    within = math.sqrt(sum(r.std_error**2 for r in rounds)) / 5
    assert merged.std_error == pytest.approx(max(within, combine_islands(islands).std_error))
    assert merged_error(rounds, METHOD)[0] == merged.std_error
    assert merged.elapsed == pytest.approx(2.5)
    weights = np.exp(merged.log_weights)
    assert weights.sum() == pytest.approx(1)
    # A round has the weight of its own evidence.
    shares = np.exp([r.log_evidence + 50 for r in rounds])
    np.testing.assert_allclose(weights.reshape(5, 4).sum(axis=1), shares / shares.sum())
    assert merged.samples["mu"].tolist() == islands.tolist()


def test_diagnostics_say_what_they_are_of():
    numbers = {"host_calls": 20, "path_log_evidence": -1.0, "path_error": 0.1}
    numbers |= {"annealing_steps": 3, "num_diverged": 1, "stalled": 0, "rows_skipped": 7}
    rounds = [
        made([-1.0] * 4, genealogy_error=0.3, acceptance=np.array([0.7, 0.8]), **numbers),
        made([-1.1] * 4, genealogy_error=0.4, acceptance=np.array([0.1]), **numbers),
    ]
    found = merge(rounds, METHOD).diagnostics
    assert (found["annealing_steps"], found["num_diverged"], found["stalled"]) == (6, 2, 0)
    assert found["host_calls"] == 40
    merged = merge(rounds, METHOD)
    answer = (merged.log_evidence, merged.std_error)
    assert (found["path_log_evidence"], found["path_error"]) == answer
    assert found["rows_skipped"] == 7  # the rows are the same in every round
    assert found["genealogy_error"] == pytest.approx(math.hypot(0.3, 0.4) / 2)
    assert found["acceptance"].tolist() == [0.7, 0.8]  # goes with the path, which is the first's
    assert (found["num_rounds"], found["trace_islands"]) == (2, 4)
    lost = [rounds[0], made([-1.1] * 4, genealogy_error=None, **numbers)]
    assert merge(lost, METHOD).diagnostics["genealogy_error"] is None
    assert "num_rounds" not in rounds[0].diagnostics


def test_disagreement_is_judged_over_all_islands():
    apart = made([0.0] * 4), made([-9.0] * 4)  # each round agrees within itself
    assert merge(apart, METHOD).status is wb.Status.ISLANDS_DISAGREE
    flagged = made([0.0, 0.0, 0.0, -6.5], flags=(wb.Status.ISLANDS_DISAGREE,))
    calm = [made([0.0, 0.1, 0.0, -0.1]) for _ in range(7)]
    assert merge([flagged, *calm], METHOD).flags == ()


def test_flags_of_the_path_stay_and_the_error_is_judged_anew():
    one = made([0.0, 0.1, 0.0, 0.1], flags=(wb.Status.STALLED,))
    two = made([0.0, 0.1, 0.0, 0.1], flags=(wb.Status.LOW_ESS, wb.Status.STALLED))
    assert merge([one, two], METHOD).flags == (wb.Status.STALLED, wb.Status.LOW_ESS)
    unknown = made([0.0, 0.1, 0.0, 0.1], math.nan)
    assert wb.Status.ERROR_UNKNOWN in merge([unknown, two], METHOD).flags


def test_heat_is_judged_against_the_error_of_all_rounds():
    """A bias that the chance error of one round hides stands out from that of eight."""
    method = wb.PublishedSGAIS(num_islands=4, num_particles=8)
    generator = np.random.default_rng(1)
    rounds = [
        made(1.2 * generator.normal(size=4), std_error=2.0, heating_bias=-1.2, settled_error=0.1)
        for _ in range(8)
    ]
    merged = merge(rounds, method)
    assert wb.Status.HEATED in merged.flags
    assert merged.diagnostics["heating_bias"] == pytest.approx(-1.2)
    assert merged.diagnostics["settled_error"] == pytest.approx(0.1 / math.sqrt(8))
    assert merged.std_error > 1.2
    # What SGAIS saw on the way, before it evened its islands out, is kept.
    seen = replace(rounds[0], flags=(wb.Status.ISLANDS_DISAGREE,))
    assert wb.Status.ISLANDS_DISAGREE in merge([seen, *rounds[1:]], method).flags


class Scripted:
    """Rounds that were prepared, and a record of what was asked for."""

    def __init__(self, std_error):
        self.std_error, self.asked = std_error, []

    def __call__(self, first_island, names):
        self.asked.append((first_island, tuple(names)))
        generator = np.random.default_rng(first_island)
        return {name: made(-10 + self.std_error[name] * generator.normal(size=4)) for name in names}


def test_rounds_go_on_for_those_that_need_them():
    rounds = Scripted({"easy": 0.01, "hard": 0.5})
    limits = Limits(tolerance=0.2)
    results = run_rounds(Rounds(rounds, METHOD, True), ["easy", "hard"], limits)
    assert rounds.asked[0] == (0, ("easy", "hard"))
    assert all(names == ("hard",) for _, names in rounds.asked[1:])
    assert [first for first, _ in rounds.asked] == [4 * k for k in range(len(rounds.asked))]
    assert len(rounds.asked) > 2
    assert all(result.std_error <= 0.2 for result in results.values())
    assert all(result.flags == () for result in results.values())
    assert len(results["hard"].diagnostics["island_log_evidence"]) == 4 * len(rounds.asked)


@pytest.mark.parametrize(
    ("limits", "repeatable", "error"),
    [
        (Limits(tolerance=1e-9, time_limit=1e-9), True, 0.5),
        (Limits(tolerance=1e-9), False, 0.5),
        (Limits(tolerance=1e-9), True, math.nan),
        (Limits(tolerance=1.0), False, 5.0),
    ],
)
def test_rounds_end_without_success_and_say_so(limits, repeatable, error):
    rounds = Scripted({"a": error})
    results = run_rounds(Rounds(rounds, METHOD, repeatable), ["a"], limits)
    assert len(rounds.asked) == 1
    assert wb.Status.TOLERANCE_NOT_REACHED in results["a"].flags


def test_an_error_of_few_islands_must_be_surely_small():
    """Of four islands it is uncertain by 1 / sqrt(6), so a little below the tolerance is not it."""
    close = made([-10.0, -10.1, -9.9, -10.0], std_error=0.08)
    asked = []

    def one_round(first_island, names):
        asked.append(first_island)
        return {"a": close}

    run_rounds(Rounds(one_round, METHOD, True), ["a"], Limits(tolerance=0.1))
    assert len(asked) > 1
    asked.clear()
    run_rounds(Rounds(one_round, METHOD, True), ["a"], Limits(tolerance=0.08 * 1.5))
    assert len(asked) == 1
    # Where there can be no second round the tolerance is reached all the same.
    result = run_rounds(Rounds(one_round, METHOD, False), ["a"], Limits(tolerance=0.1))["a"]
    assert result.flags == ()


@pytest.mark.long
def test_a_tolerance_begins_with_half_of_the_islands():
    data, model = wb.zoo.gaussian.simulate(100, seed=1), wb.zoo.gaussian.model()

    def islands(method, **limits):
        found = wb.evidence(model, data, method, progress=False, **limits)
        return len(found.diagnostics["island_log_evidence"])

    assert islands(wb.SMC()) == 16
    assert islands(wb.SMC(), tolerance=0.1) == 8
    assert islands(wb.SMC(num_islands=12), tolerance=0.1) == 12
    # A path alone needs more, in rounds of eight.
    several = islands(wb.AIS(), tolerance=0.03)
    assert several > 8
    assert several % 8 == 0


def test_more_islands_do_not_replace_an_answer_that_all_of_them_miss():
    """It is by importance sampling where they were not, so their mean would be a step back."""
    asked = []

    def one_round(first_island, names):
        asked.append(first_island)
        found = made([-9.0, -9.1, -9.0, -9.1], std_error=0.3, flags=(wb.Status.MASS_MISSED,))
        return {"a": replace(found, log_evidence=-4.0)}

    results = run_rounds(Rounds(one_round, METHOD, True), ["a"], Limits(tolerance=0.1))
    assert asked == [0]
    assert results["a"].log_evidence == -4.0
    assert results["a"].flags == (wb.Status.MASS_MISSED, wb.Status.TOLERANCE_NOT_REACHED)


def test_without_a_tolerance_there_is_one_round():
    rounds = Scripted({"a": 1.5})
    results = run_rounds(Rounds(rounds, METHOD, True), ["a"], Limits(time_limit=10.0))
    assert len(rounds.asked) == 1
    assert results["a"].flags == ()


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_limits_are_checked(bad):
    with pytest.raises(wb.MethodError, match="tolerance must be positive"):
        Limits(tolerance=bad).check(METHOD)
    with pytest.raises(wb.MethodError, match="time_limit must be positive"):
        Limits(time_limit=bad).check(METHOD)


def test_a_tolerance_needs_an_error():
    for method in (wb.SGAIS.published(), wb.SMC(num_islands=3)):
        with pytest.raises(wb.MethodError, match="states its error"):
            Limits(tolerance=0.1).check(method)
    Limits(tolerance=0.1).check(METHOD)


def test_a_real_run_of_several_rounds():
    data = wb.zoo.gaussian.simulate(100, seed=1)
    model = wb.zoo.gaussian.model()
    method = wb.SMC(num_islands=8, num_particles=32, resampling="multinomial")
    once = wb.evidence(model, data, method)
    result = wb.evidence(model, data, method, tolerance=0.6 * once.std_error)
    found = result.diagnostics
    assert found["num_rounds"] > 1
    assert len(found["island_log_evidence"]) == 8 * found["num_rounds"]
    assert len(result.log_weights) == 8 * 32 * found["num_rounds"]
    assert found["trace_islands"] == 8
    assert len(found["acceptance"]) == len(result.trace.power)
    assert found["annealing_steps"] >= len(result.trace.power) * found["num_rounds"] // 2
    # The second opinion shrinks with the first.
    assert found["genealogy_error"] < once.diagnostics["genealogy_error"]
    assert 0.4 < found["genealogy_error"] / found["path_error"] < 2.5
    assert found["answer"] == "bridge"
    assert abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 5 * result.std_error
    assert result.summary()["mu", "sd"] == pytest.approx(0.1, rel=0.2)
