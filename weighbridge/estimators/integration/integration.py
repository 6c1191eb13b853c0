"""Expectations and integrals by plain, quasi-random and importance-weighted Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import logsumexp
from scipy.stats import qmc

from weighbridge.core.checks import check_count, check_seed
from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.pickling import travels
from weighbridge.core.random import random_key
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.table import Table
from weighbridge.core.thresholds import MAX_TERM_PARETO_K
from weighbridge.core.types import Array
from weighbridge.diagnostics.pareto import pareto_khat
from weighbridge.estimators.integration.domains import Box, Domain, domain_of
from weighbridge.models.own_arrays import with_own_arrays
from weighbridge.plots.integral import plot_integral

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

METHODS = ("monte_carlo", "sobol")
# Number of independent scramblings of the quasi-random points; their spread gives the error.
REPLICATES = 16
# Number of draws that are evaluated at once.
BLOCK = 2**16
# Scipy's Sobol points are multiples of 2^-30: adding half a step avoids 0 and 1.
HALF_STEP = 2.0**-31
# Smallest number of draws (of each replicate) for a point of ``path``.
MIN_PATH_DRAWS = 4


@travels()
@dataclass(frozen=True)
class Integral(Shown):
    """An expectation or an integral, with its error.

    Attributes:
        value: the estimate.
        std_error: its standard error.
        num_draws: number of points at which the function was evaluated.
        ess: effective draws of the importance weights; equal to ``num_draws`` without weights.
        pareto_k: shape of the tail of the summed terms; above 0.7 neither the value nor the error
            can be trusted. Infinite if fewer than 25 terms are not zero.
        path: estimates from fewer draws: numbers of draws that double, the estimates from so many
            draws, and their standard errors.

    >>> print(Integral(1.0, 0.01, 1000, 1000.0, -0.2))
    1.0000 +- 0.0100 (1,000 draws)
    >>> print(Integral(1.0, 0.01, 1000, 12.0, 0.9))
    1.0000 +- 0.0100 (1,000 draws, ESS 12), heavy tail: Pareto k 0.90, do not trust the error
    """

    value: float
    std_error: float
    num_draws: int
    ess: float
    pareto_k: float
    path: tuple[tuple[int, float, float], ...] = field(default=(), repr=False)

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """The estimate against the number of draws, with bands of two standard errors.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or one axes.
        """
        path = self.path or ((self.num_draws, self.value, self.std_error),)
        return plot_integral(path, title=str(self), axes=axes)

    def _page(self) -> Page:
        table = Table(
            ("value", "std_error", "draws", "ESS", "Pareto k"),
            {"integral": (self.value, self.std_error, self.num_draws, self.ess, self.pareto_k)},
        )
        caution = "" if self.reliable else "do not trust the error"
        return Page(str(self), table.columns, table.texts(), caution=caution)

    @property
    def reliable(self) -> bool:
        """Whether the tail of the terms is light enough to trust the error."""
        return self.pareto_k <= MAX_TERM_PARETO_K

    def __str__(self) -> str:
        known = self.std_error > 0 and math.isfinite(self.std_error)
        digits = max(0, 2 - math.floor(math.log10(self.std_error)) - 1) if known else 6
        digits = max(digits, 4) if abs(self.value) < 1000 else digits
        effective = "" if self.ess == self.num_draws else f", ESS {self.ess:,.0f}"
        text = f"{self.value:.{digits}f} +- {self.std_error:.{digits}f}"
        text += f" ({self.num_draws:,} draws{effective})"
        if self.reliable:
            return text
        if math.isinf(self.pareto_k):
            return text + ", few draws count: do not trust the error"
        return text + f", heavy tail: Pareto k {self.pareto_k:.2f}, do not trust the error"


@double_precision
def integrate(
    function: Callable[[Any], Any],
    over: Any,
    *,
    num_draws: int = 2**14,
    method: str = "monte_carlo",
    proposal: Any = None,
    seed: int = 0,
) -> Integral:
    r"""The expectation of a function under a distribution, or its integral over a box.

    .. math:: \int h(x) f(x) dx \approx \frac1N \sum_i h(x_i), \quad x_i \sim f,
              \qquad \text{or} \qquad \frac1N \sum_i h(x_i) \frac{f(x_i)}{g(x_i)}, \quad x_i \sim g

    Plain Monte Carlo has the error sd(h) / sqrt(N). Scrambled Sobol points fill space more evenly
    and are much more accurate for smooth functions in few dimensions; their error comes from the
    spread over 16 independent scramblings. With a proposal g, draws come from g and are weighted.
    Numerical Recipes, ch. 7; Owen (1997), Annals of Statistics 25:1541-1562; Vehtari, Simpson,
    Gelman, Yao & Gabry (2024), JMLR 25(72), for the Pareto k that flags heavy tails.

    Args:
        function: a function of one value that returns a real number, written with ``jax.numpy``.
            The value is an array, or a mapping of named parameters.
        over: a NumPyro distribution; a mapping of names to distributions, or a ``wb.Model``, for
            its prior; a sequence of (low, high) pairs, for the integral over that box; or, with a
            proposal, a function that returns a log density up to a constant, at a value of the
            proposal.
        num_draws: number of points; for Sobol it is rounded down to 16 times a power of two.
        method: "monte_carlo" or "sobol".
        proposal: draw from this instead: a distribution, mapping, model or box.
        seed: the same seed gives the same numbers.

    Returns:
        The value with its standard error, effective draws and the Pareto k of the terms.

    >>> import jax.numpy as jnp, numpyro.distributions as dist
    >>> result = integrate(lambda x: x**2, dist.Normal(0, 1), method="sobol")
    >>> abs(result.value - 1) < 5 * result.std_error < 0.02
    True
    >>> ball = integrate(lambda x: 1.0 * (x @ x < 1), [(-1, 1), (-1, 1)])
    >>> abs(ball.value - jnp.pi) < 5 * ball.std_error
    True
    """
    check_seed(seed)
    check_count("num_draws", num_draws, 32)
    if method not in METHODS:
        raise MethodError(f"method must be one of {METHODS}, not {method!r}.")
    if not callable(function):
        raise MethodError(f"function must be a function of one value, not {function!r}.")
    function = with_own_arrays(function)
    target, source_domain = _target_and_source(with_own_arrays(over), proposal)
    sizes = [int(num_draws)] if method == "monte_carlo" else _replicate_sizes(int(num_draws))
    heights, log_weights = [], []
    for source, size in _sources(method, source_domain.dimension, sizes, seed):
        found = _terms(function, target, source_domain, source, size)
        heights.append(found[0])
        log_weights.append(found[1])
    # All replicates have the same size, and their blocks of draws are concatenated.
    shape = (len(sizes), -1)
    return _combine(
        np.concatenate(heights).reshape(shape), np.concatenate(log_weights).reshape(shape), target
    )


class DrawWeights(NamedTuple):
    """The target of the importance weights.

    Attributes:
        density: a user's log density, known up to a constant.
        domain: a domain with a density; None if ``density`` is given, or without weights.
    """

    density: Callable[[Any], Any] | None = None
    domain: Domain | None = None

    @property
    def is_weighted(self) -> bool:
        """Whether draws are weighted."""
        return self.density is not None or self.domain is not None


def _target_and_source(over: Any, proposal: Any) -> tuple[DrawWeights, Domain]:
    """The target of the importance weights, and the domain of the draws."""
    # NumPyro distributions are callable too.
    if callable(over) and not isinstance(over, dist.Distribution):
        if proposal is None:
            raise MethodError(
                "integrate cannot draw from a log density: give a proposal to draw from, such as "
                "proposal=dist.StudentT(3.0)."
            )
        return DrawWeights(density=over), domain_of(proposal, "proposal")
    domain = domain_of(over, "over")
    if proposal is not None:
        return DrawWeights(domain=domain), domain_of(proposal, "proposal")
    # The integral over a box is the mean times the volume, which enters as a weight.
    return DrawWeights(domain=domain if isinstance(domain, Box) else None), domain


# --- sums -----------------------------------------------------------------------------------


def _sources(
    method: str, dimension: int, sizes: list[int], seed: int
) -> Iterator[tuple[Any, int | None]]:
    """Keys with the number of draws, or points of the unit cube, block by block."""
    key = random_key(seed)
    for number, size in enumerate(sizes):
        points = _sobol(dimension, size, seed, number) if method == "sobol" else None
        for at in range(0, size, BLOCK):
            if points is None:
                yield jax.random.fold_in(key, at), min(BLOCK, size - at)
            else:
                yield points[at : at + BLOCK], None


@partial(jax.jit, static_argnums=(0, 1, 5))
def _evaluate(
    function: Callable[[Any], Any],
    density: Callable[[Any], Any] | None,
    domain: Domain | None,
    source_domain: Domain,
    source: Any,
    num: int | None,
) -> tuple[Array, Array]:
    values = source_domain.from_uniform(source) if num is None else source_domain.draw(source, num)

    def at(value: Any) -> tuple[Array, Array]:
        weight = jnp.zeros(())
        if density is not None:
            weight = jnp.asarray(density(value)) - source_domain.log_density(value)
        elif domain is not None:
            weight = domain.log_measure(value) - source_domain.log_density(value)
        return jnp.asarray(function(value), float), weight

    return jax.vmap(at)(values)


def _terms(
    function: Callable[[Any], Any],
    target: DrawWeights,
    source_domain: Domain,
    source: Any,
    num: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The function at a block of draws, and the log weights."""
    try:
        found = _evaluate(function, *target, source_domain, source, num)
    except (MethodError, ModelError):
        raise
    except Exception as error:
        raise MethodError(
            f"The function fails on one value: {type(error).__name__}: "
            f"{str(error).splitlines()[0]} Use jax.numpy inside it, and jnp.where for cases."
        ) from error
    heights, log_weights = map(np.asarray, found)
    if heights.ndim != 1 or log_weights.ndim != 1:
        raise MethodError(
            "The function must return one number for one value; it returns the shape "
            f"{heights.shape[1:]}. Integrate its entries one by one."
        )
    undefined = int(np.sum(np.isnan(heights) | np.isnan(log_weights)))
    if undefined:
        raise MethodError(
            f"The function, or a density, is not a number (NaN) at {undefined} of "
            f"{len(heights)} draws. Check it for 0/0 and logs of negative numbers."
        )
    return heights, log_weights


