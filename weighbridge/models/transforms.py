"""Transformations that make a parameter more Gaussian, and priors in such coordinates."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import ComposeTransform, Transform

from weighbridge.core.errors import ModelError
from weighbridge.core.types import Array


class BoxCox(Transform):
    r"""The transformation of Box and Cox of positive numbers.

    .. math:: y = \frac{(x / s)^\lambda - 1}{\lambda}, \qquad y = \log (x / s) \text{ if }
              \lambda = 0, \qquad \log \frac{dy}{dx} = (\lambda - 1) \log \frac{x}{s} - \log s

    It is a NumPyro transform: ``dist.TransformedDistribution(prior_of_y, BoxCox(0.5).inv)`` is a
    prior of x, with the Jacobian. Unless lambda is 0, y has a bound, -1 / lambda. See
    ``wb.in_coordinates`` for a prior of x that samplers should see as y.

    Args:
        lmbda: lambda: 1 changes nothing but the origin, 0 is the logarithm.
        scale: s.

    >>> [round(float(BoxCox(lmbda)(4.0)), 4) for lmbda in (0.0, 0.5, 1.0)]
    [1.3863, 2.0, 3.0]

    Reference: Box & Cox (1964), J. R. Stat. Soc. B 26:211-252.
    """

    domain = constraints.positive

    def __init__(self, lmbda: float, scale: float = 1.0) -> None:
        self.lmbda, self.scale = _finite("lmbda", lmbda), _positive("scale", scale)

    @classmethod
    def fit(cls, draws: Any) -> BoxCox:
        """The transformation under which draws are most likely to come from a Gaussian.

        >>> draws = np.random.default_rng(0).normal(5.0, 1.0, 4000) ** 3
        >>> bool(abs(BoxCox.fit(draws).lmbda - 1 / 3) < 0.1)
        True
        """
        from scipy.stats import boxcox_normmax  # slow to import

        values = _draws(draws)
        if np.any(values <= 0):
            raise ModelError("BoxCox needs positive draws. For others, use wb.YeoJohnson.")
        scale = float(np.exp(np.mean(np.log(values))))
        return cls(float(np.clip(boxcox_normmax(values / scale, method="mle"), -5, 5)), scale)

    @property
    def codomain(self) -> Any:
        """The values of y."""
        if self.lmbda == 0:
            return constraints.real
        bound = -1.0 / self.lmbda
        return constraints.greater_than(bound) if self.lmbda > 0 else constraints.less_than(bound)

    def __call__(self, x: Array) -> Array:
        """Transform x to y."""
        return _power(jnp.log(x / self.scale), self.lmbda)

    def _inverse(self, y: Array) -> Array:
        return self.scale * jnp.exp(_inverse_power(y, self.lmbda))

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        """Log of dy/dx, for each entry."""
        return cast(Array, (self.lmbda - 1) * jnp.log(x / self.scale) - np.log(self.scale))

    def tree_flatten(self) -> Any:
        """No leaves: lambda decides between two formulas."""
        return (), ((), {"lmbda": self.lmbda, "scale": self.scale})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoxCox) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.lmbda, self.scale))


class YeoJohnson(Transform):
    r"""The transformation of Yeo and Johnson of real numbers: Box-Cox for both signs.

    .. math:: y = \frac{(1 + z)^\lambda - 1}{\lambda} \text{ for } z \ge 0, \qquad
              y = -\frac{(1 - z)^{2 - \lambda} - 1}{2 - \lambda} \text{ for } z < 0, \qquad
              z = \frac{x - m}{s}

    A NumPyro transform from the real line to the real line. A lambda below 1 shortens a long upper
    tail, one above 1 a long lower tail.

    Args:
        lmbda: lambda, from 0 to 2; 1 only shifts and scales.
        loc: m.
        scale: s.

    >>> y = YeoJohnson(0.5)(jnp.array([-3.0, 0.0, 3.0]))
    >>> [round(float(value), 3) for value in y]
    [-4.667, 0.0, 2.0]

    Reference: Yeo & Johnson (2000), Biometrika 87:954-959.
    """

    domain = constraints.real
    codomain = constraints.real

    def __init__(self, lmbda: float, loc: float = 0.0, scale: float = 1.0) -> None:
        self.lmbda, self.loc = _finite("lmbda", lmbda), _finite("loc", loc)
        self.scale = _positive("scale", scale)
        if not 0 <= self.lmbda <= 2:
            raise ModelError(
                f"lmbda must lie between 0 and 2, not {lmbda!r}: otherwise the values do not fill "
                "the real line."
            )

    @classmethod
    def fit(cls, draws: Any) -> YeoJohnson:
        """The transformation under which draws are most likely to come from a Gaussian.

        >>> draws = np.random.default_rng(0).gamma(3.0, size=4000)
        >>> YeoJohnson.fit(draws).lmbda < 0.8
        True
        """
        from scipy.stats import yeojohnson_normmax  # slow to import

        values = _draws(draws)
        loc, scale = float(np.median(values)), float(np.std(values))
        best = float(yeojohnson_normmax((values - loc) / scale))
        return cls(float(np.clip(best, 0.0, 2.0)), loc, scale)

    def __call__(self, x: Array) -> Array:
        """Transform x to y."""
        z = (x - self.loc) / self.scale
        above, below = jnp.where(z >= 0, z, 0.0), jnp.where(z < 0, -z, 0.0)
        upper = _power(jnp.log1p(above), self.lmbda)
        return jnp.where(z >= 0, upper, -_power(jnp.log1p(below), 2 - self.lmbda))

    def _inverse(self, y: Array) -> Array:
        above, below = jnp.where(y >= 0, y, 0.0), jnp.where(y < 0, -y, 0.0)
        upper = jnp.expm1(_inverse_power(above, self.lmbda))
        lower = -jnp.expm1(_inverse_power(below, 2 - self.lmbda))
        return self.loc + self.scale * jnp.where(y >= 0, upper, lower)

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        """Log of dy/dx, for each entry."""
        z = (x - self.loc) / self.scale
        slope = jnp.where(z >= 0, self.lmbda - 1, 1 - self.lmbda)
        return cast(Array, slope * jnp.log1p(jnp.abs(z)) - np.log(self.scale))

    def tree_flatten(self) -> Any:
        """No leaves: lambda decides between formulas."""
        return (), ((), {"lmbda": self.lmbda, "loc": self.loc, "scale": self.scale})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, YeoJohnson) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.lmbda, self.loc, self.scale))


class InCoordinates(dist.Distribution):
    """A prior with coordinates of its own; see ``in_coordinates``."""

    pytree_data_fields = ("base_dist", "transform")

    def __init__(self, base_dist: Any, transform: Any) -> None:
        self.base_dist, self.transform = base_dist, transform
        super().__init__(base_dist.batch_shape, base_dist.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        """That of the prior."""
        return self.base_dist.support

    @property
    def is_unbounded(self) -> bool:
        """Whether the prior has the whole real line as its support."""
        return _without_event(self.support) is constraints.real

    @property
    def bijector(self) -> Any:
        """The map from coordinates on the real line to values of the prior."""
        if isinstance(self.transform, BoxCox):
            return BoxCoxFromReal(self.transform)
        return ComposeTransform([self.transform.inv, dist.biject_to(self.support)])

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws from the prior."""
        return cast(Array, self.base_dist.sample(key, sample_shape))

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """The log density of the prior: its coordinates do not change it."""
        return cast(Array, self.base_dist.log_prob(value))


