"""Convert a NumPyro model function to a ``Model``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.infer.util
from numpyro import handlers
from numpyro.primitives import Messenger

from weighbridge.core.compilation import double_precision, own
from weighbridge.core.errors import ModelError, WeighbridgeError
from weighbridge.core.types import Array
from weighbridge.data.values import num_rows
from weighbridge.models.model import Model
from weighbridge.models.numpyro.agreement import check_agreement, check_total_agreement
from weighbridge.models.numpyro.arguments import as_numbers, check_names, example_rows, static_key
from weighbridge.models.numpyro.sites import first_line_of, inspect_all, inspect_sites
from weighbridge.models.own_arrays import with_own_arrays
from weighbridge.models.priors import Parameters, survives_flattening

# NumPyro has one list of handlers for the whole process: two threads that trace at the same time
# would see each other's sites.
_HANDLERS = threading.RLock()


@double_precision
def from_numpyro(
    model_fn: Callable[..., Any],
    data: Mapping[str, Any],
    *,
    static: Mapping[str, Any] | None = None,
    exchangeable: Mapping[str, int] | None = None,
    total: bool = False,
) -> Model:
    r"""Turn a NumPyro model function into a ``Model`` whose rows are dicts of its arguments.

    With latent sites theta and N rows, the function must define a joint density of the form

    .. math:: p(\theta) \prod_{n=1}^N p(y_n \mid x_n, \theta)

    The prior has one entry per latent site, in the order of the function. The log-likelihood of a
    row runs the function on that row alone. Both are compared with NumPyro's own values on the
    example rows at prior draws, and a function of another form is refused.

    Args:
        model_fn: the NumPyro model function; ``handlers.reparam`` around it is fine.
        data: the arguments that are observations, both inputs and outputs, with example rows: a
            mapping from argument names to arrays with one leading axis. A few rows are enough, at
            most 100 are used, and none is kept in the log-likelihood.
        static: the other arguments of the function, passed unchanged.
        exchangeable: latent sites whose entries may be permuted together, as in ``Model``.
        total: use all the data at once, with ``total_log_likelihood``: for functions that have a
            latent value for each row (eight schools), or rows that depend on each other. Then
            ``data`` are all the data, and the model keeps them: ``wb.evidence(model)``.

    Returns:
        A model for data given as a dict with the same keys as ``data``.

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> def regression(x, y=None):
    ...     w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    ...     s = numpyro.sample("s", dist.HalfNormal(1))
    ...     with numpyro.plate("rows", x.shape[0]):
    ...         numpyro.sample("y", dist.Normal(x @ w, s), obs=y)
    >>> from_numpyro(regression, {"x": np.ones((4, 2)), "y": np.arange(4.0)})
    Model(w[2], s; 3 dimensions)

    >>> def schools(sigma, y=None):
    ...     mu = numpyro.sample("mu", dist.Normal(0, 5))
    ...     with numpyro.plate("schools", len(sigma)):
    ...         theta = numpyro.sample("theta", dist.Normal(mu, 3))
    ...         numpyro.sample("y", dist.Normal(theta, sigma), obs=y)
    >>> from_numpyro(schools, {"sigma": np.ones(8), "y": np.arange(8.0)}, total=True)
    Model(mu, theta[8]; 9 dimensions)
    """
    check_names(model_fn, data, dict(static or {}))
    model_fn = with_own_arrays(model_fn)
    static = jax.tree_util.tree_map(
        lambda leaf: own(leaf) if isinstance(leaf, np.ndarray) else leaf, dict(static or {})
    )
    if total:
        return _total_model(model_fn, data, static, exchangeable)
    rows = example_rows(data)
    program = _Program(
        model_fn,
        tuple(sorted(data)),
        str(jax.tree_util.tree_structure(rows)),
        tuple((leaf.shape[1:], str(leaf.dtype)) for leaf in jax.tree_util.tree_leaves(rows)),
        static_key(static),
        {name: jax.tree_util.tree_map(lambda leaf: leaf[:1], rows[name]) for name in rows},
        static,
    )
    latent = inspect_sites(program.run, rows, program.example)
    with _traced("one row"):
        model = Model(
            {name: _prior_entry(program, name, latent) for name in latent},
            _RowLogLikelihood(program),
            exchangeable=exchangeable,
        )
        count = num_rows(data)
        by_row = [name for name, value in latent.items() if np.shape(value)[:1] == (count,)]
        sides = functools.partial(_both_sides, model, program)
        check_agreement(model, sides, rows, by_row if count > 1 else ())
    return model


def _total_model(
    model_fn: Callable[..., Any],
    data: Mapping[str, Any],
    static: Mapping[str, Any],
    exchangeable: Mapping[str, int] | None,
) -> Model:
    """A model of all the data at once; it keeps the data."""
    whole = {name: jax.tree_util.tree_map(as_numbers, column) for name, column in data.items()}
    structure = str(jax.tree_util.tree_structure(whole))
    # The data are part of the program.
    key = static_key({"static": static, "data": whole})
    program = _Program(model_fn, tuple(sorted(data)), structure, (), key, whole, static)
    latent = inspect_all(program.run, whole)
    with _traced("the data"):
        model = Model(
            {name: _prior_entry(program, name, latent) for name in latent},
            total_log_likelihood=_TotalLogLikelihood(program),
            exchangeable=exchangeable,
        )
        check_total_agreement(model, functools.partial(_joint_densities, model, program))
    return model


@contextlib.contextmanager
def _traced(what: str) -> Iterator[None]:
    """A block in which errors come from tracing the model function with JAX."""
    try:
        yield
    except WeighbridgeError:
        raise
    except Exception as error:
        raise ModelError(
            f"The NumPyro model fails when JAX traces it on {what}: "
            f"{first_line_of(error)} Its Python code must not read the values of an array (int(), "
            "np.unique(), if); pass numbers that it needs, such as a number of groups, with "
            "static={...}."
        ) from error


# What the model keeps is hashable, so that a second model of the same form compiles nothing. A
# fingerprint contains its name and module: after a move, saved runs would not be recognised.
@dataclasses.dataclass(frozen=True)
class _Program:
    """A NumPyro function and its arguments; equal if it computes the same."""

    model_fn: Callable[..., Any]
    arguments: tuple[str, ...]
    structure: str
    columns: tuple[Any, ...]
    static_key: Hashable
    example: Mapping[str, Any] = dataclasses.field(compare=False, repr=False)
    static: Mapping[str, Any] = dataclasses.field(compare=False, repr=False)

    def run(self, batch: Mapping[str, Any], *messengers: Messenger) -> None:
        """Call the function on a batch of rows, inside the handlers; the first is the outermost."""
        with _HANDLERS, contextlib.ExitStack() as stack:
            for messenger in messengers:
                stack.enter_context(messenger)
            self.model_fn(**batch, **self.static)

    def trace(self, batch: Mapping[str, Any], parameters: Parameters) -> dict[str, Any]:
        """Every sample site of the function on a batch, with the latent sites set."""
        recorder = handlers.trace()
        self.run(batch, recorder, handlers.substitute(data=dict(parameters)))
        return {n: site for n, site in recorder.trace.items() if site["type"] == "sample"}

    def one_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The batch that holds one row."""
        return {
            name: jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf)[None], row[name])
            for name in self.arguments
        }


