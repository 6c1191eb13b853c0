"""Results made on different data are not compared, whatever way the same data came."""

import dataclasses

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.data.fingerprint import Fingerprint

RNG = np.random.default_rng(3)
ROWS = {"x": RNG.normal(size=(60, 2)), "y": RNG.normal(size=60), "k": np.arange(60) % 7}
SMALL = {"num_islands": 4, "num_particles": 16}


def seen(rows, weight=None):
    count = len(next(iter(rows.values())))
    return Fingerprint().add(rows, np.ones(count) if weight is None else weight)


def taken(rows, index):
    return {name: column[index] for name, column in rows.items()}


@pytest.mark.parametrize("cuts", [(1,), (59,), (7, 8, 30), tuple(range(1, 60))])
def test_neither_blocks_nor_order_matter(cuts):
    found = Fingerprint()
    order = np.random.default_rng(0).permutation(60)
    for piece in np.split(order, cuts):
        found = found.add(taken(ROWS, piece), np.ones(len(piece)))
    assert found == seen(ROWS)


def test_a_block_as_large_as_those_that_are_hashed_at_once():
    rows = {"y": np.random.default_rng(0).normal(size=40_000)}
    halves = Fingerprint()
    for part in (slice(0, 12_345), slice(12_345, None)):
        piece = taken(rows, part)
        halves = halves.add(piece, np.ones(len(piece["y"])))
    assert halves == seen(rows)


def test_repeated_rows_are_rows_of_that_weight():
    weight = RNG.integers(0, 4, 60)
    repeated = seen(taken(ROWS, np.repeat(np.arange(60), weight)))
    assert not repeated.differences(seen(ROWS, weight.astype(float)))
    assert repeated.differences(seen(ROWS))
    assert seen(ROWS, np.full(60, 0.5)).differences(seen(ROWS, np.full(60, 0.25)))


def test_whole_numbers_and_floats_of_their_value_are_the_same():
    as_floats = ROWS | {"k": ROWS["k"].astype(float), "y": ROWS["y"] * 1.0}
    assert not seen(as_floats).differences(seen(ROWS))
    zeros = {"y": np.zeros(3)}
    assert not seen(zeros).differences(seen({"y": -np.zeros(3)}))


