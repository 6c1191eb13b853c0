"""Rows with predecessors: every source the same rows, no row lost, and weighed like any other."""

import itertools

import numpy as np
import numpyro.distributions as dist
import pandas
import pytest

import weighbridge as wb
from weighbridge.data.cutting import join
from weighbridge.data.sources.opening import open_source
from weighbridge.data.sources.source import Source
from weighbridge.data.values import num_rows
from weighbridge.estimators.annealing.moves.adaptive import MOVES
from weighbridge.zoo import autoregressive

pytestmark = pytest.mark.long

SERIES = np.random.default_rng(0).normal(size=29)
COLUMNS = {"x": np.arange(29 * 3.0).reshape(29, 3), "y": SERIES, "state": np.arange(29) % 4}

# |z| of a calibrated estimate is Student-t with 15 degrees: beyond 5 in one of 6,000 cases.
BOUND = 5.0
SMALL = wb.IBIS(num_islands=16, num_particles=32)
TEMPERED = wb.SMC(num_islands=16, num_particles=64, moves="random_walk")
NUM_ROWS = 400  # enough for the exact evidence itself to know the order of a series


def by_hand(values, order):
    """The definition, one number at a time."""
    rows = range(order, len(values))
    past = [[values[t - lag] for lag in range(1, order + 1)] for t in rows]
    return values[order:], np.array(past)


def cut(values, sizes):
    """Chunks of these sizes, over and over."""
    start = 0
    for size in itertools.cycle(sizes):
        if start >= num_rows(values):
            return
        if isinstance(values, dict):
            yield {name: column[start : start + size] for name, column in values.items()}
        else:
            yield values[start : start + size]
        start += size


def same(actual, expected):
    """The same tree, types and numbers."""
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            same(actual[name], value)
    else:
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected, strict=True)


# --- the rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2, 5, 28])
def test_predecessors_come_latest_first(order):
    rows = wb.lagged(SERIES, order)
    value, past = by_hand(SERIES, order)
    same(rows, {"value": value, "past": past})


def test_columns_keep_their_names_and_their_types():
    rows = wb.lagged(COLUMNS, 2)
    assert set(rows) == {"x", "y", "state", "past"}
    for name, column in COLUMNS.items():
        value, past = by_hand(column, 2)
        same(rows[name], value)
        same(rows["past"][name], past)
    assert rows["past"]["x"].shape == (27, 2, 3)
    assert rows["past"]["state"].dtype == np.int64


def test_other_trees_and_tables():
    pair = wb.lagged((SERIES, COLUMNS["x"]), 3)
    value, past = by_hand(COLUMNS["x"], 3)
    same(pair["value"][1], value)
    same(pair["past"][1], past)
    frame = pandas.DataFrame({"y": SERIES})
    same(wb.lagged(frame, 3), wb.lagged({"y": SERIES}, 3))
    same(wb.lagged(SERIES.tolist(), 3), wb.lagged(SERIES, 3))


def test_arrays_are_not_copied():
    rows = wb.lagged(COLUMNS, 7)
    assert np.shares_memory(rows["y"], SERIES)
    assert np.shares_memory(rows["past"]["y"], SERIES)
    assert np.shares_memory(rows["past"]["x"], COLUMNS["x"])
    assert not rows["past"]["y"].flags.writeable  # one number stands in several places


# --- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[1], [2, 1, 7], [3], [5, 1], [29], [100]])
@pytest.mark.parametrize("data", [SERIES, COLUMNS], ids=["array", "columns"])
@pytest.mark.parametrize("order", [1, 3])
def test_no_row_is_lost_between_chunks(data, sizes, order):
    whole = wb.lagged(data, order)
    stream = wb.lagged(cut(data, sizes), order)
    assert (stream.num_rows, stream.reopenable, stream.in_memory) == (None, False, False)
    blocks = list(stream.blocks())
    same(join(blocks), whole)
    assert all(num_rows(block) for block in blocks)
    lags = wb.Lagged(order)
    same(join([lags(chunk) for chunk in cut(data, sizes)]), whole)


