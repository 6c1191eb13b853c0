"""Anchored likelihoods against direct sums: exact where they must be, unbiased everywhere."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.compilation import enable_compilation_cache
from weighbridge.models.targets import anchored as anchor_module
from weighbridge.models.targets.anchored import Anchored, Sums, sums_at
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import SPAN_BLOCK, Span

# Of 1,000 means over thousands of batches none is beyond this, by chance, once in 1,000 suites.
SIGMAS = 5.0
NUM_ROWS, SIZE = 300, 20
STORE = 6 * SPAN_BLOCK


def two_normals(p, y):
    """An even mixture of two normal distributions with one scale."""
    heights = -0.5 * ((y - p["mu"]) / p["scale"]) ** 2 - jnp.log(p["scale"])
    return jax.nn.logsumexp(heights)


MODELS = {
    "linear": wb.zoo.linear.model(2),
    "logistic": wb.zoo.logistic.model(1, 2),
    "mixture": wb.Model(
        {
            "mu": dist.Normal(0.0, 2.0).expand([2]).to_event(1),
            "scale": dist.HalfNormal(1.0),  # constrained: derivatives are of unconstrained numbers
        },
        two_normals,
    ),
}
DATA = {
    "linear": wb.zoo.linear.simulate(NUM_ROWS, num_features=2, seed=1),
    "logistic": wb.zoo.logistic.simulate(NUM_ROWS, num_features=1, num_classes=2, seed=1),
    "mixture": wb.zoo.mixture.simulate(NUM_ROWS, num_components=2, num_features=1, seed=1)[:, 0],
}
# Some rows count several times, some not at all.
WEIGHT = np.tile([1.0, 3.0, 1.0, 0.0, 0.5], NUM_ROWS // 5)
every_model = pytest.mark.parametrize("name", MODELS)
every_curved = pytest.mark.parametrize("name", ["logistic", "mixture"])


@pytest.fixture(autouse=True)
def doubles():
    enable_compilation_cache()
    with jax.enable_x64(True):
        yield


@pytest.fixture
def first_order(monkeypatch):
    """Anchors of first order; programs know their order, so none may be left over."""
    monkeypatch.setattr(anchor_module, "FIRST_ORDER_ABOVE", 2)
    jax.clear_caches()
    yield
    jax.clear_caches()


def anchor_of(name):
    return np.random.default_rng(2).normal(0.0, 0.3, MODELS[name].dimension)


def offsets_of(name, scale=0.4, num=4):
    return scale * np.random.default_rng(3).normal(size=(num, MODELS[name].dimension))


# Direct sums: nothing but the model.


def row_values(name, position):
    """Log-likelihoods of all rows, without their weights."""
    model = MODELS[name]
    parameters = model.transform(position)[0]
    return jax.vmap(lambda row: model.log_likelihood(parameters, row))(DATA[name])


@partial(jax.jit, static_argnums=0)
def full(name, position, weight=WEIGHT):
    """Value, gradient and Hessian of the weighted sum."""
    total = lambda u: jnp.dot(weight, row_values(name, u))  # noqa: E731
    return *jax.value_and_grad(total)(position), jax.hessian(total)(position)


# The terms under test; programs are shared by all batches of one shape.

find_sums = jax.jit(sums_at, static_argnames="block")
value_and_slope = jax.jit(
    lambda model, term, position: jax.value_and_grad(
        lambda u: term(model, u, model.transform(u)[0])
    )(position)
)
gradient_variance = jax.jit(lambda model, term, u: term.gradient_variance(model, u))


@jax.jit
def sums_of_islands(model, anchor, rows):
    own = jax.vmap(lambda rows: sums_at(model, anchor, Span(rows, 0, SIZE)))(rows)
    return jax.tree_util.tree_map(lambda leaf: leaf[:, None], own)


@jax.jit
def values_and_slopes(model, terms, position):
    return jax.vmap(value_and_slope, in_axes=(None, terms.axes, None))(model, terms, position)


def stacked(trees):
    return jax.tree_util.tree_map(lambda *leaves: np.stack(leaves), *trees)


def taken(name, chosen):
    """Rows by their numbers."""
    return Rows(jax.tree_util.tree_map(lambda leaf: leaf[chosen], DATA[name]), WEIGHT[chosen])


def exact_sums(name, anchor):
    return find_sums(MODELS[name], anchor, Span(taken(name, np.arange(STORE) % NUM_ROWS), 0, 300))


def anchored(name, chosen, anchor=None):
    """A term on batches of rows by their numbers, batches x rows, one after the other."""
    chosen = np.atleast_2d(chosen)
    anchor = anchor_of(name) if anchor is None else anchor
    # Rows beyond the batches are rows again, which must not count.
    rows = taken(name, np.resize(chosen.ravel(), STORE))
    size = chosen.shape[1]
    spans = [Span(rows, start, start + size) for start in range(0, chosen.size, size)]
    own = stacked([find_sums(MODELS[name], anchor, span) for span in spans])
    return Anchored(anchor, exact_sums(name, anchor), rows, own, size, NUM_ROWS / size)


def evaluate(name, term, position):
    return float(value_and_slope(MODELS[name], term, position)[0])


def drawn(num, seed=4):
    """Batches without a row twice."""
    generator = np.random.default_rng(seed)
    return np.stack([generator.choice(NUM_ROWS, SIZE, replace=False) for _ in range(num)])


def on_many(name, chosen, position):
    """The estimate and its gradient on each of many batches, which are islands."""
    anchor = anchor_of(name)
    rows = taken(name, np.pad(chosen, ((0, 0), (0, SPAN_BLOCK - SIZE)), "wrap"))
    own = sums_of_islands(MODELS[name], anchor, rows)
    terms = Anchored(anchor, exact_sums(name, anchor), rows, own, SIZE, NUM_ROWS / SIZE)
    return map(np.asarray, values_and_slopes(MODELS[name], terms, position))


# --- sums ------------------------------------------------------------------------------------


def random_sums(seed, dimension=3, curved=True):
    generator = np.random.default_rng(seed)
    half = generator.normal(size=(dimension, dimension))
    curvature = half + half.T if curved else None
    return Sums(jnp.asarray(generator.normal()), generator.normal(size=dimension), curvature)


def polynomial(sums, offset):
    total = float(sums.value)
    for i, first in enumerate(offset):
        total += sums.gradient[i] * first
        if sums.curvature is not None:
            total += sum(
                0.5 * sums.curvature[i, j] * first * second for j, second in enumerate(offset)
            )
    return total


@pytest.mark.parametrize("curved", [True, False])
def test_sums_are_a_polynomial_wherever_it_is_written_around(curved):
    sums, other = random_sums(0, curved=curved), random_sums(1, curved=curved)
    generator = np.random.default_rng(2)
    for _ in range(3):
        offset, further = generator.normal(size=(2, 3))
        assert float(sums.at(offset)) == pytest.approx(polynomial(sums, offset), rel=1e-12)
        there = sums.moved(offset)
        assert float(there.at(further)) == pytest.approx(polynomial(sums, offset + further))
        np.testing.assert_allclose(there.gradient, jax.grad(sums.at)(offset), rtol=1e-12)
        back = there.moved(-offset)
        for mine, its in zip(back, sums):
            if its is not None:
                np.testing.assert_allclose(mine, its, atol=1e-12)
        for times in (1.0, -1.0, 2.5):
            together = polynomial(sums, offset) + times * polynomial(other, offset)
            assert float(sums.plus(other, times).at(offset)) == pytest.approx(together)
    assert float(sums.plus(other).value) == float(sums.value) + float(other.value)


def test_no_rows_are_zero():
    zero = Sums.zero(3)
    assert zero.curvature.shape == (3, 3)
    assert float(zero.at(np.ones(3))) == 0.0
    assert Sums.zero(anchor_module.FIRST_ORDER_ABOVE).curvature is not None
    assert Sums.zero(anchor_module.FIRST_ORDER_ABOVE + 1).curvature is None


@pytest.mark.parametrize(
    ("name", "block"),
    [(name, SPAN_BLOCK) for name in MODELS] + [("linear", STORE // 2)],
)
def test_sums_at_are_the_derivatives_of_the_sum(name, block):
    """With weights, and with ends within a block: rows outside count for nothing."""
    anchor, (start, stop) = anchor_of(name), (37, 211)
    span = Span(taken(name, np.arange(STORE) % NUM_ROWS), start, stop)
    found = find_sums(MODELS[name], anchor, span, block=block)
    inside = np.where((np.arange(NUM_ROWS) >= start) & (np.arange(NUM_ROWS) < stop), WEIGHT, 0.0)
    value, gradient, curvature = full(name, anchor, inside)
    assert float(found.value) == pytest.approx(float(value), rel=1e-12)
    np.testing.assert_allclose(found.gradient, gradient, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.curvature, curvature, rtol=1e-9, atol=1e-9)


def test_sums_at_of_no_rows_are_zero():
    span = Span(taken("linear", np.arange(STORE) % NUM_ROWS), 64, 64)
    for leaf in find_sums(MODELS["linear"], anchor_of("linear"), span):
        np.testing.assert_array_equal(leaf, 0.0)


# --- the anchored term --------------------------------------------------------------------------


@every_model
def test_with_all_rows_it_is_exact_in_value_and_gradient(name):
    """Wherever the anchor is; rows after the batch do not count."""
    term = anchored(name, np.arange(NUM_ROWS))
    assert term.scale == 1.0
    for offset in offsets_of(name, scale=1.0):
        position = anchor_of(name) + offset
        found, slope = value_and_slope(MODELS[name], term, position)
        value, gradient, _ = full(name, position)
        assert float(found) == pytest.approx(float(value), rel=1e-11)
        np.testing.assert_allclose(slope, gradient, rtol=1e-9, atol=1e-9)


@every_curved
def test_batches_estimate_value_and_gradient_without_bias(name):
    chosen, sums = drawn(4000), exact_sums(name, anchor_of(name))
    for offset in offsets_of(name, num=2):
        position = anchor_of(name) + offset
        values, slopes = on_many(name, chosen, position)
        value, gradient, _ = full(name, position)
        error = values.std(ddof=1) / np.sqrt(len(values))
        assert abs(values.mean() - value) < SIGMAS * error
        # The residual is so large that without it, or with another scale, this would fail.
        assert abs(value - sums.at(offset)) > 3 * SIGMAS * error
        errors = slopes.std(axis=0, ddof=1) / np.sqrt(len(slopes))
        assert (np.abs(slopes.mean(axis=0) - gradient) < SIGMAS * errors).all()


def test_it_is_exact_for_a_quadratic_model_on_any_batch():
    for offset in offsets_of("linear", scale=5.0):
        position = anchor_of("linear") + offset
        values, slopes = on_many("linear", drawn(7), position)
        value, gradient, _ = full("linear", position)
        np.testing.assert_allclose(values, float(value), rtol=1e-11)
        np.testing.assert_allclose(slopes, np.resize(gradient, slopes.shape), rtol=1e-9)


@every_curved
def test_what_is_left_to_batches_is_of_third_order(name):
    """Half the offset leaves an eighth of it, and of its noise."""
    chosen, direction = drawn(4000), offsets_of(name, scale=1.0, num=1)[0]
    sums = exact_sums(name, anchor_of(name))
    left, noise = [], []
    for size in (0.004, 0.002):
        position = anchor_of(name) + size * direction
        left.append(float(full(name, position)[0] - sums.at(size * direction)))
        values, _ = on_many(name, chosen, position)
        noise.append(values.std())
    assert left[0] / left[1] == pytest.approx(8.0, rel=0.1)
    assert noise[0] / noise[1] == pytest.approx(8.0, rel=0.1)
    values, slopes = on_many(name, chosen, anchor_of(name))
    np.testing.assert_allclose(values, float(sums.value), rtol=1e-13)
    np.testing.assert_allclose(slopes, np.resize(sums.gradient, slopes.shape), atol=1e-9)


def test_subsample_goes_from_batch_to_batch():
    chosen, position = drawn(3), anchor_of("logistic") + offsets_of("logistic")[0]
    term = anchored("logistic", chosen)
    alone = [evaluate("logistic", anchored("logistic", batch), position) for batch in chosen]
    found = [evaluate("logistic", term.subsample(jnp.asarray(t)), position) for t in range(7)]
    np.testing.assert_allclose(found, np.resize(alone, 7), rtol=1e-12)
    assert len(set(np.round(alone, 9))) == 3
    assert evaluate("logistic", term, position) == pytest.approx(alone[0], rel=1e-12)


def test_islands_have_rows_of_their_own():
    chosen, position = drawn(3), anchor_of("logistic") + offsets_of("logistic")[0]
    terms = [anchored("logistic", batch) for batch in chosen]
    rows, sums = (
        stacked([getattr(term, name) for term in terms]) for name in ("rows", "batch_sums")
    )
    together = replace(terms[0], rows=rows, batch_sums=sums)
    found, _ = values_and_slopes(MODELS["logistic"], together, position)
    expected = [evaluate("logistic", term, position) for term in terms]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_other_numbers_are_no_new_program():
    traces, position = [], anchor_of("logistic") + offsets_of("logistic")[0]

    @jax.jit
    def value(term):
        traces.append(1)
        return term(MODELS["logistic"], position, MODELS["logistic"].transform(position)[0])

    terms = [anchored("logistic", drawn(3, seed=seed)) for seed in (0, 1)]
    shorter = drawn(3, seed=2)[:, :11]
    terms.append(anchored("logistic", shorter, anchor_of("logistic") + 0.1).subsample(2))
    found = [float(value(term)) for term in terms]
    assert len(set(found)) == 3
    alone = evaluate("logistic", anchored("logistic", shorter[2], terms[2].anchor), position)
    assert found[2] == pytest.approx(alone, rel=1e-12)
    assert len(traces) == 1


# --- the variance of its gradient -----------------------------------------------------------


@partial(jax.jit, static_argnums=(0, 2))
def residual_gradients(name, position, curved=True):
    """Weighted, row by row: rows x coordinates."""
    anchor = anchor_of(name)
    slopes = jax.jacfwd(lambda u: WEIGHT * row_values(name, u))
    expected, change = jax.jvp(slopes, (anchor,), (position - anchor,))
    return slopes(position) - expected - (change if curved else 0.0)


def stated_and_exact_variance(name, position, curved=True):
    """All rows, cut into batches: what is estimated from them is known exactly."""
    cut = np.random.default_rng(5).permutation(NUM_ROWS).reshape(-1, SIZE)
    stated = gradient_variance(MODELS[name], anchored(name, cut), position)
    one_row = np.var(residual_gradients(name, position, curved), axis=0, ddof=1)
    # No row is twice in a batch: 1 - |B| / n.
    return stated, (NUM_ROWS / SIZE) ** 2 * SIZE * (1 - SIZE / NUM_ROWS) * one_row


@every_curved
def test_gradient_variance_is_what_batches_show(name):
    position = anchor_of(name) + offsets_of(name)[0]
    stated, exact = stated_and_exact_variance(name, position)
    np.testing.assert_allclose(stated, exact, rtol=1e-7)
    _, slopes = on_many(name, drawn(4000), position)
    np.testing.assert_allclose(slopes.var(axis=0, ddof=1), exact, rtol=0.2)


def test_gradient_variance_of_a_quadratic_model_is_none():
    position = anchor_of("linear") + offsets_of("linear")[0]
    stated = gradient_variance(MODELS["linear"], anchored("linear", drawn(3)), position)
    np.testing.assert_allclose(stated, 0, atol=1e-20)


def test_gradient_variance_of_all_rows_is_none():
    """SGHMC(estimate_noise=True) takes off what is stated here: it would cool exact targets."""
    position = anchor_of("logistic") + offsets_of("logistic")[0]
    stated = gradient_variance(
        MODELS["logistic"], anchored("logistic", np.arange(NUM_ROWS)), position
    )
    np.testing.assert_allclose(stated, 0.0, atol=1e-12)


# --- first order -----------------------------------------------------------------------------


def test_first_order_has_no_curvature_and_no_bias(first_order):
    name, anchor = "logistic", anchor_of("logistic")
    sums = exact_sums(name, anchor)
    assert sums.curvature is None
    np.testing.assert_allclose(sums.gradient, full(name, anchor)[1], rtol=1e-10, atol=1e-10)
    position = anchor + offsets_of(name)[0]
    exact = float(full(name, position)[0])
    whole = anchored(name, np.arange(NUM_ROWS))
    assert evaluate(name, whole, position) == pytest.approx(exact, rel=1e-11)
    values, _ = on_many(name, drawn(4000), position)
    assert abs(values.mean() - exact) < SIGMAS * values.std(ddof=1) / np.sqrt(len(values))
    np.testing.assert_allclose(*stated_and_exact_variance(name, position, False), rtol=1e-7)
    # What is left is of second order.
    direction = offsets_of(name, scale=1.0, num=1)[0]
    left = [
        float(full(name, anchor + size * direction)[0] - sums.at(size * direction))
        for size in (0.02, 0.01)
    ]
    assert left[0] / left[1] == pytest.approx(4.0, rel=0.1)
