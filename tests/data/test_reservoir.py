"""A uniform sample of the rows of a stream."""

import contextlib
import re
from typing import NamedTuple

import numpy as np
import pytest

from weighbridge.core.errors import DataError
from weighbridge.core.random import Stream, random_numbers
from weighbridge.data import reservoir as reservoir_module
from weighbridge.data.reservoir import Reservoir


def refuses(*parts):
    """Expect a DataError whose message contains every part, in order."""
    return pytest.raises(DataError, match="(?s)" + ".*".join(re.escape(part) for part in parts))


class Pair(NamedTuple):
    left: np.ndarray
    right: np.ndarray


def stream(total):
    rng = np.random.default_rng(5)
    return {"x": rng.normal(size=(total, 2)), "k": np.arange(total)}, rng.random(total)


def contents(reservoir):
    return reservoir.gather(np.arange(reservoir.num_kept))


def same(first, second):
    (values, weight), (other, other_weight) = contents(first), contents(second)
    np.testing.assert_array_equal(weight, other_weight)
    for name in values:
        np.testing.assert_array_equal(values[name], other[name])


def feed(reservoir, values, weight, cuts):
    for start, stop in zip([0, *cuts], [*cuts, len(weight)]):
        piece = {name: leaf[start:stop] for name, leaf in values.items()}
        reservoir.append(piece, weight[start:stop])


def test_reservoir_keeps_everything_while_it_can():
    values, weight = stream(50)
    reservoir = Reservoir(50, seed=0)
    feed(reservoir, values, weight, [1, 3, 4, 20])
    assert reservoir.is_complete
    kept, kept_weight = contents(reservoir)
    np.testing.assert_array_equal(kept["x"], values["x"])
    np.testing.assert_array_equal(kept_weight, weight)
    reservoir.append({"x": np.zeros((1, 2)), "k": np.array([99])}, np.ones(1))
    assert not reservoir.is_complete
    assert (reservoir.num_kept, reservoir.num_seen) == (50, 51)


def test_reservoir_rows_stay_together():
    values, weight = stream(500)
    reservoir = Reservoir(40, seed=1)
    feed(reservoir, values, weight, [7, 300])
    kept, kept_weight = contents(reservoir)
    assert len(set(kept["k"].tolist())) == 40
    np.testing.assert_array_equal(kept["x"], values["x"][kept["k"]])
    np.testing.assert_array_equal(kept_weight, weight[kept["k"]])


def test_reservoir_does_not_depend_on_the_blocks(monkeypatch):
    values, weight = stream(400)
    whole = Reservoir(30, seed=2)
    whole.append(values, weight)
    rng = np.random.default_rng(3)
    for _ in range(20):
        cuts = np.sort(rng.integers(0, 400, size=rng.integers(1, 30))).tolist()
        parts = Reservoir(30, seed=2)
        feed(parts, values, weight, cuts)
        same(whole, parts)
    single = Reservoir(30, seed=2)
    feed(single, values, weight, range(1, 400))
    same(whole, single)
    monkeypatch.setattr(reservoir_module, "_PIECE_ROWS", 17)
    pieces = Reservoir(30, seed=2)
    pieces.append(values, weight)
    same(whole, pieces)


def test_reservoir_follows_algorithm_r_row_by_row():
    capacity, total = 3, 60
    uniforms = iter(random_numbers(11, Stream.RESERVOIR).random(total - capacity))
    slots = list(range(capacity))
    for t in range(capacity + 1, total + 1):
        slot = int(next(uniforms) * t)
        if slot < capacity:
            slots[slot] = t - 1
    reservoir = Reservoir(capacity, seed=11)
    reservoir.append(np.arange(total), np.ones(total))
    assert contents(reservoir)[0].tolist() == slots


def test_reservoir_is_uniform():
    capacity, total, repeats = 5, 20, 4000
    counts = np.zeros(total)
    for seed in range(repeats):
        reservoir = Reservoir(capacity, seed=seed)
        reservoir.append(np.arange(total), np.ones(total))
        counts[contents(reservoir)[0]] += 1
    probability = capacity / total
    deviation = np.sqrt(repeats * probability * (1 - probability))
    z = (counts - repeats * probability) / deviation
    assert np.abs(z).max() < 4.0  # 20 normals: exceeded with probability 0.0013
    # Counts of a sample without replacement: (total - 1)/total * sum z^2 ~ chi2(total - 1).
    assert (total - 1) / total * (z**2).sum() < 43.8  # the 0.999 quantile of chi2(19)


