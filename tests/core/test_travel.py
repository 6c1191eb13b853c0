"""Results that travel: pickled by public names, copied, sent to other processes."""

import copy
import dataclasses
import math
import multiprocessing
import pickle
import pickletools
from collections import namedtuple

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from tests.helpers.result_examples import DRAWS, EXAMPLES, evidence, posterior
from weighbridge.core import pickling

# Settings, models and runs under way: not what a function gives back.
NO_RESULTS = {
    *(
        "AIS",
        "AdaptiveHMC",
        "AdaptiveWalk",
        "Bridge",
        "HarmonicMean",
        "IBIS",
        "Importance",
        "Keeping",
        "Laplace",
        "NestedSampling",
        "OnlineNestedSampling",
        "Plan",
        "PriorSampling",
    ),
    *("PublishedSGAIS", "Repeat", "SGAIS", "SMC", "SequentialSGMCMC", "Thermodynamic"),
    *("CheckpointStore", "Continuity", "Lagged", "Model", "Online", "OnlineComparison"),
    *("RedisStream", "Status", "BatchMethod", "SequentialMethod", "Kernel"),
}
KERNELS = {
    *("AdaptiveMetropolis", "Gibbs", "HMC", "Independence", "MALA", "Metropolis"),
    *("MetropolisHastings", "NUTS", "PSGLD", "ParallelTempering", "PopulationMonteCarlo"),
    *("Rejection", "RiemannianSGHMC", "RobbinsMonro", "SGHMC", "SGLD", "SGNHT"),
    *("SimulatedTempering", "Slice", "Stretch", "WindowedHMC", "XHMC"),
}


def same(first, second):
    """Whether two things are equal, all the way down, and of the same classes."""
    if type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray):
        with_nan = first.dtype.kind == "f"
        return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=with_nan)
    if dataclasses.is_dataclass(first):
        return same(pickling.contents(first), pickling.contents(second))
    if isinstance(first, wb.Trace | wb.History):
        return same(vars(first), vars(second))
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[n], second[n]) for n in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, float) and math.isnan(first):
        return math.isnan(second)
    return first is second if isinstance(first, wb.Status) else bool(first == second)


def as_pickled(name, thing):
    """What comes out of a pickle: the chains of a sampler cannot be in it."""
    return dataclasses.replace(thing, _extend=None) if name == "Posterior" else thing


def paths_in(thing):
    """Modules of the library, and names in them, that a pickle asks for; and every text in it."""
    # In this protocol each is written out in one piece.
    found = [
        (code.name, argument) for code, argument, _ in pickletools.genops(pickle.dumps(thing, 2))
    ]
    paths = {argument for name, argument in found if name == "GLOBAL"}
    ours = {path for path in paths if path.startswith("weighbridge")}
    return ours, [argument for _, argument in found if isinstance(argument, str)]


def test_every_class_of_results_is_looked_at():
    classes = {n for n in wb.__all__ if isinstance(getattr(wb, n), type)}
    errors = {n for n in classes if issubclass(getattr(wb, n), Exception)}
    assert set(EXAMPLES) == classes - errors - NO_RESULTS - KERNELS
    assert all(type(thing) is getattr(wb, name) for name, thing in EXAMPLES.items())


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pickle_gives_back_the_same_under_the_public_name(name):
    thing = EXAMPLES[name]
    expected = as_pickled(name, thing)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        pickled = pickle.dumps(thing, protocol)
        assert same(pickle.loads(pickled), expected)
        assert str(pickle.loads(pickled)) == str(expected)
    paths, texts = paths_in(thing)
    assert f"weighbridge.{name}" in texts
    assert paths == {"weighbridge _from_pickle"}
    assert not [t for t in texts if t.startswith("weighbridge.") and t.count(".") > 1]


@pytest.mark.parametrize("name", EXAMPLES)
def test_copies_lack_nothing(name):
    thing = EXAMPLES[name]
    assert same(copy.copy(thing), thing)
    assert same(copy.deepcopy(thing), thing)


def test_a_deep_copy_shares_no_numbers():
    first = evidence()
    second = copy.deepcopy(first)
    second.samples["mu"][:] = 0.0
    second.trace["power"][:] = 0.0
    assert same(first, evidence())


