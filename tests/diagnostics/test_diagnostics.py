"""Diagnostics of chains, against processes whose answers are known."""

import re
import subprocess
import sys

import numpy as np
import pytest
from scipy.signal import lfilter

import weighbridge as wb
from weighbridge import diagnostics

GENERATOR = np.random.default_rng(0)
INDEPENDENT = GENERATOR.normal(size=(4, 1000))


def autoregressive(phi, seed, num_draws=20_000, num_chains=4):
    """Stationary AR(1) chains, whose every diagnostic has a closed form."""
    noise = np.random.default_rng(seed).normal(size=(num_chains, num_draws))
    noise[:, 0] /= np.sqrt(1 - phi**2)
    return lfilter([1.0], [1.0, -phi], noise, axis=1)


# Over 40 seeds, the relative spread of one ESS is 0.011, 0.024, 0.051 and 0.021; of the mean of
# four it is half of that, and the bounds are four times this.
@pytest.mark.parametrize(("phi", "bound"), [(0.0, 0.03), (0.5, 0.05), (0.9, 0.12), (-0.5, 0.05)])
def test_chains_with_known_autocorrelation(phi, bound):
    """ESS = n (1 - phi) / (1 + phi), tau = (1 + phi) / (1 - phi), E-BFMI = 2 (1 - phi)."""
    seeds = range(4)
    chains = [autoregressive(phi, seed) for seed in seeds]
    length = (1 + phi) / (1 - phi)
    num_draws = chains[0].size
    for kind in ("mean", "bulk"):
        worth = np.mean([wb.ess(x, kind) for x in chains])
        assert worth == pytest.approx(num_draws / length, rel=bound)
    found = np.mean([diagnostics.autocorrelation_length(x) for x in chains])
    # Where signs alternate the shortest window, of five lags, leaves out 6 % of so small a length.
    assert found == pytest.approx(length if phi >= 0 else 0.3125, rel=bound)
    energy = np.mean([diagnostics.energy_fraction(x) for x in chains])
    assert energy == pytest.approx(2 * (1 - phi), rel=bound)
    lags = np.mean([diagnostics.autocorrelation(x) for x in chains], axis=(0, 1))
    np.testing.assert_allclose(lags[:6], phi ** np.arange(6), atol=0.03)
    error = np.mean([wb.mcse(x) for x in chains])
    exact = np.sqrt(length / num_draws / (1 - phi**2))
    assert error == pytest.approx(exact, rel=bound)


def test_the_error_of_a_mean_is_what_means_vary_by():
    means = [autoregressive(0.7, seed, 2000).mean() for seed in range(200)]
    errors = [wb.mcse(autoregressive(0.7, seed, 2000)) for seed in range(20)]
    # The spread of 200 means is known to 5 %.
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.2)


def test_the_error_of_a_deviation():
    """Of n independent normal draws the deviation has the error 1 / sqrt(2 n)."""
    draws = np.random.default_rng(1).normal(size=(4, 10_000))
    assert wb.mcse(draws, of="sd") == pytest.approx(1 / np.sqrt(2 * draws.size), rel=0.05)


def test_classic_rhat_is_gelman_and_rubins():
    chains = INDEPENDENT[:, :50] + np.array([0.0, 0.1, 0.2, 0.7])[:, None]
    num_chains, num_draws = chains.shape
    between = num_draws * np.sum((chains.mean(1) - chains.mean()) ** 2) / (num_chains - 1)
    within = np.mean(np.sum((chains - chains.mean(1, keepdims=True)) ** 2, 1) / (num_draws - 1))
    variance = within * (num_draws - 1) / num_draws + between / num_draws
    assert wb.rhat(chains, "classic") == pytest.approx(np.sqrt(variance / within), rel=1e-12)


def test_rank_rhat_sees_what_the_classic_one_does_not():
    generator = np.random.default_rng(2)
    trend = INDEPENDENT + np.linspace(-1, 1, 1000)  # alike, but none is stationary
    widths = INDEPENDENT * np.array([1, 1, 1, 3])[:, None]
    heavy = generator.standard_cauchy(size=(4, 1000)) + np.array([0, 0, 0, 5])[:, None]
    for chains in (trend, widths, heavy):
        assert wb.rhat(chains, "classic") < 1.01
        assert wb.rhat(chains) > 1.05
    assert wb.rhat(np.exp(3 * INDEPENDENT)) == pytest.approx(wb.rhat(INDEPENDENT), abs=0.01)


