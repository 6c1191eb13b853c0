"""The log density of a posterior: the log prior plus likelihood terms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax.numpy as jnp

from weighbridge.core import interrupts
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array
from weighbridge.models.model import Model
from weighbridge.models.targets.tempered import Tempered
from weighbridge.models.targets.term import Term


@partial(register_dataclass, data_fields=["model", "terms"], meta_fields=[])
@dataclass(frozen=True)
class Target:
    r"""The log density of a posterior on unconstrained vectors.

    .. math:: \log f(u) = \log p(u) + \sum_t \ell_t(T(u))

    >>> import jax, numpy as np, numpyro.distributions as dist
    >>> from weighbridge.models.targets.rows import Rows
    >>> model = Model({"mu": dist.Normal(0, 1)}, lambda p, y: dist.Normal(p["mu"], 1).log_prob(y))
    >>> rows = Rows(np.array([0.0, 1.0]), np.ones(2))
    >>> with jax.enable_x64(True):
    ...     density = Target(model, (Tempered(rows, 0.5),))(np.zeros(1))
    >>> round(float(density), 6)
    -2.087877
    """

    model: Model
    terms: tuple[Term, ...]

    def __call__(self, position: Array) -> Array:
        """Log density at an unconstrained position."""
        interrupts.check_anywhere()  # runs while tracing, which may take seconds
        parameters, log_density = self.model.transform(position)
        for term in self.terms:
            log_density = log_density + term(self.model, position, parameters)
        return log_density

    def subsample(self, step: Array) -> Target:
        """The same target on the mini-batch of this step."""
        return replace(self, terms=tuple(term.subsample(step) for term in self.terms))

    def guide(self) -> Target | None:
        """The target whose gradient guides the moves, if it differs from this one."""
        terms = tuple(term.guide() for term in self.terms)
        same = all(guide is term for guide, term in zip(terms, self.terms))
        return None if same else replace(self, terms=terms)

    def guide_noise(self) -> Array:
        """Variance of the guide's log density minus this log density, up to a constant."""
        return jnp.asarray(sum(term.guide_noise() for term in self.terms))

    def tempered(self, power: Array | float) -> Target:
        """The same prior, with the likelihood raised to a power: 0 is the prior, 1 the target."""
        return replace(self, terms=tuple(Tempered(term, power) for term in self.terms))

    def gradient_variance(self, position: Array) -> Array:
        """Variance of the gradient over mini-batches, per coordinate."""
        total = jnp.zeros_like(position)
        for term in self.terms:
            total = total + term.gradient_variance(self.model, position)
        return total
