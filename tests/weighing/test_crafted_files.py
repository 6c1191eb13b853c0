"""Files with a valid digest whose contents are a lie: refused by a typed error, or valid."""

import contextlib
import math

import numpy as np
import pytest

import weighbridge as wb
from tests.helpers.crafting import attack, schema_of
from weighbridge.core import checkpoint_file

MODEL = wb.zoo.gaussian.model()
MODELS = {"a": MODEL, "b": wb.zoo.gaussian.model(prior_mean=1.0)}
SMALL = wb.SGAIS(num_islands=4, num_particles=16)
IBIS = wb.IBIS(num_islands=4, num_particles=16)
ROWS = wb.zoo.gaussian.simulate(40, seed=1)
LOOKS = wb.Changes(policy="restart", min_rows=5, window=20)
COMPETES = wb.Changes(compete=True, min_rows=5, window=20)
# Of each kind of file, in the short part; the long part takes them all.
COUNT = 150


def make_evidence(path):
    draws = {"mu": np.arange(4.0), "w": np.ones((4, 2))}
    trace = wb.Trace(rows=np.array([5.0, 9.0]), log_evidence=np.array([-4.0, -9.0]))
    wb.Evidence(
        log_evidence=-9.0,
        std_error=0.1,
        num_observations=9,
        method="smc",
        trace=trace,
        samples=draws,
        log_weights=np.log(np.full(4, 0.25)),
        diagnostics={"rows_skipped": 0, "power_reached": 1.0, "islands": np.zeros(2)},
        flags=(wb.Status.LOW_ESS,),
        elapsed=1.5,
    ).save(path)


def judge_evidence(found):
    assert not math.isnan(found.log_evidence)
    assert found.std_error >= 0 or math.isnan(found.std_error)
    assert found.num_observations >= 0
    assert all(len(draws) == len(found.log_weights) for draws in found.samples.values())
    assert not np.isnan(found.log_weights).any()
    str(found).encode()
    found.to_json()
    if found.samples:
        assert found.resample(3)["mu"].shape[0] == 3


def make_posterior(path):
    draws = np.random.default_rng(0).normal(size=(2, 6, 1))
    state = {
        "chains": [[np.zeros(1), np.array(0.5)] for _ in range(2)],
        "num_done": [12, 12],
        "seed": 0,
        "thin": 1,
        "warmup": ["diagonal", None],
        "kernel": "NUTS",
        "digest": "d",
        "fingerprint": "f",
    }
    stats = {"divergent": np.zeros((2, 6), bool), "energy": np.ones((2, 6))}
    wb.Posterior({"mu": draws[..., 0]}, draws, stats, num_warmup=6, max_depth=10, state=state).save(
        path
    )


def judge_posterior(found):
    assert np.isfinite(found.positions).all()
    assert all(draws.shape[:2] == found.positions.shape[:2] for draws in found.samples.values())
    repr(found).encode()
    found.flat()
    assert found.divergences.keys() == found.samples.keys()


def judge_run(run, checker):
    cloud = run.particles()
    assert np.isfinite(np.asarray(cloud.position)).all()
    assert not np.isnan(np.asarray(cloud.log_weight)).any()
    assert run.num_rows == run.num_observations == checker.rows_read - checker.rows_left_out
    assert run.path[-1].rows == run.num_observations
    assert not math.isnan(run.path[-1].log_evidence)


def make_online(path):
    online = wb.Online(MODEL, SMALL)
    online.update(ROWS)
    online.save(path, extra={"cursor": {"offset": 40}})


def make_ibis(path):
    online = wb.Online(MODEL, IBIS, changes=LOOKS)
    online.update(ROWS)
    online.update(ROWS + 30)
    online.save(path)


def judge_online(found):
    session = found._session
    judge_run(session.run, session.checker)
    with contextlib.suppress(wb.WeighbridgeError):
        assert not math.isnan(found.update(ROWS[:20]).log_evidence)


def make_comparison(path):
    comparison = wb.OnlineComparison(MODELS, SMALL, changes=COMPETES)
    comparison.update(ROWS, identifier=7)
    comparison.update(ROWS + 30, identifier=8)
    comparison.save(path)


def judge_comparison(found):
    for session in found._entrants.sessions.values():
        judge_run(session.run, session.checker)
    assert sum(found.probabilities.values()) == pytest.approx(1.0)
    str(found.history)
    with contextlib.suppress(wb.WeighbridgeError):
        assert not any(map(math.isnan, found.update(ROWS[:20]).log_evidences.values()))


