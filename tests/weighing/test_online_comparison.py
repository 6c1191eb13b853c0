"""Models on one stream: exact factors, the same rows for all, late comers, saving and resuming."""

import contextlib
import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core import checkpoint_file
from weighbridge.weighing.online_comparison.catching_up import CatchUp
from weighbridge.weighing.online_comparison.checkpoint import SCHEMA
from weighbridge.weighing.online_comparison.history import History

pytestmark = pytest.mark.long

SMALL = wb.SGAIS(num_islands=16, num_particles=16, chunk_size=50)
OVERFLOWING = dataclasses.replace(SMALL, reservoir=60)
ROWS = wb.zoo.linear.simulate(300, num_features=2, seed=3)


def few(p, row):
    """A line through the first feature alone."""
    return dist.Normal(row["x"][0] * p["w"] + p["b"], 1.0).log_prob(row["y"])


PRIOR = {"w": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 1.0)}
MODELS = {"all": wb.zoo.linear.model(2), "few": wb.Model(PRIOR, few)}
# Of the same make: no program has to be compiled for the second.
ALIKE = {"wide": wb.Model(PRIOR | {"w": dist.Normal(0.0, 3.0)}, few), "few": MODELS["few"]}


def part(start, stop, **changes):
    return {name: column[start:stop] for name, column in ROWS.items()} | changes


def exact(stop):
    return {
        "all": wb.zoo.linear.log_evidence(part(0, stop)),
        "few": wb.zoo.linear.log_evidence({"x": ROWS["x"][:stop, :1], "y": ROWS["y"][:stop]}),
    }


def numbers(update):
    """Everything that an update says but the time it took."""
    return repr(dataclasses.replace(update, elapsed=0.0))


def same_runs(first, second):
    """Two comparisons are bit for bit in the same place."""
    assert first.names == second.names
    for name in first.names:
        (arrays, plain), (other, other_plain) = (
            comparison._entrants.sessions[name].run.state() for comparison in (first, second)
        )
        assert arrays.keys() == other.keys()
        for key in arrays:
            np.testing.assert_array_equal(arrays[key], other[key], err_msg=f"{name} {key}")
        assert repr(plain) == repr(other_plain)
    assert first._entrants.contest.checker.state() == second._entrants.contest.checker.state()
    assert first._entrants.contest.continuity.state() == second._entrants.contest.continuity.state()
    assert first.prior_odds == second.prior_odds
    for column in first.history:
        if column != "elapsed":
            np.testing.assert_array_equal(first.history[column], second.history[column])


# --- updates ------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_separate_runs():
    together = wb.OnlineComparison(MODELS, OVERFLOWING, seed=5)
    apart = {name: wb.Online(model, OVERFLOWING, seed=5) for name, model in MODELS.items()}
    before = dict.fromkeys(MODELS, 0.0)
    for start, stop in ((0, 30), (30, 170), (170, 171), (171, 300)):
        update = together.update(part(start, stop))
        for name, online in apart.items():
            alone = online.update(part(start, stop))
            assert update.log_evidences[name] == alone.log_evidence
            assert update.std_errors[name] == alone.std_error
            assert update.annealing_steps[name] == alone.annealing_steps
            assert update.flags[name] == alone.flags
            gained = alone.log_evidence - before[name]
            assert update.log_predictives[name] == gained == pytest.approx(alone.log_predictive)
            before[name] = alone.log_evidence
        assert update.num_observations == together.num_observations == stop
        assert update.log_evidences == together.log_evidences
        assert update.std_errors == together.std_errors
        assert update.probabilities == together.probabilities
        assert update.probability_errors == together.probability_errors
    result = together.result()
    for name, online in apart.items():
        alone = online.result()
        assert result.log_evidences[name] == alone.log_evidence
        assert result.std_errors[name] == alone.std_error
        np.testing.assert_array_equal(
            result.results[name].log_weights, alone.log_weights, err_msg=name
        )
    compared = wb.compare({name: online.result() for name, online in apart.items()}, seed=5)
    assert result.probabilities == compared.probabilities
    assert result.probability_errors == compared.probability_errors


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_factors_after_every_update_are_right(seed):
    online = wb.OnlineComparison(MODELS, SMALL, seed=seed)
    for stop in range(50, 301, 50):
        update = online.update(part(stop - 50, stop))
        truth = exact(stop)
        error = math.hypot(*update.std_errors.values())
        factor = update.log_evidences["all"] - update.log_evidences["few"]
        # Eighteen in all, each a Student t of about 15 degrees: beyond 5 once in 300 such tests.
        assert abs(factor - (truth["all"] - truth["few"])) < 5 * error


