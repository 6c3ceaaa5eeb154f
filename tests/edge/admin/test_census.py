"""`/admin/cluster`: what all members say of themselves, in virtual time, and of many fake ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ringpop_py import Address
from ringpop_py.base.config.settings import WireLimits
from ringpop_py.base.errors import BadRequest, ConnectFailed
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.edge.admin.census import MEMBER_S, ROUNDS_MAX, SECTIONS, TOGETHER_MAX, Census
from ringpop_py.edge.admin.endpoints import LEAST, READS
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer, Call
from tests.state.keyspaces.clusters import a_cluster, all_online

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop

pytestmark = pytest.mark.virtual_time

NODE: dict[str, Any] = {
    "checksum": 1,
    "ready": True,
    "version": "1",
    "silent_hosts": {},
    "gossip": {},
    "proxy": {},
    "keyspaces": False,
}


async def cluster(node: Ringpop, *sections: str, **more: object) -> dict[str, Any]:
    body = encode_value("msgpack", {"sections": sections, **more})
    call = Call(NODE_SERVICE, "/admin/cluster", b"", body, ttl_s=30.0)
    answer = await node.channel.call(node.address, call)
    assert answer.ok, answer.arg3
    value: dict[str, Any] = decode_value("msgpack", answer.arg3)
    return value


async def test_any_node_says_for_all_members_what_each_says_of_itself() -> None:
    async with a_cluster() as nodes:
        a, b = [await nodes.start(name) for name in "ab"]
        counts = await a.open_keyspace("counts", partitions=8, min_cluster_size=2)
        await all_online(counts, "a", "b")

        nobody = await cluster(a)
        said = (await cluster(a, *(name for name in SECTIONS if name != "share")))["said"]
        shares = await cluster(b, "share", keyspace="counts", names=["a"])

    assert (nobody["source"], nobody["said"], nobody["silent"], nobody["cut"]) == ("a", {}, {}, [])
    assert [row["name"] for row in nobody["members"]] == ["a", "b"]
    for name in "ab":
        assert said[name].keys() == (SECTIONS.keys() - {"share"}) | {"clock_s", "off_s"}
        assert said[name]["node"]["name"] == name
        assert said[name]["settings"]["period_s"] > 0
        (keyspace,) = said[name]["keyspaces"]
        assert (keyspace["name"], keyspace["served"], "members" in keyspace) == ("counts", 8, False)
        assert abs(said[name]["clock_s"]) < 1
    assert shares["said"].keys() == {"a"}
    share = shares["said"]["a"]["share"]
    assert share["here"]["name"] == "a"
    assert [keys for _, keys in share["keys"]] == [0] * share["here"]["partitions"]
    assert b.name not in shares["silent"]


async def test_a_member_that_hangs_refuses_or_lies_is_silent_and_delays_no_other() -> None:
    async with a_cluster() as nodes:
        a, b, c, d = [await nodes.start(name) for name in "abcd"]
        await a.wait_until(lambda node: len(node.ring) == 4)

        async def hang(_incoming: object) -> Answer:
            await trio.sleep_forever()
            raise AssertionError

        def lie(_incoming: object) -> Answer:
            return Answer(ok=True, arg3=encode_value("msgpack", {**NODE, "checksum": "x"}))

        def refuse(_incoming: object) -> Answer:
            told = {"type": "error", "message": "not you"}
            return Answer(ok=False, arg3=encode_value("msgpack", told))

        for node, act in ((b, hang), (c, lie), (d, refuse)):
            node.channel.serve(NODE_SERVICE, "/admin/node", act)
        began = trio.current_time()
        value = await cluster(a, "node")
        took_s = trio.current_time() - began

    assert value["said"].keys() == {"a"}
    assert value["silent"]["b"] == "it has not answered within 3 s"
    assert "the answer of /admin/node: " in value["silent"]["c"]
    assert value["silent"]["d"] == "error: not you"
    assert took_s < MEMBER_S + 1


@pytest.mark.parametrize(
    "body",
    [
        {"sections": ["tick"]},
        {"sections": ["share"]},
        {"sections": ["node"], "keyspace": "counts"},
        {"sections": "node"},
        {"section": 1, "names": 5},
    ],
)
async def test_a_wrong_request_is_refused(body: object) -> None:
    async with a_cluster() as nodes:
        node = await nodes.start("a")
        call = Call(NODE_SERVICE, "/admin/cluster", b"", encode_value("msgpack", body), ttl_s=30.0)
        with pytest.raises(BadRequest, match="request"):
            await node.channel.call(node.address, call)


async def test_nobody_loads_keyspaces_to_say_that_there_are_none_unless_asked_to() -> None:
    async with a_cluster() as nodes:
        a, b = [await nodes.start(name, has_store=False) for name in "ab"]
        await a.wait_until(lambda node: len(node.ring) == 2)

        value = await cluster(a, "node", "keyspaces")
        loaded = [node.keyspaces_on_demand.loaded for node in (a, b)]
        asked = await cluster(a, "node", "keyspaces", load=True)

    assert [said.keys() for said in value["said"].values()] == [{"node"}, {"node"}]
    assert loaded == [False, False]
    assert [said["keyspaces"] for said in asked["said"].values()] == [[], []]


def test_a_client_has_members_asked_only_for_what_it_may_ask_itself() -> None:
    own = {path for path in SECTIONS.values() if not path.startswith("/admin/keyspaces")}
    assert own <= READS.keys() - LEAST.keys()


class FakeMembers:
    """A node of a cluster whose members all answer with so many bytes, and one with too many."""

    def __init__(self, count: int, size: int) -> None:
        self.name, self.address = "asking", Address("10.0.0.1", 1)
        self.members = [
            Member(f"m{number:03}", "10.0.0.2", number + 1, 1, Status.ALIVE)
            for number in range(count)
        ]
        self.channel = SimpleNamespace(limits=WireLimits(), call=self.call)
        self.asked = self.together = self.together_most = 0
        self._said = {**NODE, "more": "x" * size}

    async def call(self, to: Address, _call: Call) -> Answer:
        self.asked += 1
        self.together += 1
        self.together_most = max(self.together, self.together_most)
        await trio.sleep(0.01)
        self.together -= 1
        if to.port == 7:
            raise ConnectFailed("it is not there")
        said = {**self._said, "more": "x" * (5 << 20)} if to.port == 8 else self._said
        return Answer(ok=True, arg3=encode_value("msgpack", said))

    def rows(self, _ringpop: object, _value: object) -> object:
        return {"members": [{"name": member.name, "labels": {}} for member in self.members]}


async def test_of_300_members_those_beyond_the_limit_are_cut_off_and_asked_again_by_name() -> None:
    node: Any = FakeMembers(300, 50_000)
    census = Census(node, {"/admin/members": node.rows})
    answers: list[Any] = []
    wanted: dict[str, Any] = {"sections": ["node"]}

    while not answers or answers[-1]["said"]:
        answers.append(await census.answer(node, wanted))
        assert len(encode_value("msgpack", answers[-1])) < WireLimits().message_bytes_max
        assert answers[-1]["silent"].keys() >= set(answers[-1]["cut"])
        wanted["names"] = answers[-1]["cut"]

    assert node.together_most == TOGETHER_MAX
    assert answers[0]["silent"]["m006"] == "it is not there"
    assert all(len(answer["said"]) > 70 for answer in answers[:-2])
    assert sum(len(answer["said"]) for answer in answers) == 298
    assert answers[-1]["silent"] == {"m007": "cut off: all say more than 4194304 bytes"}
    assert node.asked < 300 + len(answers) * 2 * TOGETHER_MAX  # not all of them each time


async def test_many_callers_have_no_more_members_asked_at_the_same_time() -> None:
    node: Any = FakeMembers(40, 10)
    census = Census(node, {"/admin/members": node.rows})
    answers: list[Any] = []

    async def call() -> None:
        answers.append(await census.answer(node, {"sections": ["node"]}))

    async with trio.open_nursery() as nursery:
        for _ in range(3 * ROUNDS_MAX):
            nursery.start_soon(call)

    assert node.together_most == TOGETHER_MAX
    assert [len(answer["said"]) for answer in answers] == [38] * 3 * ROUNDS_MAX
