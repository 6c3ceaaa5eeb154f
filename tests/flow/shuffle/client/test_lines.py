"""Calls of clients to a process that says of its answer what is not true."""

from __future__ import annotations

import socket
import threading
import tracemalloc
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import ShuffleUnavailable
from ringpop_py.flow.shuffle.client.lines import Line
from ringpop_py.flow.shuffle.protocol import calls as c

if TYPE_CHECKING:
    from collections.abc import Callable

    Serve = Callable[[bytes], str]


@pytest.fixture
def serve() -> Serve:
    """Serves one connection: reads what comes, sends a reply, and closes. Returns its address."""

    def started(reply: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))

        def run() -> None:
            with listener, listener.accept()[0] as connection:
                connection.recv(1_000)
                connection.sendall(reply)

        threading.Thread(target=run, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    return started


@pytest.mark.parametrize(
    "reply",
    [
        c.packed_head(1, c.File(), c.BODY_BYTES_MAX) + b"some",
        c.FIXED.pack(c.MAGIC, 1, c.HEAD_BYTES_MAX, 0) + b"\x94\xa4File",
    ],
    ids=["body", "head"],
)
def test_an_answer_takes_no_memory_before_it_has_come(serve: Serve, reply: bytes) -> None:
    tracemalloc.start()
    with closing(Line(serve(reply), 5.0, None)) as line, pytest.raises(ShuffleUnavailable):
        line.call(c.List(), timeout_s=5)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < 4 << 20


def test_an_answer_in_many_pieces_is_whole(serve: Serve) -> None:
    body = bytes(range(256)) * 3_000  # of three sizes of pieces

    with closing(Line(serve(c.packed_head(1, c.File(), len(body)) + body), 5.0, None)) as line:
        assert line.call(c.List(), timeout_s=5)[1] == body
