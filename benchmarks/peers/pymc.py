"""PyMC: ``sample_smc`` with its defaults, on models in PyMC's own language.

The default is two chains (or one for each core) of 2,000 particles; on one core these are two, one
after the other. Each chain gives a log marginal likelihood; the answer is the log of the mean of
the marginal likelihoods. PyMC states no error. Installed by pip, PyTensor compiles with the C
compiler and without BLAS.
"""

from __future__ import annotations

import logging
import math
import warnings
from typing import Any

import numpy as np
import pymc
import pytensor.tensor as pt

from benchmarks.peers.targets import Data
from benchmarks.peers.tools import Answer, Run

NUM_CHAINS = 2


def prepare(name: str, data: Data) -> Run:
    """One model for all seeds."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    model = build(name, data)

    def run(seed: int) -> Answer:
        with model, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace = pymc.sample_smc(
                chains=NUM_CHAINS,
                cores=1,
                random_seed=seed,
                progressbar=False,
                compute_convergence_checks=False,
            )
        stages = trace.sample_stats["log_marginal_likelihood"].values
        last = np.array([float(np.asarray(chain[-1]).ravel()[-1]) for chain in stages])
        return Answer(float(np.logaddexp.reduce(last) - math.log(len(last))))

    return run


def build(name: str, data: Data) -> Any:
    """The problem as a PyMC model."""
    with pymc.Model() as model:
        if name in _OBSERVED:
            _OBSERVED[name](data)
        else:
            size, low, high, log_likelihood = _BOXES[name]
            x = pymc.Uniform("x", low, high, shape=size)
            pymc.Potential("log_likelihood", log_likelihood(x))
    return model


def _gaussian(data: Data) -> None:
    mean = pymc.Normal("mu", 0.0, 1.0)
    pymc.Normal("y", mean, 1.0, observed=data["y"])


def _linear(data: Data) -> None:
    slopes = pymc.Normal("w", 0.0, 1.0, shape=data["x"].shape[1])
    intercept = pymc.Normal("b", 0.0, 1.0)
    pymc.Normal("y", data["x"] @ slopes + intercept, 1.0, observed=data["y"])


def _softmax(data: Data) -> None:
    slopes = pymc.Normal("w", 0.0, 1.0, shape=(data["x"].shape[1], 4))
    intercepts = pymc.Normal("b", 0.0, 1.0, shape=4)
    pymc.Categorical("y", logit_p=data["x"] @ slopes + intercepts, observed=data["y"])


def _mixture(data: Data) -> None:
    weights = pymc.Dirichlet("weights", np.ones(3))
    variance = pymc.InverseGamma("s2", 1.0, 1.0, shape=3)
    mean = pymc.Normal("mu", 0.0, 2 * pt.sqrt(variance), shape=3)
    pymc.NormalMixture("y", weights, mean, pt.sqrt(variance), observed=data["y"])


def _shells(x: Any) -> Any:
    rest = pt.sum(x[1:] ** 2)

    def shell(centre: float) -> Any:
        radius = pt.sqrt((x[0] - centre) ** 2 + rest)
        return pymc.logp(pymc.Normal.dist(2.0, 0.1), radius)

    return pt.logaddexp(shell(3.5), shell(-3.5))


def _eggbox(x: Any) -> Any:
    return (2 + pt.cos(x[0] / 2) * pt.cos(x[1] / 2)) ** 5


def _rosenbrock(x: Any) -> Any:
    return -0.5 * (100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2)


def _log_gamma(x: Any) -> Any:
    def gamma(y: Any, place: float) -> Any:
        return 30 * (y - place) - pt.exp(30 * (y - place)) + math.log(30)

    def normal(y: Any, place: float) -> Any:
        return pymc.logp(pymc.Normal.dist(place, 1 / 30), y)

    first = pt.logaddexp(gamma(x[0], 1 / 3), gamma(x[0], 2 / 3)) - math.log(2)
    second = pt.logaddexp(normal(x[1], 1 / 3), normal(x[1], 2 / 3)) - math.log(2)
    return first + second + pt.sum(gamma(x[2:6], 2 / 3)) + pt.sum(normal(x[6:], 2 / 3))


def _funnel(x: Any) -> Any:
    head = pymc.logp(pymc.Normal.dist(0.0, 3.0), x[0])
    return head + pt.sum(pymc.logp(pymc.Normal.dist(0.0, pt.exp(x[0] / 2)), x[1:]))


def _spike_and_slab(x: Any) -> Any:
    spike = pt.sum(pymc.logp(pymc.Normal.dist(0.0, 0.01), x))
    slab = pt.sum(pymc.logp(pymc.Normal.dist(0.0, 0.1), x))
    return pt.logaddexp(math.log(100) + spike, slab)


_OBSERVED: dict[str, Any] = {
    "gaussian": _gaussian,
    "linear-1000": _linear,
    "linear-10000": _linear,
    "softmax": _softmax,
    "mixture": _mixture,
}
_BOXES: dict[str, Any] = {
    "shells-2": (2, -6.0, 6.0, _shells),
    "shells-10": (10, -6.0, 6.0, _shells),
    "shells-20": (20, -6.0, 6.0, _shells),
    "eggbox": (2, 0.0, 10 * math.pi, _eggbox),
    "rosenbrock": (2, -10.0, 10.0, _rosenbrock),
    "log-gamma": (10, 0.0, 1.0, _log_gamma),
    "funnel": (10, -30.0, 30.0, _funnel),
    "spike-and-slab": (10, -0.5, 0.5, _spike_and_slab),
}
