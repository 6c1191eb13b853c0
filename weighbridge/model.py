"""A model: a prior and the log-likelihood of one observation, seen as a density on R^D."""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import functools
import hashlib
import inspect
import re
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from weighbridge.base import Array, DataError, ModelError, PyTree
from weighbridge.numerics import double_precision

Parameters = dict[str, Array]
LogLikelihood = Callable[[Any, Any], Any]
_abstract_array: Any = jax.ShapeDtypeStruct  # JAX leaves its constructor untyped

# A prior draw that underflows to the edge of its support has no finite image in R^D; it is
# put here instead, where every bijector has long saturated.
EDGE = 50.0


class Site(NamedTuple):
    """Where one parameter lies in the flat vector, and its shapes on both sides."""

    name: str
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    start: int
    stop: int


def bijectors(prior: Any) -> tuple[Any, ...]:
    """What takes unconstrained coordinates to values, one after the other.

    Those of a scaled and shifted distribution are the coordinates from before. Papaspiliopoulos,
    Roberts & Skold (2007), Statistical Science 22:59-73.

    >>> from numpyro.distributions.transforms import AffineTransform
    >>> [type(b).__name__ for b in bijectors(dist.HalfNormal(1.0))]
    ['ExpTransform']
    >>> scaled = dist.TransformedDistribution(dist.Normal(0, 1), AffineTransform(0.0, 3.0))
    >>> [type(b).__name__ for b in bijectors(scaled)]
    ['IdentityTransform', 'AffineTransform']
    """
    inner = prior.base_dist if isinstance(prior, dist.Independent) else prior
    if type(inner) is dist.TransformedDistribution and all(
        isinstance(transform, dist.transforms.AffineTransform) for transform in inner.transforms
    ):
        return (dist.biject_to(inner.base_dist.support), *inner.transforms)
    return (dist.biject_to(prior.support),)


def _unconstrained(prior: Any, value: Array) -> Array:
    for bijector in reversed(bijectors(prior)):
        value = bijector.inv(value)
    return value


