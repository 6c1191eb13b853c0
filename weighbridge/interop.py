"""Models written in other libraries: a NumPyro model function as a ``Model``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.primitives import Messenger

from weighbridge.base import Array, DataError, ModelError, PyTree, WeighbridgeError
from weighbridge.model import (
    Model,
    draw_positions,
    unravel_positions,
)
from weighbridge.numerics import double_precision
from weighbridge.priors import Parameters, survives_flattening

NUM_CHECK_ROWS = 100
NUM_CHECK_DRAWS = 3
CHECK_SEEDS = 8  # a set of draws where no likelihood is finite checks nothing: try the next
TOLERANCE = 1e-6

# NumPyro keeps its handlers in one list for the whole process: two threads that trace at the
# same time would see each other's sites.
_HANDLERS = threading.RLock()


@double_precision
def from_numpyro(
    model_fn: Callable[..., Any],
    data: Mapping[str, Any],
    *,
    static: Mapping[str, Any] | None = None,
    exchangeable: Mapping[str, int] | None = None,
) -> Model:
    r"""Turn a NumPyro model function into a ``Model`` whose rows are dicts of its arguments.

    With latent sites theta and N rows, the function must define a joint density of the form

    .. math:: p(\theta) \prod_{n=1}^N p(y_n \mid x_n, \theta)

    The prior has one entry per latent site, in the order of the function. The log-likelihood
    of a row runs the function on that row alone. Both are compared with NumPyro's own numbers
    on the example rows at prior draws, and a function of another form is refused.

    Args:
        model_fn: the NumPyro model function; ``handlers.reparam`` around it is fine.
        data: the arguments that are observations, inputs and outputs alike, with example rows:
            a mapping from argument names to arrays with one leading axis. A few rows will do,
            up to 100 are looked at, and none is kept in the log-likelihood.
        static: the other arguments of the function, passed as they are.
        exchangeable: latent sites whose entries may be permuted together, as in ``Model``.

    Returns:
        A model for data given as a dict with the same keys as ``data``.

    >>> import numpyro, numpyro.distributions as dist
    >>> def regression(x, y=None):
    ...     w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    ...     s = numpyro.sample("s", dist.HalfNormal(1))
    ...     with numpyro.plate("rows", x.shape[0]):
    ...         numpyro.sample("y", dist.Normal(x @ w, s), obs=y)
    >>> from_numpyro(regression, {"x": np.ones((4, 2)), "y": np.arange(4.0)})
    Model(w[2], s; 3 dimensions)
    """
    static = dict(static or {})
    _check_names(model_fn, data, static)
    rows = _example_rows(data)
    program = _Program(
        model_fn,
        tuple(sorted(data)),
        str(jax.tree_util.tree_structure(rows)),
        tuple((leaf.shape[1:], str(leaf.dtype)) for leaf in jax.tree_util.tree_leaves(rows)),
        _static_key(static),
        {name: jax.tree_util.tree_map(lambda leaf: leaf[:1], rows[name]) for name in rows},
        static,
    )
    latent = _inspect(program, rows)
    try:
        model = Model(
            {name: _prior_entry(program, name, latent) for name in latent},
            _RowLogLikelihood(program),
            exchangeable=exchangeable,
        )
        _check_against_numpyro(model, program, rows)
    except WeighbridgeError:
        raise
    except Exception as error:
        raise ModelError(
            "The NumPyro model fails when JAX traces it on one row: "
            f"{_first_line(error)} Its Python code must not read the values of an array (int(), "
            "np.unique(), if); pass numbers that it needs, such as a number of groups, with "
            "static={...}."
        ) from error
    return model


# --- what the model keeps: hashable, so that a second model of the same make compiles nothing


@dataclasses.dataclass(frozen=True)
class _Program:
    """A NumPyro function and how it is called; equal if it computes the same."""

    model_fn: Callable[..., Any]
    arguments: tuple[str, ...]
    structure: str
    columns: tuple[Any, ...]
    static_key: Hashable
    example: Mapping[str, Any] = dataclasses.field(compare=False, repr=False)
    static: Mapping[str, Any] = dataclasses.field(compare=False, repr=False)

    def run(self, batch: Mapping[str, Any], *messengers: Messenger) -> None:
        """Call the function on a batch of rows, inside the handlers; the first is outermost."""
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
class _SitePrior:
    """The prior of one latent site, given those before it."""

    program: _Program
    name: str

    def __call__(self, parameters: Parameters) -> Any:
        finder, earlier = _Finder(self.name), handlers.substitute(data=dict(parameters))
        with contextlib.suppress(_FoundError):
            self.program.run(self.program.example, finder, earlier)
        return finder.found


class _FoundError(Exception):
    """Leaves a model function as soon as the site that is looked for is reached."""


class _Finder(Messenger):
    def __init__(self, name: str) -> None:
        self.name, self.found = name, None
        super().__init__()

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and msg["name"] == self.name:
            self.found = _shaped(msg)
            raise _FoundError


def _shaped(site: Any) -> Any:
    """The distribution of a site, with the shape that its value has."""
    function, extra = site["fn"], tuple(site["kwargs"].get("sample_shape", ()))
    return function.expand(extra + function.batch_shape) if extra else function


def _prior_entry(program: _Program, name: str, latent: Mapping[str, Any]) -> Any:
    """The distribution itself if no earlier parameter enters it, else the function."""
    prior = _SitePrior(program, name)
    varied = []

    # Under vmap only what depends on the parameters is traced; everything else is a number.
    def evaluate(parameters: Parameters) -> None:
        leaves = jax.tree_util.tree_leaves(prior(parameters))
        varied.append(any(isinstance(leaf, jax.core.Tracer) for leaf in leaves))

    values = {site: jnp.asarray(value)[None] for site, value in latent.items()}
    jax.vmap(evaluate)(values)
    fixed = prior(dict(latent))
    return prior if any(varied) or not survives_flattening(fixed) else fixed


# --- checks: every NumPyro feature that has no meaning here is named ---------------------


class _Inspector(Messenger):
    """Outermost handler: sees each site as inference would, and refuses what cannot be used."""

    def __init__(self) -> None:
        self.latent: dict[str, Array] = {}
        self.observed: list[str] = []
        super().__init__()

    def process_message(self, msg: Any) -> None:
        kind, name = msg["type"], msg.get("name")
        if kind in ("param", "mutable"):
            raise ModelError(
                f"The site {name!r} is a numpyro.{kind}: it has no prior, so the evidence is "
                "undefined. Give it a prior with numpyro.sample, or pass it with static={...}."
            )
        if kind == "plate" and msg["args"][1] not in (None, msg["args"][0]):
            raise ModelError(
                f"The plate {name!r} is subsampled ({msg['args'][1]} of {msg['args'][0]} rows). "
                "Leave subsample_size out: weighbridge takes mini-batches itself."
            )
        if kind == "sample":
            _refuse_site(name, msg)

    def postprocess_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and msg["is_observed"]:
            self.observed.append(msg["name"])
        elif msg["type"] == "sample":
            self.latent[msg["name"]] = msg["value"]


def _refuse_site(name: str, site: Any) -> None:
    kinds = {type(inner).__name__ for inner in _layers(site["fn"])}
    if "Unit" in kinds:
        raise ModelError(
            f"The site {name!r} is a numpyro.factor: it could be part of the prior or of the "
            "likelihood, and may not be normalised. Write it as numpyro.sample(..., obs=...), or "
            "write the model as wb.Model(prior, log_likelihood)."
        )
    if site["scale"] is not None and not np.all(np.asarray(site["scale"]) == 1):
        raise ModelError(
            f"The site {name!r} has its log density scaled (handlers.scale), which changes the "
            "evidence. Remove the handler; rows that repeat are given by a column 'weight' of "
            "the data."
        )
    if "MaskedDistribution" in kinds:
        raise ModelError(
            f"The site {name!r} is masked (handlers.mask, .mask() or obs_mask). Remove the mask: "
            "leave the masked rows out of the data, or write jnp.where in the log-likelihood of "
            "wb.Model(prior, log_likelihood)."
        )
    if site["is_observed"]:
        return
    if "ImproperUniform" in kinds:
        raise ModelError(
            f"The prior of {name!r} is improper (ImproperUniform): the evidence is undefined. Use "
            "a proper prior, such as a wide Normal or a bounded Uniform."
        )
    if site["fn"].is_discrete:
        raise ModelError(
            f"The latent site {name!r} is discrete ({_base_name(site['fn'])}). If it is an "
            "observation, give its values in data; if not, sum it out of the likelihood, for "
            "example with dist.MixtureSameFamily."
        )
    if site.get("_control_flow_done"):
        raise ModelError(
            f"The latent site {name!r} is drawn inside scan or cond, where its prior depends on "
            "itself. Draw it outside, as one array with its joint distribution (for example "
            "dist.GaussianRandomWalk)."
        )


def _layers(distribution: Any) -> Iterator[Any]:
    while distribution is not None:
        yield distribution
        distribution = getattr(distribution, "base_dist", None)


def _base_name(distribution: Any) -> str:
    return type(list(_layers(distribution))[-1]).__name__


def _inspect(program: _Program, rows: Mapping[str, Any]) -> dict[str, Array]:
    """A prior draw of each latent site; run on all example rows and on one, to compare."""
    full, single = _Inspector(), _Inspector()
    for inspector, batch in ((full, rows), (single, program.example)):
        try:
            program.run(batch, inspector, handlers.seed(rng_seed=0))
        except WeighbridgeError:
            raise
        except Exception as error:
            raise ModelError(
                f"The NumPyro model fails on {'all' if batch is rows else 'one'} of the example "
                f"rows: {_first_line(error)} Check the names and shapes of data and static; the "
                "size of a plate over the rows must come from the shape of an argument."
            ) from error
    for name in [*full.latent, *single.latent]:
        shapes = [np.shape(i.latent[name]) for i in (full, single) if name in i.latent]
        if len(shapes) < 2 or shapes[0] != shapes[1]:
            raise ModelError(
                f"The latent site {name!r} has entries for each row of the data (it is inside the "
                "data plate). If it is an observation, give its values in data; if not, integrate "
                "it out of the likelihood, or index a fixed number of groups instead."
            )
    if not full.latent:
        raise ModelError("The NumPyro model has no latent site: there is nothing to integrate.")
    if not single.observed:
        raise ModelError(
            "The NumPyro model has no observed site. Give the values of its outputs in data, and "
            "pass them on with obs=."
        )
    if full.observed != single.observed:
        raise ModelError(
            f"The NumPyro model has other observed sites for {_num_rows(rows)} rows "
            f"({full.observed[:3]}, ...) than for one ({single.observed}). Write one site for all "
            "rows, inside a plate."
        )
    return single.latent


def _check_against_numpyro(model: Model, program: _Program, rows: Mapping[str, Any]) -> None:
    """Compare prior and likelihood with NumPyro's own numbers, at prior draws."""
    compare = jax.jit(lambda parameters, rows: _both_sides(model, program, parameters, rows))
    for seed in range(CHECK_SEEDS):
        positions = draw_positions(model, jax.random.key(seed), NUM_CHECK_DRAWS)
        parameters = unravel_positions(model, positions)
        priors, likelihoods = jax.tree_util.tree_map(np.asarray, compare(parameters, rows))
        for name, (ours, theirs) in priors.items():
            gap, worst = _largest_gap(ours, theirs[:, None], np.abs(theirs)[:, None])
            if gap > TOLERANCE:
                raise ModelError(
                    f"The prior of {name!r} depends on the data: its log density at a prior draw "
                    f"is {theirs[worst[0]]:.6g} with all example rows and {ours[worst]:.6g} with "
                    "one of them. Compute what it needs beforehand and pass it with static={...}."
                )
        for name, (ours, theirs) in likelihoods.items():
            total = ours.sum(axis=1)
            gap, worst = _largest_gap(total, theirs, np.abs(ours).sum(axis=1))
            if gap > TOLERANCE:
                raise ModelError(
                    f"The observed site {name!r} does not factorise over rows: at a prior draw "
                    f"its log-likelihood is {theirs[worst]:.8g} on {ours.shape[1]} rows together, "
                    f"and the rows one by one sum to {total[worst]:.8g} (difference "
                    f"{total[worst] - theirs[worst]:.3g}). Each row must enter alone, inside a "
                    "plate whose size comes from an argument's shape; pass statistics of the "
                    "whole data with static={...}. A time series needs "
                    "wb.Model(prior, total_log_likelihood=...)."
                )
        if all(np.isfinite(theirs).any() for _, theirs in likelihoods.values()):
            return
    raise ModelError(
        f"The log-likelihood of {sorted(likelihoods)} is not finite at any of "
        f"{CHECK_SEEDS * NUM_CHECK_DRAWS} prior draws, so that it cannot be checked. Check the "
        "example rows, or use a prior that gives them a positive density."
    )


