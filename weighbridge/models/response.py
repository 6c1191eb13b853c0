"""Whether a likelihood is of a real value, or of one of several classes.

The first is a density, which has a unit (it halves when values are written twice as large). The
second is a probability, which has no unit. Their ratio is not a meaningful Bayes factor.
"""

from __future__ import annotations

from collections.abc import Mapping

from weighbridge.core.errors import MethodError
from weighbridge.models.model import Model


def check_responses(models: Mapping[str, Model]) -> None:
    """Refuse to compare densities with probabilities; models without a response are not checked.

    >>> import weighbridge as wb
    >>> check_responses({"a": wb.zoo.linear.model(2), "b": wb.zoo.linear.model(3)})
    """
    first: dict[str, str] = {}
    for name, model in models.items():
        if model.response is not None:
            first.setdefault(model.response, name)
    if len(first) > 1:
        raise MethodError(
            f"{first['density']!r} gives a density of real values and {first['probability']!r} the "
            "probability of a class: their evidences have different units, and cannot be compared. "
            "Compare models of one kind: those of classes (softmax) where the values are labels, "
            "those of densities (linear) where they are measurements."
        )