@jax.tree_util.register_pytree_node_class
class Model:
    r"""A Bayesian model: a prior and the log-likelihood of one observation.

    Inside, a model is a density on unconstrained vectors u with theta = T(u):

    .. math:: \log p(u) = \log p(T(u)) + \log |\det \partial T / \partial u|

    Args:
        prior: ordered mapping from a name to a NumPyro distribution, or to a function that
            takes the parameters named before it and returns one. Where such a prior is a scaled
            and shifted one, given as a ``TransformedDistribution`` with ``AffineTransform``, u has
            the coordinates from before: values that follow a scale are then free of its funnel.
        log_likelihood: ``f(parameters, row)``, a scalar, for ONE observation. The library
            vectorises it.
        total_log_likelihood: ``f(parameters)`` or ``f(parameters, data)``, for a likelihood
            that does not factorise over rows; instead of ``log_likelihood``.
        exchangeable: parameters whose entries along an axis may be permuted together, such
            as the components of a mixture: ``{"weights": 0, "mu": 0}``.
        check_rows: ``f(values)`` on a block of observations as NumPy arrays; maps a reason
            to a mask of the rows that this model cannot have ("label outside 0..3").
        on_host: whether ``total_log_likelihood`` is plain NumPy, called outside JAX with many
            parameter sets at a time (a leading axis of every parameter; one value for each set),
            or, if it cannot take many, with one. By default it is if JAX cannot trace it.

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
        self.log_likelihood = log_likelihood
        self.total_log_likelihood = total_log_likelihood
        self.check_rows = check_rows
        self.on_host = on_host
        self._entries = {str(name): _clean_entry(name, value) for name, value in prior.items()}
        self._layouts = tuple(
            (name, *_leaf_layout(entry))
            for name, entry in self._entries.items()
            if isinstance(entry, dist.Distribution)
        )
        self.sites = _lay_out(self._entries)
        self.exchangeable = _clean_exchangeable(exchangeable, self.sites)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in the order of the prior."""
        return tuple(site.name for site in self.sites)

    @property
    def dimension(self) -> int:
        """Number of unconstrained coordinates."""
        return self.sites[-1].stop

    # --- what a user calls: named parameters, NumPy in and out -------------------------

    @double_precision
    def sample_prior(self, num_samples: int, *, seed: int = 0) -> dict[str, np.ndarray]:
        """Draw named parameters from the prior, with the draws along the first axis."""
        if num_samples < 1:
            raise ModelError(f"num_samples must be at least 1, not {num_samples}.")
        positions = draw_positions(self, jax.random.key(seed), num_samples)
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
        values = {name: jnp.asarray(parameters[name], float) for name in self.names}
        for site in self.sites:
            if values[site.name].shape != site.shape:
                raise ModelError(
                    f"Parameter {site.name!r} has shape {values[site.name].shape}, and the prior "
                    f"says {site.shape}."
                )
        return np.asarray(_ravel_jit(self, values))

    @double_precision
    def unravel(self, position: Any) -> dict[str, np.ndarray]:
        """Named parameters at an unconstrained vector (or a stack of them)."""
        position = jnp.asarray(position, float)
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

    # --- what the library calls: traceable, on unconstrained vectors -------------------

    def transform(self, position: Array) -> tuple[Parameters, Array]:
        """Parameters at a position, and the log prior density there with the Jacobian."""
        parameters: Parameters = {}
        log_density = jnp.zeros(())
        for site, prior in self._priors(parameters):
            value = position[site.start : site.stop].reshape(site.unconstrained_shape)
            for bijector in bijectors(prior):
                before, value = value, bijector(value)
                log_density += jnp.sum(bijector.log_abs_det_jacobian(before, value))
            parameters[site.name] = value
            log_density += jnp.sum(prior.log_prob(value))
        # Far out, where a value underflows, NumPyro's InverseGamma has a density of +inf.
        return parameters, jnp.where(log_density == jnp.inf, -jnp.inf, log_density)

    def log_priors(self, parameters: Mapping[str, Array]) -> Parameters:
        """Log prior density of each parameter given those before it, in its own space."""
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
        return jnp.where(jnp.isfinite(position), position, edge)

    def flatten(self, parameters: Parameters) -> Array:
        """Unconstrained vector of named parameters (traceable form of ``ravel``)."""
        seen: Parameters = {}
        pieces = []
        for site, prior in self._priors(seen):
            seen[site.name] = parameters[site.name]
            pieces.append(_unconstrained(prior, seen[site.name]).reshape(-1))
        return jnp.concatenate(pieces)

    def row_log_likelihoods(self, parameters: Parameters, values: PyTree) -> Array:
        """Log-likelihood of every row of a block."""
        function = self.require_rows()
        result: Array = jax.vmap(lambda row: function(parameters, row))(values)
        return result

    def require_rows(self) -> LogLikelihood:
        """The log-likelihood of one row, or an error for a model that has none."""
        if self.log_likelihood is None:
            raise ModelError(
                "This method works row by row, and the model has only a total_log_likelihood. "
                "Give log_likelihood=f(parameters, row) instead, or choose a method that uses "
                'all the data at once, such as method="smc".'
            )
        return self.log_likelihood

    def _in_order(self, parameters: Parameters) -> dict[str, np.ndarray]:
        # JAX sorts the keys of a dict; users get them in the order of the prior.
        return {name: np.asarray(parameters[name]) for name in self.names}

    def _priors(self, parameters: Parameters) -> Iterator[tuple[Site, Any]]:
        for site in self.sites:
            entry = self._entries[site.name]
            yield site, entry if isinstance(entry, dist.Distribution) else entry(parameters)

    # --- a model is a pytree: distribution parameters are leaves, functions are static --

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Split into the numbers of the prior and everything that fixes the program."""
        children = []
        for name, structure, order in self._layouts:
            leaves = structure.flatten_up_to(self._entries[name])
            children.append(tuple(leaves[index] for index in order))
        functions = tuple(
            (n, e) for n, e in self._entries.items() if not isinstance(e, dist.Distribution)
        )
        return tuple(children), (
            self._layouts,
            functions,
            self.sites,
            self.exchangeable,
            self.log_likelihood,
            self.total_log_likelihood,
            self.check_rows,
            self.on_host,
        )

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[Any, ...]) -> Model:
        """Put a model together again."""
        layouts, functions, sites, exchangeable, rows, total, check, on_host = static
        model = object.__new__(cls)
        model._layouts = layouts
        model._entries = dict(functions)
        for (name, structure, order), leaves in zip(layouts, children):
            placed = dict(zip(order, leaves))
            ordered = [placed[index] for index in range(len(order))]
            model._entries[name] = jax.tree_util.tree_unflatten(structure, ordered)
        model.sites, model.exchangeable = sites, exchangeable
        model.log_likelihood, model.total_log_likelihood, model.check_rows = rows, total, check
        model.on_host = on_host
        return model

    def fingerprint(self) -> str:
        """A hash of what the model computes, to tell whether a saved run belongs to it."""
        entries = [self._entries[name] for name in self.names]
        functions = [self.log_likelihood, self.total_log_likelihood]
        text = _describe([*map(tuple, self.sites), self.exchangeable, entries, functions])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{site.name}{list(site.shape) or ''}" for site in self.sites)
        return f"Model({shapes}; {self.dimension} dimensions)"


draw_positions = jax.jit(
    lambda model, key, num: jax.vmap(model.draw)(jax.random.split(key, num)), static_argnums=2
)
unravel_positions = jax.jit(
    lambda model, positions: jax.vmap(lambda u: model.transform(u)[0])(positions)
)
_ravel_jit = jax.jit(lambda model, parameters: model.flatten(parameters))


@jax.jit
def _log_prior_jit(model: Model, position: Array) -> Array:
    parameters, _ = model.transform(position)
    return sum(model.log_priors(parameters).values(), jnp.zeros(()))


# --- building a model: every mistake is named here --------------------------------------


def _clean_entry(name: str, value: Any) -> Any:
    """Check one entry of the prior, and make its numbers double precision leaves."""
    if not isinstance(value, dist.Distribution):
        if callable(value):
            return value
        raise ModelError(
            f"The prior of {name!r} must be a NumPyro distribution or a function of the "
            f"parameters before it, not {value!r}."
        )
    _check_distribution(name, value)
    _check_arguments(name, value)
    if not survives_flattening(value):
        raise ModelError(
            f"The prior of {name!r} ({type(value).__name__}) loses a part of itself when JAX takes "
            "it apart and puts it together again: its class does not name all its pytree fields. "
            "Give it as a function instead, lambda parameters: ..., which makes it anew."
        )
    return _with_doubles(value)


def survives_flattening(prior: Any) -> bool:
    """Whether a distribution still works after JAX has flattened and rebuilt it.

    NumPyro 0.22 forgets the support of ``Levy``, and a user's own class may forget anything.

    >>> survives_flattening(dist.Normal(0, 1))
    True
    """

    def use(key: Array) -> Array:
        rebuilt = _with_doubles(prior)
        value = rebuilt.sample(key)
        _unconstrained(rebuilt, value)
        return jnp.sum(rebuilt.log_prob(value))

    with jax.enable_x64(True), contextlib.suppress(AttributeError, NotImplementedError, TypeError):
        jax.eval_shape(use, jax.random.key(0))
        return True
    return False


def _with_doubles(prior: Any) -> Any:
    return jax.tree_util.tree_map(lambda leaf: np.asarray(leaf, np.float64), prior)


def _check_distribution(name: str, prior: Any) -> None:
    """Refuse what has no density on a continuous space: the evidence would be undefined."""
    inner = prior
    while inner is not None:
        kind = type(inner).__name__
        if kind in ("ImproperUniform", "MaskedDistribution"):
            raise ModelError(
                f"The prior of {name!r} is improper ({kind}): it does not integrate to one, so "
                "the evidence is undefined. Use a proper prior, such as a wide Normal or a "
                "bounded Uniform."
            )
        if kind in ("Delta", "Unit"):
            raise ModelError(
                f"The prior of {name!r} is a point ({kind}) without a density. Put the fixed "
                "value into the log-likelihood instead."
            )
        inner = getattr(inner, "base_dist", None)
    if prior.is_discrete:
        raise ModelError(
            f"The prior of {name!r} is discrete ({type(prior).__name__}). Sum the discrete "
            "parameter out of the log-likelihood, or compare one model for each of its values."
        )
    try:
        bijectors(prior)
    except NotImplementedError:
        raise ModelError(
            f"The prior of {name!r} has the support {prior.support}, for which NumPyro has no "
            "bijector. Use a distribution with a standard support."
        ) from None


def _check_arguments(name: str, prior: Any) -> None:
    """Refuse distributions whose own numbers make them improper or undefined."""
    inner = prior
    while inner is not None:
        for argument in inner.arg_constraints:
            value = getattr(inner, argument, None)
            if value is not None and not np.all(np.isfinite(np.asarray(value, float))):
                raise ModelError(
                    f"The prior of {name!r} has {argument}={value}: it is improper, and the "
                    "evidence is undefined. Give it a finite value."
                )
        low, high = getattr(inner, "low", None), getattr(inner, "high", None)
        if low is not None and high is not None and not np.all(np.asarray(low) < high):
            raise ModelError(
                f"The prior of {name!r} has low={low}, which is not below high={high}."
            )
        try:
            inner.validate_args()
        except ValueError as error:
            raise ModelError(f"The prior of {name!r} is not valid: {error}") from None
        inner = getattr(inner, "base_dist", None)


def _lay_out(entries: Mapping[str, Any]) -> tuple[Site, ...]:
    """Trace one prior draw to learn every shape, and check what functions return."""
    sites: list[Site] = []

    def draw(key: Array) -> None:
        parameters: Parameters = {}
        start = 0
        for name, entry in entries.items():
            prior = entry
            if not isinstance(entry, dist.Distribution):
                prior = _call_entry(name, entry, parameters)
                _check_distribution(name, prior)
            value = prior.sample(key)
            shape = _unconstrained(prior, value).shape
            parameters[name] = value
            stop = start + int(np.prod(shape, dtype=int))
            sites.append(Site(name, value.shape, shape, start, stop))
            start = stop

    with jax.enable_x64(True):
        jax.eval_shape(draw, jax.random.key(0))
    if sites[-1].stop == 0:
        raise ModelError("The model has no free parameter.")
    return tuple(sites)


def _call_entry(name: str, function: Callable[..., Any], parameters: Parameters) -> Any:
    try:
        prior = function(dict(parameters))
    except KeyError as error:
        raise ModelError(
            f"The prior of {name!r} uses the parameter {error}, which is not named before it. "
            f"Before it stand {sorted(parameters)}."
        ) from None
    if not isinstance(prior, dist.Distribution):
        raise ModelError(
            f"The function given as the prior of {name!r} must return a NumPyro distribution, "
            f"not {type(prior).__name__}."
        )
    return prior


def _clean_exchangeable(
    exchangeable: Mapping[str, int] | None, sites: tuple[Site, ...]
) -> tuple[tuple[str, int], ...]:
    if not exchangeable:
        return ()
    shapes = {site.name: site.shape for site in sites}
    lengths = {}
    for name, axis in exchangeable.items():
        if name not in shapes:
            raise ModelError(f"exchangeable names {name!r}; the model has {list(shapes)}.")
        if not -len(shapes[name]) <= axis < len(shapes[name]):
            raise ModelError(f"exchangeable: {name!r} has shape {shapes[name]}, no axis {axis}.")
        lengths[name] = shapes[name][axis]
    if len(set(lengths.values())) > 1:
        raise ModelError(f"exchangeable entries must have one length, not {lengths}.")
    return tuple((name, int(axis)) for name, axis in exchangeable.items())


def _leaf_layout(prior: Any) -> tuple[Any, tuple[int, ...]]:
    """The pytree structure of a distribution, and the order of its leaves by field name.

    NumPyro keeps its fields in a set, so their order differs between processes; the compiled
    programs that are kept on disk need one that does not.
    """
    structure: Any = jax.tree_util.tree_structure(prior)
    numbered = jax.tree_util.tree_unflatten(structure, range(structure.num_leaves))
    return structure, tuple(_leaves_by_name(numbered))


def _leaves_by_name(value: Any) -> Iterator[Any]:
    if isinstance(value, dist.Distribution):
        for field in sorted(type(value).gather_pytree_data_fields()):
            yield from _leaves_by_name(vars(value).get(field))
        return
    for leaf in jax.tree_util.tree_leaves(value, is_leaf=_is_distribution):
        if _is_distribution(leaf):
            yield from _leaves_by_name(leaf)
        else:
            yield leaf


def _is_distribution(value: Any) -> bool:
    return isinstance(value, dist.Distribution)


# --- what a model computes, as text that is the same in every process --------------------

_LIBRARIES = ("builtins", "jax", "jaxlib", "math", "numpy", "numpyro", "scipy")


def _describe(value: Any, seen: tuple[int, ...] = ()) -> str:
    """Numbers, containers, distributions and functions by what they hold, not where they lie."""
    if id(value) in seen:
        return "<cycle>"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return f"array:{array.dtype}{array.shape}{digest}"
    seen = (*seen, id(value))
    kind = type(value).__qualname__
    if isinstance(value, types.ModuleType):
        return f"module:{value.__name__}"
    parts = [_describe(part, seen) for part in _parts(value)]
    if isinstance(value, set | frozenset):
        parts.sort()
    return f"{kind}({','.join(parts)})"


def _parts(value: Any) -> list[Any]:
    """What an object's results depend on; nothing where that cannot be told."""
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    if isinstance(value, types.CodeType):
        return [value.co_code, *value.co_names, value.co_consts]
    if _is_library(value) or isinstance(value, type):
        return [value.__module__, getattr(value, "__qualname__", value.__name__)]
    if isinstance(value, types.FunctionType):
        return _function_parts(value)
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if type(value).__module__.split(".")[0] in ("jax", "jaxlib") and hasattr(value, "__wrapped__"):
        return [value.__wrapped__]  # a compiled function; its own notes say where it was defined
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, dist.Distribution):
        names = {*value.gather_pytree_data_fields(), *value.gather_pytree_aux_fields()}
        return [(name, vars(value).get(name)) for name in sorted(names - {"_validate_args"})]
    if hasattr(value, "tree_flatten"):  # NumPyro's constraints and transforms
        return list(value.tree_flatten())
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.compare}
    elif callable(value):
        attributes = getattr(value, "__dict__", {}).items()
        fields = {name: field for name, field in sorted(attributes) if name[:2] != "__"}
    else:
        return []
    call = inspect.getattr_static(type(value), "__call__", None)
    call = call if isinstance(call, types.FunctionType) else None
    return [fields, getattr(value, "__wrapped__", None), call]


