"""Clients that write and read at a constant rate through any node, and note what came of it.

An operation that fails is tried again through another node, under the same id. It ends as done, as
one that certainly took no effect, or as open.
"""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import ApplicationError, CallError, KeyspaceError
from ringpop_py.base.values.operations import OperationId
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from ringpop_py.route.proxy.request import Request
from ringpop_sim.linear import ABSENT, ANY, Invocation

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from pathlib import Path

    from ringpop_py.base.address import Address

KEYSPACE: Final = "proof"
RATE_PER_S: Final = 12.0
"""Of one client."""
ATTEMPT_S: Final = 1.5
NOT_BEGUN: Final = {"PartitionUnavailable", "NotEnoughMembers", "KeyspaceUnknown", "StoreFull"}
"""What says that nothing was done; all else leaves it open."""
KEYS_OF_A_KIND: Final = 16
KEYS: Final = tuple(f"{kind}{n:02}" for kind in ("r", "c", "l") for n in range(KEYS_OF_A_KIND))
"""Registers, counters, and lists."""


@dataclass(slots=True)
class History:
    """What one client did.

    Attributes:
        log: each outcome is a line of it before the next operation begins.
        failed: operations that certainly took no effect.
    """

    log: Path
    operations: list[Invocation] = field(default_factory=list)
    failed: list[Invocation] = field(default_factory=list)

    def note(self, operation: Invocation, *, failed: bool = False) -> None:
        (self.failed if failed else self.operations).append(operation)
        row = [
            operation.key,
            operation.name,
            repr(operation.argument),
            repr(operation.result),
            operation.called_at,
            "failed" if failed else operation.returned_at,
        ]
        with self.log.open("a") as file:
            file.write(json.dumps(row) + "\n")


class NodeCalls:
    """One thread's connections to nodes."""

    def __init__(self) -> None:
        self._clients: dict[Address, Client] = {}

    def ask(self, address: Address, endpoint: str, body: bytes, timeout_s: float) -> bytes:
        """What a node's handler says. Raises CallError or ApplicationError."""
        client = self._clients.setdefault(address, Client(address))
        return client.invoke(Request(endpoint, body), timeout_s=timeout_s)

    def tell(self, address: Address) -> dict[str, Any] | None:
        """What a node knows; None if it does not say."""
        try:
            value = decode_value("msgpack", self.ask(address, "/tell", b"", 1.0))
        except (CallError, ApplicationError):
            return None
        assert isinstance(value, dict)
        return value

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


class Caller:
    """Carries operations out.

    Args:
        addresses: where nodes are at the moment.
        direct: ask owners by `KeyspaceClient`, which hears from nodes who they are; else ask
            nodes, which do so in their turn.
        gives_up: how likely it is that an operation is left open after each failed attempt.
    """

    def __init__(
        self,
        name: str,
        rng: random.Random,
        addresses: Callable[[], Sequence[Address]],
        history: History,
        *,
        direct: bool = False,
        gives_up: float = 0.1,
        patience_s: float = 4.0,
    ) -> None:
        self._name = name
        self._rng = rng
        self._addresses = addresses
        self._history = history
        self._gives_up = gives_up
        self._patience_s = patience_s
        self._sequence = 0
        self._calls = NodeCalls()
        self._is_direct = direct
        self._keyspaces: dict[Address, tuple[Client, KeyspaceClient]] = {}

    def close(self) -> None:
        self._calls.close()
        for client, keyspace in self._keyspaces.values():
            keyspace.close()
            client.close()

    def do(self, key: str, name: str, argument: object = None) -> bool:
        """One operation, from its first attempt to its end. Whether it is done."""
        self._sequence += 1
        plain = _as_history(name, argument)
        called_at = time.monotonic()
        may_have_run = False
        while True:
            attempt_at = time.monotonic()
            addresses = self._addresses()
            address = addresses[self._rng.randrange(len(addresses))]
            answer = self._try(address, key, name, argument)
            now = time.monotonic()
            if answer[0] in {"done", "ConditionFailed"}:
                self._note_done(
                    Invocation(key, name, plain, ANY, called_at, now), answer, attempt_at
                )
                return True
            may_have_run |= answer[0] not in NOT_BEGUN
            impatient = self._rng.random() < self._gives_up
            if impatient or now - called_at > self._patience_s:
                break
            time.sleep(0.02)
        if name != "get":
            unknown = Invocation(key, name, plain, None, called_at, None)
            self._history.note(unknown, failed=not may_have_run)
        return False

    def _try(self, address: Address, key: str, name: str, argument: Any) -> list[Any]:  # noqa: ANN401 - some value
        if self._is_direct:
            return self._try_directly(address, key, name, argument)
        # The first number of a source's window is its own, whatever the partition.
        row = [key, name, argument, self._name, self._sequence, ATTEMPT_S]
        body = encode_value("msgpack", row)
        try:
            answer = decode_value("msgpack", self._calls.ask(address, "/do", body, ATTEMPT_S + 0.3))
        except CallError as error:
            return ["PartitionUnavailable" if error.took_effect == "no" else "call", str(error)]
        except ApplicationError as error:
            return [error.kind, error.message]
        assert isinstance(answer, list)
        return answer

    def _try_directly(self, address: Address, key: str, name: str, argument: Any) -> list[Any]:  # noqa: ANN401 - some value
        if address not in self._keyspaces:
            client = Client(address)
            self._keyspaces[address] = client, KeyspaceClient(client, KEYSPACE)
        _, keyspace = self._keyspaces[address]
        try:
            if name == "get":
                found = keyspace.get_many([key], timeout_s=ATTEMPT_S)
                return ["done", [found[key]] if key in found else [], False]
            (outcome,) = keyspace.update_many(
                [(key, name, argument)],
                operation_id=OperationId(self._name, self._sequence),
                timeout_s=ATTEMPT_S,
            )
        except KeyspaceError as error:
            outcome = error
        if isinstance(outcome, KeyspaceError):
            return [type(outcome).__name__, str(outcome)]
        return ["done", list(outcome.values), outcome.repeated]

    def _note_done(self, operation: Invocation, answer: list[Any], attempt_at: float) -> None:
        result, also = _result(operation.name, answer)
        self._history.note(
            Invocation(
                operation.key,
                operation.name,
                operation.argument,
                result,
                operation.called_at,
                operation.returned_at,
            )
        )
        if also is not ANY:  # it had been done before; what it returned is what was there now
            key, now = operation.key, operation.returned_at
            self._history.note(Invocation(key, "get", None, also, attempt_at, now))