CHANGED = {
    "one value": (ROWS | {"y": np.where(np.arange(60) == 31, 0.0, ROWS["y"])}, "the column 'y'"),
    "the last digit": (ROWS | {"y": np.nextafter(ROWS["y"], 9.0)}, "the column 'y'"),
    "entries of a row": (ROWS | {"x": ROWS["x"][:, ::-1]}, "the column 'x'"),
    "one column shuffled": (
        {"x": ROWS["x"], "y": ROWS["y"][::-1], "k": ROWS["k"]},
        "belong together",
    ),
    "two values swapped": (
        ROWS | {"y": ROWS["y"][[1, 0, *range(2, 60)]]},
        "how the columns 'x' and 'y' belong together",
    ),
    "a row twice, another not": (taken(ROWS, [0, 0, *range(2, 60)]), "the column 'x'"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_changes_are_found(what):
    rows, told = CHANGED[what]
    assert any(told in text for text in seen(rows).differences(seen(ROWS)))
    assert seen(rows).differences(seen(ROWS)) == seen(ROWS).differences(seen(rows))


def test_columns_of_other_names_or_shapes_are_not_compared():
    assert not seen({"x": ROWS["x"][:, :1], "y": ROWS["y"]}).differences(seen(ROWS))
    assert not seen({"z": ROWS["y"] + 1, "y": ROWS["y"]}).differences(seen(ROWS))


def test_many_columns():
    wide = {f"c{k:02}": RNG.normal(size=30) for k in range(40)}
    changed = wide | {"c39": wide["c39"] + 1e-9}
    assert seen(changed).differences(seen(wide)) == ["the column 'c39'"]


# --- results --------------------------------------------------------------------------------------


def result(rows, log_evidence=-10.0):
    count = len(rows["y"])
    found = wb.Evidence(log_evidence, 0.1, count, "smc", wb.Trace(), {}, np.zeros(1))
    return dataclasses.replace(found, fingerprint=seen(rows))


def test_compare_refuses_other_data_unless_told():
    other = result(ROWS | {"y": ROWS["y"] + 1.0}, -12.0)
    with pytest.raises(wb.MethodError, match=r"'a' and 'b' .* the column 'y' differs.*same_data"):
        wb.compare({"a": result(ROWS), "b": other})
    table = wb.compare({"a": result(ROWS), "b": other}, same_data=False)
    assert "different data: the column 'y' differs" in table.remarks[0]
    assert table.remarks[0] in str(table)
    assert not wb.compare({"a": result(ROWS), "b": result(ROWS, -12.0)}).remarks


def test_compare_refuses_other_numbers_of_rows_unless_told():
    fewer = result(taken(ROWS, slice(0, 59)), -12.0)
    with pytest.raises(wb.MethodError, match=r"different numbers of observations .*same_data"):
        wb.compare({"a": result(ROWS), "b": fewer})
    assert wb.compare({"a": result(ROWS), "b": fewer}, same_data=False).remarks


def test_a_result_without_a_fingerprint_is_not_refused():
    unknown = dataclasses.replace(result(ROWS), fingerprint=None)
    assert not wb.compare({"a": result(ROWS), "b": unknown}).remarks


def test_average_of_a_comparison_of_other_data():
    results = {
        name: dataclasses.replace(result(rows), samples={"w": np.ones(1)})
        for name, rows in (("a", ROWS), ("b", ROWS | {"y": ROWS["y"] + 1.0}))
    }
    with pytest.raises(wb.MethodError, match="different data"):
        wb.average(results, lambda p: p["w"], num_draws=10)
    table = wb.compare(results, same_data=False)
    odds = {"a": 1.0, "b": 3.0}
    assert wb.average(table, lambda p: p["w"], num_draws=10, prior_odds=odds).num_draws == 10


def test_the_fingerprint_is_saved(tmp_path):
    result(ROWS).save(tmp_path / "result")
    assert wb.Evidence.load(tmp_path / "result").fingerprint == seen(ROWS)
    dataclasses.replace(result(ROWS), fingerprint=None).save(tmp_path / "without")
    assert wb.Evidence.load(tmp_path / "without").fingerprint is None


@pytest.fixture(scope="module")
def model():
    return wb.Model({"mu": dist.Normal(0, 1)}, lambda p, row: -0.5 * (row["y"] - p["mu"]) ** 2)


@pytest.fixture(scope="module")
def online(model):
    """A run that took the rows in three pieces."""
    run = wb.Online(model, wb.SGAIS(**SMALL))
    for k in (0, 20, 40):
        run.update({"y": ROWS["y"][k : k + 20]})
    return run.result()


@pytest.fixture(scope="module")
def results(model, online):
    """The same rows in every way that they can come."""
    small = wb.SGAIS(**SMALL)
    rows = {"y": ROWS["y"]}
    bad = {"y": np.append(ROWS["y"], np.nan)}
    pieces = [taken(rows, slice(k, k + 20)) for k in (0, 20, 40)]
    total = wb.Model(
        {"mu": dist.Normal(0, 1)},
        total_log_likelihood=lambda p, data: -0.5 * ((data["y"] - p["mu"]) ** 2).sum(),
    )
    return {
        "smc": wb.evidence(model, rows, wb.SMC(**SMALL)),
        "several rounds": wb.evidence(
            model, rows, wb.SMC(num_islands=8, num_particles=16), tolerance=0.05
        ),
        "in order": wb.evidence(model, rows, wb.SGAIS(**SMALL, shuffle=False)),
        "shuffled": wb.evidence(model, rows, wb.SGAIS(**SMALL, shuffle=True)),
        "stream": wb.evidence(model, iter(pieces), small),
        "a row skipped": wb.evidence(model, bad, small, on_bad_row="skip"),
        "by the user": wb.evidence(model, {"y": ROWS["y"][::-1].copy()}, small),
        "online": online,
        "total": wb.evidence(total, rows, wb.SMC(**SMALL)),
    }


def test_two_ways_to_the_same_rows(model, online):
    tempered = wb.evidence(model, {"y": ROWS["y"][::-1].copy()}, wb.SMC(**SMALL))
    assert tempered.fingerprint == online.fingerprint == seen({"y": ROWS["y"]})
    assert not wb.compare({"online": online, "tempered": tempered}).remarks


@pytest.mark.long
def test_the_same_rows_compare_in_whatever_way_they_came(results):
    assert all(found.fingerprint is not None for found in results.values())
    table = wb.compare(results)
    assert table.num_observations == 60
    assert not table.remarks


@pytest.mark.long
def test_other_rows_do_not(results, model):
    other = wb.evidence(model, {"y": ROWS["y"] + 1.0}, wb.SMC(**SMALL))
    for name in results:
        with pytest.raises(wb.MethodError, match="different data"):
            wb.compare({name: results[name], "other": other})


def test_the_order_matters_to_a_likelihood_that_does_not_factorise():
    first = Fingerprint().add(ROWS["y"][:20], np.ones(20), ordered=True)
    whole = first.add(ROWS["y"][20:], np.ones(40), ordered=True)
    assert whole == Fingerprint().add(ROWS["y"], np.ones(60), ordered=True)
    backwards = Fingerprint().add(ROWS["y"][::-1], np.ones(60), ordered=True)
    assert backwards.differences(whole) == ["the order of the column 'data'"]
    by_row = Fingerprint().add(ROWS["y"][::-1], np.ones(60))
    assert not by_row.differences(whole)


def test_a_run_that_is_resumed_knows_its_first_rows(online, model, tmp_path):
    small = wb.SGAIS(**SMALL)
    run = wb.Online(model, small)
    run.update({"y": ROWS["y"][:20]})
    run.save(tmp_path / "run")
    again = wb.Online.load(tmp_path / "run", model, small)
    for k in (20, 40):
        again.update({"y": ROWS["y"][k : k + 20]})
    assert again.result().fingerprint == online.fingerprint
    with pytest.raises(wb.DataError):
        again.update({"y": np.array([np.nan])})
    assert again.result().fingerprint == online.fingerprint


def test_models_on_one_stream(online, model):
    small = wb.SGAIS(**SMALL)
    stream = wb.OnlineComparison({"a": model, "b": model}, small)
    stream.update({"y": ROWS["y"][:20]})
    stream.add("late", model)  # all rows are still kept
    for k in (20, 40):
        stream.update({"y": ROWS["y"][k : k + 20]})
    found = stream.result().results
    assert {name: r.fingerprint for name, r in found.items()} == dict.fromkeys(
        ["a", "b", "late"], online.fingerprint
    )


def test_other_features_of_the_same_rows_are_refused_with_the_way_out():
    """Names of columns decide; only the user knows that `x` holds other features."""
    other = result(ROWS | {"x": ROWS["x"][:, ::-1]}, -12.0)
    with pytest.raises(wb.MethodError, match=r"in both: k, y.*other features.*same_data=False"):
        wb.compare({"a": result(ROWS), "b": other})
    assert (
        "other features" in wb.compare({"a": result(ROWS), "b": other}, same_data=False).remarks[0]
    )
    renamed = ROWS | {"x2": ROWS["x"][:, ::-1]}
    del renamed["x"]
    assert not wb.compare({"a": result(ROWS), "b": result(renamed)}).remarks
    shifted = result(ROWS | {"y": ROWS["y"] + 1.0})
    with pytest.raises(wb.MethodError, match="the column 'y' differs") as refused:
        wb.compare({"a": result(ROWS), "b": shifted})
    assert "other features of" not in str(refused.value)
