"""Draws of any origin become vectors of a model, or are refused with what is wrong."""

import math

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.compilation import in_double_precision
from weighbridge.estimators.posterior_draws import LEAST_DRAWS, read_draws
from weighbridge.models.named_draws import positions_of, with_chains

MODEL = wb.Model(
    {
        "scale": dist.Gamma(2.0, 1.0),
        "part": dist.Beta(2.0, 2.0).expand([2]).to_event(1),
        "mean": lambda p: dist.Normal(0.0, p["scale"]),
    },
    lambda p, y: dist.Normal(p["mean"], p["scale"]).log_prob(y),
)
CHAINS, DRAWS = 3, 40


def samples(chains=CHAINS, draws=DRAWS, **changed):
    numbers = np.random.default_rng(0)
    found = {
        "scale": numbers.gamma(2.0, size=(chains, draws)),
        "part": numbers.beta(2.0, 2.0, size=(chains, draws, 2)),
        "mean": numbers.normal(size=(chains, draws)),
    }
    return found | changed


def named(positions):
    flat = MODEL.unravel(positions)
    return {name: flat[name] for name in MODEL.names}


def test_a_mapping_with_chains_and_without():
    chains = read_draws(MODEL, samples())
    assert chains.positions.shape == (CHAINS, DRAWS, 4)
    assert chains.log_weights.shape == (CHAINS, DRAWS)
    assert chains.ordered
    assert not chains.is_weighted
    assert np.exp(chains.log_weights).sum() == pytest.approx(1.0)
    for name, values in named(chains.positions).items():
        np.testing.assert_allclose(values, samples()[name], rtol=1e-12)
    alone = read_draws(MODEL, {name: values[0] for name, values in samples().items()})
    assert alone.positions.shape == (1, DRAWS, 4)
    np.testing.assert_array_equal(alone.positions[0], chains.positions[0])
    flat, log_weights = chains.flat()
    assert flat.shape == (CHAINS * DRAWS, 4)
    assert log_weights.shape == (CHAINS * DRAWS,)


def test_other_variables_are_left_alone():
    more = samples(log_scale=np.log(samples()["scale"]))
    found = read_draws(MODEL, more)
    np.testing.assert_array_equal(found.positions, read_draws(MODEL, samples()).positions)


def test_single_precision_draws_are_taken():
    single = {name: values.astype(np.float32) for name, values in samples().items()}
    found, exact = read_draws(MODEL, single), read_draws(MODEL, samples())
    assert found.positions.dtype == np.float64
    np.testing.assert_allclose(found.positions, exact.positions, atol=1e-4)


def test_a_posterior():
    with in_double_precision():
        positions = positions_of(MODEL, with_chains(MODEL, samples()))
    posterior = wb.Posterior(samples(), positions, {})
    found = read_draws(MODEL, posterior)
    np.testing.assert_array_equal(found.positions, positions)
    assert found.ordered


def test_an_evidence_has_weights_and_no_order():
    flat = {name: values[0] for name, values in samples().items()}
    log_weights = np.log(np.arange(1.0, DRAWS + 1))
    evidence = wb.Evidence(-1.0, 0.1, 9, "smc", wb.Trace(), flat, log_weights)
    found = read_draws(MODEL, evidence)
    assert found.positions.shape == (1, DRAWS, 4)
    assert found.is_weighted
    assert not found.ordered
    expected = log_weights - math.log(np.arange(1.0, DRAWS + 1).sum())
    np.testing.assert_allclose(found.log_weights[0], expected)


def test_an_evidence_without_draws_is_refused():
    empty = wb.Evidence(-1.0, 0.1, 9, "smc", wb.Trace(), {}, np.zeros(1))
    with pytest.raises(wb.DataError, match="holds no posterior draws"):
        read_draws(MODEL, empty)


def without(name):
    return {n: values for n, values in samples().items() if n != name}


def of_names(name, values):
    return samples(**{name: values})


