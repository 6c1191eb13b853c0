"""Weights, resampling and islands against what theory gives for them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from weighbridge.core.errors import MethodError
from weighbridge.core.islands import combine_islands
from weighbridge.core.resampling import (
    RESAMPLING,
    effective_sample_size,
    log_mean_exp,
    require_resampling,
    systematic_indices,
)

# A false alarm of any single comparison in this file has a probability below 1e-6.
SIGMAS = 5.0
NUM_KEYS = 20_000

# All of one length: one program serves them.
WEIGHTS = {
    "even": np.ones(8),
    "uneven": np.array([0.5, 3.0, 0.01, 1.0, 2.0, 0.3, 0.2, 0.9]),
    "with zeros": np.array([0.0, 2.0, 0.0, 0.7, 0.0, 1.0, 0.0, 0.0]),
    "one": np.array([0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    "whole copies": np.array([1.0, 2.0, 1.0, 0.0, 3.0, 0.0, 1.0, 0.0]),
    "tiny beside large": np.array([1e-300, 1.0, 1e-300, 1.0, 0.5, 0.3, 1e-300, 0.1]),
}


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def logs(weights):
    with np.errstate(divide="ignore"):
        return np.log(weights)


# --- effective sample size and mean -------------------------------------------------------


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("shift", [0.0, -1e6, 1e6])
def test_ess_is_the_ratio_of_sums_at_any_scale(name, shift):
    weights = WEIGHTS[name]
    expected = weights.sum() ** 2 / (weights**2).sum()
    # At 1e6 a double leaves 1e-10 of the logarithm.
    ess = float(effective_sample_size(logs(weights) + shift))
    assert ess == pytest.approx(expected, rel=1e-12 if shift == 0 else 5e-9)


def test_ess_lies_between_one_and_the_number():
    rng = np.random.default_rng(0)
    for spread in (0.0, 1.0, 30.0, 1e3, 1e5):
        ess = float(effective_sample_size(jnp.asarray(spread * rng.normal(size=50))))
        assert 1 - 1e-9 <= ess <= 50 * (1 + 1e-9)
        assert spread < 1e3 or ess < 3


def test_ess_without_weight_is_zero():
    assert float(effective_sample_size(jnp.full(4, -jnp.inf))) == 0.0


def test_log_mean_exp():
    weights = np.array([0.0, 1.0, 3.0, 4.0])
    assert float(log_mean_exp(logs(weights))) == pytest.approx(math.log(2.0), rel=1e-14)
    assert float(log_mean_exp(logs(weights) - 1e6)) == pytest.approx(math.log(2.0) - 1e6, abs=1e-9)
    assert float(log_mean_exp(jnp.full(3, -jnp.inf))) == -math.inf


# --- resampling ------------------------------------------------------------------------------


def resample_all(scheme, num_draws, log_weights):
    """Indices of the survivors, [cases, draws, particles]; all cases have the same numbers."""
    shape = (num_draws, log_weights.shape[-1])
    return np.stack(
        [
            RESAMPLING[scheme](np.random.default_rng(3), np.broadcast_to(case, shape))
            for case in np.asarray(log_weights)
        ]
    )


@pytest.fixture(scope="module")
def counts():
    """Copies of each particle, for many keys: [NUM_KEYS, particles], once per scheme and case."""
    found = {}
    weights = np.stack([logs(case) for case in WEIGHTS.values()])
    for scheme in RESAMPLING:
        chosen = resample_all(scheme, NUM_KEYS, weights)
        assert chosen.shape == (len(weights), NUM_KEYS, 8)
        assert 0 <= chosen.min() <= chosen.max() < 8
        for name, of_case in zip(WEIGHTS, chosen):
            copies = [(of_case == index).sum(axis=1) for index in range(8)]
            found[scheme, name] = np.stack(copies, axis=1)
    return found


@pytest.mark.parametrize("scheme", RESAMPLING)
@pytest.mark.parametrize("name", WEIGHTS)
def test_resampling_is_unbiased(counts, scheme, name):
    weights = WEIGHTS[name]
    expected = len(weights) * weights / weights.sum()
    copies = counts[scheme, name]
    assert (copies.sum(axis=1) == len(weights)).all()
    # The binomial variance of multinomial resampling bounds that of every other scheme. A mean
    # of integers can only be tested down to one count.
    share = expected / len(weights)
    error = np.sqrt(len(weights) * share * (1 - share) / NUM_KEYS)
    np.testing.assert_array_less(
        np.abs(copies.mean(axis=0) - expected), SIGMAS * error + 1 / NUM_KEYS
    )


@pytest.mark.parametrize("scheme", RESAMPLING)
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_particle_without_weight_is_never_chosen(counts, scheme, name):
    nothing = WEIGHTS[name] < 1e-200
    assert counts[scheme, name][:, nothing].sum() == 0


@pytest.mark.parametrize("scheme", ["systematic", "residual"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_copies_lie_between_floor_and_ceiling(counts, scheme, name):
    weights = WEIGHTS[name]
    expected = len(weights) * weights / weights.sum()
    copies = counts[scheme, name]
    assert (copies >= np.floor(expected + 1e-9)).all()
    assert (copies <= np.ceil(expected - 1e-9)).all()


@pytest.mark.parametrize("name", WEIGHTS)
def test_stratified_copies_are_within_two_of_the_expectation(counts, name):
    """A particle's interval covers whole strata, each of which gives one copy, and two pieces."""
    weights = WEIGHTS[name]
    expected = len(weights) * weights / weights.sum()
    copies = counts["stratified", name]
    assert (copies > expected - 2).all()
    assert (copies < expected + 2).all()


