"""Headers of the application and the time that is left travel with a request to its handler."""

from __future__ import annotations

import math
from functools import partial

import pytest
import trio

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import Config
from ringpop_py.base.errors import ConfigError
from ringpop_py.client.sync.client import Client
from ringpop_py.edge.daemon import open_ringpop
from ringpop_py.route.proxy.request import AppCall, Request

HEADERS = (("traceparent", "00-1-2-01"), ("tenant", "é"), ("tenant", ""))


async def test_they_come_to_the_owner_from_its_own_node_from_others_and_from_clients() -> None:
    listen, seen = Address("127.0.0.1", 0), list[AppCall]()
    async with (
        open_ringpop(Config(listen=listen)) as first,
        open_ringpop(Config(listen=listen, hosts=(first.address,))) as second,
    ):
        for node in (first, second):

            @node.handler("/see")
            def see(call: AppCall) -> None:
                seen.append(call._replace(deadline=call.deadline - trio.current_time()))

        await first.wait_until(lambda node: len(node.ring.owners) == 2)
        request = Request("/see", b"", HEADERS)
        keys = {first.lookup(f"key {n}"): f"key {n}" for n in range(100)}
        for key in keys.values():
            await first.proxy(key, request, deadline_s=7)
            with Client(first.address) as client:
                await trio.to_thread.run_sync(partial(client.proxy, key, request, deadline_s=7))
        with Client(first.address) as client:
            await trio.to_thread.run_sync(partial(client.invoke, request, timeout_s=7))
        assert len(seen) == 5
        assert {call.headers for call in seen} == {HEADERS}
        assert all(5 < call.deadline <= 7 for call in seen)

        seen.clear()
        await first.proxy(keys[first.name], Request("/see"))
        assert (seen[0].headers, seen[0].deadline) == ((), math.inf)


@pytest.mark.parametrize("headers", [[("a", "b")], (("a",),), (("a", 1),), ("ab",), {"a": "b"}])
def test_headers_that_are_no_pairs_of_texts_are_refused(headers: object) -> None:
    with pytest.raises(ConfigError, match="headers are a tuple of"):
        Request("/see", b"", headers)  # type: ignore[arg-type]
