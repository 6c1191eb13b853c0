"""Convergence of chains, and the effective sample size of their draws."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from weighbridge.diagnostics.draws import array_stats, choose, of_entries

Kind = Literal["bulk", "tail", "mean"]


def rhat(draws: Any, method: Literal["rank", "classic"] = "rank") -> Any:
    r"""Potential scale reduction: the spread of all chains together relative to that of each.

    With B the variance between and W the variance within m chains of n draws,

    .. math:: \hat R = \sqrt{\frac{(n - 1) W / n + B / n}{W}}

    Args:
        draws: chains x draws x shape; at least two chains.
        method: "rank" splits each chain in halves and takes the larger of the R-hat of the
            rank-normalised draws and of their distances from the median, so that it also detects
            heavy tails and chains of different widths; "classic" is that of Gelman & Rubin.

    Returns:
        A number, or an array of the shape of one draw. NaN if it is undefined: a single chain,
        fewer than four draws, or draws that are not finite or all equal. Infinite if every chain is
        constant, each at a different value.

    >>> generator = np.random.default_rng(0)
    >>> chains = generator.normal(size=(4, 1000))
    >>> bool(rhat(chains) < 1.01), bool(rhat(chains + np.arange(4)[:, None]) > 1.5)
    (True, True)

    References: Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Bayesian Analysis 16:667-718;
    Gelman & Rubin (1992), Statistical Science 7:457-472.
    """
    kind = choose("method", method, {"rank": "rank", "classic": "identity"})
    return of_entries(draws, lambda entry: _rhat(entry, kind))


def _rhat(chains: np.ndarray, method: str) -> float:
    if np.all(np.ptp(chains, axis=1) == 0):  # rounding would give a large finite number
        return np.inf if len(chains) > 1 else np.nan
    return float(array_stats().rhat(chains, method=method))


def ess(draws: Any, kind: Kind = "bulk") -> Any:
    r"""Effective sample size: the number of independent draws with the same information.

    .. math:: \text{ESS} = \frac{m n}{1 + 2 \sum_{t \ge 1} \rho_t}

    with the autocorrelations of m chains of n draws (by FFT), truncated where sums of pairs are no
    longer positive (Geyer 1992).

    Args:
        draws: chains x draws x shape.
        kind: ESS of the rank-normalised draws ("bulk"), the smaller ESS of the 5 % and the 95 %
            quantile ("tail"), or ESS of the mean ("mean").

    Returns:
        A number, or an array of the shape of one draw; NaN for fewer than four draws, and for draws
        that are not finite or all equal.

    >>> chains = np.random.default_rng(0).normal(size=(4, 1000))
    >>> bool(3500 < ess(chains) < 4500)
    True

    Reference: Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Bayesian Analysis 16:667-718.
    """
    method = choose("kind", kind, {"bulk": "bulk", "tail": "tail", "mean": "mean"})
    prob = (0.05, 0.95) if method == "tail" else None
    return of_entries(draws, lambda entry: array_stats().ess(entry, method=method, prob=prob))


def mcse(draws: Any, of: Literal["mean", "sd"] = "mean") -> Any:
    r"""Monte Carlo standard error of a posterior mean or standard deviation.

    .. math:: \text{MCSE}(\bar x) = s / \sqrt{\text{ESS}}

    Args:
        draws: chains x draws x shape.
        of: the estimated quantity, the mean or the standard deviation.

    Returns:
        A number, or an array of the shape of one draw; NaN if the ESS is NaN.

    >>> chains = np.random.default_rng(0).normal(size=(4, 2500))
    >>> round(float(mcse(chains)), 2)
    0.01

    Reference: Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Bayesian Analysis 16:667-718.
    """
    method = choose("of", of, {"mean": "mean", "sd": "sd"})
    return of_entries(draws, lambda entry: array_stats().mcse(entry, method=method))
