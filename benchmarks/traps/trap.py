"""A trap: a model, data, the exact log evidence, and the modes to be found.

One function of plain arrays is the likelihood of weighbridge's model and that of the peers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.traps.sites import Site

LOG_TWO_PI = math.log(2 * math.pi)
# What brute force may spend, how often it must hit a mode, and which modes count.
BRUTE_FORCE = 10**7
HITS = 10
COUNTED = 0.01
# The most numbers of a temporary array when many parameters meet many rows.
BLOCK = 2**21

Likelihood = Callable[[Any, Any, Any], Any]


class Modes(NamedTuple):
    """The modes of a posterior.

    Attributes:
        share: posterior mass of each.
        reach: share of brute force's points that fall into its basin: where a climb, or a look at
            which mode is the highest, leads to it.
    """

    share: np.ndarray
    reach: np.ndarray

    def blind(self) -> bool:
        """Whether brute force would miss a mode that counts."""
        missed = self.reach * BRUTE_FORCE < HITS
        return bool(np.any(missed & (self.share > COUNTED)))


ONE_MODE = Modes(np.ones(1), np.ones(1))


@dataclass(frozen=True)
class Trap:
    """A problem with an exact log evidence.

    Attributes:
        kind: its class.
        title: what it is, in a few words.
        sites: its parameters.
        likelihood: ``likelihood(theta [..., d], data, xp)``: the log-likelihood ``[...]``, or, with
            rows, that of every row: theta ``[..., 1, d]`` meets columns ``[n, ...]``.
        data: a dict of arrays with one leading axis, or None.
        exact: the log evidence, computed when asked for.
        modes: the modes, computed when asked for.
        rows: whether the likelihood is that of one row.
        on_host: whether weighbridge gets it as a NumPy function.
        exchangeable: as of ``wb.Model``.
        chunk: rows in a chunk if the data are a stream, else 0.
    """

    kind: str
    title: str
    sites: tuple[Site, ...]
    likelihood: Likelihood
    data: Mapping[str, np.ndarray] | None
    exact: Callable[[], float]
    modes: Callable[[], Modes] = lambda: ONE_MODE
    rows: bool = False
    on_host: bool = False
    exchangeable: Mapping[str, int] | None = None
    chunk: int = 0

    @cached_property
    def log_evidence(self) -> float:
        """The exact log evidence."""
        return float(self.exact())

    @cached_property
    def blind(self) -> bool:
        """Whether not even brute force would find all modes: outside the goals."""
        return self.modes().blind()

    @property
    def dimension(self) -> int:
        """Coordinates of the unit cube, and of the library's unconstrained space."""
        return sum(site.cube_size for site in self.sites)

    def model(self) -> Any:
        """The problem for weighbridge."""
        import jax.numpy as jnp
        import numpyro.distributions as dist

        import weighbridge as wb

        prior = {site.name: site.prior(dist) for site in self.sites}
        if self.rows:
            return wb.Model(
                prior, partial(_of_named, self, jnp), exchangeable=dict(self.exchangeable or {})
            )
        return wb.Model(
            prior,
            total_log_likelihood=partial(_of_named, self, np if self.on_host else jnp),
            on_host=self.on_host or None,
            exchangeable=dict(self.exchangeable or {}),
        )

    def model_data(self, stream: bool = False) -> Any:
        """The data for weighbridge, as an iterator of chunks if wanted."""
        if self.data is None:
            return None
        data = {name: np.asarray(column) for name, column in self.data.items()}
        if not (stream and self.chunk):
            return data
        length = len(next(iter(data.values())))
        starts = range(0, length, self.chunk)
        return ({n: v[start : start + self.chunk] for n, v in data.items()} for start in starts)

    def transform(self, cube: np.ndarray) -> np.ndarray:
        """Parameters from points of the unit cube: the quantile function of the prior."""
        before: dict[str, np.ndarray] = {}
        start = 0
        for site in self.sites:
            own = cube[..., start : start + site.cube_size]
            before[site.name] = site.quantile(own, before)
            start += site.cube_size
        return np.concatenate(list(before.values()), axis=-1)

    def log_likelihood(self, theta: np.ndarray) -> np.ndarray:
        """Log-likelihood of all the data, in NumPy, for one or many parameters."""
        flat = np.reshape(theta, (-1, np.shape(theta)[-1]))
        width = 1 if not self.data else max(np.size(v) for v in self.data.values())
        size = max(BLOCK // width, 1)
        blocks = [flat[start : start + size] for start in range(0, len(flat), size)]
        found = np.concatenate([self._block(block) for block in blocks])
        return found.reshape(np.shape(theta)[:-1])

    def _block(self, theta: np.ndarray) -> np.ndarray:
        if self.rows:
            return np.sum(self.likelihood(theta[:, None, :], self.data, np), axis=-1)
        return np.asarray(self.likelihood(theta, self.data, np))

    def draw_prior(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Draws from the prior."""
        return self.transform(generator.random((count, self.dimension)))


def _of_named(trap: Trap, xp: Any, parameters: Mapping[str, Any], data: Any = None) -> Any:
    """The likelihood as a function of named parameters, with any leading axes."""
    pieces = [
        parameters[site.name] if site.vector else parameters[site.name][..., None]
        for site in trap.sites
    ]
    return trap.likelihood(xp.concatenate(pieces, axis=-1), data, xp)
