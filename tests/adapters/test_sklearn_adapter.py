"""The estimators for scikit-learn: its own checks, and that they predict what the models say."""

import importlib
import pickle
import sys

import numpy as np
import numpyro.distributions as dist
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import weighbridge as wb
from weighbridge.adapters import WeighbridgeClassifier, WeighbridgeRegressor, defaults

pytestmark = pytest.mark.long

# Few particles: the checks fit dozens of tiny sets of data.
SMALL = wb.SGAIS(num_islands=4, num_particles=16)
CHECKED = [WeighbridgeClassifier(method=SMALL), WeighbridgeRegressor(method=SMALL)]


@pytest.fixture(autouse=True)
def one_width(monkeypatch):
    """The checks have up to ten features: all of them in one width compile the least."""
    monkeypatch.setattr(defaults, "COLUMNS", 16)


@parametrize_with_checks(CHECKED)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def labelled(num_rows=60, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(num_rows, 3))
    y = np.digitize(X[:, 0] + 0.3 * generator.normal(size=num_rows), [-0.5, 0.5])
    return X, np.array(["low", "middle", "high"])[y]


def on_line(parameters, row):
    return dist.Normal(row["x"] @ parameters["w"] + parameters["b"], 1.0)


def test_filling_up_does_not_touch_the_likelihood():
    generator = np.random.default_rng(0)
    models = defaults.classification(3, 3)
    X, y = generator.normal(size=(5, 3)), np.array([0, 1, 2, 1, 0])
    filled = defaults.fill_columns(X)
    draws = models[defaults.ALL].sample_prior(4, seed=1)
    for k in range(4):
        scores = X @ draws["w"][k, :3, :3].T + draws["b"][k, :3]
        for name, expected in ((defaults.ALL, scores), (defaults.NONE, 0 * X + draws["b"][k, :3])):
            log_norm = np.log(np.exp(expected).sum(axis=1))
            parameters = {key: value[k] for key, value in draws.items()}
            for row in range(5):
                told = models[name].log_likelihood(parameters, {"x": filled[row], "y": y[row]})
                wanted = expected[row, y[row]] - log_norm[row]
                np.testing.assert_allclose(told, wanted, rtol=1e-5)  # called in single precision


def test_probabilities_are_those_of_the_models_by_their_evidence():
    X, y = labelled(20)
    classifier = WeighbridgeClassifier(
        method=SMALL, prior_odds={defaults.ALL: 1e-3, defaults.NONE: 1}
    )
    classifier.fit(X, y)
    assert classifier.classes_.tolist() == ["high", "low", "middle"]
    found = classifier.comparison_.result()
    assert 0.001 < found.probabilities[defaults.NONE] < 0.999  # both of them matter
    expected = np.zeros((20, 3))
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    for name, result in found.results.items():
        slopes = result.samples["w"][:, :3, :3] if "w" in result.samples else np.zeros((1, 3, 3))
        scores = np.einsum("skf,nf->snk", slopes, scaled) + result.samples["b"][:, None, :3]
        shares = np.exp(scores) / np.exp(scores).sum(axis=2, keepdims=True)
        weights = found.probabilities[name] * np.exp(result.log_weights)
        expected += np.einsum("s,snk->nk", weights, shares)
    np.testing.assert_allclose(classifier.predict_proba(X), expected, rtol=1e-9, atol=1e-12)


def test_a_regressor_predicts_the_conjugate_posterior():
    data = wb.zoo.linear.simulate(200, num_features=2, seed=3)
    line = wb.zoo.linear.model(2)
    far = {"w": dist.Normal(5.0, 1.0).expand([2]).to_event(1), "b": dist.Normal(0.0, 1.0)}
    models = {"line": line, "far": wb.Model(far, line.log_likelihood)}
    regressor = WeighbridgeRegressor(models, on_line, method=SMALL).fit(data["x"], data["y"])
    assert regressor.comparison_.probabilities["line"] > 0.999
    rows = np.column_stack([data["x"], np.ones(200)])
    covariance = np.linalg.inv(np.eye(3) + rows.T @ rows)
    new = np.array([[0.0, 0.0, 1.0], [1.0, -1.0, 1.0], [20.0, 0.0, 1.0]])
    mean, sd = regressor.predict(new[:, :2], return_std=True)
    doubt = np.sqrt(np.einsum("nf,fg,ng->n", new, covariance, new))
    # The mean of 64 particles, whose errors are those of about 16 independent ones or better.
    assert np.all(np.abs(mean - new @ covariance @ rows.T @ data["y"]) < 4 * doubt / np.sqrt(16))
    np.testing.assert_allclose(sd[:2], np.hypot(1.0, doubt[:2]), rtol=0.02)
    assert 0.5 < (sd[2] ** 2 - 1) / doubt[2] ** 2 < 1.6


def test_rows_in_pieces_and_through_a_pickle():
    X, y = labelled(90)
    pieces = WeighbridgeClassifier(method=SMALL)
    pieces.partial_fit(X[:40], y[:40], classes=["low", "middle", "high"])
    copied = pickle.loads(pickle.dumps(pieces))
    np.testing.assert_array_equal(copied.predict_proba(X), pieces.predict_proba(X))
    for estimator in (pieces, copied):
        estimator.partial_fit(X[40:], y[40:])
    assert pieces.comparison_.num_observations == 90
    np.testing.assert_array_equal(copied.predict_proba(X), pieces.predict_proba(X))
    assert pieces.score(X, y) > 0.7


def test_models_can_be_made_for_the_data_and_cloned():
    seen = []

    def make(num_features, num_classes):
        seen.append((num_features, num_classes))
        return defaults.classification(16, num_classes)

    X, y = labelled()
    estimator = clone(WeighbridgeClassifier(make, method=SMALL))
    estimator.fit(np.pad(X, ((0, 0), (0, 13))), y)
    assert seen == [(16, 3)]
    given = WeighbridgeClassifier(wb.adapters.defaults.classification(16, 3), method=SMALL)
    again = clone(given).fit(np.pad(X, ((0, 0), (0, 13))), y)
    np.testing.assert_array_equal(
        again.predict_proba(np.pad(X, ((0, 0), (0, 13)))),
        estimator.predict_proba(np.pad(X, ((0, 0), (0, 13)))),
    )


def test_what_cannot_be_fitted_is_refused():
    X, y = labelled()
    with pytest.raises(wb.MethodError, match="classes must be passed on the first call"):
        WeighbridgeClassifier(method=SMALL).partial_fit(X, y)
    fitted = WeighbridgeClassifier(method=SMALL).fit(X, y)
    before = fitted.predict_proba(X)
    with pytest.raises(wb.DataError, match="'none'"):
        fitted.partial_fit(X[:2], ["none", "low"])
    with pytest.raises(wb.MethodError, match="not the same as on the first call"):
        fitted.partial_fit(X, y, classes=["low", "high"])
    np.testing.assert_array_equal(fitted.predict_proba(X), before)
    with pytest.raises(wb.MethodError, match="functions must give the prediction of each of"):
        WeighbridgeRegressor({"line": wb.zoo.linear.model(3)}).fit(X, X[:, 0])
    with pytest.raises(wb.MethodError, match="mapping from names to models"):
        WeighbridgeClassifier({}).fit(X, y)


@pytest.mark.parametrize("library", ["sklearn", "river"])
def test_a_missing_library_is_named(monkeypatch, library):
    for name in [n for n in sys.modules if n.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"weighbridge.adapters.{library}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(wb.MissingDependencyError, match=rf"weighbridge\[{library}\]"):
        importlib.import_module(f"weighbridge.adapters.{library}")
