"""The largest posterior density or likelihood, by simulated annealing and local optimisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.checks import check_count, check_seed
from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import MethodError
from weighbridge.core.pickling import travels
from weighbridge.core.random import random_key
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.summaries import scalar_entries
from weighbridge.core.tables.table import Table
from weighbridge.core.types import Array
from weighbridge.estimators.maximization.simulated_annealing import (
    SAME_OPTIMUM,
    Problem,
    anneal,
    polish,
)
from weighbridge.models.held import hold
from weighbridge.models.model import Model, draw_positions, unravel_positions
from weighbridge.models.priors import Parameters
from weighbridge.models.row_gate import require_model
from weighbridge.models.targets.all_rows import likelihood_term
from weighbridge.models.targets.host import HostLikelihood, as_numpy, host_likelihood
from weighbridge.models.targets.span import Span
from weighbridge.models.targets.term import Term
from weighbridge.plots.optimum import plot_optimum

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

OBJECTIVES = ("posterior", "likelihood")
SPACES = ("constrained", "unconstrained")
# Number of prior draws; they give the scale of each coordinate, and the best of them are starts.
NUM_DRAWS = 256
# A bounded coordinate beyond this value, or a coordinate with a larger standard error than this (in
# standard deviations of the prior), counts as at the edge of its support.
EDGE = 30.0
LOOSE = 10.0


@travels()
@dataclass(frozen=True)
class Optimum(Tabular, Shown):
    """The maximum of a density.

    Attributes:
        parameters: parameters at the maximum, by name.
        log_density: the objective there, in nats; a posterior density is not normalised.
        std_errors: of the parameters, from the curvature; None if not requested or not available.
        objective: "posterior" or "likelihood".
        space: the space of the posterior density.
        optima: the objective at the end of each start, the best first.
        positions: unconstrained vectors of these optima.
        notes: remarks on the result.
    """

    parameters: dict[str, np.ndarray]
    log_density: float
    std_errors: dict[str, np.ndarray] | None
    objective: str
    space: str
    optima: np.ndarray
    positions: np.ndarray
    notes: tuple[str, ...] = ()

    def _frame(self) -> Frame:
        values = _entries(self.parameters)
        columns = {"value": list(values.values())}
        if self.std_errors is not None:
            errors = _entries(self.std_errors)
            columns["std_error"] = [errors[name] for name in values]
        return Frame(columns, list(values), "entry")

    def _page(self) -> Page:
        frame = self._frame()
        table = Table(
            tuple(frame.columns), dict(zip(frame.names or (), zip(*frame.columns.values())))
        )
        return Page(self._heading(), table.columns, table.texts(), self.notes)

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """The optima of all starts, and the parameters with their standard errors.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or two axes.
        """
        errors = None if self.std_errors is None else _entries(self.std_errors)
        title = "\n".join([self._heading(), *(f"note: {note}" for note in self.notes)])
        return plot_optimum(self.optima, _entries(self.parameters), errors, title=title, axes=axes)

    def _heading(self) -> str:
        what = "likelihood" if self.objective == "likelihood" else f"posterior ({self.space})"
        return f"largest {what}: {self.log_density:.6g}"

    def __str__(self) -> str:
        lines = [self._heading()]
        for name, value in self.parameters.items():
            error = "" if self.std_errors is None else f" +- {_text(self.std_errors[name])}"
            lines.append(f"  {name} = {_text(value)}{error}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _entries(parameters: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Scalar entries by their label."""
    found = scalar_entries({name: value[None] for name, value in parameters.items()})
    return {name: float(value[0]) for name, value in found.items()}


def _text(value: np.ndarray) -> str:
    return np.array2string(np.asarray(value), precision=4, threshold=8)


