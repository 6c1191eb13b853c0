"""Importance sampling against exact evidences, in units of its error; its flags; bad input."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.compilation import in_double_precision
from weighbridge.core.status import Status
from weighbridge.estimators.proposals.mixture import Mixture
from weighbridge.estimators.reweighting.history import ProposalHistory, evaluate_at
from weighbridge.estimators.reweighting.proposal import NamedProposal
from weighbridge.estimators.reweighting.weights import weigh

SMALL = {"num_draws": 128, "num_islands": 8}
# Seeds of a comparison; a mean of so many z has this bound at a chance below 1 in 10,000, with room
# for the tails of an error that comes from eight islands.
SEEDS, MEAN_BOUND, ONE_BOUND = 6, 2.0, 6.0


def z_scores(model, data, exact, method, seeds=SEEDS):
    results = [wb.evidence(model, data, method, seed=seed, progress=False) for seed in range(seeds)]
    return np.array([(r.log_evidence - exact) / r.std_error for r in results]), results


def check(model, data, exact, method, seeds=SEEDS):
    z, results = z_scores(model, data, exact, method, seeds)
    assert np.abs(z).max() < ONE_BOUND
    assert abs(z.mean()) < MEAN_BOUND
    return results


@pytest.fixture(scope="module")
def gaussian():
    data = wb.zoo.gaussian.simulate(60, seed=3)
    return wb.zoo.gaussian.model(), data, wb.zoo.gaussian.log_evidence(data)


@pytest.mark.parametrize("proposal", ["laplace", "prior"])
def test_the_evidence_is_right_in_units_of_its_error(gaussian, proposal):
    results = check(*gaussian, wb.Importance(proposal, **SMALL))
    assert not any(result.flags for result in results)
    data = gaussian[1]
    mean = float(np.exp(results[0].log_weights) @ results[0].samples["mu"])
    assert abs(mean - data.sum() / 61) < 6 / math.sqrt(61 * results[0].diagnostics["ess"])


def two_modes(p):
    apart = jnp.array(
        [dist.Normal(-4.0, 0.5).log_prob(p["x"]), dist.Normal(5.0, 0.5).log_prob(p["x"])]
    )
    return jnp.logaddexp(*(apart + jnp.log(jnp.array([0.7, 0.3]))))


@pytest.mark.long
def test_population_monte_carlo_finds_a_mode_that_its_start_misses():
    model = wb.Model({"x": dist.Normal(0.0, 10.0)}, total_log_likelihood=two_modes)
    grid = np.linspace(-40, 40, 400_001)
    parts = [0.7, -4.0, 0.5], [0.3, 5.0, 0.5]
    density = sum(w * np.exp(-0.5 * ((grid - m) / s) ** 2) / s for w, m, s in parts)
    density *= np.exp(-0.5 * (grid / 10) ** 2) / 10 / (2 * math.pi)
    exact = math.log(np.sum(density) * (grid[1] - grid[0]))
    start = Mixture.of(np.array([-4.0]), np.array([[4.0]]), 5.0)
    adaptive = wb.Importance(start, adaptive=True, num_components=4, **SMALL)
    results = check(model, None, exact, adaptive)
    assert min(r.diagnostics["efficiency"] for r in results) > 0.3
    # From its modes, too.
    check(model, None, exact, wb.Importance(num_components=4, **SMALL), seeds=2)


@pytest.mark.long
def test_a_proposal_with_too_light_tails_is_flagged():
    """A normal of a quarter of the width: weights of Pareto shape 1 - 1/16."""
    model = wb.Model({"x": dist.Normal(0.0, 1.0)}, total_log_likelihood=lambda p: jnp.zeros(()))
    light = Mixture.of(np.zeros(1), np.eye(1) / 4)
    _, results = z_scores(model, None, 0.0, wb.Importance(light))
    assert all(Status.HEAVY_WEIGHTS in result.flags for result in results)
    # The default proposal is heavy enough, for tails such as these too.
    heavy = wb.Model(
        {"x": dist.StudentT(5.0, 0.0, 1.0)}, total_log_likelihood=lambda p: jnp.zeros(())
    )
    assert not any(r.flags for r in check(heavy, None, 0.0, wb.Importance(), seeds=3))


def test_few_effective_draws_are_flagged():
    model = wb.Model(
        {"x": dist.Normal(0.0, 1.0)}, total_log_likelihood=lambda p: -500 * p["x"] ** 2
    )
    wide = Mixture.of(np.zeros(1), 100.0 * np.eye(1))
    result = wb.evidence(model, None, wb.Importance(wide, **SMALL), progress=False)
    assert Status.LOW_ESS in result.flags


PROPOSALS = {
    "names": lambda: {"s": dist.Gamma(4.0, 2.0), "m": dist.Normal(0.5, 2.0)},
    "names, other supports": lambda: {"s": dist.Normal(1.5, 1.0), "m": dist.Uniform(-9.0, 9.0)},
    "vectors": lambda: dist.MultivariateNormal(
        jnp.array([0.5, 0.5]), jnp.diag(jnp.array([0.5, 2.0]))
    ),
    "a mixture": lambda: Mixture.of(np.array([0.5, 0.5]), np.eye(2), 4.0),
}


@pytest.mark.parametrize("kind", PROPOSALS)
def test_proposals_of_the_user(kind):
    """Normal data with a Gamma prior of the scale; the exact value is a sum over a fine grid."""
    rows = np.array([0.3, 1.4, -0.8, 2.2, 0.9])
    model = wb.Model(
        {"s": dist.Gamma(2.0, 1.0), "m": dist.Normal(0.0, 2.0)},
        lambda p, y: dist.Normal(p["m"], p["s"]).log_prob(y),
    )
    scale, middle = np.meshgrid(np.linspace(0.005, 20, 4000), np.linspace(-9, 9, 601))
    height = np.log(scale) - scale - 0.5 * (middle / 2) ** 2 - 0.5 * math.log(8 * math.pi)
    for y in rows:
        height += -0.5 * ((y - middle) / scale) ** 2 - np.log(scale) - 0.5 * math.log(2 * math.pi)
    exact = np.logaddexp.reduce(height, axis=None) + math.log(0.005 * 0.03)
    method = wb.Importance(PROPOSALS[kind](), **SMALL)
    check(model, rows, exact, method, seeds=4)


@pytest.mark.parametrize("kind", ["evidence", "arrays"])
def test_a_proposal_from_posterior_draws(gaussian, kind):
    model, data, exact = gaussian
    draws = wb.evidence(model, data, wb.Importance(**SMALL), seed=9, progress=False)
    if kind == "arrays":
        draws = draws.resample(400)
    for adaptive in (None, False):
        check(model, data, exact, wb.Importance(draws, adaptive=adaptive, **SMALL), seeds=3)


def test_a_likelihood_on_the_host(gaussian):
    _, data, exact = gaussian
    total, square = data.sum(), np.sum(data**2)
    host = wb.Model(
        {"mu": dist.Normal(0.0, 1.0)},
        total_log_likelihood=lambda p: (
            -0.5 * (square - 2 * p["mu"] * total + 60 * p["mu"] ** 2) - 30 * math.log(2 * math.pi)
        ),
        on_host=True,
    )
    for proposal in ("laplace", "prior"):
        check(host, None, exact, wb.Importance(proposal, **SMALL), seeds=2)


def test_rounds_are_weighed_together(gaussian):
    model, data, exact = gaussian
    method = wb.Importance(**SMALL)
    one = wb.evidence(model, data, method, seed=4, progress=False)
    many = wb.evidence(model, data, method, seed=4, tolerance=one.std_error / 3, progress=False)
    count = many.diagnostics["num_rounds"]
    assert count > 4
    assert many.std_error <= one.std_error / 3
    assert abs(many.log_evidence - exact) < ONE_BOUND * many.std_error
    assert many.diagnostics["log_ratios"].shape == (8 * count, 128)
    assert many.diagnostics["num_evaluations"] > count * one.diagnostics["num_evaluations"] / 2
    assert len(many.log_weights) == len(many.samples["mu"]) == 8 * 128 * count


def test_the_error_is_raised_for_a_tail_of_infinite_variance():
    """Pareto weights of shape 0.6: their mean is 2.5, and their sample deviation is too small."""
    generator = np.random.default_rng(0)
    weights = generator.random((60, 16, 500)) ** -0.6
    scores = []
    for one in weights:
        found = weigh(np.log(one))
        scores.append((found.log_evidence - math.log(2.5)) / found.std_error)
    assert np.mean(np.square(scores)) < 1.3
    assert np.mean(np.abs(scores) > 3) < 0.05


def test_the_choice_of_a_proposal_sees_a_mode_that_even_weights_hide():
    centre = np.array([-5.0]), np.array([5.0])
    both = Mixture.of(centre[0], np.eye(1)).joined(Mixture.of(centre[1], np.eye(1)), 0.5)
    density = both.log_density
    numbers = np.random.default_rng(0)
    blind = Mixture.of(centre[0], np.eye(1))
    history = ProposalHistory(evaluate_at(blind, blind.draw(numbers, 500), density))
    assert history.fits()[0] > -0.01
    wide = both.with_freedom(5.0).stretched(1.2)
    history.add(evaluate_at(wide, wide.draw(numbers, 500), density))
    assert history.best().proposal is wide


def test_named_proposals_are_densities_of_vectors():
    model = wb.Model({"s": dist.HalfNormal(1.0)}, total_log_likelihood=lambda p: jnp.zeros(()))
    with in_double_precision():
        proposal = NamedProposal(model, {"s": dist.Uniform(0.5, 2.0)})
        draws = proposal.draw(np.random.default_rng(0), 100)
        # u = log s, so the density is s / 1.5 inside, and 0 outside.
        assert np.allclose(proposal.log_density(draws), draws[:, 0] - math.log(1.5))
        assert np.all(proposal.log_density(np.array([[-3.0], [3.0]])) == -np.inf)


def test_a_proposal_without_the_support_of_the_posterior_is_refused(gaussian):
    model, data, exact = gaussian
    box = {"mu": dist.Uniform(*(data.mean() + np.array([-0.05, 0.05])))}
    with pytest.raises(wb.MethodError, match="support of the prior"):
        wb.evidence(model, data, wb.Importance(box, num_islands=4), progress=False)
    method = wb.Importance(box, adaptive=True, num_islands=4)  # then components reach out
    result = wb.evidence(model, data, method, progress=False)
    assert abs(result.log_evidence - exact) < 4 * result.std_error


class Broken:
    def __init__(self, shape=None, value=0.0):
        self.shape, self.value = shape, value

    def draw(self, numbers, count):
        return np.zeros(self.shape or (count, 1))

    def log_density(self, points):
        return np.full(len(points), self.value)


@pytest.mark.parametrize(
    ("proposal", "words"),
    [
        ("laplac", "laplace"),
        (3.0, "proposal must be"),
        ({"nu": dist.Normal(0, 1)}, "shapes"),
        ({"mu": dist.Normal(0, 1).expand([2])}, "shapes"),
        (dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)), "shape"),
        (Mixture.of(np.zeros(2), np.eye(2)), "2 coordinates"),
        (Broken(shape=(7, 1)), "returned the shape"),
        (Broken(value=-np.inf), "finite"),
        (Broken, "proposal must be"),
    ],
)
def test_a_bad_proposal_is_refused(gaussian, proposal, words):
    model, data, _ = gaussian
    with pytest.raises(wb.MethodError, match=words):
        wb.evidence(model, data, wb.Importance(proposal, **SMALL), progress=False)


def test_draws_of_another_model_are_refused(gaussian):
    model, data, _ = gaussian
    for draws in ({"nu": np.ones(50)}, {"mu": np.ones(50)}, {"mu": np.ones(5)}):
        with pytest.raises(wb.DataError):
            wb.evidence(model, data, wb.Importance(draws, **SMALL), progress=False)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_draws": 1},
        {"num_islands": 0},
        {"defensive": 0.0},
        {"defensive": 1.0},
        {"adaptive": "yes"},
        {"degrees": 0},
        {"num_components": 0},
        {"num_populations": 0},
    ],
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(wb.MethodError):
        wb.Importance(**settings)


def test_a_proposal_that_is_nowhere_near_is_an_error():
    model = wb.Model(
        {"x": dist.Uniform(0.0, 1.0)},
        total_log_likelihood=lambda p: jnp.where(p["x"] < 1e-12, 0.0, -jnp.inf),
    )
    with pytest.raises(wb.ModelError, match="zero at all"):
        wb.evidence(model, None, wb.Importance("prior", **SMALL), progress=False)
