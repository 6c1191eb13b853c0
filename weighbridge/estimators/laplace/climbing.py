"""Many climbs to the top of a log density at once: L-BFGS as a state machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.compilation import EitherProgram
from weighbridge.core.types import Array
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.laplace.charts import Chart

# Steps and changes of gradient that each climb remembers.
MEMORY = 10
# Evaluations in one call of the program, and in all; between calls a run can be interrupted.
EVALUATIONS_AT_ONCE, MOST_EVALUATIONS = 50, 1500
# A climb ends if it expects less than this from its next step (nats).
NO_GAIN = 1e-9
# Share of the expected gain that a step must bring, and how often it is shortened before that.
ARMIJO, MOST_CUTS = 1e-4, 40


class Climb(NamedTuple):
    """One climb.

    Attributes:
        position: the highest point so far.
        height: log density there.
        score: its gradient.
        steps: the last steps, memory x coordinates; zero where there is none.
        changes: the changes of minus the gradient over them.
        direction: of the next step.
        length: the next step is this times the direction.
        reach: length of the last step that was taken, for the first step without a memory.
        cuts: how often the next step was shortened.
        is_done: whether the climb has ended.
    """

    position: Array
    height: Array
    score: Array
    steps: Array
    changes: Array
    direction: Array
    length: Array
    reach: Array
    cuts: Array
    is_done: Array


def log_density(chart: Chart, path: Path, position: Array) -> Array:
    """Log density of the chart's coordinates, at an unconstrained position."""
    height: Array = path.target(jnp.ones(()))(position)
    return height - chart.log_volume(path.model, position)


def climb(
    chart: Chart,
    path: Path,
    starts: np.ndarray,
    scale: np.ndarray,
    report: Callable[[float], None] | None = None,
) -> tuple[np.ndarray, int]:
    r"""The ends of climbs from several positions, and the number of evaluations.

    L-BFGS (Nocedal 1980, Mathematics of Computation 35:773-782) with a step that is shortened until
    it gains enough. All climbs advance together in one program, by one evaluation of the density
    and its gradient at a time, so no climb waits for the line search of another.

    Args:
        chart: the coordinates whose density is climbed.
        path: ends at the posterior.
        starts: climbs x coordinates.
        scale: units of the coordinates, such as the spread of the prior.
        report: called with the share of climbs that have ended.
    """
    begin, go_on = (program.for_numbers(path.num_numbers) for program in (_BEGIN, _GO_ON))
    state = begin(chart, path, starts, scale)
    evaluations = 1
    while evaluations < MOST_EVALUATIONS:
        interrupts.check()
        done = np.asarray(state.is_done)
        if report is not None:
            report(float(done.mean()))
        if done.all():
            break
        state = go_on(chart, path, state, scale)
        evaluations += EVALUATIONS_AT_ONCE
    return np.asarray(state.position) * scale, evaluations * len(starts)


def _measure(chart: Chart, path: Path, scale: Array, position: Array) -> tuple[Array, Array]:
    value, slope = jax.value_and_grad(partial(log_density, chart, path))(position * scale)
    return value, slope * scale


def _begin(chart: Chart, path: Path, starts: Array, scale: Array) -> Climb:
    def one(start: Array) -> Climb:
        position = start / scale
        height, score = _measure(chart, path, scale, position)
        nothing = jnp.zeros((MEMORY, position.size))
        reach, cuts = jnp.ones(()), jnp.zeros((), int)
        is_done = ~(jnp.isfinite(height) & jnp.isfinite(score).all())
        length = reach / jnp.maximum(jnp.linalg.norm(score), 1e-30)
        return Climb(position, height, score, nothing, nothing, score, length, reach, cuts, is_done)

    found: Climb = jax.vmap(one)(starts)
    return found


