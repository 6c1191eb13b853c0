"""Targets against direct sums: exact, tempered, on mini-batches."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.data.cutting import pad
from weighbridge.models.targets import rows as rows_module
from weighbridge.models.targets.batches import Batches, Subsampled
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.rows import BLOCK_ROWS, Rows
from weighbridge.models.targets.tempered import Tempered
from weighbridge.models.targets.total import Total

# A false alarm of any single comparison in this file has a probability below 1e-6.
SIGMAS = 5.0


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def log_likelihood(p, row):
    return dist.Normal(p["m"] * row["x"], p["s"]).log_prob(row["y"])


# Two parameters, one of them constrained: the Jacobian matters.
MODEL = wb.Model({"m": dist.Normal(0.5, 2.0), "s": dist.InverseGamma(2.0, 1.0)}, log_likelihood)
POSITION = np.array([0.3, -0.4])


def make_rows(num, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=num)
    return {"x": x, "y": 0.7 * x + rng.normal(size=num)}


def direct_terms(values, position):
    """Log-likelihoods by NumPy alone."""
    m, s = position[0], np.exp(position[1])
    return -0.5 * ((values["y"] - m * values["x"]) / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)


def direct_gradients(values, position):
    """d log-likelihood / d (m, log s), row by row, by hand."""
    m, s = position[0], np.exp(position[1])
    residual = (values["y"] - m * values["x"]) / s
    return np.stack([residual * values["x"] / s, residual**2 - 1], axis=1)


def log_prior(position):
    m, s = position[0], math.exp(position[1])
    normal = -0.5 * ((m - 0.5) / 2) ** 2 - math.log(2 * math.sqrt(2 * math.pi))
    gamma = -3 * math.log(s) - 1 / s  # InverseGamma(2, 1): s^-3 e^(-1/s) / Gamma(2)
    return normal + gamma + position[1]


value_and_grad = jax.jit(lambda target, position: jax.value_and_grad(target)(position))
value = jax.jit(lambda target, position: target(position))


@jax.jit
def over_steps(target, steps):
    """Density, gradient and stated variance of the gradient, on the mini-batch of each step."""

    def one(step):
        batch = target.subsample(step)
        return *jax.value_and_grad(batch)(POSITION), batch.gradient_variance(POSITION)

    return jax.vmap(one)(steps)


def test_density_is_prior_jacobian_and_rows():
    values = make_rows(20)
    density = value(Target(MODEL, (Rows(values, np.ones(20)),)), POSITION)
    expected = log_prior(POSITION) + direct_terms(values, POSITION).sum()
    assert float(density) == pytest.approx(expected, rel=1e-13)


def test_terms_add_up():
    first, second = make_rows(7, 1), make_rows(9, 2)
    terms = (Rows(first, np.ones(7)), Tempered(Rows(second, np.ones(9)), 0.25))
    density, gradient = value_and_grad(Target(MODEL, terms), POSITION)
    prior_density, prior_gradient = value_and_grad(Target(MODEL, ()), POSITION)
    expected = direct_terms(first, POSITION).sum() + 0.25 * direct_terms(second, POSITION).sum()
    assert float(density - prior_density) == pytest.approx(expected, rel=1e-12)
    expected = direct_gradients(first, POSITION).sum(0)
    expected = expected + 0.25 * direct_gradients(second, POSITION).sum(0)
    np.testing.assert_allclose(gradient - prior_gradient, expected, rtol=1e-10)


def test_padding_adds_exactly_nothing():
    values = make_rows(5)
    plain = value_and_grad(Target(MODEL, (Rows(values, np.ones(5)),)), POSITION)
    for size in (6, 64):
        padded = value_and_grad(Target(MODEL, (Rows(*pad(values, np.ones(5), size)),)), POSITION)
        # Up to the order of a sum, which the padded length may change.
        assert float(padded[0]) == pytest.approx(float(plain[0]), rel=1e-15)
        np.testing.assert_allclose(padded[1], plain[1], rtol=1e-14)


def test_a_padding_row_does_not_leak_whatever_it_holds():
    """The log-likelihood of a row with weight 0 may be huge or -inf."""
    values = make_rows(3)
    extended = {name: np.append(column, 1e200) for name, column in values.items()}
    plain = value(Target(MODEL, (Rows(values, np.ones(3)),)), POSITION)
    padded = value(Target(MODEL, (Rows(extended, np.array([1.0, 1.0, 1.0, 0.0])),)), POSITION)
    assert float(padded) == pytest.approx(float(plain), rel=1e-15)


def test_weights_count_repetitions():
    values, weight = make_rows(6), np.array([1, 3, 0, 2, 1, 5])
    repeated = {name: np.repeat(column, weight) for name, column in values.items()}
    weighted = value_and_grad(Target(MODEL, (Rows(values, weight.astype(float)),)), POSITION)
    expected = value_and_grad(Target(MODEL, (Rows(repeated, np.ones(12)),)), POSITION)
    assert float(weighted[0]) == pytest.approx(float(expected[0]), rel=1e-13)
    np.testing.assert_allclose(weighted[1], expected[1], rtol=1e-12)


@pytest.mark.parametrize(("blocks", "extra"), [(1, 0), (1, 1), (3, -1), (3, 0)])
def test_block_sums_lose_no_row(monkeypatch, blocks, extra):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 128)
    num = blocks * 128 + extra
    values, weight = make_rows(num), np.random.default_rng(1).integers(0, 3, num).astype(float)
    rows = Rows(values, weight)
    density = rows(MODEL, POSITION, MODEL.transform(jnp.asarray(POSITION))[0])
    expected = (weight * direct_terms(values, POSITION)).sum()
    assert float(density) == pytest.approx(expected, rel=1e-12)


def test_real_blocks_with_a_remainder():
    num = 2 * BLOCK_ROWS + 17
    values, weight = make_rows(num), np.random.default_rng(1).integers(0, 3, num).astype(float)
    density, gradient = value_and_grad(Target(MODEL, (Rows(values, weight),)), POSITION)
    prior_density, prior_gradient = value_and_grad(Target(MODEL, ()), POSITION)
    expected = (weight * direct_terms(values, POSITION)).sum()
    assert float(density - prior_density) == pytest.approx(expected, rel=1e-12)
    expected = (weight[:, None] * direct_gradients(values, POSITION)).sum(0)
    np.testing.assert_allclose(gradient - prior_gradient, expected, rtol=1e-10)


def test_exact_terms_have_no_batch_and_no_noise():
    target = Target(MODEL, (Tempered(Rows(make_rows(4), np.ones(4)), 0.5),))
    step = jnp.asarray(3)
    assert float(value(target.subsample(step), POSITION)) == float(value(target, POSITION))
    np.testing.assert_array_equal(target.gradient_variance(jnp.asarray(POSITION)), np.zeros(2))


# --- mini-batches ----------------------------------------------------------------------------


def stack_batches(values, weight, chosen):
    return Rows({name: column[chosen] for name, column in values.items()}, weight[chosen])


def test_batches_average_to_the_exact_sum():
    """Over all 5^2 batches of two rows with replacement the mean is exact, gradient too."""
    values, weight = make_rows(5), np.array([1.0, 2.0, 0.0, 1.0, 3.0])
    chosen = np.array(list(itertools.product(range(5), repeat=2)))
    target = Target(MODEL, (Batches(stack_batches(values, weight, chosen), 5 / 2),))
    exact = value_and_grad(Target(MODEL, (Rows(values, weight),)), POSITION)
    each = [value_and_grad(target.subsample(jnp.asarray(t)), POSITION) for t in range(25)]
    assert np.mean([e[0] for e in each]) == pytest.approx(float(exact[0]), rel=1e-12)
    np.testing.assert_allclose(np.mean([e[1] for e in each], 0), exact[1], rtol=1e-12)
    assert np.std([e[0] for e in each]) > 0.1, "batches differ"


def test_batches_go_round():
    values, chosen = make_rows(6), np.array([[0, 1], [2, 3], [4, 5]])
    target = Target(MODEL, (Batches(stack_batches(values, np.ones(6), chosen), 3.0),))
    densities = [float(value(target.subsample(jnp.asarray(t)), POSITION)) for t in range(7)]
    assert densities[:3] == densities[3:6]
    assert densities[6] == densities[0]
    terms = direct_terms(values, POSITION).reshape(3, 2).sum(1)
    expected = log_prior(POSITION) + 3 * terms
    np.testing.assert_allclose(densities[:3], expected, rtol=1e-12)
    assert float(value(target, POSITION)) == densities[0]


def test_batch_gradient_variance_is_the_variance_over_batches():
    """The estimate from one batch, averaged over all batches, is the variance over them."""
    values, weight = make_rows(4), np.array([1.0, 2.0, 1.0, 0.0])
    chosen = np.array(list(itertools.product(range(4), repeat=3)))
    target = Target(MODEL, (Batches(stack_batches(values, weight, chosen), 4 / 3),))
    _, gradients, estimates = over_steps(target, jnp.arange(len(chosen)))
    np.testing.assert_allclose(estimates.mean(0), gradients.var(0), rtol=1e-10)


def test_tempering_squares_the_gradient_variance():
    values, chosen = make_rows(6), np.array([[0, 1, 2], [3, 4, 5]])
    batches = Batches(stack_batches(values, np.ones(6), chosen), 2.0)
    variance = jax.jit(lambda target: target.gradient_variance(jnp.asarray(POSITION)))
    plain = variance(Target(MODEL, (batches,)))
    tempered = variance(Target(MODEL, (Tempered(batches, 0.3),)))
    both = variance(Target(MODEL, (batches, Tempered(batches, 0.3))))
    np.testing.assert_allclose(tempered, 0.09 * plain, rtol=1e-13)
    np.testing.assert_allclose(both, 1.09 * plain, rtol=1e-13)
    subsampled = Target(MODEL, (Tempered(batches, 0.3),)).subsample(jnp.asarray(1))
    assert float(value(subsampled, POSITION)) == pytest.approx(
        log_prior(POSITION) + 0.3 * 2.0 * direct_terms(values, POSITION)[3:].sum()
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_subsampled_is_unbiased_with_the_variance_it_states(seed):
    num, size, draws = 40, 8, 20_000
    values, weight = make_rows(num), np.ones(num)
    weight[3] = 4.0
    target = Target(MODEL, (Subsampled(Rows(values, weight), jax.random.key(seed), size),))
    densities, gradients, variances = over_steps(target, jnp.arange(draws))
    exact = value_and_grad(Target(MODEL, (Rows(values, weight),)), POSITION)
    terms, slopes = direct_terms(values, POSITION), direct_gradients(values, POSITION)
    # Var = n^2 / B Var_k[w_k l_k], with the rows as the whole population.
    error = num * np.std(weight * terms) / math.sqrt(size * draws)
    assert abs(float(densities.mean() - exact[0])) < SIGMAS * error
    variance = num**2 / size * np.var(weight[:, None] * slopes, axis=0)
    np.testing.assert_array_less(
        np.abs(gradients.mean(0) - exact[1]), SIGMAS * np.sqrt(variance / draws)
    )
    error = np.std(variances, axis=0) / math.sqrt(draws)
    np.testing.assert_array_less(np.abs(variances.mean(0) - variance), SIGMAS * error)


def test_subsampled_follows_from_key_and_step_alone():
    rows = Rows(make_rows(40), np.ones(40))

    def densities(seed):
        target = Target(MODEL, (Subsampled(rows, jax.random.key(seed), 8),))
        return [float(value(target.subsample(jnp.asarray(t)), POSITION)) for t in (0, 1, 2, 0)]

    first = densities(0)
    assert first == densities(0)
    assert first[3] == first[0]
    assert len({*first, *densities(1)}) == 6


def test_subsample_of_a_subsample_depends_on_the_last_step_only():
    target = Target(MODEL, (Subsampled(Rows(make_rows(40), np.ones(40)), jax.random.key(0), 8),))
    twice = target.subsample(jnp.asarray(4)).subsample(jnp.asarray(1))
    assert float(value(twice, POSITION)) == float(value(target.subsample(jnp.asarray(1)), POSITION))


# --- likelihoods that do not factorise -----------------------------------------------------------


def test_total_without_data():
    model = wb.Model({"u": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -3 * p["u"] ** 2)
    density, gradient = value_and_grad(Target(model, (Tempered(Total(), 0.5),)), np.array([0.8]))
    expected = -0.5 * 0.64 - 0.5 * math.log(2 * math.pi) - 0.5 * 3 * 0.64
    assert float(density) == pytest.approx(expected, rel=1e-14)
    np.testing.assert_allclose(gradient, [-0.8 - 3 * 0.8], rtol=1e-13)


def test_total_with_data():
    def smooth(p, data):
        return -jnp.sum(jnp.diff(data - p["u"] * jnp.arange(len(data))) ** 2)

    model = wb.Model({"u": dist.Normal(0, 1)}, total_log_likelihood=smooth)
    series = np.array([0.0, 1.0, 3.0])
    density = value(Target(model, (Total(series),)), np.array([0.5]))
    expected = -0.125 - 0.5 * math.log(2 * math.pi) - (0.5**2 + 1.5**2)
    assert float(density) == pytest.approx(expected, rel=1e-14)


# --- what changes while sampling is a leaf ----------------------------------------------------


def test_nothing_that_changes_retraces():
    traces = []

    def counted(p, row):
        traces.append(1)
        return log_likelihood(p, row)

    model = wb.Model({"m": dist.Normal(0.5, 2.0), "s": dist.InverseGamma(2.0, 1.0)}, counted)
    other = wb.Model({"m": dist.Normal(1.5, 1.0), "s": dist.InverseGamma(3.0, 2.0)}, counted)
    chosen = np.array([[0, 1], [2, 3]])

    def build(model, seed, temperature, step):
        values = make_rows(6, seed)
        target = Target(
            model,
            (
                Tempered(Rows(values, np.full(6, 1.0 + seed)), jnp.asarray(temperature)),
                Batches(stack_batches(values, np.ones(6), chosen), jnp.asarray(3.0 + seed)),
                Subsampled(Rows(values, np.ones(6)), jax.random.key(seed), 2),
            ),
        )
        return target.subsample(jnp.asarray(step))

    densities = [
        float(value(build(model if seed % 2 else other, seed, temperature, step), POSITION))
        for seed, (temperature, step) in enumerate([(0.1, 0), (0.5, 1), (1.0, 7), (0.7, 2)])
    ]
    assert len(set(densities)) == 4
    assert len(traces) == 2, "one trace for terms of six rows, one for batches of two"
