"""Results in ArviZ, of the generation that is installed: `make test-long` runs it in both."""

import importlib.metadata
import importlib.util
import sys

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.errors import MethodError, MissingDependencyError
from weighbridge.results.arviz_export import generation

if generation() == 0:
    import arviz as az
    from arviz import plot_trace
else:
    import arviz_stats as az

ROWS = {"x": np.linspace(-1, 1, 30), "y": np.random.default_rng(0).normal(size=30)}


def line():
    return wb.Model(
        {"a": dist.Normal(0, 1), "w": dist.Normal(0, 1).expand([2]).to_event(1)},
        lambda p, row: dist.Normal(p["a"] + row["x"] * p["w"][0], 1.0).log_prob(row["y"]),
    )


@pytest.fixture(scope="module")
def model():
    return line()


@pytest.fixture(scope="module")
def posterior(model):
    return wb.sample(model, ROWS, num_samples=200, num_warmup=100, num_chains=4, seed=1)


def test_it_is_what_the_installed_arviz_understands(posterior):
    tree = posterior.to_arviz()
    if generation() == 0:
        assert isinstance(tree, az.InferenceData)
    else:
        assert type(tree).__name__ == "DataTree"
    np.testing.assert_array_equal(tree["posterior"]["w"].values, posterior.samples["w"])
    assert tree["sample_stats"]["diverging"].shape == (4, 200)
    assert {"acceptance_rate", "n_steps", "energy"} <= set(tree["sample_stats"].data_vars)


def test_log_likelihood_and_observed_data_where_they_are_given(model, posterior):
    tree = posterior.to_arviz(model, ROWS)
    values = tree["log_likelihood"]["rows"]
    assert values.dims == ("chain", "draw", "row")
    a, w = posterior.samples["a"][2, 7], posterior.samples["w"][2, 7]
    residual = ROWS["y"] - a - ROWS["x"] * w[0]
    expected = -0.5 * residual**2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(values.values[2, 7], expected, rtol=1e-12)
    np.testing.assert_array_equal(tree["observed_data"]["y"].values, ROWS["y"])
    assert tree["observed_data"]["x"].dims == ("row",)


def test_summary_and_loo(model, posterior):
    tree = posterior.to_arviz(model, ROWS)
    means = az.summary(tree)["mean"].astype(float)
    assert float(means["a"]) == pytest.approx(posterior.samples["a"].mean(), abs=0.01)
    ours, theirs = wb.loo(posterior, model, ROWS), az.loo(tree)
    elpd = theirs.elpd_loo if hasattr(theirs, "elpd_loo") else theirs.elpd
    # Theirs smooths the tails by relative effective draws, ours by those of each row.
    assert float(elpd) == pytest.approx(ours.elpd, abs=0.05)


def draws_with_arviz_1():
    """Whether ArviZ 1's figures are there; the extra `arviz` brings what they need."""
    if generation() == 0 or importlib.util.find_spec("arviz_plots") is None:
        return False
    newest = tuple(map(int, importlib.metadata.version("matplotlib").split(".")[:2]))
    return newest < (3, 11) or sys.version_info >= (3, 12)


@pytest.mark.skipif(generation() != 0, reason="arviz 0.x draws; its environment is test-long's")
def test_trace_plot(posterior):
    import matplotlib

    matplotlib.use("Agg")
    axes = plot_trace(posterior.to_arviz())
    assert axes.shape == (2, 2)


@pytest.mark.skipif(not draws_with_arviz_1(), reason="arviz-plots is not there, or cannot be used")
def test_trace_plot_of_arviz_1(posterior, tmp_path):
    import arviz_plots

    drawn = arviz_plots.plot_trace(posterior.to_arviz(), backend="matplotlib")
    drawn.savefig(tmp_path / "trace.png")
    assert {"a", "w"} <= set(drawn.viz["plot"].data_vars)
    assert (tmp_path / "trace.png").stat().st_size > 10_000


def test_an_evidence_goes_as_one_chain(model):
    result = wb.evidence(model, ROWS, wb.SMC(num_islands=4, num_particles=64))
    tree = result.to_arviz(model, ROWS, num_samples=300)
    assert tree["posterior"]["w"].shape == (1, 300, 2)
    assert tree["log_likelihood"]["rows"].shape == (1, 300, 30)


