"""Diagnostics of Markov chains: have they converged, and how much are their draws worth?

Arrays are chains x draws, and then whatever shape one draw has. What ArviZ has is ArviZ's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, overload

import numpy as np

from weighbridge.base import MethodError
from weighbridge.export import Table, highest_density_interval, scalar_entries

# What Vehtari et al. (2021) ask of chains before their draws are used.
MAX_RHAT = 1.01
MIN_ESS_PER_CHAIN = 100
# Betancourt (2016): below it the momentum draws do not reach all energies.
MIN_ENERGY_FRACTION = 0.3
MIN_ACCEPTANCE = 0.1
# Sokal (1997): the window is this many autocorrelation lengths wide.
WINDOW = 5.0
# Fewer draws of a chain tell nothing: it cannot be split and still vary.
MIN_DRAWS = 4
SHOWN = 5

Diagnostic = Callable[[np.ndarray], Any]
Kind = Literal["bulk", "tail", "mean"]


def rhat(draws: Any, method: Literal["rank", "classic"] = "rank") -> Any:
    r"""Potential scale reduction: how much wider all chains are together than each by itself.

    With B the variance between and W that within m chains of n draws,

    .. math:: \hat R = \sqrt{\frac{(n - 1) W / n + B / n}{W}}

    Args:
        draws: chains x draws x shape; two chains at least.
        method: "rank" splits each chain in halves and takes the larger of the R-hat of the
            rank-normalised draws and of their distances from the median, so that it also sees
            heavy tails and chains of different widths; "classic" is Gelman & Rubin's.

    Returns:
        A number, or an array of the shape of one draw. NaN where it is undefined: a single chain,
        fewer than four draws, draws that are not finite or all the same. Infinite where every
        chain stands still, each at a place of its own.

    >>> generator = np.random.default_rng(0)
    >>> chains = generator.normal(size=(4, 1000))
    >>> bool(rhat(chains) < 1.01), bool(rhat(chains + np.arange(4)[:, None]) > 1.5)
    (True, True)

    References: Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Bayesian Analysis 16:667-718;
    Gelman & Rubin (1992), Statistical Science 7:457-472.
    """
    kind = _choose("method", method, {"rank": "rank", "classic": "identity"})
    return _of_entries(draws, lambda entry: _rhat(entry, kind))


def _rhat(chains: np.ndarray, method: str) -> float:
    if np.all(np.ptp(chains, axis=1) == 0):  # by rounding it would be merely large
        return np.inf if len(chains) > 1 else np.nan
    return float(_array_stats().rhat(chains, method=method))


def ess(draws: Any, kind: Kind = "bulk") -> Any:
    r"""Effective sample size: how many independent draws would be worth as much.

    .. math:: \text{ESS} = \frac{m n}{1 + 2 \sum_{t \ge 1} \rho_t}

    with the autocorrelations of m chains of n draws (by FFT), cut off where pairs of them are no
    longer positive (Geyer 1992).

    Args:
        draws: chains x draws x shape.
        kind: of the rank-normalised draws ("bulk"), the lesser of the 5 % and the 95 % quantile
            ("tail"), or of the mean ("mean").

    Returns:
        A number, or an array of the shape of one draw; NaN for fewer than four draws, and for
        draws that are not finite or all the same.

    >>> chains = np.random.default_rng(0).normal(size=(4, 1000))
    >>> bool(3500 < ess(chains) < 4500)
    True

    Reference: Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Bayesian Analysis 16:667-718.
    """
    method = _choose("kind", kind, {"bulk": "bulk", "tail": "tail", "mean": "mean"})
    prob = (0.05, 0.95) if method == "tail" else None
    return _of_entries(draws, lambda entry: _array_stats().ess(entry, method=method, prob=prob))


def mcse(draws: Any, of: Literal["mean", "sd"] = "mean") -> Any:
    r"""Monte Carlo standard error of a posterior mean or standard deviation.

    .. math:: \text{MCSE}(\bar x) = s / \sqrt{\text{ESS}}

    Args:
        draws: chains x draws x shape.
        of: what is estimated, the mean or the standard deviation.

    Returns:
        A number, or an array of the shape of one draw; NaN where the ESS is.

    >>> chains = np.random.default_rng(0).normal(size=(4, 2500))
    >>> round(float(mcse(chains)), 2)
    0.01

    Reference: Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Bayesian Analysis 16:667-718.
    """
    method = _choose("of", of, {"mean": "mean", "sd": "sd"})
    return _of_entries(draws, lambda entry: _array_stats().mcse(entry, method=method))


def autocorrelation(draws: Any) -> np.ndarray:
    r"""Autocorrelation of each chain at every lag, by FFT.

    .. math:: \rho_k = \frac{\sum_{i=1}^{n-k} (x_i - \bar x)(x_{i+k} - \bar x)}
                            {\sum_{i=1}^{n} (x_i - \bar x)^2}

    Args:
        draws: chains x draws x shape.

    Returns:
        Chains x lags x shape, from lag 0, where it is 1; NaN for draws that are all the same.

    >>> autocorrelation([[1.0, -1.0, 1.0, -1.0]]).round(2)
    array([[ 1.  , -0.75,  0.5 , -0.25]])
    """
    chains = _check(draws)
    varies = np.ptp(chains, axis=1, keepdims=True) > 0  # rounding must not pass for variation
    with np.errstate(invalid="ignore"):
        return np.where(varies, _array_stats().autocorr(chains, axis=1), np.nan)


def autocorrelation_length(draws: Any) -> Any:
    r"""Integrated autocorrelation length: so many draws are worth one independent one.

    .. math:: \tau = 1 + 2 \sum_{k=1}^{M} \rho_k, \qquad M \ge 5 \max(\tau, 1)

    The sum stops at the first such M: beyond it there is little but noise. The autocorrelations
    are averaged over the chains that move at all. It wants chains of 50 lengths and more; in
    shorter ones it is too small.

    Args:
        draws: chains x draws x shape.

    Returns:
        A number, or an array of the shape of one draw; NaN for draws that are not finite or all
        the same.

    >>> generator = np.random.default_rng(0)
    >>> slow = np.repeat(generator.normal(size=(4, 1000)), 10, axis=1)
    >>> bool(9 < autocorrelation_length(slow) < 11)
    True

    Reference: Sokal (1997), in Functional Integration: Basics and Applications, pages 131-192.
    """
    return _of_entries(draws, _integrated_length)


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
    """Keep one draw of every autocorrelation length: about independent ones.

    Nothing is gained by it but memory: estimates from all draws are more exact.

    Args:
        draws: chains x draws x shape, or a mapping of names to such arrays, which are then all
            thinned alike, by the longest autocorrelation length among their entries.

    Returns:
        The same without the other draws; the last draw of each chain stays.

    >>> slow = np.repeat(np.random.default_rng(0).normal(size=(4, 1000)), 10, axis=1)
    >>> thin(slow).shape[1] in range(900, 1100)
    True
    """
    arrays = dict(draws) if isinstance(draws, Mapping) else {"": draws}
    chains = {name: _check(array) for name, array in arrays.items()}
    lengths = [np.ravel(autocorrelation_length(array)) for array in chains.values()]
    known = np.concatenate(lengths)[np.isfinite(np.concatenate(lengths))]
    if not len(known):
        raise MethodError(
            "The draws cannot be thinned: every entry is constant or not finite, so there is no "
            "autocorrelation length."
        )
    stride = max(1, int(np.ceil(known.max() - 1e-9)))
    # Counted from the end: the start is where a chain is least to be trusted.
    kept = {name: array[:, ::-1][:, ::stride][:, ::-1] for name, array in chains.items()}
    return kept if isinstance(draws, Mapping) else kept[""]


def energy_fraction(energy: Any) -> np.ndarray:
    r"""E-BFMI of each chain: how far one draw of the momentum moves the energy.

    .. math:: \text{E-BFMI} = \frac{\frac{1}{n-1} \sum_{i=1}^{n-1} (H_{i+1} - H_i)^2}
                                   {\operatorname{Var} H}

    Independent energies give 2. Below 0.3 the chain wanders slowly through the energies, and
    heavy tails of the posterior are likely to be missed.

    Args:
        energy: Hamiltonian at the start of each transition, chains x draws.

    Returns:
        One number a chain; NaN where the energy does not vary.

    >>> energy_fraction([[0.0, 1.0, 0.0, 1.0], [0.0, 0.1, 0.2, 0.3]]).round(2)
    array([3. , 0.6])

    Reference: Betancourt (2016), arXiv:1604.00695.
    """
    chains = _check(energy)
    if chains.ndim != 2:
        raise MethodError(f"energy must be chains x draws; its shape is {chains.shape}.")
    varies = np.isfinite(chains).all(axis=1) & (np.ptp(chains, axis=1) > 0)
    fractions = np.full(len(chains), np.nan)
    if varies.any():
        fractions[varies] = _array_stats().bfmi(chains[varies])
    return fractions


# --- all parameters at once ----------------------------------------------------------------


class Summary(Table):
    """A table whose columns are written as one reads them: whole ESS, R-hat to three places."""

    def __str__(self) -> str:
        rows = {
            name: [_written(column, value) for column, value in zip(self.columns, values)]
            for name, values in self.rows.items()
        }
        return str(Table(self.columns, rows))


def _written(column: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    if column.startswith("ESS"):
        return f"{value:,.0f}"
    return f"{value:.3f}" if column == "R-hat" else f"{value:.4g}"


def summarise(samples: Mapping[str, Any], probability: float = 0.94) -> Summary:
    """Mean, spread, interval and diagnostics of every scalar entry.

    Args:
        samples: draws by parameter name, chains x draws x shape.
        probability: mass inside the highest-density interval (HDI).

    Returns:
        A table that prints itself; ``table["w[0]", "R-hat"]`` reads a number.

    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 3))
    >>> table = summarise({"w": draws[..., :2], "b": draws[..., 2]})
    >>> list(table.rows), table.columns[-3:]
    (['w[0]', 'w[1]', 'b'], ('ESS bulk', 'ESS tail', 'R-hat'))
    >>> bool(table["b", "R-hat"] < 1.01)
    True
    """
    if not 0 < probability < 1:
        raise MethodError(f"probability must lie between 0 and 1, not {probability}.")
    interval = f"{100 * probability:g}% HDI"
    columns = ("mean", "sd", f"{interval} low", f"{interval} high", "MCSE")
    rows = {}
    for label, chains in _entries(samples).items():
        values = chains.reshape(-1)
        finite = bool(np.isfinite(values).all())
        weights = np.full(len(values), 1 / len(values))
        ends = (np.nan, np.nan)
        if finite:
            ends = highest_density_interval(values, weights, probability)
        spread = float(values.std(ddof=1)) if finite and len(values) > 1 else np.nan
        mean = float(values.mean()) if finite else np.nan
        error = float(mcse(chains))
        worth = float(ess(chains, "bulk")), float(ess(chains, "tail"))
        rows[label] = (mean, spread, *ends, error, *worth, float(rhat(chains)))
    return Summary((*columns, "ESS bulk", "ESS tail", "R-hat"), rows)


def warnings_of(
    samples: Mapping[str, Any],
    stats: Mapping[str, Any] | None = None,
    max_tree_depth: int | None = None,
) -> tuple[str, ...]:
    """What speaks against trusting the draws, in plain words, each with its remedy.

    Args:
        samples: draws by parameter name, chains x draws x shape.
        stats: sample statistics, chains x draws; read are ``divergent``, ``energy``,
            ``tree_depth`` and ``acceptance``, where they exist.
        max_tree_depth: beyond which trajectories were not doubled.

    Returns:
        One text for each finding; empty if there is none.

    >>> chains = np.random.default_rng(0).normal(size=(4, 1000))
    >>> warnings_of({"a": chains}, {"divergent": np.zeros((4, 1000), bool)})
    ()
    >>> print(warnings_of({"a": chains + np.arange(4)[:, None]})[0])
    Chains disagree: R-hat is above 1.01 for 1 of 1 entries, a (1.56). ...
    """
    entries = _entries(samples)
    known = {name: np.asarray(value) for name, value in (stats or {}).items()}
    found = [*_of_draws(entries), *_of_convergence(entries), *_of_trajectories(known)]
    depth = known.get("tree_depth")
    if depth is not None and max_tree_depth is not None:
        share = float(np.mean(depth >= max_tree_depth))
        if share > 0:
            found.append(
                f"Trajectories were cut short: {_percent(share)} of them reached the maximum tree "
                f"depth of {max_tree_depth}. The draws are valid but dear: raise max_tree_depth, "
                "or rescale the parameters so that the posterior has one width in all directions "
                "(a dense metric does that for correlations)."
            )
    return tuple(found)


def _of_draws(entries: Mapping[str, np.ndarray]) -> list[str]:
    broken = [label for label, chains in entries.items() if not np.isfinite(chains).all()]
    found = []
    if broken:
        found.append(
            f"Draws are not finite for {_count(broken, entries)}, {_listed(broken)}: they have no "
            "mean. Check the model with wb.check_model, and tighten priors that let a parameter "
            "run away."
        )
    still = [label for label, chains in entries.items() if chains.size > 1 and np.ptp(chains) == 0]
    if still and len(still) == len(entries):
        found.append(
            "The chains never moved: all draws are the same. Use a smaller step size or other "
            "initial points, and check the model with wb.check_model."
        )
    return found


def _of_convergence(entries: Mapping[str, np.ndarray]) -> list[str]:
    found = []
    ratio = {label: float(rhat(chains)) for label, chains in entries.items()}
    apart = sorted((label for label in ratio if ratio[label] > MAX_RHAT), key=lambda n: -ratio[n])
    if apart:
        worst = ", ".join(f"{label} ({ratio[label]:.2f})" for label in apart[:SHOWN])
        found.append(
            f"Chains disagree: R-hat is above {MAX_RHAT} for {_count(apart, entries)}, "
            f"{worst}{_more(apart)}. They have not reached one distribution: run longer, with a "
            "longer warm-up; if it stays, the posterior has several modes or directions that the "
            "data do not determine: reparametrise, or use tempering."
        )
    kinds: tuple[tuple[Kind, str], ...] = (("bulk", "means"), ("tail", "quantiles and intervals"))
    for kind, meaning in kinds:
        worth = {label: float(ess(chains, kind)) for label, chains in entries.items()}
        few = [n for n, chains in entries.items() if worth[n] < MIN_ESS_PER_CHAIN * len(chains)]
        few.sort(key=worth.__getitem__)
        if few:
            worst = ", ".join(f"{label} ({worth[label]:.0f})" for label in few[:SHOWN])
            found.append(
                f"Few effective draws: the {kind} ESS is below {MIN_ESS_PER_CHAIN} per chain for "
                f"{_count(few, entries)}, {worst}{_more(few)}. Their {meaning} are rough, and so "
                "are these diagnostics: take more draws, or reparametrise so that the chain mixes."
            )
    return found


def _of_trajectories(stats: Mapping[str, np.ndarray]) -> list[str]:
    found = []
    divergent = int(np.sum(stats["divergent"])) if "divergent" in stats else 0
    if divergent:
        share = divergent / stats["divergent"].size
        found.append(
            f"{divergent:,} divergent transitions ({_percent(share)}): the integrator could not "
            "follow the posterior where it is narrow, and the draws may miss that region. Raise "
            "the target acceptance (0.95, 0.99); if they stay, use a non-centred "
            "parametrisation or tighter priors. Look where they lie."
        )
    if "energy" in stats:
        fractions = energy_fraction(stats["energy"])
        low = np.flatnonzero(fractions < MIN_ENERGY_FRACTION)
        if len(low):
            named = ", ".join(f"{k} ({fractions[k]:.2f})" for k in low[:SHOWN])
            found.append(
                f"Low E-BFMI (below {MIN_ENERGY_FRACTION}) in chain {named}: the momentum moves "
                "the energy too little to reach the tails. Reparametrise heavy tails (non-centred, "
                "or on a logarithmic scale), or run a longer warm-up."
            )
    if "acceptance" in stats:
        acceptance = float(np.mean(stats["acceptance"]))
        if not acceptance >= MIN_ACCEPTANCE:
            found.append(
                f"Moves were mostly rejected: the mean acceptance is {acceptance:.2g}. Use a "
                "smaller step size, a longer warm-up, or a kernel that fits the posterior better."
            )
    return found


def _count(labels: list[str], entries: Mapping[str, np.ndarray]) -> str:
    return f"{len(labels):,} of {len(entries):,} entries"


def _listed(labels: list[str]) -> str:
    return ", ".join(labels[:SHOWN]) + _more(labels)


def _more(labels: list[str]) -> str:
    return " and more" if len(labels) > SHOWN else ""


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


# --- arrays ---------------------------------------------------------------------------------


def _array_stats() -> Any:
    """ArviZ's functions on arrays; imported on first use, for SciPy's statistics take a while."""
    from arviz_stats.base import array_stats

    return array_stats


def _choose(argument: str, chosen: str, known: Mapping[str, str]) -> str:
    if chosen not in known:
        names = ", ".join(repr(name) for name in known)
        raise MethodError(f"{argument} must be one of {names}, not {chosen!r}.")
    return known[chosen]


def _check(draws: Any) -> np.ndarray:
    """Draws as an array of numbers, chains x draws x shape."""
    try:
        chains = np.asarray(draws, np.float64)
    except (TypeError, ValueError) as error:
        raise MethodError(f"The draws cannot be made one array of numbers: {error}.") from None
    if chains.ndim < 2:
        raise MethodError(
            f"Draws are chains x draws x shape; these have the shape {chains.shape}. Give one "
            "chain as draws[None]."
        )
    if not (chains.shape[0] and chains.shape[1]):
        raise MethodError(f"There are no draws: their shape is {chains.shape}.")
    return chains


def _of_entries(draws: Any, diagnostic: Diagnostic) -> Any:
    """A diagnostic of every scalar entry; NaN where the draws cannot have one."""
    chains = _check(draws)
    shape = chains.shape[2:]
    answer = np.full(shape, np.nan)
    for index in np.ndindex(shape):
        entry = chains[(slice(None), slice(None), *index)]
        usable = np.isfinite(entry).all() and np.ptp(entry) > 0
        if usable and entry.shape[1] >= MIN_DRAWS:
            with np.errstate(divide="ignore", invalid="ignore"):
                answer[index] = diagnostic(entry)
    return answer if shape else float(answer)


def _entries(samples: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Chains x draws of every scalar entry, by its label."""
    chains = {name: _check(draws) for name, draws in samples.items()}
    if not chains:
        raise MethodError("There are no draws: samples is empty.")
    joined = {name: array.reshape(-1, *array.shape[2:]) for name, array in chains.items()}
    shapes = {label: chains[name].shape[:2] for name in chains for label in _labels(joined, name)}
    return {label: flat.reshape(shapes[label]) for label, flat in scalar_entries(joined).items()}


def _labels(samples: Mapping[str, np.ndarray], name: str) -> list[str]:
    return list(scalar_entries({name: samples[name]}))
