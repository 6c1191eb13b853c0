"""The model: priors as densities on R^D, pytrees, and every refusal."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.distributions.transforms import AffineTransform

from weighbridge.core.errors import ModelError
from weighbridge.models.model import EDGE, Model, draw_positions


def no_data(parameters, row):
    return jnp.zeros(())


def of(prior):
    return Model({"a": prior}, no_data)


ordered = dist.TransformedDistribution(
    dist.Normal(0, 1).expand([3]).to_event(1), dist.transforms.OrderedTransform()
)
mixture = dist.MixtureSameFamily(
    dist.Categorical(jnp.array([0.3, 0.7])), dist.Normal(jnp.array([-1.0, 2.0]), 1.0)
)
COVARIANCE = jnp.array([[2.0, 0.5], [0.5, 1.0]])
scaled = dist.TransformedDistribution(
    dist.Gamma(jnp.array([2.0, 4.0]), 1.0), [AffineTransform(0.0, 3.0), AffineTransform(1.0, 0.5)]
)
mirrored = dist.TransformedDistribution(dist.Normal(0.5, 1.0), AffineTransform(10.0, -2.0))

# name: (distribution, shape, dimension)
TABLE = {
    "Normal": (dist.Normal(1.0, 0.1), (), 1),
    "Normal array": (dist.Normal(jnp.array([0.0, 5.0]), 2.0), (2,), 2),
    "Normal to_event": (dist.Normal(0, 1).expand([2, 2]).to_event(1), (2, 2), 4),
    "StudentT": (dist.StudentT(3.0, 1.0, 2.0), (), 1),
    "HalfNormal": (dist.HalfNormal(2.0), (), 1),
    "HalfCauchy array": (dist.HalfCauchy(jnp.full((2, 3), 2.0)), (2, 3), 6),
    "InverseGamma": (dist.InverseGamma(2.0, 3.0), (), 1),
    "InverseGamma array": (dist.InverseGamma(jnp.array([1.0, 3.0]), 2.0), (2,), 2),
    "Gamma": (dist.Gamma(2.0, 0.5), (), 1),
    "LogNormal": (dist.LogNormal(0.5, 0.7), (), 1),
    "Beta": (dist.Beta(2.0, 0.8), (), 1),
    "Uniform": (dist.Uniform(-2.0, 5.0), (), 1),
    "Uniform array": (dist.Uniform(jnp.array([0.0, -1.0]), jnp.array([1.0, 4.0])), (2,), 2),
    "LogUniform": (dist.LogUniform(0.1, 10.0), (), 1),
    "Dirichlet": (dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])), (3,), 2),
    "Dirichlet batch": (dist.Dirichlet(jnp.ones((2, 3))), (2, 3), 4),
    "LKJ": (dist.LKJ(3, 1.5), (3, 3), 3),
    "LKJCholesky": (dist.LKJCholesky(3, 1.5), (3, 3), 3),
    "Wishart": (dist.Wishart(5.0, scale_matrix=COVARIANCE), (2, 2), 3),
    "MultivariateNormal": (dist.MultivariateNormal(jnp.ones(2), COVARIANCE), (2,), 2),
    "TruncatedNormal": (dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0), (), 1),
    "VonMises": (dist.VonMises(0.5, 2.0), (), 1),
    "Exponential": (dist.Exponential(0.5), (), 1),
    "Kumaraswamy": (dist.Kumaraswamy(2.0, 3.0), (), 1),
    "Pareto": (dist.Pareto(1.0, 3.0), (), 1),
    "ordered": (ordered, (3,), 3),
    "mixture": (mixture, (), 1),
    "scaled": (scaled, (2,), 2),
    "scaled to_event": (scaled.to_event(1), (2,), 2),
    "mirrored": (mirrored.expand([2, 2]).to_event(1).to_event(1), (2, 2), 4),
    "ZeroSumNormal": (dist.ZeroSumNormal(1.0, (4,)), (4,), 3),
}
CURVED = {"Dirichlet", "Dirichlet batch", "LKJ", "LKJCholesky", "Wishart", "ZeroSumNormal"}
SQUARE = [name for name in TABLE if name not in CURVED]
SCALAR = [name for name, (_, _, dimension) in TABLE.items() if dimension == 1]
WITH_CDF = [
    "Normal", "Normal array", "StudentT", "HalfNormal", "HalfCauchy array", "InverseGamma",
    "InverseGamma array", "Gamma", "LogNormal", "Beta", "Uniform", "Uniform array", "LogUniform",
    "TruncatedNormal", "Exponential", "Pareto", "mixture",
]  # fmt: skip
NUM_DRAWS = 4000  # one shape for all tests of a distribution: each program compiles once
NUM_POINTS = 20_001


class Case:
    """A model of the table with its draws."""

    def __init__(self, name):
        self.name = name
        self.prior, self.shape, self.dimension = TABLE[name]
        self.model = of(self.prior)
        self.draws = self.model.sample_prior(NUM_DRAWS, seed=2)["a"]


@pytest.fixture(scope="module", params=TABLE)
def case(request):
    return Case(request.param)


@jax.jit
def log_densities(model, positions):
    return jax.vmap(lambda u: model.transform(u)[1])(positions)


@jax.jit
def log_density_by_jacobian(model, u):
    """The definition: log p(T(u)) + log |det dT/du|, the Jacobian by differentiation."""
    jacobian = jax.jacfwd(lambda v: ravel_pytree(model.transform(v)[0])[0])(u)
    (prior,) = [prior for _, prior in model._priors({})]
    value = model.transform(u)[0]["a"]
    return jnp.sum(prior.log_prob(value)) + jnp.linalg.slogdet(jacobian)[1]


# --- (a) one distribution at a time ------------------------------------------------------


def test_layout_and_support(case):
    (site,) = case.model.sites
    assert site.shape == case.shape
    assert case.model.dimension == case.dimension == site.stop
    assert case.model.names == ("a",)
    assert case.draws.shape == (NUM_DRAWS, *case.shape)
    assert case.draws.dtype == np.float64
    with jax.enable_x64(True):
        assert np.all(case.prior.support(jnp.asarray(case.draws)))


def test_ravel_round_trip(case):
    positions = np.random.default_rng(1).normal(size=(2, NUM_DRAWS // 2, case.dimension))
    values = case.model.unravel(positions)["a"]
    assert values.shape == (*positions.shape[:2], *case.shape)
    for index in [(0, 0), (0, 1), (1, 0)]:
        position = case.model.ravel({"a": values[index]})
        assert position.dtype == np.float64
        np.testing.assert_allclose(position, positions[index], atol=1e-9)


def test_density_is_normalised_on_the_unconstrained_space(case):
    # The mean importance weight under a heavy-tailed proposal is the integral of the density: a
    # missing or doubled Jacobian shows. 28 cases at 5 standard errors: a false alarm in 60,000.
    rng = np.random.default_rng(3)
    positions = np.stack([case.model.ravel({"a": draw}) for draw in case.draws[:300]])
    centre = np.median(positions, axis=0)
    spread = 1.5 * np.quantile(np.abs(positions - centre), 0.7, axis=0)
    degrees = 3.0
    normal = rng.normal(size=(NUM_POINTS, case.dimension))
    heavy = normal * np.sqrt(degrees / rng.chisquare(degrees, size=(NUM_POINTS, 1)))
    log_proposal = _log_student(heavy, degrees) - np.log(spread).sum()
    with jax.enable_x64(True):
        log_target = np.asarray(log_densities(case.model, centre + spread * heavy))
    # A density so far out that it is 0/0 counts as zero, and may only be so out there.
    lost = np.isnan(log_target)
    assert lost.mean() < 0.01
    weights = np.where(lost, 0.0, np.exp(np.nan_to_num(log_target) - log_proposal))
    error = weights.std() / np.sqrt(NUM_POINTS)
    assert error < 0.03
    assert abs(weights.mean() - 1) < 5 * error, (weights.mean(), error)


def _log_student(x, degrees):
    dimension = x.shape[1]
    constant = math.lgamma((degrees + dimension) / 2) - math.lgamma(degrees / 2)
    constant -= dimension / 2 * math.log(degrees * math.pi)
    return constant - (degrees + dimension) / 2 * np.log1p((x**2).sum(axis=1) / degrees)


@pytest.mark.parametrize("case", SQUARE, indirect=True)
def test_jacobian_where_square(case):
    positions = np.random.default_rng(4).normal(size=(NUM_POINTS, case.dimension))
    with jax.enable_x64(True):
        ours = log_densities(case.model, positions)[:3]
        reference = [log_density_by_jacobian(case.model, u) for u in positions[:3]]
    np.testing.assert_allclose(ours, reference, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", SCALAR, indirect=True)
def test_scalar_densities_integrate_to_one(case):
    grid = np.sinh(np.linspace(-9, 9, NUM_POINTS))  # dense in the middle, to +-4000 in the tails
    with jax.enable_x64(True):
        log_density = np.asarray(log_densities(case.model, grid[:, None]))
    assert not np.any(log_density == np.inf)
    density = np.exp(np.where(np.isnan(log_density), -np.inf, log_density))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)


def test_log_prior_is_the_density_of_the_parameter(case):
    with jax.enable_x64(True):
        doubles = jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf, float), case.prior)
        expected = float(jnp.sum(doubles.log_prob(jnp.asarray(case.draws[0]))))
    result = case.model.log_prior({"a": case.draws[0]})
    assert isinstance(result, float)
    assert result == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("case", WITH_CDF, indirect=True)
def test_draws_follow_the_distribution(case):
    # The distribution function at the draws is uniform: two moments of 25 parameters, at 5
    # standard errors (a false alarm in 30,000).
    with jax.enable_x64(True):
        uniform = np.asarray(case.prior.cdf(jnp.asarray(case.draws)))
    assert np.all(np.abs(uniform.mean(axis=0) - 1 / 2) < 5 * np.sqrt(1 / 12 / NUM_DRAWS))
    assert np.all(np.abs((uniform**2).mean(axis=0) - 1 / 3) < 5 * np.sqrt(4 / 45 / NUM_DRAWS))


def test_draws_of_vectors_follow_the_distribution():
    simplex = Case("Dirichlet").draws
    expected = np.array([1, 2, 3]) / 6
    error = np.sqrt(expected * (1 - expected) / 7 / NUM_DRAWS)
    assert np.all(np.abs(simplex.mean(axis=0) - expected) < 5 * error)
    # The marginal of LKJ(3, 1.5): (r + 1) / 2 ~ Beta(2, 2), so r has variance 1/5.
    correlation = Case("LKJ").draws[:, 0, 2]
    assert abs(correlation.mean()) < 5 * np.sqrt(1 / 5 / NUM_DRAWS)
    assert abs((correlation**2).mean() - 1 / 5) < 5 * np.sqrt(1 / 20 / NUM_DRAWS)


def test_parameters_are_drawn_independently_and_reproducibly():
    model = Model({"a": dist.Normal(0, 1), "b": dist.Normal(0, 1)}, no_data)
    draws = model.sample_prior(4000, seed=7)
    assert abs(np.mean(draws["a"] * draws["b"])) < 5 / np.sqrt(4000)
    again = model.sample_prior(4000, seed=7)
    other = model.sample_prior(4000, seed=8)
    np.testing.assert_array_equal(draws["a"], again["a"])
    assert not np.array_equal(draws["a"], other["a"])


def test_draws_that_underflow_stay_finite():
    # Beta(1e-3, 1e-3) draws are 0 or 1 in double precision: no finite logit.
    with jax.enable_x64(True):
        positions = draw_positions(of(dist.Beta(1e-3, 1e-3)), jax.random.key(0), 200)
        tiny = draw_positions(of(dist.Gamma(1e-3, 1.0)), jax.random.key(0), 200)
    assert np.all(np.isfinite(positions))
    assert np.all(np.isfinite(tiny))
    assert np.abs(positions).max() <= 800
    assert np.any(np.abs(positions) == EDGE) or np.abs(positions).max() > 20


# --- (b) functions of earlier parameters -------------------------------------------------


def dependent():
    return Model(
        {
            "a": dist.HalfNormal(1.0),
            "b": lambda p: dist.Uniform(-p["a"], p["a"]),
            "w": lambda p: dist.Normal(p["b"], p["a"]).expand([2]).to_event(1),
            "z": dist.Normal(0, 1),
        },
        no_data,
    )


def test_dependent_priors():
    model = dependent()
    assert model.names == ("a", "b", "w", "z")
    assert model.dimension == 5
    draws = model.sample_prior(200)
    assert list(draws) == ["a", "b", "w", "z"]
    assert np.all(np.abs(draws["b"]) < draws["a"])
    for index in range(3):
        one = {name: value[index] for name, value in draws.items()}
        u = model.ravel(one)
        for name, value in model.unravel(u).items():
            np.testing.assert_allclose(value, one[name], rtol=1e-9)
        with jax.enable_x64(True):
            a, b = one["a"], one["b"]
            expected = dist.HalfNormal(1.0).log_prob(a) - np.log(2 * a)
            expected += jnp.sum(dist.Normal(b, a).log_prob(one["w"]))
            expected += dist.Normal(0, 1).log_prob(one["z"])
            assert model.log_prior(one) == pytest.approx(float(expected), rel=1e-9)
            # a = exp(u0), b = a (2 sigmoid(u1) - 1): log|det| = u0 + log(2a) + log s(1-s)
            s = (b / a + 1) / 2
            jacobian = np.log(a) + np.log(2 * a) + np.log(s * (1 - s))
            log_density = model.transform(u)[1]
            assert float(log_density) == pytest.approx(float(expected) + jacobian, rel=1e-9)


def test_dependent_joint_density_is_normalised():
    model = Model(
        {"a": dist.HalfNormal(1.0), "b": lambda p: dist.Uniform(-p["a"], p["a"])}, no_data
    )
    axis = np.linspace(-16, 16, 321)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    with jax.enable_x64(True):
        density = np.exp(log_densities(model, grid))
    assert density.sum() * (axis[1] - axis[0]) ** 2 == pytest.approx(1.0, abs=1e-3)


def test_a_prior_that_is_scaled_has_coordinates_free_of_the_scale():
    """The same model in two ways: in one the funnel is gone, and densities differ by a Jacobian."""
    hollow = {"s": dist.HalfNormal(3.0)}
    plain = Model(hollow | {"x": lambda p: dist.Normal(1.0, jnp.full(3, p["s"]))}, no_data)
    standard = dist.Normal(jnp.zeros(3), 1.0)
    free = Model(
        hollow
        | {"x": lambda p: dist.TransformedDistribution(standard, AffineTransform(1.0, p["s"]))},
        no_data,
    )
    draws = free.sample_prior(2000, seed=3)
    for index in range(3):
        one = {name: value[index] for name, value in draws.items()}
        s, u, v = one["s"], free.ravel(one), plain.ravel(one)
        np.testing.assert_allclose(u[1:], (one["x"] - 1.0) / s, rtol=1e-10)
        assert free.log_prior(one) == pytest.approx(plain.log_prior(one), rel=1e-12)
        with jax.enable_x64(True):
            here, there = float(free.transform(u)[1]), float(plain.transform(v)[1])
        assert here == pytest.approx(there + 3 * np.log(s), rel=1e-10)
    with jax.enable_x64(True):
        positions = np.asarray(jax.vmap(free.flatten)(draws))
    # Digits are not lost where the scale is nothing beside the shift.
    tiny = Model(
        {
            "s": dist.LogUniform(1e-18, 1.0),
            "x": lambda p: dist.TransformedDistribution(
                dist.Normal(0.0, 1.0), AffineTransform(10.0, p["s"])
            ),
        },
        no_data,
    )
    with jax.enable_x64(True):
        low, high = (float(tiny.transform(jnp.array([-8.0, x]))[1]) for x in (0.0, 2.0))
    assert low - high == pytest.approx(2.0, rel=1e-9)
    # Standard normals, whatever the scale: 6 sums at 5 standard errors.
    narrow = draws["s"] < np.median(draws["s"])
    for half in (positions[narrow, 1:], positions[~narrow, 1:]):
        np.testing.assert_allclose(half.mean(axis=0), 0.0, atol=5 / np.sqrt(1000))
        np.testing.assert_allclose(half.var(axis=0), 1.0, atol=5 * np.sqrt(2 / 1000))


def test_forgetful_distribution_works_as_a_function():
    assert of(lambda p: Forgetful(2.0)).sample_prior(3)["a"].shape == (3,)


# --- (c) double precision ----------------------------------------------------------------


@pytest.mark.parametrize("flag", [False, True])
def test_double_precision_whatever_the_flag(flag):
    with jax.enable_x64(flag):
        model = dependent()
        draws = model.sample_prior(2)
        one = {name: value[0] for name, value in draws.items()}
        u = model.ravel(one)
        back = model.unravel(u)
        assert {value.dtype for value in draws.values()} == {np.dtype(np.float64)}
        assert {value.dtype for value in back.values()} == {np.dtype(np.float64)}
        assert u.dtype == np.float64
        assert all(isinstance(value, np.ndarray) for value in [u, *draws.values(), *back.values()])
        assert isinstance(model.log_prior(one), float)
        assert jnp.ones(()).dtype == (jnp.float64 if flag else jnp.float32)
    assert not jax.config.jax_enable_x64


def test_prior_numbers_keep_all_their_digits():
    model = of(dist.Normal(0.1, 0.3))
    expected = -0.5 * ((0.7 - 0.1) / 0.3) ** 2 - np.log(0.3 * np.sqrt(2 * np.pi))
    assert model.log_prior({"a": 0.7}) == pytest.approx(expected, rel=1e-14)


# --- (d) every refusal -------------------------------------------------------------------


class Forgetful(dist.Distribution):
    """A user's class that does not tell JAX about its field."""

    support = dist.constraints.real

    def __init__(self, scale):
        self.scale = scale
        super().__init__()

    def sample(self, key, sample_shape=()):
        return self.scale * jax.random.normal(key, sample_shape)

    def log_prob(self, value):
        return dist.Normal(0, self.scale).log_prob(value)