def test_columns_of_several_dimensions_and_names_that_parameters_have_too():
    draws = {"x": np.zeros((2, 5))}
    model = wb.Model({"x": dist.Normal(0, 1)}, lambda p, row: p["x"] * row["x"][0])
    data = {"x": np.arange(6.0).reshape(3, 2)}
    posterior = wb.Posterior(draws, draws["x"][..., None], {})
    tree = posterior.to_arviz(model, data)
    assert tree["observed_data"]["x"].shape == (3, 2)
    assert tree["posterior"]["x"].dims == ("chain", "draw")


def test_data_alone_and_a_total_log_likelihood(posterior):
    assert "log_likelihood" not in _groups(posterior.to_arviz(data=ROWS))
    total = wb.Model({"a": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -(p["a"] ** 2))
    assert "observed_data" in _groups(posterior.to_arviz(total, ROWS))


def _groups(tree):
    return tree.groups() if generation() == 0 else list(tree.children)


def test_what_does_not_fit_is_refused(model, posterior):
    with pytest.raises(MethodError, match="needs both"):
        posterior.to_arviz(model)
    other = wb.Model({"other": dist.Normal(0, 1)}, lambda p, row: p["other"] * row["x"])
    with pytest.raises(MethodError, match="other"):
        posterior.to_arviz(other, ROWS)


def test_without_arviz_it_says_what_to_install(posterior, monkeypatch):
    monkeypatch.setattr("weighbridge.results.arviz_export.generation", lambda: None)
    monkeypatch.setitem(__import__("sys").modules, "arviz_base", None)
    with pytest.raises(MissingDependencyError, match=r"weighbridge\[arviz\]"):
        posterior.to_arviz()


# --- and back -------------------------------------------------------------------------------


def test_draws_come_back_as_they_went(model, posterior):
    back = wb.from_arviz(posterior.to_arviz(), model)
    for name, draws in posterior.samples.items():
        np.testing.assert_array_equal(back.samples[name], draws)
    np.testing.assert_allclose(back.positions, posterior.positions, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(back.stats["divergent"], posterior.stats["divergent"])
    np.testing.assert_array_equal(back.stats["energy"], posterior.stats["energy"])
    assert back.stats["divergent"].dtype == bool
    assert not back.warnings or "Variables" not in " ".join(back.warnings)
    assert back.summary()["a", "mean"] == posterior.summary()["a", "mean"]


def test_variables_that_are_no_parameters_are_left_out_with_a_remark(model, posterior):
    more = posterior.samples | {"twice": 2 * posterior.samples["a"]}
    tree = wb.Posterior(more, posterior.positions, {}).to_arviz()
    back = wb.from_arviz(tree, model)
    assert set(back.samples) == {"a", "w"}
    assert any("twice" in remark for remark in back.remarks)


def test_a_bridge_from_arviz(model, posterior):
    back = wb.from_arviz(posterior.to_arviz(), model)
    first, second = wb.bridge(back, model, ROWS), wb.bridge(posterior, model, ROWS)
    assert first.log_evidence == pytest.approx(second.log_evidence, abs=1e-9)


def test_draws_of_another_model_are_refused(model, posterior):
    other = wb.Model({"b": dist.Normal(0, 1)}, lambda p, row: p["b"] * row["x"])
    with pytest.raises(wb.DataError, match="no parameters"):
        wb.from_arviz(posterior.to_arviz(), other)
    wide = wb.Model({"a": dist.Normal(0, 1).expand([2])}, lambda p, row: p["a"] @ row["x"])
    with pytest.raises(wb.DataError, match="shape"):
        wb.from_arviz(posterior.to_arviz(), wide)
    narrow = wb.Model({"a": dist.HalfNormal(1)}, lambda p, row: p["a"] * row["x"])
    with pytest.raises(wb.DataError, match="outside the support"):
        wb.from_arviz(posterior.to_arviz(), narrow)


def test_what_is_no_tree_is_refused(model):
    for wrong in ({"a": np.zeros(3)}, np.zeros(3), "posterior.nc", None):
        with pytest.raises(wb.DataError, match="no group 'posterior'"):
            wb.from_arviz(wrong, model)
    with pytest.raises(wb.WeighbridgeError, match="Model"):
        wb.from_arviz({"posterior": {}}, "model")


def test_axes_in_another_order(model, posterior):
    tree = posterior.to_arviz()
    moved = {"posterior": tree["posterior"].to_dataset().transpose(..., "chain", "draw")
             if hasattr(tree["posterior"], "to_dataset")
             else tree["posterior"].transpose(..., "chain", "draw")}  # fmt: skip
    np.testing.assert_array_equal(wb.from_arviz(moved, model).samples["w"], posterior.samples["w"])
