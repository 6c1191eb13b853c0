"""Moves by name, with their settings."""

from __future__ import annotations

from typing import Any, NamedTuple

from weighbridge.core.errors import MethodError
from weighbridge.estimators.nested.moves.galilean import GalileanWalk
from weighbridge.estimators.nested.moves.random_walk import RandomWalk
from weighbridge.estimators.nested.moves.sghmc import ReflectedSGHMC
from weighbridge.estimators.nested.moves.slice import SliceWalk
from weighbridge.estimators.nested.moves.walk import Beginning
from weighbridge.sampling.kernels.sghmc import SGHMC

# What begins a walk; None for independent draws from the prior, which need no walk.
WALKS: dict[str, Any] = {
    "slice": Beginning(SliceWalk.begin),
    "random_walk": Beginning(RandomWalk.begin),
    "galilean": Beginning(GalileanWalk.begin, uses_gradient=True),
    "sghmc": ReflectedSGHMC(),
    "prior": None,
}
# Steps of a walk of SGHMC in the published experiments.
PUBLISHED_STEPS = 20


class Move(NamedTuple):
    """How new points are made.

    Attributes:
        name: in ``WALKS``.
        walk: what begins a walk.
        num_moves: moves of a walk; None: tuned.
    """

    name: str
    walk: Any
    num_moves: int | None

    @property
    def uses_gradient(self) -> bool:
        """Whether the move needs the gradient of the log-likelihood."""
        return self.walk is not None and bool(self.walk.uses_gradient)


def find_move(moves: str | SGHMC, num_moves: int | None) -> Move:
    """The move of a name, or of the settings of SGHMC.

    Args:
        moves: a name, or ``wb.SGHMC`` with a step size and a friction.
        num_moves: moves of a walk; None: tuned, or for SGHMC 20 as published.

    >>> find_move("sghmc", None).num_moves
    20
    >>> find_move(SGHMC(step_size=1e-4, friction=0.2), 50).walk
    ReflectedSGHMC(step_size=0.0001, friction=0.2)
    """
    if isinstance(moves, SGHMC):
        walk = _reflected(moves)
        return Move("sghmc", walk, num_moves or PUBLISHED_STEPS)
    if not isinstance(moves, str) or moves not in WALKS:
        raise MethodError(f"moves is one of {list(WALKS)} or a wb.SGHMC, not {moves!r}.")
    if moves == "prior" and num_moves is not None:
        raise MethodError('moves="prior" draws from the prior: leave out num_moves.')
    return Move(
        moves, WALKS[moves], PUBLISHED_STEPS if moves == "sghmc" and not num_moves else num_moves
    )


def _reflected(kernel: SGHMC) -> ReflectedSGHMC:
    numbers = kernel.step_size, kernel.friction
    if not all(isinstance(number, int | float) for number in numbers):
        raise MethodError("For nested sampling, step_size and friction of wb.SGHMC are numbers.")
    step_size, friction = map(float, numbers)  # type: ignore[arg-type]  # numbers, as checked
    if not step_size > 0 or not 0 < friction <= 1:
        raise MethodError(
            "For nested sampling, wb.SGHMC needs step_size > 0 and friction in (0, 1], not "
            f"{step_size} and {friction}."
        )
    if kernel.gradient_noise != 0 or kernel.resample_every != 0 or kernel.estimate_noise:
        raise MethodError(
            "For nested sampling, wb.SGHMC has only step_size and friction: the gradient of the "
            "prior has no noise (leave out gradient_noise, estimate_noise and resample_every)."
        )
    return ReflectedSGHMC(step_size, friction)
