"""Predictions averaged over models, weighted by their posterior probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from weighbridge.core.checks import check_count, check_seed
from weighbridge.core.errors import MethodError, WeighbridgeWarning
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.prediction import Function, Prediction
from weighbridge.weighing.comparing import compare
from weighbridge.weighing.comparison import Comparison


def average(
    results: Mapping[str, Evidence] | Comparison,
    functions: Mapping[str, Function] | Function,
    inputs: Any = None,
    *,
    prior_odds: Mapping[str, float] | None = None,
    num_draws: int = 1000,
    seed: int = 0,
) -> Prediction:
    r"""Draws from the predictions of several models, averaged by their evidence.

    .. math:: p(y^* | y) = \sum_m p(m | y) \, p(y^* | m, y)

    Cameron (2020), equation 1.5; Hoeting et al. (1999), Statistical Science 14:382-417. A model
    gives ``num_draws`` times its probability draws, rounded up or down at random (systematic
    sampling), so the expected number over seeds is exact. If the comparison is undecided, because
    of grave flags, its probabilities are not to be trusted, and there is a warning.

    Args:
        results: the evidence of each model by name, or the result of ``wb.compare``.
        functions: a function for each model, as in ``Evidence.predict``, or one for all models.
        inputs: rows to predict, the same for every model.
        prior_odds: prior weight of each model; by default equal, or as in the comparison.
        num_draws: total number of draws.
        seed: the same seed gives the same numbers.

    Returns:
        The prediction; its ``probabilities`` are those of the models.

    >>> from weighbridge.results.trace import Trace
    >>> def fake(z, w):
    ...     return Evidence(z, 0.1, 9, "smc", Trace(), {"w": np.array([w])}, np.zeros(1))
    >>> results = {"a": fake(0.0, 1.0), "b": fake(np.log(3.0), 5.0)}
    >>> prediction = average(results, lambda p, x: p["w"] * x, [1.0, 10.0])
    >>> prediction.mean.tolist(), round(prediction.probabilities["b"], 6)
    ([4.0, 40.0], 0.75)
    """
    check_seed(seed)
    check_count("num_draws", num_draws)
    comparison = _comparison(results, prior_odds)
    if not comparison.is_decided:
        warnings.warn(f"{comparison.caution}.", WeighbridgeWarning, stacklevel=2)
    names = list(comparison.results)
    function_of = _functions(functions, names)
    streams = np.random.SeedSequence(seed).spawn(len(names) + 1)
    generator = np.random.default_rng(streams[0])
    counts = _allocate(comparison.probabilities, num_draws, generator.random())
    pieces: dict[str, np.ndarray] = {}
    for name, stream in zip(names, streams[1:]):
        if counts[name]:
            own_seed = int(stream.generate_state(1, np.uint64)[0] >> np.uint64(1))
            pieces[name] = (
                comparison.results[name]
                .predict(function_of[name], inputs, num_draws=counts[name], seed=own_seed)
                .draws
            )
    shapes = {name: piece.shape[1:] for name, piece in pieces.items()}
    if len(set(shapes.values())) > 1:
        raise MethodError(
            f"The models predict values of different shapes ({shapes}): they cannot be averaged. "
            "Let every function return the same quantity."
        )
    # Shuffle the draws, so that the first n of them are not all from the same model.
    draws = generator.permutation(np.concatenate(list(pieces.values())))
    num_rows = None if inputs is None else draws.shape[1]
    return Prediction(draws, num_rows, dict(comparison.probabilities))


def _comparison(
    results: Mapping[str, Evidence] | Comparison, prior_odds: Mapping[str, float] | None
) -> Comparison:
    """Return the given comparison, or compare the results, with these prior odds."""
    if not isinstance(results, Comparison):
        return compare(results, prior_odds=prior_odds)
    if not results.results:
        raise MethodError(
            "This comparison does not hold the results of its models. Make it with wb.compare."
        )
    results.require_complete()
    if prior_odds is None:
        return results
    # The first comparison has already checked that the data are the same.
    return compare(results.results, prior_odds=prior_odds, same_data=False)


def _functions(
    functions: Mapping[str, Function] | Function, names: list[str]
) -> Mapping[str, Function]:
    if not isinstance(functions, Mapping):
        return dict.fromkeys(names, functions)
    if set(functions) != set(names):
        raise MethodError(
            f"functions must name each of {names}, and no other model; it names "
            f"{list(functions)}. A single function is used for all models."
        )
    return functions


def _allocate(probabilities: Mapping[str, float], num_draws: int, point: float) -> dict[str, int]:
    """Draws of each model: num_draws times its probability, rounded up or down at random.

    >>> _allocate({"a": 0.25, "b": 0.75}, 10, 0.1), _allocate({"a": 0.25, "b": 0.75}, 10, 0.9)
    ({'a': 3, 'b': 7}, {'a': 2, 'b': 8})
    """
    ends = num_draws * np.cumsum(list(probabilities.values()))
    ends[-1] = num_draws
    # The number of points k + point (k = 0, 1, ...) below each end.
    below = np.ceil(ends - point).astype(int)
    below[-1] = num_draws
    return dict(zip(probabilities, np.diff(below, prepend=0).tolist()))