@dataclasses.dataclass(frozen=True)
class _RowLogLikelihood:
    """The log-likelihood of one row: every observed site of the function on that row alone."""

    program: _Program

    def __call__(self, parameters: Parameters, row: Mapping[str, Any]) -> Array:
        sites = self.program.trace(self.program.one_row(row), parameters).values()
        return sum((_log_prob(site) for site in sites if site["is_observed"]), jnp.zeros(()))


@dataclasses.dataclass(frozen=True)
class _TotalLogLikelihood:
    """The log-likelihood of all the data: the model's own, or other data of the same shapes."""

    program: _Program

    def __call__(self, parameters: Parameters, data: Mapping[str, Any] | None = None) -> Array:
        kept = self.program.example
        given = kept if data is None else {name: data[name] for name in self.program.arguments}
        shapes = [[np.shape(leaf) for leaf in jax.tree_util.tree_leaves(d)] for d in (kept, given)]
        if shapes[0] != shapes[1]:
            raise ModelError(
                "The data have other shapes than those from which the model was made by "
                "wb.from_numpyro(..., total=True). Make a model from these data, or leave data out."
            )
        sites = self.program.trace(given, parameters).values()
        return sum((_log_prob(site) for site in sites if site["is_observed"]), jnp.zeros(()))


@dataclasses.dataclass(frozen=True)
class _SitePrior:
    """The prior of one latent site, given the earlier ones."""

    program: _Program
    name: str

    def __call__(self, parameters: Parameters) -> Any:
        finder, earlier = _Finder(self.name), handlers.substitute(data=dict(parameters))
        with contextlib.suppress(_FoundError):
            self.program.run(self.program.example, finder, earlier)
        return finder.found


