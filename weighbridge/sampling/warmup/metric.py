"""The covariance of a chain, estimated while it runs."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from weighbridge.core.types import Array

# As in Stan: the estimate is regularised as if by this many draws of variance 1e-3.
PRIOR_DRAWS = 5.0
PRIOR_VARIANCE = 1e-3


class Spread(NamedTuple):
    r"""Mean and (co)variance of the draws so far, by Welford's updates.

    .. math:: m_n = m_{n-1} + \frac{x - m_{n-1}}{n}, \qquad
              M_n = M_{n-1} + (x - m_{n-1}) (x - m_n)^\top

    Welford (1962), Technometrics 4:419-420.

    Attributes:
        num_draws: number of draws so far.
        mean: their mean.
        scatter: sum of squared deviations (a vector), or of their products (a matrix).

    >>> spread = Spread.start(1, dense=False)
    >>> for draw in (1.0, 3.0):
    ...     spread = spread.update(np.array([draw]))
    >>> float(spread.mean[0]), float(spread.scatter[0])
    (2.0, 2.0)
    """

    num_draws: Array | np.ndarray
    mean: Array | np.ndarray
    scatter: Array | np.ndarray

    @staticmethod
    def start(dimension: int, *, dense: bool) -> Spread:
        """Before the first draw."""
        shape = (dimension, dimension) if dense else (dimension,)
        return Spread(np.zeros(()), np.zeros(dimension), np.zeros(shape))

    def update(self, position: Array) -> Spread:
        """Add one draw."""
        count = self.num_draws + 1.0
        before = position - self.mean
        mean = self.mean + before / count
        after = position - mean
        product = jnp.outer(before, after) if self.scatter.ndim == 2 else before * after
        return Spread(count, mean, self.scatter + product)

    def scale(self) -> np.ndarray:
        """Square root of the covariance, shrunk to a small unit metric as in Stan.

        >>> Spread(np.array(5.0), np.zeros(1), np.array([8.0])).scale().round(6)
        array([1.00025])
        """
        count, scatter = float(self.num_draws), np.asarray(self.scatter)
        shrunk = count / (count + PRIOR_DRAWS) * scatter / max(count - 1.0, 1.0)
        added = PRIOR_VARIANCE * PRIOR_DRAWS / (count + PRIOR_DRAWS)
        if scatter.ndim == 1:
            return np.asarray(np.sqrt(shrunk + added))
        return np.linalg.cholesky(shrunk + added * np.eye(len(scatter)))
