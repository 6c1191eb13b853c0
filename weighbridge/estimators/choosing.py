"""``method="auto"``: which method weighs a model first, and which one follows if it fails.

A path of powers is followed by methods that fail for other reasons: by nested sampling, which does
not temper, or by a bridge from chains, which need no path.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_CHOSEN_ERROR
from weighbridge.core.types import PyTree
from weighbridge.data.values import num_rows
from weighbridge.estimators.bridging.bridge_method import Bridge
from weighbridge.estimators.nested.nested_sampling import NestedSampling
from weighbridge.estimators.registry import Method, resolve
from weighbridge.estimators.reweighting.importance import Importance
from weighbridge.estimators.sgais.sgais import SGAIS
from weighbridge.estimators.tempering.smc import SMC
from weighbridge.models.model import Model
from weighbridge.models.targets.host import is_on_host
from weighbridge.results.evidence_result import Evidence

AUTO = "auto"
# With more parameters nested sampling takes long, and needs more live points than by default.
MOST_NESTED_PARAMETERS = 30
# With more, the importance weights around modes are too uneven.
MOST_IMPORTANCE_PARAMETERS = 50
# A method that reads all rows at every step follows up to these numbers of rows: nested sampling,
# with its many evaluations, and the others.
MOST_NESTED_ROWS, MOST_ROWS = 20_000, 131_072
# Methods that one model gets at most.
MOST_ATTEMPTS = 3
# Methods with a path from the prior to the posterior: of powers, or of rows.
TEMPERING = {"sgais", "smc", "ais", "ibis", "thermodynamic"}
# What says that batches, not modes, are the trouble; and what says that moves are.
OF_BATCHES = {Status.NOISY, Status.HEATED, Status.UNADJUSTED}
OF_MOVES = {
    Status.DRIFTING,
    Status.TOO_FEW_MOVES,
    Status.STALLED,
    Status.LOW_ACCEPTANCE,
    Status.WALKERS_STUCK,
    Status.RANKS_FAR_FROM_UNIFORM,
}


@dataclass(frozen=True)
class Choice:
    """A method, and why it was chosen.

    Attributes:
        method: the method.
        why: a few words; empty if the user chose it.
        decides: whether ``method="auto"`` decides, so that others may follow.
    """

    method: Method
    why: str = ""
    decides: bool = False


class Offer(NamedTuple):
    """What a model and its data offer to methods.

    Attributes:
        by_rows: whether there is a log-likelihood of rows.
        gradient: whether it has a gradient; False for a likelihood on the host.
        dimension: number of parameters.
        num_rows: rows in the data; 0 for a model that contains them.
    """

    by_rows: bool
    gradient: bool
    dimension: int
    num_rows: int = 0


def offer_of(model: Model, values: PyTree | None = None) -> Offer:
    """What a model offers, with the data that are in memory.

    >>> import weighbridge as wb
    >>> offer_of(wb.zoo.linear.model(3))
    Offer(by_rows=True, gradient=True, dimension=4, num_rows=0)
    """
    rows = 0 if values is None else num_rows(values)
    by_rows = model.log_likelihood is not None
    return Offer(by_rows, not is_on_host(model, values), model.dimension, rows)


def choose(method: str | Method, models: Iterable[object]) -> Choice:
    """The method that the user asks for; for "auto" the first one, the same for all models.

    >>> import numpyro.distributions as dist
    >>> whole = Model({"m": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -p["m"] ** 2)
    >>> choose("auto", [whole]).method.name, choose("ais", [whole]).decides
    ('smc', False)
    """
    if method != AUTO:
        return Choice(resolve(method))
    if any(isinstance(model, Model) and model.log_likelihood is None for model in models):
        return Choice(SMC(), "a total log-likelihood has no rows for SGAIS", True)
    return Choice(SGAIS(), "the likelihood is one of rows", True)


def suit_to_host(first: Choice, offers: Iterable[Offer]) -> Choice:
    """The first method of "auto" once the data tell whether all likelihoods have gradients.

    Slice moves find several narrow modes more surely than random walks do, without gradients.

    >>> first = Choice(SMC(), "no rows", True)
    >>> suit_to_host(first, [Offer(False, True, 4), Offer(False, False, 4)]).method.moves
    'slice'
    """
    if all(offer.gradient for offer in offers):
        return first
    return Choice(SMC(moves="slice"), "the likelihood runs outside JAX, without gradients", True)


def choose_next(offer: Offer, tried: Sequence[str], flags: Iterable[Status]) -> Choice | None:
    """The method that follows if the last one is not to be trusted; None if there is none.

    Args:
        offer: what the model offers; its rows are in memory.
        tried: names of the methods so far, the first one first.
        flags: those of the last one.

    >>> rows = Offer(True, True, 5, 1000)
    >>> choose_next(rows, ["sgais"], [Status.ISLANDS_DISAGREE]).method.name
    'nested'
    >>> choose_next(rows, ["sgais"], [Status.NOISY]).method.name
    'smc'
    >>> choose_next(rows, ["sgais", "nested", "bridge"], []) is None
    True
    """
    raised = set(flags)
    if len(tried) >= MOST_ATTEMPTS or offer.num_rows > MOST_ROWS:
        return None
    if tried[-1] == "sgais" and raised & OF_BATCHES:
        return Choice(SMC(), "it uses all rows, not batches")
    if _suits_nested(offer) and "nested" not in tried:
        return Choice(NestedSampling(), "it does not temper")
    can_mix = raised & OF_MOVES or not _suits_nested(offer)
    if offer.gradient and can_mix and "bridge" not in tried:
        return Choice(Bridge(), "its chains need no path")
    return None


def choose_unlike(offer: Offer, known: Sequence[str] = ()) -> list[Choice]:
    """Up to three methods that fail for different reasons, to hold against each other.

    Args:
        offer: what the model offers; its rows are in memory.
        known: methods whose result is there already.

    >>> [choice.method.name for choice in choose_unlike(Offer(True, True, 5, 1000))]
    ['smc', 'nested', 'bridge']
    >>> [choice.method.name for choice in choose_unlike(Offer(False, False, 5))]
    ['smc', 'nested', 'importance']
    """
    found = []
    if not TEMPERING & set(known):
        found.append(_tempering(offer))
    if _suits_nested(offer) and "nested" not in known:
        found.append(Choice(NestedSampling(), "no path of powers"))
    if offer.gradient and "bridge" not in known:
        found.append(Choice(Bridge(), "chains, and a bridge to their posterior"))
    if offer.dimension <= MOST_IMPORTANCE_PARAMETERS and "importance" not in known:
        found.append(Choice(Importance(), "independent draws around the modes"))
    return found[: MOST_ATTEMPTS - len(known)]


def _tempering(offer: Offer) -> Choice:
    if offer.by_rows and offer.num_rows > MOST_NESTED_ROWS:
        return Choice(SGAIS(), "annealing on anchored targets")
    return Choice(SMC(moves=None if offer.gradient else "slice"), "a path of powers")


def _suits_nested(offer: Offer) -> bool:
    return offer.dimension <= MOST_NESTED_PARAMETERS and offer.num_rows <= MOST_NESTED_ROWS


def distrust(result: Evidence) -> str:
    """Why a result is not to be trusted, in a few words; empty if it is.

    >>> import numpy as np
    >>> from weighbridge.results.trace import Trace
    >>> def found(error, *flags):
    ...     return Evidence(-9.0, error, 9, "smc", Trace(), {}, np.zeros(1), flags=flags)
    >>> distrust(found(0.1)), distrust(found(0.1, Status.DRIFTING)), distrust(found(2.5))
    ('', 'still drifting', 'an error of 2.5 nats')
    """
    if Status.INTERRUPTED in result.flags:
        return Status.INTERRUPTED.label
    grave = [flag.label for flag in result.flags if flag.grave]
    if grave:
        return ", ".join(grave)
    if not math.isfinite(result.log_evidence):
        return "no finite log evidence"
    if math.isnan(result.std_error):
        return "error unknown"
    if result.std_error > MAX_CHOSEN_ERROR:
        return f"an error of {result.std_error:.2g} nats"
    return ""
