"""Means and deviations of columns in one pass over blocks."""

import itertools

import numpy as np
import pytest

from weighbridge.cli.scaling import measure, scaled
from weighbridge.core.errors import DataError


def columns(num_rows=1000, seed=0):
    rng = np.random.default_rng(seed)
    return {"a": rng.normal(3.0, 2.0, num_rows), "b": rng.normal(1e9, 1.0, num_rows)}


def cut(table, sizes):
    starts = np.cumsum([0, *sizes])
    return [{n: v[i:j] for n, v in table.items()} for i, j in itertools.pairwise(starts)]


def check(found, table):
    for name, values in table.items():
        assert found[name][0] == pytest.approx(values.mean(), rel=1e-14)
        # Squares of 1e9 would have lost a deviation of 1 altogether.
        assert found[name][1] == pytest.approx(values.std(), rel=1e-6)


@pytest.mark.parametrize("sizes", [[1000], [1, 999], [500, 0, 500], [1] * 1000, [7, 400, 593]])
def test_blocks_of_any_size_give_the_same_moments(sizes):
    table = columns()
    check(measure(cut(table, sizes)), table)


def test_rows_with_a_gap_in_any_column_do_not_count():
    table = columns()
    kept = {name: values[10:].copy() for name, values in table.items()}
    table["a"][:5], table["b"][5:10] = np.nan, np.inf
    check(measure(cut(table, [8, 992])), kept)


def test_what_was_measured_scales_to_mean_0_and_deviation_1():
    values = columns()["a"]
    made = scaled(values, *measure([{"a": values}])["a"])
    assert made.mean() == pytest.approx(0.0, abs=1e-13)
    assert made.std() == pytest.approx(1.0)
    several = scaled(np.array([[1, 10], [3, 30]]), np.array([2.0, 20.0]), np.array([1.0, 10.0]))
    assert several.tolist() == [[-1.0, -1.0], [1.0, 1.0]]


@pytest.mark.parametrize("blocks", [[], [{"a": np.array([np.nan])}], [{"a": np.array([])}]])
def test_without_a_row_there_is_nothing_to_scale_by(blocks):
    with pytest.raises(DataError, match="finds no complete row"):
        measure(blocks)


def test_a_constant_column_is_named():
    with pytest.raises(DataError, match="Column 'b' is constant"):
        measure([{"a": np.arange(3.0), "b": np.ones(3)}])
