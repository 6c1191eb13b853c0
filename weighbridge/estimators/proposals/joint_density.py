"""The log density of parameters and data together, at any number of positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.random import random_key
from weighbridge.core.types import PyTree
from weighbridge.estimators.annealing.path import Path, evaluate_chunk
from weighbridge.estimators.annealing.path_density import log_densities
from weighbridge.models.model import Model, draw_positions
from weighbridge.models.targets.all_rows import likelihood_term
from weighbridge.models.targets.host import PROBES, HostLikelihood, host_likelihood
from weighbridge.models.targets.term import Term

# Positions that are evaluated together. Calls are padded to a power of two up to this size, so that
# there are few programs.
BLOCK = 1024
LEAST = 64


class JointDensity:
    r"""The unnormalised log posterior on unconstrained vectors, with all the data.

    .. math:: \log f(u) = \log p(T(u)) + \log |\det \partial T / \partial u| + \log p(y | T(u))

    Its integral is the evidence. The likelihood may be one of rows or of all the data, in JAX or on
    the host. An undefined (NaN) density counts as zero; +inf raises an ``UnboundedError``.

    Attributes:
        model: the model.
        path: the same density in the form that annealing and bridges take.
        num_observations: sum of the weights of the rows.
        num_evaluations: positions evaluated so far.

    >>> import numpyro.distributions as dist
    >>> from weighbridge.core.compilation import in_double_precision
    >>> model = Model({"mu": dist.Normal(0, 1)}, lambda p, y: dist.Normal(p["mu"], 1).log_prob(y))
    >>> with in_double_precision():
    ...     density = JointDensity(model, np.array([0.0, 1.0]), np.ones(2))
    ...     density(np.zeros((1, 1))).round(6).tolist()
    [-3.256816]
    """

    def __init__(self, model: Model, values: PyTree, weight: np.ndarray | None) -> None:
        self.model = model
        # A few prior draws are for trial calls of a function on the host.
        draws = np.asarray(draw_positions(model, random_key(0), PROBES))
        host = host_likelihood(model, values, draws[None])
        term, self.num_observations = likelihood_term(model, values, weight)
        self.path = Path(model, (), term if host is None else cast(Term, host))
        self.num_evaluations = 0

    @property
    def is_on_host(self) -> bool:
        """Whether the likelihood is a function on the host, which has no gradient."""
        return isinstance(self.path.chunk, HostLikelihood)

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Log density at positions x coordinates."""
        return self._in_blocks(
            lambda block: log_densities(self.path, block, differentiable=False)[0], positions
        )

    def log_likelihood(self, positions: np.ndarray) -> np.ndarray:
        """Log-likelihood of all the data at positions x coordinates."""
        return self._in_blocks(self._log_likelihoods, positions)

    def _log_likelihoods(self, block: np.ndarray) -> np.ndarray:
        chunk = self.path.chunk
        if isinstance(chunk, HostLikelihood):
            return np.asarray(chunk.of_cloud(self.model, block))
        return evaluate_chunk(self.path, block)

    def _in_blocks(
        self, evaluate: Callable[[np.ndarray], np.ndarray], positions: np.ndarray
    ) -> np.ndarray:
        """A function of 1 x positions x coordinates at all positions, block by block."""
        found = np.empty(len(positions))
        for start in range(0, len(positions), BLOCK):
            interrupts.check()
            block = positions[start : start + BLOCK]
            padded = block if self.is_on_host else _pad(block)
            found[start : start + len(block)] = evaluate(padded[None])[0, : len(block)]
        self.num_evaluations += len(positions)
        return np.where(np.isnan(found), -np.inf, found)


def _pad(block: np.ndarray) -> np.ndarray:
    """The positions and copies of the last one, to a power of two."""
    size = max(LEAST, 1 << (len(block) - 1).bit_length())
    return np.concatenate([block, np.repeat(block[-1:], size - len(block), axis=0)])
