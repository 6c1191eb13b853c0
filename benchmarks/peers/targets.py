"""The problems of ``benchmarks.problems`` for other tools: functions of plain arrays.

A density is written once and runs in NumPy, vectorised over the leading axes, or in JAX. Nothing
here imports weighbridge, because the environments of the tools do not have it; the data come
from a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

Data = Mapping[str, np.ndarray]
LOG_TWO_PI = math.log(2 * math.pi)
# The most numbers of a temporary array: a larger one exceeds the cache, and later the memory.
BLOCK = 2**20


@dataclass(frozen=True)
class Target:
    """A prior and a likelihood on R^d or in a box, in NumPy or in JAX.

    Attributes:
        dimension: number of parameters d.
        prior: normal, box or mixture.
        low, high: bounds of the box.
        likelihood: ``likelihood(theta [..., d], data, xp) -> [...]``.
        data: the observations.
        xp: numpy or jax.numpy.
        special: scipy.special or jax.scipy.special.
    """

    dimension: int
    prior: str
    low: float
    high: float
    likelihood: Callable[[Any, Data, Any], Any]
    data: Data
    xp: ModuleType
    special: ModuleType

    def transform(self, cube: Any) -> Any:
        """Parameters from a point of the unit cube: the quantile function of the prior."""
        if self.prior == "box":
            return self.low + (self.high - self.low) * cube
        if self.prior == "normal":
            return self.special.ndtri(cube)
        return _mixture_transform(cube, self.xp, self.special)

    def log_prior(self, theta: Any) -> Any:
        """Log density of the prior."""
        if self.prior == "box":
            inside = self.xp.all((theta >= self.low) & (theta <= self.high), axis=-1)
            volume = self.dimension * math.log(self.high - self.low)
            return self.xp.where(inside, -volume, -self.xp.inf)
        if self.prior == "normal":
            return -0.5 * self.xp.sum(theta**2 + LOG_TWO_PI, axis=-1)
        return _mixture_log_prior(theta, self.xp)

    def log_likelihood(self, theta: Any) -> Any:
        """Log-likelihood of all the data; NumPy goes through many parameters in blocks."""
        if self.xp is not np or theta.ndim == 1:
            return self.likelihood(theta, self.data, self.xp)
        rows = max((len(column) for column in self.data.values()), default=1)
        size = max(BLOCK // rows, 1)
        blocks = [theta[start : start + size] for start in range(0, len(theta), size)]
        return np.concatenate([self.likelihood(block, self.data, np) for block in blocks])

    def draw_prior(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Draws from the prior, as NumPy."""
        return np.asarray(self.transform(generator.random((count, self.dimension))))


def _gaussian(theta: Any, data: Data, xp: Any) -> Any:
    residual = data["y"] - theta[..., :1]
    return -0.5 * xp.sum(residual**2, axis=-1) - 0.5 * LOG_TWO_PI * len(data["y"])


def _linear(theta: Any, data: Data, xp: Any) -> Any:
    residual = data["y"] - theta[..., :-1] @ data["x"].T - theta[..., -1:]
    return -0.5 * xp.einsum("...n,...n->...", residual, residual) - 0.5 * LOG_TWO_PI * len(
        data["y"]
    )


def _softmax(theta: Any, data: Data, xp: Any) -> Any:
    num_features = data["x"].shape[1]
    num_classes = theta.shape[-1] // (num_features + 1)
    table = theta.reshape(*theta.shape[:-1], num_classes, num_features + 1)
    scores = table[..., :-1] @ data["x"].T + table[..., -1:]
    largest = xp.max(scores, axis=-2)
    log_sum = largest + xp.log(xp.sum(xp.exp(scores - largest[..., None, :]), axis=-2))
    chosen = data["y"] == np.arange(num_classes)[:, None]
    return xp.sum(scores * chosen, axis=(-2, -1)) - xp.sum(log_sum, axis=-1)


def _shells(theta: Any, data: Data, xp: Any) -> Any:
    rest = xp.sum(theta[..., 1:] ** 2, axis=-1)

    def shell(centre: float) -> Any:
        radius = xp.sqrt((theta[..., 0] - centre) ** 2 + rest)
        return -0.5 * ((radius - 2.0) / 0.1) ** 2 - 0.5 * LOG_TWO_PI - math.log(0.1)

    return xp.logaddexp(shell(3.5), shell(-3.5))


def _eggbox(theta: Any, data: Data, xp: Any) -> Any:
    return (2.0 + xp.cos(theta[..., 0] / 2) * xp.cos(theta[..., 1] / 2)) ** 5


def _rosenbrock(theta: Any, data: Data, xp: Any) -> Any:
    x, y = theta[..., 0], theta[..., 1]
    return -0.5 * (100.0 * (y - x**2) ** 2 + (1.0 - x) ** 2)


def _log_gamma(theta: Any, data: Data, xp: Any) -> Any:
    dimension = theta.shape[-1]

    def gamma(x: Any, place: float) -> Any:
        scaled = 30.0 * (x - place)
        return scaled - xp.exp(scaled) + math.log(30.0)

    def normal(x: Any, place: float) -> Any:
        return -0.5 * (30.0 * (x - place)) ** 2 - 0.5 * LOG_TWO_PI + math.log(30.0)

    first, second = theta[..., 0], theta[..., 1]
    num_gammas = (dimension + 2) // 2 - 2
    total = xp.logaddexp(gamma(first, 1 / 3), gamma(first, 2 / 3)) - math.log(2)
    total = total + xp.logaddexp(normal(second, 1 / 3), normal(second, 2 / 3)) - math.log(2)
    total = total + xp.sum(gamma(theta[..., 2 : 2 + num_gammas], 2 / 3), axis=-1)
    return total + xp.sum(normal(theta[..., 2 + num_gammas :], 2 / 3), axis=-1)