@double_precision
def maximize(
    model: Model,
    data: Any = None,
    objective: str = "posterior",
    *,
    space: str = "constrained",
    num_starts: int = 16,
    num_steps: int = 2000,
    std_errors: bool = True,
    seed: int = 0,
) -> Optimum:
    r"""The parameters of largest posterior density, or of largest likelihood.

    .. math:: P(\text{accept}) = \min\Bigl(1, \frac{p(u')}{p(u)} e^{(h(u') - h(u)) / T_t}\Bigr),
              \qquad T_t = T_0 (T_1 / T_0)^{t / n}

    Simulated annealing starts from several prior draws, in unconstrained space. At high temperature
    the target is the prior p; the objective h gains influence as T falls, and steps shrink. Then
    each start is optimised by L-BFGS, or by Nelder-Mead if the model has no gradient. A mode
    depends on the parametrisation: by default it is the mode of the density of the parameters
    themselves, without the Jacobian of the unconstrained space. Kirkpatrick, Gelatt & Vecchi
    (1983), Science 220:671-680; Byrd, Lu, Nocedal & Zhu (1995), SIAM J. Sci. Comp. 16:1190-1208.

    Args:
        model: a ``wb.Model``.
        data: in any form that ``wb.evidence`` takes.
        objective: "posterior" (prior times likelihood), or "likelihood".
        space: "constrained" for the density of the parameters themselves, "unconstrained" for that
            of the unconstrained vectors that samplers use; the likelihood does not depend on it.
        num_starts: number of parallel starts; a note tells if they end in different optima.
        num_steps: number of annealing steps.
        std_errors: whether to compute standard errors, from the curvature at the optimum.
        seed: the same seed gives the same numbers.

    Returns:
        The parameters, the density there, and the optima of all starts.

    >>> import numpyro.distributions as dist, weighbridge as wb
    >>> model = wb.Model({"mu": dist.Normal(0, 1)}, lambda p, y: -0.5 * (y - p["mu"]) ** 2)
    >>> best = maximize(model, np.array([1.0, 2.0, 3.0]), num_starts=4, num_steps=200)
    >>> round(float(best.parameters["mu"]), 4), round(float(best.std_errors["mu"]), 4)
    (1.5, 0.5)
    """
    check_seed(seed)
    require_model(model)
    for name, value in {"num_starts": num_starts, "num_steps": num_steps}.items():
        check_count(name, value)
    if objective not in OBJECTIVES:
        raise MethodError(f"objective must be one of {OBJECTIVES}, not {objective!r}.")
    if space not in SPACES:
        raise MethodError(f"space must be one of {SPACES}, not {space!r}.")
    values, weight = hold(model, data, "wb.maximize")
    key = random_key(seed)
    draws = np.asarray(draw_positions(model, key, max(NUM_DRAWS, int(num_starts))))
    host = host_likelihood(model, values, jnp.asarray(draws)[None])
    kind = Kind(objective, space)
    if host is None:
        term, _ = likelihood_term(model, values, weight)
        # A span has no second derivative; use its rows. Padding rows have no weight.
        problem = _compiled(model, term.rows if isinstance(term, Span) else term, kind)
    else:
        problem = Problem(
            partial(_host_heights, model, host, kind), partial(_log_prior, model), None, None
        )
    scale = np.clip(np.std(draws, axis=0), 1e-3, 10.0)
    found = anneal(problem, draws, scale, int(num_starts), int(num_steps), seed)
    ends = [polish(problem, position, scale) for position in found]
    optima = np.array([height for _, height in ends])
    order = np.argsort(-optima, kind="stable")
    positions, optima = np.array([position for position, _ in ends])[order], optima[order]
    parameters = as_numpy(model, unravel_positions(model, positions[:1]))
    root = _information_root(problem, positions[0])
    at_edge = _at_edge(model, positions[0], root, scale)
    errors = None
    if std_errors and root is not None and not at_edge:
        errors = _std_errors(model, root, positions[0])
    return Optimum(
        parameters={name: np.asarray(value[0]) for name, value in parameters.items()},
        log_density=float(optima[0]),
        std_errors=errors,
        objective=objective,
        space=space,
        optima=optima,
        positions=positions,
        notes=tuple(_notes(optima, at_edge, std_errors and errors is None, problem)),
    )


# --- what is maximised ----------------------------------------------------------------------


class Kind(NamedTuple):
    """Which density, and in which space."""

    objective: str
    space: str


def _prior_part(kind: Kind, model: Model, position: Array) -> tuple[Parameters, Array]:
    """The parameters, and the prior part of the objective."""
    parameters, log_density = model.transform(position)
    if kind.objective == "likelihood":
        return parameters, jnp.zeros(())
    if kind.space == "unconstrained":
        return parameters, log_density
    return parameters, sum(model.log_priors(parameters).values(), jnp.zeros(()))


@partial(jax.jit, static_argnums=0)
def _prior_parts(kind: Kind, model: Model, positions: Array) -> tuple[Parameters, Array]:
    return jax.vmap(partial(_prior_part, kind, model))(positions)