def test_prior_odds_count():
    online = wb.OnlineComparison(MODELS, SMALL, prior_odds={"few": 3.0, "all": 1.0})
    assert online.probabilities == {"all": 0.25, "few": 0.75}
    update = online.update(part(0, 4))
    odds = update.log_evidences["all"] - update.log_evidences["few"] - math.log(3.0)
    assert update.probabilities["all"] == pytest.approx(1 / (1 + math.exp(-odds)))
    assert 0 < update.probability_errors["all"] < 0.5


def test_a_method_for_each_model():
    methods = {"few": wb.IBIS(num_islands=4, num_particles=16), "all": SMALL}
    online = wb.OnlineComparison(MODELS, methods, seed=2)
    update = online.update(part(0, 60))
    for name, model in MODELS.items():
        alone = wb.Online(model, methods[name], seed=2).update(part(0, 60))
        assert update.log_evidences[name] == alone.log_evidence


def test_predictions_are_weighed_by_the_evidence():
    online = wb.OnlineComparison(MODELS, SMALL)
    online.update(part(0, 60))

    def line(p, x):
        return x[: jnp.size(p["w"])] @ jnp.atleast_1d(p["w"]) + p["b"]

    told = online.predict(line, ROWS["x"][:3], num_draws=200, seed=4)
    expected = wb.average(online.result(), line, ROWS["x"][:3], num_draws=200, seed=4)
    np.testing.assert_array_equal(told.draws, expected.draws)
    assert told.probabilities == online.result().probabilities


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": {}}, "one or more"),
        ({"models": [MODELS["all"]]}, "mapping"),
        ({"models": {"a": "linear"}}, "'a' must be a wb.Model"),
        ({"models": {1: MODELS["all"]}}, "must be a text"),
        ({"models": MODELS, "prior_odds": {"all": 1.0}}, "prior_odds must name"),
        ({"models": MODELS, "prior_odds": {"all": 1.0, "few": 0.0}}, "positive"),
        ({"models": MODELS, "method": {"all": SMALL}}, "method must name"),
        ({"models": MODELS, "method": "smc"}, "needs all the data"),
        ({"models": MODELS, "seed": -1}, "seed"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(wb.MethodError, match=message):
        wb.OnlineComparison(**{"method": SMALL} | arguments)


# --- bad rows and failures ----------------------------------------------------------------------


def positive(values):
    return {"y is not positive": values["y"] <= 0}


def moderate(values):
    return {"the first feature is too large": values["x"][:, 0] > 1.0}


PICKY = {
    "positive": wb.Model(PRIOR, few, check_rows=positive),
    "moderate": wb.Model(PRIOR, few, check_rows=moderate),
}


def test_a_row_that_is_bad_for_one_is_left_out_for_all(tmp_path):
    file = tmp_path / "bad.jsonl"
    online = wb.OnlineComparison(PICKY, SMALL, on_bad_row="quarantine", quarantine=file)
    y = ROWS["y"][:80].copy()
    y[7] = np.nan
    update = online.update(part(0, 80, y=y))
    good = np.isfinite(y) & (y > 0) & (ROWS["x"][:80, 0] <= 1.0)
    assert update.num_observations == good.sum() > 10
    assert (update.rows_skipped, update.rows_quarantined) == (0, (~good).sum())
    assert len(file.read_text().splitlines()) == (~good).sum()
    clean = wb.OnlineComparison(PICKY, SMALL)
    alone = clean.update({"x": ROWS["x"][:80][good], "y": y[good]})
    assert update.log_evidences == alone.log_evidences
    assert online.result().rows_quarantined == (~good).sum()
    with pytest.raises(wb.DataError, match="not positive"):
        wb.OnlineComparison(PICKY, SMALL).update(part(0, 80))


def test_an_update_of_bad_rows_alone_changes_no_evidence():
    online = wb.OnlineComparison(MODELS, SMALL, on_bad_row="skip")
    first = online.update(part(0, 5, y=np.full(5, np.nan)))
    assert (first.num_observations, first.rows_skipped) == (0, 5)
    assert first.log_evidences == {"all": 0.0, "few": 0.0}
    with pytest.raises(wb.DataError, match="no row to weigh"):
        online.result()
    update = online.update(part(0, 60))
    assert (
        update.log_evidences == wb.OnlineComparison(MODELS, SMALL).update(part(0, 60)).log_evidences
    )


def bounded(p, row):
    return jnp.where(row["y"] < 50.0, few(p, row), -jnp.inf)


FRAGILE = {"few": MODELS["few"], "bounded": wb.Model(PRIOR, bounded)}


@pytest.mark.parametrize("first", [0, 130], ids=["fresh", "overflowed"])
@pytest.mark.parametrize(
    "method", [OVERFLOWING, wb.IBIS(num_islands=4, num_particles=16)], ids=["sgais", "ibis"]
)
def test_a_failure_of_one_model_leaves_all_as_they_were(method, first):
    """It fails in the last of several chunks, when others have absorbed the first ones."""
    runs = [wb.OnlineComparison(FRAGILE, method, seed=1) for _ in range(2)]
    if first:
        for run in runs:
            run.update(part(0, first), identifier=1)
    online, clean = runs
    y = ROWS["y"][first : first + 150].copy()
    y[-1] = 100.0
    with pytest.raises(wb.ModelError, match="-inf for every") as failed:
        online.update(part(first, first + 150, y=y), identifier=2)
    assert "'bounded'" in "".join(failed.value.__notes__)
    same_runs(online, clean)
    expected = clean.update(part(first, first + 150), identifier=2)
    assert numbers(online.update(part(first, first + 150), identifier=2)) == numbers(expected)
    same_runs(online, clean)


def test_an_interrupt_leaves_all_as_they_were(monkeypatch):
    online, clean = (wb.OnlineComparison(MODELS, OVERFLOWING, seed=1) for _ in range(2))
    for run in (online, clean):
        run.update(part(0, 130))
    absorb = type(online._entrants.sessions["few"].run).absorb
    calls = []

    def interrupted(run, values, weight):
        absorb(run, values, weight)
        calls.append(run)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(online._entrants.sessions["few"].run), "absorb", interrupted)
        with pytest.raises(KeyboardInterrupt):
            online.update(part(130, 300))
    same_runs(online, clean)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (part(60, 130, y=np.where(np.arange(70) == 64, np.nan, 0.0)), "row 124 "),
        (part(60, 130, x=np.ones((70, 3))), "changed shape"),
        (part(60, 60), "no rows"),
    ],
)
def test_a_bad_update_changes_nothing(bad, message):
    online, clean = (wb.OnlineComparison(MODELS, SMALL, seed=1) for _ in range(2))
    for run in (online, clean):
        run.update(part(0, 60))
    with pytest.raises(wb.DataError, match=message):
        online.update(bad, identifier="a")
    same_runs(online, clean)


