"""Models left running on a feed: events, checkpoints, resumes, and what goes wrong."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import weighbridge as wb
from weighbridge.cli.commands import watch_table
from weighbridge.cli.tables import InputTable
from weighbridge.core import atomic_write, checkpoint_file
from weighbridge.estimators.sgais import run
from weighbridge.monitoring import checkpoint_store, terminal, watching
from weighbridge.monitoring.checkpoint_store import CheckpointStore
from weighbridge.monitoring.event_log import EventLog
from weighbridge.monitoring.terminal import Lines, OnTerminal, State, choose_display
from weighbridge.monitoring.watch_plan import Keeping, Plan
from weighbridge.monitoring.watching import watch
from weighbridge.weighing.online_comparison.history import COMMON

pytestmark = pytest.mark.long

SMALL = wb.SGAIS(num_islands=4, num_particles=16, reservoir=150)
NEAR, FAR = wb.zoo.gaussian.model(prior_mean=2.0), wb.zoo.gaussian.model(prior_mean=-2.0)
ROWS = wb.zoo.gaussian.simulate(400, mean=2.0, seed=1)
OFTEN = Keeping(keep=2, every_rows=100, every_seconds=None)
COMMAND = [sys.executable, "-c", "from weighbridge.cli import main; main()"]


def plan(**changed):
    settings = {"method": SMALL, "chunk_size": 50, **changed}
    return Plan({"near": NEAR, "far": FAR}, **settings)


def events(folder, kind=None):
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if kind is None or line["event"] == kind]


def saved(folder):
    """The newest checkpoint, without its clocks."""
    latest = CheckpointStore(folder / "checkpoints").latest()
    arrays, metadata = checkpoint_file.read(latest.path, "weighbridge.online_comparison.5")
    clock = COMMON.index("elapsed")
    arrays["history"] = np.delete(arrays["history"], clock, axis=0)
    text = json.dumps(without_clocks(metadata), sort_keys=True)
    return {name: array.tobytes() for name, array in arrays.items()}, text


def without_clocks(value):
    if isinstance(value, dict):
        return {k: without_clocks(v) for k, v in value.items() if k != "elapsed"}
    return [without_clocks(v) for v in value] if isinstance(value, list) else value


class Chunky:
    """A display that stops the watch after so many updates."""

    def __init__(self, stop=None, after=0):
        self.stop, self.after, self.seen, self.said, self.closed = stop, after, [], [], False

    def show(self, state):
        self.seen.append(state)
        if self.stop is not None and len(self.seen) == self.after:
            self.stop.set()

    def say(self, text):
        self.said.append(text)

    def close(self):
        self.closed = True


def test_a_watch_weighs_as_a_comparison_does(tmp_path):
    display = Chunky()
    found = watch(plan(), ROWS, tmp_path, display=display, keeping=OFTEN)
    online = wb.OnlineComparison({"near": NEAR, "far": FAR}, SMALL)
    for start in range(0, 400, 50):
        update = online.update(ROWS[start : start + 50])
    assert found.reason == "end"
    assert found.rows == 400
    assert display.closed
    assert display.seen[-1].log_evidences == update.log_evidences
    exact = {
        name: wb.zoo.gaussian.log_evidence(ROWS, prior_mean=mean)
        for name, mean in (("near", 2.0), ("far", -2.0))
    }
    for name, value in exact.items():
        result = found.comparison.results[name]
        assert abs(result.log_evidence - value) < 6 * result.std_error
    assert [event["rows"] for event in events(tmp_path, "update")] == list(range(50, 401, 50))
    last = events(tmp_path, "update")[-1]
    assert last["log_evidences"] == update.log_evidences
    assert sum(last["probabilities"].values()) == pytest.approx(1.0)
    (summary,) = [event["summary"] for event in events(tmp_path, "posterior")][-1:]
    assert summary["near"]["mu"]["mean"] == pytest.approx(ROWS.mean(), abs=0.2)
    kinds = [event["event"] for event in events(tmp_path)]
    assert kinds[0] == "start"
    assert kinds[-1] == "stop"
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2, "the last two are kept"


@pytest.mark.parametrize("after", [1, 3, 4, 7])
def test_a_watch_that_was_stopped_goes_on_bit_for_bit(tmp_path, after):
    alone, broken = tmp_path / "alone", tmp_path / "broken"
    watch(plan(), ROWS, alone, keeping=OFTEN)
    stop = threading.Event()
    first = watch(plan(), ROWS, broken, display=Chunky(stop, after), stop=stop, keeping=OFTEN)
    assert first.reason == "signal"
    assert first.rows == 50 * after
    display = Chunky()
    second = watch(plan(), ROWS, broken, display=display, keeping=OFTEN)
    assert second.rows == 400
    assert any("resumed at row" in text for text in display.said)
    assert saved(broken) == saved(alone)
    assert events(broken, "stop")[0]["reason"] == "signal"


@pytest.fixture
def stop_amid(monkeypatch):
    """Stop a watch within a chunk, by the number of the call that anneals it, without grace."""

    def prepared(number):
        stop, original, calls = threading.Event(), run.anneal, []

        def stopping(*args, **options):
            calls.append(0)
            if len(calls) == number:
                stop.set()
            return original(*args, **options)

        monkeypatch.setattr(watching, "GRACE", 0.0)
        monkeypatch.setattr(run, "anneal", stopping)
        return stop

    return prepared


@pytest.mark.parametrize(("call", "rows"), [(1, 0), (2, 0), (8, 150)])
def test_a_chunk_that_was_stopped_amid_does_not_count(tmp_path, stop_amid, call, rows):
    """Two models anneal each chunk, so the eighth call is in the fourth."""
    alone, broken = tmp_path / "alone", tmp_path / "broken"
    watch(plan(), ROWS, alone, keeping=OFTEN)
    display = Chunky()
    first = watch(plan(), ROWS, broken, display=display, stop=stop_amid(call), keeping=OFTEN)
    assert (first.reason, first.rows) == ("signal", rows)
    assert any("does not count" in text for text in display.said)
    assert len(events(broken, "update")) == rows // 50
    second = watch(plan(), ROWS, broken, keeping=OFTEN)
    assert second.rows == 400
    assert saved(broken) == saved(alone)


def test_the_first_chunks_do_not_wait_for_the_compiler(tmp_path, monkeypatch):
    """The others do not pay for a thread for each program."""
    seen, original = [], watching.stopped_by

    def noted(*arguments, leaves):
        seen.append(leaves)
        return original(*arguments, leaves=leaves)

    monkeypatch.setattr(watching, "stopped_by", noted)
    monkeypatch.setattr(watching, "COMPILING_CHUNKS", 3)
    watch(plan(), ROWS, tmp_path)
    assert seen == [True] * 3 + [False] * 5


def test_a_stop_before_the_first_chunk_begins_none(tmp_path, monkeypatch):
    """It came while modules were loaded or models made: what is not begun is not waited for."""
    monkeypatch.setattr(watching, "GRACE", 60.0)
    stop = threading.Event()
    stop.set()
    display = Chunky()
    found = watch(plan(), ROWS, tmp_path, display=display, stop=stop)
    assert (found.reason, found.rows, display.seen) == ("signal", 0, [])
    assert events(tmp_path, "stop")[0]["reason"] == "signal"
    again = watch(plan(), ROWS, tmp_path)
    assert (again.reason, again.rows) == ("end", len(ROWS))


def test_rows_that_come_only_once_are_not_left(tmp_path, stop_amid):
    stream = (ROWS[start : start + 50] for start in range(0, 400, 50))
    found = watch(plan(), stream, tmp_path, stop=stop_amid(1), keeping=OFTEN)
    assert found.reason == "signal"
    assert found.rows >= 50


def test_a_watch_says_what_it_does(tmp_path):
    class Announced(Chunky):
        def announce(self, text, *, at_once=False):
            self.said.append(text)

    display = Announced()
    watch(plan(), ROWS[:100], tmp_path, display=display)
    first, second, third = display.said
    assert first.startswith("reading ")
    assert (second, third) == ("compiling, then weighing 50 rows", "weighing 50 rows")


class Killed(BaseException):
    pass


def test_a_kill_at_any_call_of_a_write_loses_nothing(tmp_path, monkeypatch):
    """Every system call of a checkpoint is the last one of a process."""
    alone = tmp_path / "alone"
    watch(plan(), ROWS[:200], alone, keeping=OFTEN)
    expected = saved(alone)
    monkeypatch.setattr(atomic_write, "PIECE", 1 << 12)

    class Failing:
        def __init__(self, last):
            self.last, self.count = last, 0

        def __getattr__(self, name):
            def call(*args):
                self.count += 1
                if self.count >= self.last:  # whatever a dying process still tries is in vain
                    raise Killed
                return getattr(os, name)(*args)

            counted = name in ("open", "write", "fsync", "replace", "unlink", "close")
            return call if counted else getattr(os, name)

    number, ended = 0, False
    while not ended:
        number += 3
        folder = tmp_path / f"run{number}"
        failing = Failing(number)
        with monkeypatch.context() as patch:
            patch.setattr(atomic_write, "os", failing)
            try:
                watch(plan(), ROWS[:200], folder, keeping=OFTEN)
                ended = True
            except Killed:
                pass
        watch(plan(), ROWS[:200], folder, keeping=OFTEN)
        assert saved(folder) == expected, number
    assert number > 10, "there were calls to fail at"


@pytest.mark.parametrize("name", ["open", "write", "fsync", "replace"])
def test_a_full_disk_is_told_and_the_watch_goes_on(tmp_path, monkeypatch, name):
    calls = []

    class Full:
        def __getattr__(self, asked):
            def call(*args):
                calls.append(asked)
                if len(calls) >= 4:
                    raise OSError(28, "No space left on device")
                return getattr(os, asked)(*args)

            return call if asked == name else getattr(os, asked)

    display = Chunky()
    with monkeypatch.context() as patch:
        patch.setattr(atomic_write, "os", Full())
        patch.setattr(atomic_write, "PIECE", 1 << 12)
        found = watch(plan(), ROWS, tmp_path, display=display, keeping=OFTEN)
    assert found.rows == 400
    assert any("No space left" in text and "are kept" in text for text in display.said)
    assert events(tmp_path, "checkpoint_failed")
    store = CheckpointStore(tmp_path / "checkpoints")
    latest = store.latest()
    if latest is not None:
        assert checkpoint_file.verify(latest.path)
    again = watch(plan(), ROWS, tmp_path, keeping=OFTEN)
    assert again.rows == 400


@pytest.mark.parametrize("every_seconds", [None, 0.0, 3600.0])
def test_a_failed_checkpoint_is_tried_again_while_no_rows_come(
    tmp_path, monkeypatch, every_seconds
):
    full, seen = [True], []

    class Full:
        def __getattr__(self, asked):
            if asked == "write" and full[0]:
                raise OSError(28, "No space left on device")
            return getattr(os, asked)

    class Waiting:
        seekable, num_rows = True, None

        def describe(self):
            return "rows, and then none for long"

        def read(self, cursor=None):
            yield wb.Parcel(ROWS[:100], {"offset": 0})
            for look in range(100):
                full[0] = look < 30
                now[0] += 10.0
                yield None
                seen.append((len(events(tmp_path, "checkpoint_failed")), store.latest()))

    now = [0.0]
    monkeypatch.setattr(checkpoint_store.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(atomic_write, "os", Full())
    store = CheckpointStore(tmp_path / "checkpoints")
    display = Chunky()
    keeping = Keeping(every_rows=100, every_seconds=every_seconds)
    watch(plan(), Waiting(), tmp_path, keeping=keeping, display=display)
    failed, found = zip(*seen)
    assert 5 <= failed[29] < 10, "after growing pauses"
    assert found[29] is None
    assert found[-1].rows == 100
    assert failed[-1] == failed[29]
    assert len(events(tmp_path, "checkpoint")) == 2, "once it is written, and at the end"
    assert sum("could be written again" in text for text in display.said) == 1


def test_a_resume_wants_the_same_settings(tmp_path):
    watch(plan(), ROWS[:100], tmp_path)
    with pytest.raises(wb.MethodError, match=r"chunk_size=50.*25"):
        watch(plan(chunk_size=25), ROWS, tmp_path)
    with pytest.raises(wb.MethodError, match="seed"):
        watch(plan(seed=1), ROWS, tmp_path)
    with pytest.raises(wb.CheckpointError, match="method"):
        watch(plan(method=wb.SGAIS()), ROWS, tmp_path)
    with pytest.raises(wb.MethodError, match="changes"):
        watch(plan(changes=wb.Changes()), ROWS, tmp_path)


def test_a_stream_that_cannot_seek_says_so_and_loses_nothing_at_a_stop(tmp_path):
    stop = threading.Event()
    pieces = (ROWS[start : start + 30] for start in range(0, 120, 30))
    first = watch(plan(), pieces, tmp_path, display=Chunky(stop, 1), stop=stop)
    assert first.rows == 60, "rows that were read and not yet due are absorbed"
    display = Chunky()
    second = watch(plan(), iter([ROWS[120:]]), tmp_path, display=display)
    assert second.rows == 60 + 280
    assert any("missing" in text for text in display.said)


def test_duplicates_and_gaps_are_told(tmp_path):
    parcels = [wb.Parcel(ROWS[k * 50 : k * 50 + 50], identifier=k) for k in (0, 1, 1, 4)]
    found = watch(plan(), parcels, tmp_path)
    assert found.rows == 150
    told = {event["kind"]: event["text"] for event in events(tmp_path, "notice")}
    assert "came again" in told["duplicate"]
    assert "2 to 3" in told["gap"]


def test_bad_rows_go_to_quarantine(tmp_path):
    broken = ROWS.copy()
    broken[[7, 260]] = np.nan
    with pytest.raises(wb.DataError, match="row 7"):
        watch(plan(), broken, tmp_path / "strict")
    assert events(tmp_path / "strict", "stop")[0]["reason"] == "error"
    found = watch(plan(on_bad_row="quarantine"), broken, tmp_path / "kind")
    assert found.rows == 398
    lines = (tmp_path / "kind" / "quarantine.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == [7, 260]
    assert sum(event["rows_quarantined"] for event in events(tmp_path / "kind", "update")) == 2


def test_an_error_keeps_what_there_was(tmp_path):
    broken = ROWS.copy()
    broken[230] = np.inf
    with pytest.raises(wb.DataError):
        watch(plan(), broken, tmp_path)
    lenient = tmp_path / "lenient"
    shutil.copytree(tmp_path / "checkpoints", lenient / "checkpoints")
    assert watch(plan(on_bad_row="quarantine"), broken, lenient).rows == 399
    (line,) = (lenient / "quarantine.jsonl").read_text().splitlines()
    assert json.loads(line)["row"] == 230
    mended = watch(plan(), ROWS, tmp_path)
    assert mended.rows == 400
    watch(plan(), ROWS, tmp_path / "alone")
    assert saved(tmp_path) == saved(tmp_path / "alone")


def test_half_a_line_is_closed(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "upd')
    EventLog(path).write("stop", 3)
    assert json.loads(path.read_text().splitlines()[1])["rows"] == 3


def test_events_that_cannot_be_written_are_told_once(tmp_path):
    said = []
    log = EventLog(tmp_path / "nowhere" / "events.jsonl", said.append)
    log.write("stop", 1)
    log.write("stop", 2)
    assert len(said) == 1
    assert "goes on" in said[0]


STATE = State(500, {"[a]": -12.5, "b": -14.0}, {"[a]": 0.1, "b": np.nan}, {"[a]": 0.8, "b": 0.2})


def test_lines_tell_the_state(capsys):
    display = Lines()
    display.show(STATE)
    told = capsys.readouterr().err
    assert "500 rows" in told
    assert "nan rows" not in told


def test_the_terminal_shows_a_table(capsys):
    display = OnTerminal()
    display.show(STATE)
    display.say("[b] something")
    display.close()
    shown = capsys.readouterr().err
    assert "500 rows" in shown
    assert "[a]" in shown
    assert "unknown" in shown
    assert "[b] something" in shown


def test_without_a_terminal_there_are_lines():
    assert type(choose_display(False)).__name__ == "Lines"
    assert type(choose_display(True)).__name__ == "Quiet"


def test_lines_announce_what_lasts_and_once(monkeypatch):
    monkeypatch.setattr(terminal, "PATIENCE", 0.02)
    stream = io.StringIO()
    lines = Lines(stream)
    lines.announce("reading")
    for _ in range(2):
        lines.announce("compiling")
        time.sleep(0.1)
    lines.announce("waiting")
    lines.close()
    time.sleep(0.1)
    assert stream.getvalue() == "weighbridge: compiling ...\n"


def test_a_terminal_is_told_at_once(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    shown = OnTerminal(stream)
    shown.announce("compiling")
    shown._live.refresh()
    shown.close()
    assert "compiling ..." in stream.getvalue()
    assert "compiling" not in stream.getvalue().splitlines()[-1]


# --- the command -----------------------------------------------------------------------------


def table(path, num_rows, seed=1):
    data = wb.zoo.linear.simulate(num_rows, num_features=2, seed=seed)
    columns = np.column_stack([data["x"], data["y"]])
    np.savetxt(path, columns, delimiter=",", header="a,b,y", comments="", fmt="%.17g")


def start(folder, *arguments, **options):
    few = ["--islands", "4", "--particles", "16", "--chunk-size", "100"]
    return subprocess.Popen(
        [*COMMAND, "watch", *arguments, "--checkpoint", str(folder / "run"), *few],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_the_command_follows_stops_on_a_signal_and_goes_on(tmp_path):
    source = tmp_path / "rows.jsonl"
    data = wb.zoo.linear.simulate(700, num_features=2, seed=1)
    lines = [
        json.dumps({"a": float(x[0]), "b": float(x[1]), "y": float(y)}) + "\n"
        for x, y in zip(data["x"], data["y"])
    ]
    source.write_text("".join(lines[:450]))
    models = ["linear", "linear:2", str(source), "--target", "y", "--follow"]
    process = start(tmp_path, *models)
    wait_for(process, tmp_path / "run", 400)
    with open(source, "a") as file:
        file.write("".join(lines[450:]))
    wait_for(process, tmp_path / "run", 700)
    process.send_signal(signal.SIGTERM)
    _, trouble = process.communicate(timeout=60)
    assert process.returncode == 0, trouble
    assert "stopped at row 700" in trouble
    assert events(tmp_path / "run", "stop")[-1]["reason"] == "signal"
    again = start(tmp_path, *models[:-1])
    told, trouble = again.communicate(timeout=120)
    assert again.returncode == 0, trouble
    assert "resumed at row 700" in trouble
    assert "linear:2" in told
    page = subprocess.run(
        [*COMMAND, "report", str(tmp_path / "run")], capture_output=True, text=True, check=True
    )
    assert "linear:2" in Path(page.stdout.strip()).read_text()


def wait_for(process, folder, rows):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read()
        if (folder / "events.jsonl").exists():
            seen = events(folder, "update")
            if seen and seen[-1]["rows"] >= rows:
                return
        time.sleep(0.1)
    raise AssertionError(f"{rows} rows were not seen")


def test_a_killed_process_goes_on_bit_for_bit(tmp_path):
    table(tmp_path / "rows.csv", 1200)
    models = ["linear", "linear:2", str(tmp_path / "rows.csv"), "--target", "y"]
    often = ["--every-rows", "200", "--reservoir", "500"]
    alone, broken = tmp_path / "alone", tmp_path / "broken"
    for folder in (alone, broken):
        folder.mkdir()
    process = start(alone, *models, *often)
    process.communicate(timeout=120)
    assert process.returncode == 0
    for rows in (300, 900):
        process = start(broken, *models, *often)
        wait_for(process, broken / "run", rows)
        process.kill()
        process.communicate()
    process = start(broken, *models, *often)
    _, trouble = process.communicate(timeout=120)
    assert process.returncode == 0, trouble
    assert saved(broken / "run") == saved(alone / "run")


def here(folder, models, data, target=None, display=None, stop=None, **settings):
    """The command's work, in this process."""
    return watch_table(
        models,
        InputTable(str(folder / data), target=target, follow=settings.pop("follow", False)),
        Plan({}, SMALL, chunk_size=100, **settings),
        folder / "run",
        Keeping(),
        Chunky() if display is None else display,
        threading.Event() if stop is None else stop,
    )


