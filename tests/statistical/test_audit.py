"""The second look at the end of a path: what all islands miss alike must not go unsaid."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from benchmarks import problems
from weighbridge.core.islands import combine_islands
from weighbridge.core.status import Status
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.bridging.bridge import Decision
from weighbridge.estimators.bridging.gaussians import bridge_to_gaussians, fit_scores
from weighbridge.estimators.second_look.audit import Audit, is_drifting
from weighbridge.estimators.second_look.joining import Mode, join
from weighbridge.estimators.second_look.mode_samples import mode_samples
from weighbridge.models.targets.total import Total

pytestmark = pytest.mark.long

SECOND_LOOK = {Status.MASS_MISSED, Status.DRIFTING}


def weigh(problem, seed, method=None):
    return wb.evidence(problem.model, problem.data, method or wb.SMC(), seed=seed, progress=False)


def is_noted(result):
    """A mode was joined whose mass is well known and that several climbs found: no flag."""
    joined = result.diagnostics["answer"] == "neither"
    return joined and Status.MASS_MISSED not in result.flags and "joined" in note(result)


def note(result):
    (sentence,) = result.diagnostics["notes"]
    return sentence


@pytest.mark.parametrize("seed", range(3))
def test_a_narrow_mode_is_found_and_answered(seed):
    problem = problems.spike_and_slab()
    result = weigh(problem, seed)
    assert is_noted(result)
    # The path stays in the slab, 4.6 nats below; the spike has all but 1/101 of the evidence.
    assert result.diagnostics["path_log_evidence"] < problem.log_evidence - 4
    assert abs(result.log_evidence - problem.log_evidence) < 4 * result.std_error
    # The posterior is that of the answer: the spike's width is 0.01.
    assert float(np.median(np.abs(result.resample(500)["x"]))) < 0.02


def test_a_narrow_mode_is_found_by_every_seed():
    """With half as many powers beyond the end some would not see it."""
    problem = problems.spike_and_slab()
    assert all(is_noted(weigh(problem, seed)) for seed in range(100, 130))


def test_a_narrow_mode_is_found_in_many_dimensions():
    """Two fifths as wide as the rest in each of 30 dimensions, and a hundred times its mass."""
    dimension, width, mass = 30, 0.1, 100.0

    def normal(x, centre, scale):
        return jnp.sum(dist.Normal(centre, scale).log_prob(x))

    def log_likelihood(p):
        narrow = math.log(mass) + normal(p["x"], 0.05, width / 2.5)
        return jnp.logaddexp(normal(p["x"], 0.0, width), narrow)

    prior = dist.Uniform(-0.5, 0.5).expand([dimension]).to_event(1)
    model = wb.Model({"x": prior}, total_log_likelihood=log_likelihood)
    exact = math.log1p(mass)  # but for tails of 5 deviations
    for seed in range(4):
        result = weigh(problems.Problem(model, None, exact), seed)
        assert result.diagnostics["answer"] == "neither"
        assert abs(result.log_evidence - exact) < 5 * result.std_error + 0.02


@pytest.mark.parametrize("mass", [2.5, 10.0])
def test_what_the_path_found_elsewhere_counts_with_a_mode_that_it_missed(mass):
    """A spike of a few times the slab's mass: either alone would be wrong by up to 1.25 nats."""

    def log_likelihood(p):
        slab, spike = (jnp.sum(dist.Normal(0.0, width).log_prob(p["x"])) for width in (0.1, 0.01))
        return jnp.logaddexp(slab, math.log(mass) + spike)

    prior = dist.Uniform(-0.5, 0.5).expand([10]).to_event(1)
    problem = problems.Problem(
        wb.Model({"x": prior}, total_log_likelihood=log_likelihood), None, math.log1p(mass)
    )
    for seed in range(4):
        result = weigh(problem, seed)
        assert is_noted(result)
        assert abs(result.log_evidence - problem.log_evidence) < 4 * result.std_error
        # One of 1 + mass posterior draws is in the slab, up to what 4,000 of them can tell.
        far = float(np.mean(np.max(np.abs(result.resample(4000)["x"]), axis=1) > 0.06))
        share = 1 / (1 + mass)
        uncertain = share * (1 - share) * result.std_error + math.sqrt(share / 1000)
        assert abs(far - share) < 4 * uncertain


