"""NumPyro models as weighbridge models: same densities, and a clear no where there is none."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam, TransformReparam
from numpyro.infer.util import log_density, log_likelihood, potential_energy

from weighbridge.core.errors import DataError, ModelError
from weighbridge.models.numpyro.reading import from_numpyro
from weighbridge.models.row_likelihood import check_row_function

pytestmark = pytest.mark.long

rng = np.random.default_rng(0)
N = 30
X = rng.normal(size=(N, 3))
Y = X @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=N)
LABEL = (Y > 0).astype(int)
GROUP = rng.integers(0, 4, size=N)


# --- models ------------------------------------------------------------------------------


def linear(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w + b, 1.0), obs=y)


def logistic(x, label=None):
    w = numpyro.sample("w", dist.Normal(0, 2), sample_shape=(x.shape[1],))
    numpyro.deterministic("logits", x @ w)
    numpyro.sample("label", dist.Bernoulli(logits=x @ w), obs=label)


def hierarchical(group, y=None, num_groups=4):
    scale = numpyro.sample("scale", dist.HalfNormal(2))
    mean = numpyro.sample("mean", dist.Normal(1, 3))
    with numpyro.plate("groups", num_groups):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
    noise = numpyro.sample("noise", dist.InverseGamma(2, 1))
    with numpyro.plate("rows", len(group)):
        numpyro.sample("y", dist.Normal(effect[group], jnp.sqrt(noise)), obs=y)


def mixture(y=None):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    low = numpyro.sample("low", dist.Uniform(-3, 1))
    high = numpyro.sample("high", dist.Uniform(low, low + 2))
    centres = jnp.stack([low, high, low + high])
    with numpyro.plate("rows", y.shape[0]):
        components = dist.Normal(centres, 1.0)
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), components), obs=y)


def two_outputs(x, y=None, label=None):
    chol = numpyro.sample("chol", dist.LKJCholesky(2, 1.5))
    w = numpyro.sample("w", dist.MultivariateNormal(jnp.zeros(2), scale_tril=chol))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.StudentT(4.0, x[:, 0] * w[0], 1.0), obs=y)
        numpyro.sample("label", dist.Bernoulli(logits=x[:, 1] * w[1]), obs=label)


def affine(x, y=None):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    base = dist.TransformedDistribution(
        dist.Normal(0, 1), dist.transforms.AffineTransform(2.0, scale)
    )
    shift = numpyro.sample("shift", base)
    with numpyro.plate("group", 3):
        effect = numpyro.sample("effect", dist.Normal(shift, scale))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ effect, 1.0), obs=y)


reparametrised = handlers.reparam(
    affine, config={"shift": TransformReparam(), "effect": LocScaleReparam(0)}
)


def history(x, y=None, time=None):
    """Each row is a whole series: scan runs along the row, and rows stay independent."""
    slope = numpyro.sample("slope", dist.Uniform(-1, 1))

    def step(last, now):
        with numpyro.plate("rows", x.shape[0]):
            now = numpyro.sample("series", dist.Normal(slope * last, 1.0), obs=now)
        return now, None

    scan(step, jnp.zeros(x.shape[0]), x.T)


CASES = {
    "linear": (linear, {"x": X, "y": Y}, {}, ["w", "b"], 4),
    "logistic": (logistic, {"x": X, "label": LABEL}, {}, ["w"], 3),
    "hierarchical": (
        hierarchical,
        {"group": GROUP, "y": Y},
        {"num_groups": 4},
        ["scale", "mean", "effect", "noise"],
        7,
    ),
    "mixture": (mixture, {"y": Y}, {}, ["weights", "low", "high"], 4),
    "two outputs": (two_outputs, {"x": X, "y": Y, "label": LABEL}, {}, ["chol", "w"], 3),
    "affine": (affine, {"x": X, "y": Y}, {}, ["scale", "shift", "effect"], 5),
    "reparametrised": (
        reparametrised,
        {"x": X, "y": Y},
        {},
        ["scale", "shift_base", "effect_decentered"],
        5,
    ),
    "series in rows": (history, {"x": X}, {}, ["slope"], 1),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    function, data, static, names, dimension = CASES[request.param]
    model = from_numpyro(function, data, static=static)
    assert model.names == tuple(names)
    assert model.dimension == dimension
    return function, data, static, model


# --- agreement with NumPyro --------------------------------------------------------------


def test_prior_density_in_unconstrained_space(case):
    function, data, static, model = case
    with jax.enable_x64(True):
        for seed in range(3):
            u = jax.random.normal(jax.random.key(seed), (model.dimension,))
            parameters, log_prior = jax.jit(model.transform)(u)
            pieces = {s.name: u[s.start : s.stop] for s in model.sites}
            sites = {s.name: pieces[s.name].reshape(s.unconstrained_shape) for s in model.sites}
            jacobian = 0.0
            if (
                function is affine
            ):  # NumPyro moves in the shift itself, and we in units of its scale
                assert float(parameters["shift"]) == pytest.approx(
                    2.0 + float(parameters["scale"] * sites["shift"]), rel=1e-12
                )
                sites["shift"], jacobian = parameters["shift"], float(jnp.log(parameters["scale"]))
            total = jacobian - potential_energy(function, (), data | static, sites)
            by_site = log_likelihood(function, parameters, batch_ndims=0, **data, **static)
            likelihood = sum(jnp.sum(value) for value in by_site.values())
            assert float(log_prior) == pytest.approx(float(total - likelihood), rel=1e-10)


def test_row_log_likelihoods_and_joint_density(case):
    function, data, static, model = case
    draws = model.sample_prior(3, seed=1)
    with jax.enable_x64(True):
        for index in range(3):
            parameters = {name: jnp.asarray(value[index]) for name, value in draws.items()}
            rows = jax.jit(model.row_log_likelihoods)(parameters, data)
            assert rows.shape == (N,)
            assert rows.dtype == np.float64
            joint, _ = log_density(function, (), data | static, parameters)
            ours = model.log_prior(parameters) + float(jnp.sum(rows))
            assert ours == pytest.approx(float(joint), rel=1e-10)


def test_prior_draws_follow_the_model_function(case):
    # About 35 means over all cases, each within 5 standard errors of NumPyro's own draws: a
    # false alarm in 50,000 sets of seeds.
    function, data, static, model = case
    num = 4000
    ours = model.sample_prior(num, seed=3)
    with jax.enable_x64(True):
        predictive = numpyro.infer.Predictive(
            function, num_samples=num, return_sites=list(model.names)
        )
        theirs = predictive(jax.random.key(4), **data, **static)
    for name in model.names:
        squash = [np.arctan(np.asarray(draws[name])) for draws in (ours, theirs)]
        error = np.sqrt(sum(np.var(values, axis=0) for values in squash) / num) + 1e-12
        gap = np.abs(np.mean(squash[0], axis=0) - np.mean(squash[1], axis=0))
        assert np.all(gap < 5 * error), name


def test_passes_the_row_check_and_counts_weights(case):
    _, data, _, model = case
    assert check_row_function(model, data) is False
    assert check_row_function(model, data | {"weight": np.ones(N)}) is True


def test_missing_column_is_named():
    model = from_numpyro(linear, {"x": X, "y": Y})
    with pytest.raises(ModelError, match="KeyError: 'y'"):
        check_row_function(model, {"x": X})


def test_rows_may_have_another_size_and_type():
    model = from_numpyro(linear, {"x": X[:1].astype(np.float32), "y": Y[:1]})
    with jax.enable_x64(True):
        parameters = {"w": jnp.ones(3), "b": jnp.zeros(())}
        rows = model.row_log_likelihoods(parameters, {"x": X, "y": Y})
    expected = -0.5 * (Y - X.sum(axis=1)) ** 2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(rows, expected, rtol=1e-12)


# --- what the model is made of -----------------------------------------------------------


def test_only_dependent_priors_are_functions():
    model = from_numpyro(hierarchical, {"group": GROUP, "y": Y})
    kinds = {n: isinstance(e, dist.Distribution) for n, e in model._entries.items()}
    assert kinds == {"scale": True, "mean": True, "effect": False, "noise": True}


def test_second_model_of_the_same_make_compiles_nothing():
    traces = []

    def counted(x, y=None, sigma=1.0, table=None):
        traces.append(1)
        linear(x, y)

    data = {"x": X, "y": Y}
    other = {"y": Y[::-1], "x": X[::-1]}
    evaluate = jax.jit(lambda model, u, row: model.log_likelihood(model.transform(u)[0], row))
    row = {"x": X[0], "y": Y[0]}
    static = {"sigma": 2.0, "table": np.arange(3)}
    first = from_numpyro(counted, data, static=static)
    second = from_numpyro(counted, other, static={"sigma": 2.0, "table": np.arange(3)})
    third = from_numpyro(counted, data, static={"sigma": 2.0, "table": np.arange(4)})
    fourth = from_numpyro(counted, data, static={"sigma": 2, "table": np.arange(3)})
    with jax.enable_x64(True):
        evaluate(first, np.zeros(4), row)
        before = len(traces)
        evaluate(first, np.ones(4), row)
        evaluate(second, np.zeros(4), row)
        assert len(traces) == before
        evaluate(third, np.zeros(4), row)
        assert len(traces) == before + 1
        evaluate(fourth, np.zeros(4), row)
        assert len(traces) == before + 2


def test_fingerprint():
    data = {"group": GROUP, "y": Y}
    model = from_numpyro(hierarchical, data)
    assert model.fingerprint() == from_numpyro(hierarchical, data).fingerprint()
    fewer_rows = {name: column[5:15] for name, column in data.items()}
    assert model.fingerprint() == from_numpyro(hierarchical, fewer_rows).fingerprint()
    more_groups = from_numpyro(hierarchical, data, static={"num_groups": 5})
    assert model.fingerprint() != more_groups.fingerprint()
    scales = [from_numpyro(_scaled(value), data | {"x": X}).fingerprint() for value in (1, 1, 2)]
    assert scales[0] == scales[1] != scales[2]


def _scaled(scale):
    def model_fn(x, y, group):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x[:, 0] * w, scale), obs=y)

    return model_fn


def test_exchangeable_is_passed_on():
    def symmetric(y):
        centres = numpyro.sample("centres", dist.Normal(0, 1).expand([3]))
        components = dist.Normal(centres, 1.0)
        numpyro.sample(
            "y", dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), components), obs=y
        )

    model = from_numpyro(symmetric, {"y": Y}, exchangeable={"centres": 0})
    assert model.exchangeable == (("centres", 0),)


def test_nested_data_and_static_arguments():
    def nested(inputs, y, options):
        w = numpyro.sample("w", dist.Normal(0, options["scale"]))
        numpyro.sample("y", dist.Normal(w * inputs["a"] + inputs["b"], options["noise"]), obs=y)

    data = {"inputs": {"a": X[:, 0], "b": X[:, 1]}, "y": Y}
    options = {"scale": np.array(2.0), "noise": 0.5, "name": object()}
    model = from_numpyro(nested, data, static={"options": options})
    with jax.enable_x64(True):
        rows = model.row_log_likelihoods({"w": jnp.asarray(2.0)}, data)
    expected = dist.Normal(2 * X[:, 0] + X[:, 1], 0.5).log_prob(Y)
    np.testing.assert_allclose(rows, expected, rtol=1e-5)


def test_user_precision_is_untouched():
    assert not jax.config.jax_enable_x64
    model = from_numpyro(linear, {"x": X, "y": Y})
    assert not jax.config.jax_enable_x64
    assert model.sample_prior(2)["w"].dtype == np.float64


def test_threads_do_not_see_each_others_sites():
    model = from_numpyro(hierarchical, {"group": GROUP, "y": Y})
    results, errors = [], []

    def work(size):
        try:
            with jax.enable_x64(True):
                values = {"group": GROUP[:size], "y": Y[:size]}
                for _ in range(3):
                    total = jax.jit(
                        lambda u, v: model.row_log_likelihoods(model.transform(u)[0], v)
                    )
                    results.append((size, float(jnp.sum(total(jnp.zeros(7), values)))))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(size,)) for size in (10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(results) == 9
    assert len(set(results)) == 3


# --- refusals: each names the site and the remedy ----------------------------------------


def rows_of(x, mean, y, **kwargs):
    with numpyro.plate("rows", x.shape[0], **kwargs):
        return numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def coefficient():
    return numpyro.sample("w", dist.Normal(0, 1))


def with_factor(x, y):
    w = coefficient()
    numpyro.factor("penalty", -(w**2))
    rows_of(x, x[:, 0] * w, y)


def with_scale(x, y):
    w = coefficient()
    with handlers.scale(scale=2.0):
        rows_of(x, x[:, 0] * w, y)


def with_mask(x, y):
    w = coefficient()
    with handlers.mask(mask=y > 0):
        rows_of(x, x[:, 0] * w, y)


def with_masked_distribution(x, y):
    w = coefficient()
    numpyro.sample("y", dist.Normal(x * w, 1.0).mask(x > 0).to_event(1), obs=x)


def with_obs_mask(x, y):
    w = coefficient()
    numpyro.sample("y", dist.Normal(x[:, 0] * w, 1.0), obs=y, obs_mask=y > 0)


def with_subsample(x, y):
    w = coefficient()
    with numpyro.plate("rows", 30, subsample_size=5) as index:
        numpyro.sample("y", dist.Normal(x[index, 0] * w, 1.0), obs=y[index])


def with_row_latent(x, y):
    coefficient()
    with numpyro.plate("rows", x.shape[0]):
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def with_named_row_latents(x, y):
    coefficient()
    for index in range(len(y)):
        z = numpyro.sample(f"z{index}", dist.Normal(0, 1))
        numpyro.sample(f"y{index}", dist.Normal(z, 1.0), obs=y[index])


def with_named_rows(x, y):
    w = coefficient()
    for index in range(len(y)):
        numpyro.sample(f"y{index}", dist.Normal(w, 1.0), obs=y[index])


def with_improper_prior(x, y):
    w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real, (), ()))
    rows_of(x, x[:, 0] * w, y)


def with_discrete_latent(x, y):
    k = numpyro.sample("k", dist.Poisson(3.0))
    rows_of(x, x[:, 0] * k, y)


def with_point_latent(x, y):
    w = coefficient()
    rows_of(x, w * numpyro.sample("point", dist.Delta(1.0)), y)


def with_param(x, y):
    w = coefficient()
    rows_of(x, w * numpyro.param("slope", 1.0), y)


def without_latent(x, y):
    rows_of(x, x[:, 0], y)


def without_observed(x, y):
    coefficient()


def with_data_prior(x, y):
    w = numpyro.sample("w", dist.Normal(0, jnp.std(x) + 1))
    rows_of(x, x[:, 0] * w, y)


def with_row_count_prior(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1 / x.shape[0]))
    rows_of(x, x[:, 0] * w, y)


def with_mean(x, y):
    w = coefficient()
    rows_of(x, (x - x.mean(axis=0))[:, 0] * w, y)


def with_outside_site(x, y):
    w = coefficient()
    numpyro.sample("anchor", dist.Normal(w, 1.0), obs=0.5)
    rows_of(x, x[:, 0] * w, y)


def with_fixed_plate(x, y):
    w = coefficient()
    with numpyro.plate("rows", 30):
        numpyro.sample("y", dist.Normal(x[:, 0] * w, 1.0), obs=y)


def with_gaussian_process(x, y):
    w = numpyro.sample("w", dist.LogNormal(0, 1))
    covariance = w * jnp.exp(-((x[:, :1] - x[:, 0]) ** 2)) + jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), covariance), obs=y)


def with_time_series(x, y):
    w = coefficient()

    def step(last, now):
        now = numpyro.sample("y", dist.Normal(w * last, 1.0), obs=now)
        return now, None

    scan(step, 0.0, y)


def with_scan_latent(x, y):
    def step(last, _):
        now = numpyro.sample("walk", dist.Normal(last, 1.0))
        return now, None

    last, _ = scan(step, 0.0, None, length=3)
    rows_of(x, x[:, 0] * last, y)


def with_array_values(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([int((x > -100).max()) + 1]))
    rows_of(x, x[:, 0] * w[0], y)


def with_wrong_shapes(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([7]))
    rows_of(x, x @ w, y)


def with_impossible_rows(x, y):
    w = coefficient()
    rows_of(x, x[:, 0] * w, y * jnp.inf)


REFUSED = [
    (with_factor, "'penalty' is a numpyro.factor.*obs="),
    (with_scale, "'y' has its log density scaled.*Remove the handler"),
    (with_mask, "'y' is masked.*Remove the mask"),
    (with_masked_distribution, "'y' is masked"),
    (with_obs_mask, "'y_observed' is masked"),
    (with_subsample, r"plate 'rows' is subsampled \(5 of 30 rows\).*Leave subsample_size out"),
    (with_row_latent, "'z' has entries for each row.*give its values in data"),
    (with_named_row_latents, "'z1' has entries for each row"),
    (with_named_rows, "other observed sites for 30 rows.*one site for all"),
    (with_improper_prior, r"prior of 'w' is improper \(ImproperUniform\).*proper prior"),
    (with_discrete_latent, r"'k' is discrete \(Poisson\).*MixtureSameFamily"),
    (with_point_latent, r"prior of 'point' is a point \(Delta\)"),
    (with_param, "'slope' is a numpyro.param.*static"),
    (without_latent, "no latent site"),
    (without_observed, "no observed site.*obs="),
    (with_data_prior, "prior of 'w' depends on the data.*static"),
    (with_row_count_prior, "prior of 'w' depends on the data"),
    (with_mean, r"'y' does not factorise over rows.*30 rows.*difference .*static"),
    (with_outside_site, "'anchor' does not factorise"),
    (with_fixed_plate, "'y' does not factorise.*plate whose size comes from"),
    (with_gaussian_process, "'y' does not factorise"),
    (with_time_series, "'y' does not factorise.*total=True"),
    (with_scan_latent, "'walk' is drawn inside scan.*GaussianRandomWalk"),
    (with_array_values, "fails when JAX traces it on one row: Concret.*static"),
    (with_wrong_shapes, "fails on all of the example rows: .*Check the names and shapes"),
    (with_impossible_rows, r"log-likelihood of \['y'\] is not finite at any of 24 prior draws"),
]


@pytest.mark.parametrize(("model_fn", "message"), REFUSED, ids=lambda v: getattr(v, "__name__", ""))
def test_refuses(model_fn, message):
    with pytest.raises(ModelError, match=f"(?s){message}"):
        from_numpyro(model_fn, {"x": X, "y": Y})


def test_forgotten_observation_is_a_latent_per_row():
    with pytest.raises(ModelError, match=r"'y' has entries for each row.*give its values in data"):
        from_numpyro(linear, {"x": X})
    with pytest.raises(ModelError, match=r"'label' is discrete \(Bernoulli.*give its values"):
        from_numpyro(logistic, {"x": X})


def test_unit_scale_is_no_scale():
    def harmless(x, y):
        w = coefficient()
        with handlers.scale(scale=1.0), handlers.mask(mask=True):
            rows_of(x, x[:, 0] * w, y, subsample_size=x.shape[0])

    assert from_numpyro(harmless, {"x": X, "y": Y}).dimension == 1


@pytest.mark.parametrize(
    ("data", "static", "error", "message"),
    [
        ({"x": X, "z": Y}, {}, ModelError, r"data \['x', 'z'\].*unexpected keyword argument 'z'"),
        ({"y": Y}, {}, ModelError, "missing a required argument: 'x'"),
        ({"x": X, "y": Y}, {"x": X}, ModelError, r"\['x'\] are in data and in static"),
        ({}, {}, DataError, "data must map the names"),
        (X, {}, DataError, "data must map the names"),
        ({"x": X, "y": Y[:5]}, {}, DataError, "one length of at least 1, not {'x': 30, 'y': 5}"),
        ({"x": X[:0], "y": Y[:0]}, {}, DataError, "one length of at least 1"),
        ({"x": X, "y": None}, {}, DataError, r"data\['y'\] must be an array of numbers"),
        ({"x": X, "y": np.array(["a"] * N)}, {}, DataError, r"data\['y'\] must be an array"),
        ({"x": X, "y": 3.0}, {}, DataError, r"data\['y'\] must be an array"),
    ],
)
def test_bad_arguments(data, static, error, message):
    with pytest.raises(error, match=message):
        from_numpyro(linear, data, static=static)


def test_model_function_must_be_callable():
    with pytest.raises(ModelError, match="must be a NumPyro model function"):
        from_numpyro("linear", {"x": X})


class Forgetful(dist.Distribution):
    """A user's class that does not tell JAX about its field; kept as a function instead."""

    support = dist.constraints.real

    def __init__(self, scale):
        self.scale = scale
        super().__init__()

    def sample(self, key, sample_shape=()):
        return self.scale * jax.random.normal(key, sample_shape)

    def log_prob(self, value):
        return dist.Normal(0, self.scale).log_prob(value)


def test_distribution_that_does_not_survive_flattening():
    def model_fn(x, y):
        rows_of(x, x[:, 0] * numpyro.sample("w", Forgetful(2.0)), y)

    model = from_numpyro(model_fn, {"x": X, "y": Y})
    assert model.log_prior({"w": 0.0}) == pytest.approx(-np.log(2 * np.sqrt(2 * np.pi)))
