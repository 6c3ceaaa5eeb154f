"""The keyspace that a pipeline writes into: made, looked at, and watched while the job runs."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ringpop_py.client.client import Client
from ringpop_py.client.messages import DESCRIBE
from ringpop_py.errors import (
    ApplicationError,
    CallError,
    ConnectFailed,
    KeyspaceConflict,
    KeyspaceError,
    KeyspaceUnknown,
    RingpopError,
)
from ringpop_py.placing.definition import Definition
from ringpop_py.placing.strategies import assign
from ringpop_py.values.packed import encode_value
from ringpop_py.values.requests import decode_results
from ringpop_py.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ringpop_py.pipeline.settings import KeyspaceSettings, Pipeline

ASK_TIMEOUT_S: Final = 3.0
STORE_TIMEOUT_S: Final = 30.0
"""For what the asked node has to ask the store about."""
KEYS_S_MAX: Final = 6.0
"""For asking all members how many keys they have, which is for people only."""
SERVED_S_MAX: Final = 10.0
POLL_S: Final = 0.1
REACHABLE: Final = ("alive", "suspect")
NOBODY: Final = "(nobody)"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TargetOwnership:
    """Who serves a keyspace.

    Attributes:
        owners: the owner of each partition; `NOBODY` where there is none at the moment.
        keys: how many keys each member has, of those that could be asked.
        planned: the keyspace is not there, and these would be its owners.
    """

    owners: tuple[str, ...]
    keys: Mapping[str, int] = field(default_factory=dict)
    planned: bool = False

    @property
    def partitions(self) -> dict[str, int]:
        """How many partitions each owner has, by name."""
        return dict(sorted(Counter(self.owners).items()))


class PipelineTarget:
    """A keyspace as the first of *peers* that answers sees it. Not shared between threads.

    The members of the cluster are learnt on the way, so that it is enough if one of all the
    daemons that were ever seen is there.

    Args:
        direct: False where members cannot be reached from here: then none but *peers* is asked.
    """

    def __init__(
        self, peers: Sequence[str], keyspace: KeyspaceSettings, *, direct: bool = True
    ) -> None:
        self.keyspace = keyspace
        self._peers = list(peers)
        self._direct = direct

    @classmethod
    def of(cls, pipeline: Pipeline) -> PipelineTarget:
        """What *pipeline* writes into, reached as it says."""
        return cls(pipeline.peers, pipeline.keyspace, direct=pipeline.direct)

    def prepare(self) -> bool:
        """See that the keyspace is there, and make it if that is wanted; whether it was made.

        Raises:
            ConnectFailed: no daemon answers.
            KeyspaceUnknown: there is none, and none is to be made.
            KeyspaceConflict: it was made with other settings than the file says.
            RingpopError: the daemons say no.
        """
        body: dict[str, Any] = {"name": self.keyspace.name}
        if self._is_there():
            shown = self._ask("/admin/keyspaces/show", body)
            self._check(Definition.of_record(shown["definition"]))
            return False
        if not self.keyspace.create:
            raise KeyspaceUnknown(
                f"there is no keyspace {self.keyspace.name!r}: create it, or leave out"
                " keyspace.create = false"
            )
        body |= self.keyspace.settings
        self._ask("/admin/keyspaces/create", body, timeout_s=STORE_TIMEOUT_S)
        self._wait_until_served()
        return True

    def ownership(self, *, with_keys: bool = False) -> TargetOwnership:
        """Who owns the partitions; or would, if the keyspace is not there.

        Raises:
            ConnectFailed: no daemon answers.
        """
        members = self._members()
        if not self._is_there():
            return self._planned(members)
        table = self._ask("/admin/keyspaces/table", {"name": self.keyspace.name})
        owners = tuple(row["owner"] if row["served"] else NOBODY for row in table["rows"])
        if not with_keys:
            return TargetOwnership(owners)
        if self._direct:
            return TargetOwnership(owners, self._keys(members))
        here = self._ask("/admin/keyspaces/show", {"name": self.keyspace.name})["here"]
        return TargetOwnership(owners, {here["name"]: here["keys"]})

    def _wait_until_served(self) -> None:
        """Let the owners of a new keyspace come; a job could begin without, but not end."""
        deadline = time.monotonic() + SERVED_S_MAX
        while NOBODY in self.ownership().owners and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def _is_there(self) -> bool:
        """Whether there is such a keyspace. Endpoints for administrators say no in words only."""
        body = encode_value("msgpack", self.keyspace.name)
        call = Call(NODE_SERVICE, DESCRIBE, b"", body, ttl_s=STORE_TIMEOUT_S)
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
        record = found.as_record()
        said = self.keyspace.settings
        wrong = [
            f"{name} {record[name]!r}, not {said[name]!r}"
            for name in said
            if record[name] != said[name]
        ]
        if wrong:
            raise KeyspaceConflict(f"keyspace {found.name!r} is there and has {', '.join(wrong)}")

    def _planned(self, members: Mapping[str, str]) -> TargetOwnership:
        definition = Definition(name=self.keyspace.name, **self.keyspace.settings)
        owners = assign(definition.strategy, definition.partitions, members)
        return TargetOwnership(owners, planned=True)

    def _members(self) -> dict[str, str]:
        """The addresses of the members that may be asked, by name."""
        rows = self._ask("/admin/members")["members"]
        found = {row["name"]: row["address"] for row in rows if row["status"] in REACHABLE}
        if self._direct:
            self._peers = list(dict.fromkeys([*self._peers, *found.values()]))
        return found

    def _keys(self, members: Mapping[str, str]) -> dict[str, int]:
        """How many keys each of *members* has, as far as they tell it in time."""
        keys = {}
        deadline = time.monotonic() + KEYS_S_MAX
        for name, address in members.items():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            try:
                with Client(address, timeout_s=min(ASK_TIMEOUT_S, left_s)) as client:
                    shown = client.admin("/admin/keyspaces/show", {"name": self.keyspace.name})
            except RingpopError:
                continue  # it is gone, or does not know of the keyspace yet
            # One without a store tells what another has.
            if shown["here"]["name"] == name:
                keys[name] = shown["here"]["keys"]
        return keys

    def _ask(
        self,
        endpoint: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = ASK_TIMEOUT_S,
    ) -> Any:  # noqa: ANN401 - by endpoint
        """What the endpoint for administrators answers. Raises as `_first_answer`."""
        return self._first_answer(lambda client: client.admin(endpoint, body), timeout_s)

    def _first_answer(self, ask: Callable[[Client], T], timeout_s: float) -> T:
        """What the first daemon that answers says; it is asked first from then on.

        Raises:
            ConnectFailed: none does.
            KeyspaceError: it says no.
        """
        reasons = []
        for peer in list(self._peers):
            try:
                with Client(peer, timeout_s=timeout_s) as client:
                    answer = ask(client)
            except CallError as error:
                reasons.append(f"{peer}: {error}")
                continue
            except ApplicationError as error:
                raise KeyspaceError(error.message) from None
            self._peers.remove(peer)
            self._peers.insert(0, peer)
            return answer
        message = "no daemon answers: " + "; ".join(reasons)
        raise ConnectFailed(message)
