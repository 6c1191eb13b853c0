"""Reporters: a bar on a terminal, plain lines elsewhere, nothing when asked for nothing."""

import io

import pytest
from rich.console import Console

from weighbridge import SGAIS, Evidence, evidence, zoo
from weighbridge.progress import Bar, Lines, Silent, choose_reporter

SMALL = SGAIS(num_islands=4, num_particles=8, chunk_size=50, batch_size=25)


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

    def close(self):
        self.calls.append("close")


def test_a_run_reports_every_chunk():
    recorder = Recorder()
    data = zoo.gaussian.simulate(120, seed=1)
    result = evidence(zoo.gaussian.model(), data, SMALL, progress=recorder)
    assert isinstance(result, Evidence)
    assert recorder.calls[0] == ("start", 120)
    assert [call[0] for call in recorder.calls[1:-1]] == [50, 100, 120]
    assert recorder.calls[-2][1] == pytest.approx(result.log_evidence)
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
