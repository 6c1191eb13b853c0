"""One list of public names, in ``weighbridge/__init__.pyi``."""

import ast
import pydoc
import re
import types
from collections import Counter
from pathlib import Path

import pytest

import weighbridge as wb

STUB = ast.parse(Path(wb.__file__).with_suffix(".pyi").read_text())


def test_every_public_name_is_what_its_home_calls_so():
    for name in wb.__all__:
        found = getattr(wb, name)
        assert isinstance(found, types.ModuleType) or found.__name__ == name


def test_no_name_is_listed_twice_or_under_another_one():
    entries = [e for node in STUB.body if isinstance(node, ast.ImportFrom) for e in node.names]
    assert max(Counter(entry.name for entry in entries).values()) == 1
    assert all(entry.asname == entry.name for entry in entries)


def test_no_module_has_the_name_of_a_public_function():
    # Importing weighbridge.evidence, say, would put a module in the place of the function.
    functions = {n for n in wb.__all__ if isinstance(getattr(wb, n), types.FunctionType)}
    assert {"evidence", "sample", "watch"} <= functions
    modules = {path.stem for path in Path(wb.__file__).parent.iterdir()}
    assert not modules & functions


def test_the_root_of_the_package_holds_no_module():
    root = Path(wb.__file__).parent
    found = {path.name for path in root.iterdir() if path.is_file()}
    assert found == {"__init__.py", "__init__.pyi", "py.typed"}


def test_another_name_is_an_attribute_error():
    misspelt = "evidense"
    with pytest.raises(AttributeError, match="'weighbridge' has no attribute 'evidense'"):
        getattr(wb, misspelt)


def test_help_begins_with_a_map_of_all_public_names():
    """The first screen of help(wb), before what each of them says of itself."""
    topics = wb.__doc__.split("The names by topic:")[1]
    words = Counter(re.findall(r"\w+", re.sub(r"\(.*?\)", "", topics)))
    assert [name for name in wb.__all__ if name not in words] == []
    # What looks like a name is one; the rest are plain words.
    assert {w for w in words if w[1:] != w[1:].lower() or "_" in w} <= set(wb.__all__)
    assert len(wb.__doc__.splitlines()) < 50
    assert pydoc.plain(pydoc.render_doc(wb)).index("Checking a model") < 4000
