"""Whatever is asked, the answer through two hosts is that of the bare application, byte by byte.

What differs all the same is a rule here, which makes of the bare answer the expected one. Each rule
has its row in docs/web.md.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pytest

from tests.e2e.entry.hosts import Hosts
from tests.e2e.entry.raw_http import Heard, RawApp, WireAnswer, ask
from tests.e2e.entry.shapes import BARE, KEY, MIB, SHAPES, Shape
from tests.e2e.local_cluster import free_addresses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.base.address import Address

pytestmark = pytest.mark.xdist_group("differences")
T = TypeVar("T", str, bytes)
MIDDLEWARE, HTTP_IN, RAW = "middleware", "http-in", "http-in, raw"
SEEN: Final = re.compile(rb'(?s)(81 )?(\{"method".*\})(\|88 .*)?').fullmatch
"""A body that says what the application has seen; in a websocket it is one of two frames."""
EXTENSIONS: Final = "sec-websocket-extensions"
PROTOCOL: Final = "sec-websocket-protocol"
HANDSHAKE: Final = (b"upgrade", b"connection", b"sec-websocket-accept", EXTENSIONS.encode())
"""What the server of each caller says of its own connection when it opens a websocket."""
DOCS: Final = Path(__file__).parents[3] / "docs/web.md"

MUST_DIFFER: Final = {
    b"date": "when a server has answered: each says it for itself",
    b"server": "the name of a server",
}
"""Headers of answers that are not compared, with the reason; in the guide as `OF_SERVERS`."""
OF_SERVERS: Final = "date and server"
ARRIVES_ANEW: Final = {
    "x-forwarded-for": "the caller, which the server of the bare application sees itself",
    "x-forwarded-proto": "the caller's scheme",
    "x-forwarded-host": "the host that the caller has named",
    "forwarded": "these three in the form of the standard",
    "ringpop-hops": "how often the request was forwarded",
    "ringpop-forwarded": "the mark of the daemon here, which is a secret",
    "x-bare": "what has the application answer without its middleware",
    "x-none": "stands in its place",
    "sec-websocket-key": "a number of each connection, drawn by who opens it",
}
"""Headers of requests that are not compared, with the reason."""
ABOUT_CONNECTION: Final = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
    *("proxy-connection", "te", "trailer", "upgrade"),
)
PASSED_ON_BY_NOBODY: Final = {
    "method-too-long": (400, "methods"),
    "options-all": (400, "targets"),
    "target-no-slash": (400, "targets"),
    "target-slashes": (400, "targets"),
    "target-slashes-host": (400, "targets"),
    "target-very-long": (400, "targets"),
    "header-control": (400, "control characters"),
}
"""Shapes with another status, and the row in docs/web.md."""
ONLY_AT_HTTP_IN: Final = {
    "body-length-and-chunked": (400, "two lengths"),
    "body-unknown-coding": (501, "what is not HTTP"),
    "websocket-version-8": (400, "offers of another protocol"),
    "websocket-no-key": (400, "offers of another protocol"),
    "websocket-post": (200, "offers of another protocol"),
    "pipelined-close": (400, "end of the connection"),
    "raw-two-lengths-equal": (504, "answers that leave room for doubt"),
    "raw-folded": (504, "answers that leave room for doubt"),
}
NOT_HTTP: Final = (400, "what is not HTTP")


class Hosted(NamedTuple):
    """Hosts and where their callers come in; the one at *owner* owns the key."""

    hosts: Hosts
    owner: int
    entries: list[Address]
    app: Address
    """The bare application of the owner."""


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Hosted]]:
    folder, (raw_at, *entries) = tmp_path_factory.mktemp("hosts"), free_addresses(5)
    hosts = Hosts(folder / "asgi", 2, "differences")
    raw = Hosts(folder / "raw", 2, "raw")
    raw.apps = [raw_at, raw_at]
    for node, entry in zip([*hosts.nodes, *raw.nodes], entries, strict=True):
        node.command += ["--http-in", str(entry), "--key", "header:X-Key"]
    for node in raw.nodes:
        node.command[node.command.index("--app-url") + 1] = f"http://{raw_at}"
    with RawApp(raw_at), hosts, raw:
        hosts.wait_converged()
        raw.wait_converged()
        hosts.start_apps()
        raw.wait_applications()
        owner = _owner(hosts)
        yield {
            MIDDLEWARE: Hosted(hosts, owner, hosts.apps, hosts.apps[owner]),
            HTTP_IN: Hosted(hosts, owner, entries[:2], hosts.apps[owner]),
            RAW: Hosted(raw, _owner(raw), entries[2:], raw_at),
        }
        print(hosts.logs(), hosts.app_logs(), raw.logs())  # shown if a test fails


def _owner(hosts: Hosts) -> int:
    name = hosts[0].admin("/admin/lookup", {"key": KEY})["dest"]
    return [node.name for node in hosts.nodes].index(name)


@pytest.mark.parametrize(
    ("shape", "way"),
    [
        pytest.param(shape, way, id=f"{shape.name}-{way}")
        for shape in SHAPES
        for way in ([RAW] if shape.is_raw else [MIDDLEWARE, HTTP_IN])
    ],
)
def test_an_answer_through_two_hosts_is_that_of_the_application(
    hosted: dict[str, Hosted], shape: Shape, way: str
) -> None:
    place, parts = hosted[way], shape.parts
    probe = not any(b"upgrade:" in part.lower() for part in parts)  # servers wait for its end
    bare = ask(place.app, parts, shape.methods, probe=probe)
    if way == MIDDLEWARE:
        parts = tuple(part.replace(BARE.encode(), b"X-None: 1") for part in parts)
    came = ask(place.entries[1 - place.owner], parts, shape.methods, probe=probe)

    expected = _shown(_expected(bare, shape, way, str(place.app)))
    other = PASSED_ON_BY_NOBODY.get(shape.name)
    if way != MIDDLEWARE:
        is_http = not any(map(_is_of_server, bare.answers))
        other = ONLY_AT_HTTP_IN.get(shape.name, other) or (None if is_http else NOT_HTTP)
    if other is None:
        assert _shown(came) == expected
        for answer in came.answers:
            assert not SEEN(answer.body) or b'"ringpop-hops"' in answer.body, "it was not forwarded"
    else:
        assert [answer.status for answer in came.answers] == [other[0]]
        assert _shown(came) != expected, "it does not differ any more"


def test_each_difference_stands_in_the_guide() -> None:
    lists = (PASSED_ON_BY_NOBODY, ONLY_AT_HTTP_IN)
    known = {*OF_ANSWERS, *OF_ARRIVALS, *(row for each in lists for _, row in each.values())}
    known |= {NOT_HTTP[1], OF_SERVERS}
    section = DOCS.read_text("utf-8").partition("## What differs")[2].partition("\n## ")[0]

    assert set(re.findall(r"(?m)^\| \*\*(.+?)\*\* \|", section)) == known


# What is expected of the bare answer: each rule changes one of these two.


class Told(NamedTuple):
    """An answer, and what decides about it; *bare* is the one without any rule."""

    now: WireAnswer
    bare: WireAnswer
    way: str
    method: str
    request: bytes


class Arrival(NamedTuple):
    """What the application sees: headers as pairs, and the other parts by name."""

    headers: list[tuple[str, str]]
    parts: dict[str, Any]
    way: str
    app: str


def _reason(told: Told) -> WireAnswer:
    return told.now if told.way == MIDDLEWARE else told.now._replace(reason=b"")


def _version(told: Told) -> WireAnswer:
    return told.now._replace(version=b"HTTP/1.1")


def _interim(told: Told) -> WireAnswer:
    is_awaited = b"expect:" in told.request
    return told.now._replace(interim=[n for n in told.now.interim if n == 100 and is_awaited])


def _trailers(told: Told) -> WireAnswer:
    return told.now._replace(trailers=[])


def _hop_by_hop(told: Told) -> WireAnswer:
    options = b",".join(told.now.values(b"connection")).decode()
    gone = {"host", "ringpop-forwarded", *_of_connection(options)}
    kept = [pair for pair in told.now.headers if pair[0].lower().decode() not in gone]
    return told.now._replace(headers=kept)


def _own_close(told: Told) -> WireAnswer:
    if _keeps(told.request) or b"upgrade:" in told.request:
        return told.now
    return told.now._replace(headers=[*told.now.headers, (b"connection", b"close")])


def _bytes(told: Told) -> WireAnswer:
    return told.now._replace(headers=[(name, _utf_8(value)) for name, value in told.now.headers])


def _together(told: Told) -> WireAnswer:
    lowered = [(name.lower(), value) for name, value in told.now.headers]
    # A middleware under asyncio asks the owner's daemon itself, and nothing is lost on that way.
    return told.now._replace(headers=lowered if told.way == MIDDLEWARE else _grouped(lowered))


def _length(told: Told) -> WireAnswer:
    """The length comes last. What is whole soon has one."""
    framing = (b"content-length", b"transfer-encoding")
    headers = [pair for pair in told.now.headers if pair[0] not in framing]
    lengths = [pair for pair in told.now.headers if pair[0] == b"content-length"]
    kinds = [value.partition(b";")[0] for name, value in headers if name == b"content-type"]
    chunked, status = [(b"transfer-encoding", b"chunked")], told.bare.status
    if status == 204:
        last = []
    elif status == 304:
        last = lengths
    elif (
        told.method == "HEAD"
        or b"text/event-stream" in kinds
        or told.bare.values(b"trailer")
        or len(told.bare.body) > MIB
    ):
        last = lengths or chunked
    else:
        last = [(b"content-length", b"%d" % len(told.bare.body))]
    return told.now._replace(headers=headers + last)


def _arrives_without_hop_by_hop(seen: Arrival) -> Arrival:
    options = ",".join(value for name, value in seen.headers if name == "connection")
    gone = _of_connection(options)
    if seen.parts.get("scheme") == "ws":  # the daemon there opens one of its own
        gone -= {"connection", "upgrade"}
        gone |= {EXTENSIONS}
    return seen._replace(headers=[pair for pair in seen.headers if pair[0] not in gone])


def _arrives_at_its_host(seen: Arrival) -> Arrival:
    said = dict(seen.headers).get("host")
    kept = [pair for pair in seen.headers if pair[0] != "host"]
    return seen._replace(headers=[("host", said or seen.app), *kept])


def _arrives_from_its_caller(seen: Arrival) -> Arrival:
    """A believed peer has said who asks; uvicorn reads `X-Forwarded`, and the door both."""
    said = {name: value for name, value in seen.headers if "forwarded" in name}
    if seen.way == MIDDLEWARE or not said:
        return seen
    parts, headers = dict(seen.parts), dict(seen.headers)
    if host := said.get("x-forwarded-host"):
        headers["host"] = host
    named = re.match("for=(.*);proto=(.*)", said.get("forwarded", ""))
    if named and "x-forwarded-for" not in said:
        parts["client"], parts["scheme"] = named.groups()
    return seen._replace(headers=[*headers.items()], parts=parts)


def _arrives_without_underscores(seen: Arrival) -> Arrival:
    return seen._replace(headers=[pair for pair in seen.headers if "_" not in pair[0]])


def _arrives_together(seen: Arrival) -> Arrival:
    joined = [pair for pair in seen.headers if pair[0] not in ("cookie", PROTOCOL)]
    for name, separator in (("cookie", "; "), (PROTOCOL, ", ")):
        values = [value for each, value in seen.headers if each == name]
        joined += [(name, separator.join(values))] * bool(values)
    return seen._replace(headers=joined if seen.way == MIDDLEWARE else _grouped(joined))


def _arrives_as_utf_8(seen: Arrival) -> Arrival:
    headers = [(name, _utf_8(_raw(value)).decode("latin-1")) for name, value in seen.headers]
    return seen._replace(headers=headers)


def _arrives_with_length(seen: Arrival) -> Arrival:
    framing = ("content-length", "transfer-encoding")
    headers = [pair for pair in seen.headers if pair[0] not in framing]
    size = int(seen.parts["body"].split()[0])
    if size > MIB and "transfer-encoding" in dict(seen.headers):
        headers.append(("transfer-encoding", "chunked"))
    elif size or seen.parts["method"] in ("POST", "PUT", "PATCH"):
        headers.append(("content-length", str(size)))
    return seen._replace(headers=headers)


def _arrives_as_path(seen: Arrival) -> Arrival:
    parts = dict(seen.parts)
    for name in {"path", "raw_path"} & parts.keys():
        if whole := re.fullmatch("(?i)https?://[^/]*(/.*)?", parts[name]):
            parts[name] = whole[1] or "/"
    return seen._replace(parts=parts)


def _arrives_in_capitals(seen: Arrival) -> Arrival:
    if seen.way == MIDDLEWARE:
        return seen
    return seen._replace(parts={**seen.parts, "method": seen.parts["method"].upper()})


OF_ANSWERS: Final = {
    "reason phrases": [_reason],
    "answers before the answer": [_interim],
    "trailers": [_trailers],
    "headers about the connection": [_version, _hop_by_hop],
    "values that are not UTF-8": [_bytes],
    "order of headers": [_together],
    "how a body ends": [_length],
    "end of the connection": [_own_close],
}
"""What may differ in an answer, by its row in docs/web.md, in the order in which it is applied."""
OF_ARRIVALS: Final = {
    "headers about the connection": [_arrives_without_hop_by_hop],
    "names with an underscore": [_arrives_without_underscores],
    "order of headers": [_arrives_together],
    "values that are not UTF-8": [_arrives_as_utf_8],
    "host": [_arrives_at_its_host],
    "the caller": [_arrives_from_its_caller],
    "how a body ends": [_arrives_with_length],
    "targets": [_arrives_as_path],
    "methods": [_arrives_in_capitals],
}
"""As `OF_ANSWERS`, of what the application sees."""


def _expected(bare: Heard, shape: Shape, way: str, app: str) -> Heard:
    request = b"".join(shape.parts).partition(b"\r\n\r\n")[0].lower()
    answers = []
    for answer, method in zip(bare.answers, shape.methods, strict=False):
        told = Told(answer, answer, way, method, request)
        is_open = answer.status == 101
        for rules in [[_reason]] if is_open else OF_ANSWERS.values():
            for rule in rules:
                if not _is_of_server(answer):
                    told = told._replace(now=rule(told))
        answers.append(told.now._replace(body=_arriving(answer.body, way, app)))
    # Only the caller, and what cannot be read on, ends the connection of the caller.
    ended_by_app = any(map(_ends, bare.answers))
    return Heard(answers, bare.keeps or (ended_by_app and _keeps(request)))


def _arriving(body: bytes, way: str, app: str) -> bytes:
    """Return what the application sees through two hosts, if *body* says what it sees."""
    found = SEEN(body)
    if found is None:
        return body
    before, text, after = found.groups(b"")
    parts = json.loads(text)
    headers = [(name.lower(), value) for name, value in parts.pop("headers")]
    seen = Arrival(headers, parts, way, app)
    for rules in OF_ARRIVALS.values():
        for rule in rules:
            seen = rule(seen)
    return before + json.dumps({**seen.parts, "headers": seen.headers}).encode() + after


def _keeps(request: bytes) -> bool:
    return b"connection: close" not in request and b"http/1.0" not in request


def _is_of_server(answer: WireAnswer) -> bool:
    """Whether it is what uvicorn says of a request that is not HTTP."""
    return answer.body == b"Invalid HTTP request received."


def _ends(answer: WireAnswer) -> bool:
    """Whether the application ends the connection after it."""
    closes = any(value.lower() == b"close" for value in answer.values(b"connection"))
    has_end = answer.values(b"content-length") or answer.values(b"transfer-encoding")
    is_old = answer.version == b"HTTP/1.0"
    is_plain = answer.status != 101 and not _is_of_server(answer)
    return is_plain and (closes or not has_end or is_old)


def _of_connection(options: str) -> set[str]:
    return {*map(str.strip, options.lower().split(",")), *ABOUT_CONNECTION}


def _grouped(pairs: list[tuple[T, T]]) -> list[tuple[T, T]]:
    found: dict[T, list[T]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return [(name, value) for name, values in found.items() for value in values]


def _utf_8(value: bytes) -> bytes:
    try:
        return value.decode().encode()
    except UnicodeDecodeError:
        return value.decode("latin-1").encode()


def _raw(value: str) -> bytes:
    return value.encode("latin-1")


# What is compared.


def _shown(heard: Heard) -> list[Any]:
    return ["keeps" if heard.keeps else "ends", *map(_shown_answer, heard.answers)]


def _shown_answer(answer: WireAnswer) -> list[Any]:
    headers = [(name.lower(), value) for name, value in answer.headers]
    headers = [pair for pair in headers if pair[0] not in MUST_DIFFER]
    body: Any = answer.body
    if found := SEEN(body):
        before, text, after = found.groups()
        body = before, _arrived(json.loads(text)), after
        headers = [pair for pair in headers if pair[0] != b"content-length"]
    if answer.status == 101:
        headers = sorted(pair for pair in headers if pair[0] not in HANDSHAKE)
    return [
        answer.version,
        answer.status,
        answer.reason,
        headers,
        body,
        answer.trailers,
        answer.interim,
    ]


def _arrived(seen: dict[str, Any]) -> dict[str, Any]:
    pairs = [(name, value) for name, value in seen["headers"] if name.lower() not in ARRIVES_ANEW]
    return {**seen, "headers": sorted(pairs) if seen.get("scheme") == "ws" else pairs}
