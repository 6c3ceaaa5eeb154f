"""What all members say of themselves, asked by one node: for ``/admin/cluster`` and the console.

A caller may be a client: the endpoints in `SECTIONS` are those that a client may call itself.
"""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import trio

from ringpop_py.base.errors import (
    ApplicationError,
    BadRequest,
    BodyError,
    CallError,
    ConfigError,
    KeyspaceError,
)
from ringpop_py.base.values.declared import Meta, Named, convert
from ringpop_py.base.values.packed import a_map, decode_value, encode_value
from ringpop_py.edge.admin.accounts import TEXT_CHARACTERS_MAX, KeyspaceAccount, Short, checked
from ringpop_py.member.swim.member import Status
from ringpop_py.net.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from ringpop_py.base.address import Address
    from ringpop_py.member.swim.member import Member
    from ringpop_py.node.ringpop import Ringpop

TOGETHER_MAX: Final = 16
"""The most members that a node asks at the same time, for all callers of ``/admin/cluster``. Its
console asks as many."""
ROUNDS_MAX: Final = 8
"""The most answers of ``/admin/cluster`` that a node makes at the same time; others wait."""
MEMBER_S: Final = 3.0
"""The seconds that a member has for all of its sections; after that it is silent."""
ROUND_S: Final = 20.0
"""The seconds that ``/admin/cluster`` takes; members that were not asked by then are silent."""
ANSWER_SHARE: Final = 2
"""What members say has the bytes of a message divided by this: they are counted in msgpack, and
JSON is longer. Members that say more are cut off; the caller can ask for them again, by name."""
REACHABLE: Final = (Status.ALIVE, Status.SUSPECT)
"""The statuses of members that should answer."""

Section = Literal["node", "reach", "checkup", "work", "settings", "keyspaces", "share"]
SECTIONS: Final[dict[Section, str]] = {
    "node": "/admin/node",
    "reach": "/admin/reach",
    "checkup": "/admin/checkup",
    "work": "/admin/work",
    "settings": "/admin/config/get",
    "keyspaces": "/admin/keyspaces",
    "share": "/admin/keyspaces/show",
}
"""The endpoint of each section; a member is asked in this order."""
_TABLE: Final = "/admin/keyspaces/table"
_LATER: Final = ("reach", "checkup", "work")
"""The sections that a member of an older version does not have."""


class _Wanted(Named, frozen=True):
    """What ``/admin/cluster`` is asked for.

    Attributes:
        sections: nobody is asked without any.
        names: the members to ask; None are all.
        keyspace: the one whose ``share`` is asked for.
        load: whether members without keyspaces load their code to answer.
    """

    sections: Annotated[tuple[Section, ...], Meta(max_length=len(SECTIONS))] = ()
    names: Annotated[tuple[Short, ...], Meta(max_length=20_000)] | None = None
    keyspace: Short = ""
    load: bool = False


