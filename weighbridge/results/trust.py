"""What a stated error may say: nothing beside a grave flag, and a flag beside a large one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from weighbridge.core.status import Status, is_grave
from weighbridge.core.thresholds import MAX_USEFUL_ERROR, MIN_LARGE_ERROR
from weighbridge.models.parameters_read import CONSTANT

# The diagnostic with the error that a method claims, but that must not be used.
UNTRUSTED = "untrusted_std_error"
# Flags of the size of the error itself.
OF_THE_ERROR = (Status.HUGE_ERROR, Status.LARGE_ERROR)
# Methods whose mean Z is right on average, so that Z is hardly ever overstated: by Markov's
# inequality by a nats or more with a probability of exp(-a) at most.
RARELY_TOO_HIGH = ("smc", "ais", "prior_sampling", "ibis", "sgais", "importance")
# Grave flags after which the evidence of any method is a lower bound.
TOO_LOW = (Status.FLAT, Status.STOPPED_EARLY)
# Flags of a bias of either sign, by moves or batches, or of an error that may have either sign.
EITHER_SIGN = (Status.HEATED, Status.UNADJUSTED, Status.NOISY, Status.HUGE_ERROR)

AT_LEAST, NOT_TRUSTED = "at least", "not to be trusted"


class Stated(NamedTuple):
    """The error that is stated, with flags and diagnostics that fit it."""

    std_error: float
    flags: tuple[Status, ...]
    diagnostics: dict[str, Any]


def stated(std_error: float, flags: Sequence[Status], diagnostics: Mapping[str, Any]) -> Stated:
    """Withhold the error where a flag is grave, and flag it where it is large.

    Args:
        std_error: the error that the method claims; NaN if it has none, or if it was withheld.
        flags: all other reasons for caution.
        diagnostics: they keep an error that is withheld, as ``untrusted_std_error``. With
            ``constant_likelihood`` a flat likelihood is no reason for caution.

    >>> stated(0.1, [Status.STALLED], {})
    Stated(std_error=nan, flags=(...STALLED...), diagnostics={'untrusted_std_error': 0.1})
    >>> stated(0.1, [Status.LOW_ESS], {}).std_error, stated(3.0, [], {}).flags[0].name
    (0.1, 'LARGE_ERROR')
    """
    claimed, rest = claimed_error(std_error, diagnostics), dict(diagnostics)
    rest.pop(UNTRUSTED, None)
    dropped = (*OF_THE_ERROR, Status.FLAT) if rest.get(CONSTANT) else OF_THE_ERROR
    others = tuple(flag for flag in flags if flag not in dropped)
    # Behind the flags that may say why it is so large.
    if claimed > MAX_USEFUL_ERROR:
        others = (*others, Status.HUGE_ERROR)
    elif claimed >= MIN_LARGE_ERROR:
        others = (*others, Status.LARGE_ERROR)
    if not any(map(is_grave, others)):
        return Stated(claimed, others, rest)
    if not math.isnan(claimed):
        rest[UNTRUSTED] = claimed
    return Stated(math.nan, others, rest)


def claimed_error(std_error: float, diagnostics: Mapping[str, Any]) -> float:
    """The error that a method claims, even if a grave flag took it away.

    >>> claimed_error(0.1, {}), claimed_error(math.nan, {"untrusted_std_error": 0.3})
    (0.1, 0.3)
    """
    return float(diagnostics.get(UNTRUSTED, math.nan) if math.isnan(std_error) else std_error)


def is_decided(leader: str, trust: Mapping[str, str]) -> bool:
    """Whether the model with the largest log evidence is the best, despite grave flags.

    It is if the other models have none, and if its own log evidence is at least a lower bound.

    Args:
        leader: this model.
        trust: what grave flags make of each model's evidence; see ``trust``.

    >>> is_decided("a", {"a": "at least", "b": ""}), is_decided("a", {"a": "", "b": "at least"})
    (True, False)
    """
    others = any(word for name, word in trust.items() if name != leader)
    return not others and trust.get(leader, "") in ("", AT_LEAST)


def trust(method: str, flags: Sequence[Status]) -> str:
    """What a log evidence with a grave flag is, in words; empty if there is no such flag.

    A path method overstates Z rarely, so its answer is a lower bound; the same holds for any
    method where mass is missing for certain.

    >>> trust("smc", [Status.ISLANDS_DISAGREE]), trust("nested", [Status.WALKERS_STUCK])
    ('at least', 'not to be trusted')
    >>> trust("nested", [Status.STOPPED_EARLY]), trust("smc", [Status.LOW_ESS])
    ('at least', '')
    """
    grave = [flag for flag in flags if flag.grave]
    if not grave:
        return ""
    unbiased = not any(flag in EITHER_SIGN for flag in flags)
    by_path = method in RARELY_TOO_HIGH and unbiased
    return AT_LEAST if by_path or all(flag in TOO_LOW for flag in grave) else NOT_TRUSTED
