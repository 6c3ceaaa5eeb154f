"""A keyspace answers alike, whether a member asks or a client, synchronous or not."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py import (
    AsyncClient,
    AsyncKeyspaceClient,
    BadOperation,
    Change,
    Client,
    HttpRequest,
    KeyspaceClient,
    OperationId,
    Request,
    RingpopError,
    tag_of,
)
from ringpop_py.base.values.operations import Outcome
from tests.client.loops import Step, run_on
from tests.client.test_keyspace_client import nodes
from tests.logged import events_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.address import Address
    from ringpop_py.state.keyspaces.keyspace import Keyspace

KEYS = [f"{prefix}{number}" for prefix in ("a/", "b/", "") for number in range(4)]
VALUES: list[Any] = [None, 0, -7, 2**63 - 1, 2.5, "text", b"bytes", [1, [2]], {"n": {"m": 1}}, True]
UNFIT: list[Any] = [object(), 2**64, "\ud800"]
"""They cannot be values."""
OPERATIONS = ["put", "add", "count", "max", "append", "delete", "put_if_absent", "no such one"]
STEPS_COUNT = 60


def script_of(seed: int) -> list[Step]:
    """Random requests, reads and writes, of which many are refused."""
    rng = random.Random(seed)

    def an_id() -> str | OperationId | None:
        named = OperationId(f"s{rng.randrange(2)}", rng.randrange(6))
        return rng.choice([None, None, f"id-{rng.randrange(4)}", named])

    def condition() -> dict[str, Any]:
        return rng.choice([{}, {}, {"if_absent": True}, {"if_tag": tag_of(rng.choice(VALUES))}])

    def a_value() -> Any:  # noqa: ANN401 - values are of any type
        return rng.choice(UNFIT if rng.random() < 0.1 else VALUES)

    def a_change() -> Change:
        return Change(rng.choice(KEYS), rng.choice(OPERATIONS), rng.choice(VALUES))

    def some(most: int) -> list[str]:
        return rng.choices(KEYS, k=rng.randrange(most))

    def bounds() -> dict[str, Any]:
        start, end = rng.choice([None, *KEYS]), rng.choice([None, *KEYS])
        return {"start": start, "end": end, "limit": rng.choice([None, 0, 1, 3, 100])}

    kinds: list[Callable[[], Step]] = [
        lambda: ("get", (rng.choice(KEYS), rng.choice(["default", None])), {}),
        lambda: ("get", (rng.choice(KEYS),), {"stale": True}),
        lambda: ("get", (rng.choice(KEYS),), {"timeout_s": rng.choice([0, -1, 20])}),
        lambda: ("get_many", (some(6),), {}),
        lambda: ("scan", (rng.choice(["", "a/", "none"]),), bounds()),
        lambda: ("put", (rng.choice(KEYS), a_value()), condition()),
        lambda: ("delete", (rng.choice(KEYS),), {"operation_id": an_id()}),
        lambda: ("update", tuple(a_change()), {"operation_id": an_id(), **condition()}),
        lambda: ("update", tuple(a_change()), {}),
        lambda: ("update_many", ([a_change() for _ in range(rng.randrange(8))],), {}),
        lambda: ("update_many", ([a_change() for _ in range(4)],), {"operation_id": an_id()}),
    ]
    return [rng.choice(kinds)() for _ in range(STEPS_COUNT)]


def told(result: object) -> object:
    """*result* without the name of the keyspace and of members."""
    if isinstance(result, RingpopError):
        return type(result).__name__, result.took_effect, result.passes
    if isinstance(result, list):
        return [told(each) for each in result]
    if isinstance(result, Outcome):
        return result.values, result.repeated
    return result


async def awaited(keyspace: Keyspace | AsyncKeyspaceClient, step: Step) -> object:
    name, arguments, options = step
    try:
        if name == "scan":
            return [row async for row in keyspace.scan(*arguments, **options)]
        return told(await getattr(keyspace, name)(*arguments, **options))
    except RingpopError as error:
        return told(error)


def called(keyspace: KeyspaceClient, step: Step) -> object:
    name, arguments, options = step
    try:
        if name == "scan":
            return list(keyspace.scan(*arguments, **options))
        return told(getattr(keyspace, name)(*arguments, **options))
    except RingpopError as error:
        return told(error)


def in_thread(peer: Address, name: str, script: list[Step], *, direct: bool) -> list[object]:
    with (
        Client(peer, timeout_s=20) as client,
        KeyspaceClient(client, name, direct=direct) as keyspace,
    ):
        return [called(keyspace, step) for step in script]


async def in_loop(peer: Address, name: str, script: list[Step], *, direct: bool) -> list[object]:
    async with (
        AsyncClient(peer, timeout_s=20) as client,
        AsyncKeyspaceClient(client, name, direct=direct) as keyspace,
    ):
        return [await awaited(keyspace, step) for step in script]


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through the daemon"])
@pytest.mark.parametrize(
    ("face", "seeds"), [("no loop", range(4)), ("trio", range(4, 6)), ("asyncio", range(6, 8))]
)
async def test_all_faces_of_a_keyspace_answer_alike(
    face: str,
    seeds: range,
    direct: bool,  # noqa: FBT001
) -> None:
    async with nodes("a", "b", "c") as (a, b, _):
        for seed in seeds:
            script = script_of(seed)
            ours = await a.open_keyspace(f"ours-{seed}", partitions=8)
            await b.open_keyspace(f"theirs-{seed}", partitions=8)

            about = b.address, f"theirs-{seed}", script
            if face == "no loop":
                found = await trio.to_thread.run_sync(partial(in_thread, *about, direct=direct))
            else:
                found = await run_on(face, partial(in_loop, *about, direct=direct))
            expected = [await awaited(ours, step) for step in script]

            for step, mine, other in zip(script, expected, found, strict=True):
                assert mine == other, (seed, step)


BAD_KEYS: dict[str, str] = {
    "": "a key has 1 to 1024 bytes of UTF-8, not 0",
    "é" * 600: "a key has 1 to 1024 bytes of UTF-8, not 1200",
}
BAD_VALUES: dict[str, object] = {
    "a datetime cannot be stored; use its isoformat()": datetime(2026, 1, 1, tzinfo=UTC),
    "a Decimal cannot be stored; use its str()": Decimal(1),
    "a set cannot be stored; use a list": {1},
}


def attempts_on(keyspace: Any) -> list[tuple[str, Callable[[], Any]]]:  # noqa: ANN401 - of any face
    """What is to be refused, and why."""
    found: list[tuple[str, Callable[[], Any]]] = []
    for key, text in BAD_KEYS.items():
        found += [
            (text, partial(keyspace.get, key)),
            (text, partial(keyspace.get_many, ["x", key])),
            (text, partial(keyspace.put, key, 1)),
            (text, partial(keyspace.delete, key)),
            (text, partial(keyspace.handle_or_proxy, key, HttpRequest("GET", "/"))),
            (text, partial(keyspace.proxy, key, HttpRequest("GET", "/"))),
        ]
    long = [("x", "put", 1), ("k" * 1025, "put", 1)]
    found.append(("not 1025", partial(keyspace.update_many, long)))
    for text, value in BAD_VALUES.items():
        found += [(text, partial(keyspace.put, f"k{n}", value)) for n in range(4)]
    return found


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through the daemon"])
async def test_a_client_says_what_is_wrong_with_a_key_or_a_value(
    direct: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with nodes("a", "b") as (_, b):
        await b.open_keyspace("ours", partitions=4)

        def in_thread() -> None:
            with (
                Client(b.address, timeout_s=20) as client,
                KeyspaceClient(client, "ours", direct=direct) as keyspace,
            ):
                for text, attempt in attempts_on(keyspace):
                    with pytest.raises(BadOperation, match=re.escape(text)):
                        attempt()
                assert keyspace.get("x") is None

        await trio.to_thread.run_sync(in_thread)
    assert {event.name for event in events_in(caplog)} <= {"stalled"}


async def test_a_node_says_what_is_wrong_with_a_key_or_a_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with nodes("a", "b") as (a, _):
        keyspace = await a.open_keyspace("ours", partitions=4)
        for text, attempt in attempts_on(keyspace):
            with pytest.raises(BadOperation, match=re.escape(text)):
                await attempt()
        with pytest.raises(BadOperation, match="not 1200"):
            await keyspace.handle_or_proxy_all(["x", "é" * 600], Request("/x"))
        assert await keyspace.get("x") is None
    assert {event.name for event in events_in(caplog)} <= {"stalled"}
