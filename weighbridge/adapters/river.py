"""A river classifier that uses an online comparison of models."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.adapters.defaults import Scaling, classification, fill_columns
from weighbridge.adapters.weigher import Weigher, class_probabilities, label_functions
from weighbridge.core.checks import check_count
from weighbridge.core.errors import DataError, MethodError, MissingDependencyError
from weighbridge.estimators.registry import Method
from weighbridge.models.model import Model
from weighbridge.weighing.online_comparison.online_comparison import OnlineComparison

try:
    from river import base
except ImportError as error:
    raise MissingDependencyError(
        'This adapter needs river: pip install "weighbridge[river]".'
    ) from error

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[Any, Any]
# At most this many names are kept of features that first appear after the first chunk.
REMEMBERED = 100


class RiverClassifier(base.MiniBatchClassifier):
    r"""Classification by several models, weighted by their probabilities.

    Rows are collected until there are ``chunk_size`` of them; then the models absorb them together.
    Predictions use the absorbed rows only (``flush`` absorbs the collected rows at once). Before
    the first chunk all classes have the same probability.

    The first chunk fixes the features (every feature of any of its rows), their scaling, and the
    classes, if they are not given. If a feature is missing in a row, or NaN, its mean over the
    first chunk is used. A feature that first appears later is left out; ``features_left_out`` has
    the names of the first hundred of these. A label that first appears later is an error: give
    ``classes``.

    Args:
        models: ``wb.Model`` by name, of rows ``{"x": (features,), "y": ()}`` with features in
            sorted order, scaled, and labels 0..K-1; or a function of the number of features and
            the number of classes that returns them. By default softmax regression on all features
            and on none.
        classes: all labels that can occur.
        chunk_size: number of rows that are absorbed together.
        method: a method object, or its name.
        seed: the same seed and the same rows give the same numbers.
        prior_odds: prior weight of each model; equal by default.

    >>> import weighbridge as wb
    >>> from weighbridge.adapters import RiverClassifier
    >>> small = wb.SGAIS(num_islands=4, num_particles=16)
    >>> classifier = RiverClassifier(chunk_size=20, method=small)
    >>> for k in range(40):
    ...     classifier.learn_one({"a": (k * 7) % 10, "b": 1.0}, (k * 7) % 10 > 4)
    >>> classifier.predict_one({"a": 9.0}), classifier.predict_one({"a": 0.0})
    (True, False)
    """

    def __init__(
        self,
        models: Mapping[str, Model] | Callable[[int, int], Mapping[str, Model]] | None = None,
        classes: Sequence[Any] | None = None,
        chunk_size: int = 100,
        method: str | Method = "auto",
        seed: int = 0,
        prior_odds: Mapping[str, float] | None = None,
    ) -> None:
        check_count("chunk_size", chunk_size)
        self.models = models
        self.classes = classes
        self.chunk_size = chunk_size
        self.method = method
        self.seed = seed
        self.prior_odds = prior_odds
        self.features_left_out: set[Any] = set()
        self._labels: list[Any] = list(dict.fromkeys(classes or ()))
        self._held: list[tuple[dict[Any, float], Any]] = []
        self._features: list[Any] = []
        self._scaling: Scaling | None = None
        self._weigher: Weigher | None = None

    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Any:
        from weighbridge.estimators.sgais.sgais import SGAIS

        yield {"method": SGAIS(num_islands=4, num_particles=16)}

    @property
    def comparison(self) -> OnlineComparison:
        """The comparison so far: evidences, probabilities, history, results."""
        if self._weigher is None:
            raise MethodError(
                f"No row has been absorbed yet: {len(self._held)} of {self.chunk_size} are held "
                "back. Learn more, or call flush()."
            )
        return self._weigher.comparison

    def learn_one(self, x: Row, y: Any) -> None:
        """Add one row; it is absorbed when its chunk is complete.

        Args:
            x: features by name.
            y: its label.
        """
        label = y.item() if isinstance(y, np.generic) else y
        if label not in self._labels:
            if self._weigher is not None or self.classes is not None:
                raise DataError(
                    f"The label {label!r} is none of the classes {self._labels}: give all labels "
                    "at the start, RiverClassifier(classes=[...])."
                )
            self._labels.append(label)
        self._held.append((_numbers(x), label))
        if len(self._held) >= self.chunk_size:
            self.flush()

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Add several rows, one by one."""
        for row, label in zip(_rows(X), y.tolist()):
            self.learn_one(row, label)

    def flush(self) -> None:
        """Absorb the collected rows; the first chunk fixes features, scaling and classes."""
        if not self._held:
            return
        rows, labels = [row for row, _ in self._held], [label for _, label in self._held]
        weigher, features, scaling = self._weigher, self._features, self._scaling
        if weigher is None or scaling is None:
            features = sorted({name for row in rows for name in row}, key=_order)
            table = _table(rows, features)
            scaling = _measure(table)
            weigher = self._begin(len(features))
        late = {name for row in rows for name in row}.difference(features)
        room = REMEMBERED - len(self.features_left_out)
        self.features_left_out.update(sorted(late - self.features_left_out, key=_order)[:room])
        codes = np.array([self._labels.index(label) for label in labels])
        weigher.update({"x": self._scaled(rows, features, scaling), "y": codes})
        self._weigher, self._features, self._scaling = weigher, features, scaling
        self._held = []

    def predict_proba_one(self, x: Row, **kwargs: Any) -> dict[Any, float]:
        """Probability of each class for one row; empty while no class is known."""
        return self._probabilities([_numbers(x)])[0]

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Probability of each class, a column, for each row."""
        import pandas as pd

        found = self._probabilities([_numbers(row) for row in _rows(X)])
        return pd.DataFrame(found, index=X.index, columns=pd.Index(self._labels, dtype=object))

    def _probabilities(self, rows: list[dict[Any, float]]) -> list[dict[Any, float]]:
        if self._weigher is None or self._scaling is None or not rows:
            even = {label: 1.0 / len(self._labels) for label in self._labels}
            return [dict(even) for _ in rows]
        inputs = {"x": self._scaled(rows, self._features, self._scaling)}
        found = self._weigher.evaluate(inputs, class_probabilities)
        return [dict(zip(self._labels, values)) for values in found.tolist()]

    def _scaled(
        self, rows: list[dict[Any, float]], features: list[Any], scaling: Scaling
    ) -> np.ndarray:
        """The scaled features for the models; a missing value is replaced by the mean."""
        values = np.nan_to_num(scaling.apply(_table(rows, features)))
        return fill_columns(values) if self.models is None else values

    def _begin(self, num_features: int) -> Weigher:
        make = classification if self.models is None else self.models
        models = make(num_features, len(self._labels)) if callable(make) else make
        functions = label_functions(models, len(self._labels))
        return Weigher(models, functions, self.method, self.seed, self.prior_odds)


def _rows(X: pd.DataFrame) -> list[dict[Any, Any]]:
    names = X.columns.tolist()
    return [dict(zip(names, values)) for values in X.itertuples(index=False, name=None)]


def _numbers(x: Row) -> dict[Any, float]:
    """A copy of a row as numbers, without its missing values."""
    for name, value in x.items():
        if not isinstance(value, numbers.Real | np.bool_):
            raise DataError(
                f"The feature {name!r} is {value!r}, not a number. Encode it first, for example "
                "with river.preprocessing.OneHotEncoder."
            )
        if math.isinf(value):
            raise DataError(f"The feature {name!r} is infinite: leave such rows out.")
    return {name: float(value) for name, value in x.items() if not math.isnan(value)}


def _table(rows: list[dict[Any, float]], features: list[Any]) -> np.ndarray:
    values = [[row.get(name, math.nan) for name in features] for row in rows]
    return np.array(values, float).reshape(len(rows), len(features))


def _measure(table: np.ndarray) -> Scaling:
    """The scaling of each column from its values that are not missing; there is at least one."""
    columns = [Scaling.measure(column[~np.isnan(column)][:, None]) for column in table.T]
    return Scaling(
        np.array([column.centre[0] for column in columns]),
        np.array([column.spread[0] for column in columns]),
    )


def _order(name: Any) -> tuple[str, Any]:
    """Sort key: by the name of the type first, then by the value."""
    return type(name).__name__, name if isinstance(name, str | int | float) else repr(name)
