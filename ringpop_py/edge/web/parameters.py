"""The path, the query, the body and the conditions of a request, checked."""

from __future__ import annotations

import re
from contextlib import aclosing
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote

from ringpop_py.base.rules import SWITCH, seconds_above_0, whole
from ringpop_py.base.values.operations import KEY_BYTES_MAX, SOURCE_CHARACTERS_MAX
from ringpop_py.base.values.packed import a_map, decode_value
from ringpop_py.edge.instants import INSTANT
from ringpop_py.edge.web.forms import (
    BYTES,
    BYTES_TYPE,
    JSON,
    MSGPACK,
    MSGPACK_TYPE,
    MSGPACK_TYPES,
    Form,
)
from ringpop_py.edge.web.refusals import JSON_TYPE, HttpRefusal, bad_request
from ringpop_py.state.requests import expiring
from ringpop_py.state.table.conditions import ANY, Tags, conditional, tag_of
from ringpop_py.state.table.due import EXPIRES_S_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from ringpop_py.base.rules import Rule
    from ringpop_py.base.values.operations import Value

BODY_BYTES_MAX: Final = 4 << 20
_PRECONDITION_FAILED, _TOO_LARGE, _UNSUPPORTED = 412, 413, 415
TIMEOUT_S_MAX: Final = 600.0
FIELDS_MAX: Final = 16  # of a query; more are refused before they are all parsed
_FLAG: Final = SWITCH._replace(
    read={"": True, "true": True, "1": True, "false": False, "0": False}.__getitem__
)
_TIMEOUT_S: Final = seconds_above_0(TIMEOUT_S_MAX)
EXPIRY: Final = ("expires_in", "expires_at")
_EXPIRES_IN: Final = seconds_above_0(EXPIRES_S_MAX)
_CONDITIONS: Final = ("if-match", "if-none-match")
_ENTITY_TAG: Final = re.compile(r'[ \t]*(?:(W/)?"([!#-~\x80-\xff]*)"[ \t]*)?(?:,|\Z)')


def name_in(request: Request, what: str) -> str:
    """Return that part of the path, percent-decoded. Raises Refusal."""
    try:
        return unquote(request.path_params[what], errors="strict")
    except UnicodeDecodeError:
        raise bad_request(f"the {what} in the path is not UTF-8, percent-encoded") from None


def key_in(request: Request) -> str:
    """Return the key in the path. Raises Refusal."""
    return checked_key(name_in(request, "key"))


def checked_key(key: object) -> str:
    """Return *key*. Raises Refusal if it is not a valid key."""
    if not isinstance(key, str):
        raise bad_request(f"a key is a text, not {key!r:.100}")
    size = len(key.encode("utf-8", "surrogatepass"))
    if not 0 < size <= KEY_BYTES_MAX:
        raise bad_request(f"a key has 1 to {KEY_BYTES_MAX} bytes of UTF-8, not {size}")
    return key


def operation_id_of(request: Request) -> str | None:
    """Return the operation id in the headers of the write, or None. Raises Refusal."""
    text: str | None = request.headers.get("operation-id")
    if text is not None and not (0 < len(text) <= SOURCE_CHARACTERS_MAX and text.isprintable()):
        raise bad_request(f"operation-id has 1 to {SOURCE_CHARACTERS_MAX} printable characters")
    return text


def fields_of(value: object, what: str, known: Sequence[str]) -> dict[str, Any]:
    """Return *value*. Raises BodyError if it is not a map, Refusal for a field not in *known*."""
    found = a_map(value, what)
    for name in found:
        if name not in known:
            raise bad_request(f"{what} has no field {_misnamed(name, known)}")
    return found


def _misnamed(name: str, known: Sequence[str]) -> str:
    if not known:
        return f"{name!r:.100}; this request takes no parameters"
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(known)}"
    return f"{name!r:.100}; {hint}"


