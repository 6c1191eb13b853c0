"""A stream: what an update says, saving and resuming, and bad updates that leave no trace."""

import dataclasses
import math
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core import checkpoint_file, compilation
from weighbridge.weighing.online import SCHEMA

SMALL = wb.SGAIS(num_islands=16, num_particles=16, chunk_size=50)
GAUSSIAN = wb.zoo.gaussian.model()
LINEAR = wb.zoo.linear.model(2)
DATA = wb.zoo.gaussian.simulate(300, seed=1)
ROWS = wb.zoo.linear.simulate(300, num_features=2, seed=3)


def part(start, stop, **changes):
    return {name: column[start:stop] for name, column in ROWS.items()} | changes


def numbers(update):
    """Everything that an update says but the time it took."""
    fields = dataclasses.asdict(update)
    del fields["elapsed"]
    fields["flags"] = update.flags
    return {name: repr(value) for name, value in fields.items()}


def same_runs(first, second):
    """Two runs are bit for bit in the same place, and go on alike."""
    (arrays, plain), (other, other_plain) = first._session.run.state(), second._session.run.state()
    assert arrays.keys() == other.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], other[name], err_msg=name)
    assert repr(plain) == repr(other_plain)
    assert first.num_observations == second.num_observations


# --- updates -----------------------------------------------------------------------------------


def test_an_update_says_what_it_brought():
    online = wb.Online(GAUSSIAN, SMALL, seed=0)
    first = online.update(DATA[:120])
    assert first.num_observations == online.num_observations == 120
    assert first.log_predictive == first.log_evidence
    second = online.update(DATA[120:127])
    assert second.num_observations == 127
    assert second.log_predictive == pytest.approx(
        second.log_evidence - first.log_evidence, abs=1e-9
    )
    assert second.rows_skipped == 0
    exact = wb.zoo.gaussian.log_evidence_path(DATA, [120, 127])
    assert abs(first.log_evidence - exact[0]) < 5 * first.std_error
    assert abs(second.log_evidence - exact[1]) < 5 * second.std_error
    # What the new rows bring is far better known than all of it: the errors are shared.
    assert abs(second.log_predictive - (exact[1] - exact[0])) < 5 * second.std_error
    assert 1 <= second.ess <= 16
    result = online.result()
    # An update tells the path; the result crosses a bridge too.
    assert result.diagnostics["path_log_evidence"] == second.log_evidence
    assert result.diagnostics["path_error"] == second.std_error
    assert abs(result.log_evidence - exact[1]) < 5 * result.std_error < 1e-6
    np.testing.assert_array_equal(result.trace.rows, [50, 100, 120, 127])
    steps = result.trace.annealing_steps
    assert first.annealing_steps == pytest.approx(steps[:3].sum())
    assert second.annealing_steps == pytest.approx(steps[3])
    for field in dataclasses.fields(first):
        value = getattr(first, field.name)
        assert type(value) in (float, int, tuple), field.name
    assert first.status is (first.flags[0] if first.flags else wb.Status.OK)


def test_one_row_at_a_time():
    online = wb.Online(GAUSSIAN, SMALL, seed=1)
    updates = [online.update(DATA[i : i + 1]) for i in range(12)]
    assert [u.num_observations for u in updates] == list(range(1, 13))
    total = sum(u.log_predictive for u in updates)
    assert total == pytest.approx(updates[-1].log_evidence, abs=1e-9)
    exact = wb.zoo.gaussian.log_evidence(DATA[:12])
    assert abs(updates[-1].log_evidence - exact) < 5 * updates[-1].std_error


def test_no_result_before_the_first_row():
    with pytest.raises(wb.DataError, match="no row to weigh"):
        wb.Online(GAUSSIAN, SMALL).result()


# --- save and load --------------------------------------------------------------------------------


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    whole = wb.Online(GAUSSIAN, SMALL, seed=4)
    path = tmp_path / "run.ckpt"
    resumed = wb.Online(GAUSSIAN, SMALL, seed=4)
    for start, stop in ((0, 70), (70, 95), (95, 260)):
        expected = whole.update(DATA[start:stop])
        found = resumed.update(DATA[start:stop])
        assert numbers(found) == numbers(expected)
        resumed.save(path)  # over the one before
        resumed = wb.Online.load(path, GAUSSIAN, SMALL)
        same_runs(resumed, whole)
    assert whole.result().log_evidence == resumed.result().log_evidence
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.ckpt"], "no temporary file is left"


