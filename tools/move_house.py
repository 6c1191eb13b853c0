"""Move every module to its new package, and update its imports: ``python tools/move_house.py``.

The table is ``tools/house_plan.py``. Python's own parser finds the imports, which are rewritten in
place. A re-exported name (``from a import X as X``, or in an ``__init__``) is imported from the
module that defines it. Dotted paths and import statements in strings, comments and text files are
rewritten too. Nothing is written until every module has a place in the table.

    python tools/move_house.py --check        # list the moves; stop at modules without a place
    python tools/move_house.py                # move, rewrite, format
    python tools/move_house.py --patch A..B   # print the changes from A to B, at the new paths

For work that was done at the old paths: merge it into the last commit before the move (a branch
``before-move``), and apply the changes of this merge at the new paths::

    git switch before-move && git merge main && git switch -
    python tools/move_house.py --patch before-move@{1}..before-move > patch
    git apply --3way --index patch
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tokenize
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from house_plan import CONTRACTS, HOMES, LAYERS_TEXT, PUBLIC_ROOMS, ROOMS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "weighbridge"
# Where names of modules may stand beside the package. What was measured and written is left alone.
TEXTS = ("CONTRIBUTING.md", "README.md", "Makefile", "pyproject.toml", ".ci/run")
CODE = ("tests", "benchmarks", "tools", "conftest.py")
NOT_REWRITTEN = ("tools/move_house.py", "tools/house_plan.py")

Edit = tuple[int, int, str]


class MoveError(Exception):
    """The move cannot be made; the message says what to do."""


def module_of(path: Path, root: Path) -> str:
    """The dotted path of a file below the package; empty for the package itself."""
    parts = list(path.relative_to(root / PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass
class House:
    """The modules of before, what they hand on, and where they go."""

    root: Path
    files: dict[str, Path] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    handed_on: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    defined: dict[str, set[str]] = field(default_factory=dict)
    lent: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted((self.root / PACKAGE).rglob("*.py")):
            name = module_of(path, self.root)
            self.files[name] = path
            if path.name == "__init__.py":
                self.packages.add(name)
            body = ast.parse(path.read_text()).body
            self.handed_on[name] = dict(_imported(body))
            self.defined[name] = set(_bound(body))
            # Handed on for the time of the move.
            entries = [e for n in body if isinstance(n, ast.ImportFrom) for e in n.names]
            self.lent[name] = {e.name for e in entries if e.asname == e.name}

    def new(self, name: str) -> str:
        """Where a module goes, or an error for one without a home."""
        if name == "":
            return ""
        if name in HOMES:
            return HOMES[name]
        parent, _, leaf = name.rpartition(".")
        if not parent:
            raise MoveError(f"{name} has no home: add a row to HOMES in tools/house_plan.py.")
        return f"{self.new(parent)}.{leaf}"

    def dissolved(self, name: str) -> bool:
        """Whether a module only hands on names, and is deleted."""
        return HOMES.get(name) == ""

    def check(self, *, all_rows: bool = True) -> None:
        """Stop where a module has no home, or two have the same.

        Args:
            all_rows: whether a row of the table without a module is an error too.
        """
        homes: dict[str, str] = {}
        missing = []
        for name in self.files:
            try:
                home = self.new(name)
            except MoveError:
                missing.append(name)
                continue
            if self.dissolved(name):
                if own := self.defined[name]:
                    raise MoveError(
                        f"{name} is to be dissolved, but defines {sorted(own)}: move them to the "
                        "module that its table row names, and hand them on (X as X)."
                    )
                continue
            if home in homes and name:
                raise MoveError(f"{name} and {homes[home]} would both be {home}.")
            homes[home] = name
        unknown = [name for name in HOMES if name not in self.files]
        if unknown and all_rows:
            raise MoveError(f"HOMES has rows for modules that do not exist: {unknown}.")
        if missing:
            raise MoveError(
                f"These modules have no home: {', '.join(missing)}. Add a row for each to HOMES in "
                "tools/house_plan.py."
            )

    def home_of(self, module: str, name: str) -> tuple[str, str, bool]:
        """Where ``from module import name`` finds it: module, name there, is it a module?"""
        full = f"{module}.{name}" if module else name
        if full in self.files:
            return full, "", True
        if module == "" or module in PUBLIC_ROOMS:
            return module, name, False
        found = self.handed_on.get(module, {}).get(name)
        if found is not None and name not in self.defined.get(module, ()):
            return self.home_of(*found)
        return module, name, False


def _imported(body: list[ast.stmt]) -> list[tuple[str, tuple[str, str]]]:
    """Names that the top level of a module imports from the package, and from where."""
    found = []
    for node in body:
        if isinstance(node, ast.ImportFrom) and _is_ours(node.module) and not node.level:
            module = _below(node.module or "")
            found += [(e.asname or e.name, (module, e.name)) for e in node.names]
    return found


def _bound(body: list[ast.stmt]) -> list[str]:
    """Names that the top level of a module defines itself."""
    found: list[str] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets += [node.target] if isinstance(node, ast.AnnAssign) else []
        found += [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return [name for name in found if name != "__all__"]


def _is_ours(module: str | None) -> bool:
    return module is not None and (module == PACKAGE or module.startswith(PACKAGE + "."))


def _below(module: str) -> str:
    return module[len(PACKAGE) + 1 :]


def _full(module: str) -> str:
    return f"{PACKAGE}.{module}" if module else PACKAGE


class Rewriter:
    """The edits of one Python file."""

    def __init__(self, house: House, path: Path, source: str) -> None:
        self.house, self.path, self.source = house, path, source
        self.tree = ast.parse(source)
        lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))
        self.lines = lines
        self.edits: list[Edit] = []
        self.in_package = (house.root / PACKAGE) in path.parents
        bound = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name)]
        self.stored = {n.id for n in bound if not isinstance(n.ctx, ast.Load)}
        self.stored |= {n.arg for n in ast.walk(self.tree) if isinstance(n, ast.arg)}
        defined = (ast.FunctionDef, ast.ClassDef)
        self.stored |= {n.name for n in ast.walk(self.tree) if isinstance(n, defined)}
        self.loaded = {n.id for n in bound}
        self.imported = {
            entry.asname or entry.name.partition(".")[0]
            for n in ast.walk(self.tree)
            if isinstance(n, ast.Import | ast.ImportFrom)
            for entry in n.names
        }

    def offset(self, line: int, column: int) -> int:
        """Where a position of the parser, whose columns are bytes, lies in the text."""
        text = self.lines[line - 1]
        return self.starts[line - 1] + len(text.encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        """First and last offset of a node."""
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    def text(self) -> str:
        """The file as it is to be."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and not node.level and _is_ours(node.module):
                self.rewrite_from(node)
            elif isinstance(node, ast.Import):
                self.rewrite_import(node)
        self.rewrite_words()
        text = self.source
        for start, end, replacement in sorted(set(self.edits), reverse=True):
            text = text[:start] + replacement + text[end:]
        return text

    def rewrite_import(self, node: ast.Import) -> None:
        """``import weighbridge.a.b as c``; without ``as`` only where nothing moves."""
        for entry in node.names:
            if not _is_ours(entry.name) or entry.name == PACKAGE:
                continue
            old = _below(entry.name)
            new = self.house.new(old)
            if new == old:
                continue
            if entry.asname is None or len(node.names) > 1:
                raise MoveError(
                    f"{self.path}:{node.lineno}: write 'from ... import' instead of this import."
                )
            self.edits.append((*self.span(node), f"import {_full(new)} as {entry.asname}"))

    def rewrite_from(self, node: ast.ImportFrom) -> None:
        """One statement becomes one for each of the new homes."""
        start, end = self.span(node)
        if "#" in self.source[start:end]:
            raise MoveError(f"{self.path}:{node.lineno}: a comment within an import; move it.")
        module = _below(node.module or "")
        stub = self.path.suffix == ".pyi"
        wanted: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
        for entry in node.names:
            home, name, is_module = self.house.home_of(module, entry.name)
            if is_module:
                self.import_module(home, entry, wanted, stub)
                continue
            if not stub and entry.asname == entry.name and self.in_package:
                # Handed on for the time of the move: dropped, unless it is used here as well.
                if entry.name not in self.loaded:
                    continue
                wanted[_full(self.house.new(home))].append((name, None))
                continue
            alias = entry.asname or (entry.name if entry.name != name else None)
            wanted[_full(self.house.new(home))].append((name, alias))
        indent = " " * node.col_offset
        statements = []
        for target, names in wanted.items():
            listed = ", ".join(n if a is None else f"{n} as {a}" for n, a in sorted(set(names)))
            statement = f"from {target} import {listed}"
            if len(indent + statement) > 100:
                inner = "".join(f"{indent}    {one},\n" for one in listed.split(", "))
                statement = f"from {target} import (\n{inner}{indent})"
            statements.append(statement)
        if not statements:  # the whole line goes
            end = self.source.index("\n", end) + 1
            start = self.source.rindex("\n", 0, start) + 1
        self.edits.append((start, end, f"\n{indent}".join(statements)))

    def import_module(
        self,
        old: str,
        entry: ast.alias,
        wanted: dict[str, list[tuple[str, str | None]]],
        stub: bool,
    ) -> None:
        """``from weighbridge import checkpoint``: by its new name, where that is free."""
        local = entry.asname or entry.name
        # A package that handed names on does so no more: ask each name's own home.
        emptied = old in self.house.packages and old not in PUBLIC_ROOMS
        if emptied or self.house.dissolved(old):
            self.expand_attributes(old, local, wanted)
            return
        new = self.house.new(old)
        parent, _, leaf = new.rpartition(".")
        if stub or entry.asname is not None or leaf == local:
            alias = entry.asname if entry.asname != leaf or stub else None
            wanted[_full(parent)].append((leaf, alias))
        elif leaf in self.stored | self.loaded | self.imported or local in self.stored:
            wanted[_full(parent)].append((leaf, local))
        else:
            wanted[_full(parent)].append((leaf, None))
            for use in self.uses(local):
                self.edits.append((*self.span(use), leaf))
        # Names that the module hands on (``export.Table``) are not its attributes any more.
        for attribute in self.attributes(local):
            home, name, is_module = self.house.home_of(old, attribute.attr)
            if not is_module and attribute.attr in self.house.lent.get(old, ()):
                self.replace_attribute(attribute, home, name, wanted)

    def expand_attributes(
        self, old: str, local: str, wanted: dict[str, list[tuple[str, str | None]]]
    ) -> None:
        """Replace ``plots.draw`` by ``draw``, imported from where it is."""
        uses, attributes = self.uses(local), self.attributes(local)
        if len(uses) != len(attributes):
            raise MoveError(
                f"{self.path}: {local} hands names on no more, and is used other than as "
                f"{local}.name: import the names instead."
            )
        for attribute in attributes:
            home, name, is_module = self.house.home_of(old, attribute.attr)
            if is_module or home == old:
                raise MoveError(f"{self.path}:{attribute.lineno}: import {attribute.attr} itself.")
            self.replace_attribute(attribute, home, name, wanted)

    def replace_attribute(
        self,
        attribute: ast.Attribute,
        home: str,
        name: str,
        wanted: dict[str, list[tuple[str, str | None]]],
    ) -> None:
        """Read a name by itself, and not as an attribute of the module that handed it on."""
        alias = None
        if name in self.stored:
            alias = f"{home.rpartition('.')[2]}_{name}"
        wanted[_full(self.house.new(home))].append((name, alias))
        # A use was perhaps renamed already: the whole attribute replaces it.
        start, end = self.span(attribute)
        self.edits = [e for e in self.edits if not (start <= e[0] and e[1] <= end)]
        self.edits.append((start, end, alias or name))

    def uses(self, name: str) -> list[ast.Name]:
        """Where a name is read."""
        nodes = ast.walk(self.tree)
        return [n for n in nodes if isinstance(n, ast.Name) and n.id == name]

    def attributes(self, name: str) -> list[ast.Attribute]:
        """Where an attribute of a name is read."""
        return [
            n
            for n in ast.walk(self.tree)
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == name
        ]

    def rewrite_words(self) -> None:
        """Paths of modules in strings and comments."""
        kinds = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)}
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type not in kinds:
                continue
            start = self.starts[token.start[0] - 1] + token.start[1]
            end = self.starts[token.end[0] - 1] + token.end[1]
            old = self.source[start:end]
            new = rewrite_prose(self.house, old)
            if new != old:
                self.edits.append((start, end, new))


