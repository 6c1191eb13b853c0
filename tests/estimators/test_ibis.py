"""Rows one by one with exact targets: evidence of every first part, streams, and failures."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.estimators.annealing.moves.adaptive import MOVES
from weighbridge.estimators.ibis.look_ahead import _row_values, look_ahead
from weighbridge.estimators.ibis.row_store import FIRST_CAPACITY, Store
from weighbridge.models.targets.rows import Rows

# |z| of a calibrated estimate is Student-t with 15 degrees: beyond 5.5 in one of 20,000 cases.
BOUND = 5.5
SMALL = wb.IBIS(num_islands=16, num_particles=32)
GAUSSIAN = wb.zoo.gaussian.model()
DATA = wb.zoo.gaussian.simulate(300, seed=1)
LINEAR = wb.zoo.linear.model(3)


def score(result, exact):
    return (result.log_evidence - exact) / result.std_error


# --- against exact evidence ---------------------------------------------------------------------


@pytest.mark.long
def test_calibrated_over_seeds():
    exact = wb.zoo.gaussian.log_evidence(DATA[:100])
    results = [wb.evidence(GAUSSIAN, DATA[:100], SMALL, seed=seed) for seed in range(40)]
    z = np.array([score(result, exact) for result in results])
    assert np.all(np.abs(z) < BOUND)
    # Over 40 seeds the mean has an error of 0.16, the standard deviation one of 0.12.
    assert abs(z.mean()) < 0.8
    assert 0.6 < z.std(ddof=1) < 1.5
    assert all(0.03 < result.std_error < 0.3 for result in results)
    assert all(result.status is wb.Status.OK for result in results)


def test_linear_regression():
    data = wb.zoo.linear.simulate(1000, num_features=3, seed=4)
    exact = wb.zoo.linear.log_evidence(data)
    results = [wb.evidence(LINEAR, data, SMALL, seed=seed) for seed in (1, 2, 3)]
    z = np.array([score(result, exact) for result in results])
    assert np.all(np.abs(z) < BOUND)
    assert abs(z.mean()) < 3.5
    assert all(result.std_error < 0.6 for result in results)
    # The evidence of every first part comes along; its errors are those of one path.
    trace = results[0].trace
    assert len(trace.rows) > 10
    assert np.all(np.diff(trace.rows) > 0)
    path = wb.zoo.linear.log_evidence_path(data, trace.rows.astype(int))
    assert np.all(np.abs(trace.log_evidence - path) < BOUND * trace.std_error)
    assert np.all((trace.ess > 1) & (trace.ess <= 32))
    # Stages take in ever more rows.
    assert np.count_nonzero(trace.rows < 100) > np.count_nonzero(trace.rows > 500)


def test_the_posterior():
    result = wb.evidence(GAUSSIAN, DATA, SMALL, seed=5)
    mean, sd = DATA.sum() / 301, 301**-0.5
    draws = result.resample(512, seed=0)["mu"]
    # Resampled particles share ancestors: count a quarter of them as independent.
    assert abs(draws.mean() - mean) < 5 * sd / np.sqrt(128)
    assert draws.std() == pytest.approx(sd, rel=0.3)
    assert np.exp(result.log_weights).sum() == pytest.approx(1)


def test_a_row_that_is_too_much_is_tempered():
    rows = np.array([40.0, 41.0, 0.5])
    results = [wb.evidence(GAUSSIAN, rows, SMALL, seed=seed) for seed in (1, 2)]
    exact = wb.zoo.gaussian.log_evidence(rows)
    for result in results:
        assert abs(score(result, exact)) < BOUND
        assert result.trace.annealing_steps[0] > 3
        assert result.std_error < 1.5


def test_weights_count_repeated_rows():
    data = wb.zoo.linear.simulate(40, num_features=3, seed=6)
    data["weight"] = np.tile([0.0, 1.0, 3.0, 2.0], 10)
    result = wb.evidence(LINEAR, data, SMALL, seed=1)
    assert result.num_observations == 60
    assert abs(score(result, wb.zoo.linear.log_evidence(data))) < BOUND
    assert result.trace.rows[-1] == 60


def test_islands_are_added_until_the_error_is_small():
    data = DATA[:60]
    first = wb.evidence(GAUSSIAN, data, SMALL, seed=1)
    result = wb.evidence(GAUSSIAN, data, SMALL, seed=1, tolerance=0.7 * first.std_error)
    islands = result.diagnostics["island_log_evidence"]
    assert len(islands) >= 32
    assert len(set(islands)) == len(islands), "other islands draw other numbers"
    assert result.std_error <= 0.7 * first.std_error
    assert abs(score(result, wb.zoo.gaussian.log_evidence(data))) < BOUND


# --- streams --------------------------------------------------------------------------------------


def test_where_a_stream_is_cut_does_not_matter():
    whole = wb.evidence(GAUSSIAN, DATA, SMALL, seed=3)
    online = wb.Online(GAUSSIAN, SMALL, seed=3)
    updates = [online.update(DATA[i : i + 1]) for i in range(20)]
    updates += [online.update(DATA[i : i + 93]) for i in range(20, 300, 93)]
    assert updates[-1].num_observations == 300
    assert updates[-1].log_evidence == pytest.approx(whole.log_evidence, abs=1e-9)
    assert sum(u.log_predictive for u in updates) == pytest.approx(whole.log_evidence, abs=1e-9)
    exact = wb.zoo.gaussian.log_evidence_path(DATA, [u.num_observations for u in updates])
    for update, value in zip(updates, exact, strict=True):
        assert abs(update.log_evidence - value) < BOUND * update.std_error
    steps = sum(update.annealing_steps for update in updates)
    assert steps == whole.trace.annealing_steps.sum()
    for name, draws in whole.samples.items():
        np.testing.assert_array_equal(online.result().samples[name], draws)


@pytest.mark.parametrize("stop", [0, 1, 47, 200])
def test_a_resumed_run_equals_an_uninterrupted_one(stop, tmp_path):
    path = tmp_path / "run.ckpt"
    whole, first = (wb.Online(GAUSSIAN, SMALL, seed=4) for _ in range(2))
    if stop:
        whole.update(DATA[:stop])
        first.update(DATA[:stop])
    first.save(path)
    resumed = wb.Online.load(path, GAUSSIAN, SMALL)
    for rows in (DATA[stop : stop + 7], DATA[stop + 7 :]):
        whole.update(rows)
        resumed.update(rows)
    (arrays, plain), (others, other_plain) = (o._session.run.state() for o in (whole, resumed))
    assert arrays.keys() == others.keys()
    for name, value in arrays.items():
        np.testing.assert_array_equal(value, others[name], err_msg=name)
    assert repr(plain) == repr(other_plain)
    assert whole.result().log_evidence == resumed.result().log_evidence


def test_another_method_is_not_resumed(tmp_path):
    path = tmp_path / "run.ckpt"
    wb.Online(GAUSSIAN, SMALL).save(path)
    for other in (dataclasses.replace(SMALL, target_ess=0.6), wb.SGAIS()):
        with pytest.raises(wb.CheckpointError, match="another method"):
            wb.Online.load(path, GAUSSIAN, other)


def test_more_rows_are_not_traced_again():
    wb.evidence(GAUSSIAN, DATA[:30], SMALL, seed=1)
    before = MOVES.num_traces(), _row_values.num_traces()
    wb.evidence(GAUSSIAN, DATA, dataclasses.replace(SMALL, target_ess=0.4), seed=2)
    wb.evidence(GAUSSIAN, wb.zoo.gaussian.simulate(2000, seed=9), SMALL, seed=2)
    assert (MOVES.num_traces(), _row_values.num_traces()) == before


def test_looking_ahead_stops_before_the_weights_degenerate():
    """By hand: particles at 0 and 1, where the log-likelihood of a row is 0 and -1/2."""
    model = wb.Model({"u": dist.Normal(0.0, 1.0)}, lambda p, y: y * p["u"])
    with jax.enable_x64(True):
        run = dataclasses.replace(SMALL, num_islands=1, num_particles=2).start(model)
        cloud = run.cloud._replace(position=jnp.array([[[0.0], [1.0]]]))
        rows = Rows(np.full(8, -0.5), np.array([1.0, 2.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0]))
        total = -0.5 * np.cumsum(rows.weight)
        ess = (1 + np.exp(total)) ** 2 / (1 + np.exp(2 * total))
        for threshold in (0.51, 0.6, 0.7):
            ahead = look_ahead(model, cloud, np.zeros((1, 2)), rows, 0, threshold)
            expected = np.argmax(ess < 2 * threshold) if (ess < 2 * threshold).any() else 8
            assert ahead.num_taken == expected
            np.testing.assert_allclose(ahead.gained, [[0.0, total[expected - 1]]])
        # From the fourth row on, with one nat gained before.
        later = look_ahead(model, cloud, np.array([[0.0, 1.0]]), rows, 3, 0.9)
        shifted = 1.0 - 0.5 * np.cumsum(rows.weight[3:])
        ess = (1 + np.exp(shifted)) ** 2 / (1 + np.exp(2 * shifted))
        assert later.num_taken == np.argmax(ess < 1.8) == 3
        np.testing.assert_allclose(later.gained, [[0.0, shifted[later.num_taken - 1]]])


def test_a_store_doubles_and_forgets():
    store = Store()
    values = {"a": np.arange(10.0), "b": np.arange(20).reshape(10, 2)}
    store.append(values, np.ones(10))
    with jax.enable_x64(True):
        early = store.rows()
        assert early.weight.shape == (FIRST_CAPACITY,)
        np.testing.assert_array_equal(early.values["a"][10:], 0.0)
        more = {"a": np.arange(FIRST_CAPACITY) + 10.0, "b": np.zeros((FIRST_CAPACITY, 2), int)}
        store.append(more, np.full(FIRST_CAPACITY, 2.0))
        grown = store.rows()
        assert grown.weight.shape == (2 * FIRST_CAPACITY,)
        np.testing.assert_array_equal(grown.values["b"][:10], values["b"])
        np.testing.assert_array_equal(grown.values["a"][:4000], np.arange(4000))
        store.cut(10)
        assert store.num_rows == 10
        np.testing.assert_array_equal(store.rows().values["a"][10:], 0.0)
        np.testing.assert_array_equal(early.values["a"][:10], np.arange(10))


# --- what goes wrong ------------------------------------------------------------------------------


def bounded(p, y):
    """y ~ U(0, mu); 9 says nothing; a negative row is not a number where mu < 1/2."""
    value = jnp.where(y < p["mu"], -jnp.log(p["mu"]), jnp.where(y == 9, 0.0, -jnp.inf))
    return jnp.where(y >= 0, value, jnp.where(p["mu"] < 0.5, jnp.nan, -1.0))


BOUNDED = wb.Model({"mu": dist.Uniform(0.0, 2.0)}, bounded)


def test_an_undefined_likelihood_names_its_row():
    with pytest.raises(wb.ModelError, match=r"not a number \(NaN\) at row 1 "):
        wb.evidence(BOUNDED, np.array([9.0, -1.0, 0.1]), SMALL, seed=0)


def test_rows_that_nothing_explains_leave_no_trace():
    rows = np.array([0.4, 0.3, 0.6, 0.1])
    online, other = (wb.Online(BOUNDED, SMALL, seed=1) for _ in range(2))
    online.update(rows)
    other.update(rows)
    with pytest.raises(wb.ModelError, match="-inf for every particle"):
        online.update(np.array([0.2, 1.2, 3.0]))
    assert online.num_observations == 4
    more = np.array([0.9, 0.2])
    assert online.update(more).log_evidence == other.update(more).log_evidence
    # Z = 1/2 int_0.9^2 mu^-6 dmu.
    exact = np.log((0.9**-5 - 2.0**-5) / 10)
    result = online.result()
    assert abs(score(result, exact)) < BOUND
    assert wb.Status.PARTICLES_DROPPED in result.flags


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_particles": 1}, "at least 2"),
        ({"num_islands": 0}, "num_islands must be a whole number"),
        ({"target_ess": 1.0}, "target_ess must lie between 0 and 1"),
        ({"resampling": "fair"}, "resampling is 'fair'"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(wb.MethodError, match=message):
        wb.IBIS(**changes)


def test_it_needs_rows():
    model = wb.Model({"mu": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -(p["mu"] ** 2))
    with pytest.raises(wb.ModelError, match="row by row"):
        wb.evidence(model, None, "ibis")