def _go_on(chart: Chart, path: Path, climbs: Climb, scale: Array) -> Climb:
    measure = jax.vmap(partial(_measure, chart, path, scale))

    def advance(carry: tuple[Array, Climb]) -> tuple[Array, Climb]:
        number, climbs = carry
        trial = climbs.position + climbs.length[:, None] * climbs.direction
        height, score = measure(trial)
        return number + 1, jax.vmap(_decide)(climbs, trial, height, score)

    def unfinished(carry: tuple[Array, Climb]) -> Array:
        return (carry[0] < EVALUATIONS_AT_ONCE) & ~carry[1].is_done.all()

    found: Climb = jax.lax.while_loop(unfinished, advance, (jnp.zeros((), int), climbs))[1]
    return found


def _decide(old: Climb, trial: Array, height: Array, score: Array) -> Climb:
    """The climb after the density at the next point is known: go there, or try a shorter step."""
    promise = old.length * (old.direction @ old.score)
    defined = jnp.isfinite(height) & jnp.isfinite(score).all()
    gained = defined & (height >= old.height + ARMIJO * promise)
    taken = _taken(old, trial, height, score)
    shorter = _shorter(old, promise, height)
    chosen: Climb = jax.tree_util.tree_map(
        lambda new, other, same: jnp.where(old.is_done, same, jnp.where(gained, new, other)),
        taken,
        shorter,
        old,
    )
    return chosen


def _taken(old: Climb, trial: Array, height: Array, score: Array) -> Climb:
    step, change = trial - old.position, old.score - score
    size = jnp.linalg.norm(step)
    # Only steps along which the density is concave are remembered.
    bends = step @ change > 1e-10 * size * jnp.linalg.norm(change)
    steps, changes = (
        jnp.where(bends, jnp.roll(kept, 1, axis=0).at[0].set(new), kept)
        for kept, new in ((old.steps, step), (old.changes, change))
    )
    direction, length = _next(steps, changes, score, 2.0 * size)
    is_done = 0.5 * (direction @ score) * jnp.minimum(length, 1.0) < NO_GAIN
    cuts = jnp.zeros_like(old.cuts)
    return Climb(trial, height, score, steps, changes, direction, length, size, cuts, is_done)


def _next(steps: Array, changes: Array, score: Array, reach: Array) -> tuple[Array, Array]:
    """Direction and length of the next step: L-BFGS, or the gradient if nothing is remembered."""
    products = jnp.sum(steps * changes, axis=1)
    known = products > 0
    weight = jnp.where(known, 1.0 / jnp.where(known, products, 1.0), 0.0)
    shares = []
    direction = score
    for k in range(MEMORY):
        share = weight[k] * (steps[k] @ direction)
        direction = direction - share * changes[k]
        shares.append(share)
    square = changes[0] @ changes[0]
    direction = direction * jnp.where(known[0], products[0] / jnp.maximum(square, 1e-300), 1.0)
    for k in reversed(range(MEMORY)):
        back = weight[k] * (changes[k] @ direction)
        direction = direction + (shares[k] - back) * steps[k]
    usable = known[0] & (direction @ score > 0) & jnp.isfinite(direction).all()
    steepest = jnp.minimum(reach, 1e3) / jnp.maximum(jnp.linalg.norm(score), 1e-30)
    return jnp.where(usable, direction, score), jnp.where(usable, 1.0, steepest)


def _shorter(old: Climb, promise: Array, height: Array) -> Climb:
    """A step at the top of the parabola through both heights, or a tenth of it."""
    fall = old.height + promise - height
    factor = jnp.where(fall > 0, 0.5 * promise / jnp.where(fall > 0, fall, 1.0), 0.5)
    factor = jnp.clip(jnp.where(jnp.isfinite(factor), factor, 0.1), 0.1, 0.5)
    is_done = old.cuts >= MOST_CUTS
    return old._replace(length=old.length * factor, cuts=old.cuts + 1, is_done=is_done)


_BEGIN: EitherProgram[Any] = EitherProgram(_begin, static_argnums=0)
_GO_ON: EitherProgram[Any] = EitherProgram(_go_on, static_argnums=0)
