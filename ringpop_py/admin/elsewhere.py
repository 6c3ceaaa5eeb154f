"""A node without a store has one that has a store answer for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringpop_py.admin.answers import THERE
from ringpop_py.errors import (
    BodyError,
    CallError,
    ConfigError,
    KeyspaceError,
    PartitionUnavailable,
)
from ringpop_py.keyspaces.stored import STORE_LABEL
from ringpop_py.values.packed import a_map, decode_value, encode_value
from ringpop_py.values.requests import error_of
from ringpop_py.wire.calls import NODE_SERVICE, Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.swim.member import Member

    Endpoint = Callable[[Ringpop, dict[str, Any]], Awaitable[object]]

ASKED_INSTEAD_MAX: Final = 3
INSTEAD_S: Final = 3600.0
"""The caller's own time is shorter, and ends ours."""


def by_any(path: str, endpoint: Endpoint) -> Callable[[Ringpop, object], Awaitable[object]]:
    """*endpoint*, or what a member with a store answers there if this node has none."""

    async def answer(ringpop: Ringpop, value: object) -> object:
        body = a_map({} if value is None else value, "body")
        if ringpop.keyspaces.store_id is None and body.get("name") not in _names_here(ringpop):
            others = members_with_a_store(ringpop)
            if others:
                return await ask_instead(ringpop, path, body, others)
        return await endpoint(ringpop, body)

    return answer


def _names_here(ringpop: Ringpop) -> list[str]:
    return [keyspace.name for keyspace in ringpop.keyspaces.all()]


def members_with_a_store(ringpop: Ringpop) -> list[Member]:
    """Those to ask if we have none."""
    return [member for member in ringpop.members if _has_store(member)]


def _has_store(member: Member) -> bool:
    return member.status in THERE and any(key == STORE_LABEL for key, _ in member.labels)


async def ask_instead(
    ringpop: Ringpop, path: str, body: dict[str, Any], others: Sequence[Member]
) -> dict[str, Any]:
    """What the first of *others* says that can be reached.

    Raises:
        KeyspaceError, ConfigError: it says no.
        PartitionUnavailable: none can be reached.
    """
    call = Call(NODE_SERVICE, path, b"", encode_value("msgpack", body), ttl_s=INSTEAD_S)
    silence = ""
    for member in others[:ASKED_INSTEAD_MAX]:
        try:
            answer = await ringpop.channel.call(member.address, call)
            value = a_map(decode_value("msgpack", answer.arg3), "answer")
        except (CallError, BodyError) as error:
            silence = silence or f"{member.name} has a store, but does not answer: {error}"
            if error.took_effect == "unknown":
                break
            continue
        if not answer.ok:
            raise _refusal(value)
        return value
    raise PartitionUnavailable(silence)


def _refusal(value: dict[str, Any]) -> KeyspaceError | ConfigError:
    """What a member refused with, as the error that it was there."""
    message = str(value.get("message", ""))
    if value.get("error") == ConfigError.__name__:
        return ConfigError(message)
    return error_of(value.get("error", KeyspaceError.__name__), message)