@pytest.mark.parametrize(
    "method",
    [
        wb.SGAIS(num_islands=4, num_particles=16, chunk_size=40, reservoir=60),
        wb.IBIS(num_islands=4, num_particles=16),
    ],
    ids=["sgais", "ibis"],
)
def test_a_run_resumes_at_every_chunk(tmp_path, method):
    whole, path, saved = wb.Online(GAUSSIAN, method, seed=4), tmp_path / "run.ckpt", {}
    stops = range(0, 201, 40)
    for stop in stops:
        if stop:
            whole.update(DATA[stop - 40 : stop])
        whole.save(path, extra={"cursor": stop})
        saved[stop] = path.read_bytes()
    for stop, content in saved.items():
        path.write_bytes(content)
        resumed = wb.Online.load(path, GAUSSIAN, method)
        assert resumed.extra == {"cursor": stop}
        for later in stops:
            if later > stop:
                resumed.update(DATA[later - 40 : later])
        same_runs(resumed, whole)


@pytest.mark.long
def test_a_run_that_overflowed_its_reservoir_resumes(tmp_path):
    method = dataclasses.replace(SMALL, reservoir=60)
    whole, path = wb.Online(GAUSSIAN, method, seed=4), tmp_path / "run.ckpt"
    whole.update(DATA[:130])
    whole.save(path)
    resumed = wb.Online.load(path, GAUSSIAN, method)
    assert numbers(resumed.update(DATA[130:])) == numbers(whole.update(DATA[130:]))
    same_runs(resumed, whole)


@pytest.mark.long
def test_a_run_with_weights_and_skipped_rows_resumes(tmp_path):
    whole, path = wb.Online(LINEAR, SMALL, seed=2, on_bad_row="skip"), tmp_path / "run.ckpt"
    bad = part(
        0, 60, weight=np.tile([1.0, 2.0], 30), y=np.where(np.arange(60) % 7 == 0, np.nan, 1.0)
    )
    whole.update(bad)
    whole.save(path)
    resumed = wb.Online.load(path, LINEAR, SMALL)
    assert resumed.on_bad_row == "skip"
    expected = whole.update(part(60, 120, weight=np.full(60, 2.0)))
    assert numbers(resumed.update(part(60, 120, weight=np.full(60, 2.0)))) == numbers(expected)
    assert expected.num_observations == int(bad["weight"][np.arange(60) % 7 != 0].sum()) + 120
    assert resumed.result().diagnostics["rows_skipped"] == 9


def test_a_run_saved_before_its_first_row_resumes(tmp_path):
    path = tmp_path / "run.ckpt"
    wb.Online(GAUSSIAN, SMALL, seed=9).save(path)
    resumed, fresh = wb.Online.load(path, GAUSSIAN, SMALL), wb.Online(GAUSSIAN, SMALL, seed=9)
    assert numbers(resumed.update(DATA[:60])) == numbers(fresh.update(DATA[:60]))


def test_another_process_resumes_bit_for_bit(tmp_path):
    path = tmp_path / "run.ckpt"
    whole = wb.Online(GAUSSIAN, SMALL, seed=np.int64(4))
    whole.update(DATA[:70])
    whole.save(path)
    # Compiled as in this process (see conftest.py): other machine code rounds in another way.
    program = (
        "import sys, weighbridge as wb\n"
        "from weighbridge.core import compilation\n"
        f"compilation.QUICK_TO_COMPILE.update({compilation.QUICK_TO_COMPILE})\n"
        f"compilation.QUICK_TO_RUN.update({compilation.QUICK_TO_RUN})\n"
        "method = wb.SGAIS(num_islands=16, num_particles=16, chunk_size=50)\n"
        "online = wb.Online.load(sys.argv[1], wb.zoo.gaussian.model(), method)\n"
        "online.update(wb.zoo.gaussian.simulate(300, seed=1)[70:260])\n"
        "online.save(sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=120)
    whole.update(DATA[70:260])
    same_runs(wb.Online.load(path, GAUSSIAN, SMALL), whole)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "run.ckpt"
    online = wb.Online(GAUSSIAN, SMALL, seed=0)
    online.update(DATA[:60])
    online.save(path)
    return path


@pytest.mark.parametrize(
    ("model", "method", "message"),
    [
        (wb.zoo.gaussian.model(noise=2.0), SMALL, "another model"),
        (wb.zoo.gaussian.model(prior_scale=2.0), SMALL, "another model"),
        (LINEAR, SMALL, "another model"),
        (GAUSSIAN, "auto", "another method"),
        (GAUSSIAN, dataclasses.replace(SMALL, num_particles=17), "another method"),
        (GAUSSIAN, dataclasses.replace(SMALL, kernel=wb.SGHMC(0.1, 0.3)), "another method"),
        (GAUSSIAN, dataclasses.replace(SMALL, kernel=wb.SGLD(0.1)), "another method"),
    ],
    ids=["noise", "prior", "linear", "auto", "particles", "friction", "sgld"],
)
def test_another_model_or_method_is_refused(saved, model, method, message):
    with pytest.raises(wb.CheckpointError, match=message) as refused:
        wb.Online.load(saved, model, method)
    assert str(saved) in str(refused.value)


def test_the_same_settings_in_other_numbers_are_the_same_method(saved):
    method = dataclasses.replace(SMALL, noise=np.float64(0.01), chunk_size=np.int64(50))
    assert wb.Online.load(saved, GAUSSIAN, method).num_observations == 60


def test_another_schema_is_refused(saved, tmp_path):
    result = tmp_path / "result.safetensors"
    wb.evidence(GAUSSIAN, DATA[:60], SMALL).save(result)
    with pytest.raises(wb.CheckpointError, match=r"weighbridge\.evidence.*weighbridge\.online"):
        wb.Online.load(result, GAUSSIAN, SMALL)
    with pytest.raises(wb.CheckpointError, match=r"weighbridge\.online.*weighbridge\.evidence"):
        wb.Evidence.load(saved)


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, 0.99])
def test_a_cut_off_file_is_refused(saved, tmp_path, keep):
    content = saved.read_bytes()
    broken = tmp_path / "broken.ckpt"
    broken.write_bytes(content[: keep if isinstance(keep, int) else int(keep * len(content))])
    with pytest.raises(wb.CheckpointError, match=r"broken\.ckpt"):
        wb.Online.load(broken, GAUSSIAN, SMALL)


