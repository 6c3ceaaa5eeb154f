"""What documents list is all that there is."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from ringpop_py.base import errors
from ringpop_py.base.config.settings import Config
from ringpop_py.base.errors import KeyspaceError

ROOT = Path(__file__).parents[1]


def test_all_errors_of_keyspaces_are_in_the_table_with_their_attributes() -> None:
    text = (ROOT / "docs" / "keyspaces.md").read_text()
    section = re.split(r"^## ", text.partition("\n## Errors\n")[2], flags=re.MULTILINE)[0]
    rows = [line.split(" | ")[:5] for line in section.splitlines() if line.startswith("| `")]

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    there = [
        [
            f"| `{kind.__name__}`",
            f"`{kind.code}`",
            str(kind.http_status),
            kind.took_effect,
            "yes" if kind.passes else "no",
        ]
        for kind in kinds
        if issubclass(kind, KeyspaceError) and kind is not KeyspaceError
    ]
    assert sorted(rows) == sorted(there)


def test_all_layers_are_in_the_code_map() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    code_map = text.partition("\n## Code map\n")[2].partition("\n## ")[0]
    named = {
        name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`([\w./]+)`", code_map)
    }

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = [
        contract
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    ]
    there = {
        "/".join([*container.split(".")[1:], name.strip("() ")])
        for contract in contracts
        for container in contract["containers"]
        for layer in contract["layers"]
        for name in re.split(r"[|:]", layer)
    }

    assert len(contracts) > 1
    assert there - named - {"cli"} == set()


def test_the_code_map_says_of_each_package_what_it_says_of_itself() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = dict(re.findall(r"^ *- \*\*`([\w./]+)`\*\* — (.*)$", text, flags=re.MULTILINE))

    for name, said in rows.items():
        path = ROOT / "ringpop_py" / (f"{name}__init__.py" if name.endswith("/") else name)
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert said == docstring.splitlines()[0], name


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "docs/life.md"])
def test_all_files_that_a_document_names_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    there = [
        f"/{path.relative_to(ROOT).as_posix()}"
        for top in ("ringpop_py", "sim", "demo", "tests", "docs", "bin")
        for path in (ROOT / top).rglob("*")
    ]

    named = set(re.findall(r"`((?:tests|sim|docs|bin)/[\w./]*\w|[\w./]+\.py)/?`", text))
    missing = [name for name in named if not any(path.endswith(f"/{name}") for path in there)]

    assert missing == []


def test_all_events_of_the_log_are_explained() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text()
    logged: set[str] = set()
    for path in (ROOT / "ringpop_py").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        value=ast.Name("log"),
                        attr="debug" | "info" | "warning" | "error" | "exception",
                    ),
                    args=[ast.Constant(str(event)), *_],
                ):
                    logged.add(event)
                case _:
                    pass

    logged = {event for event in logged if re.fullmatch("[a-z]+(-[a-z]+)+", event)}
    assert len(logged) > 60
    assert sorted(event for event in logged if f"`{event}`" not in text) == []


def test_the_guide_to_embedding_names_every_setting_of_a_node() -> None:
    text = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("\n## Configuration\n")
    section, _, _ = rest.partition("\n## ")

    missing = [field.name for field in fields(Config) if f"`{field.name}`" not in section]

    assert missing == []