def test_a_stream_is_read_as_it_goes():
    def chunks():
        for t in itertools.count():
            taken.append(t)
            yield SERIES[t : t + 1]

    taken = []
    blocks = wb.lagged(chunks(), 2).blocks()
    assert taken == []
    for t in (2, 3, 4):
        same(next(blocks), {"value": SERIES[t : t + 1], "past": SERIES[t - 2 : t][::-1][None]})
        assert taken == list(range(t + 1))


def test_a_buffer_that_is_used_again_does_not_change_the_past():
    buffer, lags, pasts = np.empty(2), wb.Lagged(1), []
    for start in range(0, 28, 2):
        buffer[:] = SERIES[start : start + 2]
        pasts.append(lags(buffer)["past"].copy())
    np.testing.assert_array_equal(np.concatenate(pasts)[:, 0], SERIES[:27])


def test_files_and_lists_of_tables(tmp_path):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, part in zip(paths, (SERIES[:3], SERIES[3:])):
        pandas.DataFrame({"y": part, "name": "text"}).to_csv(path, index=False)
    whole = wb.lagged({"y": SERIES}, 4)
    source = wb.lagged(paths, 4)
    assert source.reopenable
    assert source.ignored_columns == ["name"]
    for _ in range(2):  # a second pass begins with no predecessors again
        read = join(list(source.blocks()))
        np.testing.assert_allclose(read["past"]["y"], whole["past"]["y"], rtol=1e-12)
    frame = pandas.DataFrame({"y": SERIES})
    frame.to_parquet(tmp_path / "a.parquet")
    parquet = wb.lagged(tmp_path / "a.parquet", 4)
    assert parquet.num_rows == 25
    same(join(list(parquet.blocks())), whole)
    np.savez(tmp_path / "a.npz", y=SERIES)
    same(wb.lagged(tmp_path / "a.npz", 4), whole)
    tables = wb.lagged([frame[:2], frame[2:9], frame[9:]], 4)
    assert isinstance(tables, Source)
    assert tables.in_memory
    same(join(list(tables.blocks())), whole)
    chosen = wb.lagged(open_source(COLUMNS, columns=["y"]), 4)
    same(chosen, whole)


def test_the_tail_is_all_that_a_later_process_needs():
    lags = wb.Lagged(3)
    assert lags.tail is None
    lags({"y": SERIES[:1], "x": COLUMNS["x"][:1]})
    assert num_rows(lags.tail) == 1
    lags({"y": SERIES[1:10], "x": COLUMNS["x"][1:10]})
    same(lags.tail, {"y": SERIES[7:10], "x": COLUMNS["x"][7:10]})
    rest = {"y": SERIES[10:], "x": COLUMNS["x"][10:]}
    resumed = wb.Lagged(3, tail=lags.tail)(rest)
    same(resumed, lags(rest))
    same(resumed["past"]["y"], by_hand(SERIES, 3)[1][7:])
    # More rows than needed do no harm: the last ones count.
    same(wb.Lagged(3, tail=SERIES[:10])(SERIES[10:])["past"], by_hand(SERIES, 3)[1][7:])


def test_chunks_without_rows_change_nothing():
    lags = wb.Lagged(2)
    assert num_rows(lags([])) == 0
    assert lags.tail is None
    lags({"y": [1, 2]})
    assert num_rows(lags([])["y"]) == 0
    same(lags({"y": [3]}), {"y": np.array([3]), "past": {"y": np.array([[2, 1]])}})


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, -1, 1.5, "2", None, True])
def test_an_order_that_is_none(order):
    for make in (lambda: wb.lagged(SERIES, order), lambda: wb.Lagged(order)):
        with pytest.raises(wb.DataError, match=r"order must be .* at least 1.*not"):
            make()


def test_too_few_rows():
    says = "3 rows, but with order=3 .* at least 4 rows, or a smaller order"
    with pytest.raises(wb.DataError, match=says):
        wb.lagged(SERIES[:3], 3)
    with pytest.raises(wb.DataError, match=says):
        list(wb.lagged(iter([SERIES[:1], SERIES[1:3]]), 3).blocks())
    assert num_rows(wb.lagged(SERIES[:4], 3)) == 1