def _combine(heights: np.ndarray, log_weights: np.ndarray, target: DrawWeights) -> Integral:
    """Combine the replicates to one estimate with its diagnostics."""
    self_normalised = target.density is not None
    value, std_error = _joint(heights, log_weights, self_normalised)
    num = heights.size
    flat = log_weights.ravel()
    ess = float(num)
    if target.is_weighted:
        finite = flat - max(float(np.max(flat)), -1e300)
        ess = min(math.exp(2 * logsumexp(finite) - logsumexp(2 * finite)), ess)
    with np.errstate(divide="ignore"):
        tails = [pareto_khat(flat + np.log(np.abs(heights.ravel())))]
    if self_normalised:
        tails.append(pareto_khat(flat))
    return Integral(
        value=value,
        std_error=std_error,
        num_draws=num,
        ess=float(num) if ess > num * (1 - 1e-9) else ess,
        pareto_k=float(max(tails)),
        path=(*_path(heights, log_weights, self_normalised), (num, value, std_error)),
    )


def _joint(
    heights: np.ndarray, log_weights: np.ndarray, self_normalised: bool
) -> tuple[float, float]:
    """The estimate from all replicates, and its standard error."""
    pairs = zip(heights, log_weights)
    estimates, errors = zip(*(_estimate(h, w, self_normalised) for h, w in pairs))
    replicates, std_error = len(estimates), errors[0]
    if replicates > 1:
        # Widened by the variance of a Student-t with so few degrees of freedom.
        widened = (replicates - 1) / (replicates - 3)
        std_error = float(np.std(estimates, ddof=1) * math.sqrt(widened / replicates))
    return float(np.mean(estimates)), float(std_error)