# --- identifiers --------------------------------------------------------------------------------


def test_rows_that_come_again_are_not_taken_again(tmp_path):
    online = wb.OnlineComparison(MODELS, SMALL)
    first = online.update(part(0, 60), identifier=7)
    assert first.notices == ()
    again = online.update(part(0, 60), identifier=7)
    assert [notice.kind for notice in again.notices] == ["duplicate"]
    assert again.log_evidences == first.log_evidences
    assert set(again.log_predictives.values()) == {0.0}
    assert online.history.num_entries == 1
    online.save(tmp_path / "c")
    online = wb.OnlineComparison.load(tmp_path / "c", MODELS, SMALL)
    assert online.update(part(0, 60), identifier=7).notices[0].kind == "duplicate"
    later = online.update(part(60, 120), identifier=9)
    assert [notice.kind for notice in later.notices] == ["gap"]
    assert later.num_observations == 120
    assert "8" in str(later).splitlines()[-1]


# --- models that come late ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["arrays", "file"])
def test_a_model_replays_the_rows_seen(tmp_path, kind):
    online = wb.OnlineComparison({"few": MODELS["few"]}, OVERFLOWING, seed=2, on_bad_row="skip")
    y = ROWS["y"].copy()
    y[[3, 111]] = np.nan
    data = part(0, 300, y=y)
    for start in range(0, 200, 50):
        online.update({name: column[start : start + 50] for name, column in data.items()})
    source = data
    if kind == "file":
        source = tmp_path / "rows.npz"
        np.savez(source, **data)
    caught_up = online.add("all", MODELS["all"], source, prior_odds=2.0)
    assert (caught_up.how, caught_up.num_rows, caught_up.sampling_error) == ("replayed", 198, 0.0)
    assert online.caught_up("all") == caught_up
    assert "198 rows were replayed" in str(caught_up)
    good = np.flatnonzero(np.isfinite(y[:200]))
    seen = {name: column[good] for name, column in ROWS.items()}
    truth = wb.zoo.linear.log_evidence(seen)
    assert abs(online.log_evidences["all"] - truth) < 5 * online.std_errors["all"]
    assert online.prior_odds == {"few": 1.0, "all": 2.0}
    update = online.update(part(200, 300))
    assert update.num_observations == 298
    assert math.isnan(online.history["log_evidence[all]"][-2])
    assert online.result().rows_skipped == 2


