"""The command line: what goes to which stream, the exit codes, and what mistakes are told."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import weighbridge
import weighbridge as wb
from weighbridge import Evidence, cli, lagged, zoo
from weighbridge.cli import commands
from weighbridge.cli.named_models import load_all
from weighbridge.cli.tables import InputTable
from weighbridge.data.sources.csv_file import count_csv_rows
from weighbridge.data.sources.opening import open_source

pytestmark = pytest.mark.long

SMALL = ["--islands", "4", "--particles", "8", "--chunk-size", "50", "--batch-size", "25"]
QUICK = ["--method", "prior_sampling", "--islands", "4", "--particles", "64"]
COMMAND = [sys.executable, "-c", "from weighbridge.cli import main; main()"]
USER_FILE = """
from __future__ import annotations
from dataclasses import dataclass

import numpyro.distributions as dist
import weighbridge as wb


@dataclass
class Scale:
    value: float


def log_likelihood(p, row):
    return dist.Normal(p["mu"], Scale(1.0).value).log_prob(row["v"])


mean = wb.Model(prior={"mu": dist.Normal(0, 1)}, log_likelihood=log_likelihood)
number = 3


def made():
    return mean


def needs(something):
    return mean
"""
REGRESSION = """
import jax.numpy as jnp
import numpyro.distributions as dist
import weighbridge as wb

PRIOR = {"w": dist.Normal(0, 1).expand([2]).to_event(1), "b": dist.Normal(0, 1)}


def log_likelihood(p, row):
    line = p["w"][0] * row["a"] + p["w"][1] * row["b"] + p["b"]
    return dist.Normal(line, 1.0).log_prob(row["out"])


def of_groups(p, row):
    return dist.Normal(p["w"][row["group"]] + p["b"] * row["a"], 1.0).log_prob(row["out"])


model = wb.Model(PRIOR, log_likelihood)
grouped = wb.Model(PRIOR, of_groups)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with tables and a model, where the command is run."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    values = zoo.gaussian.simulate(120, seed=1)
    write("one.csv", "v", values[:, None])
    a, b = generator.normal(5, 3, size=(2, 120))
    target = a - 0.5 * b + generator.normal(size=120)
    write("table.csv", "a,b,out", np.c_[a, b, target])
    named = [f"{x:.6f},{y:.6f},bob" for x, y in zip(a, target)]
    Path("named.csv").write_text("a,out,name\n" + "\n".join(named) + "\n")
    np.savez("one.npz", v=values)
    Path("my.py").write_text(USER_FILE)
    return tmp_path


def write(name, header, rows):
    np.savetxt(name, rows, delimiter=",", header=header, comments="", fmt="%.6f")


def run(*arguments, code=0, stdin=None):
    """Run a command in this process; it must end with this code and without a traceback."""
    words = [word for argument in arguments for word in argument.split()]
    result = CliRunner().invoke(cli.app, words, input=stdin)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def refused(*arguments, says=(), code=1, stdin=None):
    result = run(*arguments, code=code, stdin=stdin)
    assert result.stdout == ""
    told = " ".join(result.stderr.replace("│", " ").split())
    for part in says:
        assert part in told, told
    return result


# --- results ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_evidence_of_a_zoo_model():
    result = run("evidence gaussian one.csv", *SMALL)
    assert result.stdout.startswith("log evidence -")
    assert "(sgais, 120 observations, " in result.stdout
    lines = [line.split("  ")[0] for line in result.stderr.splitlines() if " rows " in line]
    # Lines become sparse with time: how many there are depends on the machine.
    assert set(lines) <= {"50 of 120 rows", "100 of 120 rows", "120 of 120 rows"}


@pytest.mark.usefixtures("folder")
def test_json_is_one_line_and_right():
    result = run("evidence gaussian one.csv --json --quiet --seed 3", *SMALL)
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    content = json.loads(result.stdout)
    exact = zoo.gaussian.log_evidence(np.loadtxt("one.csv", skiprows=1))
    assert abs(content["log_evidence"] - exact) < 5 * content["std_error"]
    assert content["num_observations"] == 120
    again = run("evidence gaussian one.npz --json --quiet --seed 3", *SMALL)
    # The same numbers to the six places of the CSV.
    assert json.loads(again.stdout)["log_evidence"] == pytest.approx(
        content["log_evidence"], abs=1e-3
    )


