"""The choice of scalar entries to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.tables.summaries import scalar_entries
from weighbridge.plots.labelling import check_names

MAX_COORDINATES = 8


def choose_coordinates(
    samples: Mapping[str, np.ndarray], names: Sequence[str] | None
) -> tuple[dict[str, np.ndarray], int]:
    """The scalar entries to draw, and the number of entries to choose from.

    If there are too many, the first entry of every parameter is taken, then the second, and so on.

    >>> samples = {"w": np.zeros((5, 20)), "b": np.zeros(5)}
    >>> chosen, count = choose_coordinates(samples, None)
    >>> list(chosen), count
    (['w[0]', 'w[1]', 'w[2]', 'w[3]', 'w[4]', 'w[5]', 'w[6]', 'b'], 21)
    >>> list(choose_coordinates(samples, ["w[7]", "b"])[0])
    ['w[7]', 'b']
    """
    entries = scalar_entries(samples)
    named = [names] if isinstance(names, str) else names
    asked = list(samples) if named is None else list(named)
    groups = {name: list(scalar_entries({name: draws})) for name, draws in samples.items()}
    check_names("names", asked, groups)
    wanted = {name: groups.get(name, [name]) for name in asked}
    labels = list(dict.fromkeys(label for group in wanted.values() for label in group))
    if not labels:
        raise MethodError("There is nothing to draw: no parameter was named, or none has draws.")
    turns = {label: place for group in wanted.values() for place, label in enumerate(group)}
    kept = set(sorted(labels, key=turns.__getitem__)[:MAX_COORDINATES])
    return {label: entries[label] for label in labels if label in kept}, len(labels)
