"""The limits of the house: the size of a class, a function, a package; a name is one class.

What was larger before there was a limit is listed in ``house.toml``, with its size. It may shrink,
and then its line has to follow; nothing may grow, and nothing may be added.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.twins import TARGET

if TYPE_CHECKING:
    from collections.abc import Iterator

METHODS_MAX: Final = 25
ATTRIBUTES_MAX: Final = 15
ARGUMENTS_MAX: Final = 7
"""Of a constructor: five collaborators, and two plain values."""
FUNCTION_LINES_MAX: Final = 60
FILES_MAX: Final = 15
LINES_MAX: Final = 2_500
SLACK_LINES: Final = 150
"""A package may be so much smaller than its line in the list says."""
ROOT: Final = Path(__file__).parents[1]
KNOWN: Final = tomllib.loads((ROOT / "tests" / "house.toml").read_text("utf-8"))

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed() -> Iterator[tuple[Path, ast.Module]]:
    for top in ("ringpop_py", "sim/ringpop_sim"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if path.parent == TARGET and path.name != "__init__.py":
                continue  # made from what is counted
            yield path.relative_to(ROOT), ast.parse(path.read_text("utf-8"))


def attributes_of(cls: ast.ClassDef) -> set[str]:
    """What is assigned to ``self`` anywhere in *cls*."""
    targets: list[ast.expr] = []
    for node in ast.walk(cls):
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign):
            targets.append(node.target)
    parts = (part for target in targets for part in ast.walk(target))
    return {
        part.attr
        for part in parts
        if isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id == "self"
    }


def test_classes_functions_and_constructors_are_small() -> None:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for path, tree in parsed():
        for node in ast.walk(tree):
            name = f"{path}::{getattr(node, 'name', '')}"
            if isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, Function)]
                found["methods"][name] = len(methods)
                found["attributes"][name] = len(attributes_of(node))
                for each in methods:
                    if each.name == "__init__":
                        arguments = [*each.args.args[1:], *each.args.kwonlyargs]
                        found["arguments"][name] = len(arguments)
            elif isinstance(node, Function):
                found["function_lines"][name] = (node.end_lineno or 0) - node.lineno + 1
    limits = {
        "methods": METHODS_MAX,
        "attributes": ATTRIBUTES_MAX,
        "arguments": ARGUMENTS_MAX,
        "function_lines": FUNCTION_LINES_MAX,
    }
    larger = {
        kind: {name: size for name, size in found[kind].items() if size > limit}
        for kind, limit in limits.items()
    }

    assert larger == {kind: KNOWN.get(kind, {}) for kind in limits}


def test_packages_are_small() -> None:
    files, lines = Counter[str](), Counter[str]()
    for path, _ in parsed():
        files[str(path.parent)] += 1
        lines[str(path.parent)] += (ROOT / path).read_text("utf-8").count("\n")
    many = {package: count for package, count in files.items() if count > FILES_MAX}
    long = {package: count for package, count in lines.items() if count > LINES_MAX}

    assert many == KNOWN["files"]
    assert long.keys() == KNOWN["lines"].keys()
    grown = {name: count for name, count in long.items() if count > KNOWN["lines"][name]}
    shrunk = {name: n for name, n in long.items() if n < KNOWN["lines"][name] - SLACK_LINES}
    assert (grown, shrunk) == ({}, {})


def test_a_name_is_one_class() -> None:
    paths: dict[str, set[str]] = defaultdict(set)
    for path, tree in parsed():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                paths[node.name].add(str(path))

    twice = sorted(name for name, where in paths.items() if len(where) > 1)
    assert twice == KNOWN["names"]["twice"]
