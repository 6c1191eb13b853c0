"""A description of what a model computes, as text that is the same in every process."""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import functools
import hashlib
import inspect
import re
import types
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist

_LIBRARIES = ("builtins", "jax", "jaxlib", "math", "numpy", "numpyro", "scipy")


def describe(value: Any, seen: tuple[int, ...] = ()) -> str:
    """Describe numbers, containers, distributions and functions by content, not by address.

    >>> describe([1, "a"])
    "list(int:1,str:'a')"
    >>> describe(lambda x: x + 1) == describe(lambda x: x + 1)
    True
    """
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
        return f"module:{_public(value.__name__)}"
    parts = [describe(part, seen) for part in _parts(value)]
    if isinstance(value, set | frozenset):
        parts.sort()
    return f"{kind}({','.join(parts)})"


def _parts(value: Any) -> list[Any]:
    """The parts on which an object's results depend; empty if they are unknown."""
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    if isinstance(value, types.CodeType):
        return [*value.co_names, *_steps(value)]
    if is_library(value) or isinstance(value, type):
        return [_public(value.__module__), getattr(value, "__qualname__", value.__name__)]
    if isinstance(value, types.FunctionType):
        return _function_parts(value)
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if type(value).__module__.split(".")[0] in ("jax", "jaxlib") and hasattr(value, "__wrapped__"):
        return [value.__wrapped__]  # compiled; its attributes hold its location
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


def _public(module: str) -> str:
    """The name of a module; for all modules of this library, which may move, its own name."""
    package = __name__.partition(".")[0]
    return package if module.partition(".")[0] == package else module


def _steps(code: types.CodeType) -> list[Any]:
    """The instructions of a code object, each with the constant it reads; without docstrings."""
    steps: list[Any] = []
    for step in dis.get_instructions(code):
        constant = step.opcode in dis.hasconst
        steps += [step.opname, step.argval if constant else step.arg]
    return steps


def is_library(value: Any) -> bool:
    """Whether this is a function of a known library, which its name identifies."""
    module = str(getattr(value, "__module__", "")).split(".")[0]
    return callable(value) and hasattr(value, "__name__") and module in _LIBRARIES


def _function_parts(function: types.FunctionType) -> list[Any]:
    """Code, defaults, and the outer values that the code reads."""
    return [
        function.__code__,
        function.__defaults__,
        function.__kwdefaults__,
        outer_values(function),
    ]


def outer_values(function: types.FunctionType) -> dict[str, Any]:
    """The values that a function reads from outside; not those it writes, such as a counter.

    >>> rate = 2.0
    >>> outer_values(lambda x: rate * x + missing)
    {'missing': None, 'rate': 2.0}
    """
    read, written = _outer_names(function.__code__)
    outer = {name: _global_value(function, name) for name in read}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # an empty cell
            outer[name] = cell.cell_contents
    return {name: outer[name] for name in sorted(outer.keys() - written)}


def writes_outside(function: types.FunctionType) -> bool:
    """Whether a function binds global names.

    >>> writes_outside(lambda x: x)
    False
    """
    codes, found = [function.__code__], False
    while codes and not found:
        code = codes.pop()
        codes += [value for value in code.co_consts if isinstance(value, types.CodeType)]
        found = any(step.opname == "STORE_GLOBAL" for step in dis.get_instructions(code))
    return found


def _outer_names(code: types.CodeType) -> tuple[set[str], set[str]]:
    """Global names that a code object and its inner ones read, and outer names that they write."""
    codes, read, written = [code], set(), set()
    while codes:
        code = codes.pop()
        codes += [value for value in code.co_consts if isinstance(value, types.CodeType)]
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("STORE_GLOBAL", "STORE_DEREF"):
                written.add(instruction.argval)
            elif instruction.opname == "LOAD_GLOBAL":
                read.add(instruction.argval)
    return read, written


def _global_value(function: types.FunctionType, name: str) -> Any:
    # Not get(): the functions of a model may look up names elsewhere (see own_arrays).
    try:
        return function.__globals__[name]
    except KeyError:
        return None


def traced_text(program: Any) -> str:
    """The program that JAX has traced, as text, with its constants and without addresses.

    >>> one, two = (jax.make_jaxpr(lambda x: c * x)(1.0) for c in (np.ones(2), np.zeros(2)))
    >>> traced_text(one) == traced_text(two)
    False
    """
    text = re.sub(r"0x[0-9a-f]+", "", str(program.jaxpr))
    return text + "".join(np.asarray(constant).tobytes().hex() for constant in program.consts)
