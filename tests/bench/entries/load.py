"""Load: ``load.py HOST PORT PATH CALLERS SECONDS`` prints ``{"rate": …, "p99_ms": …}``.

Each caller has a connection, and sends the next request when the answer to the one before is here.
It fails if a connection ends before: what is measured would be fewer callers.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

WARM_S = 1.0


class Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self, request: bytes, times: list[tuple[float, float]]) -> None:
        self._request = request
        self._times = times
        self._came = b""
        self._began = 0.0
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def connection_lost(self, _why: Exception | None) -> None:
        self.lost = True

    def _ask(self) -> None:
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._came += data
        head, end, body = self._came.partition(b"\r\n\r\n")
        if not end:
            return
        lines = head.lower().split(b"\r\n")
        assert lines[0].startswith(b"http/1.1 200"), lines[0]
        [length] = [
            int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")
        ]
        if len(body) < length:
            return
        self._came = b""
        self._times.append((self._began, time.perf_counter() - self._began))
        self._ask()


async def main(host: str, port: int, path: str, callers: int, seconds: float) -> None:
    loop, times = asyncio.get_running_loop(), list[tuple[float, float]]()
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: */*\r\n\r\n".encode()
    connections = [
        await loop.create_connection(lambda: Caller(request, times), host, port)
        for _ in range(callers)
    ]
    first = time.perf_counter() + WARM_S
    await asyncio.sleep(WARM_S + seconds)
    lost = sum(caller.lost for _, caller in connections)
    if lost:
        sys.exit(f"{lost} of {callers} connections to {host}:{port} ended before their time")
    for transport, _ in connections:
        transport.abort()
    took = sorted(seconds_ for began, seconds_ in times if began >= first)
    said = {"rate": len(took) / seconds, "p99_ms": took[int(0.99 * len(took))] * 1e3}
    print(json.dumps(said))


if __name__ == "__main__":
    where, at, path_, callers_, seconds_ = sys.argv[1:]
    asyncio.run(main(where, int(at), path_, int(callers_), float(seconds_)))