def in_coordinates(prior: Any, transform: Any) -> Any:
    r"""The same prior, but samplers and proposals see its parameter through a transformation.

    .. math:: p(v) = p(\theta(v)) \left| \frac{d\theta}{dv} \right|

    The model, its posterior and its evidence stay the same; only the unconstrained coordinates v
    change, and the Jacobian is taken care of. If the posterior is closer to a Gaussian in v, chains
    mix better, and Laplace's method, bridges and importance sampling are more accurate. A good
    transformation is one fitted to draws of a first run.

    Args:
        prior: a NumPyro distribution.
        transform: ``wb.YeoJohnson`` or another transform of the real line to itself: it acts on the
            usual unconstrained coordinates (for a positive parameter on its logarithm). Or, for a
            positive prior, ``wb.BoxCox``: it acts on the parameter itself, and is continued to the
            whole real line by a softplus where it has a bound.

    >>> import weighbridge as wb
    >>> prior = wb.in_coordinates(dist.Gamma(3.0, 1.0), wb.BoxCox(1 / 3))
    >>> model = wb.Model({"rate": prior}, lambda p, y: dist.Poisson(p["rate"]).log_prob(y))
    >>> plain = wb.Model({"rate": prior.base_dist}, model.log_likelihood)
    >>> point = {"rate": 2.0}
    >>> bool(model.log_prior(point) == plain.log_prior(point))
    True
    >>> round(float(model.ravel(point)[0]), 3), round(float(plain.ravel(point)[0]), 3)
    (3.757, 0.693)
    """
    if not isinstance(prior, dist.Distribution):
        raise ModelError(
            f"in_coordinates needs a NumPyro distribution, not {prior!r}. If the prior depends on "
            "other parameters, return in_coordinates(...) from its function."
        )
    if not isinstance(transform, Transform):
        raise ModelError(f"transform must be a NumPyro transform, not {transform!r}.")
    if isinstance(transform, BoxCox):
        support = _without_event(prior.support)
        if support != constraints.positive:
            raise ModelError(
                f"BoxCox is for positive parameters, but the prior has the support {support}. Use "
                "wb.YeoJohnson, which acts on the usual unconstrained coordinates."
            )
        return InCoordinates(prior, transform)
    ends = (_without_event(transform.domain), _without_event(transform.codomain))
    if any(end is not constraints.real for end in ends):
        raise ModelError(
            f"{type(transform).__name__} does not map the real line to itself, so its values are "
            "no unconstrained coordinates. Use wb.YeoJohnson, or wb.BoxCox for a positive prior."
        )
    return InCoordinates(prior, transform)


