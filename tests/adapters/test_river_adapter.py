"""The classifier for river: its own checks, and what it does with rows that are not alike."""

import random

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from river import checks

import weighbridge as wb
from weighbridge.adapters import RiverClassifier, WeighbridgeClassifier

pytestmark = pytest.mark.long

SMALL = wb.SGAIS(num_islands=4, num_particles=16)


def log_label(parameters, row):
    scores = parameters["w"] @ row["x"][:2] + parameters["b"]
    return jax.nn.log_softmax(scores)[row["y"]]


def log_label_without(parameters, row):
    return jax.nn.log_softmax(parameters["b"])[row["y"]]


def few(num_features, num_classes):
    """Regression on two features and on none: streams of seven classes stay cheap."""
    level = dist.Normal(0.0, 1.0).expand([num_classes]).to_event(1)
    slopes = dist.Normal(0.0, 1.0).expand([num_classes, 2]).to_event(2)
    return {
        "two": wb.Model({"w": slopes, "b": level}, log_label),
        "none": wb.Model({"b": level}, log_label_without),
    }


# Chunks that the streams of the checks fill several times.
CHECKED = RiverClassifier(models=few, method=SMALL, chunk_size=50)


@pytest.mark.parametrize("check", [*checks.yield_checks(CHECKED)], ids=lambda c: c.__name__)
def test_checks_of_river(check):
    random.seed(0)
    check(CHECKED.clone())


def stream(num_rows=60, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal([5.0, -3.0], [2.0, 0.1], size=(num_rows, 2))
    y = X[:, 0] + generator.normal(size=num_rows) > 5.0
    front = int(np.argmin(y))  # the first label is False, as in sorted ones
    order = [front, *(k for k in range(num_rows) if k != front)]
    return X[order], y[order]


def rows(X, names=("a", "b")):
    return [dict(zip(names, map(float, x))) for x in X]


@pytest.fixture(scope="module")
def learned():
    X, y = stream()
    classifier = RiverClassifier(method=SMALL, chunk_size=60)
    for x, label in zip(rows(X), y):
        classifier.learn_one(x, label)
    return classifier


def test_it_predicts_what_the_other_adapter_does(learned):
    X, y = stream()
    other = WeighbridgeClassifier(method=SMALL).fit(X, y)
    found = [learned.predict_proba_one(x) for x in rows(X)]
    np.testing.assert_allclose(
        [[p[False], p[True]] for p in found], other.predict_proba(X), rtol=1e-12
    )
    assert learned.comparison.probabilities == pytest.approx(other.comparison_.probabilities)
    many = learned.predict_proba_many(pd.DataFrame(X, columns=["a", "b"], index=range(9, 69)))
    assert many.index[0] == 9
    np.testing.assert_allclose(many[True], other.predict_proba(X)[:, 1], rtol=1e-12)


def test_features_that_are_missing_or_new(learned):
    X, _ = stream()
    mean = learned.predict_proba_one({"a": 7.0, "b": X[:, 1].mean()})
    assert learned.predict_proba_one({"a": 7.0}) == pytest.approx(mean)
    assert learned.predict_proba_one({"a": 7.0, "b": float("nan")}) == pytest.approx(mean)
    assert learned.predict_proba_one({"a": 7.0, "late": 4.0}) == pytest.approx(mean)
    classifier = learned.clone()
    classifier.learn_many(pd.DataFrame(X, columns=["a", "b"]), pd.Series(stream()[1]))
    classifier.learn_one({"a": 1.0, "late": 2.0}, False)
    classifier.flush()
    assert classifier.features_left_out == {"late"}
    assert classifier.comparison.num_observations == 61


def test_rows_are_held_back_until_there_is_a_chunk():
    X, y = stream()
    classifier = RiverClassifier(method=SMALL, chunk_size=60)
    assert classifier.predict_proba_one({"a": 1.0}) == {}
    assert classifier.predict_one({"a": 1.0}) is None
    for x, label in zip(rows(X[:59]), y):
        classifier.learn_one(x, label)
    assert classifier.predict_proba_one({"a": 1.0}) == {False: 0.5, True: 0.5}
    with pytest.raises(wb.MethodError, match="59 of 60 are held back"):
        _ = classifier.comparison
    classifier.learn_one(rows(X)[59], y[59])
    assert classifier.comparison.num_observations == 60
    assert classifier.predict_proba_one({"a": 20.0})[True] > 0.9


def test_what_cannot_be_learned_is_refused(learned):
    with pytest.raises(wb.DataError, match="The label 'maybe' is none of the classes"):
        learned.learn_one({"a": 1.0}, "maybe")
    named = RiverClassifier(classes=["yes", "no"], method=SMALL)
    assert named.predict_proba_one({}) == {"yes": 0.5, "no": 0.5}
    with pytest.raises(wb.DataError, match="classes=\\["):
        named.learn_one({"a": 1.0}, "maybe")
    with pytest.raises(wb.DataError, match="'colour' is 'red', not a number"):
        named.learn_one({"colour": "red"}, "yes")
    with pytest.raises(wb.DataError, match="infinite"):
        named.learn_one({"a": float("inf")}, "yes")
    with pytest.raises(wb.MethodError, match="chunk_size"):
        RiverClassifier(chunk_size=0)