@pytest.mark.parametrize("stop", [0, 10, 30, 31, 233])
def test_reservoir_resumes_bit_identically(stop, tmp_path):
    values, weight = stream(400)
    head = {name: leaf[:stop] for name, leaf in values.items()}
    tail = {name: leaf[stop:] for name, leaf in values.items()}
    whole, first, second = (Reservoir(30, seed=seed) for seed in (2, 2, 99))
    whole.append(values, weight)
    if stop:
        first.append(head, weight[:stop])
    state = first.state()
    assert all(leaf.dtype.kind in "iufb" for leaf in state.values())
    np.savez(tmp_path / "state.npz", **state)
    with np.load(tmp_path / "state.npz") as saved:
        second.restore(dict(saved))
    assert second.num_seen == stop
    if stop:
        same(first, second)
    for reservoir in (first, second):
        reservoir.append(tail, weight[stop:])
        same(whole, reservoir)


def test_reservoir_state_is_a_copy():
    values, weight = stream(400)
    reservoir = Reservoir(30, seed=2)
    reservoir.append(values, weight)
    state = reservoir.state()
    copies = {name: leaf.copy() for name, leaf in state.items()}
    reservoir.append(values, weight)
    for name, leaf in copies.items():
        np.testing.assert_array_equal(state[name], leaf)


def test_reservoir_restores_nested_structures():
    values = ({"b": np.arange(3), "a": np.zeros((3, 2))}, [np.ones(3)])
    first, second = Reservoir(2, seed=0), Reservoir(2, seed=1)
    first.append(values, np.ones(3))
    second.restore(first.state())
    (left, right), _ = second.gather(np.zeros((4, 5), int))
    assert left["a"].shape == (4, 5, 2)
    assert left["b"].shape == (4, 5)
    assert type(right) is list


def test_reservoir_storage_grows_by_doubling():
    reservoir = Reservoir(10**12, seed=0)
    sizes = set()
    for _ in range(1000):
        reservoir.append(np.zeros(1), np.ones(1))
        sizes.add(len(reservoir._stores[0]))
    assert sizes == {2**i for i in range(11)}


def test_reservoir_is_not_fixed_by_an_empty_block():
    reservoir = Reservoir(3, seed=0)
    reservoir.append(np.zeros(0), np.zeros(0))
    reservoir.append(np.arange(2), np.ones(2))
    assert contents(reservoir)[0].tolist() == [0, 1]


def test_reservoir_gathers_any_shape():
    values, weight = stream(10)
    reservoir = Reservoir(20, seed=0)
    reservoir.append(values, weight)
    indices = np.array([[[0, 9]], [[3, 3]]])
    rows, weights = reservoir.gather(indices)
    np.testing.assert_array_equal(rows["x"], values["x"][indices])
    np.testing.assert_array_equal(weights, weight[indices])
    assert reservoir.gather(np.array(4))[0]["k"] == 4
    assert reservoir.gather(np.zeros((0, 3), int))[0]["x"].shape == (0, 3, 2)
    for wrong in ([10], [-1]):
        with refuses("indices", "10 rows"):
            reservoir.gather(np.array(wrong))
    with refuses("empty"):
        Reservoir(3, seed=0).gather(np.zeros(0, int))


def test_reservoir_refuses():
    with refuses("capacity is 0"):
        Reservoir(0, seed=0)
    reservoir = Reservoir(3, seed=0)
    with refuses("weight", "(2,)", "3 rows"):
        reservoir.append(np.zeros(3), np.ones(2))
    reservoir.append(np.zeros(3, int), np.ones(3))
    for wrong in (np.zeros(3), np.zeros((3, 1), int), {"x": np.zeros(3, int)}):
        with refuses("row 3", "RowChecker"):
            reservoir.append(wrong, np.ones(3))
    with refuses("capacity 3", "this one 4"):
        Reservoir(4, seed=0).restore(reservoir.state())
    with refuses("Pair", "dict"):
        Reservoir(3, seed=0).append(Pair(np.zeros(3), np.zeros(3)), np.ones(3))


@pytest.mark.parametrize("inner_fails", [False, True])
def test_a_block_that_is_undone_takes_blocks_within_it_along(inner_fails):
    reservoir, same = (Reservoir(capacity=20, seed=3) for _ in range(2))
    for one in (reservoir, same):
        one.append(np.arange(50.0), np.ones(50))
    with contextlib.suppress(ValueError), reservoir.undoable():
        reservoir.append(-np.arange(30.0), np.ones(30))
        with contextlib.suppress(KeyError), reservoir.undoable():
            reservoir.append(np.full(400, 7.0), np.ones(400))
            if inner_fails:
                raise KeyError
        reservoir.append(np.full(100, 8.0), np.ones(100))
        raise ValueError
    for one in (reservoir, same):
        one.append(np.arange(60.0), np.ones(60))
    assert reservoir.num_seen == same.num_seen
    for found, wanted in zip(reservoir.gather(np.arange(20)), same.gather(np.arange(20))):
        np.testing.assert_array_equal(found, wanted)
