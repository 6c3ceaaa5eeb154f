"""TOML files: overrides, environment variables, and all mistakes reported at the same time."""

from __future__ import annotations

import re
import tomllib
from contextlib import contextmanager
from datetime import date, time
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.rules import TEXT, Rule, one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

FILE_BYTES_MAX: Final = 1 << 20  # a larger file was named by mistake
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TABLE: Final = Rule("a table", lambda value: isinstance(value, dict))
_TEXTS: Final = Rule(
    "a list of texts",
    lambda v: isinstance(v, str) or (isinstance(v, list) and all(map(TEXT.sound, v))),
)

Document = dict[str, Any]
T = TypeVar("T")


def read_document(
    path: str,
    overrides: Sequence[str],
    environment: Mapping[str, str],
    *,
    takes_text: Callable[[Sequence[str]], bool] = lambda _: False,
) -> Document:
    """Return the file at *path* with *overrides*, each ``key=value``.

    ``${NAME}`` is replaced by that variable of *environment*.

    Args:
        takes_text: returns whether a name, given as its parts, has a text as its value. In an
            override, 7 and true are then texts, as a date always is.

    Raises:
        ConfigError: the file cannot be read or is not TOML, an override is malformed, or a
            variable is not set.
    """
    document = read_toml(path)
    # In order: of two overrides of one name, the later one counts.
    for text in overrides:
        _merge(document, _override(text, takes_text), text)
    problems: list[str] = []
    filled: Document = _filled(document, environment, problems, "")
    if problems:
        raise ConfigError("\n".join(problems))
    return filled


