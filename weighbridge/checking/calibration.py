"""Simulation-based calibration of a sampler, on data simulated from the prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.core.checks import check_count
from weighbridge.core.errors import MethodError
from weighbridge.core.pickling import travels
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.summaries import scalar_entries
from weighbridge.core.tables.table import Table
from weighbridge.core.thresholds import MAX_DRAW_CORRELATION, MIN_RANK_P_VALUE
from weighbridge.core.types import Kernel
from weighbridge.models.model import Model
from weighbridge.plots.ranks import plot_ranks
from weighbridge.sampling.sampling import sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# Smallest average number of ranks in a bin: with fewer, the chi-square approximation is bad.
RANKS_A_BIN = 8

Simulate = Callable[[dict[str, np.ndarray], np.random.Generator], Any]


@travels()
@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Tabular, Shown):
    """Ranks of true parameters among posterior draws; they are uniform if the sampler is right.

    Attributes:
        ranks: for each scalar entry, one rank for each simulation, from 0 to ``num_draws``.
        num_draws: number of draws among which each true value is ranked.
        correlation: correlation of successive draws, the largest over coordinates. Ranks among
            dependent draws are not uniform, even if the sampler is right.
    """

    ranks: dict[str, np.ndarray]
    num_draws: int
    correlation: float = 0.0

    @property
    def num_simulations(self) -> int:
        """Number of simulated data sets."""
        return len(next(iter(self.ranks.values())))

    @property
    def num_bins(self) -> int:
        """Number of bins of the test, of equal width if the number of ranks can be divided."""
        possible = self.num_draws + 1
        most = min(max(self.num_simulations // RANKS_A_BIN, 2), 20, possible)
        equal = max(k for k in range(1, most + 1) if possible % k == 0)
        # For example, a prime number of ranks has only one equal bin: then the widths of bins
        # differ by one rank.
        return equal if 2 * equal >= most else most

    @property
    def bin_edges(self) -> np.ndarray:
        """First rank of every bin, and one beyond the last rank."""
        return np.arange(self.num_bins + 1) * (self.num_draws + 1) // self.num_bins

    @property
    def p_values(self) -> dict[str, float]:
        """The p-value of the chi-square test for uniform ranks, for each entry."""
        from scipy.stats import chi2

        edges = self.bin_edges
        # The expected count of a bin is proportional to its number of possible ranks.
        expected = self.num_simulations / ((self.num_draws + 1) / np.diff(edges))
        found = {}
        for name, ranks in self.ranks.items():
            counts = np.histogram(ranks, edges)[0]
            statistic = np.sum((counts - expected) ** 2 / expected)
            found[name] = float(chi2.sf(statistic, len(expected) - 1))
        return found

    @property
    def is_uniform(self) -> bool:
        """Whether no p-value is too small after Bonferroni's correction."""
        return min(self.p_values.values()) * len(self.ranks) > MIN_RANK_P_VALUE

    def summary(self) -> Table:
        """Mean rank (0.5 if unbiased), spread relative to that of a uniform, and p-value."""
        rows, p_values = {}, self.p_values
        for name, ranks in self.ranks.items():
            shares = (ranks + 0.5) / (self.num_draws + 1)
            spread = float(shares.std() * np.sqrt(12))
            rows[name] = (float(shares.mean()), spread, p_values[name])
        return Table(("mean rank", "spread", "p"), rows)

    def _header(self) -> str:
        verdict = "uniform" if self.is_uniform else "NOT uniform: the sampler or the model is wrong"
        return (
            f"ranks of {self.num_simulations:,} truths among {self.num_draws:,} draws each: "
            f"{verdict}"
        )

    def _cautions(self) -> list[str]:
        if self.correlation <= MAX_DRAW_CORRELATION:
            return []
        return [
            f"Draws depend on each other (correlation {self.correlation:.2f} with the next "
            "one). Then the ranks of a right sampler are not uniform either: raise thin."
        ]

    def __str__(self) -> str:
        return "\n".join([self._header(), str(self.summary()), *self._cautions()])

    def _frame(self) -> Frame:
        return self.summary()._frame()._replace(called="entry")

    def _page(self) -> Page:
        table = self.summary()
        return Page(self._header(), table.columns, table.texts(), self._cautions())

    def __repr__(self) -> str:
        return f"<Calibration: {str(self).splitlines()[0]}>"

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """Histograms of the ranks, with the 99 % band of uniform ranks.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or one axes for each
                entry.
        """
        return plot_ranks(self.ranks, self.bin_edges, axes=axes)


