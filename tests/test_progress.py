"""Reporters: a bar on a terminal, plain lines elsewhere, nothing when asked for nothing."""

import io
import itertools
import subprocess
import sys
import threading
import time

import pytest
from rich.console import Console

from weighbridge import AIS, SGAIS, SMC, Evidence, evidence, progress, zoo
from weighbridge.progress import Bar, Lines, Silent, choose_reporter

SMALL = SGAIS(num_islands=4, num_particles=8, chunk_size=50)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lines():
    stream = io.StringIO()
    lines = Lines(stream)
    lines.start(1200)
    lines.update(500, -713.554, 8.4)
    lines.update(1200, -1699.5, 1.0, "linear")
    lines.close()
    first, second = stream.getvalue().splitlines()
    assert first.startswith("500 of 1,200 rows  log evidence -713.55  annealing steps 8  ")
    assert second.startswith("linear: 1,200 of 1,200 rows  log evidence -1699.50")
    assert first.endswith(" s")


def test_lines_of_unknown_total():
    stream = io.StringIO()
    lines = Lines(stream)
    lines.start(None)
    lines.update(500, -1.0, 1.0)
    assert stream.getvalue().startswith("500 rows  ")


def shown(bar_of, width=80):
    """What a terminal of this width shows before the bar is taken away."""
    console = Console(file=Terminal(), width=width, force_terminal=True, color_system=None)
    bar = Bar(console)
    bar_of(bar)
    bar._bars.refresh()
    text = console.file.getvalue()
    bar.close()
    return ["", *text.split("\n")][-2:], text


def test_the_bar_fits_80_columns():
    def use(bar):
        bar.start(100_000)
        bar.update(40_000, -56952.541, 1.0, "linear")
        bar.update(39_500, -69544.104, 12.0, "linear:2")

    (above, below), _ = shown(use)
    assert "linear " in above
    assert "40,000/100,000 rows log evidence -56952.54 1 steps" in above
    assert "39,500/100,000 rows log evidence -69544.10 12 steps" in below
    assert above.rstrip().endswith("left")
    assert "…" not in above + below


def test_the_bar_of_an_unknown_total_shows_the_time_passed():
    def use(bar):
        bar.start(None)
        bar.update(500, -10.0, 1.0)

    (_, last), _ = shown(use)
    assert "500 rows log evidence -10.00 1 steps 0:00:0" in last
    assert "left" not in last


def test_a_bar_can_start_again_and_close_twice():
    def use(bar):
        bar.start(10)
        bar.start(20)  # rich allows one live display at a time
        bar.close()
        bar.close()
        bar.update(5, -1.0, 1.0)  # after the end: nothing
        bar.start(30)

    _, text = shown(use)
    assert "0/30 rows" in text


def test_the_cursor_comes_back():
    console = Console(file=Terminal(), force_terminal=True)
    bar = Bar(console)
    bar.start(10)
    bar.close()
    assert console.file.getvalue().rindex("\x1b[?25h") > console.file.getvalue().rindex("\x1b[?25l")


@pytest.mark.parametrize(
    ("progress", "on_terminal", "elsewhere"),
    [(None, Bar, Silent), (True, Bar, Lines), (False, Silent, Silent)],
)
def test_choice(monkeypatch, progress, on_terminal, elsewhere):
    for stream, expected in ((Terminal(), on_terminal), (io.StringIO(), elsewhere)):
        monkeypatch.setattr("sys.stderr", stream)
        assert type(choose_reporter(progress)) is expected
    own = Silent()
    assert choose_reporter(own) is own


class Recorder:
    def __init__(self):
        self.calls = []

    def start(self, total):
        self.calls.append(("start", total))

    def update(self, rows, log_evidence, annealing_steps, label=""):
        self.calls.append((rows, log_evidence, label))

    def temper(self, power, log_evidence, steps, label="", island_round=0):
        self.calls.append((power, log_evidence, steps, label, island_round))

    def close(self):
        self.calls.append("close")


def test_a_run_reports_every_chunk():
    recorder = Recorder()
    data = zoo.gaussian.simulate(120, seed=1)
    result = evidence(zoo.gaussian.model(), data, SMALL, progress=recorder)
    assert isinstance(result, Evidence)
    assert recorder.calls[0] == ("start", 120)
    assert [call[0] for call in recorder.calls[1:-1]] == [50, 100, 120]
    assert recorder.calls[-2][1] == pytest.approx(result.diagnostics["path_log_evidence"])
    assert recorder.calls[-1] == "close"


def test_several_rounds_share_a_bar():
    """A tolerance that needs more islands starts the reporter again."""
    bar = Bar(Console(file=Terminal(), force_terminal=True))
    data = zoo.gaussian.simulate(50, seed=1)
    first = evidence(zoo.gaussian.model(), data, SMALL)
    result = evidence(
        zoo.gaussian.model(),
        data,
        SMALL,
        tolerance=0.9 * first.std_error,
        progress=bar,
        time_limit=5.0,
    )
    assert len(result.diagnostics["island_log_evidence"]) > 4


