"""Ctrl-C: the first gives back what there is, flagged; the second ends it; no thread is meant."""

import contextlib
import math
import signal
import threading
import time

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core import interrupts
from weighbridge.core.compilation import jit
from weighbridge.core.interrupts import Interrupted, interruptible, stopped_by
from weighbridge.results.trace import Trace

DATA = wb.zoo.gaussian.simulate(120, mean=2.0, seed=1)
NEAR, FAR = wb.zoo.gaussian.model(prior_mean=2.0), wb.zoo.gaussian.model(prior_mean=-2.0)
SMC = wb.SMC(num_islands=4, num_particles=16)
SGAIS = wb.SGAIS(num_islands=4, num_particles=16, chunk_size=50)
IBIS = wb.IBIS(num_islands=4, num_particles=16)  # in chunks of 1000 rows


@pytest.fixture(autouse=True)
def _as_python_has_it():
    """SIGINT as Python has it, also where the shell that started the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "the handler came back"
    signal.signal(signal.SIGINT, before)


class Pressing:
    """Presses Ctrl-C at reports of a run, by their number."""

    def __init__(self, *at):
        self.at, self.number, self.said = at, 0, []

    def start(self, total):
        pass

    def update(self, rows, log_evidence, annealing_steps, label=""):
        self._told()

    def temper(self, power, log_evidence, steps, label="", island_round=0):
        if steps:
            self.last = power, log_evidence, label, island_round
            self._told()

    def announce(self, text, *, at_once=False):
        self.said.append(text)

    def close(self):
        self.said.append("closed")

    def _told(self):
        self.number += 1
        for _ in range(self.at.count(self.number)):
            signal.raise_signal(signal.SIGINT)


# --- the mechanism ---------------------------------------------------------------------------


def test_before_there_is_anything_it_is_an_interrupt_as_usual():
    with interruptible() as interruption, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert not interruption.is_due()


def test_the_first_asks_and_the_second_ends():
    said = []
    with interruptible(said.append) as interruption:
        interrupts.keep()
        interrupts.check()
        signal.raise_signal(signal.SIGINT)
        assert interruption.is_due()
        assert len(said) == 1
        with pytest.raises(Interrupted):
            interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert not interrupts.is_due(), "outside of the block nobody is asked"


def test_blocks_within_blocks_are_one():
    with interruptible() as outer, interruptible() as inner:
        assert inner is outer


def test_handlers_of_others_stay():
    def own(number, frame):
        pass

    before = signal.signal(signal.SIGINT, own)
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is own
    signal.signal(signal.SIGINT, before)


def test_a_thread_has_no_handlers_and_works_all_the_same():
    found = []
    thread = threading.Thread(
        target=lambda: found.append(wb.evidence(NEAR, DATA, SMC, progress=False))
    )
    thread.start()
    thread.join()
    assert found[0].log_evidence == wb.evidence(NEAR, DATA, SMC).log_evidence


def test_threads_are_told_by_the_context_of_whoever_started_them():
    from weighbridge.core.threads import in_threads

    event = threading.Event()
    event.set()
    with stopped_by(event, patience=0.0), pytest.raises(Interrupted):
        in_threads(lambda _: interrupts.check(), {"a": 0, "b": 1})
    in_threads(lambda _: interrupts.check(), {"a": 0, "b": 1})


def test_patience_lets_a_step_end_by_itself():
    event = threading.Event()
    with stopped_by(event, patience=0.05):
        event.set()
        interrupts.check()
        time.sleep(0.06)
        with pytest.raises(Interrupted):
            interrupts.check()


def test_a_run_that_is_taken_back_stops_before_any_program():
    """Compiling takes most of a first chunk: it need not go on with the next program."""
    program, event = jit(lambda x: x + 1), threading.Event()
    with stopped_by(event, patience=0.0):
        program(1.0)
        event.set()
        with pytest.raises(Interrupted):
            program(1.0)
    with interruptible() as interruption:
        interruption.asked.set()
        program(1.0)  # what is given back has to be put together first


def test_a_program_that_is_being_compiled_is_left():
    """A large one takes ten seconds, and a watch that was told to stop waited for all of them."""
    asked, traced, done = threading.Event(), threading.Event(), threading.Event()

    def slow(x):
        traced.set()
        asked.set()
        assert done.wait(60)
        return x / 3

    program = jit(slow)
    with stopped_by(asked, patience=0.0, leaves=True), pytest.raises(Interrupted):
        program(1.0)
    assert traced.is_set()
    assert interrupts.is_at_work()
    done.set()
    deadline = time.monotonic() + 60
    while interrupts.is_at_work() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not interrupts.is_at_work()


def test_a_program_that_may_be_left_gives_the_same_in_the_precision_of_the_caller():
    program = jit(lambda x: x / 3)
    for precision in (False, True):
        with jax.enable_x64(precision):
            alone = program(1.0)
            with stopped_by(threading.Event(), patience=0.0, leaves=True):
                assert program(1.0) == alone
                assert program(1.0).dtype == alone.dtype
    with (
        stopped_by(threading.Event(), patience=0.0, leaves=True),
        pytest.raises(TypeError),
    ):
        program("text")


# --- evidence: tempering ---------------------------------------------------------------------


def test_the_path_so_far_is_no_evidence_and_says_so():
    pressing = Pressing(2)
    whole = wb.evidence(NEAR, DATA, SMC)
    found = wb.evidence(NEAR, DATA, SMC, progress=pressing)
    assert found.status is wb.Status.INTERRUPTED
    assert wb.Status.ERROR_UNKNOWN not in found.flags
    assert math.isnan(found.std_error)
    assert found.diagnostics["power_reached"] == pressing.last[0] < 1
    assert found.log_evidence == pytest.approx(pressing.last[1])
    assert found.trace.power.tolist() == whole.trace.power[:2].tolist()
    assert found.num_observations == 120
    assert np.all(np.isfinite(found.samples["mu"]))
    first, flag = str(found).splitlines()[:2]
    assert first.startswith("log evidence at power 0.")
    assert "unknown" in first
    assert flag.startswith("  interrupted: ")
    assert pressing.said[-1] == "closed"
    assert any("Ctrl-C again" in text for text in pressing.said)


def test_the_path_so_far_is_that_of_its_power():
    """Against the exact evidence of a tempered Gaussian likelihood, in units of the spread."""
    found = wb.evidence(NEAR, DATA, wb.SMC(num_islands=16), progress=Pressing(3))
    power = found.diagnostics["power_reached"]
    count, total, squares = len(DATA), DATA.sum(), np.sum(DATA**2)
    precision = 1 + power * count
    mean = (2.0 + power * total) / precision
    exact = (
        -0.5 * power * count * math.log(2 * math.pi)
        - 0.5 * math.log(precision)
        - 0.5 * (power * squares + 4.0 - precision * mean**2)
    )
    islands = found.diagnostics["island_log_evidence"]
    error = np.std(islands, ddof=1) / math.sqrt(len(islands))
    assert abs(found.log_evidence - exact) < 5 * error


def test_a_second_one_ends_at_once():
    pressing = Pressing(2, 2)
    with pytest.raises(KeyboardInterrupt):
        wb.evidence(NEAR, DATA, SMC, progress=pressing)
    assert pressing.said[-1] == "closed"


def test_at_the_end_of_the_path_it_answers_without_a_bridge():
    steps = len(wb.evidence(NEAR, DATA, SMC).trace.power)
    found = wb.evidence(NEAR, DATA, SMC, progress=Pressing(steps))
    assert found.status is wb.Status.INTERRUPTED
    assert found.diagnostics["power_reached"] == 1.0
    assert found.diagnostics["answer"] == "path"
    assert "bridge_log_evidence" not in found.diagnostics
    exact = wb.zoo.gaussian.log_evidence(DATA, prior_mean=2.0)
    assert abs(found.log_evidence - exact) < 6 * found.std_error


def test_rounds_that_have_ended_count():
    method = wb.AIS(num_islands=4, num_particles=16)
    once = wb.evidence(NEAR, DATA, method)
    # In the second round, whatever its number of steps.
    pressing = Pressing(len(once.trace.power) + 2)
    found = wb.evidence(NEAR, DATA, method, tolerance=once.std_error / 4, progress=pressing)
    assert pressing.last[3] == 2
    assert found.flags[0] is wb.Status.INTERRUPTED
    assert wb.Status.TOLERANCE_NOT_REACHED in found.flags
    assert found.log_evidence == once.log_evidence
    assert found.std_error == once.std_error
    assert "power_reached" not in found.diagnostics


def test_a_likelihood_on_the_host_need_not_end_its_step():
    reporter, since = Pressing(), []

    def slow(parameters):
        if reporter.number:  # after the first step, amid the second
            since.append(0)
            if len(since) == 10:
                signal.raise_signal(signal.SIGINT)
        return -50 * float(parameters["a"]) ** 2

    model = wb.Model({"a": dist.Normal(0.0, 1.0)}, total_log_likelihood=slow)
    method = wb.SMC(num_islands=4, num_particles=16)
    found = wb.evidence(model, method=method, progress=reporter)
    assert len(since) == 10
    assert found.status is wb.Status.INTERRUPTED
    assert len(found.trace.power) == 1


# --- evidence: rows as they come -------------------------------------------------------------


@pytest.mark.parametrize(("method", "rows", "seen"), [(SGAIS, 120, 100), (IBIS, 1200, 1000)])
def test_the_rows_so_far(method, rows, seen):
    data = wb.zoo.gaussian.simulate(rows, mean=2.0, seed=1)
    found = wb.evidence(NEAR, data, method, progress=Pressing(2 if method is SGAIS else 1))
    assert found.num_observations == seen
    assert found.status is wb.Status.INTERRUPTED
    if method is SGAIS:
        assert found.diagnostics["answer"] == "path", "no time for a bridge"
    assert found.diagnostics["row_order"] == "as given"
    exact = wb.zoo.gaussian.log_evidence(data[:seen], prior_mean=2.0)
    assert abs(found.log_evidence - exact) < 6 * found.std_error


def test_within_a_chunk_the_rows_before_count(monkeypatch):
    """As a whole: no trace of the chunk that was not finished."""
    from weighbridge.estimators.sgais import run

    original, calls = run.anneal, []

    def pressed(*args, **options):
        calls.append(0)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return original(*args, **options)

    monkeypatch.setattr(run, "anneal", pressed)
    found = wb.evidence(NEAR, DATA, SGAIS)
    assert found.num_observations == 50
    assert found.status is wb.Status.INTERRUPTED
    assert len(found.trace.rows) == 1


# --- comparisons -----------------------------------------------------------------------------


def test_a_comparison_of_unlike_things_has_no_probabilities():
    steps = len(wb.evidence(NEAR, DATA, SMC).trace.power)
    found = wb.compare({"near": NEAR, "far": FAR}, DATA, SMC, progress=Pressing(steps + 2))
    assert found.flags["near"] == ()
    assert found.flags["far"][0] is wb.Status.INTERRUPTED
    assert not found.is_complete
    assert all(math.isnan(value) for value in found.probabilities.values())
    text = str(found)
    assert "cannot be compared yet" in text
    assert "far: interrupted" in text
    assert "0.0" not in text.splitlines()[1].split()[3:]
    with pytest.raises(wb.MethodError, match="interrupted"):
        _ = found.best
    assert '"best": null' in found.to_json()
    assert math.isnan(found.bayes_factor_error("far"))


def test_a_model_of_which_there_is_nothing_is_left_out():
    steps = len(wb.evidence(NEAR, DATA, SMC).trace.power)
    models = {"near": NEAR, "far": FAR}
    odds = {"near": 1.0, "far": 2.0}
    found = wb.compare(models, DATA, SMC, prior_odds=odds, progress=Pressing(steps))
    assert found.left_out == ("far",)
    assert list(found.results) == ["near"]
    assert not found.is_complete
    assert "no result yet: far" in str(found)
    assert math.isnan(found.probabilities["near"])
    with pytest.raises(KeyboardInterrupt):
        wb.compare(models, DATA, SMC, progress=Pressing(1, 1))


@pytest.mark.parametrize("report", [3, 4])
def test_a_comparison_of_rows_so_far_has_all_models_at_the_same_row(report):
    """Also if one had absorbed a chunk more: that is taken back."""
    found = wb.compare({"near": NEAR, "far": FAR}, DATA, SGAIS, progress=Pressing(report))
    seen = 50 * (report // 2)
    assert {result.num_observations for result in found.results.values()} == {seen}
    assert found.num_observations == seen
    assert all(flags[0] is wb.Status.INTERRUPTED for flags in found.flags.values())
    assert found.is_complete
    assert "near, far: interrupted" in str(found)
    assert found.best == "near"


def test_results_of_different_sizes_are_refused_unless_they_were_interrupted():
    def fake(rows, *flags):
        return wb.Evidence(-10.0, 0.1, rows, "sgais", Trace(), {}, np.zeros(1), flags=flags)

    with pytest.raises(wb.MethodError, match="different numbers"):
        wb.compare({"a": fake(50), "b": fake(100)})
    assert not wb.compare({"a": fake(50, wb.Status.INTERRUPTED), "b": fake(100)}).is_complete


def test_an_interrupted_result_can_be_saved(tmp_path):
    found = wb.evidence(NEAR, DATA, SMC, progress=Pressing(2))
    found.save(tmp_path / "result")
    again = wb.Evidence.load(tmp_path / "result")
    assert again.flags == found.flags
    assert again.diagnostics["power_reached"] == found.diagnostics["power_reached"]


def test_a_ctrl_c_whose_exception_was_lost_ends_the_run_all_the_same():
    """Python drops what is raised while objects are cleaned up."""
    with interrupts.interruptible():
        with contextlib.suppress(KeyboardInterrupt):  # as in a callback of the garbage collector
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.keep()


def test_a_comparison_that_is_not_complete_says_so_in_every_form():
    def fake(power, *flags):
        return wb.Evidence(
            -10.0, 0.1, 9, "smc", Trace(), {}, np.zeros(1), {"power_reached": power}, flags
        )

    table = wb.compare({"a": fake(1.0), "b": fake(0.25, wb.Status.INTERRUPTED)})
    assert not table.is_complete
    assert list(table.to_pandas()["verdict"]) == ["", ""]
    assert table.ranking == ["a", "b"]
    assert "b: this is the value at power 0.25" in str(table)
    assert "cannot be compared yet" in table._repr_html_()
    for refused in (table.plot, lambda: wb.average(table, lambda p: 0.0), lambda: table.best):
        with pytest.raises(wb.MethodError, match="interrupted"):
            refused()
