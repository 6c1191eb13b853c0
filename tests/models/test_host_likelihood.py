"""Likelihoods in plain NumPy, called on the host in batches: as good as those that JAX compiles."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.estimators.tempering import path_report

pytestmark = pytest.mark.long

# |z| of a calibrated estimate is Student-t with 15 degrees: beyond 5 in one of 6,000 cases.
BOUND = 5.0
SEEDS = (1, 2, 3)
SMALL = {"num_islands": 16, "num_particles": 32}
DATA = wb.zoo.gaussian.simulate(100, seed=1)
EXACT = wb.zoo.gaussian.log_evidence(DATA)
CONSTANT = 0.5 * len(DATA) * np.log(2 * np.pi)
PRIOR = {"mu": dist.Normal(0.0, 1.0)}
# Shapes of what the functions below were called with; the tracing of one counts as a call.
SEEN = []
# The first values of all the larger ones.
POSITIONS = []


def batched(p):
    """All particles at once, by NumPy."""
    SEEN.append(np.shape(p["mu"]))
    mu = np.asarray(p["mu"], float)
    if len(mu) > 3:
        POSITIONS.append(mu[:9])
    return -0.5 * np.sum((DATA - mu[:, None]) ** 2, axis=1) - CONSTANT


def single(p):
    """One particle, with a branch on its value."""
    SEEN.append(np.shape(p["mu"]))
    if not -1e3 < p["mu"] < 1e3:
        return -np.inf
    return float(-0.5 * sum((y - p["mu"]) ** 2 for y in DATA) - CONSTANT)


def compiled(p):
    """The same for JAX."""
    return -0.5 * jnp.sum((DATA - p["mu"]) ** 2) - CONSTANT


def with_data(p, data):
    assert isinstance(data, np.ndarray)
    return -0.5 * np.sum((data - np.asarray(p["mu"])[..., None]) ** 2, axis=-1) - CONSTANT


BATCHED, SINGLE, COMPILED = (
    wb.Model(PRIOR, total_log_likelihood=function) for function in (batched, single, compiled)
)
METHODS = {
    "smc": wb.SMC(**SMALL, moves="random_walk"),
    "slice": wb.SMC(**SMALL, moves="slice"),
    "ais": wb.AIS(**SMALL, moves="random_walk"),
    "thermodynamic": wb.Thermodynamic(**SMALL, moves="random_walk"),
    "waste-free": wb.SMC(**SMALL, moves="random_walk", waste_free=4),
    "prior": wb.PriorSampling(num_particles=512),
}


@pytest.mark.parametrize("method", METHODS)
def test_numpy_and_jax_give_the_same_numbers(method):
    """The host asks and tells what the compiled program does, from the same random numbers."""
    chosen = METHODS[method]
    host = wb.evidence(BATCHED, None, chosen, seed=1)
    jitted = wb.evidence(COMPILED, None, chosen, seed=1)
    assert host.log_evidence == pytest.approx(jitted.log_evidence, abs=1e-8)
    assert host.std_error == pytest.approx(jitted.std_error, rel=1e-6)
    np.testing.assert_allclose(host.log_weights, jitted.log_weights, atol=1e-6)
    np.testing.assert_allclose(host.samples["mu"], jitted.samples["mu"], atol=1e-6)
    np.testing.assert_allclose(host.trace.power, jitted.trace.power, rtol=1e-9)
    assert host.status is jitted.status is wb.Status.OK
    assert abs(host.log_evidence - EXACT) < BOUND * host.std_error
    same = wb.evidence(BATCHED, None, chosen, seed=1)
    other = wb.evidence(BATCHED, None, chosen, seed=2)
    assert host.log_evidence == same.log_evidence != other.log_evidence


def test_stretch_on_the_host_agrees_within_errors():
    """Rounding grows from walker to walker, so the numbers are others, and as right."""
    method = wb.SMC(**SMALL, moves="stretch")
    for seed in SEEDS:
        host = wb.evidence(BATCHED, None, method, seed=seed)
        assert abs(host.log_evidence - EXACT) < BOUND * host.std_error


def test_the_host_is_chosen_and_told_of():
    """Where JAX cannot trace the function, and moves by default; in few calls for many sets."""
    SEEN.clear()
    POSITIONS.clear()
    result = wb.evidence(BATCHED, None, wb.SMC(**SMALL), seed=1)
    # Traced in vain, then three draws at once and each alone, one twice (is it random?), then all
    # particles every time.
    assert SEEN[:7] == [(), (3,), (1,), (1,), (1,), (1,), (1,)]
    assert set(SEEN[7:]) == {(512,)}
    calls, evaluations = (result.diagnostics[f"host_{n}"] for n in ("calls", "evaluations"))
    assert calls == len(SEEN) - 1
    assert evaluations == 8 + 512 * (calls - 6)
    # Once for the start and once for each move: nothing is asked for twice.
    assert len(set(map(tuple, POSITIONS))) == len(POSITIONS) == calls - 6
    assert result.log_evidence == wb.evidence(BATCHED, None, METHODS["smc"], seed=1).log_evidence
    assert "host_calls" not in wb.evidence(COMPILED, None, METHODS["smc"], seed=1).diagnostics


def test_what_is_not_wanted_is_not_asked_for():
    SEEN.clear()
    result = wb.evidence(BATCHED, None, METHODS["slice"], seed=1)
    sizes = np.array([shape[0] for shape in SEEN if shape])
    assert sizes.max() == 512
    # Slices are found one after the other: the last of them alone.
    assert np.median(sizes) < 400
    assert sizes.min() == 1
    assert result.diagnostics["host_evaluations"] == sizes.sum()


def test_a_function_of_one_set_is_called_one_by_one():
    SEEN.clear()
    result = wb.evidence(SINGLE, None, METHODS["smc"], seed=1)
    jitted = wb.evidence(COMPILED, None, METHODS["smc"], seed=1)
    assert result.log_evidence == pytest.approx(jitted.log_evidence, abs=1e-8)
    assert set(SEEN) == {(), (3,)}
    assert result.diagnostics["host_calls"] > 5_000


def test_one_by_one_is_told_to_be_slow(monkeypatch, tmp_path):
    """A new user waited five minutes for a million calls, and nothing said what to do."""
    monkeypatch.setattr(path_report, "MANY_CALLS", 1_000)
    result = wb.evidence(SINGLE, None, METHODS["smc"], seed=1)
    assert "a leading axis of every parameter" in str(result)
    result.save(tmp_path / "slow")
    assert wb.Evidence.load(tmp_path / "slow").remarks == result.remarks
    assert "leading axis" not in str(wb.evidence(BATCHED, None, METHODS["smc"], seed=1))


def test_data_and_counts_are_passed_on():
    model = wb.Model(PRIOR, total_log_likelihood=with_data, on_host=True)
    result = wb.evidence(model, DATA, METHODS["smc"], seed=1)
    jitted = wb.evidence(COMPILED, None, METHODS["smc"], seed=1)
    assert result.num_observations == 100
    assert result.log_evidence == pytest.approx(jitted.log_evidence, abs=1e-8)


def test_parameters_come_by_name_with_their_shapes_and_constraints():
    """A mean in two dimensions and a spread, in the order of the prior; arrays may be written."""
    rows = np.random.default_rng(0).normal(size=(30, 2))
    prior = {"spread": dist.LogNormal(0.0, 0.5), "mean": dist.Normal(0, 1).expand([2]).to_event(1)}

    def numpy(p):
        assert list(p) == ["spread", "mean"]
        assert all(type(value) is np.ndarray for value in p.values())
        assert np.all(p["spread"] > 0)
        p["mean"] -= rows.mean(axis=0)
        square = np.sum((rows - rows.mean(axis=0)) ** 2) + 30 * np.sum(p["mean"] ** 2, axis=-1)
        return -0.5 * square / p["spread"] ** 2 - 60 * np.log(p["spread"])

    def traced(p):
        square = jnp.sum((rows - p["mean"]) ** 2)
        return -0.5 * square / p["spread"] ** 2 - 60 * jnp.log(p["spread"])

    method = wb.SMC(**SMALL, moves="slice")
    models = [wb.Model(prior, total_log_likelihood=function) for function in (numpy, traced)]
    host, jitted = (wb.evidence(model, None, method, seed=1) for model in models)
    assert "host_calls" in host.diagnostics
    assert host.log_evidence == pytest.approx(jitted.log_evidence, abs=1e-6)
    assert host.samples["mean"].shape == (512, 2)


def test_a_second_run_compiles_nothing(compiled):
    method = METHODS["slice"]
    wb.evidence(BATCHED, None, method, seed=1)
    num_compiled = len(compiled)
    wb.evidence(BATCHED, None, method, seed=2)
    wb.evidence(BATCHED, None, dataclasses.replace(method, target_ess=0.7), seed=3)
    assert compiled[num_compiled:] == []


# --- where it runs ---------------------------------------------------------------------------


@pytest.mark.parametrize("on_host", [None, True])
def test_a_model_says_where_it_runs(on_host):
    model = wb.Model(PRIOR, total_log_likelihood=lambda p: -0.5 * p["mu"] ** 2, on_host=on_host)
    result = wb.evidence(model, None, wb.SMC(num_islands=4, num_particles=16, moves="slice"))
    assert ("host_calls" in result.diagnostics) == bool(on_host)
    leaves, structure = jax.tree_util.tree_flatten(model)
    assert structure.unflatten(leaves).on_host is on_host


def test_refusals():
    refused = wb.Model(PRIOR, total_log_likelihood=batched, on_host=False)
    with pytest.raises(wb.ModelError, match=r"cannot trace.*jax\.numpy"):
        wb.evidence(refused, None, METHODS["smc"])
    with pytest.raises(wb.ModelError, match="for a total_log_likelihood"):
        wb.Model(PRIOR, lambda p, y: p["mu"] * y, on_host=True)
    for moves in ("hmc", wb.AdaptiveHMC(), wb.SGHMC(), wb.Metropolis()):
        with pytest.raises(wb.MethodError, match=r'on the host.*"random_walk"'):
            wb.evidence(BATCHED, None, wb.SMC(**SMALL, moves=moves))
    with pytest.raises(wb.ModelError, match="row by row"):
        wb.evidence(BATCHED, DATA, "sgais")


# --- what goes wrong -------------------------------------------------------------------------


def run(function, **settings):
    model = wb.Model(PRIOR, total_log_likelihood=function, **settings)
    return wb.evidence(model, None, wb.SMC(num_islands=4, num_particles=16))


def test_an_error_of_the_function_is_its_own():
    calls = []

    def fails_at_once(p):
        raise RuntimeError("no such star")

    def fails_late(p):
        calls.append(1)
        if len(calls) > 8:
            raise KeyError("lost")
        return np.asarray(p["mu"]) * 0.0

    with pytest.raises(RuntimeError, match="no such star") as caught:
        run(fails_at_once)
    assert "total_log_likelihood on the host" in caught.value.__notes__[0]
    with pytest.raises(KeyError) as caught:
        run(fails_late)
    assert "mu[64]" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda p: np.ones((3, 2)) * np.asarray(p["mu"]).sum(), r"returned the shape \(3, 2\)"),
        (lambda p: np.asarray(p["mu"]) + 1j, "real numbers"),
        (lambda p: None if np.asarray(p["mu"]).size else 0, "NoneType"),
        (lambda p: "high" if np.asarray(p["mu"]).size else 0, "real numbers"),
        (lambda p: np.log(np.asarray(p["mu"]) * 0 - np.inf * 0), "NaN"),
        (lambda p: np.asarray(p["mu"]) - np.inf, "-inf for every prior draw"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_a_function_returns_is_checked(function, message):
    with pytest.raises(wb.ModelError, match=message):
        run(function)


def test_traced_functions_must_return_a_number_too():
    with pytest.raises(wb.ModelError, match=r"one real number.*shape \(2,\)"):
        run(lambda p: jnp.stack([p["mu"], p["mu"]]))


def test_a_function_that_mixes_its_particles_is_not_given_them_together():
    """It has the right shape for many, and depends on the company: each is asked alone."""

    def mixing(p):
        mu = np.asarray(p["mu"])
        return -0.5 * (mu - np.mean(np.atleast_1d(mu))) ** 2 - 0.5 * mu**2

    result = run(mixing)
    assert result.diagnostics["host_calls"] > 1000
    # Alone, the mean is the value itself: the evidence is that of exp(-mu^2 / 2).
    assert abs(result.log_evidence + 0.5 * np.log(2)) < BOUND * result.std_error


def test_bounded_support_on_the_host():
    """y ~ U(0, mu) with mu ~ U(0, 2): -inf beyond, which is an answer and no error."""
    model = wb.Model(
        {"mu": dist.Uniform(0.0, 2.0)},
        total_log_likelihood=lambda p: np.where(
            np.asarray(p["mu"]) > 1.2, -10 * np.log(np.asarray(p["mu"])), -np.inf
        ),
    )
    exact = np.log((1.2**-9 - 2.0**-9) / 18)
    for seed in SEEDS:
        result = wb.evidence(model, None, wb.SMC(**SMALL), seed=seed)
        assert abs(result.log_evidence - exact) < BOUND * result.std_error
        assert np.all(result.samples["mu"][np.isfinite(result.log_weights)] > 1.2)
        assert result.diagnostics["num_infinite"] > 0
