"""Shapes of requests, and of answers that they ask the applications of these tests for."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB: Final = 1 << 20
KEY: Final = "k"
TARGET: Final = "/some/path?a=1"
BARE: Final = "X-Bare: 1"
"""What has the application answer without its middleware."""
KEYED: Final = f"X-Key: {KEY}\r\n{BARE}"


class Shape(NamedTuple):
    """What is sent, and how many requests with which methods it has.

    Attributes:
        parts: each after the first waits for an interim answer.
        is_raw: whether `RawApp` answers, and not an ASGI application.
    """

    name: str
    parts: tuple[bytes, ...]
    methods: tuple[str, ...] = ("GET",)
    is_raw: bool = False


def request(
    *headers: bytes | str,
    method: str = "GET",
    target: str = TARGET,
    version: str = "1.1",
    body: bytes = b"",
) -> bytes:
    lines = [f"{method} {target} HTTP/{version}".encode("latin-1"), b"Host: shop.example:81"]
    lines.append(KEYED.encode())
    lines += [each if isinstance(each, bytes) else each.encode("latin-1") for each in headers]
    return b"\r\n".join((*lines, b"", body))


def of(
    name: str,
    *headers: bytes | str,
    method: str = "GET",
    target: str = TARGET,
    version: str = "1.1",
    body: bytes = b"",
) -> Shape:
    data = request(*headers, method=method, target=target, version=version, body=body)
    return Shape(name, (data,), (method,))


def answer(
    name: str,
    status: int = 200,
    headers: list[tuple[str, str]] | None = None,
    parts: tuple[str, ...] = (),
    *more: str,
    method: str = "GET",
    **wanted: object,
) -> Shape:
    """The shape of an answer: *wanted* as the application of these tests reads it."""
    said = {"status": status, "headers": headers or [], "parts": parts, **wanted}
    return of(f"answer-{name}", f"X-Answer: {json.dumps(said)}", *more, method=method)


def raw(name: str, data: bytes, *more: str, method: str = "GET") -> Shape:
    """The shape of an answer that is *data*."""
    said = f"X-Answer: {base64.b64encode(data).decode()}"
    return of(f"raw-{name}", said, *more, method=method)._replace(is_raw=True)


def length(body: str) -> tuple[str, str]:
    return ("content-length", str(len(body)))


def _methods() -> Iterator[Shape]:
    for method in (
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
        "OPTIONS",
        "TRACE",
        "PURGE",
        "M-SEARCH",
    ):
        yield of(f"method-{method}", method=method)
        yield of(f"method-{method}-length-0", "Content-Length: 0", method=method)
        yield of(f"method-{method}-body", "Content-Length: 5", method=method, body=b"abcde")
    yield of("method-get-lowercase", method="get")
    yield of("method-long", method="X" * 32)
    yield of("method-too-long", method="X" * 33)
    yield of("options-all", method="OPTIONS", target="*")


def _bodies() -> Iterator[Shape]:
    for size in (1, MIB - 1, MIB, MIB + 1):
        yield of(f"body-{size}", f"Content-Length: {size}", method="POST", body=b"x" * size)
        chunks = b"".join(
            b"%x\r\n%b\r\n" % (len(part), part)
            for part in (b"x" * min(65536, size - at) for at in range(0, size, 65536))
        )
        chunked = "Transfer-Encoding: chunked"
        yield of(f"body-chunked-{size}", chunked, method="POST", body=chunks + b"0\r\n\r\n")
    small = b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\n"
    chunked = "Transfer-Encoding: chunked"
    yield of("body-chunked-none", chunked, method="POST", body=b"0\r\n\r\n")
    yield of("body-chunked-get", chunked, body=small + b"\r\n")
    yield of("body-chunked-caps", "transfer-ENCODING: Chunked", method="PUT", body=small + b"\r\n")
    trailed = small + b"X-Trailer: t\r\n\r\n"
    yield of("body-trailers", chunked, "Trailer: X-Trailer", method="POST", body=trailed)
    yield of(
        "body-gzip-said",
        "Content-Encoding: gzip",
        "Content-Length: 2",
        method="POST",
        body=b"\x1f\x8b",
    )
    for name, body, headers in (
        ("", b"abcde", ("Content-Length: 5",)),
        ("-chunked", small + b"\r\n", (chunked,)),
        ("-long", b"x" * (MIB + 1), (f"Content-Length: {MIB + 1}",)),
    ):
        head = request(*headers, "Expect: 100-continue", method="POST")
        yield Shape(f"expect{name}", (head, body), ("POST",))
    head = request("Content-Length: 0", "Expect: 100-continue", method="POST")
    yield Shape("expect-none", (head,), ("POST",))
    yield of("expect-unknown", "Expect: much", "Content-Length: 1", method="POST", body=b"x")
    yield of(
        "body-two-lengths", "Content-Length: 5", "Content-Length: 6", method="POST", body=b"abcde"
    )
    yield of(
        "body-equal-lengths", "Content-Length: 5", "Content-Length: 5", method="POST", body=b"abcde"
    )
    yield of(
        "body-length-and-chunked", "Content-Length: 5", chunked, method="POST", body=small + b"\r\n"
    )
    yield of("body-length-bad", "Content-Length: five", method="POST")
    yield of("body-bad-chunk", chunked, method="POST", body=b"zz\r\n")
    yield of(
        "body-unknown-coding",
        "Transfer-Encoding: gzip, chunked",
        method="POST",
        body=small + b"\r\n",
    )


def _answers() -> Iterator[Shape]:
    yield answer("empty")
    yield answer("empty-length", headers=[("content-length", "0")])
    for status in (204, 205, 304):
        yield answer(f"{status}", status, [("etag", '"a"')])
        yield answer(f"{status}-length", status, [("etag", 'W/"a"'), ("content-length", "0")])
    yield answer("304-length-5", 304, [("etag", '"a"'), ("content-length", "5")])
    yield answer(
        "304-headers",
        304,
        [("vary", "cookie"), ("cache-control", "max-age=5"), ("set-cookie", "a=1")],
    )
    for status in (301, 302, 303, 307, 308):
        yield answer(
            f"{status}-relative", status, [("location", "/else?x=1#f"), ("content-length", "0")]
        )
        yield answer(
            f"{status}-absolute",
            status,
            [("location", "http://shop.example:81/ä"), ("content-length", "0")],
        )
    yield answer(
        "location-of-app", 302, [("location", "http://127.0.0.1:1/"), ("content-length", "0")]
    )


def _parts_and_lengths() -> Iterator[Shape]:
    ranges = [("content-range", "bytes 0-3/10"), ("accept-ranges", "bytes"), length("abcd")]
    yield answer("206", 206, ranges, ("abcd",), "Range: bytes=0-3")
    yield answer(
        "206-multipart", 206, [("content-type", "multipart/byteranges; boundary=B")], ("--B--",)
    )
    yield answer(
        "416",
        416,
        [("content-range", "bytes */10"), ("content-length", "0")],
        (),
        "Range: bytes=90-",
    )
    yield answer("head-length", 200, [("content-length", "1234")], method="HEAD")
    yield answer("head-zero", 200, [("content-length", "0")], method="HEAD")
    yield answer("head-none", 200, [("etag", '"a"')], method="HEAD")
    yield answer("head-404", 404, [("content-length", "9")], method="HEAD")
    yield answer("head-304", 304, [("content-length", "9")], method="HEAD")
    yield answer("head-body", 200, [], ("abc",), method="HEAD")
    yield answer("chunked", 200, [("content-type", "text/plain")], ("abc", "de"))
    yield answer("chunked-said", 200, [("transfer-encoding", "chunked")], ("abc", "de"))
    yield answer("chunked-long", 200, [], ("x" * 1024,) * 2, times=700)
    yield answer("long", 200, [("content-length", str(MIB + 1))], ("x",), times=MIB + 1)
    yield answer("mib", 200, [("content-length", str(MIB))], ("x",), times=MIB)
    yield answer(
        "events", 200, [("content-type", "text/event-stream")], ("data: 1\n\n", "data: 2\n\n")
    )
    yield answer(
        "event-typed", 200, [("content-type", "text/event-stream; charset=utf-8")], ("data: 1\n\n",)
    )
    yield answer("close", 200, [length("abc"), ("connection", "close")], ("abc",))
    yield answer("close-no-length", 200, [("connection", "close")], ("abc",))
    yield answer(
        "keep-alive-said",
        200,
        [length("abc"), ("connection", "keep-alive"), ("keep-alive", "timeout=5")],
        ("abc",),
    )
    yield answer(
        "connection-names",
        200,
        [length("a"), ("connection", "x-hop"), ("x-hop", "1"), ("x-end", "2")],
        ("a",),
    )
    yield answer(
        "gzip",
        200,
        [("content-encoding", "gzip"), ("vary", "accept-encoding"), length("\x1f\x8bxy")],
        ("\x1f\x8bxy",),
        "Accept-Encoding: gzip, br;q=0.5",
    )
    yield answer("binary", 200, [length("\x00\xff\r\n")], ("\x00\xff\r\n",))


def _statuses() -> Iterator[Shape]:
    yield answer("500", 500, [length("no")], ("no",))
    yield answer("raises", raises=True)
    yield answer("503-retry", 503, [("retry-after", "7"), length("no")], ("no",))
    yield answer(
        "401",
        401,
        [("www-authenticate", 'Basic realm="ä"'), ("www-authenticate", "Bearer"), length("no")],
        ("no",),
    )
    yield answer("407", 407, [("proxy-authenticate", "Basic"), length("no")], ("no",))
    yield answer("421", 421, [length("no")], ("no",))
    yield answer("426", 426, [("upgrade", "h2c"), ("connection", "upgrade"), length("no")], ("no",))
    for status in (218, 299, 418, 451, 499, 599):
        yield answer(f"status-{status}", status, [length("hm")], ("hm",))


def _headers_of_answers() -> Iterator[Shape]:
    cookies = [
        ("set-cookie", text)
        for text in (
            "a=1; Path=/",
            'b="x,y"; HttpOnly',
            "c=%20;Expires=Wed, 09 Jun 2100 10:18:14 GMT",
            "d=ä",
            "a=2",
        )
    ]
    yield answer("cookies", 200, [*cookies, length("a")], ("a",))
    yield answer(
        "cookies-between", 200, [cookies[0], ("x-a", "1"), cookies[1], length("a")], ("a",)
    )
    yield answer("repeated", 200, [("x-a", "1"), ("x-b", "2"), ("x-a", "3"), length("a")], ("a",))
    yield answer(
        "repeated-together", 200, [("x-a", "1"), ("x-a", "1"), ("x-b", "2"), length("a")], ("a",)
    )
    yield answer("case", 200, [("X-CamelCase", "V"), ("Content-Length", "1")], ("a",))
    yield answer("empty-value", 200, [("x-empty", ""), ("x-full", "1"), length("a")], ("a",))
    yield answer("empty-values", 200, [("x-empty", ""), ("x-empty", ""), length("a")], ("a",))
    yield answer("spaces", 200, [("x-inner", "a  b\tc"), length("a")], ("a",))
    yield answer("latin-1", 200, [("x-l", "\xe4\xff\x80"), length("a")], ("a",))
    yield answer("utf-8", 200, [("x-u", "ä€".encode().decode("latin-1")), length("a")], ("a",))
    yield answer(
        "both", 200, [("x-b", "\xe4" + "ä".encode().decode("latin-1")), length("a")], ("a",)
    )
    yield answer("long-header", 200, [("x-long", "l" * 8192), length("a")], ("a",))
    yield answer(
        "many-headers", 200, [*((f"x-{n}", str(n)) for n in range(60)), length("a")], ("a",)
    )
    yield answer("underscore", 200, [("x_under", "1"), ("x-under", "2"), length("a")], ("a",))
    yield answer("odd-names", 200, [("x!#$%&'*+.^`|~1", "1"), length("a")], ("a",))
    yield answer(
        "date",
        200,
        [("date", "Wed, 09 Jun 2100 10:18:14 GMT"), ("server", "mine"), length("a")],
        ("a",),
    )
    yield answer(
        "via",
        200,
        [("via", "1.1 a"), ("alt-svc", "clear"), ("trailer", "x-t"), length("a")],
        ("a",),
    )
    yield answer(
        "hop-names",
        200,
        [("te", "trailers"), ("upgrade", "h2c"), ("proxy-connection", "close"), length("a")],
        ("a",),
    )
    yield answer(
        "ringpop-names",
        200,
        [("ringpop-hops", "1"), ("ringpop-forwarded", "2"), length("a")],
        ("a",),
    )
    yield answer(
        "forwarded-names", 200, [("x-forwarded-for", "1.2.3.4"), ("host", "h"), length("a")], ("a",)
    )
    yield answer(
        "early", 200, [length("a")], ("a",), "Content-Length: 0", method="POST", early=True
    )
    yield answer("head-chunked", 200, [("transfer-encoding", "chunked")], method="HEAD")


def _headers() -> Iterator[Shape]:
    yield of("header-latin-1", b"X-L: \xe4\xff\x80")
    yield of("header-utf-8", b"X-U: " + "ä€".encode())
    yield of("header-both", b"X-B: \xe4" + "ä".encode())
    yield of("header-repeated", "X-A: 1", "X-B: 2", "X-A: 3")
    yield of("header-case", "x-LOWER-upper: Value", "ACCEPT: */*")
    yield of("header-cookies", "Cookie: a=1", "X-A: 1", 'Cookie: b=2; c="3"')
    yield of("header-cookie", "Cookie: a=1; b=2;c", "X-A: 1")
    yield of("header-cookie-latin-1", b"Cookie: a=\xe4")
    yield of("header-cookie-empty", "Cookie:")
    yield of("header-accept-encoding", "Accept-Encoding: gzip;q=1.0, identity; q=0.5, *;q=0")
    yield of(
        "header-if-none-match",
        'If-None-Match: "a", W/"b"',
        "If-Modified-Since: Wed, 09 Jun 2021 10:18:14 GMT",
    )
    yield of("header-authorization", "Authorization: Basic YTpi")
    yield of("header-proxy-authorization", "Proxy-Authorization: Basic YTpi")
    yield of("header-underscore", "X_Under: 1", "X-Under: 2")
    yield of("header-empty", "X-Empty:", "X-Full: 1")
    yield of("header-spaces", "X-Spaces:  \t a  b\tc \t ")
    yield of("header-long", "X-Long: " + "l" * 8192)
    yield of("header-many", *(f"X-{n}: {n}" for n in range(60)))
    yield of("header-te", "TE: trailers", "Connection: TE")
    yield of("header-connection-names", "Connection: X-Hop, keep-alive", "X-Hop: 1", "X-End: 2")
    yield of("header-keep-alive", "Connection: keep-alive", "Keep-Alive: timeout=5")
    yield of(
        "header-forwarded",
        "X-Forwarded-For: 1.2.3.4",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: h.example",
    )
    yield of("header-forwarded-7239", "Forwarded: for=1.2.3.4;proto=https")
    yield of("header-x-real-ip", "X-Real-IP: 1.2.3.4", "Via: 1.1 other")
    yield of(
        "header-trace",
        "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "Baggage: a=1",
    )
    yield of(
        "header-origin",
        "Origin: http://other.example",
        "Sec-Fetch-Site: cross-site",
        "Referer: http://o/",
    )
    yield of("header-mark", "Ringpop-Forwarded: guess")
    yield of("header-hops", "Ringpop-Hops: 1")
    yield of("header-hops-odd", "Ringpop-Hops: many")
    yield of("header-user-agent-twice", "User-Agent: a", "User-Agent: b")
    yield of("header-content-type-get", "Content-Type: text/plain; charset=latin-1")
    yield of("header-odd-name", "X!#$%&'*+.^`|~1: 1")
    yield of("header-bad-name", "X Space: 1")
    yield of("header-no-colon", "nothing")
    yield of("header-control", b"X-C: a\x01b")
    yield of("header-nul", b"X-C: a\x00b")
    yield of("header-folded", "X-F: a\r\n b")
    yield of("header-two-hosts", "Host: other")
    yield Shape("header-no-host", (f"GET / HTTP/1.1\r\n{KEYED}\r\n\r\n".encode(),))
    yield Shape("header-empty-host", (f"GET / HTTP/1.1\r\nHost:\r\n{KEYED}\r\n\r\n".encode(),))


TARGETS: Final = {
    "root": "/",
    "percent": "/a%20b%2Fc%3f%C3%A4",
    "percent-case": "/%2f%2F%e4",
    "percent-unreserved": "/%41%7E",
    "percent-bad": "/100%",
    "percent-nul": "/a%00b",
    "percent-line": "/a%0d%0ab",
    "slashes": "//",
    "slashes-host": "//other.example/x",
    "slashes-inside": "/a//b///",
    "dots": "/a/../b/./c",
    "dots-above": "/../../etc",
    "dots-percent": "/%2e%2e/x",
    "query-empty": "/a?",
    "query-only-mark": "/?",
    "query-twice": "/a?b?c=1",
    "query-amps": "/a?&&b=1&b=2&=",
    "query-percent": "/a?b=%26%3D%20+%ff",
    "query-slashes": "/a?//x/../y",
    "query-odd": "/a?[]{}|\\^`\"<>'",
    "semicolons": "/a;b=1;c/d;e?f;g",
    "odd": "/a!$&'()*+,=:@b",
    "brackets": '/[a]{b}|c^d`e"<f>',
    "backslash": "/a\\b",
    "tilde": "/~user/-_.",
    "long": "/" + "l" * 7000,
    "long-query": "/?" + "l" * 7000,
    "very-long": "/" + "l" * 17000,
    "latin-1": "/\xe4",
    "utf-8": "/" + "ä".encode().decode("latin-1"),
    "query-utf-8": "/?" + "ä".encode().decode("latin-1"),
    "absolute": "http://shop.example:81/a/b?c=1",
    "absolute-other": "http://other.example/a",
    "absolute-root": "http://shop.example:81",
    "absolute-query": "http://shop.example:81?a=1",
    "absolute-case": "HTTP://shop.example:81/a",
    "fragment": "/a#b",
    "no-slash": "a/b",
    "colon": "/http://x/y",
}


def _connections() -> Iterator[Shape]:
    for name, target in TARGETS.items():
        yield of(f"target-{name}", target=target)
    yield of("http-1.0", version="1.0")
    yield of("http-1.0-keep-alive", "Connection: keep-alive", version="1.0")
    yield of("http-1.0-post", "Content-Length: 1", version="1.0", method="POST", body=b"x")
    chunked = json.dumps({"parts": ["abc", "de"]})
    yield of("http-1.0-no-length", f"X-Answer: {chunked}", version="1.0")
    yield Shape("http-1.0-no-host", (f"GET / HTTP/1.0\r\n{KEYED}\r\n\r\n".encode(),))
    yield of("http-1.2", version="1.2")
    yield of("http-2.0", version="2.0")
    yield Shape("no-http", (b"hello\r\n\r\n",))
    yield Shape("blank-lines", (b"\r\n\r\n" + request(),))
    yield of("connection-close", "Connection: close")
    yield of("connection-close-case", "Connection: Close, X-Hop", "X-Hop: 1")
    both = request(target="/1") + request(target="/2")
    yield Shape("pipelined", (both,), ("GET", "GET"))
    both = request("Content-Length: 3", method="POST", body=b"abc") + request(target="/2")
    yield Shape("pipelined-post", (both,), ("POST", "GET"))
    both = request(method="HEAD") + request(target="/2")
    yield Shape("pipelined-head", (both,), ("HEAD", "GET"))
    both = request("Connection: close") + request(target="/2")
    yield Shape("pipelined-close", (both,), ("GET", "GET"))
    keyed = (
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    ws = (*keyed, "Sec-WebSocket-Version: 13")
    yield of("websocket", *ws)
    yield of("websocket-protocols", *ws, "Sec-WebSocket-Protocol: one, two")
    yield of(
        "websocket-protocols-apart",
        *ws,
        "Sec-WebSocket-Protocol: one",
        "Sec-WebSocket-Protocol: two",
    )
    yield of("websocket-extensions", *ws, "Sec-WebSocket-Extensions: permessage-deflate")
    yield of("websocket-headers", *ws, "Origin: http://o.example", "Cookie: a=1", b"X-L: \xe4")
    yield of("websocket-refused", *ws, "X-Refuse: 1")
    yield of("websocket-version-8", *keyed, "Sec-WebSocket-Version: 8")
    yield of(
        "websocket-no-key", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"
    )
    yield of("websocket-post", *ws, method="POST")
    yield of("upgrade-unknown", "Upgrade: chat/2", "Connection: Upgrade")
    yield of(
        "upgrade-h2c",
        "Upgrade: h2c",
        "Connection: Upgrade, HTTP2-Settings",
        "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    )
    yield of("upgrade-no-connection", "Upgrade: websocket")


def _raw_answers() -> Iterator[Shape]:
    ok, body = b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n\r\nhi"
    yield of("raw-arrives")._replace(is_raw=True)
    yield of("raw-arrives-case", "X-CamelCase: V", "cookie: a=1", "COOKIE: b=2")._replace(
        is_raw=True
    )
    yield of("raw-arrives-post", "content-length: 0", method="POST")._replace(is_raw=True)
    yield of("raw-arrives-bytes", b"X-L: \xe4\xff", target="/a\\b?c=%e4|")._replace(is_raw=True)
    yield raw("case", ok + b"X-CamelCase: V\r\n" + body)
    yield raw("close-delimited", ok + b"X-A: 1\r\n\r\nhello", "X-Close: 1")
    yield raw("close-delimited-empty", ok + b"\r\n", "X-Close: 1")
    yield raw("http-1.0", b"HTTP/1.0 200 OK\r\n" + body, "X-Close: 1")
    yield raw("http-1.0-close-delimited", b"HTTP/1.0 200 OK\r\n\r\nhello", "X-Close: 1")
    yield raw("connection-close", ok + b"Connection: close\r\n" + body, "X-Close: 1")
    yield raw("100", b"HTTP/1.1 100 Continue\r\n\r\n" + ok + body)
    yield raw("102", b"HTTP/1.1 102 Processing\r\n\r\n" * 2 + ok + body)
    yield raw("103", b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n" + ok + body)
    yield raw("reason", b"HTTP/1.1 200 Very Fine\r\n" + body)
    yield raw("reason-none", b"HTTP/1.1 200 \r\n" + body)
    yield raw("reason-nothing", b"HTTP/1.1 200\r\n" + body)
    yield raw("reason-latin-1", b"HTTP/1.1 404 Nicht da \xe4\r\n" + body)
    yield raw("status-299", b"HTTP/1.1 299 Hm\r\n" + body)
    yield raw("status-999", b"HTTP/1.1 999 Hm\r\n" + body)
    chunks = b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n0\r\n"
    yield raw("chunked", ok + chunks + b"\r\n")
    yield raw("chunked-caps", ok + chunks.replace(b": chunked", b": CHUNKED") + b"\r\n")
    yield raw("trailers", ok + b"Trailer: X-Sum\r\n" + chunks + b"X-Sum: 5\r\n\r\n")
    yield raw(
        "trailers-te", ok + b"Trailer: X-Sum\r\n" + chunks + b"X-Sum: 5\r\n\r\n", "TE: trailers"
    )
    yield raw("trailers-unsaid", ok + chunks + b"X-Sum: 5\r\n\r\n")
    yield raw("head-length", ok + b"Content-Length: 77\r\n\r\n", method="HEAD")
    yield raw("head-none", ok + b"X-A: 1\r\n\r\n", method="HEAD")
    yield raw("head-chunked", ok + b"Transfer-Encoding: chunked\r\n\r\n", method="HEAD")
    yield raw("204", b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n")
    yield raw("304-length", b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 77\r\n\r\n')
    yield raw("205-length", b"HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n")
    yield raw("cookies", ok + b"Set-Cookie: a=1\r\nX-A: 1\r\nSet-Cookie: b=2\r\n" + body)
    yield raw("empty-value", ok + b"X-Empty:\r\nX-Spaces: \t \r\n" + body)
    yield raw("no-space", ok + b"X-A:1\r\nX-B: \t 2 \t\r\n" + body)
    yield raw("latin-1", ok + b"X-L: \xe4\xff\r\n" + body)
    yield raw("utf-8", ok + b"X-U: " + "ä€".encode() + b"\r\n" + body)
    yield raw("date", ok + b"Date: Wed, 09 Jun 2100 10:18:14 GMT\r\nServer: mine/1\r\n" + body)
    yield raw("long-header", ok + b"X-Long: " + b"l" * 8192 + b"\r\n" + body)
    yield raw("two-lengths-equal", ok + b"Content-Length: 2\r\n" + body, method="POST")
    yield raw("folded", ok + b"X-F: a\r\n b\r\n" + body, method="POST")


SHAPES: Final = (
    *_methods(),
    *_bodies(),
    *_answers(),
    *_parts_and_lengths(),
    *_statuses(),
    *_headers_of_answers(),
    *_headers(),
    *_connections(),
    *_raw_answers(),
)