class Census:
    """Asks members, at most `TOGETHER_MAX` at the same time, the node itself without a call.

    Args:
        reads: the node's own endpoints, besides those of keyspaces.
    """

    def __init__(self, ringpop: Ringpop, reads: Mapping[str, Callable[[Any, Any], object]]) -> None:
        self._ringpop = ringpop
        self._reads = reads
        self._limiter = trio.CapacityLimiter(TOGETHER_MAX)
        self._rounds = trio.CapacityLimiter(ROUNDS_MAX)

    async def answer(self, ringpop: Ringpop, value: object) -> object:
        """Answer ``/admin/cluster``: the members, what each says, and why others are silent."""
        wanted = convert(_Wanted, {} if value is None else value, "request")
        if ("share" in wanted.sections) != bool(wanted.keyspace):
            raise BodyError("request: the section share and a keyspace need each other")
        listed = checked("/admin/members", self._reads["/admin/members"](ringpop, None))
        bytes_max = ringpop.channel.limits.message_bytes_max // ANSWER_SHARE
        left, largest = bytes_max - len(encode_value("msgpack", listed)), 0
        said: dict[str, dict[str, Any]] = {}
        silent: dict[str, str] = {}
        cut: set[str] = set()

        async def ask(member: Member) -> None:
            nonlocal left, largest
            name = member.name
            if left < largest:  # it would hardly fit
                cut.add(name)
                return
            found = await self.ask(
                member, wanted.sections, keyspace=wanted.keyspace, load=wanted.load
            )
            if isinstance(found, str):
                silent[name] = found
            elif (size := len(encode_value("msgpack", found))) > left:
                cut.add(name)
            else:
                said[name] = found
                left, largest = left - size, max(largest, size)

        members = self._to_ask(wanted)
        async with self._rounds:
            with trio.move_on_after(ROUND_S):
                await self.each(members, ask)
        asked = [member.name for member in members]
        silent |= dict.fromkeys(cut, f"cut off: all say more than {bytes_max} bytes")
        late = f"{ringpop.name} could not ask all members within {ROUND_S:g} s"
        return {
            **listed,
            "said": {name: said[name] for name in asked if name in said},
            "silent": {name: silent.get(name, late) for name in asked if name not in said},
            "cut": [name for name in asked if name in cut],
        }

    def _to_ask(self, wanted: _Wanted) -> list[Member]:
        members = self._ringpop.members if wanted.sections else ()
        names = None if wanted.names is None else frozenset(wanted.names)
        reachable = [member for member in members if member.status in REACHABLE]
        return [member for member in reachable if names is None or member.name in names]

    async def each(
        self, members: Iterable[Member], act: Callable[[Member], Awaitable[None]]
    ) -> None:
        """Call *act* for each of *members*, for at most `TOGETHER_MAX` at the same time."""
        left = iter(members)

        async def some() -> None:
            for member in left:
                async with self._limiter:
                    await act(member)

        async with trio.open_nursery() as nursery:
            for _ in range(TOGETHER_MAX):
                nursery.start_soon(some)

    async def ask(
        self,
        member: Member,
        sections: Collection[Section],
        *,
        timeout_s: float = MEMBER_S,
        keyspace: str = "",
        load: bool = False,
    ) -> dict[str, Any] | str:
        """Return what *member* says, by section, or why it is silent; see `_Wanted`.

        With a checkup come ``clock_s``, by how much its clock is ahead of this node's, and
        ``off_s``, by how much that may be wrong: the middle of the call, and half of it.
        """
        why = f"it has not answered within {timeout_s:g} s"
        with trio.move_on_after(timeout_s):  # whatever it does, it delays no other member
            try:
                return await self._sections(member.address, sections, keyspace, load=load)
            except (ApplicationError, BodyError, CallError) as error:
                why = str(error)[:TEXT_CHARACTERS_MAX]
        return why

    async def _sections(
        self, to: Address, sections: Collection[Section], keyspace: str, *, load: bool
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for section, endpoint in SECTIONS.items():
            if section not in sections:
                continue
            if section == "keyspaces" and not (
                load or found.get("node", {}).get("keyspaces", True)
            ):
                continue
            body = {"settings": [], "share": {"name": keyspace}}.get(section)
            began = time.time()
            try:
                said = await self._said(to, endpoint, body)
            except BadRequest:
                if section in _LATER:
                    continue
                raise
            if section == "checkup":
                ended = time.time()
                found["clock_s"] = said["at"] - (began + ended) / 2
                found["off_s"] = (ended - began) / 2
            if section == "keyspaces":  # without their members: each would name all of them
                kept = KeyspaceAccount.__struct_fields__
                said = [{name: row.get(name) for name in kept} for row in said["keyspaces"]]
            if section == "share":
                rows = (await self._said(to, _TABLE, body))["rows"]
                keys = [[row["partition"], row["keys"]] for row in rows if row["keys"] is not None]
                said = {"here": said["here"], "keys": keys}
            found[section] = said
        return found

    async def _said(self, to: Address, endpoint: str, body: object) -> Any:  # noqa: ANN401 - by endpoint
        if to == self._ringpop.address:
            return checked(endpoint, await self._said_here(endpoint, body))
        encoded = encode_value("msgpack", body)
        call = Call(NODE_SERVICE, endpoint, b"", encoded, ttl_s=MEMBER_S, scheme="msgpack")
        answer = await self._ringpop.channel.call(to, call)
        value = decode_value("msgpack", answer.arg3)
        if not answer.ok:
            refusal = a_map(value, "refusal")
            raise ApplicationError(str(refusal.get("type")), str(refusal.get("message", "")))
        return checked(endpoint, value)

    async def _said_here(self, endpoint: str, body: object) -> object:
        reads = self._reads
        if endpoint.startswith("/admin/keyspaces"):
            from ringpop_py.edge.admin import keyspaces  # noqa: PLC0415 - on demand

            reads = keyspaces.READS
        try:
            value = reads[endpoint](self._ringpop, body)
            said = await value if inspect.isawaitable(value) else value
        except (ConfigError, KeyspaceError) as error:
            raise ApplicationError("error", str(error)) from None
        # As it would come from others: tuples become lists.
        return decode_value("msgpack", encode_value("msgpack", said))