def test_rhat_of_shifted_chains():
    """Means one sd apart in n draws: B / n is the variance of the means, W is 1."""
    shift = np.array([-1.0, 1.0])
    chains = np.random.default_rng(3).normal(size=(2, 50_000)) + shift[:, None]
    assert wb.rhat(chains, "classic") == pytest.approx(np.sqrt(1 + shift.var(ddof=1)), rel=0.01)


@pytest.mark.parametrize("function", [wb.rhat, wb.ess, wb.mcse, diagnostics.autocorrelation_length])
def test_what_has_no_answer_is_not_a_number(function):
    constant = np.full((4, 100), 0.1)
    broken = INDEPENDENT[:, :100].copy()
    broken[1, 3] = np.nan
    infinite = INDEPENDENT[:, :100].copy()
    infinite[1, 3] = np.inf
    for draws in (constant, broken, infinite, INDEPENDENT[:, :3]):
        assert np.isnan(function(draws))
    both = function(np.stack([constant, INDEPENDENT[:, :100]], axis=-1))
    assert both.shape == (2,)
    assert np.isnan(both[0])
    assert both[1] == function(INDEPENDENT[:, :100])
    assert type(function(INDEPENDENT)) is float


def test_a_single_chain():
    assert np.isnan(wb.rhat(INDEPENDENT[:1]))
    assert np.isnan(wb.rhat(INDEPENDENT[:1], "classic"))
    assert 800 < wb.ess(INDEPENDENT[:1]) < 1200


def test_chains_that_stand_still_apart():
    stuck = np.repeat(np.arange(4.0)[:, None], 100, axis=1)
    assert wb.rhat(stuck) == wb.rhat(stuck, "classic") == np.inf
    assert wb.ess(stuck) < 5
    assert np.isnan(diagnostics.energy_fraction(stuck)).all()
    assert np.isnan(diagnostics.autocorrelation(stuck)).all()


@pytest.mark.parametrize("function", [wb.rhat, wb.ess, wb.mcse, diagnostics.thin])
def test_draws_that_are_none(function):
    with pytest.raises(wb.MethodError, match="chains x draws"):
        function(np.zeros(10))
    with pytest.raises(wb.MethodError, match="no draws"):
        function(np.zeros((4, 0)))
    with pytest.raises(wb.MethodError, match="array of numbers"):
        function([[1.0, 2.0], [1.0]])


def test_unknown_kinds():
    with pytest.raises(wb.MethodError, match="'rank', 'classic', not 'split'"):
        wb.rhat(INDEPENDENT, "split")
    with pytest.raises(wb.MethodError, match="kind"):
        wb.ess(INDEPENDENT, "sd")
    with pytest.raises(wb.MethodError, match="of must be"):
        wb.mcse(INDEPENDENT, of="median")
    with pytest.raises(wb.MethodError, match="chains x draws"):
        diagnostics.energy_fraction(np.zeros((2, 3, 4)))
    with pytest.raises(wb.MethodError, match="chains x draws x 3"):
        diagnostics.energy_fraction(np.zeros((2, 3)), np.zeros((2, 3)))


def test_thinned_draws_are_nearly_independent():
    slow = autoregressive(0.9, 5)
    thinned = diagnostics.thin(slow)
    assert thinned.shape == (4, pytest.approx(20_000 / 19, rel=0.15))
    assert abs(diagnostics.autocorrelation(thinned)[:, 1].mean()) < 0.9**15
    np.testing.assert_array_equal(thinned[:, -1], slow[:, -1])
    together = diagnostics.thin({"slow": slow, "quick": autoregressive(0.0, 1)})
    assert together["slow"].shape == together["quick"].shape == thinned.shape
    quick = autoregressive(-0.5, 1)
    np.testing.assert_array_equal(diagnostics.thin(quick), quick)
    with pytest.raises(wb.MethodError, match="constant"):
        diagnostics.thin(np.ones((2, 9)))


