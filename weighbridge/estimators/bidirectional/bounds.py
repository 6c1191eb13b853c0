"""The result of bidirectional Monte Carlo: bounds, and a check of other estimates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weighbridge.core.errors import DataError
from weighbridge.core.pickling import travels
from weighbridge.core.status import Status, gravest
from weighbridge.core.thresholds import MAX_BOUNDS_CROSSING
from weighbridge.core.types import PyTree
from weighbridge.plots.bounds import plot_bounds
from weighbridge.results.evidence_result import Evidence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface


@travels()
class Verdict(NamedTuple):
    """Whether an estimate agrees with bounds; it is true if the estimate agrees.

    Attributes:
        inside: whether it lies between the bounds, given all errors.
        excess: nats by which it is above the upper bound (positive) or below the lower one
            (negative); 0 between them.
        num_errors: the same in units of the combined standard error.
        text: the same as a sentence.
    """

    inside: bool
    excess: float
    num_errors: float
    text: str

    def __bool__(self) -> bool:
        return self.inside

    def __str__(self) -> str:
        return self.text


@travels(if_possible=["data"])
@dataclass(frozen=True, eq=False, repr=False)
class Bounds:
    """Stochastic bounds on the log evidence of simulated data.

    Attributes:
        lower: mean over islands of log estimates of Z; its expectation is at most log Z.
        upper: mean over islands of minus log estimates of 1/Z; its expectation is at least log Z.
        lower_error: standard error of ``lower``; NaN when it cannot be stated.
        upper_error: standard error of ``upper``; it includes the effect of the one exact posterior
            draw.
        data: the simulated observations, for use with other estimators.
        parameters: the parameters of the simulation.
        schedule: powers of the likelihood, from 0 to 1; backward chains go from 1 to 0.
        forward_log_weights: log weights at the end of the forward chains, islands x particles.
        backward_log_weights: log weights at the end of the backward chains; they estimate 1/Z.
        method: name of the method.
        num_observations: number of simulated rows.
        flags: all flags; empty if there are none.
        elapsed: seconds of wall clock.
    """

    lower: float
    upper: float
    lower_error: float
    upper_error: float
    data: PyTree
    parameters: dict[str, np.ndarray]
    schedule: np.ndarray
    forward_log_weights: np.ndarray
    backward_log_weights: np.ndarray
    method: str
    num_observations: int
    flags: tuple[Status, ...] = ()
    elapsed: float = 0.0

    @property
    def gap(self) -> float:
        """The distance between the bounds; its expectation bounds the error of both."""
        return self.upper - self.lower

    @property
    def interval(self) -> tuple[float, float]:
        """The bounds, each moved outwards by two standard errors."""
        return self.lower - 2 * self.lower_error, self.upper + 2 * self.upper_error

    @property
    def crossed(self) -> bool:
        """Whether the upper bound is below the lower one by more than chance allows.

        Then ``simulate`` does not draw from the likelihood of the model: by Markov's inequality
        each bound is a nats on the wrong side with a probability of at most exp(-a).
        """
        return self.gap < -MAX_BOUNDS_CROSSING

    @property
    def status(self) -> Status:
        """The most serious flag, or ``Status.OK``."""
        return gravest(self.flags)

    def check(self, result: Evidence, *, num_errors: float = 3.0) -> Verdict:
        """Whether an estimate of the evidence of ``data`` lies between the bounds.

        Args:
            result: of ``wb.evidence(model, bounds.data, ...)`` by any method.
            num_errors: number of combined standard errors by which it may lie outside. For an
                estimate without an error only the errors of the bounds are used.
        """
        if result.num_observations != self.num_observations:
            raise DataError(
                f"This result has {result.num_observations:,} observations, and the bounds are for "
                f"{self.num_observations:,}: run the method on bounds.data."
            )
        value = result.log_evidence
        excess = max(value - self.upper, 0.0) - max(self.lower - value, 0.0)
        errors = (result.std_error, self.lower_error if excess < 0 else self.upper_error)
        error = math.hypot(*(e for e in errors if not math.isnan(e)))
        distance = abs(excess) / error if error else math.inf if excess else 0.0
        inside = distance <= num_errors
        where = "between" if not excess else "below" if excess < 0 else "above"
        text = f"log evidence {value:.2f} ({result.method}) lies {where} the bounds"
        if excess:
            text += f" by {abs(excess):.2f} nats, {distance:.1f} standard errors"
        text += f": {'it agrees' if inside else 'it does not agree'} with them."
        return Verdict(inside, excess, distance, text)

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """Forward and backward estimates of the islands, and the bounds.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or one axes.
        """
        return plot_bounds(
            island_logs(self.forward_log_weights),
            -island_logs(self.backward_log_weights),
            lower=(self.lower, self.lower_error),
            upper=(self.upper, self.upper_error),
            axes=axes,
        )

    def __str__(self) -> str:
        lines = [
            f"log evidence from {self.lower:.2f} +- {self.lower_error:.2f} to {self.upper:.2f} +- "
            f"{self.upper_error:.2f} ({self.method}, {len(self.schedule) - 1} steps, "
            f"{self.num_observations:,} simulated observations, {self.elapsed:.1f} s)",
            *(f"  {flag}" for flag in self.flags),
        ]
        if self.crossed:
            lines.append(
                "  The upper bound lies below the lower one: check that simulate draws from the "
                "likelihood of the model, with the same noise and the same columns."
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Bounds: {str(self).splitlines()[0]}; {self.status.label}>"


def island_logs(log_weights: np.ndarray) -> np.ndarray:
    """Log of the mean weight of every island."""
    top = log_weights.max(axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.mean(np.exp(log_weights - top), axis=1)) + top[:, 0])
