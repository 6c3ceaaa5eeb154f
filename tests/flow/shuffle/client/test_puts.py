"""Where the rows of a client go when members come and go."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest

from ringpop_py.base.errors import ShuffleUnavailable
from ringpop_py.flow.shuffle.client.puts import Attempt
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.messages import Answer
from ringpop_py.flow.shuffle.sorting.order import RANDOM, Order

SCHEMA = pa.schema([("key", pa.int64())])


class Cluster:
    """Members that answer *answers* in turn at the first address, and take all at a later one."""

    timeout_s = 30.0

    def __init__(self, *answers: Answer | Exception) -> None:
        self.addresses = {"a": "first"}
        self.looks = 0
        self.bodies: list[bytes] = []
        self._answers = list(answers)

    def look(self) -> None:
        self.looks += 1
        self.addresses = {"b": "later"}

    def line(self, address: str) -> Line:
        return Line(self, address)

    def answer(self, address: str) -> Answer:
        answer = Answer.OK if address == "later" else self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Line:
    def __init__(self, cluster: Cluster, address: str) -> None:
        self._cluster = cluster
        self._address = address

    def send(self, _call: c.Call, *body: bytes, timeout_s: float) -> int:
        del timeout_s
        self._cluster.bodies.append(b"".join(body))
        return 1

    def receive(self, _number: int, *, deadline: float) -> tuple[c.Reply, bytearray]:
        del deadline
        return c.Said(self._cluster.answer(self._address).value), bytearray()


def attempt(cluster: Cluster, seed: int | None = None) -> Attempt:
    schema = SCHEMA if seed is None else SCHEMA.append(pa.field(RANDOM, pa.uint64()))
    order = Order(schema, ("key",) if seed is None else (RANDOM,))
    return Attempt(cast("Any", cluster), c.Put("mine", 1), order, 0, seed=seed, part=0)


def test_after_a_failed_put_the_client_looks_for_the_members_that_are_there() -> None:
    for failure in (Answer.NOT_NOW, ShuffleUnavailable("the connection was lost")):
        cluster = Cluster(*[failure] * 3)

        attempt(cluster).put(pa.table({"key": [1, 2]}))

        assert cluster.looks == 1
        assert len(cluster.bodies) == 2
        assert cluster.bodies[0] == cluster.bodies[1]


def test_rows_that_one_member_alone_cannot_take_are_refused_with_what_it_takes() -> None:
    class Alone(Cluster):
        timeout_s = 0.1

        def look(self) -> None:
            self.addresses = {"a": "first"}

    cluster = Alone(*[Answer.NOT_NOW] * 100)

    with pytest.raises(ShuffleUnavailable, match="it takes two of them"):
        attempt(cluster).put(pa.table({"key": [1]}))


def test_an_answered_client_does_not_look_for_the_members_again() -> None:
    cluster = Cluster(Answer.OK, Answer.OK)

    attempt(cluster).put(pa.table({"key": [1, 2]}))

    assert cluster.looks == 0


def test_puts_of_one_task_in_a_random_order_have_different_keys() -> None:
    cluster = Cluster(*[Answer.OK] * 4)
    task = attempt(cluster, seed=7)

    task.put(pa.table({"key": [1, 2, 3]}))
    task.put(pa.table({"key": [1, 2, 3]}))

    first, second = cluster.bodies
    assert first[-200:] != second[-200:]