def _objective(kind: Kind, model: Model, term: Term, position: Array) -> Array:
    parameters, log_density = _prior_part(kind, model, position)
    return log_density + term(model, position, parameters)


_heights = jax.jit(
    lambda kind, model, term, positions: jax.vmap(partial(_objective, kind, model, term))(
        positions
    ),
    static_argnums=0,
)
_slope = jax.jit(jax.value_and_grad(_objective, argnums=3), static_argnums=0)
_curvature = jax.jit(jax.hessian(_objective, argnums=3), static_argnums=0)


_priors = jax.jit(lambda model, positions: jax.vmap(lambda u: model.transform(u)[1])(positions))


def _log_prior(model: Model, positions: np.ndarray) -> np.ndarray:
    return np.asarray(_priors(model, positions), np.float64)


def _compiled(model: Model, term: Term, kind: Kind) -> Problem:
    """The objective compiled by JAX, with its derivatives if it has them."""

    def height(positions: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.asarray(_heights(kind, model, term, positions))
        return found

    def slope(position: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _slope(kind, model, term, position)
        return float(value), np.asarray(gradient)

    reference = partial(_log_prior, model)
    abstract: Any = jax.ShapeDtypeStruct((model.dimension,), np.float64)
    try:
        jax.eval_shape(partial(_slope, kind), model, term, abstract)
    except Exception:
        return Problem(height, reference, None, None)
    return Problem(height, reference, slope, lambda u: np.asarray(_curvature(kind, model, term, u)))


def _host_heights(
    model: Model, host: HostLikelihood, kind: Kind, positions: np.ndarray
) -> np.ndarray:
    parameters, log_density = _prior_parts(kind, model, jnp.asarray(positions))
    everywhere = np.ones(len(positions), bool)
    log_likelihood: np.ndarray = host.at(as_numpy(model, parameters), everywhere)
    total: np.ndarray = np.asarray(log_density) + log_likelihood
    return total


def _information_root(problem: Problem, position: np.ndarray) -> np.ndarray | None:
    """Square root of minus the curvature; None if it is unknown or not negative definite."""
    if problem.curvature is None:
        return None
    try:
        return np.linalg.cholesky(-problem.curvature(position))
    except (np.linalg.LinAlgError, TypeError, ValueError):
        return None


def _at_edge(
    model: Model, position: np.ndarray, root: np.ndarray | None, scale: np.ndarray
) -> bool:
    """Whether the density is flat, or grows, towards the edge of the support."""
    far = (np.abs(position) > EDGE) & model.bounded
    if root is None:
        return bool(np.any(far))
    spread = np.sqrt(np.sum(np.linalg.inv(root) ** 2, axis=0))
    return bool(np.any(far | (spread > LOOSE * scale)))


def _std_errors(model: Model, root: np.ndarray, position: np.ndarray) -> dict[str, np.ndarray]:
    """Standard errors of the parameters, from the curvature in unconstrained space."""
    parameters, slopes = _slopes(model, position)
    errors = {}
    for name in model.names:
        slope = np.asarray(slopes[name]).reshape(-1, model.dimension)
        variance = np.sum(np.linalg.solve(root, slope.T) ** 2, axis=0)
        errors[name] = np.sqrt(variance).reshape(np.shape(parameters[name]))
    return errors


@jax.jit
def _slopes(model: Model, position: Array) -> tuple[Parameters, Any]:
    """Parameters, and their derivatives by the unconstrained coordinates."""
    return model.transform(position)[0], jax.jacfwd(lambda u: model.transform(u)[0])(position)


def _notes(optima: np.ndarray, at_edge: bool, no_errors: bool, problem: Problem) -> list[str]:
    notes = []
    agreeing = int(np.sum(optima > optima[0] - SAME_OPTIMUM))
    if agreeing < len(optima):
        notes.append(
            f"{agreeing} of {len(optima)} starts ended here, the others up to "
            f"{optima[0] - np.min(optima):.3g} nats lower: there are other optima, and more starts "
            "or steps may find a higher one"
        )
    if at_edge:
        notes.append(
            "a parameter is at the edge of its support: the density has no maximum inside, and "
            "grows or stays level towards the edge"
        )
    if problem.slope is None:
        notes.append("the model has no gradient: polished by Nelder-Mead")
    if no_errors:
        notes.append("no standard errors: the curvature is unknown, or not that of a maximum")
    return notes