def _is_library(value: Any) -> bool:
    """A function of JAX or NumPyro, whose name says what it does."""
    module = str(getattr(value, "__module__", "")).split(".")[0]
    return callable(value) and hasattr(value, "__name__") and module in _LIBRARIES


def _function_parts(function: types.FunctionType) -> list[Any]:
    """Code, defaults, and the outer values it reads; not those it writes, such as a counter."""
    codes, read, written = [function.__code__], set(), set()
    while codes:
        code = codes.pop()
        codes += [value for value in code.co_consts if isinstance(value, types.CodeType)]
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("STORE_GLOBAL", "STORE_DEREF"):
                written.add(instruction.argval)
            elif instruction.opname == "LOAD_GLOBAL":
                read.add(instruction.argval)
    outer = {name: function.__globals__.get(name) for name in read}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # an empty cell
            outer[name] = cell.cell_contents
    kept = {name: outer[name] for name in sorted(outer.keys() - written)}
    return [function.__code__, function.__defaults__, function.__kwdefaults__, kept]


# --- the model against its data ----------------------------------------------------------


# What was found of models, by the layout of their rows: to trace takes as long as a small run.
_CHECKED: weakref.WeakKeyDictionary[Model, dict[Any, bool]] = weakref.WeakKeyDictionary()


