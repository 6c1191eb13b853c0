"""Highest-density regions: exact on known densities, one interval where there is one mode."""

import numpy as np
import pytest
from scipy import stats

import weighbridge as wb
from weighbridge.core.tables.regions import highest_density_regions
from weighbridge.core.tables.summaries import highest_density_interval

ONE_MODE = {
    "normal": lambda generator, count: generator.normal(size=count),
    "exponential": lambda generator, count: generator.exponential(size=count),
    "cauchy": lambda generator, count: generator.standard_cauchy(size=count),
    "uniform": lambda generator, count: generator.uniform(size=count),
}


def equal(count):
    return np.full(count, 1 / count)


def two_modes(generator, count):
    first = generator.uniform(size=count) < 0.3
    return np.where(first, generator.normal(-3, 0.3, count), generator.normal(3, 1.0, count))


def exact_ends(probability):
    """The ends of the region of ``two_modes``, from its density on a fine grid."""
    grid = np.linspace(-10, 10, 200_001)
    density = 0.3 * stats.norm.pdf(grid, -3, 0.3) + 0.7 * stats.norm.pdf(grid, 3, 1.0)
    falling = np.sort(density)[::-1]
    level = falling[np.searchsorted(np.cumsum(falling) * (grid[1] - grid[0]), probability)]
    return grid[np.flatnonzero(np.diff((density >= level).astype(int)))]


@pytest.mark.parametrize("name", ONE_MODE)
def test_noise_makes_no_second_interval_and_one_is_that_of_the_summary(name):
    """Over 60 sets of draws at most one may split: no false alarms beyond two in a hundred."""
    split = 0
    for seed in range(60):
        draws = ONE_MODE[name](np.random.default_rng(seed), 1000)
        found = highest_density_regions(draws, equal(1000), 0.5 if seed % 2 else 0.94)
        if len(found) == 1:
            interval = highest_density_interval(draws, equal(1000), 0.5 if seed % 2 else 0.94)
            assert found[0][:2] == interval
        split += len(found) > 1
    assert split <= 1


@pytest.mark.parametrize("probability", [0.5, 0.9])
def test_two_modes_have_the_exact_ends_on_average(probability):
    """The mean of the ends over 40 sets of draws, in units of their own standard error."""
    found = []
    for seed in range(40):
        draws = two_modes(np.random.default_rng(seed), 4000)
        parts = highest_density_regions(draws, equal(4000), probability)
        assert len(parts) == 2
        assert sum(part.mass for part in parts) == pytest.approx(probability, abs=0.002)
        found.append([end for part in parts for end in part[:2]])
    exact = exact_ends(probability)
    spread = np.std(found, axis=0, ddof=1)
    # The region is chosen to be short, which biases its ends inwards by less than their spread.
    assert np.all(np.abs(np.mean(found, axis=0) - exact) < 0.6 * spread)


def test_weighted_draws_count_by_their_weights():
    generator = np.random.default_rng(1)
    grid = generator.uniform(-10, 10, 20_000)
    weights = 0.3 * stats.norm.pdf(grid, -3, 0.3) + 0.7 * stats.norm.pdf(grid, 3, 1.0)
    found = highest_density_regions(grid, weights / weights.sum(), 0.9)
    ends = [end for part in found for end in part[:2]]
    assert np.abs(np.array(ends) - exact_ends(0.9)).max() < 0.25


def test_correlated_chains_are_not_split_by_their_noise():
    """A chain with 30 effective draws looks like several modes; its R-hat says what is wrong."""
    steps = np.random.default_rng(0).normal(size=(4, 1000))
    chains = np.zeros((4, 1000))
    for k in range(1, 1000):
        chains[:, k] = 0.99 * chains[:, k - 1] + 0.14 * steps[:, k]
    posterior = wb.Posterior({"a": chains}, chains[..., None], {})
    assert list(posterior.highest_density_regions().rows) == ["a"]


def test_a_result_has_a_table_of_all_parameters_or_of_some():
    generator = np.random.default_rng(0)
    draws = {"w": np.stack([two_modes(generator, 2000), generator.normal(size=2000)], 1),
             "b": generator.normal(size=2000)}  # fmt: skip
    result = wb.Evidence(-1.0, 0.1, 9, "smc", wb.Trace(), draws, np.zeros(2000))
    table = result.highest_density_regions(probability=0.9)
    assert list(table.rows) == ["w[0] (1)", "w[0] (2)", "w[1]", "b"]
    assert table["w[1]", "mass"] == pytest.approx(0.9, abs=0.001)
    assert list(result.highest_density_regions("b").rows) == ["b"]
    assert list(result.highest_density_regions(["w[1]", "b"]).rows) == ["w[1]", "b"]
    assert list(table.to_pandas().columns) == ["low", "high", "mass"]
    with pytest.raises(wb.MethodError, match=r"no parameter 'v'"):
        result.highest_density_regions("v")
    with pytest.raises(wb.MethodError, match="probability"):
        result.highest_density_regions(probability=1.5)


def test_the_figure_shades_both_modes_and_not_the_space_between():
    draws = {"m": two_modes(np.random.default_rng(0), 4000)}
    result = wb.Evidence(-1.0, 0.1, 9, "smc", wb.Trace(), draws, np.zeros(4000))
    panel = result.plot_posterior().axes[0]
    shaded = [path.vertices[:, 0] for path in panel.collections[0].get_paths()]
    assert len(shaded) == 2
    assert shaded[0].max() < -1.5 < 0.5 < shaded[1].min()
