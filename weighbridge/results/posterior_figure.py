"""The figure that results with posterior draws have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weighbridge.core.constants import PROBABILITY
from weighbridge.plots.labelling import Labelling
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
    """A result that draws the marginals and pairs of its parameters."""

    @abstractmethod
    def _drawn_posterior(self) -> DrawnPosterior:
        """The content of the figure."""

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
