"""How `ringpopctl drain --end` tells a node that has ended from one that says nothing now."""

from __future__ import annotations

import socket

from ringpop_py.address import Address
from ringpop_py.cli.drains import status_after
from ringpop_py.client.client import Client

BEFORE = {"phase": "closing", "under_way": {"requests": 1}}


def test_a_node_that_says_nothing_is_not_taken_for_one_that_has_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address(*silent.getsockname())
        with Client(address, timeout_s=0.1) as client:
            assert status_after(BEFORE, client) == BEFORE

    with Client(address, timeout_s=5) as client:
        assert status_after(BEFORE, client) is None
