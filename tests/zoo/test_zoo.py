"""The zoo: exact evidences, densities and simulations against independent computations."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from scipy import integrate, special, stats

from weighbridge.core.errors import DataError, ModelError
from weighbridge.data.lags import lagged
from weighbridge.models.row_likelihood import check_row_function
from weighbridge.zoo import autoregressive, entries, gaussian, linear, logistic, mixture, parse

# --- exact evidences -----------------------------------------------------------------------


def dense_linear_evidence(data, noise):
    design = np.column_stack([data["x"], np.ones(len(data["y"]))])
    covariance = noise**2 * np.eye(len(design)) + design @ design.T
    return stats.multivariate_normal(np.zeros(len(design)), covariance).logpdf(data["y"])


@pytest.mark.parametrize(
    ("num_rows", "num_features", "noise"), [(1, 1, 1.0), (4, 5, 0.3), (60, 3, 2)]
)
def test_linear_evidence_is_that_of_the_marginal_normal(num_rows, num_features, noise):
    data = linear.simulate(num_rows, num_features=num_features, noise=noise, seed=3)
    assert linear.log_evidence(data, noise=noise) == pytest.approx(
        dense_linear_evidence(data, noise), rel=1e-10
    )


def test_linear_path_equals_separate_calls_in_any_order():
    data = linear.simulate(10_000, num_features=2, seed=1)
    rows = [10_000, 0, 1, 7, 5_000, 7]
    path = linear.log_evidence_path(data, rows, 0.7)
    each = [
        linear.log_evidence({name: column[:n] for name, column in data.items()}, noise=0.7)
        for n in rows
    ]
    np.testing.assert_allclose(path, each, rtol=1e-12)
    assert path[1] == 0.0


def test_linear_evidence_of_many_rows_agrees_with_extended_precision():
    data = linear.simulate(100_000, seed=2)
    design = np.column_stack([data["x"], np.ones(100_000)]).astype(np.longdouble)
    target = data["y"].astype(np.longdouble)
    precision = np.eye(6) + design.T @ design
    projected = design.T @ target
    mean = np.linalg.solve(precision.astype(float), projected.astype(float))
    for _ in range(3):  # iterative refinement: the solver has double precision only
        rest = projected - precision @ mean.astype(np.longdouble)
        mean = mean + np.linalg.solve(precision.astype(float), rest.astype(float))
    quadratic = np.sum((target - design @ mean) ** 2) + mean @ mean
    log_determinant = np.linalg.slogdet(precision.astype(float))[1]
    exact = float(-50_000 * np.log(2 * np.pi) - log_determinant / 2 - quadratic / 2)
    assert linear.log_evidence(data) == pytest.approx(exact, rel=1e-12)


def test_linear_evidence_survives_an_offset_of_the_features():
    # The sums of squares are 10^12 times the misfit here; only the triangular factor is stable.
    data = linear.simulate(50, num_features=1, seed=0)
    data["x"] = data["x"] + 1e6
    data["y"] = data["y"] + 1e6
    design = np.column_stack([data["x"], np.ones(50)])
    stacked = np.vstack([np.eye(2), design]), np.concatenate([np.zeros(2), data["y"]])
    misfit = np.linalg.lstsq(*stacked)[1][0]
    log_determinant = 2 * np.sum(np.log(np.linalg.svd(stacked[0], compute_uv=False)))
    exact = -25 * np.log(2 * np.pi) - log_determinant / 2 - misfit / 2
    assert linear.log_evidence(data) == pytest.approx(exact, rel=1e-8)


def test_linear_weights_count_repeated_rows():
    data = linear.simulate(30, num_features=2, seed=5)
    weight = np.random.default_rng(0).integers(0, 4, 30)
    repeated = {name: np.repeat(column, weight, axis=0) for name, column in data.items()}
    path = linear.log_evidence_path(data | {"weight": weight}, [10, 30])
    expected = linear.log_evidence_path(repeated, [weight[:10].sum(), weight.sum()])
    np.testing.assert_allclose(path, expected, rtol=1e-12)


@pytest.mark.parametrize("arguments", [(0.0, 1.0, 1.0), (-1.0, 3.0, 0.5)])
def test_gaussian_evidence_against_quadrature(arguments):
    prior_mean, prior_scale, noise = arguments
    data = gaussian.simulate(6, noise=noise, seed=4)

    def integrand(mean):
        log_likelihood = stats.norm(mean, noise).logpdf(data).sum()
        return np.exp(log_likelihood + stats.norm(prior_mean, prior_scale).logpdf(mean))

    centre = data.mean()
    value = integrate.quad(integrand, centre - 8, centre + 8, points=[centre], epsabs=0)[0]
    exact = gaussian.log_evidence(data, prior_mean=prior_mean, prior_scale=prior_scale, noise=noise)
    assert exact == pytest.approx(np.log(value), abs=1e-9)


def test_gaussian_path_equals_separate_calls_and_the_marginal_normal():
    data = gaussian.simulate(300, mean=-1.0, noise=2.0, seed=1)
    rows = [300, 0, 1, 50]
    path = gaussian.log_evidence_path(data, rows, 0.5, 2.0, 1.5)
    for n, value in zip(rows, path, strict=True):
        same = gaussian.log_evidence(data[:n], prior_mean=0.5, prior_scale=2.0, noise=1.5)
        assert value == pytest.approx(same, rel=1e-12)
    covariance = 1.5**2 * np.eye(50) + 4.0
    marginal = stats.multivariate_normal(np.full(50, 0.5), covariance).logpdf(data[:50])
    assert path[3] == pytest.approx(marginal, rel=1e-10)
    assert np.isfinite(gaussian.log_evidence(gaussian.simulate(100_000)))


def test_gaussian_evidence_has_the_order_of_the_paper():
    # Section 3.1.2: 100 rows around 2 have an evidence "of the order of 10^-64".
    orders = [gaussian.log_evidence(gaussian.simulate(100, seed=s)) for s in range(200)]
    assert np.mean(orders) / np.log(10) == pytest.approx(-63.5, abs=1.0)


def autoregressive_design(series, order, first):
    past = [series[first - lag : len(series) - lag] for lag in range(1, order + 1)]
    return np.column_stack([*past, np.ones(len(series) - first)])


@pytest.mark.parametrize(
    ("order", "prior_scale", "concentration", "rate"),
    [(1, 1.0, 1.0, 1.0), (2, 0.3, 2.5, 0.4), (4, 3.0, 0.7, 6.0)],
)
def test_autoregressive_evidence_is_that_of_the_marginal_student(
    order, prior_scale, concentration, rate
):
    series = autoregressive.simulate(40, intercept=0.5, noise=2.0, seed=2)
    arguments = {
        "order": order,
        "prior_scale": prior_scale,
        "concentration": concentration,
        "rate": rate,
    }
    for first in (order, 5):  # rows may have more predecessors than the model needs
        design = autoregressive_design(series, order, first)
        covariance = np.eye(len(design)) + prior_scale**2 * design @ design.T
        student = stats.multivariate_t(
            np.zeros(len(design)), rate / concentration * covariance, df=2 * concentration
        )
        exact = autoregressive.log_evidence(lagged(series, first), **arguments)
        assert exact == pytest.approx(student.logpdf(series[first:]), rel=1e-10)


def test_autoregressive_evidence_against_quadrature():
    # Given the variance the rows are jointly normal; the variance is integrated by quadrature.
    series = autoregressive.simulate(12, seed=4)
    design = autoregressive_design(series, 2, 2)
    correlation = np.eye(10) + 0.5**2 * design @ design.T

    def integrand(log_variance):
        variance = np.exp(log_variance)
        log_normal = stats.multivariate_normal(np.zeros(10), variance * correlation)
        log_prior = stats.invgamma(1.5, scale=0.8).logpdf(variance) + log_variance
        return np.exp(log_normal.logpdf(series[2:]) + log_prior)

    value = integrate.quad(integrand, -6, 6, epsabs=0)[0]
    exact = autoregressive.log_evidence(
        lagged(series, 2), order=2, prior_scale=0.5, concentration=1.5, rate=0.8
    )
    assert exact == pytest.approx(np.log(value), abs=1e-8)


def test_autoregressive_path_equals_separate_calls_and_weights_leave_rows_out():
    rows = lagged(autoregressive.simulate(9_000, seed=1), 3)
    counts = [8_997, 0, 1, 4_500, 4_500]
    path = autoregressive.log_evidence_path(rows, counts, 2, 0.5, 2.0, 3.0)
    each = [
        autoregressive.log_evidence(
            {name: column[:n] for name, column in rows.items()},
            order=2,
            prior_scale=0.5,
            concentration=2.0,
            rate=3.0,
        )
        for n in counts
    ]
    np.testing.assert_allclose(path, each, rtol=1e-12)
    assert path[1] == 0.0
    keep = np.arange(8_997) % 3 > 0
    left = {name: column[keep] for name, column in rows.items()}
    assert autoregressive.log_evidence(rows | {"weight": keep}) == pytest.approx(
        autoregressive.log_evidence(left), rel=1e-12
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (np.zeros(10), r"wb\.lagged\(series, 3\)"),
        (lagged(np.zeros(10), 2), r"past \[n, 3 or more\].* have past \[8, 2\]"),
        (lagged(np.zeros((10, 1)), 3), "shapes"),
        (lagged(np.full(10, np.nan), 3), "finite"),
        (lagged(np.zeros(10), 3) | {"weight": np.full(7, -1.0)}, "weight"),
    ],
)
def test_autoregressive_evidence_refuses_other_rows(data, reason):
    with pytest.raises(DataError, match=reason):
        autoregressive.log_evidence(data, order=3)


@pytest.mark.parametrize("bad", [[-1], [11]])
def test_paths_refuse_rows_that_are_not_there(bad):
    with pytest.raises(DataError, match="between 0 and 10"):
        linear.log_evidence_path(linear.simulate(10), bad)
    with pytest.raises(DataError, match="between 0 and 10"):
        gaussian.log_evidence_path(gaussian.simulate(10), bad)
    with pytest.raises(DataError, match="between 0 and 10"):
        autoregressive.log_evidence_path(lagged(autoregressive.simulate(11), 1), bad)


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("y", np.zeros((10, 1)), "shapes"),
        ("y", np.full(10, np.nan), "finite"),
        ("weight", np.full(10, -1.0), "weight"),
    ],
)
def test_exact_evidence_refuses_bad_columns(column, value, reason):
    with pytest.raises(DataError, match=reason):
        linear.log_evidence(linear.simulate(10) | {column: value})


# --- densities -----------------------------------------------------------------------------


def row_log_likelihoods(model, parameters, values):
    with jax.enable_x64(True):
        return np.asarray(model.row_log_likelihoods(parameters, values))


def prior_draws(model, num_draws=4):
    draws = model.sample_prior(num_draws, seed=11)
    return [{name: value[i] for name, value in draws.items()} for i in range(num_draws)]


def test_linear_log_likelihood():
    model, data = linear.model(3, noise=0.4), linear.simulate(20, num_features=3)
    for p in prior_draws(model):
        expected = stats.norm(data["x"] @ p["w"] + p["b"], 0.4).logpdf(data["y"])
        np.testing.assert_allclose(row_log_likelihoods(model, p, data), expected, rtol=1e-10)


def test_gaussian_log_likelihood_and_prior():
    model, data = gaussian.model(1.0, 3.0, noise=0.4), gaussian.simulate(20)
    for p in prior_draws(model):
        expected = stats.norm(p["mu"], 0.4).logpdf(data)
        np.testing.assert_allclose(row_log_likelihoods(model, p, data), expected, rtol=1e-10)
        assert model.log_prior(p) == pytest.approx(stats.norm(1.0, 3.0).logpdf(p["mu"]))


def test_autoregressive_log_likelihood_and_prior():
    series = autoregressive.simulate(20)
    model = autoregressive.model(2, prior_scale=0.5, concentration=2.0, rate=3.0)
    for p in prior_draws(model):
        coefficients = np.append(p["w"], p["b"])
        mean = autoregressive_design(series, 2, 3) @ coefficients
        expected = stats.norm(mean, p["s2"] ** 0.5).logpdf(series[3:])
        actual = row_log_likelihoods(model, p, lagged(series, 3))
        np.testing.assert_allclose(actual, expected, rtol=1e-10)
        log_prior = stats.invgamma(2.0, scale=3.0).logpdf(p["s2"])
        log_prior += stats.norm(0, 0.5 * p["s2"] ** 0.5).logpdf(coefficients).sum()
        assert model.log_prior(p) == pytest.approx(log_prior, rel=1e-8)


@pytest.mark.parametrize(
    "rows", [np.zeros(4), lagged(np.zeros(4), 1), lagged(np.zeros((4, 2)), 2)], ids=str
)
def test_autoregression_asks_for_lagged_rows(rows):
    with pytest.raises(ModelError, match=r"wb\.lagged\(series, 2\)"):
        check_row_function(autoregressive.model(2), rows)


@pytest.mark.parametrize("label_type", [np.int64, np.float64])
def test_softmax_log_likelihood(label_type):
    model, data = logistic.model(3, 4), logistic.simulate(20, num_features=3)
    data["y"] = data["y"].astype(label_type)
    for p in prior_draws(model):
        scores = special.log_softmax(data["x"] @ p["w"].T + p["b"], axis=1)
        expected = scores[np.arange(20), data["y"].astype(int)]
        np.testing.assert_allclose(row_log_likelihoods(model, p, data), expected, rtol=1e-10)


@pytest.mark.parametrize(("num_components", "num_features"), [(1, 1), (3, 2)])
def test_mixture_log_likelihood_and_prior(num_components, num_features):
    model = mixture.model(num_components, num_features)
    data = mixture.simulate(20, num_components=num_components, num_features=num_features)
    for p in prior_draws(model):
        densities = [
            p["weights"][k] * np.prod(stats.norm(p["mu"][k], p["s2"][k] ** 0.5).pdf(data), axis=1)
            for k in range(num_components)
        ]
        with np.errstate(divide="ignore"):  # the explicit sum underflows far from all means
            expected = np.log(np.sum(densities, axis=0))
        actual = row_log_likelihoods(model, p, data)
        visible = expected > -600
        np.testing.assert_allclose(actual[visible], expected[visible], rtol=1e-9)
        assert np.all(np.isfinite(actual))
        log_prior = stats.invgamma(1, scale=1).logpdf(p["s2"]).sum()
        log_prior += stats.norm(0, 2 * np.sqrt(p["s2"])).logpdf(p["mu"]).sum()
        if num_components > 1:
            log_prior += stats.dirichlet(np.ones(num_components)).logpdf(p["weights"])
        assert model.log_prior(p) == pytest.approx(log_prior, rel=1e-8)


def test_mixture_density_on_unconstrained_vectors_is_a_change_of_variables():
    # Free coordinates of the parameters: the first weight, s2 and mu; a difference quotient
    # of the map from u to them gives the Jacobian that transform() must have added.
    model = mixture.model(2, 1)

    def free(u):
        p = model.transform(u)[0]
        parts = p["weights"][:1], p["s2"].ravel(), p["mu"].ravel()
        return np.concatenate([np.asarray(part) for part in parts])

    step = 1e-6
    with jax.enable_x64(True):
        for seed in range(5):
            u = np.random.default_rng(seed).normal(size=model.dimension)
            jacobian = np.column_stack(
                [(free(u + step * e) - free(u - step * e)) / (2 * step) for e in np.eye(5)]
            )
            parameters, log_density = model.transform(u)
            log_prior = model.log_prior(parameters)
            expected = log_prior + np.linalg.slogdet(jacobian)[1]
            assert float(log_density) == pytest.approx(expected, abs=1e-6)


def test_mixture_is_invariant_under_its_exchangeable_permutations():
    model, data = mixture.model(3, 2), mixture.simulate(10, num_components=3)
    (p,) = prior_draws(model, 1)
    value = row_log_likelihoods(model, p, data)
    for order in itertools.permutations(range(3)):
        permuted = {name: np.take(p[name], order, axis=axis) for name, axis in model.exchangeable}
        assert set(permuted) == set(p)
        assert model.log_prior(permuted) == pytest.approx(model.log_prior(p), rel=1e-8)
        np.testing.assert_allclose(row_log_likelihoods(model, permuted, data), value, rtol=1e-10)


def test_mixture_gradient_is_finite_where_a_weight_vanishes():
    model = mixture.model(3, 1)
    parameters = {"weights": np.eye(3)[0], "mu": np.zeros((3, 1)), "s2": np.ones((3, 1))}
    with jax.enable_x64(True):
        gradient = jax.grad(lambda p: model.row_log_likelihoods(p, np.zeros((2, 1))).sum())
        leaves = jax.tree_util.tree_leaves(gradient(parameters))
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3)])
def test_mixture_refuses_rows_of_another_length(shape):
    with pytest.raises(ModelError, match="vectors of length 2"):
        check_row_function(mixture.model(3, 2), np.zeros(shape))


def test_every_model_accepts_its_own_simulation():
    data = linear.simulate(5) | {"weight": np.ones(5)}
    assert check_row_function(linear.model(), data)
    assert not check_row_function(logistic.model(), logistic.simulate(5))
    assert not check_row_function(mixture.model(), mixture.simulate(5))
    assert not check_row_function(gaussian.model(), gaussian.simulate(5))
    assert not check_row_function(autoregressive.model(), lagged(autoregressive.simulate(5), 1))


def test_softmax_names_the_rows_with_bad_labels():
    check = logistic.model(2, 4).check_rows
    masks = check({"x": np.zeros((6, 2)), "y": np.array([0.0, 3.0, 4.0, -1.0, 1.5, np.nan])})
    assert list(masks["column 'y': label outside 0..3"]) == [False, False, True, True, False, False]
    assert list(masks["column 'y': label is not an integer"]) == [False] * 4 + [True] * 2
    assert not any(mask.any() for mask in check(logistic.simulate(50, num_features=2)).values())


# --- building ------------------------------------------------------------------------------


def test_models_of_one_make_are_one_object():
    assert linear.model() is linear.model(5, 1.0) is linear.model(noise=1, num_features=5)
    assert linear.model(noise=0.5) is not linear.model()
    assert logistic.model() is logistic.model(num_classes=4, num_features=np.int64(10))
    assert mixture.model() is mixture.model(num_components=5)
    assert gaussian.model() is gaussian.model(prior_scale=1)
    assert autoregressive.model() is autoregressive.model(np.int64(1), rate=1)


def test_changing_the_numbers_of_a_prior_compiles_nothing():
    structures = [
        jax.tree_util.tree_structure(gaussian.model(mean, scale))
        for mean, scale in [(0.0, 1.0), (3.0, 2.0)]
    ]
    assert structures[0] == structures[1]
    variances = [(1.0, 1.0), (2.0, 0.5)]
    structures = [
        jax.tree_util.tree_structure(autoregressive.model(2, 1.0, *numbers))
        for numbers in variances
    ]
    assert structures[0] == structures[1]


@pytest.mark.parametrize(
    ("build", "argument"),
    [
        (lambda: linear.model(num_features=0), "num_features"),
        (lambda: linear.model(num_features=2.5), "num_features"),
        (lambda: linear.model(noise=0), "noise"),
        (lambda: linear.model(noise=float("nan")), "noise"),
        (lambda: linear.simulate(-1), "num_rows"),
        (lambda: logistic.model(num_classes=1), "num_classes"),
        (lambda: logistic.model(num_features=True), "num_features"),
        (lambda: mixture.model(num_components=0), "num_components"),
        (lambda: mixture.simulate_shift(change_points=(10, 5)), "change_points"),
        (lambda: mixture.simulate_shift(num_clusters=(2, 3, 8)), "num_clusters"),
        (lambda: mixture.simulate_shift(num_clusters=(0, 3, 5)), "num_clusters"),
        (lambda: gaussian.model(prior_scale=-1.0), "prior_scale"),
        (lambda: gaussian.model(prior_mean="far"), "prior_mean"),
        (lambda: gaussian.simulate(5, noise=float("inf")), "noise"),
        (lambda: autoregressive.model(order=0), "order"),
        (lambda: autoregressive.model(concentration=0), "concentration"),
        (lambda: autoregressive.model(rate=-1), "rate"),
        (lambda: autoregressive.simulate(5, coefficients=[0.5, 0.5]), "coefficients"),
        (lambda: autoregressive.simulate(5, coefficients=["a"]), "coefficients"),
    ],
)
def test_bad_arguments_are_named(build, argument):
    with pytest.raises(ModelError, match=argument):
        build()


# --- simulations ---------------------------------------------------------------------------

SIMULATORS = [
    linear.simulate,
    logistic.simulate,
    mixture.simulate,
    mixture.simulate_shift,
    gaussian.simulate,
    autoregressive.simulate,
]


@pytest.mark.parametrize("simulate", SIMULATORS)
def test_simulations_are_reproducible(simulate):
    first, again, other, longer = (
        jax.tree_util.tree_leaves(simulate(num_rows, seed=seed))
        for num_rows, seed in [(50, 1), (50, 1), (50, 2), (80, 1)]
    )
    for a, b, c, d in zip(first, again, other, longer, strict=True):
        assert a.dtype in (np.float64, np.int64)
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)
        np.testing.assert_allclose(a, d[:50], rtol=1e-12)  # a stream has a fixed beginning


def test_autoregressive_simulation_follows_its_parameters():
    arguments = {"coefficients": (0.6, -0.2, 0.1), "intercept": 2.0, "noise": 0.5}
    series = autoregressive.simulate(40_000, seed=7, **arguments)
    design = autoregressive_design(series, 3, 3)
    fitted, (squares,) = np.linalg.lstsq(design, series[3:])[:2]
    error = 0.5 * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    assert np.all(np.abs(fitted - [0.6, -0.2, 0.1, 2.0]) < 5 * error)
    assert squares / 40_000 == pytest.approx(0.25, rel=5 * np.sqrt(2 / 40_000))
    # It is stationary from the first row on: its mean is that of all rows.
    starts = [autoregressive.simulate(1, seed=seed, **arguments)[0] for seed in range(400)]
    assert abs(np.mean(starts) - 4.0) < 5 * np.std(starts) / 20
    assert np.std(starts) == pytest.approx(series.std(), rel=0.2)


def test_mixture_simulation_follows_its_parameters():
    truth = mixture.simulate_parameters(num_components=3, seed=7)
    data = mixture.simulate(40_000, num_components=3, seed=7)
    mean = truth["weights"] @ truth["mu"]
    variance = truth["weights"] @ (truth["s2"] + truth["mu"] ** 2) - mean**2
    assert np.all(np.abs(data.mean(0) - mean) < 5 * np.sqrt(variance / 40_000))
    np.testing.assert_allclose(data.var(0), variance, rtol=0.1)


def test_shift_stream_changes_at_the_change_points():
    data = mixture.simulate_shift(3_000, change_points=(1_000, 2_000), seed=3)
    later = mixture.simulate_shift(3_000, change_points=(1_500, 2_000), seed=3)
    same = np.all(data == later, axis=1)
    assert same[:1_000].all()
    assert same[1_500:].all()
    assert not same[1_000:1_500].all()
    new = np.linalg.norm(data[:, None] - mixture.SHIFT_MEANS[3:5], axis=-1).min(axis=1) < 0.7
    assert new[:1_000].mean() < 0.05
    assert new[1_000:2_000].mean() > 0.2


@pytest.mark.parametrize("clusters", [mixture.SHIFT_CLUSTERS, (2, 3, 5)])
def test_shift_stream_has_the_clusters_of_each_phase(clusters):
    data = mixture.simulate_shift(num_clusters=clusters, seed=1)
    assert data.shape == (100_000, 2)
    log_densities = stats.norm(mixture.SHIFT_MEANS, mixture.SHIFT_SCALES).logpdf(data[:, None])
    component = log_densities.sum(axis=-1)
    fits = np.array([special.logsumexp(component[:, :k], axis=1) - np.log(k) for k in clusters])
    phases = [slice(0, 1_000), slice(1_000, 10_000), slice(10_000, None)]
    assert [int(np.argmax(fits[:, phase].mean(axis=1))) for phase in phases] == [0, 1, 2]


# --- the registry --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "num_features", "model"),
    [
        ("linear", 3, lambda: linear.model(3)),
        ("linear:0.5", 3, lambda: linear.model(3, 0.5)),
        ("softmax:4", 2, lambda: logistic.model(2, 4)),
        ("mixture:5", 2, lambda: mixture.model(5, 2)),
        ("gaussian", 1, gaussian.model),
        ("gaussian:2", 1, lambda: gaussian.model(noise=2)),
        ("autoregressive", 1, autoregressive.model),
        ("autoregressive:3", 1, lambda: autoregressive.model(3)),
    ],
)
def test_specs_build_their_models_and_rows(spec, num_features, model):
    entry, option = parse(spec)
    assert entry is entries()[spec.partition(":")[0]]
    built = entry.build(num_features, option)
    assert built is model()
    num_columns = num_features + entry.lags(option)
    features = np.random.default_rng(0).normal(size=(4, num_columns))
    target = np.array([0.0, 1.0, 1.0, 0.0]) if entry.needs_target else None
    check_row_function(built, entry.rows(features, target))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("linaer", "Did you mean 'linear'.*softmax.*mixture.*gaussian"),
        ("logistic", "Did you mean 'softmax'"),
        ("zzz", r"no model 'zzz'\. Choose one of \['linear'"),
        ("mixture:zero", "number of components, an integer of at least 1 .* not 'zero'"),
        ("mixture:0", "number of components"),
        ("mixture:", "number of components"),
        ("softmax:1", "number of classes, an integer of at least 2"),
        ("linear:-1", "noise, a finite number above 0"),
        ("linear:inf", "noise"),
        ("gaussian:wide", "noise"),
        ("ar", "Did you mean 'autoregressive'"),
        ("autoregressive:0", "number of previous values, an integer of at least 1"),
    ],
)
def test_bad_specs_are_explained(spec, message):
    with pytest.raises(ModelError, match=message):
        parse(spec)


def test_registry_rows():
    features = np.arange(6).reshape(3, 2)
    known = entries()
    labels = known["softmax"].rows(features, np.array([0.0, 2.0, 1.0]))["y"]
    assert labels.dtype == np.float64
    broken = known["softmax"].rows(features, np.array([0.0, 2.5, np.nan]))["y"]
    assert broken.dtype == np.float64
    assert known["mixture"].rows(features, None).dtype == np.float64
    with pytest.raises(DataError, match="name that target"):
        known["linear"].rows(features, None)
    with pytest.raises(DataError, match="no target"):
        known["mixture"].rows(features, np.zeros(3))
    with pytest.raises(DataError, match="one column"):
        known["gaussian"].rows(features, None)
    with pytest.raises(DataError, match="numbers"):
        known["softmax"].rows(features, np.array(["a", "b", "c"]))
    with pytest.raises(ModelError, match="one column"):
        known["gaussian"].build(2, None)
    with pytest.raises(ModelError, match="one column"):
        known["autoregressive"].build(2, None)
    with pytest.raises(DataError, match="value and its previous values"):
        known["autoregressive"].rows(features[:, :1], None)
    series = known["autoregressive"].rows(features, None)
    np.testing.assert_array_equal(series["value"], features[:, 0])
    np.testing.assert_array_equal(series["past"], features[:, 1:])
    with pytest.raises(dataclasses.FrozenInstanceError):
        known["linear"].name = "other"
