"""Reporters: bars on a terminal and in notebooks, sparse lines elsewhere, or nothing."""

import io
import subprocess
import sys
import threading
import time
import types

import pytest
from rich.console import Console

from weighbridge import AIS, SGAIS, SMC, DataError, Evidence, Online, evidence, zoo
from weighbridge.core.progress import board, log_lines
from weighbridge.core.progress import reporters as progress
from weighbridge.core.progress.board import Notebook, Row, Terminal
from weighbridge.core.progress.chains import ChainBars, ChainLines, choose_chain_reporter
from weighbridge.core.progress.reporters import Bar, ProgressLines, Silent, choose_reporter

SMALL = SGAIS(num_islands=4, num_particles=16, chunk_size=50)


class Stream(io.StringIO):
    def isatty(self):
        return True


def console_of(width=80):
    return Console(file=Stream(), width=width, force_terminal=True, color_system=None)


def test_lines():
    stream = io.StringIO()
    lines = ProgressLines(stream)
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
    lines = ProgressLines(stream)
    lines.start(None)
    lines.update(500, -1.0, 1.0)
    assert stream.getvalue().startswith("500 rows  ")


def shown(bar_of, width=80):
    """What a terminal of this width shows before the bar is taken away."""
    console = console_of(width)
    bar = Bar(Terminal(console))
    bar.announce("begun", at_once=True)
    bar_of(bar)
    bar.board.screen.bars.refresh()
    text = console.file.getvalue()
    bar.close()
    return ["", *text.split("\n")][-2:], text


def test_the_bar_fits_80_columns(monkeypatch):
    clock = iter(range(0, 10_000, 500))
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))

    def use(bar):
        bar.start(100_000)
        for rows in range(38_000, 40_001, 1_000):
            bar.update(rows, -56952.541, 1.0, "linear")
        bar.update(39_500, -69544.104, 12.0, "linear:2")

    (above, below), _ = shown(use)
    assert "linear " in above
    assert "40,000/100,000 rows log Z -56952.54 1 steps  about 8 h left" in above
    assert "39,500/100,000 rows log Z -69544.10 12 steps" in below
    assert "…" not in above + below


def test_the_bar_of_an_unknown_total_shows_the_time_passed():
    def use(bar):
        bar.start(None)
        bar.update(500, -10.0, 1.0)

    (_, last), _ = shown(use)
    assert "500 rows log Z -10.00 1 steps 0 s" in last
    assert "left" not in last


def test_a_bar_can_start_again_and_close_twice():
    def use(bar):
        bar.start(10)
        bar.start(20)
        bar.close()
        bar.close()
        bar.start(30)
        bar.announce("again", at_once=True)
        bar.update(3, -1.0, 1.0)

    _, text = shown(use)
    assert "3/30 rows" in text


def test_the_first_that_is_seen_says_what_is_done():
    """A bar without a word stood there until the next drawing."""
    console = console_of()
    bar = Bar(Terminal(console))
    bar.announce("compiling", at_once=True)
    written = console.file.getvalue()
    bar.close()
    assert "compiling" in written
    assert "compiling" in written[: written.index("0 s")]


def test_the_cursor_comes_back():
    console = console_of()
    bar = Bar(Terminal(console))
    bar.announce("begun", at_once=True)
    bar.close()
    assert console.file.getvalue().rindex("\x1b[?25h") > console.file.getvalue().rindex("\x1b[?25l")


@pytest.mark.parametrize(
    ("progress", "on_terminal", "elsewhere"),
    [(None, Bar, ProgressLines), (True, Bar, ProgressLines), (False, Silent, Silent)],
)
def test_choice(monkeypatch, progress, on_terminal, elsewhere):
    for stream, expected in ((Stream(), on_terminal), (io.StringIO(), elsewhere)):
        monkeypatch.setattr("sys.stderr", stream)
        found = choose_reporter(progress)
        assert type(found) is expected
        if expected is ProgressLines:
            assert found.unasked == (progress is None)
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
    bar = Bar(Terminal(console_of()))
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