def sbc(
    model: Model,
    simulate: Simulate,
    kernel: Kernel | None = None,
    *,
    num_simulations: int = 200,
    num_samples: int = 99,
    num_warmup: int = 200,
    thin: int = 3,
    seed: int = 0,
) -> Calibration:
    r"""Simulation-based calibration of a model and a sampler.

    Parameters are drawn from the prior, data are simulated with these parameters, and the posterior
    of the data is sampled. If prior, simulation and sampler agree, the rank of the true parameters
    among the draws is uniform:

    .. math:: \theta^* \sim p(\theta), \quad y \sim p(y | \theta^*), \quad
              \theta_l \sim p(\theta | y) \;\Rightarrow\;
              \sum_l 1[\theta_l < \theta^*] \sim U\{0, \dots, L\}

    Talts, Betancourt, Simpson, Vehtari & Gelman (2018), arXiv:1804.06788.

    Args:
        model: a ``wb.Model``.
        simulate: ``simulate(parameters, generator)`` returns data of the same shape each time, from
            named parameters and a NumPy generator; None for a model without data.
        kernel: the sampler, by default ``wb.NUTS()``.
        num_simulations: number of data sets.
        num_samples: L, the number of draws among which a true value is ranked.
        num_warmup: steps of the warm-up for each data set.
        thin: steps between draws; with too few steps, draws depend on each other, and this looks
            like an error of the sampler.
        seed: the same seed gives the same numbers.

    >>> import weighbridge as wb
    >>> found = wb.sbc(wb.zoo.gaussian.model(), lambda p, rng: rng.normal(p["mu"], 1.0, 10),
    ...                num_simulations=40, num_samples=49, num_warmup=100)
    >>> found.is_uniform, found.ranks["mu"].shape
    (True, (40,))
    """
    check_count("num_simulations", num_simulations, 2 * RANKS_A_BIN)  # at least two bins
    if not callable(simulate):
        raise MethodError(
            f"simulate must be a function of parameters and a generator, not {simulate!r}."
        )
    truths = model.sample_prior(num_simulations, seed=seed)
    ranks: dict[str, list[int]] = {}
    chains: list[np.ndarray] = []
    for number in range(num_simulations):
        truth = {name: values[number] for name, values in truths.items()}
        posterior = sample(
            model,
            simulate(truth, random_numbers(seed, Stream.CALIBRATION, number)),
            kernel,
            num_samples=num_samples,
            num_warmup=num_warmup,
            num_chains=1,
            seed=seed + number,
            thin=thin,
            progress=False,
        )
        if posterior.num_samples < num_samples:  # ranks among fewer draws cannot be compared
            raise KeyboardInterrupt(f"Interrupted at simulation {number + 1}.")
        for name, rank in _ranks(posterior.flat(), truth).items():
            ranks.setdefault(name, []).append(rank)
        chains.append(posterior.positions)
    total = len(next(iter(posterior.flat().values())))
    arrays = {name: np.array(values) for name, values in ranks.items()}
    return Calibration(arrays, total, _correlation(np.concatenate(chains)))


def _ranks(samples: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The number of draws of each scalar entry that are below the true value."""
    true = scalar_entries({name: np.asarray(value)[None] for name, value in truth.items()})
    return {
        name: int(np.sum(draws < true[name][0])) for name, draws in scalar_entries(samples).items()
    }


def _correlation(chains: np.ndarray) -> float:
    """Correlation of successive draws, the largest over coordinates.

    Args:
        chains: chains x draws x coordinates.
    """
    if chains.shape[1] < 4:
        return 0.0
    centred = chains - chains.mean(axis=1, keepdims=True)
    products = np.sum(centred[:, 1:] * centred[:, :-1], axis=(0, 1))
    squares = np.sum(centred**2, axis=(0, 1))
    # Subtracting the mean of n draws lowers the correlation by about 1 / n.
    return float(np.max(products / np.maximum(squares, 1e-300)) + 1 / chains.shape[1])
