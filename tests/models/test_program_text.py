"""What a model computes, as text: the same in every process, and other for another program."""

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from weighbridge.models.model import Model
from weighbridge.models.program_text import describe, traced_text


def no_data(parameters, row):
    return jnp.zeros(())


SCRIPT = """
import jax, numpyro.distributions as dist
from weighbridge.models.model import Model

model = Model(
    {"t": dist.TruncatedNormal(0.5, 2.0, low=-1.0, high=3.0), "s": dist.StudentT(3.0, 1.0, 2.0),
     "w": dist.LogNormal(0, 1).expand([3]).to_event(1)},
    lambda p, y: p["t"] * y if y not in {"a", "b", "c"} else p["s"],
)
print(model.fingerprint(), [float(leaf.sum()) for leaf in jax.tree_util.tree_leaves(model)])
"""


@pytest.mark.long
def test_fingerprint_and_leaf_order_are_the_same_in_every_process():
    # NumPyro orders the fields of a distribution by Python's string hash, which is random.
    outputs = set()
    for seed in ("1", "2", "3"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"}
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        outputs.add(run.stdout)
    assert len(outputs) == 1


SCALE = 1.0


def _helper(x):
    return 2.0 * x


def _make_likelihood(scale, function=None, tables=(), *, default=1.0):
    def log_likelihood(p, y, extra=default):
        inner = [lambda v: v * scale, function or (lambda v: v)]
        return sum(f(p["a"]) for f in inner) * y * extra + sum(jnp.sum(t) for t in tables)

    return log_likelihood


class CallableObject:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, p, y):
        return self.scale * p["a"] * y

    def method(self, p, y):
        return self.scale * p["a"] * y + 1.0


def _squared(p, y, scale=1.0):
    return scale * p["a"] ** 2 * y


SAME = {
    "code": lambda: lambda p, y: p["a"] * y,
    "closure": lambda: _make_likelihood(2.0),
    "array": lambda: _make_likelihood(2.0, tables=(np.arange(3.0),)),
    "function": lambda: _make_likelihood(2.0, _helper),
    "jitted": lambda: jax.jit(_make_likelihood(2.0)),
    "partial": lambda: functools.partial(_squared, scale=2.0),
    "object": lambda: CallableObject(2.0),
    "method": lambda: CallableObject(2.0).method,
    "global": lambda: lambda p, y: SCALE * _helper(p["a"]),
    "nested": lambda: lambda p, y: jax.lax.cond(y > 0, lambda: p["a"] * 3.0, lambda: p["a"]),
}


@pytest.mark.parametrize("name", SAME)
def test_fingerprint_is_the_same_for_the_same_program(name):
    prior = {"a": dist.Normal(0, 1)}
    model, again = (Model(prior, SAME[name]()) for _ in range(2))
    assert model.fingerprint() == again.fingerprint()
    assert len(model.fingerprint()) == 16
    jax.make_jaxpr(lambda p, y: model.log_likelihood(p, y))({"a": 1.0}, 2.0)
    assert model.fingerprint() == again.fingerprint()


def test_fingerprint_differs_where_the_program_does(monkeypatch):
    likelihoods = [make() for make in SAME.values()]
    likelihoods += [
        lambda p, y: p["a"] + y,
        lambda p, y: p["b"] * y,
        lambda p, y: 2.0 * p["a"] * y,
        lambda p, y: 3.0 * p["a"] * y,
        lambda p, y: jax.lax.cond(y > 0, lambda: p["a"] * 4.0, lambda: p["a"]),
        _make_likelihood(3.0),
        _make_likelihood(2.0, default=2.0),
        _make_likelihood(2.0, jnp.exp),
        _make_likelihood(2.0, jnp.sin),
        _make_likelihood(2.0, lambda x: 3.0 * x),
        _make_likelihood(2.0, tables=(np.arange(4.0),)),
        _make_likelihood(2.0, tables=(np.arange(3),)),
        _make_likelihood(2.0, tables=({"x": 1.0},)),
        _make_likelihood(2.0, tables=({"x": 2.0},)),
        _make_likelihood(dist.Normal(0, 1)),
        _make_likelihood(dist.Normal(0, 2)),
        functools.partial(_squared, scale=3.0),
        CallableObject(3.0),
        CallableObject(3.0).method,
        jax.jit(_make_likelihood(5.0)),
    ]
    prior = {"a": dist.Normal(0, 1)}
    prints = [Model(prior, function).fingerprint() for function in likelihoods]
    assert len(set(prints)) == len(prints)

    uses_global = Model(prior, lambda p, y: SCALE * p["a"])
    before = uses_global.fingerprint()
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 2.0)
    assert uses_global.fingerprint() != before


def test_fingerprint_differs_for_another_prior():
    base = {"a": dist.Normal(0, 1), "b": lambda p: dist.Normal(p["a"], 1.0)}
    priors = [
        base,
        base | {"a": dist.Normal(0, 2)},
        base | {"a": dist.Normal(1e-12, 1)},
        base | {"a": dist.Cauchy(0, 1)},
        base | {"a": dist.Normal(0, 1).expand([1])},
        base | {"b": lambda p: dist.Normal(p["a"], 2.0)},
        base | {"c": dist.Normal(0, 1)},
        {"a": base["a"], "c": base["b"]},
        {"a": dist.LogNormal(0, 1)},
        {"a": dist.TruncatedNormal(0.0, 1.0, low=0.0, high=1.0)},
        {"a": dist.TruncatedNormal(0.0, 1.0, low=0.0, high=2.0)},
    ]
    models = [Model(prior, no_data) for prior in priors]
    models.append(Model(base, total_log_likelihood=no_data))
    models.append(Model({"a": dist.Normal(0, 1).expand([2])}, no_data))
    models.append(Model({"a": dist.Normal(0, 1).expand([2])}, no_data, exchangeable={"a": 0}))
    prints = [model.fingerprint() for model in models]
    assert len(set(prints)) == len(prints)
    assert prints[0] == Model(dict(base), no_data).fingerprint()


def test_fingerprint_ignores_a_counter_and_survives_cycles():
    count = 0

    def counting(p, y):
        nonlocal count
        count += 1
        return counting.scale * p["a"] if hasattr(counting, "scale") else p["a"] * y

    model = Model({"a": dist.Normal(0, 1)}, counting)
    before = model.fingerprint()
    model.log_likelihood({"a": 1.0}, 2.0)
    assert count == 1
    assert model.fingerprint() == before


def test_text_tells_programs_apart_by_what_they_hold():
    assert describe(np.arange(3)) == describe(np.arange(3).copy()) != describe(np.arange(4))
    assert describe({"a", "b", "c"}) == describe({"c", "b", "a"})
    cycle = []
    cycle.append(cycle)
    assert "<cycle>" in describe(cycle)


def test_what_was_traced_differs_by_its_constants_and_not_by_addresses():
    def trace(constant):
        return traced_text(jax.make_jaxpr(lambda x: jnp.sum(jnp.asarray(constant) * x))(np.ones(2)))

    assert trace(np.array([1.0, 2.0])) == trace(np.array([1.0, 2.0]))
    assert trace(np.array([1.0, 2.0])) != trace(np.array([1.0, 3.0]))
