"""What results with posterior draws have in common: a figure, and highest-density regions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weighbridge.core.constants import PROBABILITY
from weighbridge.core.errors import MethodError
from weighbridge.core.tables import regions
from weighbridge.core.tables.summaries import scalar_entries
from weighbridge.core.tables.table import Table
from weighbridge.plots.canvas import check_probability
from weighbridge.plots.labelling import Labelling, check_names
from weighbridge.plots.posterior import plot_posterior

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface


class DrawnPosterior(NamedTuple):
    """The content of the figure.

    Attributes:
        samples: draws by parameter name, the draw along the first axis.
        weights: of the draws; they sum to one.
        title: above the figure.
        marked: whether each draw is marked, as divergences are; None for no marks.
    """

    samples: Mapping[str, np.ndarray]
    weights: np.ndarray
    title: str
    marked: np.ndarray | None = None


class PosteriorFigure(ABC):
    """A result that draws the marginals and pairs of its parameters, and describes them."""

    @abstractmethod
    def _drawn_posterior(self) -> DrawnPosterior:
        """The content of the figure."""

    def _num_effective(self, label: str) -> float | None:
        """Effective number of draws of a scalar entry; None: that of the weights."""
        return None

    def highest_density_regions(
        self, names: str | Sequence[str] | None = None, probability: float = PROBABILITY
    ) -> Table:
        r"""The smallest regions that hold a probability: several intervals for several modes.

        .. math:: \{x : p(x | y) \ge c\} \quad \text{with} \quad P(x \in R) = p

        The interval (HDI) of ``summary`` is a single one, and also covers the empty space between
        two modes. For a marginal with one mode both are the same. Modes count as separate only if
        the draws between them are significantly too few.

        Args:
            names: parameters (``"w"``) or entries of them (``"w[0]"``); by default all.
            probability: mass inside the intervals of an entry together.

        Returns:
            A table with a row for each interval and columns "low", "high" and "mass", the share of
            the posterior that is inside it.

        >>> import weighbridge as wb
        >>> draws = np.random.default_rng(0).normal(size=2000)
        >>> draws = {"a": draws + 8 * np.sign(draws), "b": draws}
        >>> posterior = wb.Evidence(-1.0, 0.1, 9, "smc", wb.Trace(), draws, np.zeros(2000))
        >>> print(posterior.highest_density_regions(probability=0.9))
                  low    high    mass
        a (1)  -9.578  -8.003  0.4635
        a (2)   8.001   9.639  0.4365
        b      -1.578   1.636     0.9

        Hyndman (1996), The American Statistician 50:120-126.
        """
        check_probability(probability)
        samples, weights = self._drawn_posterior()[:2]
        entries = scalar_entries(samples)
        groups = {name: list(scalar_entries({name: draws})) for name, draws in samples.items()}
        asked = [names] if isinstance(names, str) else list(groups if names is None else names)
        check_names("names", asked, groups)
        labels = dict.fromkeys(label for name in asked for label in groups.get(name, [name]))
        rows: dict[str, Sequence[float]] = {}
        for label in labels:
            if not np.isfinite(entries[label]).all():
                raise MethodError(f"Some draws of {label!r} are not finite: a chain has diverged.")
            worth = self._num_effective(label)
            found = regions.highest_density_regions(entries[label], weights, probability, worth)
            for number, part in enumerate(found, 1):
                rows[label if len(found) == 1 else f"{label} ({number})"] = part
        return Table(("low", "high", "mass"), rows)

    def plot_posterior(
        self,
        names: Sequence[str] | None = None,
        *,
        truths: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
        axes: Surface | None = None,
        probability: float = PROBABILITY,
    ) -> Figure:
        """Marginals and pairs of up to eight scalar entries; divergences are marked.

        Args:
            names: parameters (``"w"``) or entries of them (``"w[0]"``); by default all, or every
                parameter's first entries if there are more than eight.
            truths: values to mark, by parameter or entry; for a parameter, an array of its shape.
            labels: other names of parameters or entries.
            units: units of measurement of parameters or entries.
            axes: where to draw: an empty matplotlib figure or subfigure, or n x n axes.
            probability: mass of the shaded highest-density region; an inner one holds half.

        >>> import weighbridge as wb
        >>> draws = {"w": np.random.default_rng(0).normal(size=(50, 9))}
        >>> posterior = wb.Evidence(-1.0, 0.1, 9, "smc", wb.Trace(), draws, np.zeros(50))
        >>> figure = posterior.plot_posterior(
        ...     ["w[0]", "w[8]"], truths={"w[8]": 0.5}, labels={"w[0]": "slope"}, units={"w": "m/s"}
        ... )
        >>> [axes.get_xlabel() for axes in figure.axes]
        ['', 'slope (m/s)', 'w[8] (m/s)']
        """
        samples, weights, title, marked = self._drawn_posterior()
        return plot_posterior(
            samples,
            weights,
            names,
            title=title,
            marked=marked,
            labelling=Labelling(truths, labels, units),
            axes=axes,
            probability=probability,
        )