def _both_sides(
    model: Model, program: _Program, parameters: Parameters, rows: Mapping[str, Any]
) -> tuple[dict[str, Any], ...]:
    """Priors and likelihoods by site, each at every draw: (ours by row, NumPyro's in all)."""

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


def _by_site(sites: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Log densities of the latent sites, and of the observed ones."""
    latent: dict[str, Array] = {}
    observed: dict[str, Array] = {}
    for name, site in sites.items():
        (observed if site["is_observed"] else latent)[name] = _log_prob(site)
    return latent, observed


def _log_prob(site: Any) -> Array:
    return jnp.sum(site["fn"].log_prob(site["value"]))


def _largest_gap(ours: np.ndarray, theirs: np.ndarray, size: np.ndarray) -> tuple[float, Any]:
    """The largest relative difference, and where; equal infinities agree."""
    ours, theirs, size = np.broadcast_arrays(ours, theirs, size)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    finite = np.isfinite(ours) & np.isfinite(theirs)
    with np.errstate(invalid="ignore"):
        gaps = np.abs(ours - theirs) / np.maximum(size, 1.0)
    gaps = np.where(same, 0.0, np.where(finite, gaps, np.inf))
    worst = np.unravel_index(np.argmax(gaps), gaps.shape)
    return float(gaps[worst]), worst


# --- the arguments -----------------------------------------------------------------------


def _check_names(model_fn: Any, data: Any, static: Mapping[str, Any]) -> None:
    if not callable(model_fn):
        raise ModelError(f"model_fn must be a NumPyro model function, not {model_fn!r}.")
    if not isinstance(data, Mapping) or not data:
        raise DataError(
            "data must map the names of the model function's data arguments to arrays of example "
            'rows: {"x": x, "y": y}.'
        )
    both = sorted(set(data) & set(static))
    if both:
        raise ModelError(f"The arguments {both} are in data and in static; give each once.")
    try:
        inspect.signature(model_fn).bind(**data, **static)
    except TypeError as error:
        raise ModelError(
            f"The model function cannot be called with data {list(data)} and static "
            f"{list(static)}: {error}. Name each of its arguments in one of the two."
        ) from None


def _example_rows(data: Mapping[str, Any]) -> dict[str, Any]:
    """Up to a hundred rows spread over the data, two at least, floats in double precision."""
    lengths: dict[tuple[str, int], int] = {}
    for name, column in data.items():
        leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(column)]
        if not leaves or any(leaf.dtype.kind not in "fiub" or not leaf.ndim for leaf in leaves):
            raise DataError(
                f"data[{name!r}] must be an array of numbers with the rows along its first axis; "
                "pass other arguments with static={...}."
            )
        lengths |= {(name, index): len(leaf) for index, leaf in enumerate(leaves)}
    sizes = set(lengths.values())
    if len(sizes) > 1 or 0 in sizes:
        counts = {name: length for (name, _), length in lengths.items()}
        raise DataError(f"The columns of data must have one length of at least 1, not {counts}.")
    count = sizes.pop()
    # One row given twice still tells what grows with the rows.
    chosen = np.linspace(0, count - 1, min(max(count, 2), NUM_CHECK_ROWS)).astype(int)

    def pick(leaf: Any) -> np.ndarray:
        rows: np.ndarray = np.asarray(leaf)[chosen]
        return rows.astype(np.float64) if rows.dtype.kind == "f" else rows

    return {name: jax.tree_util.tree_map(pick, column) for name, column in data.items()}


class _Opaque:
    """A static argument that cannot be compared: equal to itself only."""


def _static_key(static: Mapping[str, Any]) -> Hashable:
    leaves, structure = jax.tree_util.tree_flatten(dict(static))
    return str(structure), tuple(_leaf_key(leaf) for leaf in leaves)


def _leaf_key(leaf: Any) -> Hashable:
    if isinstance(leaf, np.ndarray | jax.Array):
        array = np.asarray(leaf)
        return array.shape, str(array.dtype), hashlib.sha256(array.tobytes()).hexdigest()
    try:
        hash(leaf)
    except TypeError:
        return _Opaque()
    return type(leaf).__name__, leaf


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}."


def _num_rows(rows: PyTree) -> int:
    return len(jax.tree_util.tree_leaves(rows)[0])
