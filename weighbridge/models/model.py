"""A model: a prior and the log-likelihood of one observation, as a density on R^D."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from weighbridge.core.compilation import double_precision, jit, own
from weighbridge.core.errors import ModelError
from weighbridge.core.random import random_key
from weighbridge.core.types import Array, PyTree
from weighbridge.models.own_arrays import with_own_arrays
from weighbridge.models.priors import (
    Coordinates,
    Parameters,
    Site,
    clean_entry,
    clean_exchangeable,
    lay_out,
    leaf_layout,
)
from weighbridge.models.program_text import describe
from weighbridge.models.transforms import InCoordinates

LogLikelihood = Callable[[Any, Any], Any]
# Whether a likelihood is a density of real values, or a probability of classes or counts.
Response = Literal["density", "probability"]

# A prior draw that underflows to the edge of its support has no finite image in R^D. This value is
# used instead; every bijector is saturated there.
EDGE = 50.0


@jax.tree_util.register_pytree_node_class
class Model:
    r"""A Bayesian model: a prior and the log-likelihood of one observation.

    Internally, a model is a density on unconstrained vectors u with theta = T(u):

    .. math:: \log p(u) = \log p(T(u)) + \log |\det \partial T / \partial u|

    Arrays that its functions read from outside are fixed when the model is made. To use other data
    under the same name, make a new model.

    Args:
        prior: ordered mapping from a name to a NumPyro distribution, or to a function that takes
            the parameters named before it and returns a distribution. If a prior is scaled and
            shifted, given as a ``TransformedDistribution`` with ``AffineTransform``, u has the
            coordinates before the transform (a non-centred form): values that depend on a scale
            then have no funnel.
        log_likelihood: ``f(parameters, row)``, a scalar, for ONE observation. The library
            vectorises it.
        total_log_likelihood: ``f(parameters)`` or ``f(parameters, data)``, for a likelihood that
            does not factorise over rows; use it instead of ``log_likelihood``.
        exchangeable: parameters whose entries along an axis may be permuted together, such
            as the components of a mixture: ``{"weights": 0, "mu": 0}``.
        check_rows: ``f(values)`` for a block of observations as NumPy arrays. It returns a dict
            from a reason to a mask of the rows that are impossible for this model ("label outside
            0..3").
        on_host: whether ``total_log_likelihood`` is plain NumPy, called outside JAX with many
            parameter sets at a time (a leading axis of every parameter; one value for each set), or
            with one set if it cannot take many. By default true if JAX cannot trace it.
        response: whether the likelihood is a "density" of real values or the "probability" of a
            class. Models with different responses are not compared. By default it is not specified.

    >>> import numpyro.distributions as dist
    >>> model = Model(
    ...     prior={"s2": dist.InverseGamma(1, 1),
    ...            "mu": lambda p: dist.Normal(0, 2 * p["s2"] ** 0.5)},
    ...     log_likelihood=lambda p, y: dist.Normal(p["mu"], p["s2"] ** 0.5).log_prob(y),
    ... )
    >>> model.dimension, model.names
    (2, ('s2', 'mu'))
    >>> draws = model.sample_prior(3, seed=0)
    >>> draws["mu"].shape, draws["mu"].dtype
    ((3,), dtype('float64'))
    """

    def __init__(
        self,
        prior: Mapping[str, Any],
        log_likelihood: LogLikelihood | None = None,
        *,
        total_log_likelihood: Callable[..., Any] | None = None,
        exchangeable: Mapping[str, int] | None = None,
        check_rows: Callable[[PyTree], Mapping[str, np.ndarray]] | None = None,
        on_host: bool | None = None,
        response: Response | None = None,
    ) -> None:
        if not isinstance(prior, Mapping) or not prior:
            raise ModelError(
                "The prior must be a mapping from parameter names to NumPyro distributions, "
                'with at least one: prior={"mu": dist.Normal(0, 1)}.'
            )
        if (log_likelihood is None) == (total_log_likelihood is None):
            raise ModelError(
                "Give exactly one of log_likelihood (a function of the parameters and one "
                "observation) and total_log_likelihood (a function of the parameters and all "
                "the data)."
            )
        function = log_likelihood if log_likelihood is not None else total_log_likelihood
        if not callable(function):
            raise ModelError("The log-likelihood must be a function, not " + repr(function) + ".")
        if on_host and log_likelihood is not None:
            raise ModelError(
                "on_host=True is for a total_log_likelihood: the log-likelihood of one row is "
                "always compiled, and must use jax.numpy."
            )
        if response is not None and response not in get_args(Response):
            raise ModelError(f"response is one of {list(get_args(Response))}, not {response!r}.")
        # Their arrays are replaced by views, so that no other code has passed the same objects to
        # JAX.
        self.log_likelihood = with_own_arrays(log_likelihood)
        self.total_log_likelihood = with_own_arrays(total_log_likelihood)
        self.check_rows = check_rows
        self.on_host = on_host
        self.response = response
        self._entries = {str(name): clean_entry(name, value) for name, value in prior.items()}
        self._layouts = tuple(
            (name, *leaf_layout(entry))
            for name, entry in self._entries.items()
            if isinstance(entry, dist.Distribution)
        )
        self.sites = lay_out(self._entries)
        self.exchangeable = clean_exchangeable(exchangeable, self.sites)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in the order of the prior."""
        return tuple(site.name for site in self.sites)

    @property
    def dimension(self) -> int:
        """Number of unconstrained coordinates."""
        return self.sites[-1].stop

    # --- for users: named parameters, NumPy in and out ---------------------------------

    @double_precision
    def sample_prior(self, num_samples: int, *, seed: int = 0) -> dict[str, np.ndarray]:
        """Draw named parameters from the prior, with the draws along the first axis."""
        if num_samples < 1:
            raise ModelError(f"num_samples must be at least 1, not {num_samples}.")
        positions = draw_positions(self, random_key(seed), num_samples)
        return self._in_order(unravel_positions(self, positions))

    @double_precision
    def ravel(self, parameters: Mapping[str, Any]) -> np.ndarray:
        """The unconstrained vector of named parameters; the inverse of ``unravel``.

        >>> model = Model({"p": dist.Beta(1, 1)}, lambda p, y: y * p["p"])
        >>> float(model.ravel({"p": 0.5})[0])
        0.0
        """
        missing = [name for name in self.names if name not in parameters]
        if missing:
            raise ModelError(f"Parameters {missing} are missing; the model has {self.names}.")
        values = {name: own(np.asarray(parameters[name], float)) for name in self.names}
        for site in self.sites:
            if values[site.name].shape != site.shape:
                raise ModelError(
                    f"Parameter {site.name!r} has shape {values[site.name].shape}, but its prior "
                    f"has {site.shape}."
                )
        return np.asarray(_ravel_jit(self, values))

    @double_precision
    def unravel(self, position: Any) -> dict[str, np.ndarray]:
        """Named parameters at an unconstrained vector (or a stack of them)."""
        position = own(np.asarray(position, float))
        if position.shape[-1:] != (self.dimension,):
            raise ModelError(
                f"A position has {self.dimension} coordinates along its last axis; this array "
                f"has shape {position.shape}."
            )
        flat = self._in_order(unravel_positions(self, position.reshape(-1, self.dimension)))
        shape = position.shape[:-1]
        return {name: value.reshape(shape + value.shape[1:]) for name, value in flat.items()}

    @double_precision
    def log_prior(self, parameters: Mapping[str, Any]) -> float:
        """Log prior density of named parameters, in their own (constrained) space."""
        return float(_log_prior_jit(self, self.ravel(parameters)))

    # --- for the library: traceable, on unconstrained vectors --------------------------

    def transform(self, position: Array) -> tuple[Parameters, Array]:
        """Parameters at a position, and the log prior density there with the Jacobian."""
        parameters: Parameters = {}
        log_density = jnp.zeros(())
        for site, prior in self._priors(parameters):
            own = position[site.start : site.stop].reshape(site.unconstrained_shape)
            parameters[site.name], height = Coordinates.of(prior).value(own)
            log_density += height
        # Far from the mode, where a value underflows, NumPyro's InverseGamma returns +inf.
        return parameters, jnp.where(log_density == jnp.inf, -jnp.inf, log_density)

    def log_priors(self, parameters: Mapping[str, Array]) -> Parameters:
        """Log prior density of each parameter given the earlier ones, in its own space."""
        seen: Parameters = {}
        found: Parameters = {}
        for site, prior in self._priors(seen):
            seen[site.name] = parameters[site.name]
            found[site.name] = jnp.sum(prior.log_prob(parameters[site.name]))
        return found

    def draw(self, key: Array) -> Array:
        """One draw from the prior, as an unconstrained vector."""
        parameters: Parameters = {}
        for index, (site, prior) in enumerate(self._priors(parameters)):
            parameters[site.name] = prior.sample(jax.random.fold_in(key, index))
        position = self.flatten(parameters)
        edge = jnp.nan_to_num(jnp.clip(position, -EDGE, EDGE))
        undefined = [jnp.isnan(value).any() for value in parameters.values()]
        # A prior that draws NaN must be noticed (``draw_cloud``).
        finite = jnp.where(jnp.isfinite(position), position, edge)
        return jnp.where(jnp.stack(undefined).any(), jnp.nan, finite)

    def flatten(self, parameters: Parameters) -> Array:
        """Unconstrained vector of named parameters (traceable form of ``ravel``)."""
        seen: Parameters = {}
        pieces = []
        for site, prior in self._priors(seen):
            seen[site.name] = parameters[site.name]
            pieces.append(Coordinates.of(prior).inverse(seen[site.name]).reshape(-1))
        return jnp.concatenate(pieces)

    def row_log_likelihoods(self, parameters: Parameters, values: PyTree) -> Array:
        """Log-likelihood of every row of a block."""
        function = self.require_rows()
        result: Array = _row_values(function, parameters, values)
        return result

    def require_rows(self) -> LogLikelihood:
        """The log-likelihood of one row, or an error if the model has none."""
        if self.log_likelihood is None:
            raise ModelError(
                "This method works row by row, but the model has only a total_log_likelihood. "
                "Give log_likelihood=f(parameters, row) instead, or choose a method that uses "
                'all the data at once, such as method="smc".'
            )
        return self.log_likelihood

    @property
    def bounded(self) -> np.ndarray:
        """Which coordinates approach a bound of the support as they go to infinity."""
        found = np.zeros(self.dimension, bool)

        def trace(position: Array) -> None:
            parameters: Parameters = {}
            for site, prior in self._priors(parameters):
                coordinates = Coordinates.of(prior)
                bijector = coordinates.bijector
                while isinstance(bijector, dist.transforms.IndependentTransform):
                    bijector = bijector.base_transform
                plain = isinstance(bijector, dist.transforms.IdentityTransform) or (
                    isinstance(prior, InCoordinates) and prior.is_unbounded
                )
                found[site.start : site.stop] = not plain
                own = position[site.start : site.stop].reshape(site.unconstrained_shape)
                parameters[site.name] = coordinates.value(own)[0]

        jax.eval_shape(trace, np.zeros(self.dimension))
        return found

    def _in_order(self, parameters: Parameters) -> dict[str, np.ndarray]:
        # JAX sorts the keys of a dict; users get them in the order of the prior.
        return {name: np.asarray(parameters[name]) for name in self.names}

    def _priors(self, parameters: Parameters) -> Iterator[tuple[Site, Any]]:
        for site in self.sites:
            entry = self._entries[site.name]
            yield site, entry if isinstance(entry, dist.Distribution) else entry(parameters)

    # --- a model is a pytree: distribution parameters are leaves, functions are static --

    @functools.cached_property
    def _numbers(self) -> tuple[Any, ...]:
        """The numbers of the prior; every call of a program asks for them."""
        children = []
        for name, structure, order in self._layouts:
            leaves = structure.flatten_up_to(self._entries[name])
            children.append(tuple(leaves[index] for index in order))
        return tuple(children)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Split into the numbers of the prior and everything that determines the program."""
        functions = tuple(
            (n, e) for n, e in self._entries.items() if not isinstance(e, dist.Distribution)
        )
        return self._numbers, (
            self._layouts,
            functions,
            self.sites,
            self.exchangeable,
            self.log_likelihood,
            self.total_log_likelihood,
            self.check_rows,
            self.on_host,
            self.response,
        )

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[Any, ...]) -> Model:
        """Rebuild a model from its parts."""
        layouts, functions, sites, exchangeable, rows, total, check, on_host, response = static
        model = object.__new__(cls)
        model._layouts = layouts
        model._entries = dict(functions)
        for (name, structure, order), leaves in zip(layouts, children):
            placed = dict(zip(order, leaves))
            ordered = [placed[index] for index in range(len(order))]
            model._entries[name] = jax.tree_util.tree_unflatten(structure, ordered)
        model.sites, model.exchangeable = sites, exchangeable
        model.log_likelihood, model.total_log_likelihood, model.check_rows = rows, total, check
        model.on_host, model.response = on_host, response
        return model

    def fingerprint(self) -> str:
        """A hash of what the model computes, to check whether a saved run belongs to it."""
        entries = [self._entries[name] for name in self.names]
        functions = [self.log_likelihood, self.total_log_likelihood]
        text = describe([*map(tuple, self.sites), self.exchangeable, entries, functions])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{site.name}{list(site.shape) or ''}" for site in self.sites)
        return f"Model({shapes}; {self.dimension} dimensions)"


@partial(jax.jit, static_argnums=0)
def _row_values(function: LogLikelihood, parameters: Parameters, values: PyTree) -> Array:
    # A function of its own under jit, so that JAX keeps its trace: programs that evaluate the
    # likelihood at several places, and other programs, do not run the user's Python code again.
    found: Array = jax.vmap(lambda row: function(parameters, row))(values)
    return found


draw_positions = jit(
    lambda model, key, num: jax.vmap(model.draw)(jax.random.split(key, num)), static_argnums=2
)
unravel_positions = jit(
    lambda model, positions: jax.vmap(lambda u: model.transform(u)[0])(positions)
)
_ravel_jit = jit(lambda model, parameters: model.flatten(parameters))


@jax.jit
def _log_prior_jit(model: Model, position: Array) -> Array:
    parameters, _ = model.transform(position)
    return sum(model.log_priors(parameters).values(), jnp.zeros(()))
