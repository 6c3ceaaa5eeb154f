"""docs/limits.md says of each limit what the code has: names, files and values."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ringpop_py.base.config import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
UNITS: Final = {
    "": 1, "s": 1, "KiB": 1 << 10, "MiB": 1 << 20, "ms": 0.001, "%": 0.01,
    "minutes": 60, "hours": 3_600, "hour": 3_600, "days": 86_400, "day": 86_400,
}  # fmt: skip
SCALES: Final = {"_US": 1_000_000, "_MS": 1_000, "_US_MAX": 1_000_000, "_MS_MAX": 1_000}
"""By the end of a name: how many of its units are a second."""


def rows() -> Iterator[tuple[str, str]]:
    """The names of each limit, and its values, as the table has them."""
    for line in (ROOT / "docs" / "limits.md").read_text("utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| limit "):
            names, values, *_ = line.removeprefix("| ").split(" | ")
            yield names, values


def modules_of(files: str) -> list[Path]:
    """The modules that the parentheses behind a name stand for; all, if there are none."""
    where = files.rstrip("/") if files else ""
    paths = sorted((ROOT / "ringpop_py").rglob("*.py"))
    if where.endswith(".py") and "*" not in where:
        paths = [path for path in paths if path.as_posix().endswith(f"/{where}")]
    elif where:
        folder = where.partition("*")[0].rstrip("/")
        paths = [path for path in paths if path.parent.as_posix().endswith(f"/{folder}")]
    return [path for path in paths if "__pycache__" not in path.parts]


def constants(name: str, files: str) -> list[float]:
    found = []
    for path in modules_of(files):
        if re.search(rf"^{name}\b.* = ", path.read_text("utf-8"), flags=re.MULTILINE):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.append(getattr(import_module(module), name))
    return found


def field(name: str, owner: str) -> list[Any]:
    kind = getattr(settings, owner, None)
    return [getattr(kind(), name)] if kind is not None and hasattr(kind(), name) else []


def numbers_in(values: str) -> list[float]:
    """Each number of a cell, in each unit that may be meant: that behind it, or behind the last."""
    found = []
    for number in re.finditer(r"\d[\d,]*(?:\.\d+)?(?:\^\d+)?", values):
        text = number[0].rstrip(",").replace(",", "")
        base, _, power = text.partition("^")
        value = float(base) ** (int(power) if power else 1)
        found += [value * scale for scale in UNITS.values()]
    return found


def limits() -> Iterator[tuple[str, str, list[Any]]]:
    owner = ""
    for names, values in rows():
        pending: list[str] = []
        for part in re.findall(r"`([\w.]+)`|\(`([^`]+)`\)", names):
            name, files = part
            if name:
                prefix, _, last = name.rpartition(".")
                owner = prefix or owner
                pending.append(last)
                continue
            for each in pending:
                yield each, values, constants(each, files)
            pending = []
        for each in pending:
            here = field(each, owner) if each.islower() else constants(each, "")
            yield each, values, here


LIMITS: Final = list(limits())


@pytest.mark.parametrize(("name", "values", "real"), LIMITS, ids=[row[0] for row in LIMITS])
def test_a_limit_is_what_the_code_has(name: str, values: str, real: list[Any]) -> None:
    assert real, f"there is no {name}"
    if real == [None]:
        assert "no limit" in values
        return
    scale = next((each for end, each in SCALES.items() if name.endswith(end)), 1)
    wanted = [tuple(value) if isinstance(value, tuple) else (value,) for value in real]
    said = numbers_in(values)

    def is_said(value: float) -> bool:
        return any(abs(each - value / scale) < 1e-9 * max(1, value) for each in said)

    assert any(all(map(is_said, each)) for each in wanted), (
        f"{name} is {real}, and docs/limits.md says {values}"
    )