KINDS = {
    "evidence": (make_evidence, wb.Evidence.load, judge_evidence),
    "posterior": (make_posterior, wb.Posterior.load, judge_posterior),
    "online": (make_online, lambda path: wb.Online.load(path, MODEL, SMALL), judge_online),
    "ibis": (make_ibis, lambda path: wb.Online.load(path, MODEL, IBIS), judge_online),
    "comparison": (
        make_comparison,
        lambda path: wb.OnlineComparison.load(path, MODELS, SMALL),
        judge_comparison,
    ),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Each kind of file, made when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("originals"), set()

    def original(kind):
        if kind not in made:
            KINDS[kind][0](folder / kind)
            made.add(kind)
        return folder / kind

    return original


@pytest.fixture
def unsynced(monkeypatch):
    """Thousands of files that are read at once need not survive a power cut."""
    monkeypatch.setattr("weighbridge.core.atomic_write.os.fsync", lambda _: None)


@pytest.mark.parametrize("kind", KINDS)
def test_some_crafted_files(kind, originals, tmp_path, unsynced):
    _, load, judge = KINDS[kind]
    judge(load(originals(kind)))
    outcome = attack(originals(kind), tmp_path / "crafted", load, judge, count=COUNT)
    refused = sum(n for (_, how), n in outcome.items() if how == "refused")
    assert outcome.total == COUNT
    assert refused > COUNT / 2  # what is taken is as good as what was saved


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_all_crafted_files(kind, originals, tmp_path, unsynced):
    _, load, judge = KINDS[kind]
    # A comparison has five thousand entries that can be wrong: a third of them is enough.
    most = 1500 if kind == "comparison" else None
    outcome = attack(originals(kind), tmp_path / "crafted", load, judge, count=most)
    print(f"\n{kind}: {outcome.total} files")
    for (change, how), count in sorted(outcome.items()):
        print(f"  {change}: {count} {how}")
    refused = sum(n for (_, how), n in outcome.items() if how == "refused")
    assert refused > outcome.total / 2  # what is taken is as good as what was saved


def rewrite(path, change):
    arrays, metadata = checkpoint_file.read(path, None)
    schema = schema_of(path)
    change(arrays, metadata)
    checkpoint_file.write(path, schema, arrays, metadata)


def nan_weight(arrays, metadata):
    arrays["log_weights"] = np.array([np.nan, 0.0, 0.0, 0.0])


def fewer_weights(arrays, metadata):
    arrays["log_weights"] = arrays["log_weights"][:3]


def no_weight(arrays, metadata):
    arrays["log_weights"] = np.full(4, -np.inf)


def negative_rows(arrays, metadata):
    metadata["num_observations"] = -9


def other_trace(arrays, metadata):
    arrays["trace/rows"] = arrays["trace/rows"][:1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (nan_weight, "log_weights holds NaN"),
        (fewer_weights, "4 draws have 3 weights"),
        (no_weight, "no draw has a weight"),
        (negative_rows, "num_observations is -9"),
        (other_trace, "trace/rows has the shape|trace/log_evidence has the shape"),
    ],
)
def test_what_is_wrong_with_a_result_is_named(change, message, tmp_path):
    path = tmp_path / "result"
    make_evidence(path)
    rewrite(path, change)
    with pytest.raises(wb.CheckpointError, match=message):
        wb.Evidence.load(path)


def rows_again(arrays, metadata):
    metadata["checker"]["rows_read"] = 20


def fewer_seen(arrays, metadata):
    metadata["session"]["fingerprint"]["num_rows"] = 20


def lost_particles(arrays, metadata):
    arrays["log_weight"] = np.full_like(arrays["log_weight"], -np.inf)


def strange_origin(arrays, metadata):
    arrays["origin"] = arrays["origin"] + 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rows_again, "20 rows were admitted"),
        (fewer_seen, "40 rows were admitted"),
        (lost_particles, "all particles have weight zero"),
        (strange_origin, "origin holds numbers"),
    ],
)
def test_a_run_must_have_seen_the_rows_that_it_says(change, message, originals, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(originals("online").read_bytes())
    rewrite(path, change)
    with pytest.raises(wb.CheckpointError, match=message):
        wb.Online.load(path, MODEL, SMALL)


def fewer_columns(arrays, metadata):
    del arrays["reference/1"]


def no_closed_path(arrays, metadata):
    del arrays["closed_path"]


@pytest.mark.parametrize(
    ("change", "message"),
    [(fewer_columns, "kept rows have the columns"), (no_closed_path, "the path before the last")],
)
def test_what_a_later_update_would_stumble_on_is_refused(change, message, originals, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(originals("ibis").read_bytes())
    rewrite(path, change)
    with pytest.raises(wb.CheckpointError, match=message):
        wb.Online.load(path, MODEL, IBIS)


def test_draws_that_are_not_finite_are_not_saved(tmp_path):
    draws = np.full((1, 2, 1), np.nan)
    with pytest.raises(wb.CheckpointError, match="not finite"):
        wb.Posterior({"a": draws[..., 0]}, draws, {}).save(tmp_path / "a")


@pytest.mark.long
def test_a_crafted_posterior_is_not_gone_on_with(tmp_path):
    """Whatever a file holds, to resume from it ends in a typed error or in finite draws."""
    kernel = wb.HMC(step_size=0.3, num_leapfrog=2)
    drawn = wb.sample(
        MODEL, ROWS, kernel, num_samples=4, num_warmup=4, num_chains=2, progress=False
    )
    drawn.save(tmp_path / "drawn")

    def resume(path):
        return wb.sample(MODEL, ROWS, kernel, num_samples=2, resume=path, progress=False)

    outcome = attack(tmp_path / "drawn", tmp_path / "crafted", resume, judge_posterior, count=150)
    assert outcome.total == 150