IMPROPER = dist.ImproperUniform(dist.constraints.real, (), ())
BAD_PRIORS = {
    "not a distribution": (3.0, "prior of 'a' must be a NumPyro distribution or a function"),
    "improper": (IMPROPER, r"prior of 'a' is improper \(ImproperUniform\).*proper prior"),
    "improper expanded": (IMPROPER.expand([2]).to_event(1), "'a' is improper"),
    "improper function": (lambda p: IMPROPER, "'a' is improper"),
    "masked": (dist.Normal(0, 1).mask(False), r"'a' is improper \(MaskedDistribution\)"),
    "point": (dist.Delta(1.0), r"'a' is a point \(Delta\).*log-likelihood instead"),
    "unit": (dist.Unit(0.0), r"'a' is a point \(Unit\)"),
    "discrete": (dist.Poisson(2.0), r"'a' is discrete \(Poisson\).*Sum the discrete"),
    "discrete function": (lambda p: dist.Bernoulli(0.5), "'a' is discrete"),
    "sphere": (dist.ProjectedNormal(jnp.ones(3)), "'a' has the support .*no bijector"),
    "infinite scale": (dist.Normal(0, np.inf), "'a' has scale=inf.*improper"),
    "infinite array": (dist.Normal(0, jnp.array([1.0, jnp.inf])), "'a' has scale"),
    "infinite expanded": (dist.Normal(0, np.inf).expand([2]).to_event(1), "'a' has scale=inf"),
    "infinite interval": (dist.Uniform(-np.inf, 0.0), "'a' has low=-inf"),
    "not a number": (dist.Normal(np.nan, 1.0, validate_args=False), "'a' has loc=nan"),
    "infinite inside": (
        dist.TruncatedDistribution(dist.Normal(0.0, np.inf), low=0.0, high=1.0),
        "'a' has scale=inf",
    ),
    "empty interval": (
        dist.Uniform(1.0, 1.0, validate_args=False),
        "'a' has low=1.0, which is not below high=1.0",
    ),
    "invalid": (
        dist.Gamma(-1.0, 1.0, validate_args=False),
        "'a' is not valid: Gamma distribution got invalid concentration",
    ),
    "unknown name": (lambda p: dist.Normal(0, p["b"]), "'a' uses the parameter 'b', which is not"),
    "wrong result": (lambda p: 1.0, "as the prior of 'a' must return .* not float"),
    "no coordinate": (dist.Normal(0, 1).expand([0]), "no free parameter"),
    "forgetful": (Forgetful(1.0), r"'a' \(Forgetful\) loses a part.*as a function"),
}


