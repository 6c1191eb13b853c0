"""Walkers that draw new points above a contour: in one compiled program, or on the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.compilation import jit, jit_for_speed
from weighbridge.core.types import Array
from weighbridge.estimators.nested.moves.walk import Contour, ContourWalk, Place, Script, Told
from weighbridge.models.exchangeable import Walls
from weighbridge.models.model import Model
from weighbridge.models.targets.host import HostLikelihood, as_numpy
from weighbridge.models.targets.term import Term
from weighbridge.models.targets.unbounded import UnboundedError

# Positions evaluated together before the first step.
BLOCK = 512
# Positions at which the prior alone is evaluated together.
PRIOR_BLOCK = 1024


class Walked(NamedTuple):
    """The end of a walk.

    Attributes:
        place: where the walkers are.
        num_accepted: moves of each walker that changed its position.
        num_steps: evaluations of each walker, waiting included.
        num_evaluations: evaluations of all walkers while they moved.
        num_undefined: evaluations at which the log-likelihood was NaN.
    """

    place: Place
    num_accepted: np.ndarray
    num_steps: int
    num_evaluations: int
    num_undefined: int


@dataclass
class Density:
    """The prior and the likelihood of a model, evaluated for many positions at a time.

    Attributes:
        model: the model.
        term: its likelihood on the data.
        host: the likelihood if it runs in plain Python, else None.
        for_speed: whether programs are compiled to run fast, not to compile fast.
        walls: where walkers must stay besides; None without exchangeable components.
    """

    model: Model
    term: Term
    host: HostLikelihood | None
    for_speed: bool = False
    walls: Walls | None = None
    num_calls: int = field(default=0)

    def at(self, position: np.ndarray) -> Told:
        """Log prior and log-likelihood, in blocks of a fixed size: other numbers compile nothing.

        Args:
            position: points x coordinates.
        """
        pieces = []
        for start in range(0, len(position), BLOCK):
            piece = position[start : start + BLOCK]
            padded = np.concatenate([piece, np.repeat(piece[-1:], BLOCK - len(piece), axis=0)])
            told = self._block(padded, np.arange(BLOCK) < len(piece))
            pieces.append(tuple(leaf[: len(piece)] for leaf in told))
        self.num_calls += len(position)
        log_prior, log_likelihood = (np.concatenate(leaves) for leaves in zip(*pieces))
        refuse_infinite(position, log_likelihood)
        return Told(log_prior, log_likelihood)

    def log_prior(self, position: np.ndarray) -> np.ndarray:
        """Log prior alone, which is not counted as an evaluation; in blocks of a fixed size."""
        count = len(position)
        rest = np.repeat(position[-1:], -count % PRIOR_BLOCK, axis=0)
        blocks = np.concatenate([position, rest]).reshape(-1, PRIOR_BLOCK, position.shape[1])
        found = [np.asarray(_log_prior(self.model, block)) for block in blocks]
        return np.concatenate(found)[:count]

    def _block(self, position: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.host is None:
            told = _densities(self.model, self.term, position)
            return np.asarray(told.log_prior), np.asarray(told.log_likelihood)
        parameters, log_prior = _parameters(self.model, position)
        found = np.asarray(log_prior)
        wanted = wanted & (found > -np.inf)
        return found, self.host.at(as_numpy(self.model, parameters), wanted)

    def walk(
        self,
        kind: Any,
        place: Place,
        contour: Contour,
        script: Script,
        generator: np.random.Generator,
    ) -> Walked:
        """All moves of the script, for every walker.

        Args:
            kind: what begins the walk.
            place: where the walkers start, above the contour.
            contour: one for each walker.
            script: directions and numbers of the moves.
            generator: random numbers of the steps.
        """
        if self.host is not None:
            found = self._walk_on_host(kind, place, contour, script, generator)
        else:
            program = _fast_walk if self.for_speed else _walk
            words = generator.integers(0, 2**32, 2, np.uint32)
            walk, steps, evaluations, undefined = program(
                kind, self.model, self.term, self.walls, place, contour, script, words
            )
            ended = Place(*map(np.asarray, walk.place))
            found = Walked(
                ended,
                np.asarray(walk.num_accepted),
                int(steps),
                int(evaluations),
                int(undefined),
            )
        refuse_infinite(found.place.position, found.place.log_likelihood)
        self.num_calls += found.num_evaluations
        return found

    def _walk_on_host(
        self,
        kind: Any,
        place: Place,
        contour: Contour,
        script: Script,
        generator: np.random.Generator,
    ) -> Walked:
        assert self.host is not None
        walk: ContourWalk = kind.begin(place, contour, script)
        steps = evaluations = undefined = 0
        with np.errstate(divide="ignore", invalid="ignore"):
            while (moving := walk.num_done < script.num_moves).any():
                interrupts.check()
                asked = walk.ask(script)
                parameters, log_prior = _parameters(self.model, asked)
                prior = np.asarray(log_prior)
                if self.walls is not None:
                    allowed = np.asarray(_allowed(self.walls, self.model, asked))
                    prior = np.where(allowed, prior, -np.inf)
                # Where the prior is zero the likelihood is not needed.
                wanted = moving & (prior > -np.inf)
                level = self.host.at(as_numpy(self.model, parameters), wanted)
                walk = walk.tell(script, Told(prior, level), generator.random(len(prior)))
                steps += 1
                evaluations += int(wanted.sum())
                undefined += int(np.isnan(level).sum())
        return Walked(walk.place, walk.num_accepted, steps, evaluations, undefined)


def refuse_infinite(position: np.ndarray, log_likelihood: np.ndarray) -> None:
    """Raise an error for a log-likelihood of +inf."""
    if np.any(log_likelihood == np.inf):
        raise UnboundedError(position[log_likelihood == np.inf])


def _walk_loop(
    kind: Any,
    model: Model,
    term: Term,
    walls: Walls | None,
    place: Place,
    contour: Contour,
    script: Script,
    words: Array,
) -> tuple[Any, Array, Array, Array]:
    """Moves until every walker has made all of its moves."""
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    tell_at = _told_with_gradients if kind.uses_gradient else _told

    def step(carry: tuple[Any, Array, Array, Array]) -> tuple[Any, Array, Array, Array]:
        walk, steps, evaluations, undefined = carry
        uniform = jax.random.uniform(jax.random.fold_in(key, steps), walk.num_done.shape)
        told = jax.vmap(lambda u: tell_at(model, term, walls, u))(walk.ask(script))
        moving = walk.num_done < script.num_moves
        evaluations = evaluations + jnp.sum(moving)
        undefined = undefined + jnp.sum(moving & jnp.isnan(told.log_likelihood))
        return walk.tell(script, told, uniform), steps + 1, evaluations, undefined

    none = jnp.zeros((), jnp.int64)
    place, contour = Place(*map(jnp.asarray, place)), Contour(*map(jnp.asarray, contour))
    script = jax.tree.map(jnp.asarray, script)
    return jax.lax.while_loop(
        lambda carry: jnp.any(carry[0].num_done < script.num_moves),
        step,
        (kind.begin(place, contour, script), none, none, none),
    )


_walk = jit(_walk_loop, static_argnums=0)
_fast_walk = jit_for_speed(_walk_loop, static_argnums=0)


def _told(model: Model, term: Term, walls: Walls | None, position: Array) -> Told:
    parameters, log_prior = model.transform(position)
    if walls is not None:
        allowed = walls.allow(model, jax.lax.stop_gradient(position))
        log_prior = jnp.where(allowed, log_prior, -jnp.inf)
    return Told(log_prior, term(model, position, parameters))


def _told_with_gradients(model: Model, term: Term, walls: Walls | None, position: Array) -> Told:
    told, back = jax.vjp(lambda u: _told(model, term, walls, u)[:2], position)
    one, none = jnp.ones(()), jnp.zeros(())
    return Told(*told, *back((one, none)), *back((none, one)))


@jit
def _densities(model: Model, term: Term, position: Array) -> Told:
    return jax.vmap(lambda u: _told(model, term, None, u))(position)


@jit
def _parameters(model: Model, position: Array) -> tuple[Any, Array]:
    return jax.vmap(model.transform)(position)


@jit
def _log_prior(model: Model, position: Array) -> Array:
    return jax.vmap(lambda u: model.transform(u)[1])(position)


@jit
def _allowed(walls: Walls, model: Model, position: Array) -> Array:
    return jax.vmap(lambda u: walls.allow(model, u))(position)