def test_no_place_counts_twice():
    """Particles and draws of one Gaussian: the ellipsoid divides it between the two."""
    rng = np.random.default_rng(5)
    cloud = Cloud(rng.normal(size=(8, 500, 2)), np.zeros((8, 500)), None)
    draws = rng.normal(size=(4000, 2))
    mode = Mode(draws, np.zeros(4000), (np.zeros(2), 0.2 * np.eye(2)))
    joined = join([mode], cloud, np.zeros(8), combine_islands)
    # Both say the same of it: nothing is missed.
    assert not joined.is_missed
    # Within 5.3 of 0.2, so about 1.05 deviations, lies 0.42 of it, by the one or the other.
    assert abs(joined.log_evidence) < 4 * joined.std_error < 0.06
    kept = joined.position[np.isfinite(joined.log_weight)]
    assert 3800 < len(kept) < 4200 * 2
    assert len(np.unique(kept, axis=0)) == len(kept)


def joined_of_islands(log_evidences, seed=0):
    """A spike of mass 1 at 0 that the path missed, and islands of a slab that is elsewhere."""
    rng = np.random.default_rng(seed)
    draws = 0.1 * rng.normal(size=(2000, 1))
    mode = Mode(draws, np.zeros(2000), (np.zeros(1), 0.1 * np.eye(1)))
    count = len(log_evidences)
    log_weight = np.where(np.isfinite(log_evidences), 0.0, -np.inf)[:, None] + np.zeros((count, 50))
    cloud = Cloud(5 + rng.normal(size=(count, 50, 1)), log_weight, None)
    return join([mode], cloud, log_evidences, combine_islands)


@pytest.mark.parametrize("num_islands", [4, 16])
def test_the_error_of_what_was_found_elsewhere_is_that_of_its_islands(num_islands):
    rng = np.random.default_rng(1)
    scores = []
    for seed in range(400):
        islands = -1.0 - 0.5 * 0.3**2 + 0.3 * rng.normal(size=num_islands)
        joined = joined_of_islands(islands, seed)
        exact = math.log(1 - 1e-6 + math.exp(-1))
        scores.append((joined.log_evidence - exact) / joined.std_error)
    # 400 scores of a Student-t with 3 degrees, widened, or of 15: their median tells most.
    median = np.median(np.abs(scores))
    assert 0.3 < median < 0.9  # 0.67 of a normal
    assert np.mean(np.abs(scores) > 4) < 0.03


def test_dead_and_few_islands_leave_an_answer_without_an_error():
    dead = joined_of_islands(np.array([-1.0, -np.inf, -1.0, -1.0, -1.0]))
    assert abs(dead.log_evidence - math.log1p(0.8 * math.exp(-1))) < 0.01
    assert math.isnan(dead.std_error)
    assert not np.isnan(dead.log_weight).any()
    few = joined_of_islands(np.array([-1.0, -1.0]))
    assert math.isfinite(few.log_evidence)
    assert math.isnan(few.std_error)


def test_a_missed_mode_of_exchangeable_components_counts_for_every_labelling():
    """Two components, each with a spike of its own: two labellings, of which one is seen."""
    centres, widths = np.array([-0.2, 0.2]), (0.1, 0.01)

    def log_likelihood(p):
        def near(order, width):
            return jnp.sum(dist.Normal(centres[order][:, None], width).log_prob(p["x"]))

        slab, spike = (
            jnp.logaddexp(near(np.array([0, 1]), w), near(np.array([1, 0]), w)) for w in widths
        )
        return jnp.logaddexp(slab, math.log(100.0) + spike) - math.log(2.0)

    prior = dist.Uniform(-1.0, 1.0).expand([2, 5]).to_event(2)
    model = wb.Model({"x": prior}, total_log_likelihood=log_likelihood, exchangeable={"x": 0})
    exact = math.log(101.0) - 10 * math.log(2.0)
    for seed in range(2):
        result = weigh(problems.Problem(model, None, exact), seed)
        assert result.diagnostics["answer"] == "neither"
        assert abs(result.log_evidence - exact) < 4 * result.std_error + 0.01


def test_a_missed_mode_ends_the_rounds_of_a_tolerance():
    problem = problems.spike_and_slab()
    result = wb.evidence(
        problem.model, None, wb.SMC(), seed=0, tolerance=1e-4, time_limit=60, progress=False
    )
    assert is_noted(result)
    assert result.flags == (Status.TOLERANCE_NOT_REACHED,)
    assert "num_rounds" not in result.diagnostics


@pytest.mark.parametrize("seed", range(3))
def test_particles_that_lag_behind_are_seen_to_drift(seed):
    result = weigh(problems.funnel(), seed)
    assert Status.DRIFTING in result.flags
    # They drift into the neck, where the likelihood is higher.
    assert result.diagnostics["drift"] > 0


