"""Autocorrelation of the draws of a chain, and thinning by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.diagnostics.draws import array_stats, check_draws, of_entries

# Sokal (1997): the window is this many autocorrelation lengths wide.
WINDOW = 5.0


def autocorrelation(draws: Any) -> np.ndarray:
    r"""Autocorrelation of each chain at every lag, by FFT.

    .. math:: \rho_k = \frac{\sum_{i=1}^{n-k} (x_i - \bar x)(x_{i+k} - \bar x)}
                            {\sum_{i=1}^{n} (x_i - \bar x)^2}

    Args:
        draws: chains x draws x shape.

    Returns:
        Chains x lags x shape, from lag 0, where it is 1; NaN for draws that are all equal.

    >>> autocorrelation([[1.0, -1.0, 1.0, -1.0]]).round(2)
    array([[ 1.  , -0.75,  0.5 , -0.25]])
    """
    chains = check_draws(draws)
    varies = np.ptp(chains, axis=1, keepdims=True) > 0  # rounding is not variation
    with np.errstate(invalid="ignore"):
        return np.where(varies, array_stats().autocorr(chains, axis=1), np.nan)


def autocorrelation_length(draws: Any) -> Any:
    r"""Integrated autocorrelation length: this many draws are worth one independent draw.

    .. math:: \tau = 1 + 2 \sum_{k=1}^{M} \rho_k, \qquad M \ge 5 \max(\tau, 1)

    The sum stops at the first such M, since later terms are mostly noise. The autocorrelations are
    averaged over the chains that are not constant. Chains should have at least 50 times this
    length; in shorter ones it is underestimated.

    Args:
        draws: chains x draws x shape.

    Returns:
        A number, or an array of the shape of one draw; NaN for draws that are not finite or all
        equal.

    >>> generator = np.random.default_rng(0)
    >>> slow = np.repeat(generator.normal(size=(4, 1000)), 10, axis=1)
    >>> bool(9 < autocorrelation_length(slow) < 11)
    True

    Reference: Sokal (1997), in Functional Integration: Basics and Applications, pages 131-192.
    """
    return of_entries(draws, _integrated_length)


def _integrated_length(chains: np.ndarray) -> float:
    correlation = autocorrelation(chains[np.ptp(chains, axis=1) > 0]).mean(axis=0)
    lengths = 2 * np.cumsum(correlation) - 1
    wide_enough = np.arange(len(lengths)) >= WINDOW * np.maximum(lengths, 1.0)
    window = int(np.argmax(wide_enough)) if wide_enough.any() else len(lengths) - 1
    return float(lengths[window])


@overload
def thin(draws: Mapping[str, Any]) -> dict[str, np.ndarray]: ...
@overload
def thin(draws: np.ndarray) -> np.ndarray: ...
def thin(draws: Any) -> Any:
    """Keep one draw per autocorrelation length; these are about independent.

    This only saves memory: estimates from all draws are more accurate.

    Args:
        draws: chains x draws x shape, or a mapping of names to such arrays. All arrays of a mapping
            are thinned in the same way, by the longest autocorrelation length among their entries.

    Returns:
        The draws that are kept; the last draw of each chain is always kept.

    >>> slow = np.repeat(np.random.default_rng(0).normal(size=(4, 1000)), 10, axis=1)
    >>> thin(slow).shape[1] in range(900, 1100)
    True
    """
    arrays = dict(draws) if isinstance(draws, Mapping) else {"": draws}
    chains = {name: check_draws(array) for name, array in arrays.items()}
    lengths = [np.ravel(autocorrelation_length(array)) for array in chains.values()]
    known = np.concatenate(lengths)[np.isfinite(np.concatenate(lengths))]
    if not len(known):
        raise MethodError(
            "The draws cannot be thinned: every entry is constant or not finite, so there is no "
            "autocorrelation length."
        )
    stride = max(1, int(np.ceil(known.max() - 1e-9)))
    # Counted from the end, because the start of a chain is the least reliable.
    kept = {name: array[:, ::-1][:, ::stride][:, ::-1] for name, array in chains.items()}
    return kept if isinstance(draws, Mapping) else kept[""]