@pytest.mark.parametrize("name", BAD_PRIORS)
def test_bad_priors_are_named(name):
    prior, message = BAD_PRIORS[name]
    with pytest.raises(ModelError, match=f"(?s){message}"):
        of(prior)


NORMAL = {"a": dist.Normal(0, 1).expand([2]), "b": dist.Normal(0, 1).expand([3])}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Model({}, no_data), "prior must be a mapping"),
        (lambda: Model(dist.Normal(0, 1), no_data), "prior must be a mapping"),
        (lambda: Model(NORMAL), "exactly one of log_likelihood"),
        (lambda: Model(NORMAL, no_data, total_log_likelihood=no_data), "exactly one of"),
        (lambda: Model(NORMAL, 3.0), "log-likelihood must be a function, not 3.0"),
        (lambda: Model(NORMAL, no_data, exchangeable={"c": 0}), "exchangeable names 'c'"),
        (lambda: Model(NORMAL, no_data, exchangeable={"a": 1}), "'a' has shape .* no axis 1"),
        (lambda: Model(NORMAL, no_data, exchangeable={"a": 0, "b": 0}), "must have one length"),
        (lambda: of(dist.Normal(0, 1)).sample_prior(0), "num_samples must be at least 1"),
        (lambda: of(dist.Normal(0, 1)).ravel({"b": 0.0}), r"\['a'\] are missing"),
        (lambda: of(dist.Normal(0, 1)).ravel({"a": [0.0, 1.0]}), r"'a' has shape \(2,\)"),
        (lambda: of(dist.Normal(0, 1)).unravel([0.0, 1.0]), "has 1 coordinates along its last"),
        (lambda: of(dist.Normal(0, 1)).unravel(0.0), "has 1 coordinates along its last"),
    ],
)
def test_bad_models_and_calls(build, message):
    with pytest.raises(ModelError, match=message):
        build()