# --- tempering: nothing for half a second, then the power reached ------------------------------


def test_tempering_in_lines_is_sparing(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(progress.time, "perf_counter", lambda: 0.1 * next(clock))
    stream = io.StringIO()
    lines = Lines(stream)
    lines.temper(0.0, 0.0, 0)
    for step in range(1, 30):
        lines.temper(step / 29, -float(step), step, "linear", 2)
    told = stream.getvalue().splitlines()
    assert told[0].startswith("linear, round 2: power 0.")
    assert "log evidence -" in told[0]
    assert "annealing steps" in told[0]
    seconds = [float(line.split()[-2]) for line in told]
    assert 0.5 <= seconds[0] <= 0.7
    assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(seconds))


def test_a_short_run_shows_no_bar_and_imports_nothing():
    code = (
        "import sys, threading\n"
        "from weighbridge.progress import Bar, Silent\n"
        "bar = Bar()\n"
        "for step in range(50): bar.temper(step / 50, -1.0, step)\n"
        "bar.close()\n"
        "assert 'rich' not in sys.modules\n"
        "assert threading.active_count() == 1 or not bar._bars\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (done.stdout, done.stderr) == (b"", b"")


def tempering_bar(monkeypatch, patience=0.02):
    monkeypatch.setattr(progress, "PATIENCE", patience)
    console = Console(file=Terminal(), width=80, force_terminal=True, color_system=None)
    return Bar(console), console


def wait_for(condition):
    end = time.perf_counter() + 10
    while not condition() and time.perf_counter() < end:
        time.sleep(0.005)
    assert condition()


def test_the_bar_of_tempering_appears_by_itself(monkeypatch):
    """Also while the first step is still being compiled and nobody calls."""
    bar, console = tempering_bar(monkeypatch)
    bar.temper(0.0, 0.0, 0, "linear", 1)
    wait_for(lambda: bar._bars is not None)
    bar._bars.refresh()
    assert "linear, round 1" in console.file.getvalue()
    assert "power 0 log evidence ..." in console.file.getvalue()
    bar.temper(0.0123, -56952.54, 8, "linear", 12)
    bar._bars.refresh()
    last = console.file.getvalue().split("\n")[-1]
    assert "linear, round 12" in last
    assert "power 0.0123 log evidence -56952.54 8 steps" in last
    assert "…" not in last
    bar.temper(0.5, -1.0, 3, "quadratic", 12)
    assert set(bar._tasks) == {"linear", "quadratic"}
    bar.close()
    text = console.file.getvalue()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    bar.close()


def test_a_bar_that_was_closed_in_time_never_appears(monkeypatch):
    bar, console = tempering_bar(monkeypatch, patience=0.05)
    before = threading.active_count()
    bar.temper(0.5, -1.0, 1)
    bar.close()
    time.sleep(0.15)
    assert console.file.getvalue() == ""
    assert bar._bars is None
    assert threading.active_count() <= before


def test_a_step_costs_next_to_nothing():
    """A run of 20 ms has about ten steps: a report must take microseconds."""
    bar = Bar(Console(file=Terminal(), force_terminal=True))
    bar.temper(0.0, 0.0, 0)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for step in range(100):
            bar.temper(step / 100, -1.0, step)
        best = min(best, (time.perf_counter() - began) / 100)
    bar.close()
    assert best < 1e-4


def test_a_tempered_run_reports_every_step():
    recorder = Recorder()
    data = zoo.gaussian.simulate(100, seed=1)
    method = SMC(num_islands=4, num_particles=16)
    result = evidence(zoo.gaussian.model(), data, method, progress=recorder)
    *steps, closing = recorder.calls
    assert closing == "close"
    assert steps[0] == (0.0, 0.0, 0, "", 0)
    assert [step[0] for step in steps[1:]] == result.trace.power.tolist()
    assert [step[1] for step in steps[1:]] == pytest.approx(result.trace.log_evidence.tolist())
    assert [step[2] for step in steps] == list(range(len(steps)))
    silent = evidence(zoo.gaussian.model(), data, method, progress=False)
    assert silent.log_evidence == result.log_evidence


def test_rounds_of_islands_are_numbered():
    recorder = Recorder()
    data = zoo.gaussian.simulate(100, seed=1)
    method = AIS(num_islands=4, num_particles=16)
    once = evidence(zoo.gaussian.model(), data, method)
    result = evidence(
        zoo.gaussian.model(),
        data,
        method,
        progress=recorder,
        tolerance=0.8 * once.std_error,
        time_limit=30.0,
    )
    rounds = [call[4] for call in recorder.calls[:-1]]
    assert rounds == sorted(rounds)
    assert set(rounds) == set(range(1, result.diagnostics["num_rounds"] + 1))
    assert max(rounds) > 1