def test_columns_of_unequal_length():
    with pytest.raises(wb.DataError, match="'x' and 'y' have 3 and 4 rows"):
        wb.lagged({"x": SERIES[:3], "y": SERIES[:4]}, 1)


@pytest.mark.parametrize(
    ("chunk", "says"),
    [
        ({"z": [1.0]}, "columns of the series changed: expected y; got z"),
        ([1.0], "expected y; got data"),
        ({"y": [[1.0]]}, r"Column 'y' of the series changed: .* got float64 \(1,\)"),
        ({"y": [True]}, "expected rows of float64 .* got bool"),
        ({"y": [1.0], "past": [1.0]}, "changed"),
    ],
)
def test_chunks_that_do_not_fit_leave_the_tail_as_it_was(chunk, says):
    lags = wb.Lagged(1)
    lags({"y": SERIES[:5]})
    with pytest.raises(wb.DataError, match=says):
        lags(chunk)
    same(lags({"y": [2]}), {"y": np.array([2.0]), "past": {"y": SERIES[4:5, None]}})


def test_names_that_are_taken():
    with pytest.raises(wb.DataError, match=r"named 'past'.*Rename it"):
        wb.lagged({"past": SERIES}, 1)


def test_weights_leave_rows_out_and_do_not_repeat_them():
    # Two series one after the other: the first row of the second has no predecessor.
    weight = np.ones(29)
    weight[12] = 0
    rows = wb.lagged({"y": SERIES, "weight": weight}, 1)
    assert list(rows["past"]) == ["y"]
    np.testing.assert_array_equal(rows["weight"], weight[1:])
    weight[3] = 2
    with pytest.raises(wb.DataError, match=r"'weight' is 2\.0: .* a series has none.*Use 1, or 0"):
        wb.lagged({"y": SERIES, "weight": weight}, 1)
    with pytest.raises(wb.DataError, match="alone"):
        wb.lagged({"weight": np.ones(5)}, 1)


# --- weighed --------------------------------------------------------------------------------------


def score(result, exact):
    return (result.log_evidence - exact) / result.std_error


@pytest.fixture(scope="module")
def series():
    return autoregressive.simulate(150, seed=3)


def test_smc_agrees_with_the_exact_evidence():
    series = autoregressive.simulate(NUM_ROWS, seed=3)
    rows = wb.lagged(series, 4)
    exact = autoregressive.log_evidence(rows, order=2)
    results = [wb.evidence(autoregressive.model(2), rows, TEMPERED, seed=seed) for seed in range(4)]
    z = np.array([score(result, exact) for result in results])
    assert np.all(np.abs(z) < BOUND)
    assert abs(z.mean()) < 2.5
    assert all(result.std_error < 0.1 for result in results)
    assert {result.num_observations for result in results} == {NUM_ROWS - 4}
    # The first coefficient is that of the latest value: reversed, or off by one, they are others.
    design = np.column_stack([*(series[4 - lag : -lag] for lag in (1, 2)), np.ones(NUM_ROWS - 4)])
    expected = np.linalg.solve(np.eye(3) + design.T @ design, design.T @ series[4:])
    draws = results[0].resample(1024, seed=0)["w"]
    # Resampled particles share ancestors: count a quarter of them as independent.
    assert np.all(np.abs(draws.mean(axis=0) - expected[:2]) < 5 * draws.std(axis=0) / 16)
    assert np.all(np.abs(expected[0] - expected[1]) > 5 * draws.std(axis=0))
    # The same shapes again: nothing is compiled.
    before = MOVES.num_traces()
    wb.evidence(autoregressive.model(2), wb.lagged(series[::-1], 4), TEMPERED, seed=9)
    assert MOVES.num_traces() == before


