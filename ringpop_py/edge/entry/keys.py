"""The rules for the key of an HTTP request (pure): from a header, path, query or cookie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from ringpop_py.base.errors import ConfigError

if TYPE_CHECKING:
    from ringpop_py.base.config.settings import Config

KINDS: Final = ("header:NAME", "path:/TEMPLATE/WITH/{key}", "query:NAME", "cookie:NAME")
KEY_PART: Final = "{key}"
ANY_PART: Final = "*"


class Incoming(NamedTuple):
    """The parts of a request that may have a key.

    Attributes:
        path: the whole path as the client sent it, percent-encoded: also what an application is
            mounted at, and what the server puts before it.
        query: as it came, without the question mark.
        headers: pairs; names of any case.
        server_root: what the server here puts before each path. It is not forwarded, as the server
            of the other host does the same.
    """

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    server_root: str = ""


KeyRule = Callable[[Incoming], str | None]
"""Returns the key of a request; None if it has none, so that any host may answer."""


def key_rule(given: str | KeyRule | Sequence[str | KeyRule]) -> KeyRule:
    """Return the rule that *given* stands for; of several, the first that finds a key decides.

    Raises:
        ConfigError: a text is not one of the `KINDS`.
    """
    if callable(given):
        return given
    if isinstance(given, str):
        return _rule_in(given)
    if not isinstance(given, Sequence) or not given:
        raise ConfigError(f"a key is one of {', '.join(KINDS)}, a function or a list of them")
    rules = [key_rule(each) for each in given]
    if len(rules) == 1:
        return rules[0]

    def first(request: Incoming) -> str | None:
        return next((key for rule in rules if (key := rule(request)) is not None), None)

    return first


def rule_named(given: object) -> str:
    """Return how people call a rule as `key_rule` takes it."""
    if isinstance(given, list | tuple):
        return ", ".join(map(rule_named, given))
    return given if isinstance(given, str) else getattr(given, "__qualname__", type(given).__name__)


def whole_path(root: str, path: str) -> str:
    """Return the encoded *path* with the *root* at which an application is mounted.

    Servers and frameworks differ: some have the root in the path already, others do not.
    """
    return path if below(root, path) is not None else f"{quote(root)}{path}"


def below(root: str, path: str) -> str | None:
    """Return the part of the encoded *path* after *root*; None if it does not begin with it."""
    if not root:  # the usual case, at each request
        return path
    wanted = root.rstrip("/").split("/")
    found = path.split("/")
    if [unquote(part) for part in found[: len(wanted)]] != wanted:
        return None
    return "/".join(["", *found[len(wanted) :]])


def _rule_in(text: str) -> KeyRule:
    kind, colon, what = text.partition(":")
    if colon and what:
        match kind:
            case "header":
                return _Header(what.lower())
            case "query":
                return _Query(what)
            case "cookie":
                return _Cookie(what)
            case "path":
                return _path_rule(text, what)
            case _:
                pass
    raise ConfigError(f"key {text!r} is none of: {', '.join(KINDS)}")


@dataclass(frozen=True, slots=True)
class _Header:
    name: str

    def __call__(self, request: Incoming) -> str | None:
        for each, value in request.headers:
            if each.lower() == self.name and value:
                return value
        return None


@dataclass(frozen=True, slots=True)
class _Query:
    name: str

    def __call__(self, request: Incoming) -> str | None:
        pairs = parse_qsl(request.query, keep_blank_values=True)
        return next((value for name, value in pairs if name == self.name and value), None)


@dataclass(frozen=True, slots=True)
class _Cookie:
    name: str

    def __call__(self, request: Incoming) -> str | None:
        # Lenient, as frameworks are: other cookies beside it may be malformed.
        for header, text in request.headers:
            if header.lower() == "cookie":
                for part in text.split(";"):
                    name, equals, value = part.strip().partition("=")
                    if equals and name == self.name:
                        return value.strip().strip('"') or None
        return None


@dataclass(frozen=True, slots=True)
class _Path:
    """A path whose first parts are *parts*; what follows may be anything."""

    parts: tuple[str, ...]

    def __call__(self, request: Incoming) -> str | None:
        found = request.path.removeprefix("/").split("/")
        if len(found) < len(self.parts):
            return None
        key = None
        for wanted, part in zip(self.parts, found, strict=False):
            if wanted == KEY_PART:
                key = unquote(part)
            elif wanted not in (ANY_PART, unquote(part)):
                return None
        return key or None


def _path_rule(text: str, template: str) -> _Path:
    parts = tuple(template.removeprefix("/").split("/"))
    if not template.startswith("/") or parts.count(KEY_PART) != 1:
        raise ConfigError(f"key {text!r}: a path begins with / and has one part {KEY_PART}")
    if any("{" in part and part != KEY_PART for part in parts):
        raise ConfigError(f"key {text!r}: the only name is {KEY_PART}; * stands for any part")
    return _Path(parts)


def rule_of(config: Config) -> KeyRule | None:
    """Return the rule that finds the key of an incoming request; None if the node takes none.

    Raises:
        ConfigError: the settings do not fit together.
    """
    if config.http_in is None:
        if config.http_in_key is not None:
            raise ConfigError("--key needs --http-in HOST:PORT, where requests come in")
        return None
    if config.app_url is None:
        raise ConfigError("--http-in needs --app-url URL, the application that answers requests")
    if config.http_in_key is None:
        raise ConfigError(f"--http-in needs --key: {', '.join(KINDS)}")
    return key_rule(config.http_in_key)
