"""Rows of a growing store: value and gradient against the plain sum, without a new trace."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import SPAN_BLOCK, Span
from weighbridge.models.targets.tempered import Tempered

NUM_ROWS = 32 * SPAN_BLOCK
PARTICLES = np.random.default_rng(1).normal(size=(5, 3))


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def log_likelihood(p, row):
    return dist.Normal(p["m"] @ row["x"], p["s"]).log_prob(row["y"])


# A vector and a constrained number: the gradient goes through a Jacobian.
MODEL = wb.Model(
    {"m": dist.Normal(0.0, 2.0).expand([2]).to_event(1), "s": dist.InverseGamma(2.0, 1.0)},
    log_likelihood,
)


def make_store(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(NUM_ROWS, 2))
    values = {"x": x, "y": x @ [0.7, -0.2] + rng.normal(size=NUM_ROWS)}
    return Rows(values, rng.integers(0, 4, NUM_ROWS).astype(float))


STORE = make_store()
traced = []


@jax.jit
def both(span, positions):
    traced.append(1)
    return jax.vmap(jax.value_and_grad(Target(MODEL, (Tempered(span, 0.7),))))(positions)


def expected(start, stop, positions, store=STORE):
    rows = jax.tree_util.tree_map(lambda leaf: leaf[start:stop], store)
    target = Target(MODEL, (Tempered(rows, 0.7),) if stop > start else ())
    return jax.jit(jax.vmap(jax.value_and_grad(target)))(positions)


SPANS = {
    "none": (0, 0),
    "one": (0, 1),
    "within a block": (3, SPAN_BLOCK - 4),
    "a block": (0, SPAN_BLOCK),
    "across blocks": (SPAN_BLOCK - 1, SPAN_BLOCK + 1),
    "ragged": (SPAN_BLOCK + 5, 30 * SPAN_BLOCK - 5),
    "none in the middle": (300, 300),
    "all": (0, NUM_ROWS),
}


@pytest.mark.parametrize("name", SPANS)
def test_it_is_the_sum_over_its_rows(name):
    found = both(Span(STORE, *SPANS[name]), PARTICLES)
    for ours, plain in zip(found, expected(*SPANS[name], PARTICLES), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-11, atol=1e-11)


def test_neither_its_ends_nor_its_rows_are_traced():
    both(Span(STORE, 0, 10), PARTICLES)
    before = len(traced)
    other = make_store(seed=5)
    for stop in (11, 300, NUM_ROWS):
        found = both(Span(other, 1, stop), PARTICLES + 0.1)
        plain = expected(1, stop, PARTICLES + 0.1, other)
        np.testing.assert_allclose(found[1], plain[1], rtol=1e-11, atol=1e-11)
    assert len(traced) == before


def test_the_value_alone_is_the_same():
    span = Span(STORE, 5, 600)
    value = jax.jit(jax.vmap(Target(MODEL, (Tempered(span, 0.7),))))(PARTICLES)
    np.testing.assert_allclose(value, both(span, PARTICLES)[0], rtol=1e-13)


def test_spans_add_up():
    whole = both(Span(STORE, 0, 700), PARTICLES)[1]
    target = Target(
        MODEL, tuple(Tempered(Span(STORE, *ends), 0.7) for ends in ((0, 33), (33, 700)))
    )
    gradient = jax.jit(jax.vmap(jax.grad(target)))
    np.testing.assert_allclose(gradient(PARTICLES), whole, rtol=1e-11)


def test_it_is_an_exact_term():
    span = Span(STORE, 0, 3)
    assert span.subsample(jnp.array(4)) is span
    np.testing.assert_array_equal(span.gradient_variance(MODEL, PARTICLES[0]), np.zeros(3))


def test_memory_does_not_grow_with_the_rows():
    """The gradient is summed in the loop: what is kept has the size of a block."""
    sizes = []
    for factor in (1, 64):
        store = jax.tree_util.tree_map(lambda leaf: np.repeat(leaf, factor, axis=0), STORE)  # noqa: B023
        compiled = both.lower(Span(store, 0, 10), PARTICLES).compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    assert sizes[1] < 1.5 * sizes[0]