class _FoundError(Exception):
    """Leaves a model function when the wanted site is reached."""


class _Finder(Messenger):
    def __init__(self, name: str) -> None:
        self.name, self.found = name, None
        super().__init__()

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and msg["name"] == self.name:
            self.found = _shaped(msg)
            raise _FoundError


def _shaped(site: Any) -> Any:
    """The distribution of a site, with the shape of its value."""
    function, extra = site["fn"], tuple(site["kwargs"].get("sample_shape", ()))
    return function.expand(extra + function.batch_shape) if extra else function


def _prior_entry(program: _Program, name: str, latent: Mapping[str, Any]) -> Any:
    """The distribution itself if it does not depend on earlier parameters, else the function."""
    prior = _SitePrior(program, name)
    varied = []

    # Under vmap only values that depend on the parameters are traced; all others are numbers.
    def evaluate(parameters: Parameters) -> None:
        leaves = jax.tree_util.tree_leaves(prior(parameters))
        varied.append(any(isinstance(leaf, jax.core.Tracer) for leaf in leaves))

    values = {site: jnp.asarray(value)[None] for site, value in latent.items()}
    jax.vmap(evaluate)(values)
    fixed = prior(dict(latent))
    return prior if any(varied) or not survives_flattening(fixed) else fixed


def _both_sides(
    model: Model, program: _Program, parameters: Parameters, rows: Mapping[str, Any]
) -> tuple[dict[str, Any], ...]:
    """Priors and likelihoods by site, each at every draw: (ours by row, NumPyro's total)."""

    def on_rows(draw: Parameters) -> tuple[Any, Any]:
        def on_row(row: Any) -> tuple[Any, Any]:
            return _by_site(program.trace(program.one_row(row), draw))

        priors, likelihoods = jax.vmap(on_row)(dict(rows))
        for site, prior in model._priors(dict(draw)):
            entry = jnp.sum(prior.log_prob(draw[site.name]))
            priors[site.name] = jnp.append(priors[site.name], entry)
        return priors, likelihoods

    ours = jax.vmap(on_rows)(parameters)
    priors = jax.vmap(lambda draw: _by_site(program.trace(rows, draw))[0])(parameters)
    function = functools.partial(program.model_fn, **rows, **program.static)
    with _HANDLERS:
        by_row = numpyro.infer.log_likelihood(function, parameters, parallel=True)
    totals = {n: jnp.sum(v, axis=tuple(range(1, v.ndim))) for n, v in by_row.items()}
    return tuple({n: (a[n], b[n]) for n in a} for a, b in zip(ours, (priors, totals)))


def _joint_densities(
    model: Model, program: _Program, parameters: Parameters
) -> tuple[Array, Array]:
    """The log density of parameters and data at every draw: ours, and NumPyro's."""

    def at_draw(draw: Parameters) -> tuple[Array, Array]:
        priors = (jnp.sum(prior.log_prob(draw[s.name])) for s, prior in model._priors(dict(draw)))
        likelihood = model.total_log_likelihood
        assert likelihood is not None
        ours = sum(priors, jnp.zeros(())) + likelihood(draw)
        arguments = {**program.example, **program.static}
        with _HANDLERS:
            theirs, _ = numpyro.infer.util.log_density(program.model_fn, (), arguments, draw)
        return ours, theirs

    return jax.vmap(at_draw)(parameters)


def _by_site(sites: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Log densities of the latent sites, and of the observed ones."""
    latent: dict[str, Array] = {}
    observed: dict[str, Array] = {}
    for name, site in sites.items():
        (observed if site["is_observed"] else latent)[name] = _log_prob(site)
    return latent, observed


def _log_prob(site: Any) -> Array:
    return jnp.sum(site["fn"].log_prob(site["value"]))
