"""What a user chooses of a warm-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weighbridge.core.errors import MethodError
from weighbridge.core.pickling import travels


@travels()
@dataclass(frozen=True)
class Warmup:
    """The settings of a warm-up.

    Args:
        metric: "diagonal", "dense", or "unit" to keep the kernel's own scale.
        target_acceptance: target for tuning the step size; by default the kernel's own.

    >>> Warmup(metric="dense").metric
    'dense'
    """

    metric: Literal["diagonal", "dense", "unit"] = "diagonal"
    target_acceptance: float | None = None

    def __post_init__(self) -> None:
        if self.metric not in ("diagonal", "dense", "unit"):
            raise MethodError(f'metric must be "diagonal", "dense" or "unit", not {self.metric!r}.')
        wanted = self.target_acceptance
        if wanted is not None and not 0 < wanted < 1:
            raise MethodError(f"target_acceptance must lie between 0 and 1, not {wanted!r}.")
