"""Methods by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from weighbridge.core.errors import MethodError
from weighbridge.estimators.bridging.bridge_method import Bridge
from weighbridge.estimators.harmonic_mean import HarmonicMean
from weighbridge.estimators.ibis.ibis import IBIS
from weighbridge.estimators.laplace.laplace import Laplace
from weighbridge.estimators.nested.nested_sampling import NestedSampling
from weighbridge.estimators.online_nested.online_nested import OnlineNestedSampling
from weighbridge.estimators.protocols import BatchMethod, SequentialMethod
from weighbridge.estimators.reweighting.importance import Importance
from weighbridge.estimators.sequential_sgmcmc import SequentialSGMCMC
from weighbridge.estimators.sgais.sgais import SGAIS
from weighbridge.estimators.tempering.ais import AIS
from weighbridge.estimators.tempering.prior_sampling import PriorSampling
from weighbridge.estimators.tempering.smc import SMC
from weighbridge.estimators.tempering.thermodynamic import Thermodynamic

Method = BatchMethod | SequentialMethod

METHODS: dict[str, Callable[[], Method]] = {
    "auto": SGAIS,
    "sgais": SGAIS,
    "published": SGAIS.published,
    "smc": SMC,
    "ais": AIS,
    "ibis": IBIS,
    "thermodynamic": Thermodynamic,
    "prior_sampling": PriorSampling,
    "bridge": Bridge,
    "harmonic_mean": HarmonicMean,
    "nested": NestedSampling,
    "online_nested": OnlineNestedSampling,
    "importance": Importance,
    "laplace": Laplace,
    "sequential_sgmcmc": SequentialSGMCMC,
}


def resolve(method: str | Method) -> Method:
    """A method object from its name, or the object itself.

    >>> resolve("published").num_particles
    10
    """
    # A class has the attributes of its objects, but wb.SMC is not a method; wb.SMC() is.
    if isinstance(method, Method) and not isinstance(method, type):
        return method
    if not isinstance(method, str):
        raise MethodError(f"method must be a name or a method object (SGAIS()), not {method!r}.")
    if method not in METHODS:
        nearest = difflib.get_close_matches(method, METHODS, n=1)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        raise MethodError(f"There is no method {method!r}; there are {list(METHODS)}.{hint}")
    return METHODS[method]()


def resolve_sequential(method: str | Method) -> SequentialMethod:
    """A sequential method; an error for a method that needs all rows at once."""
    chosen = resolve(method)
    if not isinstance(chosen, SequentialMethod):
        raise MethodError(
            f"The method {chosen.name!r} needs all the data at once and cannot run on a stream. "
            "Use wb.evidence for it, or SGAIS, IBIS or OnlineNestedSampling here."
        )
    return chosen