class Query:
    """The query of *request*. Raises Refusal unless it has *allowed* parameters, each once."""

    def __init__(self, request: Request, *allowed: str) -> None:
        text = request.scope["query_string"].decode("latin-1")
        try:
            pairs = parse_qsl(text, True, errors="strict", max_num_fields=FIELDS_MAX)  # noqa: FBT003
        except ValueError:  # too many fields, or not UTF-8
            raise bad_request("the query is not NAME=TEXT&..., percent-encoded") from None
        self._values = dict(pairs)
        unknown = sorted(set(self._values) - set(allowed))
        if unknown:
            raise bad_request(f"the query has no {_misnamed(unknown[0], allowed)}")
        if len(pairs) != len(self._values):
            raise bad_request("the query has a parameter twice")

    def text(self, name: str) -> str | None:
        """Return the parameter *name*, or None."""
        return self._values.get(name)

    def flag(self, name: str) -> bool:
        """Return whether the flag *name* is set. Raises Refusal."""
        return bool(self._parsed(name, _FLAG, self._values.get(name, "false").lower()))

    def number(self, name: str, *, default: int, maximum: int, minimum: int = 1) -> int:
        """Return the whole number *name*, from *minimum* to *maximum*. Raises Refusal."""
        if name not in self._values:
            return default
        rule, digits = whole(minimum, maximum), len(str(maximum))
        short = rule._replace(
            read=lambda text: rule.read(text) if len(text) <= digits else minimum - 1
        )
        return int(self._parsed(name, short, self._values[name]))

    @property
    def timeout_s(self) -> float | None:
        """Seconds that the request may take, or None. Raises Refusal."""
        text = self._values.get("timeout_s")
        return None if text is None else self._parsed("timeout_s", _TIMEOUT_S, text)

    def expiring(self, operation: str, argument: Value) -> tuple[str, Value]:
        """Return what makes the key expire, if the query says when. Raises as `expiring_by`."""
        in_s, at = map(self._values.get, EXPIRY)
        left_s = None if in_s is None else self._parsed("expires_in", _EXPIRES_IN, in_s)
        return expiring_by(operation, argument, left_s, at)

    def check_confirmed(self, name: str, what: str) -> None:
        """Raise Refusal unless the parameter ``confirm`` is *name*; *what* says what is done."""
        if self.text("confirm") != name:
            raise bad_request(f"{what}; confirm with ?confirm={quote(name, safe='')}")

    def _parsed(self, name: str, rule: Rule, text: str) -> Any:  # noqa: ANN401 - as *rule* reads it
        try:
            return rule.parsed(text)
        except ValueError as error:
            raise bad_request(f"{name} is {error}, not {text!r:.100}") from None


def expiring_by(operation: str, argument: Value, in_s: Any, at: Any) -> tuple[str, Value]:  # noqa: ANN401 - as sent
    """Return what makes a key expire, unless both are None. Raises Refusal and ConfigError."""
    if isinstance(at, str):
        try:
            at = INSTANT.parsed(at)
        except ValueError as error:
            raise bad_request(f"expires_at is {error}, not {at!r:.100}") from None
    return expiring(operation, argument, expires_in=in_s, expires_at=at)


# Bodies.


async def body_of(request: Request) -> bytes:
    """Return the body of *request*. Raises Refusal if it is too large."""
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > BODY_BYTES_MAX:
        raise _too_large()
    chunks = []
    size = 0
    async with aclosing(request.stream()) as stream:
        async for chunk in stream:
            size += len(chunk)
            if size > BODY_BYTES_MAX:  # its length was not announced
                raise _too_large()
            chunks.append(chunk)
    request.state.body_bytes = size
    return b"".join(chunks)


def _too_large() -> HttpRefusal:
    message = f"a body has at most {BODY_BYTES_MAX} bytes"
    return HttpRefusal(_TOO_LARGE, "TooLarge", message, {"connection": "close"})


@dataclass(frozen=True, slots=True)
class Sent:
    """A value as a caller sent it, in *form*."""

    value: Value
    form: Form
    body: bytes