# --- lines: what is done if it lasts, then ever fewer of them ----------------------------------


class Clock:
    """Seconds that pass as a test says."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(progress.time, "perf_counter", lambda: self.now)


@pytest.mark.parametrize(("seconds", "most"), [(60, 12), (3600, 24), (86_400, 32)])
def test_a_log_of_any_length_is_short(monkeypatch, seconds, most):
    """The shell's comparison printed 801 lines."""
    clock, stream = Clock(monkeypatch), io.StringIO()
    lines = ProgressLines(stream)
    lines.start(10_000)
    for chunk in range(1, 1001):
        clock.now = 100.0 + chunk * seconds / 1000
        lines.update(10 * chunk, -1.0 * chunk, 3.0, "linear")
    lines.close()
    told = stream.getvalue().splitlines()
    assert 5 < len(told) <= most
    assert " left" in told[-1]


def test_tempering_in_lines_is_sparse_too(monkeypatch):
    clock, stream = Clock(monkeypatch), io.StringIO()
    monkeypatch.setattr(board, "PATIENCE", 0.5)
    lines = ProgressLines(stream)
    lines.temper(0.0, 0.0, 0, "linear", 2)
    for step in range(1, 31):
        clock.now += 0.125
        lines.temper(10.0 ** (step / 3 - 12), -float(step), step, "linear", 2)
    lines.close()
    first, second = stream.getvalue().splitlines()
    assert first.startswith(
        "linear, round 2: power 2.15e-11  log evidence -4.00  annealing steps 4"
    )
    # Powers that grow by the same factor in each step end after 36 steps of an eighth of a second.
    assert first.endswith("0.5 s, about 4 s left")
    assert second.endswith("2.5 s, about 2 s left")


def test_lines_tell_what_is_done_before_there_are_numbers(monkeypatch):
    """Also while it is being compiled and nobody calls."""
    monkeypatch.setattr(board, "PATIENCE", 0.02)
    stream = io.StringIO()
    lines = ProgressLines(stream)
    lines.announce("reading the data")
    lines.temper(0.0, 0.0, 0, "linear")
    wait_for(lambda: stream.getvalue())
    assert stream.getvalue() == "linear: compiling ...\n", "what lasted, and nothing else"
    lines.announce("stopping", at_once=True)
    assert stream.getvalue().endswith("stopping\n")
    monkeypatch.setattr(board, "PATIENCE", 60.0)  # however slow the machine is
    lines.start(100)
    assert lines._log.is_waiting
    lines.close()
    assert not lines._log.is_waiting, "after the end it says nothing"
    assert stream.getvalue().count("\n") == 2


def unasked_lines(monkeypatch, stream):
    monkeypatch.setattr("sys.stderr", stream)
    return choose_reporter(None)


def test_unasked_lines_come_after_ten_seconds_and_when_the_time_has_doubled(monkeypatch):
    """Python without a terminal said nothing at all, however long a run took."""
    clock, stream = Clock(monkeypatch), io.StringIO()
    lines = unasked_lines(monkeypatch, stream)
    lines.start(1_000)
    for second in range(1, 101):
        clock.now = 100.0 + second
        lines.update(10 * second, -float(second), 3.0, "linear")
        lines.update(10 * second, -float(second), 3.0, "quadratic")
    lines.close()
    told = stream.getvalue().splitlines()
    assert [line.partition("  ")[0] for line in told] == [
        f"weighbridge: linear: {10 * second} of 1,000 rows" for second in (10, 20, 40, 80)
    ]


def test_unasked_lines_tell_of_compiling_only_if_it_lasts(monkeypatch):
    monkeypatch.setattr(board, "PATIENCE", 0.0)
    monkeypatch.setattr(log_lines, "UNASKED", 0.05)
    stream = io.StringIO()
    lines = unasked_lines(monkeypatch, stream)
    lines.temper(0.0, 0.0, 0, "linear")
    lines.temper(0.1, -1.0, 1, "linear")
    assert stream.getvalue() == ""
    lines.temper(0.0, 0.0, 0, "quadratic")
    wait_for(lambda: stream.getvalue())
    assert stream.getvalue() == "weighbridge: quadratic: compiling ...\n"
    lines.close()


