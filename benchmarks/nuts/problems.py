"""Log densities for the comparison of NUTS; their priors are standard normal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr


@dataclass(frozen=True)
class Problem:
    """A log-likelihood of a vector whose prior is standard normal, and how long to sample it.

    After the first run there are ``num_runs`` more, since the step size after a single warm-up
    may be good or bad by chance.
    """

    dimension: int
    log_likelihood: Callable[[Any], Any]
    num_chains: int = 4
    num_warmup: int = 1000
    num_samples: int = 1000
    num_runs: int = 5

    def log_density(self, position: Any) -> Any:
        """Log density of the posterior, up to a constant."""
        return -0.5 * jnp.sum(position**2) + self.log_likelihood(position)


def normal() -> Problem:
    """50 coordinates with standard deviations from 0.1 to 10, rotated by a random matrix."""
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(50, 50)))[0]
    # The correlations are mild, because all samplers learn a diagonal metric.
    mixed = np.linalg.qr(np.eye(50) + 0.02 * rotation)[0]
    precision = mixed @ np.diag(np.logspace(-1, 1, 50) ** -2.0) @ mixed.T
    rest = precision - np.eye(50)
    return Problem(50, lambda z: -0.5 * z @ rest @ z)


def logistic() -> Problem:
    """Logistic regression, 1,000 rows and 25 features."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(1000, 25))
    truth = rng.normal(size=25)
    labels = (rng.random(1000) < 1 / (1 + np.exp(-features @ truth))).astype(float)

    def log_likelihood(z: Any) -> Any:
        logits = jnp.asarray(features) @ z
        return jnp.sum(labels * logits - jnp.logaddexp(0.0, logits))

    return Problem(25, log_likelihood)


def eight_schools() -> Problem:
    """Rubin's eight schools, non-centred; tau is half-Cauchy, by its quantile function."""
    effects = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    errors = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

    def log_likelihood(z: Any) -> Any:
        mean, tau = 5.0 * z[0], 5.0 * jnp.tan(0.5 * jnp.pi * ndtr(z[1]))
        return -0.5 * jnp.sum(((effects - mean - tau * z[2:]) / errors) ** 2)

    return Problem(10, log_likelihood)


def network(digits: Path) -> Problem:
    """A network of 35 hidden units on 500 of the 8 x 8 digits; weights scaled by their fan-in."""
    stored = np.load(digits)
    inputs, labels = stored["inputs"], stored["labels"]
    shapes = ((64, 35), (35,), (35, 10), (10,))
    sizes = [int(np.prod(shape)) for shape in shapes]
    ends = np.cumsum(sizes)

    def log_likelihood(z: Any) -> Any:
        pieces = jnp.split(z, ends[:-1])
        first, bias, second, last = (p.reshape(s) for p, s in zip(pieces, shapes))
        hidden = jnp.tanh(jnp.asarray(inputs) @ first / 8.0 + bias)
        logits = hidden @ second / jnp.sqrt(35.0) + last
        return jnp.sum(jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels])

    return Problem(
        int(ends[-1]), log_likelihood, num_chains=1, num_warmup=300, num_samples=200, num_runs=6
    )


def problem(name: str, digits: Path) -> Problem:
    """The problem with a name."""
    if name == "network":
        return network(digits)
    return {"normal": normal, "logistic": logistic, "schools": eight_schools}[name]()


TITLES = {
    "normal": "normal, 50-D",
    "logistic": "logistic regression, 1,000 x 25",
    "schools": "eight schools, not centred",
    "network": "network, 2,635 weights, 500 digits",
}
