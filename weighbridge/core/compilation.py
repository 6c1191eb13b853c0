"""Precision and compilation: what every entry point switches on before it computes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import numpy as np

from weighbridge.core import forking, interrupts

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def double_precision(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a function in double precision, whatever the user's global setting is.

    A log evidence near -10^6 to a hundredth of a nat needs eight digits. The user's own
    setting is untouched: the switch is a context, not a global flag.

    >>> import jax.numpy as jnp
    >>> double_precision(lambda: str(jnp.ones(1).dtype))()
    'float64'
    """

    @functools.wraps(function)
    def wrapper(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        forking.check()
        enable_compilation_cache()
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapper


def own(array: Any) -> np.ndarray[Any, Any]:
    """A view of an array: an object that no other code has given to JAX.

    JAX remembers, for the NumPy array objects in programs that are alive, the copy that it made at
    first, whatever the precision is now (its cache is keyed by the object alone; seen in 0.10). An
    array that other code has used in single precision would be one in our programs too, and one
    that we have used would break other code. So what comes from a user becomes a view before JAX
    sees it: data, numbers of priors, and arrays that functions read (``own_arrays``).

    >>> numbers = np.arange(3.0)
    >>> mine = own(numbers)
    >>> mine is numbers, np.shares_memory(mine, numbers)
    (False, True)
    """
    return np.asarray(array).view(np.ndarray)


Options = dict[str, bool | int | str]
# The usual settings of XLA on a CPU spend much of their time on what makes our programs no faster
# (``python -m benchmarks.compilation``, ``python -m benchmarks.blocks``) ...
QUICK_TO_COMPILE: Options = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
}
# ... but for large matrices and sums over many rows, which run up to twice as fast with fusion
# emitters.
QUICK_TO_RUN: Options = {"xla_backend_optimization_level": 1}


class Program(Generic[Result]):
    """A compiled function that is called by itself, never within another one.

    What ``jax.jit`` does, with settings of the compiler; those that this version of it does not
    know are left out.
    """

    def __init__(self, function: Callable[..., Result], options: Options, **settings: Any) -> None:
        self.function, self.options, self.settings = function, options, settings
        functools.update_wrapper(self, function)

    @functools.cached_property
    def compiled(self) -> Any:
        """The function, compiled when it is first called."""
        known = understood(tuple(self.options.items()))
        return jax.jit(self.function, compiler_options=known, **self.settings)

    def __call__(self, *args: Any, **kwargs: Any) -> Result:
        """Compile for arguments of a new kind, and run."""
        forking.check()
        interrupts.check_anywhere()
        if interrupts.may_leave():
            # Precision is a setting of each thread.
            precision = jax.config.values["jax_enable_x64"]
            return interrupts.leaving(partial(self._in, precision, *args, **kwargs))
        found: Result = self.compiled(*args, **kwargs)
        return found

    def _in(self, precision: bool, /, *args: Any, **kwargs: Any) -> Result:
        with jax.enable_x64(precision):
            found: Result = self.compiled(*args, **kwargs)
            return found

    def shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and types of what it returns, by tracing alone."""
        return self.compiled.eval_shape(*args, **kwargs)

    def num_traces(self) -> int:
        """How many kinds of arguments it has been called with; a new one may be traced anew."""
        return int(self.compiled._cache_size())


def jit(function: Callable[..., Result], **settings: Any) -> Program[Result]:
    """Compile quickly: for all programs but those of ``jit_for_speed``.

    >>> jit(lambda x: 2 * x)(np.ones(2)).tolist()
    [2.0, 2.0]
    """
    return Program(function, QUICK_TO_COMPILE, **settings)


def jit_for_speed(function: Callable[..., Result], **settings: Any) -> Program[Result]:
    """Compile what runs for long, which is worth a second more: sums over rows, chains."""
    return Program(function, QUICK_TO_RUN, **settings)


@functools.cache
def understood(options: tuple[tuple[str, bool | int | str], ...]) -> Options:
    """Those settings that the compiler knows; names of its settings come and go.

    >>> understood((("xla_no_such_setting", 1), ("xla_backend_optimization_level", 1)))
    {'xla_backend_optimization_level': 1}
    """

    def compiles(chosen: Options) -> bool:
        try:
            jax.jit(lambda: 0, compiler_options=chosen).lower().compile()
        except Exception:  # what is raised differs between versions, as the settings do
            return False
        return True

    chosen = dict(options)
    if compiles(chosen):
        return chosen
    return {name: value for name, value in options if compiles({name: value})}


@functools.cache
def enable_compilation_cache() -> None:
    """Keep compiled programs on disk, unless the user has a cache of their own.

    Off with the environment variable WEIGHBRIDGE_COMPILATION_CACHE=0; another value of it
    names the folder.
    """
    wanted = os.environ.get("WEIGHBRIDGE_COMPILATION_CACHE", "")
    if wanted == "0" or jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(wanted) if wanted else Path(home) / "weighbridge" / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a read-only home is no reason to fail: compile each time instead
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
