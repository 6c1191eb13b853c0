"""The problems of the benchmarks, written for weighbridge and again for its peers, agree."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from benchmarks import problems
from benchmarks.peers import targets


def columns(data):
    if data is None:
        return {}
    return data if isinstance(data, dict) else {"y": np.asarray(data).reshape(-1)}


def parameters(name, point):
    """The peers' parameters as those of the model."""
    if name == "gaussian":
        return {"mu": point[0]}
    if name.startswith("linear"):
        return {"w": point[:-1], "b": point[-1]}
    if name == "softmax":
        table = point.reshape(4, 11)
        return {"w": table[:, :-1], "b": table[:, -1]}
    if name == "mixture":
        first, second = special.expit(point[:2])
        weights = np.array([first, (1 - first) * second, (1 - first) * (1 - second)])
        return {"weights": weights, "s2": np.exp(point[2:5])[:, None], "mu": point[5:][:, None]}
    return {"x": point}


@pytest.mark.parametrize("name", targets.NAMES)
def test_likelihoods_agree(name):
    problem = problems.CATALOGUE[name].build()
    data = columns(problem.data)
    target = targets.numpy_target(name, data)
    points = target.draw_prior(np.random.default_rng(0), 3)
    expected = []
    with jax.enable_x64(True):
        for point in points:
            values = jax.tree_util.tree_map(jnp.asarray, parameters(name, point))
            if problem.model.log_likelihood is None:
                expected.append(float(problem.model.total_log_likelihood(values)))
            else:
                per_row = jax.vmap(problem.model.log_likelihood, in_axes=(None, 0))
                expected.append(float(jnp.sum(per_row(values, problem.data))))
        in_jax = targets.jax_target(name, data)
        again = [float(in_jax.log_likelihood(jnp.asarray(point))) for point in points]
    np.testing.assert_allclose(target.log_likelihood(points), expected, rtol=1e-9)
    np.testing.assert_allclose(again, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "shells-2", "mixture"])
def test_the_prior_of_the_peers_is_the_derivative_of_their_transform(name):
    """A cube of side h maps to a volume h^d / density: the Jacobian, by finite differences."""
    target = targets.numpy_target(name, {"y": np.zeros(1)})
    size, width = target.dimension, 1e-5
    for cube in np.random.default_rng(1).uniform(0.1, 0.9, (3, size)):
        steps = width * np.eye(size)
        jacobian = (target.transform(cube + steps) - target.transform(cube - steps)) / (2 * width)
        expected = -np.linalg.slogdet(jacobian)[1]
        assert abs(target.log_prior(target.transform(cube)) - expected) < 1e-6


def test_the_evidences_of_products_are_those_of_their_factors():
    def log_gamma(place):
        """Mass of exp(30 (x - place)) of a unit exponential in [0, 1]."""
        return math.exp(-math.exp(-30 * place)) - math.exp(-math.exp(30 * (1 - place)))

    def normal(place, scale, low, high):
        return special.ndtr((high - place) / scale) - special.ndtr((low - place) / scale)

    pairs = (
        log_gamma(1 / 3) + log_gamma(2 / 3),
        sum(normal(m, 1 / 30, 0, 1) for m in (1 / 3, 2 / 3)),
    )
    product = pairs[0] / 2 * pairs[1] / 2 * log_gamma(2 / 3) ** 4 * normal(2 / 3, 1 / 30, 0, 1) ** 4
    assert abs(problems.log_gamma().log_evidence - math.log(product)) < 1e-6
    spike, slab = (normal(0, scale, -0.5, 0.5) ** 10 for scale in (0.01, 0.1))
    assert abs(problems.spike_and_slab().log_evidence - math.log(100 * spike + slab)) < 1e-6


def test_evidences_by_quadrature():
    v = np.linspace(-30, 30, 200_001)
    mass = special.erf(30 / (math.sqrt(2) * np.exp(v / 2))) ** 9
    density = np.exp(-(v**2) / 18) / math.sqrt(18 * math.pi)
    funnel = math.log(np.trapezoid(density * mass, v)) - 10 * math.log(60)
    assert abs(problems.funnel().log_evidence - funnel) < 1e-5
    x = np.linspace(-10, 10, 200_001)
    inner = special.ndtr(10 * (10 - x**2)) - special.ndtr(10 * (-10 - x**2))
    area = np.trapezoid(np.exp(-0.5 * (1 - x) ** 2) * inner, x) * math.sqrt(2 * math.pi) / 10
    assert abs(problems.rosenbrock().log_evidence - math.log(area / 400)) < 1e-5


def test_relabelling_keeps_the_density_of_the_mixture():
    """The reference sums over the orders of the components in these coordinates."""
    from benchmarks.references import relabel

    point = np.random.default_rng(0).standard_normal((1, 8))
    images = [relabel(point, order)[0] for order in itertools.permutations(range(3))]
    weights = [np.sort(special.softmax(np.append(image[:2], 0.0))) for image in images]
    np.testing.assert_allclose(weights, np.tile(weights[0], (6, 1)))
    assert len({tuple(image.round(12)) for image in images}) == 6