FROM = re.compile(rf"\bfrom ({PACKAGE}(?:\.\w+)*) import (\w+(?: as \w+)?(?:, \w+(?: as \w+)?)*)")
DOTTED = re.compile(rf"\b{PACKAGE}((?:\.[a-z_]\w*)+)((?:\.[A-Z]\w*)?)(?!\.?\w)")
ADDRESS = re.compile(rf"(?:{FROM.pattern})|(?:{DOTTED.pattern})")
# ``numerics.own`` in a docstring, `numerics.jit` in CONTRIBUTING.
ATTRIBUTE = re.compile(r"(?<=`)((?:\w+\.)*\w+)\.(\w+)(?=`)")
FILE = re.compile(rf"(?<![\w/.])((?:{PACKAGE}/)?)((?:[a-z_]+/)*[a-z_]+)(\.py\b|/(?=`))")


def rewrite_prose(house: House, text: str, *, ours: bool = False) -> str:
    """The same text with the new addresses of modules.

    A version of a saved file, such as ``weighbridge.online.5``, is no module, and stays.

    Args:
        house: the table.
        text: any text.
        ours: whether ``model.py`` and ``model.Model`` alone can only be ours.
    """

    def statement(match: re.Match[str]) -> str:
        module = _below(match[1])
        wanted: dict[str, list[str]] = defaultdict(list)
        for entry in match[2].split(", "):
            name, _, alias = entry.partition(" as ")
            home, found, is_module = house.home_of(module, name)
            if is_module:
                parent, _, leaf = house.new(home).rpartition(".")
                alias = alias or name
                wanted[_full(parent)].append(leaf if leaf == alias else f"{leaf} as {alias}")
            else:
                end = f" as {alias}" if alias else ""
                wanted[_full(house.new(home))].append(found + end)
        return "; ".join(f"from {m} import {', '.join(n)}" for m, n in wanted.items())

    def dotted(match: re.Match[str]) -> str:
        parts, last = match[1][1:].split("."), match[2]
        for size in range(len(parts), 0, -1):
            old = ".".join(parts[:size])
            if old not in house.files:
                continue
            rest = [*parts[size:], *([last[1:]] if last else [])]
            if rest:
                home, name, is_module = house.home_of(old, rest[0])
                if not is_module:
                    if house.dissolved(home):
                        return match[0]
                    return ".".join([_full(house.new(home)), name, *rest[1:]])
            if house.dissolved(old):
                return match[0]
            return ".".join([_full(house.new(old)), *rest])
        return match[0]

    def file(match: re.Match[str]) -> str:
        old = match[2].replace("/", ".")
        # ``model.py`` alone may be a file of the user's.
        if not (ours or match[1] or "/" in match[2]):
            return match[0]
        if old not in house.files or house.dissolved(old):
            return match[0]
        if (match[3] == "/") != (old in house.packages):
            return match[0]
        return match[1] + house.new(old).replace(".", "/") + match[3]

    def attribute(match: re.Match[str]) -> str:
        old, name = match[1], match[2]
        if old not in house.files or name not in {*house.defined[old], *house.lent[old]}:
            return match[0]
        home, name, _ = house.home_of(old, name)
        return f"{house.new(home)}.{name}"

    def address(match: re.Match[str]) -> str:
        # One pass: what is new may look like something old (``sampling.kernels``).
        whole = FROM.fullmatch(match[0])
        return statement(whole) if whole else dotted(DOTTED.fullmatch(match[0]) or match)

    text = ATTRIBUTE.sub(attribute, text)
    text = ADDRESS.sub(address, text)
    return FILE.sub(file, text)