def test_exchangeable_and_repr():
    prior = {"a": dist.Normal(0, 1).expand([2]), "b": dist.Dirichlet(jnp.ones((3, 2)))}
    model = Model(prior, no_data, exchangeable={"a": 0, "b": -1})
    assert model.exchangeable == (("a", 0), ("b", -1))
    assert repr(model) == "Model(a[2], b[3, 2]; 5 dimensions)"


# --- (e) pytree ---------------------------------------------------------------------------


def test_second_model_of_the_same_make_does_not_retrace():
    traces = []

    def log_likelihood(p, y):
        traces.append(1)
        return dist.Normal(p["mu"], p["s"]).log_prob(y)

    def mean(p):
        return dist.Normal(0, p["s"])

    @jax.jit
    def evaluate(model, u, y):
        parameters, log_prior = model.transform(u)
        return log_prior, model.log_likelihood(parameters, y)

    def make(scale, function=mean):
        return Model({"s": dist.HalfNormal(scale), "mu": function}, log_likelihood)

    with jax.enable_x64(True):
        first = evaluate(make(1.0), jnp.zeros(2), 0.5)
        second = evaluate(make(2.0), jnp.zeros(2), 0.5)
        assert len(traces) == 1
        assert float(first[0]) != float(second[0])
        assert float(first[1]) == float(second[1])
        evaluate(make(1.0, lambda p: dist.Normal(0, p["s"])), jnp.zeros(2), 0.5)
        assert len(traces) == 2


