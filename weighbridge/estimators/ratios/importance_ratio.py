"""``wb.importance_ratio``: another model with the same parameters, from posterior draws of one."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import MethodError
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_BRIDGE_RHAT
from weighbridge.estimators.draws_origin import require_origin
from weighbridge.estimators.posterior_draws import read_draws
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.ratios.common_data import hold_for_all
from weighbridge.estimators.ratios.crossing import Side, mean_only
from weighbridge.estimators.ratios.halves import largest_rhat
from weighbridge.estimators.reweighting.log_ratio import (
    log_ratios,
    num_blocks,
    require_same_parameters,
    require_support,
)
from weighbridge.models.model import Model
from weighbridge.models.response import check_responses
from weighbridge.models.row_gate import require_model
from weighbridge.results.evidence_ratio import OF_DRAWS, EvidenceRatio

CALLER = "wb.importance_ratio"
NAMES = ("model of the draws", "other model")


@double_precision
def importance_ratio(
    posterior: Any, other_model: Model, data: Any = None, *, model: Model | None = None
) -> EvidenceRatio:
    r"""Log Bayes factor of a model against another with the same parameters, from draws of that.

    .. math:: \frac{Z_B}{Z_A} = E\left[\frac{L_B(\theta) \, p_B(\theta)}{L_A(\theta) \, p_A(\theta)}
              \;\middle|\; y, A\right]

    With the same priors it is the mean of the likelihood ratio. Priors may differ if that of the
    other model has no mass outside the support of the first. It works if the posterior of the other
    model is not much wider than, or far from, that of the first: Pareto k-hat of the ratios shows
    it (``diagnostics["pareto_k"]``), and above 0.7 the result is flagged.

    Args:
        posterior: draws of the first model: a ``wb.Posterior``, an ``wb.Evidence``, or a mapping
            from parameter names to arrays, chains x draws x shape.
        other_model: the other model, with parameters of the same names and shapes.
        data: in any form that ``wb.evidence`` takes; the data of the draws.
        model: the model of the draws, which must be given: draws do not know their likelihood.

    Returns:
        The ratio; its ``log_bayes_factor`` is that of the other model against that of the draws.
        The error is that of the mean of autocorrelated draws.

    >>> import numpyro.distributions as dist, weighbridge as wb
    >>> def model(noise): return wb.zoo.gaussian.model(noise=noise)
    >>> data = wb.zoo.gaussian.simulate(50, mean=0.5, seed=1)
    >>> posterior = wb.sample(model(1.0), data, num_samples=500, num_warmup=300)
    >>> ratio = importance_ratio(posterior, model(1.1), data, model=model(1.0))
    >>> exact = [wb.zoo.gaussian.log_evidence(data, noise=noise) for noise in (1.0, 1.1)]
    >>> bool(abs(ratio.log_bayes_factor - (exact[1] - exact[0])) < 5 * ratio.std_error < 0.1)
    True

    Reference: Geweke (1989), Econometrica 57:1317-1339; k-hat: Vehtari et al. (2024), J. Mach.
    Learn. Res. 25(72).
    """
    began = time.perf_counter()
    require_model(other_model)
    if model is None:
        raise MethodError(
            "Give the model of the draws too, importance_ratio(posterior, other_model, data, "
            "model=...): its likelihood is needed, and draws do not hold it."
        )
    require_model(model)
    require_same_parameters(model, other_model)
    check_responses(dict(zip(NAMES, (model, other_model))))
    require_support(model, other_model)
    held = hold_for_all([model, other_model], data, CALLER)
    require_origin(posterior, model, held[0])
    draws = read_draws(model, posterior)
    before, after = (JointDensity(m, *h.contents()) for m, h in zip((model, other_model), held))
    ratios = log_ratios(before, after, draws)
    found = mean_only(Side(draws, ratios, num_blocks(posterior)))
    rhat = largest_rhat(draws)
    return EvidenceRatio(
        names=NAMES,
        log_ratios=np.array([0.0, found.log_ratio]),
        variances=found.std_error**2 * (1.0 - np.eye(2)),
        method="importance_ratio",
        num_observations=before.num_observations,
        diagnostics=found.diagnostics | {"rhat": rhat},
        flags=((Status.CHAINS_DISAGREE,) if rhat > MAX_BRIDGE_RHAT else ()) + found.flags,
        remarks=(OF_DRAWS,),
        elapsed=time.perf_counter() - began,
        fingerprint=held[0].fingerprint,
    )