def rewrite_docstring_of(path: Path) -> str:
    """A package's ``__init__`` with its docstring alone."""
    source = path.read_text()
    tree = ast.parse(source)
    documented = tree.body and isinstance(tree.body[0], ast.Expr)
    if not documented:
        raise MoveError(f"{path} has no docstring.")
    return "".join(source.splitlines(keepends=True)[: tree.body[0].end_lineno])


def rewrite_pyproject(text: str) -> str:
    """The contracts of the rooms."""
    start = text.index("[tool.importlinter]")
    following = re.search(r"^\[(?!\[?tool\.importlinter)", text[start + 1 :], re.MULTILINE)
    end = len(text) if following is None else start + 1 + following.start()
    return text[:start] + CONTRACTS + text[end:]


def rewrite_contributing(house: House, text: str) -> str:
    """The picture of the layers is the contract's own; files in backticks by their new names."""
    start = text.index("## Layers\n")
    end = text.index("\n- A **", start)
    text = text[:start] + LAYERS_TEXT + text[end:]

    def quoted(match: re.Match[str]) -> str:
        return rewrite_prose(house, match[0], ours=True)

    text = re.sub(r"`[^`\n]+`", quoted, text)
    return re.sub(r"^(- |[1-9]\. ).*\n(?:  +.*\n)*", _filled, text, flags=re.MULTILINE)