def check_row_function(model: Model, values: PyTree) -> bool:
    """Check the log-likelihood of one row by tracing it; nothing is computed.

    Returns whether a column named ``weight`` counts repeated rows: the data has one, and the
    log-likelihood does not read it.
    """
    leaves, structure = jax.tree_util.tree_flatten(values)
    layout = (structure, *((leaf.shape[1:], str(leaf.dtype)) for leaf in leaves))
    known = _CHECKED.setdefault(model, {})
    if layout not in known:
        known[layout] = _check_row_function(model, values)
    return known[layout]


def _check_row_function(model: Model, values: PyTree) -> bool:
    function = model.require_rows()
    row = jax.tree_util.tree_map(lambda leaf: _abstract_array(leaf.shape[1:], leaf.dtype), values)
    position = _abstract_array((model.dimension,), np.float64)

    def trace() -> Any:
        # A new closure each time: JAX would answer a second trace of the same one from memory.
        def evaluate(position: Array, row: Any) -> Any:
            return function(model.transform(position)[0], row)

        with jax.enable_x64(True):
            return jax.make_jaxpr(evaluate)(position, row)

    programs = []
    for _ in range(2):
        try:
            program = trace()
        except (ModelError, DataError):
            raise
        except Exception as error:
            raise ModelError(
                f"The log-likelihood fails on one row {_describe_row(row)}: "
                f"{type(error).__name__}: {str(error).splitlines()[0]} Check the names and the "
                "number of columns, and use jax.numpy inside the function."
            ) from error
        programs.append(program)
    shapes = [tuple(value.shape) for value in programs[0].out_avals]
    if shapes != [()]:
        raise ModelError(
            f"The log-likelihood of one row must be a scalar; it has the shape "
            f"{shapes[0] if len(shapes) == 1 else shapes} for a row {_describe_row(row)}. Sum it "
            "over the columns, and check that the number of columns is the one the model expects."
        )
    if not np.issubdtype(programs[0].out_avals[0].dtype, np.floating):
        raise ModelError(
            "The log-likelihood of one row must be a real number; it is of type "
            f"{programs[0].out_avals[0].dtype}."
        )
    if _program_text(programs[0]) != _program_text(programs[1]):
        raise ModelError(
            "The log-likelihood is random from call to call: two traces of it differ. Take the "
            "random numbers out of it; a latent variable belongs into the prior."
        )
    if not (isinstance(values, dict) and "weight" in values):
        return False
    return not _depends_on(lambda p, r: function(model.transform(p)[0], r), position, row, "weight")