@pytest.mark.parametrize("name", ["uneven", "with zeros"])
def test_multinomial_has_its_variance_and_the_others_less(counts, name):
    share = WEIGHTS[name] / WEIGHTS[name].sum()
    expected = len(share) * share * (1 - share)
    variance = {scheme: counts[scheme, name].var(axis=0, ddof=1) for scheme in RESAMPLING}
    # A binomial's variance estimate has relative error sqrt((kurtosis - 1) / n), and its excess
    # kurtosis is below 1 / (num share (1 - share)).
    used = share > 0
    error = np.sqrt((2 + 1 / expected[used]) / NUM_KEYS) * expected[used]
    np.testing.assert_array_less(
        np.abs(variance["multinomial"] - expected)[used], SIGMAS * error + 1e-12
    )
    for scheme in ("systematic", "stratified", "residual"):
        assert variance[scheme].sum() < 0.6 * expected.sum()


def test_multinomial_draws_are_independent(counts):
    """Cov of two counts is -num * share_i * share_j, which a shared uniform would not give."""
    share = WEIGHTS["uneven"] / WEIGHTS["uneven"].sum()
    copies = counts["multinomial", "uneven"]
    covariance = np.cov(copies[:, 1], copies[:, 4])[0, 1]
    products = (copies[:, 1] - copies[:, 1].mean()) * (copies[:, 4] - copies[:, 4].mean())
    error = products.std() / math.sqrt(NUM_KEYS)
    assert abs(covariance + 8 * share[1] * share[4]) < SIGMAS * error


@pytest.mark.parametrize("scheme", RESAMPLING)
def test_resampling_at_extreme_scales(scheme):
    """exp(-1e6) and exp(1e6) are out of range; the choice is not."""
    plain = np.random.default_rng(1).normal(size=64)
    extreme = np.full(64, -np.inf)
    extreme[:6] = -1e300, -1e6, -690.0, 0.0, -np.inf, -1e300
    log_weights = jnp.asarray(np.stack([plain, plain - 1e6, plain + 1e6, extreme]))
    expected, *shifted, of_extreme = resample_all(scheme, 5, log_weights)
    assert min(len(np.unique(chosen)) for chosen in expected) > 10
    for chosen in shifted:
        # Rounding at 1e6 may move one point across a boundary.
        assert ((chosen != expected).sum(axis=1) <= 1).all()
    assert (of_extreme == 3).all()


@pytest.mark.parametrize("scheme", ["systematic", "residual"])
def test_many_even_weights_are_each_kept_once(scheme):
    """Rounding of cumulative sums must neither lose the last particle nor run past it."""
    num = 1000
    for chosen in resample_all(scheme, 5, np.full((1, num), -3.7))[0]:
        np.testing.assert_array_equal(np.sort(chosen), np.arange(num))


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("shift", [0.0, -1e6])
def test_systematic_resampling_on_the_host(name, shift):
    """By every point: floor or ceiling of the expected copies; on average just those."""
    share = WEIGHTS[name] / WEIGHTS[name].sum()
    log_weights = np.asarray(logs(WEIGHTS[name])) + shift
    points = (np.arange(4000) + 0.5) / 4000
    copies = np.stack(
        [np.bincount(systematic_indices(point, log_weights), minlength=8) for point in points]
    )
    assert (copies >= np.floor(8 * share - 1e-9)).all()
    assert (copies <= np.ceil(8 * share + 1e-9)).all()
    # An even grid of points integrates a step function up to one point for each of its steps.
    np.testing.assert_allclose(copies.mean(axis=0), 8 * share, atol=2 / 4000)
    for point in (0.0, np.nextafter(1.0, 0.0)):
        assert (share[systematic_indices(point, log_weights)] > 0).all()


