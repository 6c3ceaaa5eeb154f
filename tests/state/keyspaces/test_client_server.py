"""Clients at members that have no store, or know some that have none: real daemons on loopback."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py import (
    Client,
    Config,
    JobClient,
    KeyspaceClient,
    KeyspaceUnknown,
    PartitionUnavailable,
    open_ringpop,
)
from ringpop_py.state.stores.memory import MemoryStore
from tests.state.jobs.jobs_staged import JOB, NAME, PARTITIONS, a_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ringpop_py import Address
    from ringpop_py.node.ringpop import Ringpop

DIRECT = pytest.mark.parametrize("direct", [True, False], ids=["direct", "through a daemon"])


@asynccontextmanager
async def with_and_without_a_store(mode: str = "durable") -> AsyncIterator[tuple[Ringpop, Ringpop]]:
    """Two members, of which the second has no store, and a keyspace that both know."""
    async with AsyncExitStack() as stack:
        opened = open_ringpop(Config(name="has", store="memory:"), store=MemoryStore())
        has = await stack.enter_async_context(opened)
        lacks = await stack.enter_async_context(
            open_ringpop(Config(name="lacks", hosts=(has.address,)))
        )
        keyspace = await has.open_keyspace(NAME, partitions=PARTITIONS, mode=mode)  # type: ignore[arg-type]
        with trio.fail_after(20):
            while "" in keyspace.table.owners() or len(has.ring) < 2:
                await trio.sleep(0.01)
            while NAME not in lacks.keyspaces.known():
                await trio.sleep(0.01)
        yield has, lacks


def put_and_get(peer: Ringpop, *, direct: bool) -> object:
    with (
        Client(peer.address, timeout_s=5) as client,
        KeyspaceClient(client, NAME, direct=direct) as keyspace,
    ):
        keyspace.put("x", 1)
        return keyspace.get("x")


def write(
    peer: Ringpop, *, direct: bool, peers: Sequence[Address] = (), timeout_s: float = 5
) -> int:
    with (
        Client(peer.address) as client,
        JobClient(client, NAME, JOB, direct=direct, timeout_s=timeout_s, peers=peers) as job,
    ):
        attempt = job.attempt("t0")
        attempt.stage(a_file({"x": 1}))
        attempt.finish()
        job.commit(["t0"])
        return job.apply().rows_count


@DIRECT
async def test_a_member_without_the_store_names_those_who_serve(*, direct: bool) -> None:
    async with with_and_without_a_store() as (_, lacks):
        found = await trio.to_thread.run_sync(lambda: put_and_get(lacks, direct=direct))

        assert found == 1


@DIRECT
async def test_a_job_may_begin_at_a_member_without_the_store(*, direct: bool) -> None:
    async with with_and_without_a_store() as (has, lacks):
        rows_count = await trio.to_thread.run_sync(lambda: write(lacks, direct=direct))

        assert rows_count == 1
        assert await (await has.open_keyspace(NAME)).get("x") == 1


async def test_of_the_peers_that_were_given_those_without_the_store_are_passed_over() -> None:
    async with with_and_without_a_store() as (has, lacks):
        peers = [lacks.address, has.address]

        rows_count = await trio.to_thread.run_sync(lambda: write(lacks, direct=False, peers=peers))

        assert rows_count == 1


@DIRECT
async def test_what_is_described_says_who_serves_whoever_is_asked(*, direct: bool) -> None:
    async with with_and_without_a_store() as (_, lacks):

        def work() -> set[str]:
            with (
                Client(lacks.address) as client,
                JobClient(client, NAME, JOB, direct=direct) as job,
            ):
                destinations = job.describe().routes.destinations
                return {name for name, _ in destinations.values()}

        assert await trio.to_thread.run_sync(work) == {"has"}


async def test_a_member_that_owns_nothing_is_named_only_if_it_could_own() -> None:
    async with with_and_without_a_store() as (has, _):

        def work() -> list[str]:
            with Client(has.address) as client, JobClient(client, NAME, JOB) as job:
                return sorted(job.describe().routes.addresses)

        assert await trio.to_thread.run_sync(work) == ["has"]


@DIRECT
async def test_a_keyspace_in_memory_is_served_by_way_of_any_member(*, direct: bool) -> None:
    async with with_and_without_a_store("memory") as (_, lacks):
        found = await trio.to_thread.run_sync(lambda: put_and_get(lacks, direct=direct))

        assert found == 1


async def test_what_does_not_exist_is_unknown_at_once_to_who_has_no_store() -> None:
    async with with_and_without_a_store() as (has, lacks):
        await has.keyspaces.drop(NAME)
        with trio.fail_after(20):
            while not lacks.keyspaces.known()[NAME].dropped:
                await trio.sleep(0.01)

        def work(name: str) -> float:
            begun_at = time.monotonic()
            with (
                Client(lacks.address) as client,
                JobClient(client, name, JOB) as job,
                pytest.raises(KeyspaceUnknown, match=name),
            ):
                job.describe()
            return time.monotonic() - begun_at

        assert await trio.to_thread.run_sync(work, NAME) < 2
        assert await trio.to_thread.run_sync(work, "never there") < 2


async def test_where_nobody_else_can_be_asked_it_is_said_what_is_lacking() -> None:
    async with with_and_without_a_store() as (_, lacks):
        peers = [lacks.address]

        with pytest.raises(PartitionUnavailable, match="has no store"):
            await trio.to_thread.run_sync(
                lambda: write(lacks, direct=False, peers=peers, timeout_s=0.5)
            )
