"""Checks of the log-likelihood at prior draws: finite, repeatable, with a right gradient."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from weighbridge.checking.model_check.gradients import gradient_fault
from weighbridge.checking.model_check.report import Check
from weighbridge.checking.pointwise import rows_of, total_log_likelihoods
from weighbridge.core.compilation import jit
from weighbridge.core.types import Array, PyTree
from weighbridge.data.values import num_rows
from weighbridge.models.model import Model, unravel_positions
from weighbridge.models.program_text import traced_text
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.host import HostLikelihood, as_numpy, host_likelihood
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.total import Total

# Number of rows in the check of the gradient.
NUM_ROWS = 200
# The check fails if the log-likelihood is -inf at a larger share of the prior draws.
MANY_IMPOSSIBLE = 0.5

log_densities = jit(lambda target, position: jax.vmap(target)(position))


@dataclass(frozen=True, eq=False)
class Case:
    """A model with its data, which passed the checks of ``wb.evidence``."""

    model: Model
    values: PyTree
    weight: np.ndarray
    host: HostLikelihood | None

    @property
    def told(self) -> str:
        """Whether the log-likelihood is of a row or of all data, and where it runs."""
        what = "all the data" if self.model.log_likelihood is None else "a row"
        return f"one number for {what}, {'compiled' if self.host is None else 'on the host'}"

    def at(self, samples: dict[str, np.ndarray]) -> np.ndarray:
        """Log-likelihood of all the data at every draw."""
        return total_log_likelihoods(self.model, samples, self.values, self.weight)

    def target(self) -> Target:
        """The log density; for a model of rows, on some of the rows."""
        if self.model.log_likelihood is None:
            return Target(self.model, (Total(self.values),))
        return Target(self.model, (Rows(*self.some_rows(NUM_ROWS)),))

    def some_rows(self, wanted: int) -> tuple[PyTree, np.ndarray]:
        """Rows evenly spaced over the data, and their weights."""
        count = num_rows(self.values)
        chosen = np.unique(np.linspace(0, count - 1, min(wanted, count)).astype(int))
        return jax.tree_util.tree_map(lambda leaf: leaf[chosen], self.values), self.weight[chosen]

    def repeats(self, position: Array) -> bool:
        """Whether two traces of the function, and two runs, give the same result."""
        if self.host is not None:
            samples = as_numpy(self.model, unravel_positions(self.model, position))
            wanted = np.ones(len(position), bool)
            first, second = (self.host.at(samples, wanted) for _ in range(2))
            return np.array_equal(first, second, equal_nan=True)
        target = self.target()
        # A new closure each time: JAX would not trace the same one a second time.
        texts = [traced_text(jax.make_jaxpr(lambda u: target(u))(position[0])) for _ in range(2)]
        first, second = (np.asarray(log_densities(target, position)) for _ in range(2))
        return texts[0] == texts[1] and np.array_equal(first, second, equal_nan=True)


def prepare(model: Model, values: PyTree, position: Array) -> Case:
    """Check the data, and find out whether the log-likelihood can be compiled."""
    admitted, weight = rows_of(model, values)
    return Case(model, admitted, weight, host_likelihood(model, admitted, position[None]))


def is_random_row(model: Model, values: PyTree) -> bool:
    """Whether two traces of the log-likelihood of one row differ."""
    row = jax.tree_util.tree_map(lambda leaf: leaf[0], values)
    start = np.zeros(model.dimension)
    try:
        texts = [
            traced_text(
                jax.make_jaxpr(lambda u: model.require_rows()(model.transform(u)[0], row))(start)
            )
            for _ in range(2)
        ]
    except Exception:
        return False
    return texts[0] != texts[1]


def told_deterministic(repeats: bool) -> Check:
    """Does the log-likelihood give the same number each time?"""
    return Check(
        "deterministic",
        repeats,
        "the same number twice" if repeats else "differs from call to call",
        "Remove random numbers, clocks and counters from the log-likelihood; a latent variable "
        "belongs in the prior.",
    )


def check_finite(log_likelihood: np.ndarray) -> Check:
    """Is the log-likelihood finite or -inf at every prior draw?

    >>> check_finite(np.array([-1.0, -np.inf, np.nan])).found
    'NaN or +inf at 1 of 3 prior draws'
    """
    bad = int(np.sum(np.isnan(log_likelihood) | (log_likelihood == np.inf)))
    count = len(log_likelihood)
    return Check(
        "finite",
        bad == 0,
        f"NaN or +inf at {bad} of {count} prior draws" if bad else f"no NaN at {count} prior draws",
        "Check the log-likelihood for log(0), 0/0 and overflow; where the density is zero it must "
        "be -inf.",
    )


def check_possible(log_likelihood: np.ndarray) -> Check:
    """Are the data possible under most prior draws?

    >>> check_possible(np.array([-2.0, -1.0, -np.inf])).found
    'log-likelihood -2 to -1, -inf at 33% of prior draws'
    """
    share = float(np.mean(log_likelihood == -np.inf))
    finite = log_likelihood[np.isfinite(log_likelihood)]
    told = f"log-likelihood {finite.min():.4g} to {finite.max():.4g}, " if len(finite) else ""
    return Check(
        "possible",
        share <= MANY_IMPOSSIBLE,
        f"{told}-inf at {share:.0%} of prior draws",
        "The data are impossible (-inf) at most prior draws: check the support of the likelihood "
        "and the units of the data, or use a prior under which the data are possible.",
    )


def check_gradient(case: Case, position: np.ndarray, seed: int) -> Check:
    """Does the gradient agree with finite differences?"""
    if case.host is not None:
        return Check("gradient", None, "none on the host; use moves that need none")
    if not len(position):
        return Check("gradient", None, "not checked: no prior draw has a finite log-likelihood")
    found, remedy = gradient_fault(case.target(), position, seed)
    return Check("gradient", not remedy, found, remedy)