@pytest.mark.parametrize("bad", ["oops", '{"y": [1, 2]}', '{"z": 1}'])
def test_a_watch_goes_on_in_a_new_log_that_begins_with_a_bad_line(tmp_path, bad):
    lines = [json.dumps({"y": float(y)}) + "\n" for y in ROWS]

    class Rotating(Chunky):
        def show(self, state):
            super().show(state)
            if len(self.seen) == 2:
                rotate(alone / "log.jsonl")

    def rotate(log):
        os.remove(log)
        log.write_text(bad + "\n" + "".join(lines[200:]))

    def go(folder, kind, after):
        stop = threading.Event()
        display = kind(stop, after)
        found = here(
            folder,
            ["gaussian"],
            "log.jsonl",
            display=display,
            stop=stop,
            follow=True,
            on_bad_row="skip",
        )
        return found.rows

    alone, broken = tmp_path / "alone", tmp_path / "broken"
    for folder in (alone, broken):
        folder.mkdir()
        (folder / "log.jsonl").write_text("".join(lines[:200]))
    assert go(alone, Rotating, 4) == 399
    assert go(broken, Chunky, 2) == 200
    rotate(broken / "log.jsonl")
    assert go(broken, Chunky, 2) == 399
    arrays, text = saved(broken / "run")
    expected, alone_text = saved(alone / "run")
    assert arrays == expected
    content, expected = json.loads(text), json.loads(alone_text)
    for found in (content, expected):
        assert found["extra"]["cursor"].pop("mark")  # other files
    assert content == expected


