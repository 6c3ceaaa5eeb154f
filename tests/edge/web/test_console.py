"""The console as HTTP serves it: the page, its parts as they change, look-ups and acts."""

from __future__ import annotations

import json
import re
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio
import trio.testing

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.config.settings import PRESETS
from ringpop_py.base.values.packed import encode_value
from ringpop_py.dataflow import start_dataflow
from ringpop_py.edge.console.activity import dataflows_in
from ringpop_py.edge.console.charts import CHARTS
from ringpop_py.edge.console.page import PARTS
from ringpop_py.edge.console.ringmap import METRICS
from ringpop_py.edge.web import overview, pages
from ringpop_py.edge.web.overview import Overview
from ringpop_py.member.swim.member import Status
from ringpop_py.net.security.identity import Role
from ringpop_py.net.security.keys import new_key, write_keys
from ringpop_py.net.wire.calls import Answer
from ringpop_py.node.sidecars import ShuffleLoad, ShufflesBeside, ShuffleSeen
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.streams import Files
from ringpop_py.testing import MemoryNetwork
from tests.edge.web.test_callers import bearer
from tests.edge.web.test_callers import token as token_of
from tests.logged import events_in
from tests.state.jobs.jobs_staged import (
    JOB,
    NAME,
    PARTITIONS,
    a_file,
    decided,
    jobs_of,
    settled,
    staged,
)
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from ringpop_py.dataflow import Context, Row
    from ringpop_py.net.transport.channel import IncomingCall
    from ringpop_py.node.ringpop import Ringpop

ANY_PORT = Address("127.0.0.1", 0)


@asynccontextmanager
async def three(nursery: trio.Nursery, network: MemoryNetwork) -> AsyncIterator[list[Ringpop]]:
    """Three members; the first one serves HTTP."""
    hosts = tuple(Address("10.0.0.1", port) for port in (1, 2, 3))
    nodes: list[Ringpop] = []

    async def run(port: int, task_status: trio.TaskStatus[None]) -> None:
        config = Config(
            name=f"n{port}",
            listen=Address("10.0.0.1", port),
            hosts=hosts,
            http=ANY_PORT if port == 1 else None,
            gossip=PRESETS["local"],
        )
        async with open_ringpop(config, network=network) as node:
            nodes.append(node)
            task_status.started()
            await trio.sleep_forever()

    for port in (1, 2, 3):
        await nursery.start(run, port)
    for node in nodes:
        await node.wait_until(lambda node: len(node.ring) == 3)
    yield nodes
    nursery.cancel_scope.cancel()


@asynccontextmanager
async def watched_by_a_caller() -> AsyncIterator[tuple[list[Ringpop], httpx.AsyncClient]]:
    async with (
        trio.open_nursery() as nursery,
        three(nursery, MemoryNetwork()) as nodes,
        caller(nodes[0]) as http,
    ):
        yield nodes, http


def caller(node: Ringpop) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{node.http_address}", timeout=10)


async def parts_of(
    http: httpx.AsyncClient,
    task_status: trio.TaskStatus[trio.MemoryReceiveChannel[tuple[str, Any]]],
    *,
    beats: bool = False,
) -> None:
    """Read a stream; its events are which part, and its HTML. Only its *beats*, if that is true."""
    send, receive = trio.open_memory_channel[tuple[str, Any]](1_000)
    task_status.started(receive)
    name = ""
    with send, suppress(httpx.TransportError):  # the caller is closed
        async with http.stream("GET", "/ui/events") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: ") and (name == "beat") is beats:
                    # Without a yield point: the stream may be cancelled only while it is read.
                    send.send_nowait((name, json.loads(line.removeprefix("data: "))))