def test_the_table_of_all_entries():
    draws = np.random.default_rng(4).normal(size=(4, 1000, 2, 3)) + np.arange(3)
    table = diagnostics.summarise({"w": draws, "b": 7 * draws[..., 0, 0]})
    assert list(table.rows) == ["w[0,0]", "w[0,1]", "w[0,2]", "w[1,0]", "w[1,1]", "w[1,2]", "b"]
    assert table["w[1,2]", "mean"] == pytest.approx(2, abs=4 * table["w[1,2]", "MCSE"])
    assert table["b", "sd"] == pytest.approx(7 * draws[..., 0, 0].std(ddof=1))
    assert table["b", "R-hat"] == wb.rhat(draws[..., 0, 0])
    assert table["b", "ESS tail"] == pytest.approx(wb.ess(draws[..., 0, 0], "tail"))
    low, high = table["w[0,0]", "94% HDI low"], table["w[0,0]", "94% HDI high"]
    inside = (draws[..., 0, 0] >= low) & (draws[..., 0, 0] <= high)
    assert inside.mean() == pytest.approx(0.94, abs=0.001)
    assert (low, high) == (pytest.approx(-1.88, abs=0.15), pytest.approx(1.88, abs=0.15))
    lines = str(table).splitlines()
    assert lines[0].split()[-5:] == ["ESS", "bulk", "ESS", "tail", "R-hat"]
    assert lines[-1].startswith("b ")
    assert lines[-1].endswith(f"{table['b', 'R-hat']:.3f}")
    assert f"{table['b', 'ESS bulk']:,.0f}" in lines[-1]
    with pytest.raises(wb.MethodError, match="probability"):
        diagnostics.summarise({"w": draws}, probability=1.5)
    with pytest.raises(wb.MethodError, match="empty"):
        diagnostics.summarise({})


def test_a_table_with_entries_that_have_no_diagnostics():
    table = diagnostics.summarise({"a": np.ones((2, 50)), "b": np.full((2, 50), np.nan)})
    assert table["a", "mean"] == 1.0
    assert np.isnan(table["a", "R-hat"])
    assert np.isnan(table["b", "mean"])
    assert "nan" in str(table)


GOOD = {
    "divergent": np.zeros((4, 1000), bool),
    "energy": INDEPENDENT,
    "tree_depth": np.full((4, 1000), 3),
    "acceptance": np.full((4, 1000), 0.8),
}


def test_good_chains_have_no_warning():
    assert diagnostics.warnings_of({"a": INDEPENDENT}, GOOD, max_tree_depth=10) == ()
    assert diagnostics.warnings_of({"a": INDEPENDENT, "fixed": np.ones((4, 1000))}) == ()


BAD = {
    "disagree": ({"a": INDEPENDENT + np.arange(4)[:, None]}, {}, "R-hat is above 1.01"),
    "few bulk": ({"a": autoregressive(0.99, 0, 1000)}, {}, "the bulk ESS is below 100 per chain"),
    "few tail": ({"a": autoregressive(0.99, 0, 1000)}, {}, "the tail ESS is below 100 per chain"),
    "divergent": (
        {"a": INDEPENDENT},
        {"divergent": np.arange(4000) < 8},
        "^8 divergent transitions .0.2 %",
    ),
    "energy": (
        {"a": INDEPENDENT},
        {"energy": np.vstack([INDEPENDENT[:3], np.cumsum(INDEPENDENT[3:], 1)])},
        r"E-BFMI .below 0.3. in chain 3 \(0.0",
    ),
    "depth": ({"a": INDEPENDENT}, {"tree_depth": np.full((4, 9), 10)}, "maximum tree depth of 10"),
    "rejected": ({"a": INDEPENDENT}, {"acceptance": np.full((4, 9), 0.01)}, "acceptance is 0.01"),
    "broken": ({"a": np.where(INDEPENDENT > 3, np.nan, INDEPENDENT)}, {}, "not finite for 1 of 1"),
    "stuck": ({"a": np.ones((4, 1000))}, {}, "never moved"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_speaks_against_draws_is_said(case):
    samples, stats, expected = BAD[case]
    stats = {**GOOD, **stats}
    said = diagnostics.warnings_of(samples, stats, max_tree_depth=10)
    matching = [text for text in said if re.search(expected, text)]
    assert len(matching) == 1, said
    assert len(said) == 1 or case.startswith(("few", "disagree")), said
    assert matching[0].count(".") >= 2, "a warning has a remedy"


def test_the_worst_entries_are_named_first():
    chains = np.random.default_rng(0).normal(size=(4, 500, 9))
    shifted = chains + 0.2 * np.arange(9) * np.arange(4)[:, None, None]
    (said,) = [t for t in diagnostics.warnings_of({"w": shifted}) if "R-hat" in t]
    assert "8 of 9 entries, w[8] (" in said
    assert ") and more." in said
    assert "w[0]" not in said


def test_arviz_is_imported_only_when_needed():
    code = "import sys, weighbridge.diagnostics; assert 'arviz_stats' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
