"""Preparation of a tempered path: particles, moves, and the likelihood in a suitable form."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.random import random_key
from weighbridge.core.types import PyTree
from weighbridge.estimators.annealing.cloud import Cloud, draw_cloud
from weighbridge.estimators.annealing.host_step import host_step
from weighbridge.estimators.annealing.labels import Labels
from weighbridge.estimators.annealing.loop import Annealed
from weighbridge.estimators.annealing.memory_needed import check_memory, needs_matrix
from weighbridge.estimators.annealing.moves.kernels import AdaptiveHMC
from weighbridge.estimators.annealing.moves.mover import Mover
from weighbridge.estimators.annealing.moves.walks import (
    AdaptiveWalk,
    choose_mover,
    needs_gradient,
    require_walkers,
)
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import StepInfo
from weighbridge.estimators.annealing.step import anneal_step
from weighbridge.estimators.tempering.guiding import GuidedLikelihood
from weighbridge.models.model import Model
from weighbridge.models.targets.all_rows import likelihood_term
from weighbridge.models.targets.host import HostLikelihood, host_likelihood
from weighbridge.models.targets.term import Term
from weighbridge.models.targets.unbounded import UnboundedError

if TYPE_CHECKING:
    from weighbridge.estimators.tempering.tempering import Tempering

# Particles of each island that are kept at every power, as starts of climbs.
HOT_PARTICLES = 2


class Prepared(NamedTuple):
    """Everything that a tempered path needs.

    Attributes:
        model: the model.
        seed: of the run.
        islands: numbers of the islands.
        term: the likelihood of all the data.
        num_observations: number of rows, with repeated rows counted.
        host: the likelihood if it runs in plain Python, else None.
        cloud: draws from the prior.
        mover: moves the particles.
        labels: one labelling of components that may be permuted.
        guided: the likelihood; a few rows guide the trajectories where that saves time.
        take_step: one step of the annealing loop, in the form that suits the likelihood.
        hot: a few particles of every power so far.
    """

    model: Model
    seed: int
    islands: np.ndarray
    term: Term
    num_observations: int
    host: HostLikelihood | None
    cloud: Cloud
    mover: Mover
    labels: Labels
    guided: GuidedLikelihood
    take_step: Callable[..., Any]
    hot: list[np.ndarray]

    @property
    def first_island(self) -> int:
        """Number of the first island."""
        return int(self.islands[0])

    def path(self) -> Path:
        """The path of densities, with the current walls and guide."""
        return self.labels.within(self.guided.path())

    def path_beyond(self) -> Path:
        """The path for the bridge and the second look after its end."""
        return self.labels.within(self.guided.path_beyond())

    def follow(self, cloud: Cloud, step: StepInfo) -> Cloud:
        """Update the labelling and the guide after a step."""
        cloud = self.labels.follow(cloud, step)
        self.guided.follow(cloud, step)
        some = np.asarray(cloud.position)[:, :HOT_PARTICLES]
        self.hot.append(some.reshape(-1, some.shape[-1]).copy())
        return cloud


def prepare(
    method: Tempering,
    model: Model,
    values: PyTree | None,
    weight: np.ndarray | None,
    seed: int,
    first_island: int,
) -> Prepared:
    """Draw particles from the prior, and choose the mover and the form of the likelihood."""
    term, count = likelihood_term(model, values, weight)
    islands = np.arange(first_island, first_island + method.num_islands)
    key = random_key(seed)
    cloud = draw_cloud(model, key, islands, method.num_particles)
    host = host_likelihood(model, values, cloud.position)
    mover = choose_mover(
        method.moves,
        model.dimension,
        count,
        on_host=host is not None,
        default=method.default_moves,
    )
    require_walkers(mover, method.num_particles // method.chain_length, model.dimension)
    size = (model.dimension, method.num_islands, method.num_particles)
    num_particles = method.num_islands * method.num_particles
    check_memory(*size, dense=needs_matrix(mover, model.dimension, num_particles))
    # Single moves of an ensemble, or of a likelihood in plain Python, cannot be rejected by walls.
    by_each_other = isinstance(mover, AdaptiveWalk) and mover.kernel.ensemble
    labels = Labels(model, possible=host is None and not by_each_other)
    by_gradient = host is None and isinstance(mover, AdaptiveHMC)
    weighed = term if host is None else cast(Term, host)
    guided = GuidedLikelihood(model, weighed, seed, first_island, possible=by_gradient)
    step: Callable[..., Any] = anneal_step if host is None else host_step
    take_step = partial(step, chain_length=method.chain_length)
    return Prepared(
        model, seed, islands, term, count, host, cloud, mover, labels, guided, take_step, []
    )


@contextlib.contextmanager
def explaining(prepared: Prepared) -> Iterator[None]:
    """A block that runs the path; its errors tell what is wrong with the model or the moves."""
    try:
        yield
    except UnboundedError as error:
        raise error.in_term(prepared.model, prepared.term) from None
    except Exception as error:
        if prepared.host is None:
            _explain(prepared.guided.path(), prepared.mover, error)
        raise


def _explain(path: Path, mover: Mover, error: Exception) -> None:
    """Raise a clearer error if JAX cannot run a callback, or cannot trace the gradient."""
    if "CpuCallback" in str(error) and "dtype" in str(error):
        raise ModelError(
            "The log-likelihood calls back to Python from within JAX (pure_callback) in double "
            "precision, which JAX allows only if jax_enable_x64 is set globally. Declare its "
            "result as float32, or give the Python function itself as total_log_likelihood: it is "
            "then called as plain Python."
        ) from error
    if not needs_gradient(mover):
        return
    abstract: Any = jax.ShapeDtypeStruct
    target, position = path.target(jnp.ones(())), abstract((path.model.dimension,), np.float64)
    try:
        jax.eval_shape(target, position)
    except Exception:
        return
    try:
        jax.eval_shape(jax.grad(target), position)
    except Exception:
        raise MethodError(
            "The log-likelihood of this model has no gradient that JAX can trace "
            f"({type(error).__name__}), and these moves need one: use moves without gradients, "
            'moves="random_walk", "slice" or "stretch".'
        ) from error


def check_outcome(outcome: Annealed) -> None:
    """Refuse a path with NaN at the start, or with -inf for all particles at the end."""
    first = outcome.steps[0]
    if int(first.num_undefined.sum()):
        raise ModelError(
            f"The log-likelihood is not a number (NaN) for {int(first.num_undefined.sum())} prior "
            "draws. Check it for log(0), 0/0 or overflow; it must return -inf where the density is "
            "zero."
        )
    if not np.isfinite(outcome.steps[-1].log_evidence).any():
        raise ModelError(
            "The log-likelihood of these data is -inf for every prior draw: no parameter value "
            "that was tried can have produced them. Check the support of the likelihood and the "
            "scale of the data, or use more particles."
        )