async def value_of(request: Request, *, required: bool = True) -> Value:
    """Return the value in the body of *request*. See `sent_in`."""
    return (await sent_in(request, required=required)).value


async def sent_in(request: Request, *, required: bool = True) -> Sent:
    """Return the value in the body of *request*, with its form and its bytes.

    An empty body means None unless a value is *required*.

    Raises:
        Refusal: the content type is not supported, or the body is missing or too large.
        BodyError: the body is malformed.
    """
    body = await body_of(request)
    kind = request.headers.get("content-type", JSON_TYPE).partition(";")[0].strip().lower()
    if kind == BYTES_TYPE:
        return Sent(body, BYTES, body)
    if not body and not required:
        return Sent(None, JSON, body)
    if kind not in (JSON_TYPE, *MSGPACK_TYPES):
        types = f"{JSON_TYPE} (with curl: --json), {MSGPACK_TYPE} or {BYTES_TYPE}"
        message = f"content-type {kind!r}: a value is {types}"
        raise HttpRefusal(_UNSUPPORTED, "UnsupportedMediaType", message)
    if not body:
        raise bad_request("the body is empty: a value is missing")
    scheme, form = ("json", JSON) if kind == JSON_TYPE else ("msgpack", MSGPACK)
    return Sent(decode_value(scheme, body), form, body)


# If-Match and If-None-Match: the owner checks those of writes, this node those of reads.


def etag(value: Value, form: Form) -> str:
    """Return the entity tag of *value* in *form*."""
    return f'"{tag_of(value)}{form.suffix}"'


class Conditions:
    """The conditions in the headers of *request*. Raises Refusal if a header is malformed."""

    def __init__(self, request: Request) -> None:
        # If-Match compares strongly: a weak tag matches nothing.
        self._if_match = _tags_in(request, "if-match", weak=False)
        self._if_none_match = _tags_in(request, "if-none-match", weak=True)

    def applied(self, operation: str, argument: Value) -> tuple[str, Value]:
        """Return *operation* and *argument* that take effect only if the conditions hold."""
        return conditional(
            operation,
            argument,
            if_match=_hashes(self._if_match),
            if_none_match=_hashes(self._if_none_match),
        )

    def says_unchanged(self, value: Value, form: Form) -> bool:
        """Return whether the caller has *value* in *form*. Raises Refusal if If-Match fails."""
        tag = tag_of(value)
        wanted = _hashes(self._if_match)
        if wanted is not None and wanted != ANY and tag not in wanted:
            message = f"if-match: the tag of the value is {etag(value, form)}"
            raise HttpRefusal(_PRECONDITION_FAILED, "ConditionFailed", message)
        known = self._if_none_match
        return known is not None and (known == ANY or tag + form.suffix in known)


def refuse_conditions(request: Request, advice: str = "") -> None:
    """Raise Refusal with *advice* if *request*, which is not about one key, has a condition."""
    for header in _CONDITIONS:
        if header in request.headers:
            rest = f"; {advice}" if advice else ""
            raise bad_request(f"{header} is for a request about one key{rest}")


def _tags_in(request: Request, header: str, *, weak: bool) -> Tags | None:
    """Return the tags in *header*, without quotes; None if there is no such header."""
    lines = request.headers.getlist(header)
    if not lines:
        return None
    text = ",".join(lines)
    if text.strip() == ANY:
        return ANY
    tags, position = [], 0
    while position < len(text):
        found = _ENTITY_TAG.match(text, position)
        if found is None:
            raise bad_request(
                f'{header} is a list of tags in quotes ("…"), or {ANY}; not {text!r:.100}'
            )
        position = found.end()
        is_weak, tag = found.groups()
        if tag is not None and (weak or not is_weak):
            tags.append(tag)
    return tags


def _hashes(tags: Tags | None) -> Tags | None:
    """Return *tags* without the suffixes of forms: a write replaces a value, whatever its form."""
    return tags if tags is None or tags == ANY else [tag.partition(".")[0] for tag in tags]