def _depends_on(function: LogLikelihood, position: Any, row: Any, column: str) -> bool:
    """Whether a column can change the result: JAX refuses to call a result that it varies fixed."""
    varied = {name: 0 if name == column else None for name in row}
    batch = row | {column: _abstract_array((2, *row[column].shape), row[column].dtype)}
    with jax.enable_x64(True):
        try:
            fixed = jax.vmap(function, in_axes=(None, varied), out_axes=None)
            jax.eval_shape(fixed, position, batch)
        except ValueError:
            return True
    return False


def _program_text(program: Any) -> str:
    text = re.sub(r"0x[0-9a-f]+", "", str(program.jaxpr))
    return text + "".join(np.asarray(constant).tobytes().hex() for constant in program.consts)


def _describe_row(row: PyTree) -> str:
    if isinstance(row, dict):
        columns = ", ".join(f"{name}: {_describe_leaf(leaf)}" for name, leaf in row.items())
        return "{" + columns + "}"
    leaves = jax.tree_util.tree_leaves(row)
    return ", ".join(_describe_leaf(leaf) for leaf in leaves)


def _describe_leaf(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}" if leaf.shape else f"{leaf.dtype} scalar"


def split_weight(values: PyTree, counts_rows: bool) -> tuple[PyTree, np.ndarray]:
    """Take the row weights out of a block; without a weight column each row counts once."""
    leaves = jax.tree_util.tree_leaves(values)
    if not counts_rows:
        return values, np.ones(len(leaves[0]))
    weight = np.asarray(values["weight"], np.float64)
    if weight.ndim != 1 or not np.all((weight >= 0) & np.isfinite(weight)):
        raise DataError(
            "The column 'weight' counts repeated rows (the log-likelihood does not read it): it "
            "must be one finite non-negative number per row. Rename it if it means something else."
        )
    return {name: column for name, column in values.items() if name != "weight"}, weight