def _path(
    heights: np.ndarray, log_weights: np.ndarray, self_normalised: bool
) -> Iterator[tuple[int, float, float]]:
    """Estimates from a half of the draws, a quarter, ..., in the order of increasing number."""
    replicates, each = heights.shape
    halvings = range(int(math.log2(each / MIN_PATH_DRAWS)), 0, -1) if each > MIN_PATH_DRAWS else ()
    for first in (each >> halving for halving in halvings):
        weights = log_weights[:, :first]
        # The density may be zero at all of so few draws: then there is no estimate.
        if np.isfinite(weights).any(axis=1).all():
            found = _joint(heights[:, :first], weights, self_normalised)
            yield replicates * first, *found


def _estimate(
    heights: np.ndarray, log_weights: np.ndarray, self_normalised: bool
) -> tuple[float, float]:
    """Mean of height x weight, and its standard error for independent draws."""
    num = len(heights)
    if not self_normalised:
        terms = heights * np.exp(log_weights)
        return float(np.mean(terms)), float(np.std(terms, ddof=1) / math.sqrt(num))
    if not np.isfinite(log_weights).any():
        raise MethodError("The density is zero at every draw: use a proposal closer to it.")
    share = np.exp(log_weights - logsumexp(log_weights))
    value = float(np.sum(share * heights))
    return value, float(np.sqrt(np.sum(share**2 * (heights - value) ** 2)))


def _replicate_sizes(num_draws: int) -> list[int]:
    return [2 ** int(math.log2(num_draws / REPLICATES))] * REPLICATES


def _sobol(dimension: int, size: int, seed: int, number: int) -> np.ndarray:
    if dimension > qmc.Sobol.MAXDIM:
        raise MethodError(
            f"Sobol points have at most {qmc.Sobol.MAXDIM} dimensions, and this has {dimension}. "
            'Use method="monte_carlo".'
        )
    generator = np.random.default_rng(np.random.SeedSequence([seed, number]))
    points: np.ndarray = qmc.Sobol(dimension, rng=generator).random(size)
    return points + HALF_STEP
