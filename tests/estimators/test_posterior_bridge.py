"""Bridges from posterior draws against exact evidences, in units of the stated error."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import weighbridge as wb
from weighbridge.core.progress.reporters import Reporter
from weighbridge.core.status import Status
from weighbridge.estimators.bridging.groups import GROUPS, in_groups
from weighbridge.estimators.bridging.precision import jackknife, mean_variance
from weighbridge.estimators.bridging.proposals import fit
from weighbridge.estimators.posterior_draws import PosteriorDraws

BOUND = 5.0
SIZE = 3


def _exponential(p, row):
    return jnp.sum(dist.Exponential(p["rate"]).log_prob(row))


RATES = wb.Model({"rate": dist.Gamma(jnp.ones(SIZE), 1.0).to_event(1)}, _exponential)
ROW = np.array([[0.3, 1.0, 2.5]])
# One observation: the posterior of each log rate is clearly skewed.
EXACT = float(np.sum(special.gammaln(2.0) - 2.0 * np.log(1.0 + ROW[0])))


def rates(seed, chains=4, draws=200, correlation=0.0):
    """Chains of the exact posterior with a known autocorrelation, by way of normal scores."""
    numbers = np.random.default_rng([seed, 11])
    scores = numbers.normal(size=(chains, draws, SIZE))
    for step in range(1, draws):
        fresh = math.sqrt(1 - correlation**2) * scores[:, step]
        scores[:, step] = correlation * scores[:, step - 1] + fresh
    return {"rate": stats.gamma(2.0).ppf(stats.norm.cdf(scores)) / (1.0 + ROW[0])}


def is_right(result, exact, bound=BOUND):
    return abs(result.log_evidence - exact) < bound * result.std_error + 1e-9


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_the_error_is_that_of_autocorrelated_draws(correlation):
    z, flagged = [], 0
    for seed in range(20):
        draws = rates(seed, correlation=correlation)
        result = wb.bridge(draws, RATES, ROW, proposal="normal", seed=seed)
        z.append((result.log_evidence - EXACT) / result.std_error)
        flagged += bool(result.flags)
    # The standard deviation of 20 is known to 16 %, the mean to 0.22.
    assert 0.4 < np.std(z) < 1.6
    assert abs(np.mean(z)) < 0.9
    assert flagged <= 2


@pytest.mark.parametrize("proposal", ["normal", "student_t", "warp3", "mixture", "auto"])
def test_every_proposal_gives_the_same_answer(proposal):
    result = wb.bridge(rates(1, draws=500), RATES, ROW, proposal=proposal)
    assert is_right(result, EXACT)
    assert 0 < result.std_error < 0.03
    assert not result.flags
    if proposal != "auto":
        assert result.diagnostics["proposal"] == proposal
    else:
        overlaps = [result.diagnostics[f"overlap_{kind}"] for kind in ("normal", "warp3")]
        assert all(0.5 < overlap <= 1 for overlap in overlaps)


def test_warp3_is_more_accurate_than_normal_on_a_skewed_posterior():
    errors = {
        kind: np.mean([wb.bridge(rates(s), RATES, ROW, proposal=kind).std_error for s in range(3)])
        for kind in ("normal", "warp3")
    }
    assert errors["warp3"] < 0.9 * errors["normal"]


@pytest.mark.parametrize(("chains", "draws"), [(1, 400), (2, 150), (40, 12), (1, 20)])
def test_any_number_of_chains_and_draws(chains, draws):
    result = wb.bridge(rates(3, chains, draws), RATES, ROW, proposal="normal")
    assert is_right(result, EXACT, 6.0)
    assert (Status.FEW_EFFECTIVE_DRAWS in result.flags) is (chains * draws == 20)


def test_draws_without_chains_are_one_chain():
    named = {name: values[0] for name, values in rates(4, 1, 400).items()}
    alone = wb.bridge(named, RATES, ROW)
    assert alone.log_evidence == wb.bridge({"rate": named["rate"][None]}, RATES, ROW).log_evidence


def test_repetitions_draw_the_proposals_again():
    once = wb.bridge(rates(5), RATES, ROW, proposal="normal")
    often = wb.bridge(rates(5), RATES, ROW, proposal="normal", repetitions=4)
    assert is_right(often, EXACT)
    assert len(set(often.diagnostics["repetition_log_evidence"])) == 4
    halved = often.diagnostics["error_of_proposals"] / once.diagnostics["error_of_proposals"]
    assert 0.4 < halved < 0.6
    # The posterior draws are the same, and so is their part of the error.
    kept = often.diagnostics["error_of_draws"] / once.diagnostics["error_of_draws"]
    assert 0.8 < kept < 1.2
    measures = often.diagnostics["error_measures"]
    assert measures["re2"] == pytest.approx(often.std_error**2)
    assert measures["min"] <= often.log_evidence <= measures["max"]


def test_the_result_is_that_of_other_methods():
    draws = rates(6)
    result = wb.bridge(draws, RATES, ROW, seed=3)
    assert result.method == "bridge"
    assert result.num_observations == 1
    assert result.samples["rate"].shape == (800, SIZE)
    np.testing.assert_allclose(result.samples["rate"], draws["rate"].reshape(-1, SIZE), rtol=1e-9)
    assert np.logaddexp.reduce(result.log_weights) == pytest.approx(0.0)
    assert "among the posterior draws" in str(result)
    again = wb.bridge(draws, RATES, ROW, seed=3)
    other = wb.bridge(draws, RATES, ROW, seed=4)
    assert again.log_evidence == result.log_evidence != other.log_evidence


@pytest.mark.long
def test_other_data_are_not_compared():
    first = wb.bridge(rates(7), RATES, ROW)
    moved = wb.bridge(rates(7), RATES, ROW * 1.001)
    with pytest.raises(wb.WeighbridgeError, match="differ"):
        wb.compare({"a": first, "b": moved})
    sampled = wb.evidence(RATES, ROW, wb.SMC(num_islands=4, num_particles=64))
    assert set(wb.compare({"a": first, "b": sampled}).results) == {"a", "b"}


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s * 0.7,  # of other data
        lambda s: np.exp(np.log(s) * 0.7 + 0.3 * np.log(s).mean(axis=(0, 1))),  # too narrow
    ],
)
def test_draws_of_another_posterior_are_found_out(change):
    wrong = {"rate": change(rates(8, draws=500)["rate"])}
    assert Status.DRAWS_DO_NOT_FIT in wb.bridge(wrong, RATES, ROW).flags


def test_chains_in_different_places_are_flagged():
    draws = rates(9)["rate"]
    draws[3] *= 3.0
    assert Status.CHAINS_DISAGREE in wb.bridge({"rate": draws}, RATES, ROW).flags


def test_a_bridge_to_no_overlap_is_flagged():
    # Draws of two far modes, and one wide Gaussian over both in many dimensions.
    def two(p):
        ends = [jnp.sum(dist.Normal(m, 0.1).log_prob(p["x"])) for m in (-3.0, 3.0)]
        return jnp.logaddexp(*ends) - math.log(2.0)

    prior = dist.Uniform(-5.0, 5.0).expand([8]).to_event(1)
    model = wb.Model({"x": prior}, total_log_likelihood=two)
    numbers = np.random.default_rng(0)
    sign = np.where(numbers.random((4, 500, 1)) < 0.5, -3.0, 3.0)
    draws = {"x": sign + 0.1 * numbers.normal(size=(4, 500, 8))}
    exact = -8 * math.log(10.0)
    clusters = wb.bridge(draws, model)
    assert clusters.diagnostics["proposal"] == "mixture"
    assert is_right(clusters, exact)
    assert not clusters.flags
    single = wb.bridge(draws, model, proposal="normal")
    assert Status.LITTLE_OVERLAP in single.flags or is_right(single, exact)
    heavy = wb.bridge(draws, model, proposal="student_t")
    assert Status.LITTLE_OVERLAP in heavy.flags


def _either(p):
    first = jnp.sum(dist.Normal(jnp.array([-1.0, 1.5]), 0.3).log_prob(p["mu"]))
    second = jnp.sum(dist.Normal(jnp.array([1.5, -1.0]), 0.3).log_prob(p["mu"]))
    return jnp.logaddexp(first, second)


@pytest.mark.parametrize("switching", [True, False])
def test_exchangeable_components_get_one_labelling(switching):
    prior = {"mu": dist.Normal(0.0, 2.0).expand([2]).to_event(1)}
    model = wb.Model(prior, total_log_likelihood=_either, exchangeable={"mu": 0})
    variance = 1 / (1 / 0.3**2 + 1 / 4.0)
    means = np.array([-1.0, 1.5]) * variance / 0.3**2
    numbers = np.random.default_rng(1)
    draws = means + math.sqrt(variance) * numbers.normal(size=(4, 250, 2))
    if switching:
        draws = numbers.permuted(draws, axis=-1)
    single = stats.norm(0, math.sqrt(4.0 + 0.09)).logpdf([-1.0, 1.5]).sum()
    # Chains that never switch have one of two modes, which the labelling accounts for.
    result = wb.bridge({"mu": draws}, model, proposal="normal")
    assert is_right(result, single + math.log(2.0))
    assert result.std_error < 0.01
    assert not result.flags


@pytest.mark.long
def test_weighted_draws_of_a_result():
    exact = EXACT
    for method in (
        wb.SMC(num_islands=16, num_particles=64),
        wb.NestedSampling(num_live=200),
    ):
        evidence = wb.evidence(RATES, ROW, method, seed=2)
        result = wb.bridge(evidence, RATES, ROW, proposal="normal")
        assert is_right(result, exact)
        assert result.std_error < 0.05
    with pytest.raises(wb.DataError, match="other data"):
        wb.bridge(evidence, RATES, ROW * 2)


def test_the_draws_of_a_bridge_or_a_harmonic_mean_are_still_autocorrelated():
    draws = rates(3, correlation=0.9)
    first = wb.bridge(draws, RATES, ROW, proposal="normal")
    mean = wb.HarmonicMean(num_samples=50).from_draws(RATES, ROW, draws)
    for result in (first, mean):
        again = wb.bridge(result, RATES, ROW, proposal="normal")
        assert again.std_error == pytest.approx(first.std_error)
        assert again.diagnostics["effective_draws"] == first.diagnostics["effective_draws"]
        np.testing.assert_allclose(result.samples["rate"], draws["rate"].reshape(-1, SIZE))
    wider = wb.Model({"rate": dist.Gamma(jnp.ones(SIZE), 0.5).to_event(1)}, _exponential)
    ratios = [wb.reweight(source, RATES, ROW, to=wider) for source in (draws, first)]
    assert ratios[1].ratio_error == pytest.approx(ratios[0].ratio_error)


def test_draws_of_an_unfinished_path_are_refused():
    flat = {"rate": rates(1)["rate"][0]}
    early = wb.Evidence(
        -1.0, math.nan, 1, "smc", wb.Trace(), flat, np.zeros(200), {"power_reached": 0.3}
    )
    with pytest.raises(wb.DataError, match="before the end of its path"):
        wb.bridge(early, RATES, ROW)


def test_progress_is_shown_to_the_end():
    told = []

    class Told(Reporter):
        def advance(self, share, done, log_evidence, steps, label="", island_round=0):
            told.append((share, steps))

        def close(self):
            told.append("closed")

    result = wb.bridge(rates(1), RATES, ROW, progress=Told())
    assert told[-1] == "closed"
    assert told[-2][1] == result.diagnostics["num_evaluations"]
    assert [share for share, _ in told[:-1]] == sorted(share for share, _ in told[:-1])


def test_rows_that_cannot_be_used():
    rows = np.concatenate([ROW, np.full((1, SIZE), np.nan)])
    with pytest.raises(wb.DataError):
        wb.bridge(rates(1), RATES, rows)
    result = wb.bridge(rates(1), RATES, rows, on_bad_row="skip")
    assert result.rows_skipped == 1
    assert is_right(result, EXACT)


def test_bad_input_is_refused():
    draws = rates(1)
    with pytest.raises(wb.MethodError, match="proposal is one of"):
        wb.bridge(draws, RATES, ROW, proposal="gaussian")
    with pytest.raises(wb.MethodError, match="repetitions"):
        wb.bridge(draws, RATES, ROW, repetitions=0)
    with pytest.raises(wb.MethodError, match="seed"):
        wb.bridge(draws, RATES, ROW, seed=-1)
    with pytest.raises(wb.DataError, match="give it data"):
        wb.bridge(draws, RATES)
    with pytest.raises(wb.WeighbridgeError, match="Model"):
        wb.bridge(draws, "model", ROW)
    with pytest.raises(wb.DataError, match="mapping from parameter names"):
        wb.bridge(draws["rate"], RATES, ROW)
    impossible = wb.Model(
        {"rate": dist.Gamma(jnp.ones(SIZE), 1.0).to_event(1)},
        lambda p, row: jnp.where(p["rate"][0] > 1.0, -jnp.inf, _exponential(p, row)),
    )
    with pytest.raises(wb.DataError, match="zero or undefined"):
        wb.bridge(draws, impossible, ROW)


def test_settings_of_the_method():
    with pytest.raises(wb.MethodError, match="proposal is one of"):
        wb.Bridge(proposal="best")
    with pytest.raises(wb.MethodError, match="samples the posterior exactly"):
        wb.Bridge(kernel=wb.SGLD())
    with pytest.raises(wb.MethodError, match="num_samples"):
        wb.Bridge(num_samples=0)
    with pytest.raises(wb.MethodError, match="adapts for"):
        wb.Bridge(kernel=wb.PopulationMonteCarlo(num_adapt=500), num_warmup=100)


# --- the parts ------------------------------------------------------------------------------


def test_groups_are_in_a_circle_and_no_two_fit_each_other():
    chains = np.arange(4 * 100, dtype=float).reshape(4, 100, 1)
    groups = in_groups(PosteriorDraws(chains, np.zeros((4, 100)), True), 0, None)
    members = [set(groups.positions[g].ravel()) for g in range(GROUPS)]
    assert set.union(*members) == set(chains.ravel())
    fits = []
    for group in range(GROUPS):
        parts = groups.fitting(group, None)
        fitted = {g for g in range(GROUPS) for part in parts if members[g] & set(part.ravel())}
        fits.append(fitted)
        assert group not in fitted
        assert len(fitted) == 2
    pairs = [(a, b) for a in range(GROUPS) for b in fits[a]]
    assert not any((b, a) in pairs for a, b in pairs)


def test_the_variance_of_a_mean_of_autocorrelated_terms():
    numbers = np.random.default_rng(3)
    terms = numbers.normal(size=(2000, 5, 2, 100))
    for step in range(1, 100):
        terms[..., step] = 0.7 * terms[..., step - 1] + math.sqrt(1 - 0.49) * terms[..., step]
    stated = np.mean([mean_variance(series) for series in terms])
    true = np.var(terms.mean(axis=(1, 2, 3)))
    # The sum of autocovariances ends where they are lost in noise, which makes it a little large.
    assert 0.9 < stated / true < 1.25


def test_a_jackknife_of_few_parts_has_no_error():
    assert math.isnan(jackknife(np.array([0.1, -0.1, 0.0])))


def test_fitted_proposals():
    numbers = np.random.default_rng(0)
    heavy = numbers.standard_t(4.0, size=(4000, 2))
    proposal = fit("student_t", heavy).density
    assert proposal.freedom[0] in (3.0, 5.0)
    assert fit("student_t", numbers.normal(size=(4000, 2))).density.freedom[0] == 30.0
    mirrored = fit("warp3", heavy)
    centre = mirrored.density.mean[0]
    np.testing.assert_allclose(mirrored.images(centre[None]), centre[None])