@pytest.mark.parametrize("name", ["gaussian", "beta_bernoulli", "shells", "eggbox"])
def test_right_answers_are_not_flagged(name):
    problem = getattr(problems, name)()
    for seed in range(6):
        assert not SECOND_LOOK & set(weigh(problem, seed).flags)


def test_other_paths_are_looked_at_too():
    problem = problems.gaussian()
    for method in (wb.AIS(), wb.Thermodynamic(), wb.SMC(waste_free=True), wb.SMC(moves="slice")):
        diagnostics = weigh(problem, 0, method).diagnostics
        error = diagnostics["quenched_log_evidence"] - problem.log_evidence
        assert abs(error) < 5 * diagnostics["quenched_error"]
        assert diagnostics["quenched_ess"] > 500
    assert "drift" not in weigh(problem, 0, wb.PriorSampling()).diagnostics


def numpy_normal(parameters):
    return -0.5 * np.sum(((np.asarray(parameters["x"]) - 1.0) / 0.1) ** 2, axis=-1)


def test_a_likelihood_on_the_host_is_looked_at_too():
    prior = {"x": dist.Normal(0.0, 1.0).expand([2]).to_event(1)}
    result = weigh(problems.Problem(wb.Model(prior, total_log_likelihood=numpy_normal), None, 0), 0)
    # N(1; 0, 1 + 0.01) sqrt(2 pi) 0.1 in each of two dimensions.
    exact = 2 * (np.log(0.1) - 0.5 * np.log(1.01) - 0.5 / 1.01)
    diagnostics = result.diagnostics
    assert abs(diagnostics["quenched_log_evidence"] - exact) < 5 * diagnostics["quenched_error"]
    assert not SECOND_LOOK & set(result.flags)


@pytest.mark.parametrize("seed", range(4))
def test_a_regular_posterior_is_answered_by_the_bridge(seed):
    for problem in (problems.gaussian(), problems.beta_bernoulli()):
        result = weigh(problem, seed)
        found = result.diagnostics
        assert found["answer"] == "bridge"
        assert result.std_error == found["bridge_error"] < 0.01
        assert abs(result.log_evidence - problem.log_evidence) < 5 * result.std_error
        assert abs(found["path_log_evidence"] - problem.log_evidence) < 5 * found["path_error"]


def test_where_a_gaussian_does_not_fit_the_path_is_the_answer():
    """Or modes joined to it, whose masses are better known than the path's shares of them."""
    for problem in (problems.shells(), problems.eggbox()):
        result = weigh(problem, 0)
        by_path = result.log_evidence == result.diagnostics["path_log_evidence"]
        assert result.diagnostics["answer"] == ("path" if by_path else "neither")
        assert by_path or len(result.notes) == 1
        assert abs(result.log_evidence - problem.log_evidence) < 5 * result.std_error < 2
    few = weigh(problems.normal_in_box(), 0, wb.SMC(num_islands=4, num_particles=4))
    without = (few, weigh(problems.gaussian(), 0, wb.AIS()))  # too few to fit one; never resampled
    for result in without:
        assert "bridge_log_evidence" not in result.diagnostics
        assert result.diagnostics.get("answer", "path") == "path"


def test_the_same_seed_sees_the_same():
    first, again = (weigh(problems.spike_and_slab(), 1) for _ in range(2))
    assert first.log_evidence == again.log_evidence
    assert first.diagnostics["quenched_ess"] == again.diagnostics["quenched_ess"]


@pytest.mark.parametrize("seed", range(3))
def test_rounds_of_a_tolerance_see_the_drift_together(seed):
    """Half of the islands may be too few to tell, so a path alone is never enough with those."""
    problem = problems.funnel()
    result = wb.evidence(problem.model, None, wb.SMC(), seed=seed, tolerance=2.0, progress=False)
    assert result.diagnostics["num_rounds"] == 2
    assert len(result.diagnostics["island_drift"]) == 16
    assert Status.DRIFTING in result.flags


def test_drift_is_tested_over_islands():
    noise = 0.1 * np.random.default_rng(0).normal(size=16)
    assert is_drifting(1.0 + noise, 0.1)
    assert is_drifting(noise - 1.0, 0.1)
    assert not is_drifting(noise, 0.0)
    # Clear, and too small to matter beside the stated error.
    assert not is_drifting(1.0 + noise, 2.0)
    # Too few islands to tell, no change at all, and islands without weight.
    assert not is_drifting(1.0 + noise[:3], 0.1)
    assert not is_drifting(np.zeros(16), 0.1)
    assert not is_drifting(np.full(16, np.nan), 0.1)


def test_false_alarms_of_the_drift_test_are_as_rare_as_stated():
    rng = np.random.default_rng(1)
    alarms = [is_drifting(rng.normal(size=8), 0.0) for _ in range(20_000)]
    # 1e-3 of 20,000 is 20, give or take 4.5.
    assert 4 <= sum(alarms) <= 40


