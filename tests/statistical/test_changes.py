"""Changes of a stream: false alarms at the stated rate, changes found on both sides, restarts."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import weighbridge as wb
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.weighing.changes import detection
from weighbridge.weighing.changes.permutation import RowStatistics, compare_rows

pytestmark = pytest.mark.long

SMALL = wb.SGAIS(num_islands=4, num_particles=16, chunk_size=50)
WIDE = wb.zoo.gaussian.model(prior_scale=3.0)
LINEAR = wb.zoo.linear.model(2)


def within(count, trials, rate, doubt=1e-4):
    """Whether so many alarms are likely at a rate; this test fails by chance with 2 x doubt."""
    low, high = stats.binom.ppf([doubt, 1 - doubt], trials, rate)
    return low <= count <= high


def shifted(seed=0, before=430, after=400, mean=1.0, noise=1.0):
    numbers = np.random.default_rng(seed)
    return np.concatenate([numbers.normal(0, 1, before), numbers.normal(mean, noise, after)])


def feed(online, data, size=50):
    return [online.update(data[i : i + size]) for i in range(0, len(data), size)]


def numbers_of(update):
    """Everything that an update says but the time it took."""
    return repr(dataclasses.replace(update, elapsed=0.0))


# --- the test by itself -------------------------------------------------------------------------


def skewed(numbers, size):
    return -0.5 * numbers.chisquare(1, size)


def heavy(numbers, size):
    return numbers.standard_t(3, size)


def mixed(numbers, size):
    return np.where(numbers.random(size) < 0.1, -6.0, 0.0) + numbers.normal(size=size)


@pytest.mark.parametrize("draw", [skewed, heavy, mixed])
def test_false_alarms_come_at_the_stated_rate(draw):
    numbers = np.random.default_rng(1)
    p_values = []
    for _ in range(2000):
        reference, chunk = (
            RowStatistics(draw(numbers, n), draw(numbers, (n, 1)), np.ones(n)) for n in (80, 20)
        )
        p_values.append(compare_rows(reference, chunk, numbers, 0.01).p_value)
    for rate in (0.05, 0.01, 0.002):
        # The smaller of two p-values counts double: exact but for rate^2 / 4.
        assert within(np.sum(np.array(p_values) <= rate), 2000, rate - rate**2 / 4), rate


def test_a_rise_and_a_fall_are_found_where_they_are():
    numbers = np.random.default_rng(2)
    reference = RowStatistics(skewed(numbers, 500), np.zeros((500, 0)), np.ones(500))
    for shift in (-1.5, 1.5):
        score = skewed(numbers, 100) + shift * (np.arange(100) >= 40)
        verdict = compare_rows(
            reference, RowStatistics(score, np.zeros((100, 0)), np.ones(100)), numbers, 1e-3
        )
        assert verdict.p_value < 1e-3
        assert verdict.seen_in == "log predictive"
        assert math.copysign(1, verdict.score) == math.copysign(1, shift)
        assert abs(verdict.first - 40) <= 5


def test_a_chunk_may_be_larger_than_its_reference():
    numbers = np.random.default_rng(3)
    p_values = []
    for _ in range(600):
        pair = [
            RowStatistics(skewed(numbers, n), numbers.normal(size=(n, 2)), np.ones(n))
            for n in (30, 90)
        ]
        p_values.append(compare_rows(*pair, numbers, 0.05).p_value)
    assert within(np.sum(np.array(p_values) <= 0.05), 600, 0.05)
    far = pair[1]._replace(score=pair[1].score + 3)
    assert compare_rows(pair[0], far, numbers, 0.01).p_value < 1e-3
    assert compare_rows(pair[0], far, numbers, 0.01).score > 2


def test_rows_without_weight_and_constant_scores_are_no_change():
    numbers = np.random.default_rng(4)
    same = [RowStatistics(np.zeros(n), np.zeros((n, 1)), np.ones(n)) for n in (50, 20)]
    assert compare_rows(*same, numbers, 1e-3).p_value == 1
    nothing = same[1]._replace(weight=np.zeros(20), score=np.full(20, 9.0))
    assert compare_rows(same[0], nothing, numbers, 1e-3).p_value == 1


# --- the row statistics of a model's particles --------------------------------------------------


def conjugate(data, rows, numbers, count=64):
    """Exact posterior draws of linear regression on the first rows."""
    x = np.column_stack([data["x"], np.ones(len(data["y"]))])[:rows]
    precision = np.eye(x.shape[1]) + x.T @ x
    centre = np.linalg.solve(precision, x.T @ data["y"][:rows])
    root = np.linalg.cholesky(np.linalg.inv(precision))
    draws = centre + numbers.normal(size=(count, len(centre))) @ root.T
    return Cloud(jnp.asarray(draws)[None], jnp.zeros((1, count)), jnp.zeros((1, count), int))


def test_the_order_of_coordinates_is_what_this_file_takes_it_for():
    position = jnp.array([7.0, 1.0, 2.0])
    parameters = LINEAR.transform(position)[0]
    assert parameters["w"].tolist() == [7, 1]
    assert float(parameters["b"]) == 2


def test_particles_fitted_to_the_reference_raise_no_more_alarms():
    """Thirty rows for each of three parameters: without corrections alarms would double."""
    numbers, count, chunk = np.random.default_rng(5), 90, 30
    p_values = []
    for seed in range(500):
        data = wb.zoo.linear.simulate(count + chunk, num_features=2, seed=seed)
        seen = np.repeat([1.0, 0.0], [count, chunk])
        score, influence = detection.row_statistics(
            LINEAR, conjugate(data, count, numbers), data, seen
        )
        ones = np.ones(count + chunk)
        parts = [
            RowStatistics(score[s], influence[s], ones[s])
            for s in (slice(count), slice(count, None))
        ]
        p_values.append(compare_rows(*parts, numbers, 0.05).p_value)
    assert within(np.sum(np.array(p_values) <= 0.05), 500, 0.05, doubt=1e-3)


def test_rows_that_were_seen_are_predicted_from_the_others():
    """Against the exact leave-one-out density of the Gaussian model."""
    data = wb.zoo.gaussian.simulate(40, seed=3)
    model = wb.zoo.gaussian.model()
    draws = np.random.default_rng(0).normal(data.sum() / 41, math.sqrt(1 / 41), 20_000)
    cloud = Cloud(jnp.asarray(draws)[None, :, None], jnp.zeros((1, 20_000)), None)
    score, _ = detection.row_statistics(model, cloud, data, np.ones(40))
    centre = (data.sum() - data) / 40
    exact = stats.norm.logpdf(data, centre, math.sqrt(1 + 1 / 40))
    np.testing.assert_allclose(score, exact, atol=0.05)


# --- a stream -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "sign"),
    [
        (shifted(before=410, mean=1.0), -1),
        (shifted(before=410, mean=-1.0), -1),
        (shifted(before=410, mean=0.0, noise=2.5), -1),
        (shifted(before=410, mean=0.0, noise=0.3), +1),
    ],
)
def test_a_change_is_found_within_its_chunk(data, sign):
    online = wb.Online(WIDE, SMALL, changes=wb.Changes())
    updates = feed(online, data)
    (change,) = online.changes
    assert abs(change.row - 410) <= 6
    assert (change.chunk_start, change.chunk_end) == (400, 450)
    assert change.p_value <= 1e-3
    assert math.copysign(1, change.score) == sign
    assert [u.changes for u in updates if u.changes] == [(change,)]
    assert online.result().diagnostics["change_points"] == [change.row]
    assert f"change at row {change.row}" in str(change)


def test_annealing_steps_corroborate_a_change():
    online = wb.Online(WIDE, SMALL, changes=wb.Changes())
    feed(online, shifted(mean=3.0, before=450))
    assert online.changes[0].annealing_steps >= 2


def test_the_numbers_are_those_of_a_run_that_does_not_look():
    plain, looks = wb.Online(WIDE, SMALL), wb.Online(WIDE, SMALL, changes=wb.Changes())
    first, second = feed(plain, shifted())[-1], feed(looks, shifted())[-1]
    assert numbers_of(first) == numbers_of(second)


@pytest.mark.parametrize("method", [SMALL, wb.IBIS(num_islands=4, num_particles=32)])
def test_a_restart_adds_up_the_evidence_of_both_sides(method):
    data = shifted()
    online = wb.Online(WIDE, method, changes=wb.Changes(policy="restart"))
    update = feed(online, data)[-1]
    result = online.result()
    (row,) = result.diagnostics["restarts"]
    sides = data[:row], data[row:]
    exact = sum(wb.zoo.gaussian.log_evidence(side, prior_scale=3.0) for side in sides)
    assert abs(row - 430) <= 6
    assert abs(result.log_evidence - exact) < 4 * result.std_error + 1e-6
    assert abs(update.log_evidence - exact) < 4 * update.std_error
    assert result.num_observations == update.num_observations == online.num_observations == 830
    assert wb.Status.RESTARTED in result.flags
    assert wb.Status.RESTARTED in update.flags
    assert result.trace["rows"][-1] == 830
    assert np.all(np.diff(result.trace["rows"]) > 0)
    # The posterior is that of the rows since the restart.
    mean = np.exp(result.log_weights) @ result.samples["mu"]
    assert abs(mean - data[row:].mean()) < 0.1


def test_after_a_change_the_next_is_found():
    data = np.concatenate([shifted(before=400, after=300), shifted(seed=1, before=0, mean=-1.0)])
    for policy in ("keep", "restart"):
        online = wb.Online(WIDE, SMALL, changes=wb.Changes(policy=policy))
        feed(online, data)
        rows = [change.row for change in online.changes]
        assert len(rows) == 2
        assert np.abs(np.array(rows) - [400, 700]).max() <= 6


@pytest.mark.parametrize("policy", ["keep", "restart"])
@pytest.mark.parametrize("stop", [6, 12])
def test_a_resumed_run_is_the_same_bit_for_bit(tmp_path, policy, stop):
    data, changes = shifted(), wb.Changes(policy=policy)
    online = wb.Online(WIDE, SMALL, seed=3, changes=changes)
    updates = []
    for number, start in enumerate(range(0, 830, 50)):
        if number == stop:
            online.save(tmp_path / "run.ckpt")
            resumed = wb.Online.load(tmp_path / "run.ckpt", WIDE, SMALL)
            assert repr(resumed.changes) == repr(online.changes)
        updates.append(online.update(data[start : start + 50]))
        if number >= stop:
            assert numbers_of(resumed.update(data[start : start + 50])) == numbers_of(updates[-1])
    first, second = online.result(), resumed.result()
    assert first.log_evidence == second.log_evidence
    np.testing.assert_array_equal(first.trace["log_evidence"], second.trace["log_evidence"])
    assert repr(online.changes) == repr(resumed.changes)


def test_chunks_of_other_sizes_compile_nothing():
    online = wb.Online(WIDE, SMALL, changes=wb.Changes())
    feed(online, shifted(before=400, after=0))
    before = detection._block_values.num_traces()
    for size in (50, 7, 33, 49):
        online.update(shifted(seed=9, before=size, after=0))
    assert detection._block_values.num_traces() == before


def test_a_long_update_is_cut_to_chunks_that_do_not_grow():
    online = wb.Online(WIDE, wb.SGAIS(num_islands=4, num_particles=16), changes=wb.Changes())
    update = online.update(shifted(before=3000, after=400))
    (change,) = update.changes
    assert abs(change.row - 3000) <= 6
    assert change.chunk_end - change.chunk_start <= 500


def test_rows_that_count_several_times():
    rows = wb.zoo.linear.simulate(400, num_features=2, seed=0)
    moved = np.where(np.arange(400) >= 310, rows["y"] + 2, rows["y"])
    weight = 1.0 + np.arange(400) % 3
    online = wb.Online(LINEAR, SMALL, changes=wb.Changes())
    for i in range(0, 400, 50):
        part = slice(i, i + 50)
        online.update({"x": rows["x"][part], "y": moved[part], "weight": weight[part]})
    (change,) = online.changes
    assert abs(change.row - 310) <= 6
    assert online.num_observations == weight.sum()


def test_a_failed_restart_leaves_the_run_as_it_was():
    """A chunk that is impossible for the fresh run is refused, and the run goes on."""
    model = wb.Model(
        {"mu": dist.Normal(0.0, 1.0)},
        lambda p, y: jnp.where(y < 50, -0.5 * (y - p["mu"]) ** 2, -jnp.inf),
    )
    numbers = np.random.default_rng(0)
    online = wb.Online(model, SMALL, changes=wb.Changes(policy="restart"))
    feed(online, numbers.normal(size=200))
    state = repr(online._session.run.state())
    with pytest.raises(wb.ModelError, match="-inf"):
        online.update(np.full(50, 60.0))
    assert repr(online._session.run.state()) == state
    assert online.changes == []
    assert online.update(numbers.normal(size=50)).num_observations == 250


def test_a_fading_past_counts_less():
    fading = detection._fade(np.ones(3), 1.0)
    np.testing.assert_allclose(fading, [0.125, 0.25, 0.5])
    method = dataclasses.replace(SMALL, half_life=200.0)
    online = wb.Online(WIDE, method, changes=wb.Changes())
    feed(online, shifted())
    assert abs(online.changes[0].row - 430) <= 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"false_alarm_rate": 0}, "false_alarm_rate must lie between"),
        ({"false_alarm_rate": True}, "false_alarm_rate must lie between"),
        ({"policy": "panic"}, "policy is 'panic'"),
        ({"window": 10}, "Raise window"),
        ({"min_rows": 2.5}, "min_rows must be a whole number"),
        ({"compete": True, "policy": "restart"}, 'Use policy="keep"'),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(wb.MethodError, match=message):
        wb.Changes(**settings)


def test_wrong_use_is_named(tmp_path):
    with pytest.raises(wb.MethodError, match=r"changes must be a wb\.Changes"):
        wb.Online(WIDE, SMALL, changes=0.01)
    with pytest.raises(wb.MethodError, match=r"changes must be a wb\.Changes"):
        wb.OnlineComparison({"a": WIDE}, SMALL, changes=0.01)
    whole = wb.Model({"mu": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -(p["mu"] ** 2))
    with pytest.raises(wb.ModelError, match="row by row"):
        wb.Online(whole, SMALL, changes=wb.Changes())


# --- several models -----------------------------------------------------------------------------

MODELS = {"wide": WIDE, "narrow": wb.zoo.gaussian.model(prior_scale=1.0)}


def exact_sides(data, row, scale):
    sides = data[:row], data[row:]
    return sum(wb.zoo.gaussian.log_evidence(side, prior_scale=scale) for side in sides)


def test_the_leading_model_tells_of_a_change():
    online = wb.OnlineComparison(MODELS, SMALL, changes=wb.Changes())
    updates = feed(online, shifted())
    (change,) = online.changes
    assert abs(change.row - 430) <= 6
    assert change.model in MODELS
    assert online.names == list(MODELS)
    assert [u.changes for u in updates if u.changes] == [(change,)]
    assert change.model in str(next(u for u in updates if u.changes))


def test_all_models_restart_at_the_same_row():
    data = shifted()
    online = wb.OnlineComparison(MODELS, SMALL, changes=wb.Changes(policy="restart"))
    feed(online, data)
    (change,) = online.changes
    found = online.result().results
    for name, scale in (("wide", 3.0), ("narrow", 1.0)):
        assert found[name].diagnostics["restarts"] == [change.row]
        exact = exact_sides(data, change.row, scale)
        assert found[name].log_evidence == pytest.approx(exact, abs=0.01)
    with pytest.raises(wb.MethodError, match="begun anew"):
        online.add("late", wb.zoo.gaussian.model(prior_scale=2.0))


def test_a_changed_world_competes(tmp_path):
    data = shifted()
    online = wb.OnlineComparison(MODELS, SMALL, changes=wb.Changes(compete=True))
    feed(online, data[:600])
    (change,) = online.changes
    name = f"{change.model} | changed at {change.row}"
    assert online.names == [*MODELS, name]
    assert online.probabilities[name] > 0.999
    assert online.prior_odds[name] == pytest.approx(1e-4 * online.prior_odds[change.model])
    online.save(tmp_path / "run.ckpt")
    resumed = wb.OnlineComparison.load(tmp_path / "run.ckpt", MODELS, SMALL)
    for update, again in zip(feed(online, data[600:]), feed(resumed, data[600:]), strict=True):
        assert numbers_of(update) == numbers_of(again)
    scale = {"wide": 3.0, "narrow": 1.0}[change.model]
    exact = exact_sides(data, change.row, scale)
    assert online.result().results[name].log_evidence == pytest.approx(exact, abs=0.01)
    unchanged = wb.zoo.gaussian.log_evidence(data, prior_scale=scale)
    assert online.result().results[change.model].log_evidence == pytest.approx(unchanged, abs=0.01)
    assert math.isfinite(online.history[f"log_predictive[{name}]"][-1])
    for either in (online, resumed):
        assert wb.Status.RESTARTED not in either.flags[name]


def test_the_least_probable_competitors_go():
    levels = [0.0, 2.0, -2.0, 2.0]
    numbers = np.random.default_rng(0)
    data = np.concatenate([numbers.normal(level, 1, 200) for level in levels])
    changes = wb.Changes(compete=True, max_competitors=1)
    online = wb.OnlineComparison({"wide": WIDE}, SMALL, changes=changes)
    feed(online, data)
    rows = [change.row for change in online.changes]
    assert len(rows) == 3
    assert np.abs(np.array(rows) - [200, 400, 600]).max() <= 6
    assert online.names == ["wide", "wide" + "".join(f" | changed at {row}" for row in rows)]


def test_a_failed_update_of_several_models_leaves_no_trace():
    online = wb.OnlineComparison(MODELS, SMALL, changes=wb.Changes(compete=True))
    feed(online, shifted()[:400])
    before = online.log_evidences
    contest = online._entrants.contest

    def fail(*_):
        raise RuntimeError("the disk is on fire")

    contest.detector.keep = fail
    with pytest.raises(RuntimeError):
        online.update(shifted()[400:450])
    assert online.log_evidences == before
    assert online.names == list(MODELS)
    assert online.changes == []
    del contest.detector.keep
    assert online.update(shifted()[400:450]).changes[0].chunk_start == 400