def test_models_of_different_views_are_watched_together(tmp_path):
    (tmp_path / "own.py").write_text(
        "import numpyro.distributions as dist\nimport weighbridge as wb\n"
        "model = wb.Model({'w': dist.Normal(0, 1)}, lambda p, row: "
        "dist.Normal(row['a'] * p['w'], 1.0).log_prob(row['y']))\n"
    )
    table(tmp_path / "rows.csv", 300)
    found = here(tmp_path, ["linear", f"{tmp_path}/own.py:model"], "rows.csv", target="y")
    data = wb.zoo.linear.simulate(300, num_features=2, seed=1)
    exact = wb.zoo.linear.log_evidence(data)
    (last,) = events(tmp_path / "run", "update")[-1:]
    assert abs(last["log_evidences"]["linear"] - exact) < 6 * last["std_errors"]["linear"]
    assert list(found.comparison.results) == ["linear", f"{tmp_path}/own.py:model"]


def test_models_with_features_of_their_own_are_watched(tmp_path):
    table(tmp_path / "rows.csv", 300)
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    named = [lines[0] + ",name", *(line + ",bob" for line in lines[1:])]
    (tmp_path / "rows.csv").write_text("\n".join(named) + "\n")
    display = Chunky()
    found = here(tmp_path, ["linear@a", "linear"], "rows.csv", target="y", display=display)
    assert "left out columns that are not numbers: name" in display.said
    data = wb.zoo.linear.simulate(300, num_features=2, seed=1)
    (last,) = events(tmp_path / "run", "update")[-1:]
    for name, width in (("linear@a", 1), ("linear", 2)):
        exact = wb.zoo.linear.log_evidence({"x": data["x"][:, :width], "y": data["y"]})
        assert abs(last["log_evidences"][name] - exact) < 6 * last["std_errors"][name]
    assert list(found.comparison.results) == ["linear@a", "linear"]