@pytest.mark.parametrize("method", [SMALL, wb.IBIS(num_islands=4, num_particles=16)])
def test_a_complete_reservoir_is_exact(method):
    online = wb.OnlineComparison({"wide": ALIKE["wide"]}, method, seed=2)
    weight = np.tile([1.0, 2.0], 60)
    online.update(part(0, 120, weight=weight))
    caught_up = online.add("few", MODELS["few"])
    assert (caught_up.how, caught_up.sampling_error) == ("reservoir", 0.0)
    assert "all 120 rows" in str(caught_up)
    truth = wb.zoo.linear.log_evidence(part(0, 120, x=ROWS["x"][:120, :1], weight=weight))
    assert abs(online.log_evidences["few"] - truth) < 5 * online.std_errors["few"]
    assert wb.Status.PAST_SAMPLED not in online.flags["few"]
    assert online.update(part(120, 180, weight=np.ones(60))).num_observations == 240


@pytest.mark.parametrize("seed", range(6))
def test_a_sample_of_the_past_is_stated_in_the_error(seed):
    rows = wb.zoo.linear.simulate(400, num_features=2, seed=10 + seed)
    online = wb.OnlineComparison({"few": MODELS["few"]}, OVERFLOWING, seed=seed)
    online.update({name: column[:300] for name, column in rows.items()})
    caught_up = online.add("all", MODELS["all"])
    assert caught_up.how == "reservoir"
    # n sd / sqrt(R) with sd about 1/sqrt(2), and what is fitted better than it is.
    assert 5 < caught_up.sampling_error < 40
    update = online.update({name: column[300:] for name, column in rows.items()})
    assert update.flags["all"][0] is wb.Status.PAST_SAMPLED
    assert update.num_observations == 400
    result = online.result()
    truth = wb.zoo.linear.log_evidence(rows)
    # More than 10 nats are no error to compare models with: it is withheld in the result.
    claimed = result.results["all"].claimed_error
    assert claimed >= caught_up.sampling_error
    for found in (update, result):
        assert np.isnan(found.std_errors["all"]) == (claimed > 10)
        assert abs(found.log_evidences["all"] - truth) < 3 * claimed
    # What came after the model was there is known as well as ever.
    before = wb.zoo.linear.log_evidence({name: column[:300] for name, column in rows.items()})
    assert abs(update.log_predictives["all"] - (truth - before)) < 5
    assert result.results["all"].diagnostics["sampling_error"] == caught_up.sampling_error


