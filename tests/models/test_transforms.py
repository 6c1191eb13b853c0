"""Box-Cox and Yeo-Johnson: formulas, Jacobians, and priors in their coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from scipy.integrate import quad

import weighbridge as wb
from weighbridge.core.compilation import in_double_precision
from weighbridge.models.model import unravel_positions

TRANSFORMS = {
    **{f"box-cox {lmbda}": wb.BoxCox(lmbda, 2.0) for lmbda in (-1.0, 0.0, 0.5, 1.0, 2.0)},
    **{f"yeo-johnson {lmbda}": wb.YeoJohnson(lmbda, 0.5, 2.0) for lmbda in (0.0, 0.5, 1.0, 2.0)},
}
every_transform = pytest.mark.parametrize("name", TRANSFORMS)
DATA = np.array([3.0, 5.0, 4.0, 8.0, 2.0])


@every_transform
def test_inverse_and_jacobian(name):
    transform = TRANSFORMS[name]
    points = np.linspace(0.1, 7.0, 30)
    if name.startswith("yeo"):
        points = np.concatenate([-points, [0.5], points])
    with in_double_precision():
        values = np.asarray(transform(points))
        assert np.all(np.diff(np.asarray(transform(np.sort(points)))) > 0)
        assert np.asarray(transform.inv(values)) == pytest.approx(points, rel=1e-10)
        slopes = np.asarray(jax.vmap(jax.grad(transform))(jnp.asarray(points)))
        found = np.asarray(transform.log_abs_det_jacobian(points, values))
        assert found == pytest.approx(np.log(slopes), abs=1e-10)
        assert np.all(np.asarray(transform.codomain(values)))


def test_they_are_those_of_scipy():
    points = np.linspace(0.1, 7.0, 30)
    for lmbda in (0.0, 0.3, 1.7):
        with in_double_precision():
            ours = np.asarray(wb.BoxCox(lmbda)(points))
            both = np.asarray(wb.YeoJohnson(lmbda)(points - 3.0))
        assert ours == pytest.approx(scipy.stats.boxcox(points, lmbda))
        assert both == pytest.approx(scipy.stats.yeojohnson(points - 3.0, lmbda))


def test_a_prior_of_a_transformed_parameter_has_the_jacobian():
    """sqrt-like: BoxCox(0.5)(x) has a truncated normal distribution; it integrates to one."""
    transform = wb.BoxCox(0.5)
    prior = dist.TransformedDistribution(dist.TruncatedNormal(1.0, 1.0, low=-2.0), transform.inv)
    model = wb.Model({"x": prior}, total_log_likelihood=lambda p: 0.0 * p["x"])
    mass = quad(lambda x: np.exp(model.log_prior({"x": x})), 1e-9, 60.0)[0]
    assert mass == pytest.approx(1.0, abs=1e-4)
    draws = model.sample_prior(4000, seed=1)["x"]
    assert abs(np.mean(np.sqrt(draws)) - 1.5) < 5 * 0.5 / 4000**0.5 + 0.01


CASES = {
    "positive, of its logarithm": (dist.Gamma(2.0, 0.5), wb.YeoJohnson(0.7, 1.0, 0.5)),
    "positive, of itself": (dist.Gamma(2.0, 0.5), wb.BoxCox(1 / 3, 4.0)),
    "positive, an inverse power": (dist.Gamma(2.0, 0.5), wb.BoxCox(-0.5, 4.0)),
    "positive, the logarithm": (dist.Gamma(2.0, 0.5), wb.BoxCox(0.0, 2.0)),
    "bounded": (dist.Uniform(0.0, 20.0), wb.YeoJohnson(1.4)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_evidence_stays_in_other_coordinates(case):
    """The integral over the coordinates, and the named density, are those of the plain prior."""
    prior, transform = CASES[case]
    likelihood = lambda p, y: dist.Poisson(p["rate"]).log_prob(y)  # noqa: E731
    plain = wb.Model({"rate": prior}, likelihood)
    model = wb.Model({"rate": wb.in_coordinates(prior, transform)}, likelihood)
    assert model.log_prior({"rate": 3.0}) == pytest.approx(plain.log_prior({"rate": 3.0}))
    assert model.ravel({"rate": 3.0}) != pytest.approx(plain.ravel({"rate": 3.0}))
    assert model.unravel(model.ravel({"rate": 3.0}))["rate"] == pytest.approx(3.0)
    assert model.fingerprint() != plain.fingerprint()
    found = []
    with in_double_precision():
        for one in (plain, model):
            grid = np.linspace(-40, 40, 40_001)[:, None]
            heights = np.asarray(jax.vmap(lambda u, one=one: one.transform(u)[1])(grid))
            named = np.asarray(unravel_positions(one, grid)["rate"])
            each = scipy.stats.poisson.logpmf(DATA[:, None], named).sum(axis=0)
            found.append(np.logaddexp.reduce(heights + each) + np.log(80 / 40_000))
    assert found[1] == pytest.approx(found[0], abs=1e-4)


def test_vectors_scales_and_functions_of_parameters_keep_their_coordinates():
    skewed = wb.YeoJohnson(0.5)
    model = wb.Model(
        {
            "w": wb.in_coordinates(dist.Normal(0.0, 1.0).expand([3]).to_event(1), skewed),
            "s": dist.HalfNormal(1.0),
            "m": lambda p: wb.in_coordinates(dist.Normal(0.0, p["s"]), skewed),
        },
        lambda p, y: dist.Normal(p["m"] + jnp.sum(p["w"]), p["s"]).log_prob(y),
    )
    assert model.dimension == 5
    assert model.bounded.tolist() == [False, False, False, True, False]
    point = {"w": np.array([-3.0, 0.0, 3.0]), "s": 2.0, "m": 1.0}
    position = model.ravel(point)
    assert position[[0, 2]] == pytest.approx([-14 / 3, 2.0])
    assert model.unravel(position)["w"] == pytest.approx(point["w"])
    result = wb.evidence(model, DATA, wb.SMC(num_islands=4, num_particles=32), seed=0)
    assert np.isfinite(result.log_evidence)


def test_a_fitted_transformation_makes_a_posterior_more_gaussian():
    """A rate from five counts, in its logarithm, and after a fit to draws of a first run."""
    prior = dist.Gamma(1.0, 0.01)
    likelihood = lambda p, y: dist.Poisson(p["rate"]).log_prob(y)  # noqa: E731
    draws = np.random.default_rng(0).gamma(1.0 + 2.0, 1 / 1.01, 4000)  # of the count 2
    for fitted in (wb.BoxCox.fit(draws), wb.YeoJohnson.fit(np.log(draws))):
        model = wb.Model({"rate": wb.in_coordinates(prior, fitted)}, likelihood)
        positions = np.array([model.ravel({"rate": value})[0] for value in draws[:1000]])
        plain = np.log(draws[:1000])
        assert abs(scipy.stats.skew(positions)) < 0.5 * abs(scipy.stats.skew(plain))


def test_bad_input_is_refused():
    normal = dist.Normal(0.0, 1.0)
    for call, message in (
        (lambda: wb.YeoJohnson(2.5), "between 0 and 2"),
        (lambda: wb.BoxCox(np.nan), "finite"),
        (lambda: wb.BoxCox(1.0, 0.0), "positive"),
        (lambda: wb.BoxCox.fit(np.arange(50.0) - 9), "YeoJohnson"),
        (lambda: wb.YeoJohnson.fit(np.ones(50)), "not all equal"),
        (lambda: wb.in_coordinates(normal, wb.BoxCox(0.5)), "support"),
        (lambda: wb.in_coordinates(3.0, wb.YeoJohnson(1.0)), "NumPyro distribution"),
        (lambda: wb.in_coordinates(normal, jnp.exp), "NumPyro transform"),
        (lambda: wb.in_coordinates(normal, dist.transforms.ExpTransform()), "real line to itself"),
    ):
        with pytest.raises(wb.ModelError, match=message):
            call()
