"""One word for one thing: no two classes of the package have the same name."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "weighbridge"


def classes_by_name(folder):
    """Where each class of a folder is defined, by its name."""
    places = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(folder)}:{node.lineno}")
    return places


def shared(places):
    """The names that stand for several classes, with their places."""
    return {name: where for name, where in places.items() if len(where) > 1}


def test_a_name_that_is_shared_is_found(tmp_path):
    (tmp_path / "one.py").write_text("class Window:\n    pass\n")
    (tmp_path / "other.py").write_text("def make():\n    class Window:\n        pass\n")
    assert shared(classes_by_name(tmp_path)) == {"Window": ["one.py:1", "other.py:2"]}


def test_no_two_classes_share_a_name():
    places = classes_by_name(PACKAGE)
    assert len(places) > 300
    assert not shared(places)
