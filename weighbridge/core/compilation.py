"""Precision and compilation: settings that every entry point applies before it computes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import numpy as np

from weighbridge.core import forking, interrupts

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def in_double_precision() -> AbstractContextManager[Any]:
    """A block that computes in double precision, whatever the user's global setting is.

    A log evidence near -10^6 with an accuracy of 0.01 nats needs eight digits. The user's own
    setting is unchanged: the switch is a context, not a global flag.

    >>> import jax.numpy as jnp
    >>> with in_double_precision():
    ...     str(jnp.ones(1).dtype)
    'float64'
    """
    forking.check()
    enable_compilation_cache()
    switched: AbstractContextManager[Any] = jax.enable_x64(True)
    return switched


def double_precision(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a whole function ``in_double_precision``.

    >>> import jax.numpy as jnp
    >>> double_precision(lambda: str(jnp.ones(1).dtype))()
    'float64'
    """

    @functools.wraps(function)
    def wrapper(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with in_double_precision():
            return function(*args, **kwargs)

    return wrapper


def own(array: Any) -> np.ndarray[Any, Any]:
    """A view of an array: a new object that no other code has passed to JAX.

    For NumPy arrays in live programs, JAX caches its first copy of each array object, and ignores
    the present precision (the cache key is the object alone; seen in jax 0.10). An array that other
    code used in single precision would have single precision in our programs too, and an array that
    we used would break other code. Therefore every array of a user becomes a view before JAX gets
    it: data, numbers of priors, and arrays that functions read (``own_arrays``).

    >>> numbers = np.arange(3.0)
    >>> mine = own(numbers)
    >>> mine is numbers, np.shares_memory(mine, numbers)
    (False, True)
    """
    return np.asarray(array).view(np.ndarray)


Options = dict[str, bool | int | str]
# XLA's default settings on a CPU spend much time on optimisations that do not speed up our programs
# (``python -m benchmarks.speed.compilation``, ``python -m benchmarks.speed.blocks``).
QUICK_TO_COMPILE: Options = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
}
# Exceptions: large matrices and sums over many rows run up to twice as fast with fusion emitters.
QUICK_TO_RUN: Options = {"xla_backend_optimization_level": 1}
# A program that runs once or twice, on few numbers: without optimisation it compiles in a third of
# the time.
QUICKEST_TO_COMPILE: Options = QUICK_TO_COMPILE | {"xla_backend_optimization_level": 0}
# A program that reads at least this many numbers is compiled to run fast, not to compile fast.
MANY_NUMBERS = 100_000


class Program(Generic[Result]):
    """A compiled function that is called directly, never inside another compiled function.

    Like ``jax.jit``, with compiler settings. Settings that this version of the compiler does not
    know are left out.
    """

    def __init__(self, function: Callable[..., Result], options: Options, **settings: Any) -> None:
        self.function, self.options, self.settings = function, options, settings
        functools.update_wrapper(self, function)

    @functools.cached_property
    def compiled(self) -> Any:
        """The function, compiled when it is first called."""
        known = understood(self.options)
        return jax.jit(self.function, compiler_options=known, **self.settings)

    def __call__(self, *args: Any, **kwargs: Any) -> Result:
        """Compile if the arguments are of a new kind, and run."""
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
        """Shapes and types of the return value, found by tracing only."""
        return self.compiled.eval_shape(*args, **kwargs)

    def num_traces(self) -> int:
        """Number of kinds of arguments used in calls; a new kind may need a new trace."""
        return int(self.compiled._cache_size())


def jit(function: Callable[..., Result], **settings: Any) -> Program[Result]:
    """Compile quickly; used for all programs except those of ``jit_for_speed``.

    >>> jit(lambda x: 2 * x)(np.ones(2)).tolist()
    [2.0, 2.0]
    """
    return Program(function, QUICK_TO_COMPILE, **settings)


def jit_for_speed(function: Callable[..., Result], **settings: Any) -> Program[Result]:
    """Compile a long-running program (sums over rows, chains): about a second more to compile."""
    return Program(function, QUICK_TO_RUN, **settings)


def jit_for_few_calls(function: Callable[..., Result], **settings: Any) -> Program[Result]:
    """Compile without optimisation: for a program that is called once in a run, on few numbers."""
    return Program(function, QUICKEST_TO_COMPILE, **settings)


class EitherProgram(Generic[Result]):
    """A program in two forms: one compiles faster, the other runs faster on many numbers.

    >>> twice = EitherProgram(lambda x: 2 * x)
    >>> twice.for_numbers(10) is twice.quick, twice.for_numbers(10**6) is twice.fast
    (True, True)
    """

    def __init__(self, function: Callable[..., Result], **settings: Any) -> None:
        self.quick: Program[Result] = jit(function, **settings)
        self.fast: Program[Result] = jit_for_speed(function, **settings)

    def for_numbers(self, count: int) -> Program[Result]:
        """The form for a program that reads this many numbers in each evaluation."""
        return self.fast if count >= MANY_NUMBERS else self.quick

    def num_traces(self) -> int:
        """Number of kinds of arguments used in calls, of both forms."""
        return self.quick.num_traces() + self.fast.num_traces()


def understood(options: Options) -> Options:
    """The settings that the compiler knows; their names change between versions.

    >>> understood({"xla_no_such_setting": 1, "xla_backend_optimization_level": 1})
    {'xla_backend_optimization_level': 1}
    """
    # The settings of all programs are tried together, once: each try compiles a program.
    if options.keys() <= QUICK_TO_COMPILE.keys() and _compiles(tuple(QUICK_TO_COMPILE.items())):
        return options
    return {name: value for name, value in options.items() if _compiles(((name, value),))}


@functools.cache
def _compiles(options: tuple[tuple[str, bool | int | str], ...]) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options=dict(options)).lower().compile()
    except Exception:  # the exception differs between versions
        return False
    return True


@functools.cache
def enable_compilation_cache() -> None:
    """Keep compiled programs on disk, unless the user has set a cache folder.

    The environment variable WEIGHBRIDGE_COMPILATION_CACHE=0 switches this off; any other value is
    the folder.
    """
    wanted = os.environ.get("WEIGHBRIDGE_COMPILATION_CACHE", "")
    if wanted == "0" or jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(wanted) if wanted else Path(home) / "weighbridge" / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # read-only home: compile each time
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