def test_a_model_that_cannot_catch_up_changes_nothing():
    online = wb.OnlineComparison({"few": MODELS["few"]}, SMALL, seed=2)
    online.update(part(0, 100))
    picky = PICKY["moderate"]
    attempts = [
        (("all", MODELS["all"], part(0, 99)), wb.DataError, "has 99 rows.*seen 100"),
        (("all", MODELS["all"], iter([part(0, 60)])), wb.DataError, "has 60 rows"),
        (("all", MODELS["all"], part(0, 100, y=ROWS["y"][:100] * np.nan)), wb.DataError, "are bad"),
        (("few", MODELS["all"]), wb.MethodError, "already"),
        (("all", "linear"), wb.MethodError, "wb.Model"),
        (("picky", picky), wb.DataError, "cannot take"),
        (("picky", picky, part(0, 100)), wb.DataError, "cannot take"),
    ]
    clean = wb.OnlineComparison({"few": MODELS["few"]}, SMALL, seed=2)
    clean.update(part(0, 100))
    for arguments, kind, message in attempts:
        with pytest.raises(kind, match=message):
            online.add(*arguments)
        assert online.names == ["few"]
    with pytest.raises(wb.MethodError, match="positive"):
        online.add("all", MODELS["all"], prior_odds=-1.0)
    same_runs(online, clean)


def test_a_run_that_forgets_has_no_sample_of_the_past():
    online = wb.OnlineComparison(
        {"few": MODELS["few"]}, dataclasses.replace(SMALL, half_life=40), seed=2
    )
    online.update(part(0, 100))
    with pytest.raises(wb.MethodError, match="Give the source"):
        online.add("all", MODELS["all"])
    assert online.add("all", MODELS["all"], ROWS, method=SMALL).how == "replayed"


def test_a_model_added_before_the_first_row_has_nothing_to_catch_up_with():
    online = wb.OnlineComparison({"few": MODELS["few"]}, SMALL)
    assert online.add("all", MODELS["all"]) == CatchUp("start", 0)
    both = wb.OnlineComparison({"few": MODELS["few"], "all": MODELS["all"]}, SMALL)
    assert numbers(online.update(part(0, 60))) == numbers(both.update(part(0, 60)))


