"""A sample of items that arrive one by one, with chances in proportion to their weights."""

from __future__ import annotations

import bisect
import math

import numpy as np

from weighbridge.core.errors import DataError


class WeightedReservoir:
    r"""A sample of fixed size of weighted items, each item included with a chance that is known.

    .. math:: \pi_i = \min(1, w_i / \tau), \qquad \sum_i \min(1, w_i / \tau) = n

    Items whose share of the total weight is above 1/n are certain to be in the sample. When an
    item comes, tau is raised until the sum of the chances of the n + 1 candidates is n again. Then
    one candidate is dropped, with the chance by which its own was lowered. A sampled item stands
    for the weight ``max(w_i, tau)``; sums with these weights are unbiased, and their total is
    exact.

    Chao (1982), A general purpose unequal probability sampling plan, Biometrika 69:653-656.

    Args:
        size: number of items in the sample, n.

    >>> reservoir = WeightedReservoir(2)
    >>> for item, weight in enumerate([1.0, 1.0, 8.0, 0.0]):
    ...     reservoir.add(item, weight, uniform=0.3)
    >>> reservoir.items().tolist(), reservoir.weights().tolist()
    ([2, 1], [8.0, 2.0])
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise DataError(f"A reservoir holds at least 1 item, not {size}.")
        self.size = size
        self.threshold = 0.0
        # Certain items with their weights, the lightest first; and the others, with equal weights.
        self._certain: list[tuple[float, int]] = []
        self._drawn: list[int] = []

    def add(self, item: int, weight: float, uniform: float) -> None:
        """Offer the next item; an item of weight 0 is never sampled.

        Args:
            item: its number.
            weight: in any unit, the same for all items.
            uniform: a random number in [0, 1).
        """
        if not 0 <= weight < math.inf:
            raise DataError(f"The weight of a sampled item must be finite and >= 0, not {weight}.")
        if weight == 0:
            return
        bisect.insort(self._certain, (weight, item))
        if len(self._certain) + len(self._drawn) <= self.size:
            return
        # Raise the threshold: the lightest certain items may no longer be certain.
        before, drawn = self.threshold, len(self._drawn)
        total, light = drawn * before, 0
        while drawn + light < 2 or self._certain_at(light) * (drawn + light - 1) < total:
            total += self._certain[light][0]
            light += 1
        self.threshold = total / (drawn + light - 1)
        lowered, self._certain = self._certain[:light], self._certain[light:]
        self._drop(uniform, lowered, before)

    def _certain_at(self, place: int) -> float:
        """Weight of a certain item, from the lightest on; infinite after the last."""
        return self._certain[place][0] if place < len(self._certain) else math.inf

    def _drop(self, uniform: float, lowered: list[tuple[float, int]], before: float) -> None:
        """Drop one of the items that are no longer certain, or one of those drawn before."""
        passed = 0.0
        for place, (weight, _) in enumerate(lowered):
            passed += 1.0 - weight / self.threshold
            if uniform < passed:
                del lowered[place]
                break
        else:
            # The rest of the unit interval belongs in equal parts to those drawn before.
            each = 1.0 - before / self.threshold
            if self._drawn and each > 0:
                del self._drawn[min(int((uniform - passed) / each), len(self._drawn) - 1)]
            else:  # by rounding only
                del lowered[-1]
        self._drawn += [item for _, item in lowered]

    def items(self) -> np.ndarray:
        """The items of the sample."""
        certain = [item for _, item in reversed(self._certain)]
        return np.array([*certain, *self._drawn], int)

    def weights(self) -> np.ndarray:
        """The weight that each item of the sample stands for; their sum is that of all items."""
        certain = [weight for weight, _ in reversed(self._certain)]
        return np.array([*certain, *[self.threshold] * len(self._drawn)])


def sample_weighted(
    generator: np.random.Generator, weights: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """A sample of weighted items, and the weight that each of them stands for.

    Args:
        generator: random numbers, one for each item.
        weights: of the items, in the order in which they came.
        size: number of items in the sample; fewer if fewer have a positive weight.

    >>> items, stand_for = sample_weighted(np.random.default_rng(0), np.array([1.0, 5.0, 2.0]), 2)
    >>> items.tolist(), stand_for.tolist()
    ([1, 2], [5.0, 3.0])
    """
    reservoir = WeightedReservoir(size)
    for item, uniform in enumerate(generator.random(len(weights))):
        reservoir.add(item, float(weights[item]), float(uniform))
    return reservoir.items(), reservoir.weights()