def test_a_series_is_watched(tmp_path):
    rng = np.random.default_rng(0)
    series = [0.0]
    for noise in rng.normal(size=400):
        series.append(0.7 * series[-1] + noise)
    np.savetxt(tmp_path / "series.csv", series, header="v", comments="", fmt="%.17g")
    stop = threading.Event()
    here(tmp_path, ["autoregressive:1"], "series.csv", display=Chunky(stop, 2), stop=stop)
    assert here(tmp_path, ["autoregressive:1"], "series.csv").reason == "end"
    (last,) = events(tmp_path / "run", "update")[-1:]
    assert last["rows"] == 400, "the first row is a predecessor only"
    exact = wb.zoo.autoregressive.log_evidence(wb.lagged(np.array(series), 1))
    name = "autoregressive:1"
    assert abs(last["log_evidences"][name] - exact) < 6 * last["std_errors"][name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["linear"], "give one model or more"),
        (["linear", "nowhere.csv"], "nowhere.csv"),
        (["nonsense", "nowhere.csv"], "nonsense"),
        (["linear", "rows.csv", "--target", "y", "--half-life", "-3"], "--half-life must be"),
    ],
)
def test_what_cannot_be_watched_is_told(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    table("rows.csv", 20)
    process = start(tmp_path, *arguments)
    _, trouble = process.communicate(timeout=60)
    assert process.returncode in (1, 2)
    assert message in trouble
    assert "Traceback" not in trouble