def _as_history(name: str, argument: object) -> Hashable:
    if name == "compare_and_set":
        assert isinstance(argument, dict)
        return argument.get("expected", ABSENT), argument["new"]
    assert argument is None or isinstance(argument, str | int)
    return argument


def _value(values: list[Any]) -> Hashable:
    if not values or values[0] is None:  # no client puts None
        return ABSENT
    value: Hashable = tuple(values[0]) if isinstance(values[0], list) else values[0]
    return value


def _result(name: str, answer: list[Any]) -> tuple[Hashable, Hashable]:
    """What an operation of that name returned, and what was read besides."""
    if answer[0] == "ConditionFailed":
        return False, ANY
    _, values, repeated = answer
    if name == "get":
        return _value(values), ANY
    if name == "compare_and_set":
        return True, _value(values) if repeated else ANY
    if repeated:
        return ANY, _value(values)
    return (_value(values) if name in {"add", "append"} else None), ANY


class Clients:
    """Threads of clients; a context manager that begins and ends them."""

    def __init__(
        self, folder: Path, seed: int, count: int, addresses: Callable[[], Sequence[Address]]
    ) -> None:
        self._stop = threading.Event()
        self.histories = [History(folder / f"client-{n}.jsonl") for n in range(count)]
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(n, f"{seed}/{n}", addresses), daemon=True)
            for n in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Return when each has ended its last operation."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "a client does not end"

    def _run(self, number: int, name: str, addresses: Callable[[], Sequence[Address]]) -> None:
        rng = random.Random(f"client {name}")
        history = self.histories[number]
        caller = Caller(f"client-{name}", rng, addresses, history, direct=number % 2 == 1)
        try:
            next_at = time.monotonic() + rng.random() / RATE_PER_S
            value = 0
            while not self._stop.wait(max(0.0, next_at - time.monotonic())):
                next_at = max(next_at + 1 / RATE_PER_S, time.monotonic() - 0.1)
                value += 1
                caller.do(*_any_operation(rng, f"{number}.{value}"))
        except BaseException as error:  # noqa: BLE001 - told by the run
            self.errors.append(error)
        finally:
            caller.close()


def _any_operation(rng: random.Random, value: str) -> tuple[str, str, object]:
    key = KEYS[rng.randrange(len(KEYS))]
    dice = rng.random()
    if dice < 0.3:
        return key, "get", None
    if key.startswith("c"):
        return key, "add", 1
    if key.startswith("l"):
        return key, "append", value
    if dice < 0.6:
        return key, "put", value
    if dice < 0.7:
        return key, "delete", None
    wanted = {"new": value}
    if rng.random() < 0.7:  # of a value that was there lately, perhaps
        client, _, count = value.partition(".")
        wanted["expected"] = f"{client}.{max(1, int(count) - rng.randrange(1, 20))}"
    return key, "compare_and_set", wanted