def test_the_order_of_a_series_is_found():
    # All orders on the rows of the largest: evidences of other rows would not be comparable.
    orders = ["1", "2", "3", "4"]
    for seed in range(6):
        rows = wb.lagged(autoregressive.simulate(NUM_ROWS, seed=seed), 4)
        exact = {order: autoregressive.log_evidence(rows, order=int(order)) for order in orders}
        assert max(exact, key=exact.__getitem__) == "2"
    models = {order: autoregressive.model(int(order)) for order in orders}
    table = wb.compare(models, rows, TEMPERED, seed=1)
    assert table.best == "2"
    assert table.num_observations == NUM_ROWS - 4
    for order in orders:
        assert abs(score(table.results[order], exact[order])) < BOUND


def test_a_stream_is_weighed_like_the_whole(series):
    exact = autoregressive.log_evidence(wb.lagged(series, 2), order=2)
    model = autoregressive.model(2)
    whole = wb.evidence(model, wb.lagged(series, 2), SMALL, seed=1)
    stream = wb.evidence(model, wb.lagged(cut(series, [7, 1, 20]), 2), SMALL, seed=1)
    assert stream.log_evidence == pytest.approx(whole.log_evidence, abs=1e-9)
    for seed in (1, 2, 3):
        result = wb.evidence(model, wb.lagged(cut(series, [11]), 2), SMALL, seed=seed)
        assert abs(score(result, exact)) < BOUND
        assert result.std_error < 0.6
    rows = result.trace.rows.astype(int)
    path = autoregressive.log_evidence_path(wb.lagged(series, 2), rows, order=2)
    assert np.all(np.abs(result.trace.log_evidence - path) < BOUND * result.trace.std_error)


def test_online_goes_on_from_a_checkpoint(series, tmp_path):
    def log_likelihood(p, row):
        return dist.Normal(p["w"] * row["past"]["y"][0], 1.0).log_prob(row["y"])

    model = wb.Model({"w": dist.Normal(0, 1)}, log_likelihood)
    whole = wb.evidence(model, wb.lagged({"y": series}, 1), SMALL, seed=2)
    online, lags = wb.Online(model, SMALL, seed=2), wb.Lagged(1)
    online.update(lags({"y": series[:40]}))
    online.save(tmp_path / "run.ckpt")
    np.savez(tmp_path / "tail.npz", **lags.tail)
    later = wb.Online.load(tmp_path / "run.ckpt", model, SMALL)
    lags = wb.Lagged(1, tail=dict(np.load(tmp_path / "tail.npz")))
    for chunk in cut({"y": series[40:]}, [1, 33]):
        update = later.update(lags(chunk))
    assert update.num_observations == 149
    assert update.log_evidence == pytest.approx(whole.log_evidence, abs=1e-9)
    before = lags.tail
    with pytest.raises(wb.DataError, match="column 'y' is nan"):
        later.update(lags({"y": [0.5, np.nan]}))
    lags.tail = before
    again = later.update(lags({"y": [0.5, 0.25]}))
    longer = {"y": np.append(series, [0.5, 0.25])}
    expected = wb.evidence(model, wb.lagged(longer, 1), SMALL, seed=2)
    assert again.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)


def test_sgais_takes_a_stream(series):
    model = autoregressive.model(2)
    method = wb.SGAIS(num_islands=16, num_particles=32, chunk_size=50)
    result = wb.evidence(model, wb.lagged(cut(series, [13]), 2), method, seed=1)
    exact = autoregressive.log_evidence(wb.lagged(series, 2), order=2)
    assert result.num_observations == 148
    assert abs(score(result, exact)) < BOUND


def test_a_gap_costs_the_rows_that_it_precedes(series):
    gap = series.copy()
    gap[70] = np.nan
    keep = np.ones(148)
    keep[68:71] = 0
    rows = wb.lagged(series, 2)
    exact = autoregressive.log_evidence(rows | {"weight": keep}, order=2)
    for data in (wb.lagged(gap, 2), wb.lagged(cut(gap, [9]), 2)):
        result = wb.evidence(autoregressive.model(2), data, SMALL, on_bad_row="skip")
        assert result.num_observations == 145
        assert result.diagnostics["rows_skipped"] == 3
        assert abs(score(result, exact)) < BOUND
    masked = wb.evidence(autoregressive.model(2), rows | {"weight": keep}, SMALL)
    assert masked.num_observations == 145
    assert abs(score(masked, exact)) < BOUND
