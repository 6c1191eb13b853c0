"""Runs that threads share, that call themselves, that are copied, and that a fork takes along."""

import copy
import os
import pickle
import signal
import threading
import time

import pytest

import weighbridge as wb
from weighbridge.core import forking
from weighbridge.core.rollback import restored_on_error
from weighbridge.core.threads import Turns, in_threads

TINY = wb.SGAIS(num_islands=4, num_particles=16)
ROWS = wb.zoo.gaussian.simulate(40, seed=1)


def in_threads_at_once(calls):
    barrier, errors = threading.Barrier(len(calls)), []

    def run(call):
        barrier.wait()
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not errors


# --- calls in threads ------------------------------------------------------------------------


def test_the_longest_call_begins_first_and_answers_keep_their_order(monkeypatch):
    monkeypatch.setattr("weighbridge.core.threads.num_cores", lambda: 1)
    begun = []

    def work(seconds):
        begun.append(seconds)
        return 10 * seconds

    found = in_threads(work, {"a": 1, "b": 3, "c": 2}, duration=lambda seconds: seconds)
    assert begun == [3, 2, 1]
    assert list(found.items()) == [("a", 10), ("b", 30), ("c", 20)]


def test_after_an_error_no_further_call_begins(monkeypatch):
    monkeypatch.setattr("weighbridge.core.threads.num_cores", lambda: 1)
    begun = []

    def work(seconds):
        begun.append(seconds)
        time.sleep(0.05)
        raise ValueError(seconds)

    with pytest.raises(ValueError, match="3") as caught:
        in_threads(work, {"b": 3, "a": 1, "c": 2}, duration=lambda seconds: seconds)
    assert caught.value.__notes__ == ["This was in 'b'."]
    assert len(begun) < 3


# --- turns -----------------------------------------------------------------------------------


def test_calls_of_threads_take_turns():
    turns, at_work, most = Turns("It"), [], []

    def work():
        at_work.append(0)
        most.append(len(at_work))
        time.sleep(0.005)
        at_work.pop()

    in_threads_at_once([lambda: turns.take(work)] * 6)
    assert most == [1] * 6


def test_a_call_within_itself_is_refused_also_in_a_thread_that_it_has_started():
    turns = Turns("It")

    def through_threads():
        in_threads(lambda _: turns.take(int), {"a": 0, "b": 1})

    for inner in (lambda: turns.take(int), through_threads):
        with pytest.raises(wb.InUseError, match="It was used within"):
            turns.take(inner)
    assert turns.take(int) == 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_and_ctrl_c_end_a_turn(error):
    turns = Turns("It")

    def fail():
        raise error

    with pytest.raises(error):
        turns.take(fail)
    in_threads_at_once([lambda: turns.take(int)])


