"""Rows that one of several models cannot use are left out for all."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.errors import DataError
from weighbridge.weighing.common_rows import CommonRows
from weighbridge.weighing.competitor import Competitor, as_it_is


def reads(name, check_rows=None):
    """A model that reads one column."""
    return wb.Model(
        {"mu": dist.Normal(0.0, 1.0)},
        lambda p, row: -0.5 * jnp.square(row[name] - p["mu"]),
        check_rows=check_rows,
    )


def negative(values):
    return {"below zero": values["b"] < 0}


BLOCK = {"a": np.array([1.0, np.nan, 2.0, 3.0]), "b": np.array([1.0, 1.0, -1.0, np.inf])}
PAIR = {
    "a": Competitor(reads("a"), as_it_is),
    "b": Competitor(reads("b", negative), as_it_is),
}


@pytest.mark.parametrize("policy", ["skip", "quarantine"])
def test_every_model_is_asked(policy):
    """A gap in a, and of b what its own check refuses and what is not finite."""
    bad = CommonRows(PAIR, policy, {}).unusable(BLOCK)
    assert bad.tolist() == [False, True, True, True]


def test_nothing_is_counted_by_asking():
    common = CommonRows(PAIR, "skip", {})
    assert common.unusable(BLOCK).tolist() == common.unusable(BLOCK).tolist()


def test_nobody_asks_where_the_first_bad_row_ends_the_run():
    assert CommonRows(PAIR, "raise", {}).unusable(BLOCK) is None


def test_nobody_asks_of_one_model_or_of_no_rows():
    assert CommonRows({"a": PAIR["a"]}, "skip", {}).unusable(BLOCK) is None
    empty = {name: values[:0] for name, values in BLOCK.items()}
    assert CommonRows(PAIR, "skip", {}).unusable(empty) is None


def test_a_model_of_all_the_data_has_no_rows_to_refuse():
    total = wb.Model({"mu": dist.Normal(0.0, 1.0)}, total_log_likelihood=lambda p: -(p["mu"] ** 2))
    both = {"total": Competitor(total, as_it_is), "a": PAIR["a"]}
    assert CommonRows(both, "skip", {}).unusable(BLOCK).tolist() == [False, True, False, False]


def test_each_model_is_asked_of_its_own_view():
    view = Competitor(reads("a"), lambda block: {"a": block["b"]})
    bad = CommonRows({"a": PAIR["a"], "other": view}, "skip", {}).unusable(BLOCK)
    assert bad.tolist() == [False, True, False, True]


def test_a_column_that_was_left_out_is_refused_if_it_is_read():
    left_out = {"b": DataError("Column 'b' holds text.")}
    with pytest.raises(DataError, match="holds text"):
        CommonRows(PAIR, "skip", left_out).unusable({"a": BLOCK["a"]})
