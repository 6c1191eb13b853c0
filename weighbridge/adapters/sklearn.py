"""scikit-learn estimators that use an online comparison of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weighbridge.adapters.defaults import (
    REGRESSION_FUNCTIONS,
    Scaling,
    classification,
    fill_columns,
    regression,
)
from weighbridge.adapters.weigher import (
    Moments,
    Weigher,
    class_probabilities,
    label_functions,
    mean_and_variance,
)
from weighbridge.core.errors import DataError, MethodError, MissingDependencyError
from weighbridge.estimators.registry import Method
from weighbridge.models.model import Model
from weighbridge.results.prediction import Function
from weighbridge.weighing.online_comparison.online_comparison import OnlineComparison

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingDependencyError(
        'This adapter needs scikit-learn: pip install "weighbridge[sklearn]".'
    ) from error

Models = Mapping[str, Model] | Callable[..., Mapping[str, Model]] | None


class _WeighingEstimator(BaseEstimator):
    """The common part of the classifier and the regressor."""

    @property
    def comparison_(self) -> OnlineComparison:
        """The comparison that was fitted: evidences, probabilities, history, results."""
        check_is_fitted(self)
        found: OnlineComparison = self._weigher.comparison
        return found

    def _is_new(self) -> bool:
        return not hasattr(self, "_weigher")

    def _forget(self) -> None:
        for name in ("_weigher", "_scaling", "classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                delattr(self, name)

    def _features(self, X: np.ndarray) -> np.ndarray:
        """The features for the models; for the default models they are scaled and padded."""
        if self.models is not None:
            return X
        return fill_columns(self._scaling.apply(X))


class WeighbridgeClassifier(ClassifierMixin, _WeighingEstimator):
    r"""Classification by several models, weighted by their probabilities.

    .. math:: p(y^* | x^*, D) = \sum_m P(m | D) \, p(y^* | x^*, m, D)

    Args:
        models: ``wb.Model`` by name, of rows ``{"x": (features,), "y": ()}`` with labels 0..K-1 in
            the order of ``classes_``; or a function of the number of features and the number of
            classes that returns them. By default softmax regression on all features and on none;
            features are scaled by the rows of the first call.
        method: a method object, or its name.
        seed: the same seed and the same calls give the same numbers.
        prior_odds: prior weight of each model; equal by default.

    >>> import weighbridge as wb
    >>> from weighbridge.adapters import WeighbridgeClassifier
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = np.where(X[:, 0] > 0, "up", "down")
    >>> small = wb.SGAIS(num_islands=4, num_particles=16)
    >>> classifier = WeighbridgeClassifier(method=small).fit(X[:50], y[:50])
    >>> classifier.predict_proba(X[50:]).shape, classifier.score(X[50:], y[50:]) > 0.7
    ((10, 2), True)
    >>> classifier.comparison_.probabilities["all features"] > 0.99
    True
    """

    def __init__(
        self,
        models: Models = None,
        *,
        method: str | Method = "auto",
        seed: int = 0,
        prior_odds: Mapping[str, float] | None = None,
    ) -> None:
        self.models = models
        self.method = method
        self.seed = seed
        self.prior_odds = prior_odds

    def fit(self, X: Any, y: Any) -> WeighbridgeClassifier:
        """Compare the models on these rows only, without earlier ones."""
        self._forget()
        return self._learn(X, y, None)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> WeighbridgeClassifier:
        """Add these rows to the comparison of the models.

        Args:
            X: rows x features.
            y: one label for each row.
            classes: all labels that can occur; needed in the first call only.
        """
        if self._is_new() and classes is None:
            raise MethodError(
                "classes must be passed on the first call to partial_fit: all labels that can "
                "occur."
            )
        return self._learn(X, y, classes)

    def _learn(self, X: Any, y: Any, classes: Any) -> WeighbridgeClassifier:
        first = self._is_new()
        X, y = validate_data(self, X, y, dtype=np.float64, reset=first)
        check_classification_targets(y)
        if first:
            self.classes_ = np.unique(y if classes is None else np.asarray(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise MethodError(
                f"classes is not the same as on the first call to partial_fit: {self.classes_}."
            )
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise DataError(
                f"The labels {unknown[:5].tolist()} are not among the classes of the first call. "
                "Start again with all classes."
            )
        if first:
            self._scaling = Scaling.measure(X)
            self._weigher = self._begin(X.shape[1], len(self.classes_))
        self._weigher.update({"x": self._features(X), "y": np.searchsorted(self.classes_, y)})
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, in the order of ``classes_``, for each row."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self._weigher.evaluate({"x": self._features(X)}, class_probabilities)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        likely = np.argmax(self.predict_proba(X), axis=1)
        return np.asarray(self.classes_[likely])

    def _begin(self, num_features: int, num_classes: int) -> Weigher:
        make = classification if self.models is None else self.models
        models = make(num_features, num_classes) if callable(make) else make
        functions = label_functions(models, num_classes)
        return Weigher(models, functions, self.method, self.seed, self.prior_odds)


class WeighbridgeRegressor(RegressorMixin, _WeighingEstimator):
    r"""Regression by several models, weighted by their probabilities.

    .. math:: p(y^* | x^*, D) = \sum_m P(m | D) \, p(y^* | x^*, m, D)

    Args:
        models: ``wb.Model`` by name, of rows ``{"x": (features,), "y": ()}``; or a function of the
            number of features that returns them. By default linear regression with unknown noise on
            all features and on none; columns are scaled by the rows of the first call.
        functions: the prediction of each model, or one function for all, as in ``wb.average``:
            ``function(parameters, row)`` returns a NumPyro distribution of y, or its mean.
        method: a method object, or its name.
        seed: the same seed and the same calls give the same numbers.
        prior_odds: prior weight of each model; equal by default.

    >>> import weighbridge as wb
    >>> from weighbridge.adapters import WeighbridgeRegressor
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> small = wb.SGAIS(num_islands=4, num_particles=16)
    >>> regressor = WeighbridgeRegressor(method=small).fit(X, 3.0 * X[:, 0] + 5.0)
    >>> mean, sd = regressor.predict([[1.0, 0.0], [50.0, 0.0]], return_std=True)
    >>> bool(abs(mean[0] - 8.0) < 0.5), bool(sd[1] > sd[0])
    (True, True)
    """

    def __init__(
        self,
        models: Models = None,
        functions: Mapping[str, Function] | Function | None = None,
        *,
        method: str | Method = "auto",
        seed: int = 0,
        prior_odds: Mapping[str, float] | None = None,
    ) -> None:
        self.models = models
        self.functions = functions
        self.method = method
        self.seed = seed
        self.prior_odds = prior_odds

    def fit(self, X: Any, y: Any) -> WeighbridgeRegressor:
        """Compare the models on these rows only, without earlier ones."""
        self._forget()
        return self.partial_fit(X, y)

    def partial_fit(self, X: Any, y: Any) -> WeighbridgeRegressor:
        """Add these rows to the comparison of the models.

        Args:
            X: rows x features.
            y: one number for each row.
        """
        first = self._is_new()
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, reset=first)
        if first:
            self._scaling = Scaling.measure(X)
            self._target_scaling = Scaling.measure(np.asarray(y, np.float64)[:, None])
            self._weigher = self._begin(X.shape[1])
        if self.models is None:
            y = self._target_scaling.apply(np.asarray(y, np.float64)[:, None])[:, 0]
        self._weigher.update({"x": self._features(X), "y": np.asarray(y, np.float64)})
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean of the prediction for each row.

        Args:
            X: rows x features.
            return_std: whether to return its standard deviation too, which includes the noise and
                the uncertainty of the parameters and of the model.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        found = self._weigher.evaluate({"x": self._features(X)}, mean_and_variance)
        mean, sd = found[:, 0], np.sqrt(found[:, 1])
        if self.models is None:
            centre, spread = self._target_scaling.centre[0], self._target_scaling.spread[0]
            mean, sd = centre + spread * mean, spread * sd
        return (mean, sd) if return_std else mean

    def _begin(self, num_features: int) -> Weigher:
        make = regression if self.models is None else self.models
        models = make(num_features) if callable(make) else make
        functions = REGRESSION_FUNCTIONS if self.models is None else self._named_functions(models)
        moments = {name: Moments(functions[name]) for name in models}
        return Weigher(models, moments, self.method, self.seed, self.prior_odds)

    def _named_functions(self, models: Mapping[str, Model]) -> Mapping[str, Function]:
        if callable(self.functions):
            return dict.fromkeys(models, self.functions)
        if not isinstance(self.functions, Mapping) or set(self.functions) != set(models):
            raise MethodError(
                f"functions must give the prediction of each of {list(models)}, as "
                "{name: function(parameters, row)}, or be one function for all."
            )
        return self.functions