# --- saving and resuming ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", [OVERFLOWING, wb.IBIS(num_islands=4, num_particles=16)], ids=["sgais", "ibis"]
)
def test_a_comparison_resumes_at_every_chunk(tmp_path, method):
    """Each resumed run ends where the uninterrupted one does, bit for bit."""
    path, stops = tmp_path / "c.ckpt", range(40, 201, 40)
    whole = wb.OnlineComparison(ALIKE, method, seed=4)
    saved = {}
    for stop in stops:
        whole.update(part(stop - 40, stop), identifier=stop // 40)
        whole.save(path, extra={"cursor": {"offset": stop}})
        saved[stop] = path.read_bytes()
    for stop in stops:
        path.write_bytes(saved[stop])
        resumed = wb.OnlineComparison.load(path, ALIKE, method)
        assert resumed.extra == {"cursor": {"offset": stop}}
        for later in stops:
            if later > stop:
                resumed.update(part(later - 40, later), identifier=later // 40)
        same_runs(resumed, whole)
    assert resumed.result().log_evidences == whole.result().log_evidences
    assert [p.name for p in tmp_path.iterdir()] == ["c.ckpt"]


def test_late_comers_and_quarantined_rows_resume(tmp_path):
    path, file = tmp_path / "c.ckpt", tmp_path / "bad.jsonl"
    first = {"few": MODELS["few"]}
    whole = wb.OnlineComparison(
        first, OVERFLOWING, prior_odds={"few": 3.0}, on_bad_row="quarantine", quarantine=file
    )
    whole.update(part(0, 130, y=np.where(np.arange(130) % 9 == 0, np.nan, ROWS["y"][:130])))
    whole.add("all", MODELS["all"])
    whole.save(path)
    models = {"all": MODELS["all"], **first}
    resumed = wb.OnlineComparison.load(path, models, OVERFLOWING, quarantine=file)
    assert resumed.caught_up("all") == whole.caught_up("all")
    assert resumed.std_errors == whole.std_errors
    assert numbers(resumed.update(part(130, 200))) == numbers(whole.update(part(130, 200)))
    same_runs(resumed, whole)


def test_rows_that_models_share_are_saved_once(tmp_path):
    alone, both = tmp_path / "alone", tmp_path / "both"
    rows = wb.zoo.linear.simulate(900, num_features=2, seed=3)
    for path, models in ((alone, {"all": MODELS["all"]}), (both, MODELS)):
        online = wb.OnlineComparison(models, SMALL)
        online.update(rows)
        online.save(path)
    assert both.stat().st_size < 1.5 * alone.stat().st_size


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "c.ckpt"
    online = wb.OnlineComparison(MODELS, OVERFLOWING, seed=0)
    online.update(part(0, 130), identifier="first")
    online.save(path)
    return path


@pytest.mark.parametrize(
    ("models", "method", "message"),
    [
        ({"all": MODELS["all"]}, OVERFLOWING, "with the models"),
        (MODELS | {"more": MODELS["all"]}, OVERFLOWING, "with the models"),
        ({"all": MODELS["few"], "few": MODELS["few"]}, OVERFLOWING, "another model of 'all'"),
        (MODELS, SMALL, "another method of 'all'"),
        (MODELS, {"all": OVERFLOWING, "few": SMALL}, "another method of 'few'"),
    ],
)
def test_other_models_and_methods_are_refused(saved, models, method, message):
    with pytest.raises(wb.CheckpointError, match=message):
        wb.OnlineComparison.load(saved, models, method)


def test_a_run_of_one_model_is_not_a_comparison(saved, tmp_path):
    wb.Online(MODELS["all"], SMALL).save(tmp_path / "one")
    with pytest.raises(wb.CheckpointError, match=r"holds weighbridge\.online\."):
        wb.OnlineComparison.load(tmp_path / "one", MODELS, SMALL)
    with pytest.raises(wb.CheckpointError, match=r"holds weighbridge\.online_comparison"):
        wb.Online.load(saved, MODELS["all"], OVERFLOWING)


def variants(array):
    """The array with another shape or type."""
    yield array[None]
    yield array.astype(np.float32 if array.dtype == np.float64 else np.float64)
    if array.ndim:
        yield array[:-1] if len(array) else np.ones((3, *array.shape[1:], 2), array.dtype)
        yield np.concatenate([array, array])[: len(array) + 1] if len(array) else array[None]
    yield np.zeros(array.shape, np.uint8 if array.dtype != np.uint8 else np.int8)


def test_arrays_of_another_shape_or_type_are_refused(saved, tmp_path):
    arrays, metadata = checkpoint_file.read(saved, SCHEMA)
    broken = tmp_path / "broken"
    accepted = []
    for name, array in arrays.items():
        for number, changed in enumerate(variants(array)):
            checkpoint_file.write(broken, SCHEMA, arrays | {name: changed}, metadata)
            try:
                wb.OnlineComparison.load(broken, MODELS, OVERFLOWING)
            except wb.CheckpointError:
                continue
            accepted.append((name, number))
        checkpoint_file.write(
            broken, SCHEMA, {k: v for k, v in arrays.items() if k != name}, metadata
        )
        with pytest.raises(wb.CheckpointError, match="broken"):
            wb.OnlineComparison.load(broken, MODELS, OVERFLOWING)
    # The path of a run and the history may have any length.
    allowed = {"0/path", "1/path", "history"}
    assert {name for name, _ in accepted} <= allowed, accepted


def places(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


WRONG = (None, "x", [], {}, -1, 1e90, True, [[[["deep"]]]])


def test_metadata_of_other_types_raise_nothing_untyped(saved, tmp_path):
    """Refused when it is loaded, or harmless: the run that comes out of it can go on."""
    arrays, metadata = checkpoint_file.read(saved, SCHEMA)
    found = [path for path in places(metadata) if path and path[0] not in ("library", "precision")]
    assert len(found) > 100
    broken, refused = tmp_path / "broken", 0
    generator = np.random.default_rng(0)
    for path in found:
        wrong = WRONG[generator.integers(len(WRONG))]
        checkpoint_file.write(broken, SCHEMA, arrays, replaced(metadata, path, wrong))
        try:
            loaded = wb.OnlineComparison.load(broken, MODELS, OVERFLOWING)
        except wb.CheckpointError:
            refused += 1
            continue
        with contextlib.suppress(wb.WeighbridgeError):
            loaded.update(part(130, 140))
    assert refused > 0.5 * len(found)


# --- history ------------------------------------------------------------------------------------


def test_history_is_a_table():
    online = wb.OnlineComparison(MODELS, SMALL, on_bad_row="skip")
    updates = [online.update(part(start, start + 20)) for start in range(0, 260, 20)]
    history = online.history
    assert history["rows"].tolist() == list(range(20, 261, 20))
    np.testing.assert_array_equal(
        history["log_evidence[all]"], [update.log_evidences["all"] for update in updates]
    )
    np.testing.assert_allclose(history["log_predictive[few]"].sum(), online.log_evidences["few"])
    frame = history.to_pandas()
    assert list(frame) == list(history)
    assert frame["probability[all]"].iloc[-1] == online.probabilities["all"]
    lines = str(history).splitlines()
    shown = [*"12345", "...", *(str(number) for number in range(9, 14))]
    assert [line.split()[0] for line in lines[1:]] == shown
    assert "log evidence all" in lines[0]
    with pytest.raises(KeyError, match="has the columns"):
        history["nothing"]
    figure = history.plot()
    first, second = figure.axes[0].get_lines()[:2]
    factor = history["log_evidence[all]"] - history["log_evidence[few]"]
    np.testing.assert_allclose(first.get_ydata(), np.minimum(factor, 0), atol=1e-9)
    np.testing.assert_allclose(second.get_ydata(), np.minimum(-factor, 0), atol=1e-9)
    np.testing.assert_array_equal(
        figure.axes[1].get_lines()[0].get_ydata(), history["probability[all]"]
    )
    figure.draw_without_rendering()
    marked = history.plot(changes=[100, 180])
    for axes in marked.axes:
        assert [line.get_xdata()[0] for line in axes.get_lines()[-2:]] == [100, 180]
    names = [text.get_text() for text in marked.legends[0].get_texts()]
    assert names == [*history.models, "change found"]


def test_history_is_bounded_and_adds_up():
    history = History(longest=64)
    for number in range(1, 5001):
        entry = {"log_evidence": -2.0 * number, "log_predictive": -2.0, "probability": 0.5}
        common = {"rows": 10 * number, "rows_skipped": 1, "elapsed": 0.5}
        history.add(common, {"a": entry} if number < 100 else {"a": entry, "b": entry})
        assert history.num_entries <= 64
    rows = history["rows"]
    assert rows[-1] == 50_000
    assert np.all(np.diff(rows) > 0)
    assert np.diff(rows)[-10:].tolist() == [10.0] * 10, "the latest are all there"
    assert history["log_predictive[a]"].sum() == -10_000.0
    assert history["rows_skipped"].sum() == 5000
    np.testing.assert_allclose(np.cumsum(history["log_predictive[a]"]), history["log_evidence[a]"])
    again = History(longest=64)
    again.restore(*history.state())
    assert str(again) == str(history)