def _filled(match: re.Match[str]) -> str:
    """A paragraph of a list in lines of at most 100 letters, if it has a longer one."""
    paragraph = match[0]
    if max(map(len, paragraph.splitlines())) <= 100:
        return paragraph
    indent = " " * len(match[1])
    return (
        textwrap.fill(
            " ".join(paragraph.split()),
            100,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


def git(root: Path, *arguments: str) -> None:
    """Run git, and stop if it fails."""
    subprocess.run(["git", "-C", str(root), *arguments], check=True)


def move(house: House) -> None:
    """Everything: texts first, while all files stand where they stood."""
    root = house.root
    contents: dict[Path, str] = {}
    for path in python_files(root):
        if str(path.relative_to(root)) in NOT_REWRITTEN:
            continue
        source = path.read_text()
        contents[path] = Rewriter(house, path, source).text()
    for name in house.packages - {""} - set(PUBLIC_ROOMS):
        path = house.files[name]
        contents[path] = rewrite_docstring_of(path)
    for path in [*(root / name for name in TEXTS), *sorted(root.glob("docs/*.md"))]:
        name, text = str(path.relative_to(root)), path.read_text()
        if name == "pyproject.toml":
            contents[path] = rewrite_pyproject(text)
        elif name == "CONTRIBUTING.md":
            contents[path] = rewrite_contributing(house, text)
        else:
            contents[path] = rewrite_prose(house, text)
    for path, text in contents.items():
        if path.read_text() != text:
            path.write_text(text)
    move_files(house)
    format_code(root)


def python_files(root: Path) -> list[Path]:
    """All Python files of the repository that may name a module."""
    found = [*(root / PACKAGE).rglob("*.py"), *(root / PACKAGE).rglob("*.pyi")]
    for place in CODE:
        path = root / place
        found += [path] if path.is_file() else path.rglob("*.py")
    return sorted(set(found))


def move_files(house: House) -> None:
    """``git mv``, by way of a folder beside: ``sampling.py`` becomes ``sampling/sampling.py``."""
    root, package = house.root, house.root / PACKAGE
    beside = root / "moving"
    beside.mkdir()
    wanted: list[tuple[Path, Path]] = []
    for name, path in house.files.items():
        if name == "":
            continue
        if house.dissolved(name):
            git(root, "rm", "-q", "-f", str(path))
            continue
        new = house.new(name)
        target = package.joinpath(*new.split("."))
        target = target / "__init__.py" if name in house.packages else target.with_suffix(".py")
        if target != path:
            halfway = beside / f"{name}.py"
            git(root, "mv", str(path), str(halfway))
            wanted.append((halfway, target))
    for halfway, target in wanted:
        target.parent.mkdir(parents=True, exist_ok=True)
        git(root, "mv", str(halfway), str(target))
    beside.rmdir()
    for room, text in ROOMS.items():
        path = package.joinpath(*room.split("."), "__init__.py")
        if path.exists():
            raise MoveError(f"{room} has a docstring of before: leave it out of ROOMS.")
        path.write_text(f'"""{text}"""\n')
        git(root, "add", str(path))
    for cache in package.rglob("__pycache__"):
        shutil.rmtree(cache)
    for folder in sorted(package.rglob("*"), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def format_code(root: Path) -> None:
    """Imports in their order, lines of their length."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or "ruff"
    places = [PACKAGE, *CODE]
    subprocess.run([ruff, "check", "-q", "--select", "I", "--fix", *places], cwd=root, check=True)
    subprocess.run([ruff, "format", "-q", *places], cwd=root, check=True)


def moved_tree(revision: str) -> str:
    """The tree of a revision of before, moved; git's name of it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "tree"
        git(ROOT, "worktree", "add", "-q", "--detach", str(root), revision)
        try:
            house = House(root)
            house.check(all_rows=False)
            move(house)
            git(root, "add", "-A")
            command = ["git", "-C", str(root), "write-tree"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            return done.stdout.strip()
        finally:
            git(ROOT, "worktree", "remove", "--force", str(root))


def patch(revisions: str) -> None:
    """Print what changed between two revisions of before, at the new addresses."""
    first, _, last = revisions.partition("..")
    if not first or not last:
        raise MoveError(f"--patch takes two revisions, A..B, not {revisions}.")
    trees = [moved_tree(revision) for revision in (first, last)]
    git(ROOT, "diff", "--binary", "--full-index", "--no-color", "--no-ext-diff", *trees)


def main() -> None:
    """Read the arguments, and do it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only tell what would move")
    parser.add_argument("--patch", metavar="A..B", help="print what changed, at the new addresses")
    arguments = parser.parse_args()
    try:
        if arguments.patch:
            patch(arguments.patch)
            return
        house = House(ROOT)
        house.check()
        if not arguments.check:
            move(house)
            return
        for name in sorted(house.files):
            print(f"{name or PACKAGE:40} {house.new(name) or '(dissolved)' if name else ''}")
        for path in python_files(ROOT):
            Rewriter(house, path, path.read_text()).text()
    except MoveError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