@pytest.mark.usefixtures("folder")
def test_standard_input_and_user_models():
    text = Path("one.csv").read_text()
    by_zoo = run("evidence gaussian - --json", *SMALL, stdin=text)
    assert by_zoo.stderr.startswith("50 rows  ")
    by_user = run("evidence my.py:mean - --json --quiet", *SMALL, stdin=text)
    values = [json.loads(result.stdout) for result in (by_zoo, by_user)]
    assert values[0]["log_evidence"] == pytest.approx(values[1]["log_evidence"])


@pytest.mark.usefixtures("folder")
def test_compare_plots_and_saves():
    result = run("compare my.py:mean my.py:made gaussian:2 one.csv --plot paths.png", *SMALL)
    lines = result.stdout.splitlines()
    assert "log Bayes factor" in lines[0]
    assert {line.split()[0] for line in lines[1:4]} == {"my.py:mean", "my.py:made", "gaussian:2"}
    assert lines[4] == "120 observations"
    assert "my.py:mean: 50 of 120 rows" in result.stderr
    assert Path("paths.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads(run("compare gaussian gaussian:2 one.csv --json", *SMALL).stdout)
    assert content["best"] == "gaussian"
    assert set(content["status"]) == {"gaussian", "gaussian:2"}
    saved = run("evidence gaussian one.csv --save out --plot one.svg --quiet", *SMALL)
    assert str(Evidence.load("out")) == saved.stdout.rstrip()
    assert "<svg" in Path("one.svg").read_text()


@pytest.mark.usefixtures("folder")
def test_features_target_and_standardising():
    plain = run("evidence linear table.csv --target out --features a --json", *SMALL)
    assert json.loads(plain.stdout)["num_observations"] == 120
    named = run("evidence linear named.csv --target out --json", *SMALL)
    assert "left out columns that are not numbers: name" in named.stderr
    values = [json.loads(result.stdout)["log_evidence"] for result in (plain, named)]
    assert values[0] == values[1]
    scaled = run("evidence linear table.csv --target out --features a --standardise", *SMALL)
    a = np.loadtxt("table.csv", delimiter=",", skiprows=1)[:, 0]
    assert f"a ({a.mean():.4g}, {a.std():.4g})" in scaled.stderr
    assert "the evidence refers to the standardised columns" in scaled.stderr
    assert "standardised" not in scaled.stdout


def test_standardising_is_exact_over_blocks(folder, monkeypatch):
    monkeypatch.setattr("weighbridge.data.sources.csv_records.BLOCK_BYTES", 256)
    table, loaded = InputTable("table.csv", target="out", standardise=True), load_all(["linear"])
    scales = commands._measure(table.open(loaded), table, loaded)
    values = np.loadtxt("table.csv", delimiter=",", skiprows=1)[:, :2]
    np.testing.assert_allclose([scales[name][0] for name in "ab"], values.mean(axis=0))
    np.testing.assert_allclose([scales[name][1] for name in "ab"], values.std(axis=0))


@pytest.mark.usefixtures("folder")
def test_every_model_has_features_of_its_own():
    own = run("compare linear@a linear@a,b table.csv --target out --json", *QUICK)
    told = json.loads(own.stdout)["log_evidences"]
    assert list(told) == ["linear@a", "linear@a,b"]
    for name, features in (("linear@a", "a"), ("linear@a,b", "a,b")):
        alone = run(f"evidence linear table.csv --target out --features {features} --json", *QUICK)
        assert json.loads(alone.stdout)["log_evidence"] == told[name]
    # Beside a model that takes all columns, and one from a file that reads what it wants.
    Path("file.py").write_text(REGRESSION)
    mixed = run("compare linear@b linear file.py:model@a,b table.csv --target out --json", *QUICK)
    told = json.loads(mixed.stdout)["log_evidences"]
    assert told["linear"] == json.loads(own.stdout)["log_evidences"]["linear@a,b"]
    assert set(told) == {"linear@b", "linear", "file.py:model@a,b"}


@pytest.mark.usefixtures("folder")
def test_a_row_with_a_gap_in_the_features_of_one_model_is_left_out_for_all():
    rows = Path("table.csv").read_text().splitlines()
    rows[3] = "1.0,,2.0"
    Path("gap.csv").write_text("\n".join(rows))
    models = "compare linear@a linear@a,b gap.csv --target out"
    skipped = run(f"{models} --on-bad-row skip", *QUICK)
    assert "119 observations, 1 skipped" in skipped.stdout
    refused(models, says=["row 2", "column 'b' is nan"])


@pytest.mark.usefixtures("folder")
def test_a_model_from_a_file_is_standardised_too():
    Path("file.py").write_text(REGRESSION)
    text = "table.csv --target out --standardise --json"
    own = json.loads(run(f"evidence file.py:model {text}", *QUICK).stdout)
    zoo_one = json.loads(run(f"evidence linear {text}", *QUICK).stdout)
    # The same model, written down by a user, with the same draws from its prior.
    assert np.isclose(own["log_evidence"], zoo_one["log_evidence"], rtol=1e-9)
    # What --schema calls int stays as it is: here an index, which only a whole number can be.
    values = np.loadtxt("table.csv", delimiter=",", skiprows=1)
    groups = [f"{a:.6f},{int(a > 5)},{y:.6f}" for a, _, y in values]
    Path("groups.csv").write_text("a,group,out\n" + "\n".join(groups) + "\n")
    grouped = "evidence file.py:grouped groups.csv --target out --standardise"
    refused(grouped, says=["fails on one row", "group: float64"])
    run(f"{grouped} --schema group=int", *QUICK)


def test_features_behind_a_model_are_told_from_a_path():
    assert load_all(["linear@a, b"])["linear@a, b"].features == ("a", "b")
    with pytest.raises(wb.ModelError, match=r"There is no file 'me@home/my.py'"):
        load_all(["me@home/my.py:model"])
    for wrong, says in (("linear@", "no columns after the @"), ("linear@a,a", "names 'a' twice")):
        with pytest.raises(wb.DataError, match=says):
            load_all([wrong])


@pytest.mark.usefixtures("folder")
def test_bad_rows_are_refused_or_counted():
    rows = Path("one.csv").read_text().splitlines()
    rows[8] = "nan"
    rows[20] = "inf"
    Path("bad.csv").write_text("\n".join(rows))
    says = ["row 7 (counting from 0)", "column 'v' is nan", "use --on-bad-row skip"]
    refused("evidence gaussian bad.csv", *SMALL, says=says)
    skipped = run("evidence gaussian bad.csv --on-bad-row skip", *SMALL)
    assert "118 observations, 2 skipped" in skipped.stdout
    compared = run("compare gaussian gaussian:2 bad.csv --on-bad-row skip", *SMALL)
    assert "118 observations, 2 skipped" in compared.stdout


@pytest.mark.usefixtures("folder")
def test_orders_of_a_series_are_compared_on_the_same_rows():
    series = zoo.autoregressive.simulate(120, seed=2)
    write("series.csv", "weight", series[:, None])  # no name is special in a series
    series = np.loadtxt("series.csv", skiprows=1)
    specs = "autoregressive:1 autoregressive:2 gaussian"
    result = run(f"compare {specs} series.csv --json", *SMALL)
    assert "conditional on the first 2 rows" in result.stderr
    assert "of 118 rows" in result.stderr
    content = json.loads(result.stdout)
    rows = lagged(series, 2)
    exact = {
        "autoregressive:1": zoo.autoregressive.log_evidence(rows, order=1),
        "autoregressive:2": zoo.autoregressive.log_evidence(rows, order=2),
        "gaussian": zoo.gaussian.log_evidence(series[2:]),
    }
    for spec, value in exact.items():
        error = content["std_errors"][spec]
        assert abs(content["log_evidences"][spec] - value) < 5 * error
    assert content["num_observations"] == 118
    by_pipe = run(f"compare {specs} - --json --quiet", *SMALL, stdin=Path("series.csv").read_text())
    assert json.loads(by_pipe.stdout)["log_evidences"] == content["log_evidences"]


def test_rows_are_counted_as_they_are_read(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text('v,text\n1,"two\nlines"\n\n2,plain\n3,"a ""quote"""')
    source = open_source(path)
    rows = sum(commands.num_rows(block) for block in source.blocks())
    assert InputTable(str(path)).count_rows(source) == rows == 3
    path.write_text("v,w\n1\n")
    assert count_csv_rows(path) is None  # the reader says what is wrong


def test_models():
    lines = run("models").stdout.splitlines()
    assert [line.split("[")[0] for line in lines] == list(zoo.entries())
    assert "needs --target" in lines[0]


def test_version_and_help():
    assert run("--version").stdout == f"weighbridge {weighbridge.__version__}\n"
    told = " ".join(run("--help").stdout.split())
    for part in ("Exit codes: 0 done, 1 ", "2 wrong usage, 130 interrupted", "evidence", "demo"):
        assert part in told


# --- mistakes --------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("evidence gaussian on.csv", ["no file 'on.csv'", "Did you mean 'one.csv'?"]),
        ("evidence gaussian my.py", ["'.py'", ".csv, .parquet, .npz"]),
        ("evidence gausian one.csv", ["'gausian'", "Did you mean 'gaussian'?"]),
        ("evidence gaussian:x one.csv", ["'gaussian' is the noise", "'x'"]),
        ("evidence gaussian one.csv --method sgas", ["'sgas'", "Did you mean 'sgais'?"]),
        ("evidence gaussian table.csv", ["one column, not 3", "a, b, out", "--features"]),
        ("evidence gaussian one.csv --target v", ["no target", "leave out --target"]),
        ("evidence linear table.csv", ["--target", "a, b, out"]),
        ("evidence linear table.csv --target z", ["'z' for --target", "a, b, out"]),
        ("evidence linear named.csv --target name", ["target 'name' does not hold numbers"]),
        ("evidence linear one.csv --target v", ["besides the target"]),
        ("evidence linear table.csv --target out --features a,z", ["no column 'z'"]),
        ("evidence linear table.csv --target out --features a,out", ["'out' is also named"]),
        ("evidence linear table.csv --target out --features a,a", ["names 'a' twice"]),
        ("evidence linear table.csv --target out --features ,", ["--features is empty"]),
        ("evidence linear named.csv --target out --features name", ["'bob' at row 0"]),
        ("evidence gaussian one.csv --schema v=text", ["'v=text'", "column=float"]),
        ("evidence gaussian one.csv --schema =float", ["'=float'"]),
        ("evidence gaussian one.csv --schema q=float", ["no column 'q'"]),
        ("evidence gaussian one.csv --schema v=int", ["--schema v=float"]),
        ("evidence gaussian one.csv --features v --schema q=int", ["'q'", "--features"]),
        ("evidence gaussian one.csv --plot a.foo", ["a.foo", ".png"]),
        ("evidence gaussian one.csv --plot nowhere/a.png", ["no folder 'nowhere'"]),
        ("evidence gaussian one.csv --save nowhere/a", ["no folder 'nowhere'"]),
        ("compare gaussian gaussian one.csv", ["named twice"]),
        ("compare linear mixture:2 table.csv --target out", ["linear predicts", "mixture:2"]),
        ("compare gaussian gaussian:2 one.csv --plot a.foo", ["a.foo"]),
        ("evidence softmax table.csv --target out", ["label is not an integer", "column 'out'"]),
        ("evidence my.py one.csv", ["my.py:NAME"]),
        ("evidence my.py: one.csv", ["it has mean"]),
        ("evidence my.py:nope one.csv", ["no wb.Model named 'nope'", "it has mean"]),
        ("evidence my.py:number one.csv", ["no wb.Model named 'number'"]),
        ("evidence my.py:needs one.csv", ["needs() in my.py fails", "without arguments"]),
        ("evidence other.py:x one.csv", ["no file 'other.py'"]),
        ("evidence my.py:mean table.csv", ["KeyError: 'v'"]),
        (
            "evidence my.py:mean one.csv --standardise",
            ["every column except the target", "--target"],
        ),
        ("evidence linear@a,z table.csv --target out", ["no column 'z'", "a, b, out"]),
        ("compare linear linear@z table.csv --target out", ["no column 'z'", "a, b, out"]),
        ("compare linear linear@name named.csv --target out", ["'name' was left out", "numbers"]),
        ("evidence linear@a,out table.csv --target out", ["'out' is also named in 'linear@a,out'"]),
        ("compare gaussian@a gaussian@b table.csv", ["describe different columns"]),
        ("compare my.py:mean autoregressive:2 one.csv", ["autoregressive:2", "wb.lagged"]),
        ("evidence autoregressive:120 one.csv", ["120 rows", "order=120", "smaller order"]),
        ("evidence autoregressive table.csv", ["one column, not 3", "--features"]),
        ("demo --rows 100", ["at least 1,000 rows, not 100"]),
        ("demo --output nowhere/a.png", ["no folder 'nowhere'"]),
    ],
)
def test_mistakes(arguments, says):
    refused(arguments, says=says)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("evidence", ["MODEL"]),
        ("evidence gaussian", ["DATA"]),
        ("compare gaussian one.csv", ["two models or more"]),
        ("evidnce", ["'evidence'"]),
        ("evidence gaussian one.csv --islands 0", ["--islands"]),
        ("evidence gaussian one.csv --islands four", ["--islands"]),
        ("evidence gaussian one.csv --particles 1", ["--particles"]),
        ("evidence gaussian one.csv --chunk-size -5", ["--chunk-size"]),
        ("evidence gaussian one.csv --batch-size 0", ["--batch-size"]),
        ("evidence gaussian one.csv --seed -1", ["--seed"]),
        ("evidence gaussian one.csv --on-bad-row skp", ["--on-bad-row", "'raise'", "'skip'"]),
    ],
)
def test_wrong_usage(arguments, says):
    refused(arguments, code=2, says=says)


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        ("", ["The CSV is empty"]),
        ("v\n", ["no rows after the header"]),
        ("1.0\n2.0\n", ["no header"]),
        ("v\n" + "1.5\n" * 50 + "oops\n", ["'v'", "'oops' at row 50", "--features"]),
        ("v,w\n1,2\n3\n", ["Row 1", "1 fields"]),
    ],
)
def test_bad_streams(stdin, says):
    refused("evidence gaussian -", stdin=stdin, says=says)
    refused(
        "evidence mixture:2 - --standardise", stdin="v\n1.5\n", says=["a stream", "Give a file"]
    )


