"""Adaptive Metropolis: a random walk that learns the covariance of its target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity
from weighbridge.sampling.kernels.parts.accept import standard_normal
from weighbridge.sampling.kernels.parts.dialogue import Point, step_alone
from weighbridge.sampling.kernels.parts.hastings import Hastings, MetropolisInfo, hastings
from weighbridge.sampling.kernels.parts.scale import push

# The best random walk on a normal target of known covariance has steps of 2.38 / sqrt(d) times its
# square root; Haario et al. use 2.4.
BEST_STEP = 2.4
# The chain learns again after it has grown by this share. With a smaller share a good proposal is
# found sooner, but the proposal depends more on the latest positions.
GROWTH = 0.5


class AdaptiveState(NamedTuple):
    """The position of the chain, and what it has learned.

    Attributes:
        position: the current position.
        log_density: log density of the target there.
        root: Cholesky factor of the covariance of the proposal.
        mean: mean of the positions since the last update of the covariance.
        covariance: covariance of these positions.
        num_seen: number of these positions.
        num_steps: number of all steps.
    """

    position: Array
    log_density: Array
    root: Array
    mean: Array
    covariance: Array
    num_seen: Array
    num_steps: Array


class Learning(NamedTuple):
    """A move in progress, and the state before it."""

    move: Hastings
    before: AdaptiveState
    kernel: AdaptiveMetropolis

    @property
    def wanted(self) -> Array:
        """True until the density at the proposed position is known."""
        return self.move.wanted

    def ask(self) -> Array:
        """The position proposed."""
        return self.move.ask()

    def tell(self, told: Point) -> Learning:
        """Accept or reject."""
        return self._replace(move=self.move.tell(told))

    def finish(self) -> tuple[AdaptiveState, MetropolisInfo]:
        """The new state of the chain, with updated mean and covariance."""
        point, info = self.move.finish()
        before, dimension = self.before, point.position.shape[0]
        num_seen, num_steps = before.num_seen + 1, before.num_steps + 1
        away = point.position - before.mean
        mean = before.mean + away / num_seen
        # The second deviation is from the new mean: this gives the covariance of all positions,
        # divided by their number (Welford).
        spread = jnp.outer(away, point.position - mean) - before.covariance
        covariance = before.covariance + spread / num_seen
        full = num_seen >= jnp.maximum(2 * dimension, GROWTH * (num_steps - num_seen))
        after = AdaptiveState(
            position=point.position,
            log_density=point.log_density,
            root=jax.lax.cond(
                full, self.kernel.learn, lambda _, root: root, covariance, before.root
            ),
            mean=jnp.where(full, 0.0, mean),
            covariance=jnp.where(full, 0.0, covariance),
            num_seen=jnp.where(full, 0, num_seen),
            num_steps=num_steps,
        )
        return after, info


@partial(
    register_dataclass,
    data_fields=["step_size", "scale", "share", "regularisation"],
    meta_fields=[],
)
@dataclass(frozen=True)
class AdaptiveMetropolis(Kernel):
    r"""A random walk whose proposal has the covariance of the chain so far.

    .. math:: \theta' \sim (1 - \beta) N\bigl(\theta, \tfrac{2.4^2}{d}
              (C + \epsilon S S^\top)\bigr) + \beta N\bigl(\theta, \tfrac{s^2}{d} S S^\top\bigr)

    The covariance C is updated whenever the chain has grown by half, from the steps of that half,
    for the first time after 2 d steps; until then only the fixed proposal is used. So adaptation
    vanishes, as convergence requires, a poor start is forgotten, and between two updates the chain
    is an ordinary Markov chain. Haario, Saksman & Tamminen (2001), Bernoulli 7:223-242; Roberts &
    Rosenthal (2009), J. Comp. Graph. Stat. 18:349-367.

    Args:
        step_size: the step length s of the fixed proposal.
        scale: its scale S: one number, one for each coordinate, or a (Cholesky) matrix.
        share: beta, the probability of the fixed proposal.
        regularisation: epsilon, a small multiple of S S^T that keeps the covariance from
            collapsing.

    >>> import jax, jax.numpy as jnp
    >>> kernel = AdaptiveMetropolis()
    >>> density = lambda u: -0.5 * jnp.sum(u**2)
    >>> state = jax.jit(lambda start: kernel.init(start, density))(jnp.zeros(2))
    >>> state, info = jax.jit(lambda key: kernel.step(key, state, density))(jax.random.key(0))
    >>> state.root.shape, int(state.num_steps)
    ((2, 2), 1)
    """

    step_size: float | Array = 0.1
    scale: float | Array = 1.0
    share: float | Array = 0.05
    regularisation: float | Array = 1e-6

    uses_gradient: ClassVar[bool] = False

    def init(self, position: Array, target: LogDensity) -> AdaptiveState:
        """Evaluate the target at the position; its covariance is not yet known."""
        none = jnp.zeros_like(position)
        matrix, count = jnp.zeros_like(jnp.outer(none, none)), jnp.zeros((), int)
        return AdaptiveState(position, target(position), matrix, none, matrix, count, count)

    def step(
        self, key: Array, state: AdaptiveState, target: LogDensity
    ) -> tuple[AdaptiveState, MetropolisInfo]:
        """One proposal, its accept test, and the update of the covariance."""
        return step_alone(self, key, state, target)

    def num_uniform(self, shape: tuple[int, ...]) -> int:
        """One for each coordinate, one for the accept test, one for the choice of the proposal."""
        return shape[0] + 2

    def begin(self, uniform: Array, state: AdaptiveState) -> Learning:
        """Propose a position."""
        dimension = state.position.shape[0]
        noise = standard_normal(uniform[:dimension]) / jnp.sqrt(dimension)
        fixed = self.step_size * push(self.scale, noise)
        learned = BEST_STEP * state.root @ noise
        use_fixed = (state.num_steps < 2 * dimension) | (uniform[dimension + 1] < self.share)
        proposed = state.position + jnp.where(use_fixed, fixed, learned)
        point = Point(state.position, state.log_density)
        move = hastings(point, proposed, uniform[dimension])
        return Learning(move, state, jax.tree_util.tree_map(jnp.asarray, self))

    def learn(self, covariance: Array, root: Array) -> Array:
        """The Cholesky factor of a covariance; the old one if rounding makes it undefined."""
        scale = jnp.asarray(self.scale)
        square = scale @ scale.T if scale.ndim == 2 else scale**2 * jnp.eye(len(covariance))
        found = jnp.linalg.cholesky(covariance + self.regularisation * square)
        return jnp.where(jnp.all(jnp.isfinite(found)), found, root)

    def rescale(self, variance: Array | float) -> AdaptiveMetropolis:
        """The kernel for a target whose variances are larger by this factor."""
        return replace(self, scale=self.scale * jnp.sqrt(variance))