def test_unknown_scheme_is_named():
    with pytest.raises(MethodError, match=r"sistematic.*multinomial.*systematic"):
        require_resampling("sistematic")


# --- islands --------------------------------------------------------------------------------


def simulate_islands(num_islands, spread, num_sets, seed):
    """Log-normal estimates of Z = 1: log Z_j ~ N(-spread^2 / 2, spread^2)."""
    rng = np.random.default_rng(seed)
    sets = rng.normal(-(spread**2) / 2, spread, size=(num_sets, num_islands))
    return [combine_islands(row) for row in sets]


@pytest.mark.parametrize("num_islands", [4, 5, 16])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_combined_estimate_is_calibrated(num_islands, seed):
    """z is Student-t with J - 1 degrees, scaled to unit variance."""
    num_sets, spread = 5000, 0.1
    combined = simulate_islands(num_islands, spread, num_sets, seed)
    z = np.array([c.log_evidence / c.std_error for c in combined])
    assert 0.8 < z.std() < 1.3
    scale = math.sqrt((num_islands - 1) / (num_islands - 3))
    for bound in (0.5, 1.0, 2.0):
        share = 1 - 2 * stats.t.sf(bound * scale, num_islands - 1)
        error = math.sqrt(share * (1 - share) / num_sets)
        # Terms of order spread^2 = 1 % bend the logarithm a little.
        assert abs(np.mean(np.abs(z) < bound) - share) < SIGMAS * error + 0.01


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("num_islands", [4, 16])
def test_the_mean_of_the_evidences_is_unbiased(spread, num_islands):
    """exp of the combination averages to Z; a mean of logs would miss by exp(-spread^2 / 2)."""
    num_sets = 5000
    combined = simulate_islands(num_islands, spread, num_sets, 2)
    ratios = np.exp([c.log_evidence for c in combined])
    error = math.sqrt(math.expm1(spread**2) / num_islands / num_sets)
    assert abs(ratios.mean() - 1) < SIGMAS * error


@pytest.mark.parametrize("num_islands", [8, 16])
def test_the_error_still_covers_where_the_mean_is_nearly_a_maximum(num_islands):
    """At a spread of 1.5 nats the delta method alone would state less than half the error."""
    combined = simulate_islands(num_islands, 1.5, 4000, 5)
    log_evidence = np.array([c.log_evidence for c in combined])
    stated = np.array([c.std_error for c in combined])
    rms = math.sqrt(np.mean(log_evidence**2))
    assert np.mean(np.abs(log_evidence) < 3 * stated) > 0.95
    assert 0.8 * rms < np.median(stated) < 3 * rms


def test_combination_by_hand():
    values = np.array([-10.1, -9.9, -10.0, -10.0, -10.2])
    combined = combine_islands(values)
    s2 = values.var(ddof=1)
    assert combined.spread == pytest.approx(math.sqrt(s2))
    assert combined.log_evidence == pytest.approx(math.log(np.exp(values).mean()), abs=1e-12)
    assert combined.std_error == pytest.approx(math.sqrt(4 / 2 * (s2 / 5 + s2**2 / 8)))
    assert all(type(number) is float for number in combined)


def test_scale_and_order_do_not_matter():
    values = np.random.default_rng(3).normal(size=8)
    plain, far = combine_islands(values), combine_islands(values[::-1] - 1e6)
    assert far.log_evidence + 1e6 == pytest.approx(plain.log_evidence, abs=1e-9)
    assert far.std_error == pytest.approx(plain.std_error, rel=1e-8)


@pytest.mark.parametrize("num_islands", [1, 2, 3])
def test_under_four_islands_the_error_is_unknown(num_islands):
    combined = combine_islands(np.linspace(-3, -2, num_islands))
    assert math.isnan(combined.std_error)
    assert math.isfinite(combined.log_evidence)


def test_an_island_without_weight_counts_as_zero():
    values = np.array([-1.0, -1.0, -1.0, -1.0, -np.inf])
    combined = combine_islands(values)
    assert combined.log_evidence == pytest.approx(-1.0 + math.log(0.8))
    assert math.isnan(combined.std_error)
    nothing = combine_islands(np.full(5, -np.inf))
    assert nothing.log_evidence == -math.inf
    assert math.isnan(nothing.std_error)


def test_the_error_shrinks_with_the_number_of_islands():
    rng = np.random.default_rng(4)
    few, many = combine_islands(rng.normal(0, 0.1, 16)), combine_islands(rng.normal(0, 0.1, 1600))
    # Relative errors of the two spreads: 1/sqrt(30) and 1/sqrt(3200).
    ratio = few.std_error / many.std_error
    assert ratio == pytest.approx(10 * math.sqrt(15 / 13), rel=SIGMAS / math.sqrt(30))