@pytest.fixture
def heard_ctrl_c():
    """Python's own handler of SIGINT, also in a process that was started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_ctrl_c")
def test_ctrl_c_ends_the_waiting_for_a_turn():
    turns, taken, let_go = Turns("It"), threading.Event(), threading.Event()
    holder = threading.Thread(target=turns.take, args=[lambda: (taken.set(), let_go.wait(60))])
    holder.start()
    taken.wait(60)
    timer = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        turns.take(int)
    let_go.set()
    holder.join()
    assert turns.take(int) == 0


def test_copies_have_turns_of_their_own():
    turns = Turns("It")
    for other in (copy.copy(turns), copy.deepcopy(turns), pickle.loads(pickle.dumps(turns))):
        assert turns.take(other.take, int) == 0


# --- runs ------------------------------------------------------------------------------------


def test_no_row_of_any_thread_is_lost():
    online = wb.Online(wb.zoo.gaussian.model(), TINY)
    in_threads_at_once([lambda k=k: online.update(ROWS[10 * k : 10 * k + 10]) for k in range(4)])
    assert online.num_observations == 40
    result = online.result()
    assert abs(result.log_evidence - wb.zoo.gaussian.log_evidence(ROWS)) < 3.0
    assert result.num_observations == 40


def test_looking_saving_and_adding_wait_for_an_update(tmp_path):
    models = {"near": wb.zoo.gaussian.model(), "far": wb.zoo.gaussian.model(prior_mean=2.0)}
    online = wb.OnlineComparison(models, TINY)
    online.update(ROWS[:10])
    seen, path = [], tmp_path / "run"

    def look():
        for _ in range(5):
            rows = {r.num_observations for r in online.result().results.values()}
            assert len(rows) == 1
            seen.append((rows.pop(), online.probabilities))
            online.save(path)

    def add():
        for k in (1, 2, 3):
            online.update(ROWS[10 * k : 10 * k + 10])

    in_threads_at_once([look, add, lambda: online.add("wide", wb.zoo.gaussian.model())])
    assert online.num_observations == 40
    assert {rows for rows, _ in seen} <= {10, 20, 30, 40}
    assert set(online.names) == {"near", "far", "wide"}
    assert online.history["rows"].tolist() == [10, 20, 30, 40]
    loaded = wb.OnlineComparison.load(path, {**models, "wide": models["near"]}, TINY)
    assert loaded.num_observations in (10, 20, 30, 40)


def test_a_run_that_is_used_within_its_own_update_says_so():
    online = wb.Online(wb.zoo.gaussian.model(), TINY)
    online.update(ROWS[:10])

    with pytest.raises(wb.InUseError, match="within a call of its own"):
        online._turns.take(online.update, ROWS[10:])
    assert online.num_observations == 10
    assert online.update(ROWS[10:]).num_observations == 40


def test_ctrl_c_within_an_update_leaves_the_run_as_it_was(monkeypatch):
    online, clean = (
        wb.Online(wb.zoo.gaussian.model(), wb.IBIS(num_islands=4, num_particles=16))
        for _ in range(2)
    )
    for run in (online, clean):
        run.update(ROWS[:10])
    absorb, calls = type(online._session).absorb, []

    def interrupted(session, values):
        absorb(session, values)
        calls.append(values)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(online._session), "absorb", interrupted)
        patch.setattr(type(online._session), "chunk_after", lambda session, rows: 7)
        with pytest.raises(KeyboardInterrupt):
            online.update(ROWS[10:])
    assert online.num_observations == 10
    assert online._session.checker.state() == clean._session.checker.state()
    first, second = online.update(ROWS[10:]), clean.update(ROWS[10:])
    assert first.log_evidence == second.log_evidence
    assert first.num_observations == second.num_observations == 40


def test_copies_of_a_run_go_on_by_themselves():
    online = wb.Online(wb.zoo.gaussian.model(), TINY)
    online.update(ROWS[:10])
    other = copy.deepcopy(online)
    assert other._turns is not online._turns
    assert other.update(ROWS[10:]).num_observations == 40
    assert online.num_observations == 10


def test_what_is_restored_stays_the_same_object():
    class Holder:
        def __init__(self):
            self.names, self.table = ["a"], {"b": 1}

    holder = Holder()
    names, table = holder.names, holder.table

    @restored_on_error(holder)
    def fail():
        holder.names.append("c")
        holder.table = {}
        table["d"] = 2
        raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert holder.names is names
    assert holder.table is table
    assert (names, table) == (["a"], {"b": 1})


# --- forks -----------------------------------------------------------------------------------


def in_a_fork(work, seconds=30.0):
    """What a forked process says of it; None if it does not end."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            told = repr(work())
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    deadline = time.monotonic() + seconds
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            os.close(reading)
            return None
        time.sleep(0.02)
    with open(reading) as stream:
        return stream.read()


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_is_told_and_does_not_hang():
    online = wb.Online(wb.zoo.gaussian.model(), TINY)
    told = in_a_fork(lambda: online.update(ROWS))
    assert told.startswith("ForkError: This wb.Online was made by process")
    assert "spawn" in told
    for work in (
        lambda: wb.Online(wb.zoo.gaussian.model(), TINY),
        lambda: wb.evidence(wb.zoo.gaussian.model(), ROWS, TINY),
        lambda: wb.evidence(wb.zoo.gaussian.model(), ROWS),
        lambda: wb.sample(wb.zoo.gaussian.model(), ROWS),
    ):
        told = in_a_fork(work)
        assert told is not None, "it hangs"
        assert told.startswith("ForkError: This process was forked"), told


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_lock_that_another_thread_held_at_the_fork_does_not_hang():
    turns, taken, let_go = Turns("It"), threading.Event(), threading.Event()
    holder = threading.Thread(target=turns.take, args=[lambda: (taken.set(), let_go.wait(60))])
    holder.start()
    taken.wait(60)
    told = in_a_fork(lambda: turns.take(int))
    let_go.set()
    holder.join()
    assert told.startswith("ForkError: It was made by process")


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_fork_before_jax_has_begun_is_no_matter(monkeypatch):
    monkeypatch.setattr(forking, "_has_begun", lambda: False)
    assert in_a_fork(lambda: forking.check()) == "None"
