"""Lines over TCP as a source."""

from __future__ import annotations

import socket

import pytest

from ringpop_py.base.errors import ConfigError, SourceFailed
from ringpop_py.streams import Record, TcpLines


def first_word(line: object) -> str:
    return str(line).split()[0]


def test_lines_come_with_positions_that_rise_over_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        source = TcpLines(address, key=first_word)
        assert source.splits() == [address]
        assert list(source.read(address, 0, 10)) == []  # it has connected
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"a 1\n\nb 2\nc")
            found = list(source.read(address, 0, 10))
            peer.sendall(b" 3\nd 4\n")
            found += source.read(address, found[-1].position, 1)
            found += source.read(address, found[-1].position, 1)
        assert [(r.key, r.value) for r in found if isinstance(r, Record)] == [
            ("a", "a 1"),
            ("b", "b 2"),
            ("c", "c 3"),
            ("d", "d 4"),
        ]
        with pytest.raises(SourceFailed, match="ended the connection"):
            source.read(address, found[-1].position, 10)
        assert list(source.read(address, found[-1].position, 10)) == []  # it has connected again
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"e 5\n")
            found += source.read(address, found[-1].position, 10)
    positions = [record.position for record in found]
    assert positions == sorted(set(positions))
    with pytest.raises(SourceFailed, match="ended the connection"):
        source.read(address, positions[-1], 10)
    with pytest.raises(SourceFailed, match="refused"):
        source.read(address, positions[-1], 10)


def test_an_address_is_needed() -> None:
    with pytest.raises(ConfigError):
        TcpLines("nowhere", key=first_word)