@pytest.mark.usefixtures("folder")
def test_a_file_that_fails_names_its_line():
    Path("broken.py").write_text("import math\n\nmath.sqrt(-1)\n")
    refused("evidence broken.py:x one.csv", says=["broken.py fails at line 3", "ValueError"])
    Path("wrong.py").write_text("def (:\n")
    refused("evidence wrong.py:x one.csv", says=["wrong.py fails", "SyntaxError"])
    Path("leaving.py").write_text("raise SystemExit(0)\n")
    refused("evidence leaving.py:x one.csv", says=["leaving.py fails at line 1"])


def test_an_interrupt_within_a_command(folder, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "weigh", interrupt)
    refused("evidence gaussian one.csv", code=130, says=["interrupted"])


class Pressing:
    """A reporter that presses Ctrl-C at the first report."""

    def start(self, total):
        pass

    def update(self, rows, log_evidence, annealing_steps, label=""):
        signal.raise_signal(signal.SIGINT)

    def close(self):
        pass


@pytest.fixture
def ctrl_c(monkeypatch):
    monkeypatch.setattr("weighbridge.core.progress.reporters.choose_reporter", lambda _: Pressing())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("folder", "ctrl_c")
def test_an_interrupt_shows_what_there_is():
    result = run("evidence gaussian one.csv --save partial", *SMALL, code=130)
    assert "interrupted: the run was stopped" in result.stdout
    assert "(sgais, 50 observations" in result.stdout
    assert Evidence.load("partial").status is weighbridge.Status.INTERRUPTED


