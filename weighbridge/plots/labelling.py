"""True values, labels and units of the parameters, as given by the user."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.tables.summaries import scalar_entries

Found = TypeVar("Found")


@dataclass(frozen=True)
class Labelling:
    """True values, labels and units, each by parameter (``"w"``) or entry (``"w[0]"``).

    A value for an entry has priority over the value for its parameter.

    Attributes:
        truths: values to mark; for a parameter, an array of its shape. NaN is not drawn.
        labels: other names; the entries of a parameter keep their index.
        units: units of measurement.

    >>> labelling = Labelling({"w": [1.0, 2.0]}, {"w": "slope", "b": "offset"}, {"w[1]": "m/s"})
    >>> known = labelling.of({"w": np.zeros((9, 2)), "b": np.zeros(9)})
    >>> known.truths
    {'w[0]': 1.0, 'w[1]': 2.0}
    >>> known.names
    {'w[0]': 'slope[0]', 'w[1]': 'slope[1] (m/s)', 'b': 'offset'}
    """

    truths: Mapping[str, Any] | None = None
    labels: Mapping[str, str] | None = None
    units: Mapping[str, str] | None = None

    def of(self, samples: Mapping[str, np.ndarray]) -> EntryLabels:
        """The labels and true values of each scalar entry of draws (draws along the first axis)."""
        groups = {name: list(scalar_entries({name: draws})) for name, draws in samples.items()}
        truths: dict[str, float] = {}
        given = _check("truths", self.truths, groups)
        for name in sorted(
            given, key=lambda name: name not in groups
        ):  # entries come last: they have priority
            shape = samples[name].shape[1:] if name in samples else ()
            truths |= zip(groups.get(name, [name]), _numbers(name, given[name], shape))
        labels = _spread("labels", self.labels, groups)
        units = _spread("units", self.units, groups)
        names = {}
        for name, entries in groups.items():
            for entry in entries:
                index = entry[len(name) :]
                own = self.labels is not None and entry in self.labels
                label = _text("labels", labels.get(entry, name)) + ("" if own else index)
                unit = f" ({_text('units', units[entry])})" if entry in units else ""
                names[entry] = label + unit
        known = {entry: value for entry, value in truths.items() if np.isfinite(value)}
        return EntryLabels(names, known)


@dataclass(frozen=True)
class EntryLabels:
    """The label of each scalar entry, and its true value if known."""

    names: dict[str, str]
    truths: dict[str, float] = field(default_factory=dict)


def check_names(what: str, given: Iterable[Any], groups: Mapping[str, Sequence[str]]) -> None:
    """Refuse names that are neither parameters nor entries of parameters."""
    known = dict.fromkeys([*groups, *(entry for group in groups.values() for entry in group)])
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise MethodError(
                f"There is no parameter {name!r}, which is in {what}; there are {list(groups)}, "
                f"and their entries, such as 'w[0]'.{hint}"
            )


def _check(
    what: str, given: Mapping[str, Found] | None, groups: Mapping[str, list[str]]
) -> Mapping[str, Found]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise MethodError(f"{what} must be a mapping by parameter name, not {given!r}.")
    check_names(what, given, groups)
    return given


def _spread(
    what: str, given: Mapping[str, Found] | None, groups: Mapping[str, list[str]]
) -> dict[str, Found]:
    """Values for entries, given for the entry or for its parameter."""
    given = _check(what, given, groups)
    found = {e: given[name] for name, entries in groups.items() if name in given for e in entries}
    return found | {name: value for name, value in given.items() if name not in groups}


def _numbers(name: str, value: Any, shape: tuple[int, ...]) -> list[float]:
    try:
        numbers = np.asarray(value, float)
    except (TypeError, ValueError):
        raise MethodError(f"truths[{name!r}] must be numbers, not {value!r}.") from None
    if numbers.shape != shape:
        raise MethodError(
            f"truths[{name!r}] has the shape {numbers.shape}, but {name!r} the shape {shape}."
        )
    return [float(number) for number in numbers.ravel()]


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise MethodError(f"{what} must be texts, not {value!r}.")
    return value
