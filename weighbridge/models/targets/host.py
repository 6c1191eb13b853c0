"""A log-likelihood on the host, outside JAX: a plain NumPy function, called in batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.compilation import jit
from weighbridge.core.errors import ModelError
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, PyTree
from weighbridge.models.model import Model, unravel_positions
from weighbridge.models.priors import Parameters
from weighbridge.models.targets.term import ExactTerm
from weighbridge.models.targets.total import Total, on_data
from weighbridge.models.targets.unbounded import UnboundedError, describe_parameters

# Prior draws used to find out whether a function accepts several parameter sets at once.
PROBES = 3
# The largest relative difference between two calls with the same parameters.
SAME = 1e-9
# Clouds to remember: the end of a path, and the draws of two bridge fits before a second look.
KEPT_CLOUDS = 4

Named = dict[str, np.ndarray]


class RandomLikelihoodError(ModelError):
    """A log-likelihood on the host returns different numbers for the same parameters."""


class HostLikelihood:
    """The total log-likelihood of a model as a function on the host, called in batches.

    Attributes:
        num_calls: number of calls of the function.
        num_evaluations: number of parameter sets evaluated, over all calls.
        takes_batches: whether it takes many parameter sets in one call.
        failure: the error raised in a call from a compiled program, if any.
    """

    failure: Exception | None = None

    def __init__(self, model: Model, data: PyTree, position: Array | np.ndarray) -> None:
        function = model.total_log_likelihood
        assert function is not None
        self._function: Callable[[Named], Any] = on_data(function, data)
        self.num_calls = 0
        self.num_evaluations = 0
        self._known: list[tuple[Any, Any]] = []
        draws = {n: v[:PROBES] for n, v in self._named(model, position).items()}
        self.takes_batches = self._find_out(draws)
        self._require_same({n: v[:1] for n, v in draws.items()})

    def at(self, parameters: Named, wanted: np.ndarray) -> np.ndarray:
        """Log-likelihoods of the wanted parameter sets; -inf for the others.

        Args:
            parameters: arrays that begin with the axes of ``wanted``.
            wanted: which sets to evaluate.
        """
        values = np.full(wanted.shape, -np.inf)
        if wanted.any():
            chosen = {name: value[wanted] for name, value in parameters.items()}
            found = self._batch(chosen) if self.takes_batches else self._each(chosen)
            if np.any(found == np.inf):
                first = int(np.argmax(found == np.inf))
                one = {name: value[first] for name, value in chosen.items()}
                raise UnboundedError(None, f"for {describe_parameters(one)}")
            values[wanted] = found
        return values

    def of_cloud(self, model: Model, position: Array | np.ndarray) -> Any:
        """Log-likelihoods of all particles; remembered clouds are not evaluated again."""
        for where, values in self._known:
            if where is position or np.array_equal(where, position):
                return values
        parameters = self._named(model, position)
        everywhere = np.ones(position.shape[0] * position.shape[1], bool)
        values = self.at(parameters, everywhere).reshape(position.shape[:2])
        self.remember(position, values)
        return values

    def remember(self, position: Array | np.ndarray, values: Any) -> None:
        """Remember the values of this cloud and of the latest ones before it."""
        self._known = [(position, values), *self._known[: KEPT_CLOUDS - 1]]

    def _named(self, model: Model, position: Array | np.ndarray) -> Named:
        flat = position.reshape(-1, model.dimension)
        return as_numpy(model, unravel_positions(model, flat))

    def _require_same(self, parameters: Named) -> None:
        """Refuse a function that returns different numbers for the same parameters.

        Sums over threads may change the last digits between calls; this is allowed.
        """
        ask = self._batch if self.takes_batches else self._each
        first, second = ask(parameters), ask(parameters)
        if not np.allclose(first, second, rtol=SAME, atol=SAME, equal_nan=True):
            raise RandomLikelihoodError(
                "total_log_likelihood is random: called twice on the host with "
                f"{describe_parameters({n: v[0] for n, v in parameters.items()})} it returned "
                f"{float(first[0])!r} and {float(second[0])!r}. Take the random numbers out of it, "
                "or give it the same ones in each call (a generator with a fixed seed inside the "
                "function); a latent variable belongs in the prior."
            )

    def _find_out(self, draws: Named) -> bool:
        """Whether the function accepts a leading axis: tried with some sets, then with each one."""
        refused: Exception | None = None
        try:
            together = self._batch(draws)
            apart = [
                self._batch({n: v[i : i + 1] for n, v in draws.items()}) for i in range(PROBES)
            ]
            if np.allclose(together, np.concatenate(apart), rtol=1e-6, atol=1e-6, equal_nan=True):
                return True
        except Exception as error:
            refused = error
        try:
            self._each(draws)
        except Exception as error:
            if refused is None:
                raise
            raise refused from error
        return False

    def _batch(self, parameters: Named) -> np.ndarray:
        count = len(next(iter(parameters.values())))
        values = self._call(parameters, count)
        if values.shape != (count,):
            raise ModelError(
                f"total_log_likelihood was called on the host with {count} parameter sets at once "
                f"({_shapes(parameters)}) and returned the shape {values.shape}: it must return "
                f"one number for each, ({count},), or for one set of parameters a single number."
            )
        return values

    def _each(self, parameters: Named) -> np.ndarray:
        count = len(next(iter(parameters.values())))
        found = []
        for index in range(count):
            interrupts.check()
            one = {name: value[index] for name, value in parameters.items()}
            value = self._call(one, 1)
            if value.size != 1:
                raise ModelError(
                    "total_log_likelihood was called on the host with one set of parameters "
                    f"({_shapes(one)}) and returned the shape {value.shape}: it must return a "
                    "single number, or for a leading axis of n sets n numbers."
                )
            found.append(value.reshape(()))
        return np.array(found)

    def _call(self, parameters: Named, count: int) -> np.ndarray:
        self.num_calls += 1
        self.num_evaluations += count
        try:
            # Copies, so that the function may change them.
            result = self._function({name: value.copy() for name, value in parameters.items()})
        except Exception as error:
            error.add_note(
                "weighbridge called total_log_likelihood on the host, outside JAX, with "
                f"{_shapes(parameters)}; the first axis is that of parameter sets, if any."
            )
            raise
        values = np.asarray(result)
        if values.dtype.kind not in "biuf":
            raise ModelError(
                "total_log_likelihood must return real numbers; on the host it returned "
                f"{type(result).__name__} of type {values.dtype}."
            )
        return values.astype(np.float64)


@partial(register_dataclass, data_fields=[], meta_fields=["likelihood"])
@dataclass(frozen=True)
class OnHost(ExactTerm):
    """A likelihood on the host as a term of a compiled program, by a callback.

    It has no gradient. Positions under jax.vmap are evaluated in one call.
    """

    likelihood: HostLikelihood

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """Call the host function from the compiled program."""
        site = model.sites[0]

        def ask(bits: dict[str, Any]) -> np.ndarray:
            named = {name: np.asarray(bits[name]).view(np.float64)[..., 0] for name in model.names}
            axes = named[site.name].ndim - len(site.shape)
            everywhere = np.ones(named[site.name].shape[:axes], bool)
            try:
                return self.likelihood.at(named, everywhere)[..., None].view(np.uint32)
            except Exception as error:
                self.likelihood.failure = error
                raise

        # Passed as bits: JAX runs the callback in another thread, where doubles would become
        # floats.
        bits = {name: _bits(parameters[name]) for name in model.names}
        pair = jax.ShapeDtypeStruct((2,), np.uint32)
        found = jax.pure_callback(ask, pair, bits, vmap_method="broadcast_all")
        return jax.lax.bitcast_convert_type(found, np.float64)


def _bits(value: Array) -> Array:
    return jax.lax.bitcast_convert_type(jax.numpy.asarray(value, np.float64), np.uint32)


def _shapes(parameters: Named) -> str:
    return ", ".join(f"{name}{list(np.shape(value))}" for name, value in parameters.items())


def as_numpy(model: Model, parameters: dict[str, Array]) -> Named:
    """Named parameters as NumPy arrays, for a function on the host."""
    # JAX sorts the keys of a dict; users get them in the order of the prior.
    return {name: np.asarray(parameters[name]) for name in model.names}


# --- where a likelihood runs ---------------------------------------------------------------


@jit
def _total(model: Model, position: Array, data: PyTree) -> Array:
    return Total(data)(model, position, model.transform(position)[0])


def host_likelihood(
    model: Model, data: PyTree, position: Array | np.ndarray
) -> HostLikelihood | None:
    """The likelihood on the host, or None if JAX can trace it.

    A model may specify where it runs (``on_host``). Otherwise the function is traced, which
    computes nothing; if this fails, it is called on the host.

    Args:
        model: a model with a log-likelihood of rows, which is always traced, or of all data.
        data: the data argument of the function, if it has one.
        position: prior draws, islands x particles x coordinates, for trial calls.
    """
    if model.log_likelihood is not None:
        return None
    reason = _untraceable(model, data) if model.on_host is not True else None
    if reason is not None and model.on_host is False:
        raise ModelError(
            "JAX cannot trace the total_log_likelihood of this model, and on_host=False keeps it "
            f"from the host ({type(reason).__name__}). Use jax.numpy inside the function, or leave "
            "on_host out."
        ) from reason
    return HostLikelihood(model, data, position) if model.on_host or reason else None


def is_on_host(model: Model, data: PyTree) -> bool:
    """Whether the likelihood of a model runs on the host, so that it has no gradient."""
    if model.log_likelihood is not None:
        return False
    if model.on_host is not None:
        return model.on_host
    return _untraceable(model, data) is not None


def _untraceable(model: Model, data: PyTree) -> Exception | None:
    """The error if a function cannot be traced; if it can, its return type is checked."""
    abstract: Any = jax.ShapeDtypeStruct
    try:
        traced = _total.shape(model, abstract((model.dimension,), np.float64), data)
    except Exception as error:
        return error
    if traced.shape != () or not np.issubdtype(traced.dtype, np.floating):
        raise ModelError(
            f"total_log_likelihood must return one real number; it returns {traced.dtype} of the "
            f"shape {traced.shape}. Sum it over the data; or, if it is plain NumPy and takes many "
            "parameter sets at a time (a leading axis of every parameter), say so: "
            "wb.Model(..., on_host=True)."
        )
    return None