def _funnel(theta: Any, data: Data, xp: Any) -> Any:
    log_variance, rest = theta[..., 0], theta[..., 1:]
    head = -0.5 * (log_variance / 3.0) ** 2 - 0.5 * LOG_TWO_PI - math.log(3.0)
    squares = xp.sum(rest**2, axis=-1) * xp.exp(-log_variance)
    return head - 0.5 * (squares + rest.shape[-1] * (log_variance + LOG_TWO_PI))


def _spike_and_slab(theta: Any, data: Data, xp: Any) -> Any:
    squares, dimension = xp.sum(theta**2, axis=-1), theta.shape[-1]

    def normal(scale: float) -> Any:
        return -0.5 * squares / scale**2 - dimension * (0.5 * LOG_TWO_PI + math.log(scale))

    return xp.logaddexp(math.log(100.0) + normal(0.01), normal(0.1))


# The mixture has 3 weights, variances and means. Its unconstrained parameters are the logits of
# the two breaks of a stick, the logs of the variances, and the means.


def _mixture_transform(cube: Any, xp: Any, special: Any) -> Any:
    first = 1.0 - xp.sqrt(1.0 - cube[..., :1])  # Beta(1, 2)
    breaks = xp.concatenate([first, cube[..., 1:2]], axis=-1)
    logits = xp.log(breaks) - xp.log1p(-breaks)
    log_variance = -xp.log(-xp.log(cube[..., 2:5]))  # InverseGamma(1, 1)
    mean = 2.0 * xp.exp(0.5 * log_variance) * special.ndtri(cube[..., 5:])
    return xp.concatenate([logits, log_variance, mean], axis=-1)


def _mixture_log_prior(theta: Any, xp: Any) -> Any:
    logits, log_variance, mean = theta[..., :2], theta[..., 2:5], theta[..., 5:]
    kept = -xp.logaddexp(0.0, logits)  # log(1 - break)
    taken = logits + kept
    # Beta(1, 2) and Beta(1, 1), each with the Jacobian break (1 - break) of its logit.
    weights = math.log(2.0) + 2 * kept[..., 0] + taken[..., 0] + kept[..., 1] + taken[..., 1]
    variances = xp.sum(-log_variance - xp.exp(-log_variance), axis=-1)
    squares = 0.25 * mean**2 * xp.exp(-log_variance)
    means = -0.5 * xp.sum(squares + log_variance + LOG_TWO_PI + math.log(4.0), axis=-1)
    return weights + variances + means


def _mixture(theta: Any, data: Data, xp: Any) -> Any:
    logits, log_variance, mean = theta[..., :2], theta[..., 2:5], theta[..., 5:]
    kept = -xp.logaddexp(0.0, logits)
    taken = logits + kept
    log_weight = xp.stack(
        [taken[..., 0], kept[..., 0] + taken[..., 1], kept[..., 0] + kept[..., 1]], axis=-1
    )
    constant = log_weight - 0.5 * (LOG_TWO_PI + log_variance)
    squares = (data["y"] - mean[..., None]) ** 2 * xp.exp(-log_variance)[..., None]
    each = constant[..., None] - 0.5 * squares
    largest = xp.max(each, axis=-2)
    density = xp.sum(xp.exp(each - largest[..., None, :]), axis=-2)
    return xp.sum(largest + xp.log(density), axis=-1)


# name: dimension, prior, low, high, likelihood
_TARGETS: dict[str, tuple[int, str, float, float, Callable[[Any, Data, Any], Any]]] = {
    "gaussian": (1, "normal", 0.0, 0.0, _gaussian),
    "linear-1000": (6, "normal", 0.0, 0.0, _linear),
    "linear-10000": (6, "normal", 0.0, 0.0, _linear),
    "softmax": (44, "normal", 0.0, 0.0, _softmax),
    "shells-2": (2, "box", -6.0, 6.0, _shells),
    "shells-10": (10, "box", -6.0, 6.0, _shells),
    "eggbox": (2, "box", 0.0, 10 * math.pi, _eggbox),
    "rosenbrock": (2, "box", -10.0, 10.0, _rosenbrock),
    "log-gamma": (10, "box", 0.0, 1.0, _log_gamma),
    "shells-20": (20, "box", -6.0, 6.0, _shells),
    "funnel": (10, "box", -30.0, 30.0, _funnel),
    "spike-and-slab": (10, "box", -0.5, 0.5, _spike_and_slab),
    "mixture": (8, "mixture", 0.0, 0.0, _mixture),
}

NAMES = tuple(_TARGETS)


def numpy_target(name: str, data: Data) -> Any:
    """The problem in NumPy; "trap-7" is the seventh of ``benchmarks.traps``."""
    from scipy import special

    if name.startswith("trap-"):
        from benchmarks.traps.for_peers import Cube

        return Cube(int(name.removeprefix("trap-")))
    return Target(*_TARGETS[name], dict(data), np, special)


def jax_target(name: str, data: Data) -> Any:
    """The problem in JAX, in the precision that is enabled."""
    import jax.numpy as jnp
    from jax.scipy import special

    if name.startswith("trap-"):
        from benchmarks.traps.for_peers import NormalInJax

        return NormalInJax(int(name.removeprefix("trap-")))
    return Target(
        *_TARGETS[name], {key: jnp.asarray(column) for key, column in data.items()}, jnp, special
    )