def test_every_status_comes_back_as_itself():
    for flag in wb.Status:
        assert pickle.loads(pickle.dumps(flag)) is flag
        assert copy.deepcopy(flag) is flag
        assert b"weighbridge.core.status" not in pickle.dumps(flag)


def test_what_cannot_be_pickled_is_left_out_with_a_remark():
    kernel = wb.MetropolisHastings(lambda key, position: position)
    came = pickle.loads(pickle.dumps(posterior(kernel)))
    assert came.kernel is None
    assert came.remarks[0] == "A remark."
    assert came.remarks[1].startswith("kernel was left out when this Posterior was pickled")
    assert came.remarks[1] in came.warnings
    assert same(came.samples, posterior().samples)
    with pytest.raises(wb.MethodError, match="or unpickled without its model"):
        came.extend(10)
    assert posterior().extend(10) == copy.deepcopy(posterior()).extend(10) == 10


def test_data_that_cannot_be_pickled_are_left_out_with_a_warning():
    local = namedtuple("local", "y")
    bounds = dataclasses.replace(EXAMPLES["Bounds"], data=local(DRAWS[0]))
    with pytest.warns(UserWarning, match="data was left out when this Bounds was pickled"):
        pickled = pickle.dumps(bounds)
    came = pickle.loads(pickled)
    assert came.data is None
    assert same(came.schedule, bounds.schedule)


class Own(wb.Evidence):
    """A user's own kind of result."""


def test_a_class_of_a_user_keeps_its_own_name():
    own = Own(**pickling.contents(evidence()))
    came = pickle.loads(pickle.dumps(own))
    assert type(came) is Own
    assert same(came.samples, own.samples)


def test_pickles_of_other_versions():
    """A field that came later has its default; one that this version does not know is refused."""
    function, (name, found) = evidence().__reduce_ex__(4)
    older = {key: value for key, value in found.items() if key != "fingerprint"}
    assert function(name, older).fingerprint is None
    with pytest.raises(pickle.UnpicklingError, match=r"does not know \['colour'\]"):
        function(name, found | {"colour": "red"})


def test_kernels_are_pickled_by_their_public_names():
    for kernel in (wb.NUTS(0.2), wb.HMC(), wb.SGHMC(), wb.Slice(), wb.SGLD(wb.RobbinsMonro())):
        assert paths_in(kernel)[0] == {"weighbridge _from_pickle"}
        assert pickle.loads(pickle.dumps(kernel)) == kernel


@pytest.fixture(scope="module")
def model():
    return wb.Model({"mu": dist.Normal(0, 1)}, lambda p, y: -0.5 * (y - p["mu"]) ** 2)


@pytest.mark.long
def test_results_of_real_runs_travel(model):
    """What methods note in passing is of no private class either."""
    data = np.random.default_rng(1).normal(size=40)
    small = {"num_islands": 4, "num_particles": 16}
    results = [
        wb.evidence(model, data, wb.SMC(**small)),
        wb.evidence(model, data, wb.SGAIS(**small)),
        wb.sample(model, data, wb.HMC(), num_samples=20, num_warmup=20, num_chains=2),
    ]
    for result in results:
        assert paths_in(result)[0] == {"weighbridge _from_pickle"}
        came = pickle.loads(pickle.dumps(result))
        wanted = pickling.contents(result)
        assert same(
            pickling.contents(came), wanted | ({"_extend": None} if "_extend" in wanted else {})
        )
        assert str(came) == str(result)


def doubled(thing):
    """What another process does with a result: its name is all that says what it is."""
    assert thing.__class__.__name__ in EXAMPLES
    return thing, thing


@pytest.mark.long
def test_results_go_to_processes_that_are_spawned_and_back():
    things = list(EXAMPLES.values())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        came = pool.map(doubled, things)
    for name, thing, (first, second) in zip(EXAMPLES, things, came):
        assert same(first, as_pickled(name, thing)), name
        assert first is second


@pytest.mark.long
def test_results_go_through_joblib():
    joblib = pytest.importorskip("joblib")
    things = list(EXAMPLES.values())
    came = joblib.Parallel(n_jobs=2)(joblib.delayed(doubled)(thing) for thing in things)
    for name, thing, (first, _) in zip(EXAMPLES, things, came):
        assert same(first, as_pickled(name, thing)), name
