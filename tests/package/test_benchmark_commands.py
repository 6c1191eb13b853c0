"""Every benchmark that a text, a comment or a Makefile names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"\bbenchmarks(?:\.[a-z_0-9]+)+")
COMMAND = re.compile(r"-m\s+(benchmarks(?:\.[a-z_0-9]+)*)")


def texts():
    """What people and programs read, but for the results and what was true once."""
    folders = ("benchmarks", "docs", "tests", "tools", "weighbridge")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    found += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    return [path for path in found if path.suffix in (".py", ".md", "") and path != Path(__file__)]


def is_there(name):
    """Whether a dotted name begins with a module of the benchmarks; the rest are its members."""
    parts = name.split(".")
    while parts[1:]:
        path = ROOT.joinpath(*parts)
        if path.with_suffix(".py").exists():
            return True
        if path.is_dir():
            return path.joinpath("__init__.py").exists() and len(parts) == name.count(".") + 1
        parts.pop()
    return False


def runs(name):
    """Whether ``python -m name`` runs something."""
    path = ROOT.joinpath(*name.split("."))
    file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    return file.exists() and "__main__" in file.read_text()


def test_a_name_that_is_not_there_is_found():
    assert is_there("benchmarks.peers.worker")
    assert is_there("benchmarks.report.write")
    assert not is_there("benchmarks.sgais.nonsense")
    assert not is_there("benchmarks.nonsense")
    assert runs("benchmarks.nuts")
    assert not runs("benchmarks.sgais")


def test_every_benchmark_that_is_named_is_there():
    wrong = [
        (str(path.relative_to(ROOT)), name)
        for path in texts()
        for name in NAMED.findall(path.read_text())
        if not is_there(name)
    ]
    assert not wrong


def test_every_command_runs():
    commands = {name for path in texts() for name in COMMAND.findall(path.read_text())}
    assert len(commands) > 20
    assert not [name for name in commands if not runs(name)]


def test_every_folder_and_its_commands_are_in_the_list():
    listed = (ROOT / "benchmarks" / "README.md").read_text()
    folders = {path.parent.name for path in (ROOT / "benchmarks").glob("*/__init__.py")}
    assert folders == set(re.findall(r"^\| `(\w+)/`", listed, re.MULTILINE))
    made = set(COMMAND.findall((ROOT / "Makefile").read_text())) - {"benchmarks"}
    assert made <= set(COMMAND.findall(listed))
