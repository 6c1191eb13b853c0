"""Exact posteriors of conjugate models: Gaussian, or Gaussian given an inverse-gamma variance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln

from weighbridge.core.checks import check_count
from weighbridge.core.errors import DataError
from weighbridge.core.pickling import travels
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.summaries import scalar_entries
from weighbridge.core.tables.table import Table


@travels()
@dataclass(frozen=True, eq=False)
class ExactPosterior(Shown):
    r"""The posterior of a conjugate model in closed form.

    .. math:: \beta | s^2, y \sim N(m, s^2 C), \qquad s^2 | y \sim
              \text{InverseGamma}(a, r)

    If the variance is known, s = 1 and the posterior is Gaussian. If it is a parameter, the
    marginal of the coefficients is a multivariate Student-t with 2a degrees of freedom.

    Attributes:
        location: m by parameter name; the mean of the posterior.
        root: triangular, with root^T root the inverse of C; coefficients in the order of
            ``location``.
        variance: the name of the parameter s^2, or "" if the variance is known.
        concentration: a, for a variance that is a parameter.
        rate: r, for a variance that is a parameter.
    """

    location: dict[str, np.ndarray]
    root: np.ndarray
    variance: str = ""
    concentration: float = math.nan
    rate: float = math.nan

    @property
    def mean(self) -> dict[str, np.ndarray]:
        """Mean of every parameter; NaN for a variance without one."""
        if not self.variance:
            return self.location
        has_mean = self.concentration > 1
        mean = self.rate / (self.concentration - 1) if has_mean else math.nan
        return {self.variance: np.array(mean), **self.location}

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the coefficients; NaN if they have none."""
        spread = np.linalg.inv(self.root)
        scale = float(self.mean[self.variance]) if self.variance else 1.0
        return np.asarray(scale * spread @ spread.T)

    @property
    def std(self) -> dict[str, np.ndarray]:
        """Standard deviation of every parameter; NaN if there is none."""
        found = self._named(np.sqrt(np.diag(self.covariance)))
        if not self.variance:
            return found
        a = self.concentration
        spread = self.rate / ((a - 1) * math.sqrt(a - 2)) if a > 2 else math.nan
        return {self.variance: np.array(spread), **found}

    def draw(self, num_draws: int, *, seed: int = 0) -> dict[str, np.ndarray]:
        """Independent draws by name, the draw along the first axis.

        >>> from weighbridge.zoo import gaussian
        >>> gaussian.posterior(np.ones(9)).draw(100)["mu"].shape
        (100,)
        """
        check_count("num_draws", num_draws)
        generator = np.random.default_rng(seed)
        noise = generator.standard_normal((num_draws, len(self.root)))
        if not self.variance:
            return self._named(self._centre() + self._unwhitened(noise))
        variance = self.rate / generator.gamma(self.concentration, size=num_draws)
        spread = np.sqrt(variance)[:, None] * self._unwhitened(noise)
        return {self.variance: variance, **self._named(self._centre() + spread)}

    def log_density(self, parameters: Mapping[str, Any]) -> float:
        """Log density of the posterior at named parameters.

        >>> from weighbridge.zoo import gaussian
        >>> round(gaussian.posterior(np.zeros(0)).log_density({"mu": 0.0}), 6)
        -0.918939
        """
        missing = [name for name in self.mean if name not in parameters]
        if missing:
            raise DataError(f"Parameters {missing} are missing; there are {list(self.mean)}.")
        values = [np.asarray(parameters[name], float).reshape(-1) for name in self.location]
        size = len(self.root)
        white = self.root @ (np.concatenate(values) - self._centre())
        log_root = float(np.sum(np.log(np.abs(np.diag(self.root)))))
        variance = float(parameters[self.variance]) if self.variance else 1.0
        if variance <= 0:
            return -math.inf
        density = (
            log_root
            - 0.5 * size * math.log(2 * math.pi * variance)
            - 0.5 * float(white @ white) / variance
        )
        if not self.variance:
            return density
        a, r = self.concentration, self.rate
        of_variance = a * math.log(r) - float(gammaln(a)) - (a + 1) * math.log(variance)
        return density + of_variance - r / variance

    def _centre(self) -> np.ndarray:
        return np.concatenate([value.reshape(-1) for value in self.location.values()])

    def _unwhitened(self, noise: np.ndarray) -> np.ndarray:
        return np.asarray(solve_triangular(self.root, noise.T).T)

    def _named(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The last axis of an array as named parameters."""
        found, start = {}, 0
        for name, where in self.location.items():
            part = values[..., start : start + where.size]
            found[name] = part.reshape((*values.shape[:-1], *where.shape))
            start += where.size
        return found

    def _page(self) -> Page:
        mean, std = (
            scalar_entries({name: value[None] for name, value in of.items()})
            for of in (self.mean, self.std)
        )
        rows = {label: (float(mean[label][0]), float(std[label][0])) for label in mean}
        table = Table(("mean", "sd"), rows)
        return Page("exact posterior", table.columns, table.texts())

    def __str__(self) -> str:
        page = self._page()
        return str(Table(tuple(page.columns), page.rows))