def half_square(parameters):
    return -0.5 * jnp.sum((parameters["x"] / 0.1) ** 2)


def test_the_gaussian_of_quenched_particles_is_scaled_back():
    model = wb.Model({"x": dist.Normal(0.0, 1.0).expand([3]).to_event(1)}, None,
                     total_log_likelihood=half_square)  # fmt: skip
    precision = 1 + 64 / 0.01
    position = np.random.default_rng(2).normal(size=(4, 256, 3)) / precision**0.5
    with jax.enable_x64(True):
        cloud = Cloud(jnp.asarray(position), jnp.zeros((4, 256)), jnp.zeros((4, 256), int))
        whole, groups = mode_samples(0, Path(model, (), Total(None)), cloud, None, True)
    assert groups == ()
    log_evidence, error, ess, mode = whole[:4]
    exact = -1.5 * np.log(1 + 1 / 0.01)
    assert abs(log_evidence - exact) < 5 * error < 0.1
    # Half of the draws have the tails of a Student-t.
    assert ess > 700
    assert mode.position.shape == (1024, 3)
    assert mode.log_weight.shape == (1024,)
    gaussian = mode.gaussian
    np.testing.assert_allclose(gaussian[1] @ gaussian[1].T, np.eye(3) / (1 + 1 / 0.01), atol=2e-3)


def two_places(shares, log_evidences=None, seed=3):
    """Islands with these shares of their particles in one of two equal modes, at 0 and at 20."""
    rng = np.random.default_rng(seed)
    count = len(shares)
    right = rng.random((count, 64)) < np.asarray(shares)[:, None]
    position = rng.normal(size=(count, 64)) + np.where(right, 20.0, 0.0)
    islands = np.zeros(count) if log_evidences is None else log_evidences
    return Cloud(position[..., None], np.zeros((count, 64)), None), islands


def look_at(centre, log_mass, cloud, islands, ess=1000.0, seed=4):
    """A second look that has found a normal mode of this mass."""
    draws = centre + np.random.default_rng(seed).normal(size=(1000, 1))
    mode = Mode(draws, np.full(1000, log_mass), (np.array([centre]), np.eye(1)))
    return Audit(None, log_mass, 0.0, ess, mode).missed(cloud, islands, combine_islands)


def test_an_equal_mode_is_missed_only_where_no_particle_is_there():
    """Of islands that say log 1/2 too little, and of islands that have both modes."""
    nowhere = look_at(20.0, 0.0, *two_places([0.0] * 16))
    assert nowhere is not None
    assert abs(nowhere.log_evidence - math.log(2)) < 0.01
    # All of them are in the mode that was looked at; the other one is found from elsewhere.
    assert look_at(20.0, 0.0, *two_places([1.0] * 16)) is None
    assert look_at(0.0, 0.0, *two_places([1.0] * 16)) is not None
    # Half in each, by particles or by islands: a mode of 1/2 is what the path has there.
    assert look_at(20.0, math.log(0.5), *two_places([0.5] * 16)) is None
    assert look_at(20.0, math.log(0.5), *two_places([0.0, 1.0] * 8)) is None
    # A few draws tell nothing, nor does a mode that adds little.
    assert look_at(20.0, 0.0, *two_places([0.0] * 16), ess=3.0) is None
    small = look_at(20.0, math.log(0.05), *two_places([0.0] * 16))
    assert not small.is_missed


def test_what_a_small_mode_adds_is_in_the_error():
    """A mode of 5 % that the path has missed: no flag, but not an error of a thousandth either."""
    small = look_at(20.0, math.log(0.05), *two_places([0.0] * 16))
    decision = Decision(0.0, 0.001, (), {"answer": "path"})
    assert small.widened(decision).std_error == pytest.approx(math.log(1.05), rel=0.2)
    assert small.widened(decision._replace(std_error=0.05)).std_error == 0.05


def test_false_alarms_of_missed_modes_are_rare():
    """Islands with both modes, as unlike as particles that cannot cross make them."""
    rng = np.random.default_rng(7)
    alarms = 0
    for seed in range(500):
        shares, noise = rng.beta(2.0, 2.0, 16), 0.3 * rng.normal(size=16) - 0.045
        cloud, islands = two_places(shares, noise, seed)
        alarms += look_at(20.0, math.log(0.5), cloud, islands, seed=seed) is not None
    # Five errors of a Student-t with 15 degrees: in one of 10,000 cases.
    assert alarms <= 2