def test_a_file_that_lacks_a_part_is_refused(saved, tmp_path):
    arrays, metadata = checkpoint_file.read(saved, SCHEMA)
    broken = tmp_path / "broken.ckpt"
    # With a checksum that is right: the run itself must see what is missing.
    for name in arrays:
        checkpoint_file.write(
            broken, SCHEMA, {k: v for k, v in arrays.items() if k != name}, metadata
        )
        with pytest.raises(wb.CheckpointError, match=r"broken\.ckpt"):
            wb.Online.load(broken, GAUSSIAN, SMALL)
    for name in ("session", "checker", "seed", "on_bad_row", "extra", "model", "method"):
        rest = {k: v for k, v in metadata.items() if k != name}
        checkpoint_file.write(broken, SCHEMA, arrays, rest)
        with pytest.raises(wb.CheckpointError, match=r"broken\.ckpt"):
            wb.Online.load(broken, GAUSSIAN, SMALL)


def test_a_missing_file_and_a_missing_folder(tmp_path):
    with pytest.raises(wb.CheckpointError, match=r"no file .*nothing\.ckpt"):
        wb.Online.load(tmp_path / "nothing.ckpt", GAUSSIAN, SMALL)
    online = wb.Online(GAUSSIAN, SMALL)
    with pytest.raises(wb.CheckpointError, match="Could not write"):
        online.save(tmp_path / "no folder" / "run.ckpt")


# --- bad updates leave no trace -----------------------------------------------------------------

BAD_UPDATES = {
    "nan": (part(60, 130, y=np.where(np.arange(70) == 64, np.nan, 0.0)), r"row 124 .*'y' is nan"),
    "infinite": (part(60, 130, x=np.full((70, 2), -np.inf)), r"row 60 .*'x\[0\]' is -inf"),
    "features": (part(60, 130, x=np.ones((70, 3))), r"'x' changed shape.*row 60"),
    "dtype": (part(60, 130, y=np.ones(70, bool)), r"'y' changed type.*float64.*bool"),
    "text": (part(60, 62, y=np.array(["a", "b"])), r"'y'.*text"),
    "missing": ({"x": ROWS["x"][60:130]}, r"columns changed.*expected x, y"),
    "more": (part(60, 130, z=np.ones(70)), r"columns changed"),
    "lengths": ({"x": ROWS["x"][60:130], "y": ROWS["y"][60:129]}, "same number of rows"),
    "empty": (part(60, 60), "no rows"),
    "plain": (np.ones((5, 3)), "columns changed"),
}


@pytest.mark.parametrize("name", BAD_UPDATES)
def test_a_bad_update_changes_nothing(name):
    online, clean = wb.Online(LINEAR, SMALL, seed=1), wb.Online(LINEAR, SMALL, seed=1)
    for run in (online, clean):
        run.update(part(0, 60))
    bad, message = BAD_UPDATES[name]
    with pytest.raises(wb.DataError, match=message):
        online.update(bad)
    same_runs(online, clean)
    assert numbers(online.update(part(60, 120))) == numbers(clean.update(part(60, 120)))
    # Later messages count rows from the start of what was taken in.
    with pytest.raises(wb.DataError, match="row 120 "):
        online.update(part(120, 121, y=np.array([np.nan])))


def test_a_bad_first_update_fixes_nothing():
    """Columns and weights of a refused block do not bind the blocks that follow."""
    online = wb.Online(LINEAR, SMALL, seed=1)
    with pytest.raises(wb.DataError, match="row 2 "):
        online.update(part(0, 3, weight=np.ones(3), y=np.array([0.0, 1.0, np.nan])))
    clean = wb.Online(LINEAR, SMALL, seed=1)
    assert numbers(online.update(part(0, 60))) == numbers(clean.update(part(0, 60)))
    same_runs(online, clean)


