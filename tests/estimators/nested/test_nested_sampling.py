"""Nested sampling on problems with exact answers, on plateaus and edges, and on bad input."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.status import Status
from weighbridge.estimators.nested import stopping
from weighbridge.estimators.nested.merging import walk_flags

# Twelve comparisons of this file: a bound of 4 errors has a false-alarm rate of 1 in 1,000.
BOUND = 4.0


def box(dimension, half, log_likelihood, **options):
    prior = {"x": dist.Uniform(-half, half).expand([dimension]).to_event(1)}
    return wb.Model(prior, total_log_likelihood=log_likelihood, **options)


def normal(p):
    return jnp.sum(dist.Normal(0.0, 1.0).log_prob(p["x"]))


def numpy_normal(p):
    x = np.asarray(p["x"])
    return -0.5 * np.sum(x**2, axis=-1) - 0.5 * x.shape[-1] * math.log(2 * math.pi)


def small(**options):
    return wb.NestedSampling(**{"num_live": 200} | options)


def plateau(p):
    """log L is 0 in half of the box, 2 in a quarter, and 5 in a quarter."""
    return jnp.where(p["x"][0] < 0, 0.0, jnp.where(p["x"][1] < 0, 2.0, 5.0))


def edge(p):
    return jnp.where(jnp.all(p["x"] > 0.5), 0.0, -jnp.inf)


BOX = -3 * math.log(20.0)
EXACT = {
    "normal": (box(3, 10.0, normal), small(), BOX),
    "random walk": (box(3, 10.0, normal), small(moves="random_walk"), BOX),
    "on the host": (box(3, 10.0, numpy_normal, on_host=True), small(num_live=100), BOX),
    "plateau": (
        box(2, 1.0, plateau),
        small(),
        math.log(0.5 + 0.25 * math.exp(2) + 0.25 * math.exp(5)),
    ),
    "hard edge": (box(2, 1.0, edge), small(), 2 * math.log(0.25)),
    "one island": (box(3, 10.0, normal), small(num_islands=1, delete=0.1), BOX),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_answers_in_units_of_the_error(name):
    model, method, exact = EXACT[name]
    for seed in (0, 1):
        result = wb.evidence(model, None, method, seed=seed)
        assert abs(result.log_evidence - exact) < BOUND * result.std_error
        assert 0.01 < result.std_error < 0.5


def test_a_constant_likelihood_is_exact_and_flagged():
    result = wb.evidence(box(2, 1.0, lambda p: 0.0 * p["x"][0] - 3.0), None, small())
    assert result.log_evidence == pytest.approx(-3.0, abs=1e-9)
    assert Status.FLAT in result.flags


@pytest.mark.long
def test_a_spike_behind_a_slab_is_found_by_the_thin_run():
    """The spike has e^3 of the mass of the slab in 10^-5 of its volume."""

    def spike(p):
        narrow = jnp.sum(dist.Normal(0.0, 0.05).log_prob(p["x"])) + 3.0
        return jnp.logaddexp(jnp.sum(dist.Normal(0.0, 1.0).log_prob(p["x"])), narrow)

    exact = -4 * math.log(20.0) + math.log(1 + math.exp(3))
    for seed in range(2):
        result = wb.evidence(box(4, 10.0, spike), None, wb.NestedSampling(), seed=seed)
        assert abs(result.log_evidence - exact) < BOUND * result.std_error


def test_results_are_merged_by_birth_contours():
    model = box(3, 10.0, normal)
    one, other = (wb.evidence(model, None, small(), seed=seed) for seed in (5, 6))
    both = wb.merge([one, other])
    assert both.std_error < 0.85 * min(one.std_error, other.std_error)
    assert abs(both.log_evidence - BOX) < BOUND * both.std_error
    assert both.trace.nlive[0] == one.trace.nlive[0] + other.trace.nlive[0]
    assert len(both.log_weights) == len(one.log_weights) + len(other.log_weights)
    assert both.diagnostics["num_evaluations"] == sum(
        r.diagnostics["num_evaluations"] for r in (one, other)
    )
    assert np.all(np.diff(both.trace.logL) >= 0)
    with pytest.raises(wb.MethodError, match="twice"):
        wb.merge([one, one])
    with pytest.raises(wb.MethodError, match="nested sampling"):
        wb.merge([one, wb.evidence(model, None, wb.PriorSampling())])
    with pytest.raises(wb.MethodError, match="at least one"):
        wb.merge([])
    other_model = wb.evidence(box(2, 10.0, normal), None, small())
    with pytest.raises(wb.MethodError, match="different models"):
        wb.merge([one, other_model])


@pytest.mark.long
def test_a_tolerance_adds_rounds_that_are_merged():
    model = box(3, 10.0, normal)
    result = wb.evidence(model, None, small(), tolerance=0.1)
    assert result.std_error <= 0.1
    assert result.diagnostics["num_rounds"] > 1
    assert abs(result.log_evidence - BOX) < BOUND * result.std_error
    assert isinstance(result, wb.NestedEvidence)


def test_posterior_moments_are_those_of_the_target():
    result = wb.evidence(box(3, 10.0, normal), None, small(num_live=400), seed=2)
    share = np.exp(result.log_weights)
    mean = share @ result.samples["x"]
    size = 1.0 / np.sum(share**2)
    assert np.all(np.abs(mean) < 5.0 / math.sqrt(size))
    assert share @ np.sum(result.samples["x"] ** 2, axis=1) == pytest.approx(3.0, rel=0.15)
    assert result.diagnostics["dimensionality"] == pytest.approx(3.0, rel=0.3)
    assert result.diagnostics["information"] == pytest.approx(
        -BOX - 1.5 * math.log(2 * math.pi * math.e), rel=0.1
    )


@pytest.mark.long
def test_too_few_moves_are_flagged():
    model = box(10, 10.0, normal)
    flagged = [
        Status.WALKERS_REMEMBER
        in wb.evidence(model, None, wb.NestedSampling(num_moves=1), seed=seed).flags
        for seed in range(3)
    ]
    assert all(flagged)


def test_calls_and_time_end_a_run_with_a_flag():
    model = box(3, 10.0, normal)
    for method in (small(max_calls=3000), small(time_limit=1e-6)):
        result = wb.evidence(model, None, method)
        assert result.status is Status.STOPPED_EARLY
        assert result.claimed_error >= result.diagnostics["remainder"]
        assert np.isnan(result.std_error)
        assert str(result).startswith("log evidence at least")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_live": 0}, "num_live"),
        ({"num_live": 1, "num_islands": 1}, "num_live must be at least 2"),
        ({"num_live": 7, "num_islands": 4}, "num_live must be at least 2"),
        ({"delete": 1.0}, "delete"),
        ({"delete": 3}, "delete"),
        ({"moves": "teleport"}, "moves is one of"),
        ({"shrinkage": "median"}, "shrinkage is one of"),
        ({"num_moves": 0}, "num_moves"),
        ({"stop": "soon"}, "stop is one of"),
        ({"goal": "fame"}, "goal is None or one of"),
        ({"num_live": 500, "delete": 600}, "delete"),
        ({"remainder": -1.0}, "remainder must be positive"),
        ({"time_limit": 0}, "time_limit must be positive"),
        ({"max_calls": 1.5}, "max_calls"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(wb.MethodError, match=message):
        wb.NestedSampling(**options)


def test_likelihoods_that_are_no_densities_are_refused():
    def at_a_point(p):
        return jnp.where(jnp.all(p["x"] == 0.25), 0.0, -jnp.inf)

    with pytest.raises(wb.ModelError, match="NaN"):
        wb.evidence(box(2, 1.0, lambda p: jnp.log(p["x"][0])), None, small())
    with pytest.raises(wb.ModelError, match=r"\+inf"):
        wb.evidence(box(2, 1.0, lambda p: jnp.where(p["x"][0] > 0, jnp.inf, 0.0)), None, small())
    with pytest.raises(wb.ModelError, match="-inf for every prior draw"):
        wb.evidence(box(2, 1.0, at_a_point), None, small())


def test_a_likelihood_without_a_maximum_ends_with_a_flag(monkeypatch):
    monkeypatch.setattr(stopping, "LEAST_LOG_VOLUME", -8.0)
    monkeypatch.setattr(stopping, "LEAST_FOR_EACH", 0.0)
    model = box(1, 1.0, lambda p: -4.0 * jnp.log(jnp.abs(p["x"][0]) + 1e-300))
    result = wb.evidence(model, None, small())
    assert Status.STOPPED_EARLY in result.flags
    assert result.diagnostics["ended"] == "endless"


def test_errors_of_a_likelihood_on_the_host_are_passed_on():
    calls = []

    def breaks(p):
        calls.append(1)
        if len(calls) > 30:
            raise RuntimeError("the instrument is off")
        return numpy_normal(p)

    def changes(p):
        calls.append(1)
        return numpy_normal(p) if len(calls) < 30 else np.zeros(2)

    with pytest.raises(RuntimeError, match="instrument"):
        wb.evidence(box(3, 10.0, breaks, on_host=True), None, small())
    calls.clear()
    with pytest.raises(wb.ModelError, match="returned the shape"):
        wb.evidence(box(3, 10.0, changes, on_host=True), None, small())


def test_other_data_of_the_same_kind_compile_nothing(compiled):
    model = wb.zoo.gaussian.model()
    for seed in (0, 1):
        wb.evidence(model, wb.zoo.gaussian.simulate(50, seed=seed), small(), seed=seed)
    before = len(compiled)
    for seed in (2, 3):
        wb.evidence(model, wb.zoo.gaussian.simulate(50, seed=seed), small(), seed=seed)
    assert not compiled[before:]


def test_a_result_keeps_everything_in_its_file_and_becomes_a_table(tmp_path):
    model = box(2, 10.0, normal)
    runs = [wb.evidence(model, None, small(num_live=80), seed=seed) for seed in (0, 1)]
    loaded = []
    for number, run in enumerate(runs):
        run.save(tmp_path / f"run{number}")
        loaded.append(wb.Evidence.load(tmp_path / f"run{number}"))
    assert [type(run) for run in loaded] == [wb.NestedEvidence] * 2
    one, other = wb.merge(runs), loaded[0] + loaded[1]
    assert (one.log_evidence, one.std_error) == (other.log_evidence, other.std_error)
    np.testing.assert_array_equal(one.log_weights, other.log_weights)
    assert list(loaded[0].trace) == list(runs[0].trace)
    table = one.to_pandas()
    assert list(table.columns) == [
        *("x[0]", "x[1]", "log_weight", "logL", "logL_birth", "nlive", "insertion"),
    ]
    assert len(table) == len(one.log_weights)
    assert np.all(table.logL >= table.logL_birth)


def test_both_rules_stop_near_the_same_evidence():
    model = box(3, 10.0, normal)
    nats, share = (wb.evidence(model, None, small(stop=s)) for s in ("remainder", "one_percent"))
    for result in (nats, share):
        assert abs(result.log_evidence - BOX) < BOUND * result.std_error
    # The highest likelihood is more than the mean of the live points, so this rule stops later.
    assert share.diagnostics["num_batches"] >= nats.diagnostics["num_batches"]


def test_a_prior_that_cannot_be_drawn_from_is_refused():
    class Undefined(dist.Normal):
        def sample(self, key, sample_shape=()):
            return jnp.full(sample_shape + self.batch_shape, jnp.nan)

    undefined = wb.Model({"x": Undefined(0.0, 1.0)}, total_log_likelihood=lambda p: -(p["x"] ** 2))
    with pytest.raises(wb.ModelError, match="draw from the prior is not a number"):
        wb.evidence(undefined, None, small())
    improper = dist.ImproperUniform(dist.constraints.real, (), ())
    with pytest.raises(wb.ModelError, match="improper"):
        wb.Model({"x": improper}, total_log_likelihood=lambda p: -(p["x"] ** 2))


def test_a_run_draws_itself():
    figure = wb.evidence(box(2, 10.0, normal), None, small()).plot_run()
    assert [axes.get_ylabel().split()[0] for axes in figure.axes] == [
        "live",
        "likelihood",
        "posterior",
        "evidence",
    ]


def test_one_move_is_too_few():
    for seed in (0, 1):
        result = wb.evidence(box(3, 10.0, normal), None, small(num_moves=1), seed=seed)
        assert Status.WALKERS_REMEMBER in result.flags


def test_few_live_points_for_many_parameters_are_flagged():
    walks = {"num_walkers": 100, "num_stuck": 0, "num_jumped": 0, "remembered": 0.0}
    walks |= {"moves_per_walk": 200}
    walked = walks | {"num_moves": 20_000, "num_accepted": 20_000}
    few = Status.FEW_LIVE_POINTS
    assert walk_flags(walked, "slice", 100, 500) == [few]
    assert walk_flags(walked, "galilean", 44, 400) == [few]
    assert walk_flags(walked, "slice", 100, 1_000) == []
    assert walk_flags(walked, "slice", 10, 40) == []
    # Rejection needs no shape.
    assert walk_flags(walked, "prior", 100, 40) == []