REFUSED = {
    "no mapping": (samples()["scale"], "mapping from parameter names"),
    "a name is missing": (without("part"), r"no parameters \['part'\]"),
    "another shape": (of_names("part", np.full((CHAINS, DRAWS, 3), 0.5)), "has shape"),
    "too many axes": (of_names("scale", np.ones((1, CHAINS, DRAWS))), "has shape"),
    "no numbers": (of_names("scale", [["a"] * DRAWS] * CHAINS), "not an array of numbers"),
    "ragged": (of_names("scale", [[1.0], [1.0, 2.0]]), "not an array of numbers"),
    "other numbers of draws": (of_names("mean", np.zeros((CHAINS, 7))), "different numbers"),
    "NaN": (of_names("mean", np.full((CHAINS, DRAWS), np.nan)), "NaN or infinite"),
    "infinite": (of_names("scale", np.full((CHAINS, DRAWS), np.inf)), "NaN or infinite"),
    "outside the support": (of_names("scale", -samples()["scale"]), "outside the support"),
    "on the edge": (of_names("part", np.ones((CHAINS, DRAWS, 2))), "outside the support"),
    "too few": ({n: v[:, :2] for n, v in samples().items()}, f"at least {LEAST_DRAWS}"),
    "all equal": (of_names("mean", np.zeros((CHAINS, DRAWS))), "'mean' are equal"),
    "none": ({n: v[:, :0] for n, v in samples().items()}, "no draws"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_draws_of_the_model_is_refused(case):
    draws, message = REFUSED[case]
    with pytest.raises(wb.DataError, match=message):
        read_draws(MODEL, draws)


def test_a_posterior_of_another_model_is_refused():
    with in_double_precision():
        positions = positions_of(MODEL, with_chains(MODEL, samples()))
    fewer = wb.Posterior(samples(), positions[..., :3], {})
    with pytest.raises(wb.DataError, match="posterior of another model"):
        read_draws(MODEL, fewer)
    broken = positions.copy()
    broken[0, 0, 0] = np.nan
    with pytest.raises(wb.DataError, match="NaN or infinite"):
        read_draws(MODEL, wb.Posterior(samples(), broken, {}))
    # The same names and shapes, but another support: other coordinates.
    other = wb.Model(
        {
            "scale": dist.Uniform(0.0, 100.0),
            "part": dist.Beta(2.0, 2.0).expand([2]).to_event(1),
            "mean": dist.Normal(0.0, 1.0),
        },
        lambda p, y: -y * p["mean"],
    )
    with pytest.raises(wb.DataError, match="another support or form"):
        read_draws(other, wb.Posterior(samples(), positions, {}))
    with pytest.raises(wb.DataError, match="no parameters"):
        read_draws(MODEL, wb.Posterior(without("mean"), positions, {}))


def test_draws_of_a_real_run_are_taken():
    data = wb.zoo.gaussian.simulate(30, seed=1)
    model = wb.zoo.gaussian.model()
    posterior = wb.sample(model, data, num_samples=30, num_warmup=50, num_chains=2)
    by_names = read_draws(model, posterior.samples)
    np.testing.assert_allclose(read_draws(model, posterior).positions, by_names.positions)


def test_an_evidence_of_chains_keeps_their_order():
    chains = samples(4, 30)
    flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in chains.items()}
    log_weights = np.full(120, -np.log(120))
    result = wb.Evidence(-1.0, 0.1, 9, "bridge", wb.Trace(), flat, log_weights, {"num_chains": 4})
    found = read_draws(MODEL, result)
    assert found.ordered
    assert not found.is_weighted
    for name, values in named(found.positions).items():
        np.testing.assert_allclose(values, chains[name], rtol=1e-12)


def test_the_parameter_that_is_outside_is_named():
    with pytest.raises(wb.DataError, match="'scale' of the first"):
        read_draws(MODEL, samples(scale=-samples()["scale"]))
    with pytest.raises(wb.DataError, match="'part' of the first"):
        read_draws(MODEL, samples(part=1.0 + samples()["part"]))
