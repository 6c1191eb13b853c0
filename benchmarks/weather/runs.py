"""Runs that are used badly: values beyond all measure, threads, forks, two in one directory."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np

import weighbridge as wb
from benchmarks.weather.verdict import Came, Kind, Place, Verdict
from weighbridge import WeighbridgeError, zoo

TINY = wb.SGAIS(num_islands=2, num_particles=8)
COMMAND = [sys.executable, "-c", "from weighbridge.cli import main; main()", "watch"]
# With as many islands as an error bar wants.
SMALL = wb.SGAIS(num_islands=4, num_particles=32)
# Seconds after which a process is taken to hang.
PATIENCE = 60.0


def huge_value(place: Place) -> Verdict:
    """A row far beyond the others: right within the stated error, flagged, or refused."""
    luck = place.luck
    rows = zoo.gaussian.simulate(250, seed=luck.getrandbits(20))
    clean = wb.Online(zoo.gaussian.model(), SMALL)
    usual = {flag for k in range(0, 250, 50) for flag in clean.update(rows[k : k + 50]).flags}
    size = luck.choice([1e6, 1e9, 1e12, 1e15, 1e18, 1e100, 1e154, 1e300, 1.7e308])
    rows[luck.randrange(50)] = size * luck.choice([1, -1])
    online = wb.Online(zoo.gaussian.model(), SMALL, on_bad_row=luck.choice(["raise", "skip"]))
    for start in range(0, 250, 50):  # the last of them tells what is said for ever after
        update = online.update(rows[start : start + 50])
    if update.num_observations < 250:
        return Verdict(Came.NOTICE, "the row was left out and counted as a bad one")
    with np.errstate(over="ignore"):
        exact = zoo.gaussian.log_evidence(rows)
    return _within(update, exact, usual)


def nanoseconds(place: Place) -> Verdict:
    """A feature that counts nanoseconds since 1970 among others of size one."""
    luck = place.luck
    data = zoo.linear.simulate(100, num_features=2, seed=luck.getrandbits(20))
    usual = set(wb.Online(zoo.linear.model(2), SMALL).update(data).flags)
    data["x"][:, luck.randrange(2)] = 1.7e18 + 1e9 * np.arange(100)
    online = wb.Online(zoo.linear.model(2), SMALL)
    update = online.update(data)
    exact = zoo.linear.log_evidence(data)
    return _within(update, exact, usual)


def _within(update: wb.Update, exact: float, usual: set[wb.Status]) -> Verdict:
    """Right, or with a flag that the same rows without the huge one do not have."""
    found, error = update.log_evidence, update.std_error
    flags = [flag.name for flag in update.flags if flag not in usual]
    off = abs(found - exact)
    words = f"{found} +- {error}, exact {exact}, {', '.join(flags)}"
    if flags or math.isnan(error):
        return Verdict(Came.NOTICE, words)
    if math.isfinite(off) and off <= 6 * error:
        return Verdict(Came.RIGHT, words)
    return Verdict(Came.DIFFERENT, words)


def threads(place: Place) -> Verdict:
    """Updates from several threads: all rows count, or those of the calls that were refused not."""
    number, size = place.luck.choice([2, 4, 8]), 25
    rows = zoo.gaussian.simulate(4 * number * size, seed=1)
    online = wb.Online(zoo.gaussian.model(), TINY)
    online.update(rows[:size])  # compiles
    accepted, refused, others = [0], [0], list[BaseException]()
    barrier = threading.Barrier(number)

    def work(first: int) -> None:
        barrier.wait()
        for start in range(first, first + 3 * size, size):
            try:
                online.update(rows[start : start + size])
                accepted[0] += size
            except WeighbridgeError:
                refused[0] += size
            except BaseException as error:
                others.append(error)

    workers = [threading.Thread(target=work, args=[size + 3 * k * size]) for k in range(number)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if others:
        raise others[0]
    expected, counted = size + accepted[0], online.num_observations
    if counted != expected:
        came = Came.LOST if counted < expected else Came.TWICE
        return Verdict(came, f"{counted} of {expected} rows count")
    return Verdict(Came.REFUSED if refused[0] else Came.RIGHT, f"{refused[0]} rows refused")


def fork(place: Place) -> Verdict:
    """A run that a forked process goes on with: a clear error there, and the parent goes on."""
    online = wb.Online(zoo.gaussian.model(), TINY)
    rows = zoo.gaussian.simulate(60, seed=place.luck.getrandbits(20))
    online.update(rows[:40])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX itself warns of the fork
        child = os.fork()
    if not child:
        code = 3
        try:
            online.update(rows[40:])
            code = 0
        except WeighbridgeError:
            code = 1
        except BaseException:
            code = 2
        finally:
            os._exit(code)
    code = _wait(child, PATIENCE)
    if online.update(rows[40:]).num_observations != 60:
        return Verdict(Came.LOST, "in the parent")
    if code is None:
        return Verdict(Came.HANG, "the forked process")
    outcomes = {0: Came.RIGHT, 1: Came.REFUSED, 2: Came.UNTYPED}
    return Verdict(outcomes.get(code, Came.DIED), f"the forked process ended with {code}")


def _wait(child: int, seconds: float) -> int | None:
    """The exit code of a process; None if it had to be killed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def two_watches(place: Place) -> Verdict:
    """Two processes with one run directory: the second is refused, and told by whom."""
    rows = zoo.gaussian.simulate(200, seed=place.luck.getrandbits(20))
    source, run = place.folder / "rows.jsonl", place.folder / "run"
    source.write_text("".join(json.dumps({"y": y}) + "\n" for y in rows.tolist()))
    command = [*COMMAND, "gaussian", str(source), "--follow", "--checkpoint", str(run), "--quiet"]
    command += ["--chunk-size", "50", "--every-rows", "50", "--islands", "2", "--particles", "8"]
    command += ["--changes", "off"]
    watches = [_start(command)]
    try:
        _wait_for_rows(run, 200)
        watches.append(_start(command))
        refused = _ended(watches[1], PATIENCE)
        with open(source, "a") as file:
            file.write("".join(json.dumps({"y": y}) + "\n" for y in rows.tolist()))
        _wait_for_rows(run, 400)
        watches[0].send_signal(signal.SIGTERM)
        watches[0].communicate(timeout=PATIENCE)
    finally:
        for watch in watches:
            watch.kill()
            watch.communicate()
    updates = [line["rows"] for line in _events(run) if line["event"] == "update"]
    if updates != list(range(50, 401, 50)):
        return Verdict(Came.TWICE, f"updates at rows {updates}")
    if refused is None:
        return Verdict(Came.SILENT, "the second watch was not refused")
    code, words = refused
    if code != 1 or "Traceback" in words:
        return Verdict(Came.UNTYPED, words[-300:])
    named = re.search(rf"\b{watches[0].pid}\b", words)
    return Verdict(Came.REFUSED if named else Came.SILENT, words)


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, stdin=subprocess.PIPE
    )


def _ended(process: subprocess.Popen[str], seconds: float) -> tuple[int, str] | None:
    try:
        _, words = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    return process.returncode, words


def _events(run: Path) -> list[dict[str, object]]:
    try:
        lines = (run / "events.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def _wait_for_rows(run: Path, rows: int) -> None:
    end = time.monotonic() + 2 * PATIENCE
    while not any(line["event"] == "update" and line["rows"] == rows for line in _events(run)):
        if time.monotonic() > end:
            raise TimeoutError(f"{rows} rows were not seen")
        time.sleep(0.1)


KINDS = (
    Kind("values", "one row far beyond the others", huge_value, 15, seconds=180),
    Kind("values", "nanoseconds as a feature", nanoseconds, 5, seconds=180),
    Kind("runs", "updates from several threads", threads, 4, seconds=180),
    Kind("runs", "a run taken along by fork", fork, 2, seconds=300, fresh=True),
    Kind("runs", "two watches in one directory", two_watches, 2, seconds=400),
)