class Balanced(HTMLParser):
    """Fails if an element is not closed where it should be."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


def checked(html: str) -> Balanced:
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids)
    return parser


async def test_the_page_is_whole_without_its_script() -> None:
    async with watched_by_a_caller() as (nodes, http):
        home = await http.get("/")
        assert (home.status_code, home.headers["location"]) == (307, "ui")
        page = ""
        while not ("paths work" in page and "<title>Healthy" in page):  # pings, on a busy machine
            await trio.sleep(0.2)
            page = (await http.get("/ui", params={"key": "ann"})).text

        assert set(PARTS) < set(checked(page).ids)
        for name in ("n1", "n2", "n3"):
            assert f">{name}</a>" in page
        assert "3 alive" in page
        assert "all see the same" in page
        assert "<title>Healthy · default</title>" in page
        assert "All 3 members are up and agree." in page
        assert "<h2 id=" not in page.partition('id="problems"')[2].partition("</section>")[0]
        assert "3 members are in the ring." in page
        assert page.count('class="by-member"') == len(METRICS) == page.count("<option ")
        assert 'class="metrics" id="bars" data-shown="share"' in page
        assert page.count('class="pic plot"') == len(CHARTS)
        owner = nodes[0].lookup("ann")
        assert f"<dt>Owner</dt><dd><b>{owner}</b> (alive)" in page
        assert '<dialog id="drawer" aria-label="Details" open>' in page
        for name, kind in pages._TYPES.items():
            file = await http.get(f"/ui/{name}")
            assert file.headers["content-type"].startswith(kind)
        assert "default-src 'none'" in (await http.get("/ui")).headers["content-security-policy"]
        assert "http" not in re.sub(r"http-equiv|http%3A//www\.w3\.org/2000/svg", "", page)
        # A proxy may serve the page under any path.
        assert re.findall(r'(?:href|src|action)="/[^/]', page) == []


async def test_there_is_a_beat_each_second_though_nothing_changes() -> None:
    async with watched_by_a_caller() as (_, http), trio.open_nursery() as nursery:
        parts = await nursery.start(partial(parts_of, http, beats=True))
        found: list[tuple[float, dict[str, Any]]] = []
        with trio.fail_after(20):
            while len(found) < 4:
                _, beat = await parts.receive()
                found.append((trio.current_time(), beat))
        for (at, _), (then, _) in pairwise(found):
            assert then - at < 3 * overview.PERIOD_S  # the page calls it live until then
        assert found[0][1]["at"] <= found[-1][1]["at"] <= time.time() + 0.001  # it is rounded
        assert re.fullmatch(r"\d\d:\d\d:\d\d", found[0][1]["clock"])
        assert (await http.head("/ui/events")).headers["content-type"].startswith("text/event")
        nursery.cancel_scope.cancel()


async def test_a_member_has_details_and_what_can_be_asked_of_it() -> None:
    async with watched_by_a_caller() as (_, http):
        while not (rows := (await http.get("/ui/state")).json()["members"])[1]["version"]:
            await trio.sleep(0.2)
        assert [row["console"] for row in rows] == [None, None, None]  # it listens elsewhere
        part = (await http.get("/ui/member", params={"member": "n2"})).text
        checked(part)
        assert "<dt>Address</dt><dd>10.0.0.1:2</dd>" in part
        assert "ringpopctl why n2" in part
        assert re.findall(r'data-act="(\w+)" data-member="n2"', part) == ["drain", "leave"]
        assert "n2 unknown -&gt; alive" in part
        page = (await http.get("/ui", params={"member": "n2"})).text
        assert '<dialog id="drawer" aria-label="Details" open>' in page
        assert part in page
        for params, status in (({"member": "x"}, 404), ({}, 400)):
            assert (await http.get("/ui/member", params=params)).status_code == status
        assert (await http.get("/ui", params={"member": "x"})).status_code == 404


async def test_a_changed_part_is_sent_within_two_seconds_and_the_rest_is_not() -> None:
    network = MemoryNetwork()
    async with (
        trio.open_nursery() as nursery,
        three(nursery, network) as nodes,
        caller(nodes[0]) as http,
    ):
        parts = await nursery.start(parts_of, http)
        first: dict[str, str] = {}
        while len(first) < len(PARTS):
            name, html = await parts.receive()
            first[name] = html
            checked(html)
        assert set(first) == set(PARTS)

        network.hang(nodes[2].address)
        await nodes[0].wait_until(lambda node: len(node.ring) == 2)
        changed_at = trio.current_time()
        shown = {
            "problems": "n3 stands still",
            "banner": "Degraded · default",
            "nav": "2/3",
            "tally": "1 faulty",
            "ring": "n3 went",
            "owned": "2 members are in the ring",
            "matrix": "Nobody reaches n3; both other paths work",
            "bars": "n3: ✕ does not answer",
            "events": 'class="span faulty"',
            "members": "stands still</span>",
        }
        sent: dict[str, str] = {}
        while any(text not in sent.get(name, "") for name, text in shown.items()):
            late = [name for name, text in shown.items() if text not in sent.get(name, "")]
            with trio.move_on_at(changed_at + 2) as waiting:
                name, html = await parts.receive()
                sent[name] = html
            assert not waiting.cancelled_caught, {name: sent.get(name) for name in late}
        assert "keyspaces" not in sent  # as before


async def test_nobody_is_asked_while_nobody_looks() -> None:
    async with watched_by_a_caller() as (nodes, http):
        await http.get("/ui")
        served = nodes[1].channel.handlers.served["ringpop", "/admin/reach"]
        before = served.count
        assert before > 0
        await trio.sleep(2.5 * overview.PERIOD_S)
        assert served.count <= before + 1  # one that had begun


async def test_a_stream_ends_with_the_node_and_so_many_are_served() -> None:
    async with (
        open_ringpop(Config(http=ANY_PORT)) as node,
        caller(node) as http,
        trio.open_nursery() as nursery,
    ):
        parts = await nursery.start(parts_of, http)
        await parts.receive()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pages, "WATCHERS_MAX", 1)
            refused = await http.get("/ui/events")
            assert (refused.status_code, refused.json()["error"]) == (503, "Busy")
            assert (await http.head("/ui/events")).status_code == 200  # no stream
        node.drain()  # which is not its end
        while "draining" not in (await parts.receive())[1]:
            pass
        nursery.start_soon(node.end)
        with trio.fail_after(5):
            async for _ in parts:
                pass


async def test_a_key_is_looked_up_with_its_partitions() -> None:
    async with (
        open_ringpop(Config(http=ANY_PORT, name="n"), store=MemoryStore()) as node,
        caller(node) as http,
    ):
        await node.open_keyspace("carts", partitions=4)
        found = (await http.get("/ui/lookup", params={"key": "<b>ann"})).json()
        assert found["owners"] == [{"name": "n", "status": "alive"}]
        assert [row["keyspace"] for row in found["keyspaces"]] == ["carts"]
        part = await http.get("/ui/found", params={"key": "<b>ann"})
        assert "&lt;b&gt;ann" in part.text
        assert "<b>ann" not in part.text
        assert (await http.get("/ui/found")).status_code == 400


async def test_names_and_texts_of_others_are_only_text() -> None:
    name = "<script>alert(1)</script>\"'"
    async with open_ringpop(Config(http=ANY_PORT, name=name)) as node, caller(node) as http:
        page = (await http.get("/ui")).text
        checked(page)
        assert "<script>alert" not in page


async def test_acts_are_done_at_any_member_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ringpop")
    async with watched_by_a_caller() as (nodes, http):
        for member, act, size in (("n2", "drain", 2), ("n1", "leave", 1), ("n2", "undrain", 2)):
            done = await http.post("/ui/act", json={"act": act, "member": member})
            assert done.status_code == 200, done.text
            await nodes[0].wait_until(lambda node, size=size: len(node.ring) == size)  # type: ignore[misc]
        for body, status in (
            ({"act": "end", "member": "n1"}, 400),
            ({"act": "drain", "member": "nobody"}, 404),
            ({"act": "drain", "x": 1}, 400),
        ):
            assert (await http.post("/ui/act", json=body)).status_code == status
        foreign = {"Origin": "http://elsewhere.example"}
        refused = await http.post("/ui/act", json={"act": "heal"}, headers=foreign)
        assert refused.status_code == 403
    asked = [event.fields["endpoint"] for event in events_in(caplog, "change-asked")]
    assert asked.count("/admin/member/drain") == 2  # here, and at n2


async def test_a_rebalance_is_shown_before_it_is_done_and_while_it_goes_on() -> None:
    async with a_cluster() as cluster:
        nodes = [await cluster.start(name, http=ANY_PORT) for name in ("a", "b")]
        greek = await nodes[0].open_keyspace(
            "greek", partitions=8, strategy="average", automatic=False, min_cluster_size=2
        )
        await all_online(greek, "a", "b")
        await cluster.start("c")
        async with caller(nodes[0]) as http, trio.open_nursery() as nursery:
            parts = await nursery.start(parts_of, http)
            page = await until(parts, "keyspaces", 'data-act="rebalance" data-keyspace="greek"')
            assert "handed over" not in page
            asked = {"act": "rebalance", "keyspace": "greek"}

            plan: dict[str, Any] = {"moves": []}
            with trio.fail_after(20):
                while not plan["moves"]:  # until `a` has heard of `c`
                    planned = await http.post("/ui/act", json={**asked, "dry_run": True})
                    plan = planned.json()["answer"]
            assert len(plan["moves"]) == 2
            assert "dry run" in plan["lines"][-1]
            assert greek.table.counts() == {"a": 4, "b": 4}
            assert (await http.post("/ui/act", json=asked)).is_success

            await until(parts, "keyspaces", "→ c</li>")
            for body in ({**asked, "keyspace": 1}, {**asked, "dry_run": 1}):
                assert (await http.post("/ui/act", json=body)).status_code == 400
            unknown = await http.post("/ui/act", json={**asked, "keyspace": "x"})
            assert unknown.status_code == 404
            nursery.cancel_scope.cancel()


async def until(parts: trio.MemoryReceiveChannel[tuple[str, str]], wanted: str, text: str) -> str:
    """Read parts until *wanted* has *text*; return it."""
    with trio.fail_after(20):
        async for name, html in parts:
            if name == wanted and text in html:
                checked(html)
                return html
    raise AssertionError("the stream has ended")


async def test_jobs_and_shuffles_are_shown_with_their_progress() -> None:
    async with (
        open_ringpop(Config(http=ANY_PORT, name="n"), store=MemoryStore()) as node,
        caller(node) as http,
    ):
        keyspace = await node.open_keyspace(NAME, partitions=PARTITIONS)
        await all_online(keyspace, "n")
        assert "There are no streams, dataflows, jobs and shuffles" in (await http.get("/ui")).text
        jobs = jobs_of(node)
        await staged(jobs, "t0", a_file({f"key-{n}": n for n in range(40)}))
        await trio.sleep(2 * overview.PERIOD_S)
        assert "staging" in (await http.get("/ui")).text
        await decided(jobs, "t0")
        await settled(jobs)
        node.shuffles = ShufflesBeside()
        seen = ShuffleSeen("<s>", 3, "ending", intervals=8, placed=2, attempts=4, rows=1_000)
        node.shuffles.load = ShuffleLoad(listed=(seen,))
        await trio.sleep(2 * overview.PERIOD_S)

        page = (await http.get("/ui")).text
        checked(page)
        [job] = (await http.get("/ui/state")).json()["work"]["jobs"]
        assert (job["job"], job["state"], job["files"]) == (JOB, "applied", 1)
        assert job["partitions_done"] == job["partitions_count"] == PARTITIONS
        assert f"{PARTITIONS} of {PARTITIONS}" in page
        assert "&lt;s&gt;" in page
        assert "2 of 8" in page


async def test_a_dataflow_is_shown_with_its_epoch_and_its_trouble(tmp_path: Path) -> None:
    (tmp_path / "words.jsonl").write_text('{"word": "<a>"}\n{"word": "b"}\n{}\n')

    def count(state: int | None, rows: Sequence[Row], _context: Context) -> int:
        return (state or 0) + len(rows)

    async with (
        open_ringpop(Config(http=ANY_PORT, name="n"), store=MemoryStore()) as node,
        caller(node) as http,
    ):
        source = Files(f"{tmp_path}/*.jsonl", key="word")
        start_dataflow(
            node, source, count, name="<words>", refused=lambda _record, _why: None, every_s=0.1
        )
        with trio.fail_after(20):
            while True:
                [flow] = (await http.get("/ui/state")).json()["work"]["dataflows"] or [None]
                if flow is not None and flow["epoch"] and flow["rows"] == 2:
                    break
        assert (flow["dataflow"], flow["leader"], flow["workers"]) == ("<words>", "n", 1)
        assert (flow["late"], flow["refused"]) == (0, 1)
        page = (await http.get("/ui")).text
        checked(page)
        assert "&lt;words&gt;" in page
        metrics = (await http.get("/metrics")).text
        assert 'ringpop_dataflow_rows_total{dataflow="<words>"} 2.0' in metrics


def test_a_dataflow_is_the_sum_of_its_workers_as_its_newest_record_has_it() -> None:
    part = {"dataflow": "d", "rows": 2, "late": 1, "refused": 0, "trouble": ""}
    work: dict[str, dict[str, Any]] = {
        "a": {"dataflows": [{**part, "worker": "a", "epoch": 7, "leader": "b", "workers": "ab"}]},
        "b": {
            "dataflows": [
                {**part, "worker": "b", "epoch": 6, "leader": "a", "workers": "a", "trouble": "no"}
            ]
        },
        "c": {"dataflows": [{**part, "worker": "c", "epoch": None, "leader": "", "workers": ""}]},
        "older": {},
    }

    [flow] = dataflows_in(work)

    assert (flow["epoch"], flow["leader"], flow["workers"]) == (7, "b", 2)
    assert (flow["rows"], flow["late"], flow["troubles"]) == (6, 3, ["b: no"])
    assert dataflows_in(dict(reversed(work.items()))) == [flow]


async def test_acts_are_for_admins_where_there_are_keys(tmp_path: Path) -> None:
    key, path = new_key(), tmp_path / "cluster.key"
    write_keys(path, (key,), replace=False)
    config = Config(http=ANY_PORT, cluster_key=str(path))
    async with open_ringpop(config) as node, caller(node) as http:
        assert (await http.get("/ui")).status_code == 401
        for role, status in ((Role.CLIENT, 403), (Role.ADMIN, 200)):
            headers = bearer(token_of(role, key=key))
            assert (await http.get("/ui", headers=headers)).status_code == 200
            done = await http.post("/ui/act", json={"act": "drain"}, headers=headers)
            assert done.status_code == status


@pytest.mark.parametrize(
    "said", [[], {}, {"at": "now", "pings": 5}, {"at": float("nan"), "pings": []}, 7]
)
async def test_a_member_that_answers_nonsense_is_shown_as_silent(said: object) -> None:
    async with watched_by_a_caller() as (nodes, http):

        def lie(_incoming: IncomingCall) -> Answer:
            return Answer(ok=True, arg3=encode_value("msgpack", said))

        nodes[1].channel.serve("ringpop", "/admin/reach", lie)
        page = (await http.get("/ui")).text
        checked(page)
        assert "n2 does not answer: the answer of /admin/reach" in page
        assert "n3 does not answer" not in page


async def test_a_member_of_an_older_version_lacks_some_figures_and_nothing_else() -> None:
    async with watched_by_a_caller() as (nodes, http):
        for endpoint in ("/admin/reach", "/admin/checkup"):
            del nodes[1].channel.handlers.served["ringpop", endpoint]
        page = (await http.get("/ui")).text
        assert "does not answer" not in page
        assert page.count("0.1.0</td>") == 3


async def test_a_change_is_shown_while_a_member_that_hangs_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock  # so that only what is waited for takes time
    async with trio.open_nursery() as nursery, three(nursery, MemoryNetwork()) as nodes:
        asked = trio.Event()

        async def hang(_incoming: IncomingCall) -> Answer:
            asked.set()
            await trio.sleep_forever()
            raise AssertionError

        nodes[1].channel.serve("ringpop", "/admin/node", hang)
        view = Overview(nodes[0])
        nursery.start_soon(view.run)
        with view.watching():
            await view.changed()
            asked = trio.Event()
            await asked.wait()
            nodes[2].leave()
            await nodes[0].wait_until(lambda node: node.members[2].status is Status.LEAVE)
            with trio.fail_after(2 * overview.PERIOD_S):
                while view.sections["members"][2]["status"] != "leave":
                    await view.changed()
        nursery.cancel_scope.cancel()


async def test_a_member_that_takes_its_time_holds_nobody_up() -> None:
    async with watched_by_a_caller() as (nodes, http):
        for endpoint in ("/admin/node", "/admin/reach", "/admin/checkup"):
            served = nodes[1].channel.handlers.served["ringpop", endpoint]

            async def slowly(incoming: IncomingCall, handler: Any = served.handler) -> Answer:  # noqa: ANN401 - of any kind
                await trio.sleep(0.7 * overview.TIMEOUT_S)
                answer: Answer = await handler(incoming)
                return answer

            nodes[1].channel.serve("ringpop", endpoint, slowly)
        with trio.fail_after(2 * overview.TIMEOUT_S):
            page = (await http.get("/ui")).text
        assert "n2 does not answer: it has not answered within 1 s" in page
        assert "n3 does not answer" not in page


async def test_a_large_cluster_takes_turns_and_all_say_their_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overview, "LARGE", 2)
    monkeypatch.setattr(overview, "ASKED_MAX", 1)
    async with trio.open_nursery() as nursery, three(nursery, MemoryNetwork()) as nodes:
        view = Overview(nodes[0])
        for number in range(1, 4):
            await view._look()
            assert len(view._seen.settings) == number
            assert view._seen.asked == frozenset({f"n{number}"})
        # Answers of different turns are not compared: in between, all may have changed.
        view._seen.nodes["n1"]["checksum"] += 1
        for _ in range(overview.DIFFER_FOR + 1):
            view._seen.nodes["n1"]["checksum"] += 1
            await view._look()
            assert view.sections["head"]["views"] == 1