def read_toml(path: str) -> Document:
    """Return the file at *path* unchanged. Raises ConfigError if it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(error.strerror or str(error)) from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"larger than {FILE_BYTES_MAX} bytes")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))  # Windows editors begin with a mark
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}") from None


def _override(text: str, takes_text: Callable[[Sequence[str]], bool]) -> Document:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text!r} is not KEY=VALUE")
    try:
        # TOML itself reads the name, so quoted parts and dots mean the same as in the file.
        inner = tables = tomllib.loads(f"{key.strip()} = 0")
    except tomllib.TOMLDecodeError:
        what = f"{key!r} is not a name such as keyspace.partitions"
        raise ConfigError(f"--set {text!r}: {what}") from None
    path: list[str] = []
    while True:
        (name,) = inner
        path.append(name)
        if inner[name] == 0:
            inner[name] = _bare(value, is_text=takes_text(path))
            return tables
        inner = inner[name]


def _bare(text: str, *, is_text: bool) -> Any:  # noqa: ANN401 - any TOML
    try:
        leaf = tomllib.loads(f"value = {text.strip()}")
    except tomllib.TOMLDecodeError:
        return text  # so that quotes may be left out
    value = leaf["value"]
    is_scalar = not isinstance(value, str | list | dict)
    # Two leaves: *text* has a line break. No setting is a date, but a name may look like one.
    if len(leaf) > 1 or isinstance(value, date | time) or (is_text and is_scalar):
        return text.strip()
    return value


def _merge(document: Document, tables: Document, text: str) -> None:
    for name, value in tables.items():
        present = document.get(name)
        if isinstance(value, dict) and isinstance(present, dict):
            _merge(present, value, text)
        elif isinstance(value, dict) and present is not None:
            raise ConfigError(f"--set {text!r}: {name!r} is not a table in the file")
        else:
            document[name] = value


def _filled(value: Any, environment: Mapping[str, str], problems: list[str], path: str) -> Any:  # noqa: ANN401 - any TOML
    if isinstance(value, dict):
        return {
            name: _filled(item, environment, problems, joined(path, name))
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_filled(item, environment, problems, path) for item in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        if match[1] not in environment:
            problems.append(f"{path}: the environment variable {match[1]} is not set")
        return environment.get(match[1], "")  # goes on, to report all missing ones

    return _VARIABLE.sub(variable, value)


def joined(path: str, name: str) -> str:
    """Return the full name of *name* in the table *path*."""
    return f"{path}.{name}" if path else name


class TomlTable:
    """One table of a document; its methods return a value by name and kind.

    A value of the wrong kind is noted in *problems* and counts as missing.
    """

    def __init__(self, values: Document, path: str, problems: list[str]) -> None:
        self._values = values
        self._path = path
        self.problems = problems

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def problem(self, name: str, text: str | None) -> None:
        """Note the mistake *text* in the value of *name*; ignore None."""
        if text is not None:
            self.problems.append(f"{joined(self._path, name)}: {text}")

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note each line of a ConfigError raised within, instead of raising it."""
        try:
            yield
        except ConfigError as error:
            self.problems += (joined(self._path, line) for line in str(error).splitlines())

    def check_names(
        self, known: Mapping[str, Collection[str]], told: Mapping[str, str] | None = None
    ) -> None:
        """Note each unknown name. *known* has the names of each table by its path.

        Args:
            told: what to note of some names.
        """
        for name in self._values:
            if name not in known[self._path]:
                self.problems.append((told or {}).get(name) or self._unknown(name, known))

    def _unknown(self, name: str, known: Mapping[str, Iterable[str]]) -> str:
        text = f"{joined(self._path, name)}: unknown"
        # First a name of this table that is nearly right, then one that is right in another table.
        meant = [
            joined(self._path, match) for match in get_close_matches(name, known[self._path], 1)
        ]
        meant += [joined(path, name) for path, names in known.items() if name in names]
        for path, names in known.items():
            meant += [joined(path, match) for match in get_close_matches(name, names, 1)]
        if not meant:
            return f"{text}; there are {', '.join(sorted(known[self._path]))}"
        if meant[0] == name:
            return f"{text}; {name} stands at the top of the file, before the first [table]"
        return f"{text}; did you mean {meant[0]}?"

    def value(self, name: str) -> Any:  # noqa: ANN401 - any TOML
        """Return the value of *name*, of any kind, or None."""
        return self._values.get(name)

    def table(self, name: str) -> TomlTable:
        """Return the table *name*, or an empty one."""
        return TomlTable(self.ruled(name, _TABLE, {}), joined(self._path, name), self.problems)

    def text(self, name: str) -> str | None:
        """Return a text that is not empty, or None."""
        found = self.ruled(name, TEXT.or_none(), None)
        if found == "":
            self.problem(name, "is empty")
        return found or None

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the texts of a list, or of a single text."""
        found: list[str] | str = self.ruled(name, _TEXTS, [])
        return (found,) if isinstance(found, str) else tuple(found)

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Return the value of *name*, one of *choices*."""
        close = get_close_matches(str(self.value(name)), choices, 1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        return self.ruled(name, one_of(choices), default, meant)

    def ruled(self, name: str, rule: Rule, default: T, hint: str = "") -> T:
        """Return the value of *name*, which *rule* is for; *hint* is for one that it refuses."""
        found: T = self._values.get(name, default)
        if problem := rule.problem(f"{name}:", found):
            self.problems.append(joined(self._path, problem + hint))
            return default
        return found

    def options(self, name: str) -> dict[str, str]:
        """Return the settings of another program as texts; dotted names may be nested tables."""
        found: dict[str, str] = {}
        left: list[tuple[str, Any]] = list(self.ruled(name, _TABLE, {}).items())
        while left:
            key, value = left.pop(0)
            match value:
                case dict():
                    # At the front, so that the settings stay in the order of the file.
                    left[:0] = [(f"{key}.{inner}", item) for inner, item in value.items()]
                case bool():
                    found[key] = "true" if value else "false"
                case str() | int() | float():
                    found[key] = str(value)
                case _:
                    self.problem(f"{name}.{key}", f"is a text, a number or a flag, not {value!r}")
        return found
