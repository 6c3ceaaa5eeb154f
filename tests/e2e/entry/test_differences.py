"""Whatever is asked, the answer through two hosts is that of the bare application, byte by byte.

What differs all the same is a rule here, which makes of the bare answer the expected one. Each rule
has its row in docs/web.md.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from ringpop_py.base.address import Address
from tests.e2e.entry.hosts import Hosts
from tests.e2e.entry.raw_http import Heard, Pairs, RawApp, WireAnswer, ask
from tests.e2e.entry.shapes import BARE, KEY, MIB, SHAPES, Shape
from tests.e2e.local_cluster import free_addresses

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("differences")
MIDDLEWARE, HTTP_IN, RAW = "middleware", "http-in", "http-in, raw"
SEEN: Final = re.compile(rb'(?s)(81 )?(\{"method".*\})(\|88 .*)?').fullmatch
"""A body that says what the application has seen; in a websocket it is one of two frames."""
EXTENSIONS: Final = "sec-websocket-extensions"
HANDSHAKE: Final = (b"upgrade", b"connection", b"sec-websocket-accept", EXTENSIONS.encode())
"""What the server of each caller says of its own connection when it opens a websocket."""
DOCS: Final = Path(__file__).parents[3] / "docs/web.md"

MUST_DIFFER: Final = {
    b"date": "when a server has answered: each says it for itself",
    b"server": "the name of a server",
}
"""Headers of answers that are not compared, with the reason."""
ARRIVES_ANEW: Final = {
    "x-forwarded-for": "the caller, which the server of the bare application sees itself",
    "x-forwarded-proto": "the caller's scheme",
    "x-forwarded-host": "the host that the caller has named",
    "ringpop-hops": "how often the request was forwarded",
    "ringpop-forwarded": "the mark of the daemon here, which is a secret",
    "x-bare": "what has the application answer without its middleware",
    "x-none": "stands in its place",
    "sec-websocket-key": "a number of each connection, drawn by who opens it",
}
"""Headers of requests that are not compared, with the reason."""
DROPPED: Final = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
    *("proxy-connection", "te", "trailer", "upgrade"),
)
REFUSED: Final = {
    "method-too-long": 400,
    "options-all": 400,
    "target-no-slash": 400,
    "target-slashes": 400,
    "target-slashes-host": 400,
    "target-very-long": 400,
    "header-control": 400,
}
"""Shapes that no host passes on, with the status of the answer."""
REFUSED_BY_MIDDLEWARE: Final = dict[str, int]()
REFUSED_AT_HTTP_IN: Final = {
    "body-length-and-chunked": 400,
    "body-unknown-coding": 501,
    "websocket-version-8": 400,
    "websocket-no-key": 400,
    "websocket-post": 200,
    "pipelined-close": 400,
    "raw-two-lengths-equal": 504,
    "raw-folded": 504,
}
"""As `REFUSED`, of one way only."""


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
    wanted = REFUSED.get(shape.name)
    if way == MIDDLEWARE:
        wanted = REFUSED_BY_MIDDLEWARE.get(shape.name, wanted)
    else:
        wanted = REFUSED_AT_HTTP_IN.get(shape.name, wanted)
    if way != MIDDLEWARE and any(map(_is_of_server, bare.answers)):
        wanted = wanted or 400
    if wanted is not None:
        assert [answer.status for answer in came.answers] == [wanted]
        assert _shown(came) != expected, "it does not differ any more"
        return
    assert _shown(came) == expected


# What is expected of the bare answer.


def _expected(bare: Heard, shape: Shape, way: str, app: str) -> Heard:
    """Return what is expected through two hosts: each line is a row in docs/web.md."""
    request = b"".join(shape.parts).partition(b"\r\n\r\n")[0].lower()
    is_kept = b"connection: close" not in request and b"http/1.0" not in request
    answers = []
    for answer, method in zip(bare.answers, shape.methods, strict=False):
        if _is_of_server(answer):
            answers.append(answer)
            continue
        if answer.status == 101:
            body = _arriving(answer.body, way, app)
            reason = answer.reason if way == MIDDLEWARE else b""
            answers.append(answer._replace(body=body, reason=reason))
            continue
        changed = _without_hop_by_hop(answer)
        changed = changed._replace(
            interim=[each for each in answer.interim if each == 100 and b"expect:" in request],
            reason=b"" if way != MIDDLEWARE else answer.reason,
            version=b"HTTP/1.1",
            headers=[(name, _utf_8(value)) for name, value in changed.headers],
            trailers=[],
            body=_arriving(answer.body, way, app),
        )
        changed = _with_length(_together(changed), answer, method, request)
        if not is_kept and b"upgrade:" not in request and answer is bare.answers[-1]:
            changed.headers.append((b"connection", b"close"))
        answers.append(changed)
    # Only the caller, and what cannot be read on, ends the caller's connection.
    ended_by_app = any(_ends(answer) for answer in bare.answers)
    if bare.answers and bare.answers[-1].status == 101:
        ended_by_app = False
    return Heard(answers, bare.keeps or (ended_by_app and is_kept))


def _is_of_server(answer: WireAnswer) -> bool:
    """Whether it is what uvicorn says of a request that is not HTTP."""
    return answer.body == b"Invalid HTTP request received."


def _ends(answer: WireAnswer) -> bool:
    closes = any(value.lower() == b"close" for value in answer.values(b"connection"))
    has_end = answer.values(b"content-length") or answer.values(b"transfer-encoding")
    return not _is_of_server(answer) and (closes or not has_end or answer.version == b"HTTP/1.0")


def _without_hop_by_hop(answer: WireAnswer) -> WireAnswer:
    named = b",".join(answer.values(b"connection")).lower().split(b",")
    gone = {*(each.strip() for each in named), *(each.encode() for each in DROPPED), b"host"}
    return answer._replace(headers=[pair for pair in answer.headers if pair[0].lower() not in gone])


def _utf_8(value: bytes) -> bytes:
    try:
        return value.decode().encode()
    except UnicodeDecodeError:
        return value.decode("latin-1").encode()


def _together(answer: WireAnswer) -> WireAnswer:
    found: dict[bytes, list[bytes]] = {}
    for name, value in answer.headers:
        found.setdefault(name.lower(), []).append(value)
    pairs = [(name, value) for name, values in found.items() for value in values]
    return answer._replace(headers=pairs)


def _with_length(
    changed: WireAnswer, bare: WireAnswer, method: str, request: bytes
) -> WireAnswer:
    """The length comes last. What is whole soon has one."""
    headers = [p for p in changed.headers if p[0] not in (b"content-length", b"transfer-encoding")]
    lengths = [p for p in changed.headers if p[0] == b"content-length"]
    chunked = (b"transfer-encoding", b"chunked")
    is_events = (b"content-type", b"text/event-stream") in [
        (name, value.partition(b";")[0]) for name, value in headers
    ]
    if bare.status == 204:
        return changed._replace(headers=headers)
    if method == "HEAD" or bare.status == 304:
        is_1_1 = method == "HEAD" and b"http/1.0" not in request
        return changed._replace(headers=headers + (lengths or [chunked] * is_1_1))
    if is_events or len(bare.body) > MIB:
        return changed._replace(headers=headers + (lengths or [chunked]))
    length = b"%d" % len(bare.body)
    return changed._replace(headers=[*headers, (b"content-length", length)])


def _arriving(body: bytes, way: str, app: str) -> bytes:
    """Return what the application sees through two hosts, if *body* says what it sees."""
    found_in = SEEN(body)
    if found_in is None:
        return body
    before, text, after = found_in.groups(b"")
    seen = json.loads(text)
    is_websocket = seen.get("scheme") == "ws"
    pairs = [(name.lower(), value) for name, value in seen["headers"]]
    said = dict(pairs)
    named = ",".join(value for name, value in pairs if name == "connection").lower().split(",")
    gone = {*map(str.strip, named), *DROPPED, "host", "cookie", "content-length", "transfer-encoding"}
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        if name not in gone and "_" not in name:
            found.setdefault(name, []).append(value)
    cookies = [value for name, value in pairs if name == "cookie"]
    if cookies:
        found["cookie"] = ["; ".join(cookies)]
    host = said.get("host") if way == MIDDLEWARE else ""
    headers = [("host", host or app)]
    headers += [(name, _utf_8_text(value)) for name, values in found.items() for value in values]
    size = int(seen["body"].split()[0])
    if size > MIB and "transfer-encoding" in said:
        headers.append(("transfer-encoding", "chunked"))
    elif size or seen["method"] in ("POST", "PUT", "PATCH"):
        headers.append(("content-length", str(size)))
    if is_websocket:  # the other daemon opens one of its own
        headers = [pair for pair in headers if pair[0] not in ("sec-websocket-protocol", EXTENSIONS)]
        headers += [("upgrade", "websocket"), ("connection", "Upgrade")]
        protocols = [value for name, value in pairs if name == "sec-websocket-protocol"]
        headers += [("sec-websocket-protocol", ", ".join(protocols))] * bool(protocols)
    seen["headers"] = headers
    for name in ("path", "raw_path"):
        if name in seen and (whole := re.fullmatch("(?i)https?://[^/]*(/.*)?", seen[name])):
            seen[name] = whole[1] or "/"
    if way != MIDDLEWARE:
        seen["method"] = seen["method"].upper()
    return before + json.dumps(seen).encode() + after


def _utf_8_text(value: str) -> str:
    return _utf_8(value.encode("latin-1")).decode("latin-1")


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
    return [answer.version, answer.status, answer.reason, headers, body, answer.trailers, answer.interim]


def _arrived(seen: dict[str, Any]) -> dict[str, Any]:
    pairs = [(name, value) for name, value in seen["headers"] if name.lower() not in ARRIVES_ANEW]
    return {**seen, "headers": sorted(pairs) if seen.get("scheme") == "ws" else pairs}
