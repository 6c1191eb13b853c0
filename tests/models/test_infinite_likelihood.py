"""A log-likelihood of +inf, or one that is random, is an error that says where."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.errors import ModelError
from weighbridge.models.targets.host import HostLikelihood

SMALL = {"num_islands": 2, "num_particles": 8}
METHODS = {
    "smc": wb.SMC(**SMALL),
    "prior_sampling": wb.PriorSampling(**SMALL),
    "sgais": wb.SGAIS(**SMALL),
    "ibis": wb.IBIS(**SMALL),
    "sequential": wb.SequentialSGMCMC(**SMALL, start_with=None, batch_size=8),
}
ROWS = np.array([0.1, -0.3, 7.0, 0.2])


def _density(parameters, row):
    # One row divides by zero where mu is above -1, which some prior draws are.
    narrow = (row > 5.0) & (parameters["mu"] > -1.0)
    return jnp.where(narrow, jnp.inf, -0.5 * (row - parameters["mu"]) ** 2)


SPIKED = wb.Model({"mu": dist.Normal(0.0, 1.0)}, _density)


# What is common to all is tried on the quickest; the others take seconds to compile.
NAMES = [
    "prior_sampling",
    "ibis",
    *(pytest.param(name, marks=pytest.mark.long) for name in ("smc", "sgais", "sequential")),
]


@pytest.mark.parametrize("name", NAMES)
def test_every_method_names_the_row_and_the_parameters(name):
    with pytest.raises(
        ModelError, match=r"\+inf at row 2 \(counting from 0; 7\) for mu="
    ) as caught:
        wb.evidence(SPIKED, ROWS, METHODS[name], seed=0)
    assert "check the log-likelihood" in str(caught.value)


@pytest.mark.long
def test_a_stream_names_the_row_of_the_whole_stream_and_stays_as_it_was():
    online = wb.Online(SPIKED, wb.SGAIS(**SMALL), seed=0)
    online.update(ROWS[:2])
    before = online.result().log_evidence
    with pytest.raises(ModelError, match="row 3 "):
        online.update(np.array([0.0, 7.0]))
    assert online.result().log_evidence == before


@pytest.mark.long
def test_a_place_that_only_moves_reach_is_found():
    # Draws of the prior are below 4; the data lead particles beyond 5, where row 0 is +inf.
    def log_likelihood(parameters, row):
        return jnp.where(parameters["mu"] > 5.0, jnp.inf, -8.0 * (row - parameters["mu"]) ** 2)

    model = wb.Model({"mu": dist.Normal(0.0, 1.0)}, log_likelihood)
    with pytest.raises(ModelError, match=r"\+inf at row 0"):
        wb.evidence(model, np.full(20, 6.0), wb.SMC(num_islands=2, num_particles=16), seed=0)


def test_a_total_likelihood_on_the_host_names_its_parameters():
    model = wb.Model(
        {"mu": dist.Normal(0.0, 1.0)},
        total_log_likelihood=lambda p: np.where(p["mu"] > 0, np.inf, 0.0),
        on_host=True,
    )
    with pytest.raises(ModelError, match=r"\+inf for mu="):
        wb.evidence(model, None, METHODS["smc"], seed=0)


def _on_host(function):
    model = wb.Model({"mu": dist.Normal(0.0, 1.0)}, total_log_likelihood=function, on_host=True)
    return HostLikelihood(model, None, np.linspace(-1.0, 1.0, 4).reshape(1, 4, 1))


def test_a_random_function_on_the_host_is_refused():
    numbers = np.random.default_rng(0)
    with pytest.raises(ModelError, match=r"is random: called twice .* with mu=-1"):
        _on_host(lambda p: -(p["mu"] ** 2) + 1e-3 * numbers.normal(size=p["mu"].shape))
    with pytest.raises(ModelError, match="is random"):  # of one set at a time
        _on_host(lambda p: float(-(p["mu"] ** 2) + numbers.normal()))


def test_last_digits_may_differ():
    numbers = np.random.default_rng(0)
    found = _on_host(lambda p: -1e5 * (1 + p["mu"] ** 2) * (1 + 1e-12 * numbers.normal()))
    assert found.at({"mu": np.zeros(2)}, np.ones(2, bool)) == pytest.approx([-1e5, -1e5])


def test_time_differences_are_refused_as_dates_are():
    with pytest.raises(wb.DataError, match="date or time values"):
        wb.evidence(wb.zoo.gaussian.model(), np.arange(4).astype("timedelta64[s]"), METHODS["smc"])