class BoxCoxFromReal(Transform):
    r"""From the real line to positive numbers; its inverse is Box-Cox far from the bound.

    .. math:: \frac{(x / s)^\lambda}{\lambda} = \pm \log(1 + e^{\pm v}), \qquad
              \pm = \operatorname{sign} \lambda

    In logarithms throughout: near the bound the power would lose its digits.
    """

    domain = constraints.real
    codomain = constraints.positive

    def __init__(self, box_cox: BoxCox) -> None:
        self.box_cox = box_cox

    def __call__(self, x: Array) -> Array:
        """Transform a coordinate to a positive number."""
        lmbda, scale = self.box_cox.lmbda, self.box_cox.scale
        if lmbda == 0:
            return scale * jnp.exp(x)
        log_power = np.log(abs(lmbda)) + _log_softplus(np.sign(lmbda) * x)
        return scale * jnp.exp(log_power / lmbda)

    def _inverse(self, y: Array) -> Array:
        lmbda, scale = self.box_cox.lmbda, self.box_cox.scale
        log_ratio = jnp.log(y / scale)
        if lmbda == 0:
            return log_ratio
        power = jnp.exp(lmbda * log_ratio) / abs(lmbda)
        # The inverse of the softplus, without overflow.
        return cast(Array, np.sign(lmbda) * (power + jnp.log(-jnp.expm1(-power))))

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        """Log of the derivative, for each entry."""
        lmbda = self.box_cox.lmbda
        if lmbda == 0:
            return jnp.log(y)
        there = np.sign(lmbda) * x
        relative = jax.nn.log_sigmoid(there) - _log_softplus(there) - np.log(abs(lmbda))
        return cast(Array, jnp.log(y) + relative)

    def tree_flatten(self) -> Any:
        """No leaves."""
        return (), ((), {"box_cox": self.box_cox})


def _log_softplus(x: Array) -> Array:
    """log log(1 + e^x); about x far below zero."""
    return jnp.where(x < -30.0, x, jnp.log(jax.nn.softplus(jnp.maximum(x, -40.0))))


def _without_event(constraint: Any) -> Any:
    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    return constraint


def _power(log_x: Array, lmbda: float) -> Array:
    return log_x if lmbda == 0 else jnp.expm1(lmbda * log_x) / lmbda


def _inverse_power(y: Array, lmbda: float) -> Array:
    return y if lmbda == 0 else jnp.log1p(lmbda * y) / lmbda


def _draws(draws: Any) -> np.ndarray:
    values = np.asarray(draws, float).reshape(-1)
    if len(values) < 20 or not np.isfinite(values).all() or np.ptp(values) == 0:
        raise ModelError("fit needs at least 20 finite draws that are not all equal.")
    return values


def _finite(name: str, value: float) -> float:
    if not np.isfinite(value):
        raise ModelError(f"{name} must be a finite number, not {value!r}.")
    return float(value)


def _positive(name: str, value: float) -> float:
    if not _finite(name, value) > 0:
        raise ModelError(f"{name} must be positive, not {value!r}.")
    return float(value)