def test_pytree_round_trip():
    model = Model(
        {"t": dist.TruncatedNormal(0.0, 2.0, low=-1.0, high=3.0), "mu": dist.StudentT(3.0, 1.0, 2.),
         "b": lambda p: dist.Normal(p["mu"], 1.0)},
        no_data, exchangeable=None, check_rows=lambda values: {},
    )  # fmt: skip
    leaves, structure = jax.tree_util.tree_flatten(model)
    assert all(leaf.dtype == np.float64 for leaf in leaves)
    again = jax.tree_util.tree_unflatten(structure, leaves)
    assert repr(again) == repr(model)
    assert again.fingerprint() == model.fingerprint()
    assert again.check_rows is model.check_rows
    assert jax.tree_util.tree_structure(again) == structure
    with jax.enable_x64(True):
        u = jnp.array([0.3, -0.2, 1.0])
        (expected,) = log_densities(model, u[None])
        assert float(log_densities(again, u[None])[0]) == float(expected)
        # Placeholders, as JAX puts into pytrees now and then, survive as well.
        nothing = jax.tree_util.tree_map(lambda leaf: None, model)
        assert jax.tree_util.tree_leaves(nothing) == []
        stacked = jax.tree_util.tree_map(lambda leaf: jnp.stack([leaf, leaf]), model)
        both = jax.jit(jax.vmap(lambda m: m.transform(u)[1]))(stacked)
        np.testing.assert_allclose(both, float(expected))
