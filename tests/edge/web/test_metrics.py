"""What Prometheus reads: right figures, stable names, and no more series than there may be."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from ringpop_py import Actor, Address, Config, Reminder, Reply, Request, open_ringpop
from ringpop_py.base.errors import ApplicationError, RingpopError, StoreUnavailable
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.edge.admin import endpoints
from ringpop_py.edge.admin.answers import summary_of
from ringpop_py.edge.web import metrics
from ringpop_py.edge.web.metrics import NodeMetrics
from ringpop_py.node.signals.reach import EXTRA_MAX, Reach
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.stores.metered import MeteredStore
from ringpop_py.testing import MemoryNetwork

if TYPE_CHECKING:
    from prometheus_client import Metric

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import AppCall
    from ringpop_py.state.placement.definition import Mode

DOCUMENT = Path(__file__).parents[3] / "docs" / "monitoring.md"


METRICS: dict[int, NodeMetrics] = {}


def families(node: Ringpop) -> dict[str, Metric]:
    text, _ = METRICS.setdefault(id(node), NodeMetrics(node)).exposed("")
    return {family.name: family for family in parse(text.decode())}


def value(node: Ringpop, name: str, **labels: str) -> float:
    """The sum of all samples of *name* that have these labels."""
    found = [
        sample.value
        for family in families(node).values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert found, name
    return sum(found)


async def two(network: MemoryNetwork, nursery: trio.Nursery) -> list[Ringpop]:
    async def run(port: int, task_status: trio.TaskStatus[Ringpop]) -> None:
        hosts = (Address("a", 1), Address("a", 2))
        config = Config(listen=Address("a", port), hosts=hosts, expect=2)
        async with open_ringpop(config, network=network, store=MemoryStore()) as node:
            task_status.started(node)
            await trio.sleep_forever()

    nodes = [await nursery.start(run, port) for port in (1, 2)]
    for node in nodes:
        await node.wait_until(lambda node: len(node.ring) == 2)
    return nodes


@pytest.mark.virtual_time
async def test_figures_are_those_of_what_happened() -> None:
    async with trio.open_nursery() as nursery:
        a, b = await two(MemoryNetwork(), nursery)

        @b.handler("/echo")
        async def echo(call: AppCall) -> bytes:
            if call.body == b"fail":
                raise ApplicationError("Refused", "no")
            await trio.sleep(0.2)
            return call.body

        key = next(str(number) for number in range(100) if a.lookup(str(number)) == b.name)
        for _ in range(3):
            assert isinstance(await a.handle_or_proxy(key, Request("/echo", b"x")), Reply)
        with pytest.raises(ApplicationError):
            await a.handle_or_proxy(key, Request("/echo", b"fail"))
        await trio.sleep(30)

        assert value(a, "ringpop_members", status="alive") == 2
        assert value(a, "ringpop_ring_members") == 2
        assert 0 < value(a, "ringpop_ring_share") < 1
        assert value(a, "ringpop_ring_share") + value(b, "ringpop_ring_share") == pytest.approx(1)
        assert value(a, "ringpop_requests_forwarded_total") == 4
        assert value(b, "ringpop_operations_total", kind="handler", outcome="done") == 3
        assert value(b, "ringpop_operations_total", kind="handler", outcome="refused") == 1
        assert value(a, "ringpop_operations_total") == 0
        assert value(b, "ringpop_operation_seconds_sum", kind="handler") == pytest.approx(0.2)
        assert value(b, "ringpop_calls_total", service="app", endpoint="/echo") == 4
        # Each endpoint's first call is timed, and then one of sixteen.
        timed = {"service": "app", "endpoint": "/echo"}
        assert value(b, "ringpop_call_seconds_count", **timed) == 1
        assert value(b, "ringpop_call_seconds_sum", **timed) == pytest.approx(0.2, abs=0.05)
        assert value(b, "ringpop_call_seconds_bucket", le="0.1", **timed) == 0
        assert value(b, "ringpop_call_seconds_bucket", le="0.25", **timed) == 1
        assert value(a, "ringpop_ping_seconds_count") > 5
        assert value(a, "ringpop_loop_lateness_seconds_count") > 5
        assert value(a, "ringpop_loop_woken_recent") >= value(a, "ringpop_loop_late_recent") == 0
        on_time = value(a, "ringpop_pings_recent", outcome="on_time")
        assert on_time > 0
        a.signals.reach.failed(b.address, "timeout")
        a.signals.reach.failed(Address("stranger", 1), "timeout")
        assert value(a, "ringpop_pings_recent", outcome="lost") == 1
        assert value(a, "ringpop_pings_recent") == on_time + 1
        assert value(a, "ringpop_members_expected") == 2
        checksums = {value(node, "ringpop_membership_checksum") for node in (a, b)}
        assert len(checksums) == 1
        nursery.cancel_scope.cancel()


@pytest.mark.virtual_time
async def test_a_member_that_ends_is_a_change_and_its_pings_fail() -> None:
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery:
        a, b = await two(network, nursery)
        network.cut(a.address, b.address)
        key = next(str(number) for number in range(100) if a.lookup(str(number)) == b.name)
        with pytest.raises(RingpopError):
            await a.handle_or_proxy(key, Request("/echo"), max_retries=0)
        assert value(a, "ringpop_attempts_failed_total") == 1
        node = endpoints.READS["/admin/node"](a, None)
        assert [*decode_value("msgpack", encode_value("msgpack", node))["proxy"]["attempts_failed"]]
        await a.wait_until(lambda node: len(node.ring) == 1)

        assert value(a, "ringpop_members", status="faulty") == 1
        assert value(a, "ringpop_pings_recent") == 0, "a lost member is no lossy path"
        assert value(a, "ringpop_member_changes_total", status="faulty") == 1
        assert value(a, "ringpop_member_changes_total", status="suspect") == 1
        assert value(a, "ringpop_ring_changes_total") == 3
        reached = a.driver.reach.peers.get(b.address)
        assert reached is not None
        assert reached.failed > 0
        assert reached.failure in ("timeout", "refused", "lost", "failed")
        nursery.cancel_scope.cancel()


class Alarm(Actor[float, None]):
    """Fails while it is asked to."""

    fails = True

    async def receive(self, message: float) -> None:
        self.remind("ring", in_s=message)

    async def on_reminder(self, reminder: Reminder) -> None:
        if Alarm.fails:
            raise ApplicationError("broken", reminder.name)


async def test_reminders_and_those_that_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    async with open_ringpop(Config(), network=MemoryNetwork(), store=store) as node:
        keyspace = await node.open_keyspace("k", partitions=4)
        alarms = keyspace.actor(Alarm)
        await alarms.ask("late", 3_600)
        await alarms.ask("soon", 0.01)
        while value(node, "ringpop_reminders_failed_total", keyspace="k") == 0:
            await trio.sleep(0.01)
        assert value(node, "ringpop_actors_with_reminders", keyspace="k") == 2
        Alarm.fails = False
        while value(node, "ringpop_reminders_total", keyspace="k") == 0:
            await trio.sleep(0.01)
        assert value(node, "ringpop_actors_with_reminders", keyspace="k") == 1
        assert value(node, "ringpop_reminders_overdue_seconds", keyspace="k") == 0

        clocks = node.reporter.clocks
        monkeypatch.setattr(clocks, "due_ms", lambda: int(time.time() * 1_000) + 3_625_000)
        assert 20 < value(node, "ringpop_reminders_overdue_seconds", keyspace="k") < 30
        overdue_s = summary_of(node, "k")["reminders_overdue_s"]
        assert isinstance(overdue_s, float)
        assert 20 < overdue_s < 30


@pytest.mark.parametrize("mode", ["durable", "memory"])
async def test_keys_that_expire_and_those_that_are_late(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    async with open_ringpop(Config(), network=MemoryNetwork(), store=store) as node:
        keyspace = await node.open_keyspace("k", partitions=4, mode=mode)
        await keyspace.put("stays", 1, expires_in=3_600)
        await keyspace.put("never", 1)
        assert value(node, "ringpop_keys_expiring", keyspace="k") == 1
        assert value(node, "ringpop_keys_expired_total", keyspace="k") == 0

        for number in range(20):
            await keyspace.put(str(number), number, expires_in=0.05)
        while len([key async for key, _ in keyspace.scan()]) > 2:
            await trio.sleep(0.01)

        assert value(node, "ringpop_keys_expiring", keyspace="k") == 1
        assert value(node, "ringpop_keys_expired_total", keyspace="k") == 20
        assert value(node, "ringpop_keys_overdue_seconds", keyspace="k") == 0
        clocks = node.reporter.clocks
        monkeypatch.setattr(clocks, "due_ms", lambda: int(time.time() * 1_000) + 3_625_000)
        assert 20 < value(node, "ringpop_keys_overdue_seconds", keyspace="k") < 30
        overdue_s = summary_of(node, "k")["overdue_s"]
        assert isinstance(overdue_s, float)
        assert 20 < overdue_s < 30


async def test_keyspaces_and_their_store(tmp_path: Path) -> None:
    config = Config(store=str(tmp_path / "store"), create_store=True)
    async with open_ringpop(config, network=MemoryNetwork()) as node:
        keyspace = await node.open_keyspace("k", partitions=4)
        for number in range(20):
            await keyspace.put(str(number), number)

        assert value(node, "ringpop_partitions", keyspace="k") == 4
        assert value(node, "ringpop_partitions_here", keyspace="k") == 4
        assert value(node, "ringpop_partitions_unserved", keyspace="k") == 0
        assert value(node, "ringpop_keys_here", keyspace="k") == 20
        assert value(node, "ringpop_operations_total", kind="write", outcome="done") == 20
        assert value(node, "ringpop_operation_seconds_count", kind="write") == 2
        assert value(node, "ringpop_commits_total", keyspace="k") >= 20
        assert value(node, "ringpop_store_seconds_count", verb="put") >= 20
        assert value(node, "ringpop_store_failed_total", verb="put") == 0


def test_a_store_that_fails_is_counted() -> None:
    class Failing(MemoryStore):
        def put_if_absent(self, key: str, value: bytes) -> bool:
            del key, value
            raise StoreUnavailable("gone")

    store = MeteredStore(Failing())
    with pytest.raises(StoreUnavailable):
        store.put_if_absent("k", b"")
    assert store.list("") == []
    assert (store.failed["put"], store.failed["list"], store.trouble) == (1, 0, "gone")
    assert sum(store.seconds["put"].counts) == 1
    store.inner = MemoryStore()
    assert store.put_if_absent("k", b"")
    assert store.trouble == ""


@pytest.mark.virtual_time
async def test_thousands_of_names_do_not_make_thousands_of_series(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "ENDPOINTS_MAX", 3)
    monkeypatch.setattr(metrics, "KEYSPACES_MAX", 2)
    network = MemoryNetwork()
    async with open_ringpop(Config(), network=network, store=MemoryStore()) as node:
        for number in range(5):
            await node.open_keyspace(f"k{number}", partitions=4)
        for one in node.channel.handlers.served.values():
            one.count = 1

        keyspaces = {
            sample.labels["keyspace"] for sample in families(node)["ringpop_partitions"].samples
        }
        endpoints = families(node)["ringpop_calls"].samples
        assert keyspaces == {"k0", "k1", "(others)"}
        assert value(node, "ringpop_partitions", keyspace="(others)") == 12
        assert "(others)" not in {
            sample.labels["keyspace"] for sample in families(node)["ringpop_commits"].samples
        }
        assert len(endpoints) <= 3 + 2  # one more for each service
        assert sum(sample.value for sample in endpoints) == len(node.channel.handlers.served)


async def test_peers_that_are_no_members_are_forgotten() -> None:
    reach = Reach(lambda: {Address("member", 1)})
    reach.answered(Address("member", 1), 0.01)
    for port in range(1, 10 * EXTRA_MAX):
        reach.failed(Address("other", port), "refused")
    assert len(reach.peers) <= EXTRA_MAX + 2
    assert reach.peers.get(Address("member", 1)) is not None


async def test_http_shows_them_in_both_formats_and_the_documents_name_each(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    config = Config(http=Address("127.0.0.1", 0), store=store, create_store=True)
    async with open_ringpop(config) as node:
        await node.open_keyspace("k", partitions=4)
        async with httpx.AsyncClient(base_url=f"http://{node.http_address}") as http:
            plain = await http.get("/metrics")
            wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
            opened = await http.get("/metrics", headers=wanted)
    names = {family.name for family in parse(plain.text)}
    assert names == {family.name for family in parse_open(opened.text)}  # type: ignore[no-untyped-call]
    assert opened.headers["content-type"].startswith("application/openmetrics-text")
    ours = {name for name in names if name.startswith("ringpop_")}
    rows = re.findall(r"^\| (`ringpop_.*?) \|", DOCUMENT.read_text(), re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(ringpop_[a-z_]+)`", row)}
    of_shuffles = {name for name in documented if name.startswith("ringpop_shuffle")}
    counted = {re.sub(r"_total$", "", name) for name in documented - of_shuffles}
    assert counted == ours


async def test_an_endpoint_that_has_a_series_keeps_it_and_the_others_are_summed_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "ENDPOINTS_MAX", 1)
    async with open_ringpop(Config(), network=MemoryNetwork()) as node:
        for endpoint in ("/m", "/n", "/o"):
            node.handler(endpoint)(lambda _call: b"")
        served = node.channel.handlers.served
        served["app", "/m"].count = 3
        assert value(node, "ringpop_calls_total", endpoint="/m") == 3
        for endpoint, took_s in (("/n", 0.2), ("/o", 0.3)):
            served["app", endpoint].count = 5
            served["app", endpoint].seconds.observe(took_s)
        node.handler("/a")(lambda _call: b"")
        served["app", "/a"].count = 1

        assert value(node, "ringpop_calls_total", endpoint="/m") == 3
        assert value(node, "ringpop_calls_total", endpoint="(others)") == 11
        assert value(node, "ringpop_call_seconds_count", endpoint="(others)") == 2
        assert value(node, "ringpop_call_seconds_sum", endpoint="(others)") == pytest.approx(0.5)
