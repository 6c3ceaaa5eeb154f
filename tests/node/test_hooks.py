"""What an application has done before its node ends and after it, in virtual time."""

from __future__ import annotations

import pytest
import trio

from ringpop_py import Address, Config, Request, Status, open_ringpop
from ringpop_py.base.errors import ConfigError
from ringpop_py.testing import MemoryNetwork
from tests.logged import events_in

pytestmark = pytest.mark.virtual_time

ONE, TWO = Address("a", 1), Address("a", 2)


def config(address: Address, timeout_s: float = 30.0) -> Config:
    return Config(listen=address, hosts=(ONE,), drain_timeout_s=timeout_s)


async def test_hooks_run_while_the_node_owns_its_keys_and_when_the_others_know() -> None:
    network = MemoryNetwork()
    seen: list[object] = []
    async with (
        open_ringpop(config(ONE), network=network) as a,
        open_ringpop(config(TWO), network=network) as b,
    ):
        await a.wait_until(lambda ringpop: len(ringpop.ring) == 2)
        key = next(key for n in range(1_000) if a.lookup(key := f"k{n}") == b.name)

        @b.handler("/who")
        def who(_: object) -> bytes:
            return b"b"

        @b.before_end
        async def before() -> None:
            await trio.sleep(5)  # the others see nothing of it
            seen.append((b.name in a.ring, (await a.proxy(key, Request("/who"))).body))

        @b.before_end
        def and_before() -> None:
            seen.append(b.name in b.ring)

        @b.after_end
        def after() -> None:
            seen.append((a.status_of(b.name), len(b.channel.links)))

        await b.end()
        await b.end()

    assert seen == [True, (True, b"b"), (Status.LEAVE, 0)]


async def test_an_exception_in_a_hook_is_logged_and_the_node_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran: list[str] = []
    async with open_ringpop(config(ONE), network=MemoryNetwork()) as node:

        @node.before_end
        async def fails() -> None:
            await trio.lowlevel.checkpoint()
            raise SystemExit("as libraries do")

        @node.before_end
        async def works() -> None:
            await trio.sleep(1)
            ran.append("before")

        node.after_end(lambda: 1 / 0)
        node.after_end(lambda: ran.append("after"))

    assert ran == ["before", "after"]
    assert len(events_in(caplog, "hook-failed")) == 2


async def test_hooks_that_do_not_return_are_cut_and_named(caplog: pytest.LogCaptureFixture) -> None:
    began = trio.current_time()
    async with open_ringpop(config(ONE, 7.0), network=MemoryNetwork()) as node:
        began = trio.current_time()

        @node.before_end
        async def waits() -> None:
            await trio.sleep_forever()

        @node.before_end
        def returns() -> None: ...

        node.after_end(trio.sleep_forever)

    assert 10 <= trio.current_time() - began < 12
    first, last = (str(event.fields["hooks"]) for event in events_in(caplog, "hooks-cut"))
    assert "waits" in first
    assert "returns" not in first
    assert "sleep_forever" in last


async def test_the_end_announces_itself_after_slow_hooks_as_without_them() -> None:
    network = MemoryNetwork()
    async with (
        open_ringpop(config(ONE), network=network) as a,
        open_ringpop(config(TWO), network=network) as b,
    ):
        await a.wait_until(lambda ringpop: len(ringpop.ring) == 2)
        phases: list[tuple[str, bool]] = []
        a.observe(lambda _: phases.append((b.ending.phase, b.name in a.ring)))

        @b.before_end
        async def slow() -> None:
            await trio.sleep(10)
            phases.clear()

        await b.end()

        # It declined nothing before the other knew.
        assert ("closing", True) not in phases
        assert phases[-1] == ("ended", False)


async def test_what_is_no_function_is_no_hook() -> None:
    async with open_ringpop(config(ONE), network=MemoryNetwork()) as node:
        for add in (node.before_end, node.after_end):
            with pytest.raises(ConfigError, match="hook"):
                add("before")  # type: ignore[type-var]
