"""The check of symmetry: permuting exchangeable parameters changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.checking.model_check.agreement import EXACT, relative_error
from weighbridge.checking.model_check.report import Check
from weighbridge.data.values import num_rows
from weighbridge.models.model import Model


def check_exchangeable(
    model: Model,
    samples: dict[str, np.ndarray],
    log_likelihood: Callable[[dict[str, np.ndarray]], np.ndarray],
) -> Check:
    """Compare the log prior and the log-likelihood before and after two permutations."""
    axes = dict(model.exchangeable)
    size = next(samples[name].shape[1:][axis] for name, axis in axes.items())
    if not num_rows(samples):
        return Check("exchangeable", None, "not checked: no draw has a finite log-likelihood")
    worst, where = 0.0, ""
    for order in (
        np.roll(np.arange(size), 1),
        np.r_[np.arange(size)[:2][::-1], np.arange(2, size)],
    ):
        permuted = {
            name: np.take(draws, order, axis=1 + axes[name] % (draws.ndim - 1))
            if name in axes
            else draws
            for name, draws in samples.items()
        }
        ways = {"prior": lambda some: _log_priors(model, some), "log-likelihood": log_likelihood}
        for name, density in ways.items():
            error = float(np.max(relative_error(density(permuted), density(samples))))
            if error > worst:
                worst, where = error, name
    return Check(
        "exchangeable",
        worst <= EXACT,
        f"the {where} changes with the order, by {worst:.2g} of itself"
        if worst > EXACT
        else f"{size} entries in any order",
        "Parameters are exchangeable only if every order has the same prior and likelihood: name "
        "all that are permuted together, give them one prior, or leave the declaration out.",
    )


def _log_priors(model: Model, samples: dict[str, np.ndarray]) -> np.ndarray:
    found = jax.vmap(model.log_priors)({name: jnp.asarray(d) for name, d in samples.items()})
    return np.asarray(sum(found.values()))