def test_unasked_lines_of_chains(monkeypatch):
    clock, stream = Clock(monkeypatch), io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    lines = choose_chain_reporter(None)
    for second in range(25):
        clock.now = 100.0 + second
        lines.update(second % 4, second, 100, False, 0)
    lines.close()
    first, second = stream.getvalue().splitlines()
    assert first == "weighbridge: chain 3: 10/100 draws  10.0 s"
    assert second.endswith("20.0 s")


def test_unasked_lines_never_end_a_run(monkeypatch):
    """The stream may be closed, or a pipe whose reader is gone."""

    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(log_lines, "UNASKED", 0.0)
    for stream in (closed, Gone()):
        unasked_lines(monkeypatch, stream).update(10, -1.0, 1.0)
    assert isinstance(unasked_lines(monkeypatch, None), Silent)


# --- bars appear by themselves when a run lasts -----------------------------------------------


def test_a_short_run_shows_no_bar_and_imports_nothing():
    code = (
        "import sys, threading\n"
        "from weighbridge.core.progress.reporters import Bar, Silent\n"
        "bar = Bar()\n"
        "for step in range(50): bar.temper(step / 50, -1.0, step)\n"
        "bar.close()\n"
        "assert 'rich' not in sys.modules\n"
        "assert not bar.board.is_shown\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (done.stdout, done.stderr) == (b"", b"")


def tempering_bar(monkeypatch, patience=0.02):
    monkeypatch.setattr(board, "PATIENCE", patience)
    console = console_of()
    return Bar(Terminal(console)), console


def wait_for(condition):
    end = time.perf_counter() + 10
    while not condition() and time.perf_counter() < end:
        time.sleep(0.005)
    assert condition()


def test_the_bar_of_tempering_appears_by_itself(monkeypatch):
    """Also while the first step is still being compiled and nobody calls."""
    bar, console = tempering_bar(monkeypatch)
    bar.temper(0.0, 0.0, 0, "linear", 1)
    wait_for(lambda: bar.board.is_shown)
    bar.board.screen.bars.refresh()
    assert "linear, round 1" in console.file.getvalue()
    assert "compiling ..." in console.file.getvalue()
    bar.temper(0.0123, -56952.54, 8, "linear", 12)
    bar.board.screen.bars.refresh()
    last = console.file.getvalue().split("\n")[-1]
    assert "linear, round 12" in last
    assert "power 0.0123 log Z -56952.54 8 steps" in last
    assert "…" not in last
    bar.temper(1.0, -2.0, 9, "linear", 12)
    assert bar.board.rows["linear"].text.startswith("checking"), "a bridge takes its time"
    bar.temper(0.0, 0.0, 0, "quadratic", 12)
    assert set(bar.board.rows) == {"linear", "quadratic"}
    assert bar.board.rows["linear"].text.startswith("done log Z -2.00")
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
    assert not bar.board.is_shown
    assert threading.active_count() <= before


def test_a_step_costs_next_to_nothing():
    """A run of 20 ms has about ten steps: a report must take microseconds."""
    bar = Bar(Terminal(console_of()))
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


# --- notebooks -------------------------------------------------------------------------------


@pytest.fixture
def notebook(monkeypatch):
    """What a kernel offers to those who run in it; tells what was sent to the cell."""
    sent = []

    class Handle:
        def update(self, bundle, raw):
            assert raw
            sent.append(bundle)

    def display(bundle, raw, display_id):
        assert raw
        assert display_id
        sent.append(bundle)
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    root = types.ModuleType("IPython")
    root.get_ipython = lambda: shell
    shows = types.ModuleType("IPython.display")
    shows.display = display
    monkeypatch.setitem(sys.modules, "IPython", root)
    monkeypatch.setitem(sys.modules, "IPython.display", shows)
    monkeypatch.setattr(board, "PATIENCE", 0.0)
    monkeypatch.setattr(board, "BETWEEN_DRAWINGS", 0.0)
    return sent


def test_a_notebook_has_bars(notebook):
    for progress_argument in (None, True):
        bar = choose_reporter(progress_argument)
        assert isinstance(bar, Bar)
        assert isinstance(bar.board.screen, Notebook)
    assert isinstance(choose_reporter(False), Silent)
    assert isinstance(choose_chain_reporter(None), ChainBars)
    bar.temper(0.0, 0.0, 0, "<a>")
    wait_for(lambda: notebook)
    assert "compiling ..." in notebook[0]["text/html"]
    bar.temper(0.01, -5.0, 1, "<a>")
    bar.temper(0.1, -9.5, 2, "<a>")
    page = notebook[-1]["text/html"]
    assert "&lt;a&gt;" in page
    assert '<progress value="0.5000">' in page
    assert notebook[-1]["text/plain"] == "<a>  power 0.1 log Z -9.50 2 steps"
    bar.close()
    assert notebook[-1] == {"text/plain": "", "text/html": ""}, "nothing is left behind"


def test_a_notebook_that_cannot_show_does_no_harm(notebook, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no front end")

    monkeypatch.setattr(sys.modules["IPython.display"], "display", fail)
    screen = Notebook()
    screen.draw({"": Row("", None, "compiling ...")})
    screen.close()


def test_ipython_in_a_terminal_is_no_notebook(notebook, monkeypatch):
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)
    monkeypatch.setattr("sys.stderr", None)
    assert isinstance(choose_reporter(None), Silent)


# --- chains ----------------------------------------------------------------------------------


def test_lines_of_chains(monkeypatch):
    monkeypatch.setattr(board, "PATIENCE", 0.02)
    stream = io.StringIO()
    lines = ChainLines(stream)
    lines.update(0, 0, 100, True, 0)
    wait_for(lambda: stream.getvalue())
    assert stream.getvalue() == "compiling ...\n"
    lines.update(1, 50, 100, False, 3)
    lines.update(1, 60, 100, False, 3)
    lines.close()
    assert stream.getvalue().splitlines()[1].startswith("chain 2: 50/100 draws, 3 divergent  0.")
    assert stream.getvalue().count("\n") == 2


def test_bars_of_chains(monkeypatch):
    monkeypatch.setattr(board, "PATIENCE", 0.02)
    console = console_of()
    bars = ChainBars(Terminal(console))
    bars.update(0, 0, 100, True, 0)
    wait_for(lambda: bars.board.is_shown)
    bars.board.screen.bars.refresh()
    assert "compiling ..." in console.file.getvalue()
    for done in (10, 20, 30):
        time.sleep(0.002)
        bars.update(0, done, 100, True, 0)
    bars.board.screen.bars.refresh()
    last = console.file.getvalue().split("\n")[-1]
    assert "chain 1" in last
    assert "30/100 warm-up about 1 s left" in last
    bars.say("stopping")
    assert bars.board.rows[""].text == "stopping"
    bars.close()


class Told:
    """A reporter that keeps what is announced, and whether it was closed."""

    def __init__(self):
        self.lines = []

    def announce(self, text, *, at_once=False):
        self.lines.append(text)

    def close(self):
        self.lines.append("closed")


def test_online_tells_what_it_does():
    told = Told()
    model, rows = zoo.gaussian.model(), zoo.gaussian.simulate(20, seed=1)
    online = Online(model, SGAIS(num_islands=4, num_particles=16), progress=told)
    online.update(rows)
    assert told.lines == ["weighing new rows (the first time also compiling)", "closed"]
    online.result()
    assert told.lines[2:] == ["checking", "closed"]
    with pytest.raises(DataError):
        online.update([float("nan")])
    assert told.lines[-1] == "closed", "also after an error"
