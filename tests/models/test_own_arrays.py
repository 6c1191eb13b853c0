"""Other code may use the same arrays in single precision, before, after and in between."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.compilation import own
from weighbridge.models.own_arrays import with_own_arrays

OFFSET = 2450000.5  # a Julian date: in single precision it is good to a quarter of a day
ROWS = np.random.default_rng(0).normal(size=(40, 2))
LIKELY = wb.SMC(num_islands=4, num_particles=16)


def used_in_single_precision(*arrays):
    """A program of other code that holds the arrays; as long as it lives JAX remembers them."""
    return [jax.make_jaxpr(lambda array=array: jnp.sin(array))() for array in arrays]


def fresh():
    """The same numbers in arrays that nothing has seen."""
    noise = np.random.default_rng(1).normal(size=40)
    return {"x": ROWS + OFFSET, "y": ROWS @ [1.0, -0.5] + noise}


@functools.cache
def model():
    return wb.Model(
        {"w": dist.Normal(0, 1).expand([2]).to_event(1)},
        lambda p, row: dist.Normal((row["x"] - OFFSET) @ p["w"], 1.0).log_prob(row["y"]),
    )


def mean_of_rows(parameters, row):
    return (row["x"] - OFFSET) @ parameters["w"]


def online(data):
    run = wb.Online(model(), method=wb.SGAIS(num_islands=4, num_particles=16), seed=0)
    run.update(data)
    return run.result().log_evidence


def contest(data):
    small = wb.SGAIS(num_islands=4, num_particles=16)
    run = wb.OnlineComparison({"a": model(), "b": model()}, small)
    return run.update(data).log_evidences["a"]


def from_numpyro(data):
    def regression(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal((x - OFFSET) @ w, 1.0), obs=y)

    return wb.evidence(wb.from_numpyro(regression, data), data, LIKELY).log_evidence


def replicated(parameters, row):
    return dist.Normal(mean_of_rows(parameters, row), 1.0)


@functools.cache
def posterior():
    return wb.sample(model(), fresh(), num_samples=200, num_warmup=20, num_chains=2)


ENTRIES = {
    "smc": lambda data: wb.evidence(model(), data, LIKELY).log_evidence,
    "sgais": lambda data: (
        wb.evidence(model(), data, wb.SGAIS(num_islands=4, num_particles=16)).log_evidence
    ),
    "ibis": lambda data: (
        wb.evidence(model(), data, wb.IBIS(num_islands=4, num_particles=16)).log_evidence
    ),
    "prior_sampling": lambda data: wb.evidence(model(), data, "prior_sampling").log_evidence,
    "compare": lambda data: wb.compare({"a": model(), "b": model()}, data, LIKELY).log_evidences[
        "a"
    ],
    "sample": lambda data: (
        wb.sample(model(), data, num_samples=20, num_warmup=20, num_chains=2).positions
    ),
    "stretch": lambda data: (
        wb.sample(model(), data, wb.Stretch(), num_samples=5, num_warmup=5, num_chains=2).positions
    ),
    "mini-batches": lambda data: (
        wb.sample(model(), data, wb.SGHMC(), num_samples=5, num_warmup=5, num_chains=2).positions
    ),
    "online": online,
    "contest": contest,
    "from_numpyro": from_numpyro,
    "loo": lambda data: wb.loo(posterior(), model(), data).elpd,
    "predictive_check": lambda data: wb.predictive_check(
        posterior(), model(), replicated, data, observed="y", num_draws=20
    ).probabilities["mean"],
    "predict": lambda data: posterior().predict(mean_of_rows, {"x": data["x"]}).draws,
    "sensitivity": lambda data: (
        wb.prior_sensitivity(posterior(), model(), data).evidence_likelihood_slope
    ),
    "check_model": lambda data: str(wb.check_model(model(), data)),
    "maximize": lambda data: wb.maximize(model(), data).log_density,
}


# Those that share their way in with another one are for `make test-long`.
QUICK = ("smc", "sgais", "sample", "predict", "loo", "maximize")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in ENTRIES]
)
def test_every_entry_point_sees_the_arrays_in_double_precision(name):
    entry, clean, shared = ENTRIES[name], fresh(), fresh()
    held = used_in_single_precision(*shared.values())
    np.testing.assert_array_equal(np.asarray(entry(shared)), np.asarray(entry(clean)))
    assert held  # alive until here


def test_numpyro_and_weighbridge_take_turns_on_the_same_arrays():
    data = fresh()

    def regression(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal((x - OFFSET) @ w, 1.0), obs=y)

    def their_draws():
        sampler = numpyro.infer.MCMC(
            numpyro.infer.NUTS(regression), num_warmup=5, num_samples=5, progress_bar=False
        )
        sampler.run(jax.random.key(0), data["x"], data["y"])
        return sampler, sampler.get_samples()["w"]

    held, first = their_draws()
    ours = wb.sample(model(), data, num_samples=200, num_warmup=20, num_chains=2)
    again, second = their_draws()
    assert first.dtype == second.dtype == np.float32
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(ours.positions, posterior().positions)
    assert held is not again


@pytest.mark.parametrize("order", ["theirs first", "ours first"])
def test_arrays_that_a_likelihood_reads_from_outside(order):
    x, y = fresh().values()

    def theirs():
        return jax.jit(lambda w: jnp.sum((y - x @ w) ** 2))(np.ones(2))

    held = [] if order == "ours first" else [used_in_single_precision(x, y), theirs()]
    prior = {"w": dist.Normal(0, 1).expand([2]).to_event(1)}
    closed = wb.Model(
        prior,
        total_log_likelihood=lambda p: dist.Normal((x - OFFSET) @ p["w"], 1.0).log_prob(y).sum(),
    )
    expected = wb.evidence(model(), fresh(), LIKELY)
    found = wb.evidence(closed, None, LIKELY)
    assert "host_calls" not in found.diagnostics
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-8)
    assert theirs().dtype == np.float32
    assert jnp.asarray(x).dtype == np.float32
    assert isinstance(held, list)


def test_numbers_of_a_prior_are_seen_in_double_precision():
    location = np.array([OFFSET, 0.25])
    held = used_in_single_precision(location)
    prior = {"a": dist.Normal(location, 1.0).to_event(1)}
    model = wb.Model(prior, total_log_likelihood=lambda p: 0.0)
    assert model.log_prior({"a": location}) == pytest.approx(-np.log(2 * np.pi), abs=1e-12)
    np.testing.assert_array_equal(model.unravel(model.ravel({"a": location}))["a"], location)
    assert held


# --- functions with arrays of their own ----------------------------------------------------

TABLE = {"x": np.arange(3.0), "names": ("a", "b")}
COUNTER = 0


def reads_table(factor):
    return factor * TABLE["x"]


def counts():
    global COUNTER
    COUNTER += 1
    return TABLE["x"]


def test_a_function_without_arrays_stays_the_same_object():
    rate = 2.0

    def doubled(value):
        return rate * value

    assert with_own_arrays(doubled) is doubled
    assert with_own_arrays(np.sin) is np.sin
    assert with_own_arrays(None) is None
    assert with_own_arrays(counts) is counts  # it binds a global name


def test_the_same_function_gives_the_same_twin():
    assert with_own_arrays(reads_table) is with_own_arrays(reads_table)
    assert with_own_arrays(reads_table) is not reads_table


def test_twins_read_views_of_what_is_global_closed_over_default_or_called():
    array, calls = np.arange(3.0), [0]

    def inner(power):
        calls[0] += 1
        return array**power if power else recursive(1)

    def recursive(level, default=array):
        return (array, default, TABLE["x"], inner(2)) if level else inner(0)

    found = with_own_arrays(recursive)(0)
    for place, original in enumerate((array, array, TABLE["x"])):
        assert found[place] is not original
        assert np.shares_memory(found[place], original)
    np.testing.assert_array_equal(found[3], array**2)
    assert calls == [2]  # what holds no array is shared
    assert with_own_arrays(recursive).__name__ == "recursive"


def test_names_that_are_bound_later_are_found(monkeypatch):
    twin = with_own_arrays(later)
    monkeypatch.setitem(globals(), "not_yet", 5.0)
    np.testing.assert_array_equal(twin(), TABLE["x"] + 5.0)


def later():
    return TABLE["x"] + not_yet  # noqa: F821


def test_a_cell_that_a_function_writes_stays_shared():
    array, count = np.arange(2.0), 0

    def counting():
        nonlocal count
        count += 1
        return array

    with_own_arrays(counting)()
    assert count == 1


def test_fingerprints_do_not_change():
    array = np.arange(2.0)
    prior = {"m": dist.Normal(0, 1)}

    def make():
        return wb.Model(prior, total_log_likelihood=lambda p: jnp.sum(array * p["m"]))

    from weighbridge.models.program_text import describe

    function = make().total_log_likelihood
    assert describe(function) == describe(lambda p: jnp.sum(array * p["m"]))
    assert make().fingerprint() == make().fingerprint()


def test_own_is_a_view():
    array = np.arange(3.0)
    assert own(array).base is array


def test_a_name_that_was_bound_to_another_array_is_seen_by_a_new_model(monkeypatch):
    """One twin for ever answered with the data of the first model."""
    prior = {"m": dist.Normal(0, 1)}
    answers = []
    for value in (0.0, 3.0):
        monkeypatch.setitem(TABLE, "x", np.full(3, value))
        model = wb.Model(prior, total_log_likelihood=misfit)
        answers.append(wb.evidence(model, None, LIKELY).log_evidence)
    assert answers[0] > answers[1] + 1
    assert with_own_arrays(misfit) is with_own_arrays(misfit)


def misfit(parameters):
    return -0.5 * jnp.sum((TABLE["x"] - parameters["m"]) ** 2)