def test_without_known_islands_a_mode_counts_all_the_same():
    cloud, islands = two_places([0.0] * 2)
    found = look_at(20.0, 0.0, cloud, islands)
    assert found is not None
    assert math.isnan(found.std_error)
    assert look_at(20.0, 0.0, cloud, np.full(2, -np.inf)) is None


@pytest.mark.parametrize("num_islands", [4, 16])
def test_the_error_of_the_bridge_counts_what_fitting_to_each_other_adds(num_islands):
    """On a Gaussian all error comes from fitted moments; halves fitted to each other gave 1.20."""
    prior = dist.Normal(0, 1).expand([3]).to_event(1)
    likelihood = lambda p: -0.5 * jnp.sum(p["x"] ** 2)  # noqa: E731
    path = Path(wb.Model({"x": prior}, total_log_likelihood=likelihood), (), Total())
    exact, scores = -1.5 * np.log(2), []
    with jax.enable_x64(True):
        for seed in range(200):
            draws = np.random.default_rng(seed).normal(size=(num_islands, 64, 3)) / np.sqrt(2)
            cloud = Cloud(draws, np.zeros((num_islands, 64)), None)
            bridged = bridge_to_gaussians(seed, 0, path, cloud, differentiable=False)
            scores.append((bridged.log_evidence - exact) / bridged.std_error)
    # The standard deviation of 200 scores is good to 5 %; three of those, and the tails of few
    # degrees of freedom, which the stated error allows for.
    assert 0.8 < np.std(scores) < 1.15
    assert abs(np.mean(scores)) < 4 / np.sqrt(200)


def test_a_gaussian_fitted_to_scores_is_exact_with_few_particles():
    generator = np.random.default_rng(0)
    root = np.tril(generator.normal(size=(5, 5))) + 3 * np.eye(5)
    mean = np.arange(5.0)
    position = generator.normal(size=(7, 5)) * 10  # from anywhere: not even from the Gaussian
    score = -np.linalg.solve(root @ root.T, (position - mean).T).T
    found, factor = fit_scores(position, score, np.full(7, 1 / 7))
    np.testing.assert_allclose(found, mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(factor @ factor.T, root @ root.T, rtol=1e-9)


def test_the_error_of_the_bridge_is_true_with_hardly_more_particles_than_dimensions():
    """Logs of Gamma variables: a Gaussian of 20 dimensions is fitted to the scores of 32."""
    dimension, shape = 20, 30.0
    prior = dist.Normal(0, 1).expand([dimension]).to_event(1)

    def likelihood(p):
        x = p["x"]
        return jnp.sum(shape * x - jnp.exp(x) - dist.Normal(0, 1).log_prob(x))

    path = Path(wb.Model({"x": prior}, total_log_likelihood=likelihood), (), Total())
    exact, scores = dimension * math.lgamma(shape), []
    with jax.enable_x64(True):
        for seed in range(200):
            draws = np.log(np.random.default_rng(seed).gamma(shape, size=(8, 16, dimension)))
            cloud = Cloud(draws, np.zeros((8, 16)), None)
            bridged = bridge_to_gaussians(seed, 0, path, cloud, differentiable=True)
            if bridged.is_light:
                scores.append((bridged.log_evidence - exact) / bridged.std_error)
    assert len(scores) > 100
    # The standard deviation of 100 scores is good to 7 %.
    assert 0.8 < np.std(scores) < 1.25
    assert abs(np.mean(scores)) < 4 / np.sqrt(len(scores))


def test_particles_without_weight_or_score_do_not_spoil_the_fit():
    generator = np.random.default_rng(0)
    position = generator.normal(size=(50, 2))
    score, share = -4 * (position - 1), np.full(50, 1 / 48)
    score[0], share[1] = np.nan, 0.0
    position[1] = 1e6
    score[1] = 1e9
    mean, root = fit_scores(position, score, share)
    np.testing.assert_allclose(mean, 1.0)
    np.testing.assert_allclose(root, np.eye(2) / 2, atol=1e-12)


def test_a_gaussian_posterior_is_bridged_to_rounding():
    problem = problems.linear(200)
    result = weigh(problem, 0)
    assert result.diagnostics["answer"] == "bridge"
    assert abs(result.log_evidence - problem.log_evidence) < 5 * result.std_error + 1e-9
    assert result.std_error < 1e-6


def test_a_density_that_is_no_gaussian_falls_back_on_moments():
    """Scores of a bimodal density point outwards at its middle: their Gaussian is none."""
    result = weigh(problems.shells(), 0)
    assert result.diagnostics["answer"] == "path"
    assert np.isfinite(result.diagnostics["bridge_log_evidence"])
