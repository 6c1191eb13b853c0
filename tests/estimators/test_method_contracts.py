"""One contract for every estimator: add a row to ROWS with a new one."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.checks import check_seed
from weighbridge.core.compilation import double_precision, jit
from weighbridge.core.status import Status
from weighbridge.estimators.protocols import BatchMethod, SequentialMethod
from weighbridge.estimators.registry import METHODS, resolve
from weighbridge.estimators.sequential import posterior
from weighbridge.models.targets.all_rows import likelihood_term
from weighbridge.models.targets.density import Target

SMALL = {"num_islands": 8, "num_particles": 32}
# Two-sided chance of one alarm in all of this file below 1 in 1,000: about 30 comparisons, each
# in units of an error that is itself known from 8 islands (Student t of 7 degrees).
BOUND = 8.0


@jit
def log_densities(target, points):
    return jax.vmap(target)(points)


@dataclass(frozen=True)
class Grid(BatchMethod):
    """A method that neither tempers nor takes rows: a sum over a grid, for one parameter.

    It is what a newcomer would write: a name and ``estimate``.
    """

    num_points: int = 2001
    name: ClassVar[str] = "grid"

    @double_precision
    def estimate(self, model, values, weight, *, seed=0, first_island=0, report=None):
        check_seed(seed)
        term, count = likelihood_term(model, values, weight)
        # The same seed gives the same numbers, another one another grid.
        shift = np.random.default_rng([seed, first_island]).random()
        step = 16.0 / self.num_points
        points = -8.0 + step * (np.arange(self.num_points) + shift)[:, None]
        log_joint = np.asarray(log_densities(Target(model, (term,)), points))
        log_evidence = float(np.logaddexp.reduce(log_joint) + math.log(step))
        if report is not None:
            report(1.0, log_evidence, 1)
        return wb.Evidence(
            log_evidence,
            1e-6,
            count,
            self.name,
            wb.Trace(power=np.ones(1), log_evidence=np.array([log_evidence])),
            *posterior(model, points, log_joint),
            {"island_log_evidence": np.array([log_evidence])},
        )


# The method of every name in the registry, small; and one that is in no registry.
ROWS: dict[str, Callable[[], Any]] = {
    "auto": lambda: wb.SGAIS(**SMALL),
    "sgais": lambda: wb.SGAIS(**SMALL),
    "published": wb.SGAIS.published,
    "smc": lambda: wb.SMC(**SMALL),
    "ais": lambda: wb.AIS(**SMALL),
    "ibis": lambda: wb.IBIS(**SMALL),
    "thermodynamic": lambda: wb.Thermodynamic(**SMALL),
    "prior_sampling": lambda: wb.PriorSampling(num_islands=8, num_particles=1024),
    "harmonic_mean": lambda: wb.HarmonicMean(num_samples=300, num_warmup=300),
    "sequential_sgmcmc": lambda: wb.SequentialSGMCMC(
        num_islands=8, num_particles=16, start_with=wb.SMC(**SMALL)
    ),
    "laplace": lambda: wb.Laplace(num_starts=4),
    "bridge": lambda: wb.Bridge(num_samples=250, num_warmup=200),
    "nested": lambda: wb.NestedSampling(num_live=160),
    "online_nested": lambda: wb.OnlineNestedSampling(num_live=160),
    "importance": lambda: wb.Importance(num_draws=128, num_islands=8),
    "grid": Grid,
}
# "auto" is SGAIS on rows: its rows would run everything twice.
NAMES = [name for name in ROWS if name != "auto"]
every_method = pytest.mark.parametrize("name", NAMES)


class Told:
    """A reporter that keeps what it is told."""

    def __init__(self):
        self.found, self.closed = [], 0

    def start(self, total):
        self.found.append(("start", total))

    def update(self, rows, log_evidence, annealing_steps, label=""):
        self.found.append(("update", rows))

    def temper(self, power, log_evidence, steps, label="", island_round=0):
        self.found.append(("temper", power))

    def advance(self, share, done, log_evidence, steps, label="", island_round=0):
        self.found.append(("advance", share))

    def close(self):
        self.closed += 1


@pytest.fixture(scope="module")
def model():
    return wb.zoo.gaussian.model()


@pytest.fixture(scope="module")
def data():
    return wb.zoo.gaussian.simulate(120, seed=3)


@pytest.fixture(scope="module")
def results(model, data):
    """The first run of every method, made when it is asked for."""
    found: dict[str, wb.Evidence] = {}

    def of(name):
        if name not in found:
            found[name] = wb.evidence(model, data, ROWS[name](), seed=1)
        return found[name]

    return of


def test_every_method_of_the_registry_has_a_row_and_is_one_kind():
    assert set(METHODS) == set(ROWS) - {"grid"}
    for name in ROWS:
        method = ROWS[name]()
        assert isinstance(method, BatchMethod) is not isinstance(method, SequentialMethod)
        assert resolve(method) is method
        assert dataclasses.is_dataclass(method)
        if name != "grid":
            assert type(resolve(name)) is type(method)
        with pytest.raises(dataclasses.FrozenInstanceError):
            method.num_islands = 3
        with pytest.raises(wb.MethodError, match="method object"):
            resolve(type(method))


@every_method
def test_the_same_seed_gives_the_same_numbers_and_another_does_not(name, model, data, results):
    first = results(name)
    again = wb.evidence(model, data, ROWS[name](), seed=1)
    other = wb.evidence(model, data, ROWS[name](), seed=2)
    assert (again.log_evidence, again.flags) == (first.log_evidence, first.flags)
    assert np.array_equal(again.std_error, first.std_error, equal_nan=True)
    assert np.array_equal(again.log_weights, first.log_weights)
    for parameter, draws in first.samples.items():
        assert np.array_equal(again.samples[parameter], draws)
    # Where Laplace's method is exact, other starts give the same answer, with other draws.
    assert (other.log_evidence, *other.log_weights) != (first.log_evidence, *first.log_weights)


@every_method
def test_the_answer_is_right_in_units_of_its_error(name, data, results):
    result = results(name)
    exact = wb.zoo.gaussian.log_evidence(data)
    if math.isnan(result.std_error):
        assert {Status.ERROR_UNKNOWN, Status.INFINITE_VARIANCE} & set(result.flags)
        assert not ROWS[name]().states_error
    else:
        # What double precision loses is below any of these errors.
        assert abs(result.log_evidence - exact) < BOUND * result.std_error + 1e-9


@every_method
def test_the_fields_of_a_result(name, results):
    result = results(name)
    assert type(result.log_evidence) is float
    assert type(result.std_error) is float
    assert result.num_observations == 120
    assert result.method == ROWS[name]().name
    assert len(result.trace["log_evidence"]) > 0
    assert all(isinstance(flag, Status) for flag in result.flags)
    assert result.status is (result.flags[0] if result.flags else Status.OK)
    assert np.logaddexp.reduce(result.log_weights) == pytest.approx(0.0, abs=1e-9)
    assert result.log_weights.dtype == np.float64
    for draws in result.samples.values():
        assert type(draws) is np.ndarray
        assert draws.dtype == np.float64
        assert len(draws) == len(result.log_weights)
    islands = result.diagnostics["island_log_evidence"]
    assert islands.shape == (ROWS[name]().num_islands,)
    for count in set(ROWS[name]().counts) & set(result.diagnostics):
        assert result.diagnostics[count] >= 0
    assert result.elapsed > 0


@every_method
def test_a_result_draws_its_path(name, results):
    figure = results(name).plot()
    assert "log evidence" in figure.axes[0].get_ylabel()
    assert all(len(axes.lines) for axes in figure.axes)


@every_method
def test_a_run_is_saved_and_goes_on_with_the_same_numbers(name, model, data, tmp_path):
    method = ROWS[name]()
    if not isinstance(method, SequentialMethod):
        with pytest.raises(wb.MethodError, match="stream"):
            wb.Online(model, method)
        return
    whole, part = wb.Online(model, method, seed=1), wb.Online(model, method, seed=1)
    for online in (whole, part):
        online.update(data[:60])
    part.save(tmp_path / "run")
    part = wb.Online.load(tmp_path / "run", model, method)
    for online in (whole, part):
        online.update(data[60:])
    one, two = whole.result(), part.result()
    assert (two.log_evidence, two.flags) == (one.log_evidence, one.flags)
    assert np.array_equal(two.std_error, one.std_error, equal_nan=True)
    assert np.array_equal(two.log_weights, one.log_weights)


@every_method
def test_a_result_is_saved_and_loaded(name, results, tmp_path):
    result = results(name)
    result.save(tmp_path / "result")
    came = wb.Evidence.load(tmp_path / "result")
    assert (came.log_evidence, came.method, came.flags) == (
        result.log_evidence,
        result.method,
        result.flags,
    )
    assert str(came) == str(result)
    assert np.array_equal(came.log_weights, result.log_weights)


@every_method
def test_progress_is_reported_and_the_reporter_closed(name, model, data):
    told = Told()
    wb.evidence(model, data, ROWS[name](), seed=1, progress=told)
    takes_rows = isinstance(ROWS[name](), SequentialMethod)
    kinds = {"update"} if takes_rows else {"temper", "advance"}
    reached = [value for what, value in told.found if what in kinds]
    assert reached == sorted(reached)
    assert reached[-1] == (120 if takes_rows else 1.0)
    assert told.closed == 1


@every_method
def test_a_tolerance_is_met_or_refused(name, model, data, results):
    method = ROWS[name]()
    if not method.states_error or method.num_islands < 4:
        with pytest.raises(wb.MethodError, match="tolerance needs a method that states its error"):
            wb.evidence(model, data, method, tolerance=0.1)
        return
    wide = wb.evidence(model, data, method, seed=1, tolerance=0.5)
    assert wide.std_error <= 0.5
    # None can be this sure: it gives up when the time is over, and says so.
    late = wb.evidence(model, data, method, seed=1, tolerance=1e-13, time_limit=1e-6)
    assert Status.TOLERANCE_NOT_REACHED in late.flags
    assert late.claimed_error > 1e-13


@every_method
def test_bad_input_is_refused(name, model, data):
    method = ROWS[name]()
    with pytest.raises(wb.MethodError, match="seed"):
        wb.evidence(model, data, method, seed=-1)
    with pytest.raises(wb.WeighbridgeError, match="Model"):
        wb.evidence("model", data, method)
    with pytest.raises(wb.DataError, match="give it data"):
        wb.evidence(model, None, method)
    with pytest.raises(wb.DataError):
        wb.evidence(model, np.array([1.0, np.nan]), method)
    with pytest.raises(wb.MethodError, match="positive"):
        wb.evidence(model, data, method, time_limit=0)
    with pytest.raises(wb.MethodError, match="Give a tolerance too"):
        wb.evidence(model, data, method, time_limit=10.0)


@every_method
def test_a_total_log_likelihood_is_weighed_or_refused(name):
    whole = wb.Model(
        {"mean": dist.Normal(0.0, 1.0)},
        total_log_likelihood=lambda p: dist.Normal(p["mean"], 1.0).log_prob(1.0),
    )
    method = ROWS[name]()
    if isinstance(method, SequentialMethod):
        with pytest.raises(wb.WeighbridgeError, match="row"):
            wb.evidence(whole, None, method)
        return
    result = wb.evidence(whole, None, method, seed=1)
    exact = float(dist.Normal(0.0, math.sqrt(2.0)).log_prob(1.0))
    if method.states_error:
        assert abs(result.log_evidence - exact) < BOUND * result.std_error + 1e-6
    else:
        assert math.isnan(result.std_error)


@every_method
def test_a_second_call_on_other_data_compiles_nothing(name, model, data, results, compiled):
    results(name)
    wb.evidence(model, data, ROWS[name](), seed=1)
    before = len(compiled)
    other = wb.zoo.gaussian.simulate(120, seed=4)
    wb.evidence(model, other, ROWS[name](), seed=2)
    assert not compiled[before:]


@every_method
def test_models_are_compared_by_it(name, data):
    models = {"near": wb.zoo.gaussian.model(2.0), "far": wb.zoo.gaussian.model(-2.0)}
    table = wb.compare(models, data, ROWS[name](), seed=1)
    assert set(table.results) == {"near", "far"}
    assert table.log_evidences["near"] > table.log_evidences["far"]