def test_a_bad_weight_in_a_later_chunk_changes_nothing():
    weight = np.ones(120)
    weight[101] = -1.0
    online, clean = wb.Online(LINEAR, SMALL, seed=1), wb.Online(LINEAR, SMALL, seed=1)
    with pytest.raises(wb.DataError, match=r"row 101 .*'weight'.*negative.*skip"):
        online.update(part(0, 120, weight=weight))
    assert online.num_observations == 0
    assert numbers(online.update(part(0, 60))) == numbers(clean.update(part(0, 60)))
    skipping = wb.Online(LINEAR, SMALL, seed=1, on_bad_row="skip")
    update = skipping.update(part(0, 120, weight=weight))
    assert (update.num_observations, update.rows_skipped) == (119, 1)


def bounded(p, y):
    value = jnp.where(y < p["mu"], -jnp.log(p["mu"]), -jnp.inf)
    return jnp.where(y < 0, jnp.nan, value)


BOUNDED = wb.Model({"mu": dist.Uniform(0.0, 2.0)}, bounded)


@pytest.mark.parametrize(
    ("row", "message"), [(5.0, "-inf for every"), (-1.0, r"NaN\) at row [03] ")], ids=["inf", "nan"]
)
@pytest.mark.parametrize("first", [0, 3])
def test_rows_that_the_model_refuses_change_nothing(first, row, message):
    online, clean = wb.Online(BOUNDED, SMALL, seed=1), wb.Online(BOUNDED, SMALL, seed=1)
    good = np.array([0.1, 0.2, 0.3])
    if first:
        for run in (online, clean):
            run.update(good)
    with pytest.raises(wb.ModelError, match=message):
        online.update(np.array([row, 0.1]))
    same_runs(online, clean)
    assert online._session.checker.state() == clean._session.checker.state()
    assert numbers(online.update(good)) == numbers(clean.update(good))


# --- bad rows can be skipped ----------------------------------------------------------------------


def test_skipped_rows_are_counted_and_weigh_nothing():
    bad = DATA[:120].copy()
    bad[[3, 77]] = np.nan, np.inf
    online = wb.Online(GAUSSIAN, SMALL, seed=0, on_bad_row="skip")
    update = online.update(bad)
    assert (update.rows_skipped, update.num_observations) == (2, 118)
    clean = wb.Online(GAUSSIAN, SMALL, seed=0)
    expected = clean.update(np.delete(DATA[:120], [3, 77]))
    assert update.log_evidence == expected.log_evidence
    again = online.update(np.append(DATA[120:130], np.nan))
    assert (again.rows_skipped, again.num_observations) == (1, 128)
    assert online.result().diagnostics["rows_skipped"] == 3
    whole = wb.evidence(GAUSSIAN, bad, SMALL, seed=0, on_bad_row="skip")
    assert whole.diagnostics["path_log_evidence"] == update.log_evidence
    assert whole.diagnostics["rows_skipped"] == 2


def test_an_update_whose_rows_are_all_skipped_brings_nothing():
    online = wb.Online(GAUSSIAN, SMALL, seed=0, on_bad_row="skip")
    first = online.update(DATA[:20])
    nothing = online.update(np.full(3, np.nan))
    assert nothing.rows_skipped == 3
    assert nothing.log_evidence == first.log_evidence
    assert nothing.log_predictive == 0.0
    assert nothing.num_observations == 20
    with pytest.raises(wb.DataError, match="skipped"):
        wb.Online(GAUSSIAN, SMALL, on_bad_row="skip").update(np.full(3, np.nan))


def test_whole_numbers_may_follow_real_ones():
    online, clean = wb.Online(GAUSSIAN, SMALL, seed=0), wb.Online(GAUSSIAN, SMALL, seed=0)
    online.update(DATA[:20])
    clean.update(DATA[:20])
    expected = clean.update(np.array([1.0, 2.0]))
    assert numbers(online.update(np.array([1, 2]))) == numbers(expected)


def test_labels_outside_the_classes_name_the_row():
    model = wb.zoo.logistic.model(2, 3)
    rows = wb.zoo.logistic.simulate(60, num_features=2, num_classes=3, seed=0)
    online = wb.Online(model, SMALL, seed=0)
    first = online.update(rows)
    assert math.isfinite(first.log_evidence)
    for label in (3, -1):
        y = np.where(np.arange(60) == 17, label, rows["y"])
        with pytest.raises(wb.DataError, match=r"row 77 .*'y': label outside 0\.\.2"):
            online.update({"x": rows["x"], "y": y})
    assert online.num_observations == 60