@pytest.mark.usefixtures("folder", "ctrl_c")
def test_an_interrupt_of_a_comparison_before_all_models_have_something():
    """The first report is that of the first model: there is nothing of the second."""
    result = CliRunner().invoke(cli.app, ["compare", "gaussian", "mixture:1", "one.csv", *SMALL])
    assert result.exit_code == 130
    assert "interrupted" in result.stderr


def test_a_bug_is_not_hidden(folder, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(commands, "weigh", fail)
    result = CliRunner().invoke(cli.app, ["evidence", "gaussian", "one.csv"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_the_result_is_printed_before_files_fail(folder, monkeypatch):
    def full(*_):
        raise weighbridge.CheckpointError("Could not write out: disk full.")

    monkeypatch.setattr(Evidence, "save", full)
    result = run("evidence gaussian one.csv --save out --json --quiet", *SMALL, code=1)
    assert json.loads(result.stdout)["num_observations"] == 120
    assert result.stderr == "weighbridge: Could not write out: disk full.\n"


# --- real processes --------------------------------------------------------------------------


def test_help_imports_nothing_heavy():
    code = (
        "import sys, weighbridge.cli\n"
        "heavy = {'jax', 'numpyro', 'rich', 'numpy', 'matplotlib', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_is_quick():
    def seconds():
        # Of the processor: whoever else is at work on the machine does not count.
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*COMMAND, "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.5


def test_a_whole_process(folder):
    done = subprocess.run(
        [*COMMAND, "evidence", "gaussian", "-", "--json", *SMALL],
        input=Path("one.csv").read_bytes(),
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["num_observations"] == 120
    assert len(done.stderr.splitlines()) <= 4, "sparse, whatever the number of chunks"
    assert b" of 120 rows" in done.stderr or b"rows  log evidence" in done.stderr
    wrong = subprocess.run([*COMMAND, "evidence", "nope", "one.csv"], capture_output=True)
    assert (wrong.returncode, wrong.stdout) == (1, b"")
    assert wrong.stderr.splitlines()[-1].startswith(b"weighbridge: There is no model 'nope'.")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("delay", [0.1, 1.5])
def test_interrupting_a_process(delay):
    """While modules are imported, and while a stream is waited for."""
    code = (
        "import signal, sys; from weighbridge.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # not as in the background\n"
        "print('ready', flush=True); main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "evidence", "gaussian", "-", *SMALL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"ready\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err.endswith(b"weighbridge: interrupted\n")
    assert err.count(b"\n") <= 3, "beside what it was doing"


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")
def test_a_bar_on_a_terminal(folder):
    import pty

    main_end, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "evidence", "gaussian", "one.csv", *SMALL],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "COLUMNS": "80", "TERM": "xterm"},
    )
    os.close(terminal)
    shown = io.BytesIO()
    while True:
        try:
            piece = os.read(main_end, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown.write(piece)
    out, _ = process.communicate()
    os.close(main_end)
    text = shown.getvalue().decode()
    assert process.returncode == 0
    assert out.startswith(b"log evidence -")
    assert "120/120 rows" in text
    assert "left" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


@pytest.mark.usefixtures("folder")
def test_methods_that_take_all_rows_at_once():
    small = ("--islands", "4", "--particles", "16")
    result = run(
        "evidence linear table.csv --target out --features a,b --method smc --json", *small
    )
    answer = json.loads(result.stdout)
    assert answer["method"] == "smc"
    assert answer["std_error"] > 0
    run("evidence linear table.csv --target out --method smc --chunk-size 5", *small, code=1)


# --- more islands, and figures ---------------------------------------------------------------

FEW = ("--islands", "4", "--particles", "16")


@pytest.mark.usefixtures("folder")
def test_a_tolerance_adds_islands():
    once = json.loads(run("evidence gaussian one.csv --method smc --json", *FEW).stdout)
    tolerance = str(0.7 * once["std_error"])
    more = run("evidence gaussian one.csv --method smc --json --tolerance", tolerance, *FEW)
    answer = json.loads(more.stdout)
    assert answer["std_error"] <= 0.7 * once["std_error"]
    assert answer["status"] == ["OK"]
    compared = json.loads(
        run("compare gaussian gaussian:2 one.csv --method smc --json --tolerance 0.3", *FEW).stdout
    )
    assert all(error <= 0.3 for error in compared["std_errors"].values())


@pytest.mark.usefixtures("folder")
def test_a_file_is_read_again_for_a_tolerance_and_a_pipe_is_not():
    once = json.loads(run("evidence gaussian one.csv --json --quiet", *SMALL).stdout)
    wanted = ("--tolerance", str(0.8 * once["std_error"]), "--time-limit", "60", "--json")
    again = json.loads(run("evidence gaussian one.csv --quiet", *wanted, *SMALL).stdout)
    assert again["std_error"] < once["std_error"]
    assert again["num_observations"] == 120
    piped = run("evidence gaussian - --quiet", *wanted, *SMALL, stdin=Path("one.csv").read_text())
    answer = json.loads(piped.stdout)
    assert "TOLERANCE_NOT_REACHED" in answer["status"]
    assert answer["std_error"] == pytest.approx(once["std_error"])


@pytest.mark.usefixtures("folder")
def test_a_time_limit_ends_the_rounds():
    wanted = ("--tolerance", "1e-6", "--time-limit", "0.001")
    result = run("evidence gaussian one.csv --method ais --quiet", *wanted, *FEW)
    assert "tolerance not reached" in result.stdout
    assert result.stderr == ""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("evidence gaussian one.csv --tolerance 0", ["--tolerance must be positive, not 0.0"]),
        ("evidence gaussian one.csv --time-limit -1", ["--time-limit must be positive"]),
        ("compare gaussian gaussian:2 one.csv --tolerance -1", ["--tolerance must be positive"]),
        (
            "evidence gaussian one.csv --tolerance 0.1 --method published",
            ["A tolerance needs", "four or more islands"],
        ),
        ("evidence gaussian one.csv --tolerance 0.1 --islands 3", ["four or more islands"]),
        (
            "evidence gaussian one.csv --method smc --chunk-size 5",
            ["smc has no --chunk-size; it has --particles, --islands."],
        ),
    ],
)
def test_limits_that_mean_nothing(arguments, says):
    refused(arguments, says=says)


@pytest.mark.usefixtures("folder")
def test_figures_of_tempered_runs():
    run("evidence gaussian one.csv --method smc --quiet --plot path.png", *FEW)
    assert Path("path.png").read_bytes().startswith(b"\x89PNG")
    run("compare gaussian gaussian:2 one.csv --method smc --quiet --plot factors.svg", *FEW)
    assert "log Bayes factor" in Path("factors.svg").read_text()


def test_help_names_every_method_and_limit():
    from weighbridge.estimators.registry import METHODS

    for command in ("evidence", "compare"):
        told = run(command, "--help").stdout
        for part in (*METHODS, "--tolerance", "--time-limit", "--plot"):
            assert part in told


def test_the_default_method_takes_a_total_log_likelihood(tmp_path):
    """The issue: auto refused it; it takes SMC and says so."""
    (tmp_path / "whole.py").write_text(
        "import numpyro.distributions as dist, weighbridge as wb\n"
        "model = wb.Model({'m': dist.Normal(0, 1)}, total_log_likelihood=lambda p, rows: "
        "dist.Normal(p['m'], 1).log_prob(rows['y']).sum())\n"
    )
    (tmp_path / "rows.csv").write_text("y\n0.5\n1.0\n-0.25\n")
    told = run("evidence", str(tmp_path / "whole.py") + ":model", str(tmp_path / "rows.csv"))
    assert "auto" in told.stdout
    assert "(smc" in told.stdout


def test_the_package_can_be_run_as_a_module():
    words = [sys.executable, "-m", "weighbridge.cli", "models"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "mixture" in told
