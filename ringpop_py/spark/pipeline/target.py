"""The keyspace that a pipeline writes into: created if need be, checked, and watched."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ringpop_py.base.errors import (
    ApplicationError,
    CallError,
    ConnectFailed,
    KeyspaceConflict,
    KeyspaceError,
    KeyspaceUnknown,
    RingpopError,
)
from ringpop_py.base.values.packed import encode_value
from ringpop_py.base.values.requests import decode_results
from ringpop_py.client.sync.client import Client
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.state.messages import DESCRIBE, KNOWS_HASH_TAGS
from ringpop_py.state.placement.assignment import placed
from ringpop_py.state.placement.definition import Definition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringpop_py.spark.options import Target
    from ringpop_py.spark.pipeline.settings import KeyspaceSettings

ASK_TIMEOUT_S: Final = 3.0
STORE_TIMEOUT_S: Final = 30.0
"""The time limit of requests for which the daemon has to read or write the store."""
KEYS_S_MAX: Final = 6.0
"""The time limit for asking all members for their numbers of keys, which are only displayed."""
SERVED_S_MAX: Final = 10.0
POLL_S: Final = 0.1
REACHABLE: Final = ("alive", "suspect")
NOBODY: Final = "(nobody)"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TargetOwnership:
    """The owners of a keyspace.

    Attributes:
        owners: the owner of each partition; `NOBODY` if it is not served at the moment.
        keys: the number of keys of each member that has answered.
        planned: whether the keyspace does not exist, and these would be its owners.
    """

    owners: tuple[str, ...]
    keys: Mapping[str, int] = field(default_factory=dict)
    planned: bool = False

    @property
    def partitions(self) -> dict[str, int]:
        """The number of partitions of each owner, by name."""
        return dict(sorted(Counter(self.owners).items()))


class PipelineTarget:
    """A keyspace as the first peer that answers sees it. Not shared between threads.

    Members of the cluster are added to the peers, so that one daemon that was ever seen suffices;
    if members cannot be reached from here, only the peers of *target* are asked. Its methods raise
    ConnectFailed if no daemon answers.
    """

    def __init__(self, target: Target, keyspace: KeyspaceSettings) -> None:
        self.keyspace = keyspace
        self._target = target
        self._peers = list(target.peers)

    def prepare(self) -> bool:
        """Check that the keyspace exists, or create it; return whether it was created.

        Raises:
            KeyspaceUnknown: if it does not exist, and must not be created.
            KeyspaceConflict: if it has other settings than the file.
            RingpopError: if a daemon refuses.
        """
        body: dict[str, Any] = {"name": self.keyspace.name}
        if self._is_there():
            shown = self._ask("/admin/keyspaces/show", body)
            self._check(Definition.of_record(shown["definition"], shown.get("revision", 0)))
            return False
        if not self.keyspace.create:
            raise KeyspaceUnknown(
                f"there is no keyspace {self.keyspace.name!r}: create it, or leave out"
                " keyspace.create = false"
            )
        body |= self.keyspace.settings
        self._ask("/admin/keyspaces/create", body, timeout_s=STORE_TIMEOUT_S)
        # A job can begin before all partitions are served, but it cannot end.
        deadline = time.monotonic() + SERVED_S_MAX
        while NOBODY in self.ownership().owners and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return True

    def ownership(self, *, with_keys: bool = False) -> TargetOwnership:
        """Return the owners of the partitions, or the planned ones if there is no keyspace."""
        members = self._members()
        if not self._is_there():
            definition = Definition(name=self.keyspace.name, **self.keyspace.settings)
            owners = placed(definition, members)
            return TargetOwnership(owners, planned=True)
        table = self._ask("/admin/keyspaces/table", {"name": self.keyspace.name})
        owners = tuple(row["owner"] if row["served"] else NOBODY for row in table["rows"])
        if not with_keys:
            return TargetOwnership(owners)
        if self._target.direct:
            return TargetOwnership(owners, self._keys(members))
        here = self._ask("/admin/keyspaces/show", {"name": self.keyspace.name})["here"]
        return TargetOwnership(owners, {here["name"]: here["keys"]})

    def _is_there(self) -> bool:
        # Not an endpoint for administrators: its refusals do not say which error they are.
        body = encode_value("msgpack", self.keyspace.name)
        call = Call(NODE_SERVICE, DESCRIBE, KNOWS_HASH_TAGS, body, ttl_s=STORE_TIMEOUT_S)
        answer = self._first_answer(lambda client: client.call(call), STORE_TIMEOUT_S)
        (result,) = decode_results(answer.arg3, 1)
        if isinstance(result, KeyspaceUnknown):
            return False
        if isinstance(result, RingpopError):
            raise result
        return True

    def _check(self, found: Definition) -> None:
        if found.mode != "durable":
            raise KeyspaceConflict(
                f"keyspace {found.name!r} is in memory mode; a job needs a durable one"
            )
        record = found.fixed_settings()
        wrong = [
            f"{name} {record[name]!r}, not {wanted!r}"
            for name, wanted in self.keyspace.settings.items()
            if name in record and record[name] != wanted
        ]
        if wrong:
            raise KeyspaceConflict(f"keyspace {found.name!r} is there and has {', '.join(wrong)}")

    def _members(self) -> dict[str, str]:
        rows = self._ask("/admin/members")["members"]
        found = {row["name"]: row["address"] for row in rows if row["status"] in REACHABLE}
        if self._target.direct:
            self._peers = list(dict.fromkeys([*self._peers, *found.values()]))
        return found

    def _keys(self, members: Mapping[str, str]) -> dict[str, int]:
        keys = {}
        deadline = time.monotonic() + KEYS_S_MAX
        for name, address in members.items():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            try:
                with self._client(address, min(ASK_TIMEOUT_S, left_s)) as client:
                    shown = client.admin("/admin/keyspaces/show", {"name": self.keyspace.name})
            except RingpopError:
                continue  # it has left, or does not know the keyspace yet
            # A member without a store passes the request on to another one.
            if shown["here"]["name"] == name:
                keys[name] = shown["here"]["keys"]
        return keys

    def _client(self, peer: str, timeout_s: float) -> Client:
        return Client(peer, timeout_s=timeout_s, cluster_key=self._target.cluster_key)

    def _ask(
        self, endpoint: str, body: Mapping[str, Any] | None = None, timeout_s: float = ASK_TIMEOUT_S
    ) -> Any:  # noqa: ANN401 - by endpoint
        return self._first_answer(lambda client: client.admin(endpoint, body), timeout_s)

    def _first_answer(self, ask: Callable[[Client], T], timeout_s: float) -> T:
        reasons = []
        for peer in list(self._peers):
            try:
                with self._client(peer, timeout_s) as client:
                    answer = ask(client)
            except CallError as error:
                reasons.append(f"{peer}: {error}")
                continue
            except ApplicationError as error:
                raise KeyspaceError(error.message) from None
            # From now on, ask this one first: those before it would cost their time limits again.
            self._peers.remove(peer)
            self._peers.insert(0, peer)
            return answer
        raise ConnectFailed(f"no daemon answers: {'; '.join(reasons)}")
