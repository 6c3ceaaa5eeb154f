"""What a group of writes did to keyed state, as the body of an entry of a journal.

A body is a list of four: changed keys with their packed values, deleted keys, ids, packed offsets.
Marks of spans are among the offsets. Ids are by source: the sequences of its writes, each followed
by the digest of that write if it has one, or by what says that it was refused (`refusal_of`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, cast

from ringpop_py.base.errors import OperationTooOld, StateDamaged
from ringpop_py.base.values.operations import DIGEST_BYTES
from ringpop_py.state.table.sessions import SEQUENCE_MAX, after, after_run, record_of, with_records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.state.table.sessions import Session

Ids = list[int | bytes]
"""The ids of one source."""
_PARTS_COUNT: Final = 4


class Body(NamedTuple):
    """The parts of a body: made here, or read and found good. Applying them cannot fail."""

    changed: dict[str, bytes]
    deleted: list[str]
    ids: dict[str, Ids]
    offsets: dict[str, bytes]


class ReadBody(Body):
    """A body that was read, and not staged at this node."""

    __slots__ = ()


class Group:
    """The effects of a group of writes, as far as they are staged.

    Attributes:
        changed: packed values; None for a key that is deleted.
        deleted: keys that were deleted at some moment; one may have been put again.
        growth: of the number of keys.
        sessions: without the digests of the group itself.
    """

    __slots__ = ("changed", "deleted", "growth", "ids", "offsets", "sessions")

    def __init__(self) -> None:
        # By hand: each commit makes one for each partition, and a dataclass takes twice as long.
        self.changed: dict[str, bytes | None] = {}
        self.deleted: dict[str, None] = {}
        self.growth = 0
        self.sessions: dict[str, Session] = {}
        self.ids: dict[str, Ids] = {}
        self.offsets: dict[str, bytes] = {}

    def add(
        self,
        changed: Mapping[str, bytes | None],
        deleted: Sequence[str],
        growth: int,
        offsets: Mapping[str, bytes] | None,
    ) -> None:
        """Add the effects of a write."""
        self.changed.update(changed)
        if deleted:
            self.deleted.update(dict.fromkeys(deleted))
        self.growth += growth
        if offsets:
            self.offsets.update(offsets)

    def add_id(self, source: str, sequence: int, session: Session, digest: bytes) -> None:
        """Add the id of a write, after which its source has *session*."""
        self.sessions[source] = session
        ids = self.ids.setdefault(source, [])
        ids.append(sequence)
        if digest:
            ids.append(digest)

    def digest_of(self, source: str, sequence: int) -> bytes:
        """Return the digest of a write of this group; empty if it has none or is not known."""
        ids = self.ids.get(source, [])
        following = ids[ids.index(sequence) + 1 :] if sequence in ids else []
        return following[0] if following and isinstance(following[0], bytes) else b""

    def body(self, *, mergeable: bool) -> Body:
        """Return the body; if *mergeable*, with each key that was deleted at some moment."""
        changed, deleted = self.changed, list(self.deleted)
        if deleted:
            if not mergeable:
                deleted = [key for key in deleted if changed[key] is None]
            changed = {key: packed for key, packed in changed.items() if packed is not None}
        return Body(cast("dict[str, bytes]", changed), deleted, self.ids, self.offsets)


def parts_of(body: object, *, mergeable: bool = False) -> ReadBody:
    """Return the parts of *body*, which are checked unless they were before.

    If *mergeable*, a key can be among both the changed and the deleted ones.

    Raises:
        StateDamaged: if *body* is not the body of a group.
    """
    if isinstance(body, ReadBody):
        return body
    if isinstance(body, list) and len(body) == _PARTS_COUNT:
        changed, deleted, ids, offsets = body
        # By hand, with loops in C: a declared message would copy each map on the hot path.
        if (
            _is_map(changed, bytes)
            and isinstance(deleted, list)
            and {str}.issuperset(map(type, deleted))
            and (mergeable or changed.keys().isdisjoint(deleted))
            and _is_map(ids, list)
            and all(map(_are_ids, ids.values()))
            and _is_map(offsets, bytes)
        ):
            return ReadBody(changed, deleted, ids, offsets)
    raise StateDamaged("a record of the log is not the body of a group of writes")


def session_after(session: Session | None, ids: Ids) -> Session:
    """Return *session* (None for a new source) after the writes *ids*.

    Raises:
        StateDamaged: if one of them is so old that no owner can have logged it.
    """
    first = ids[0]
    if (
        len(ids) > 1
        and type(first) is int
        and (session is None or first > session[0])
        and ids == list(range(first, first + len(ids)))  # mostly, and there can be thousands
    ):
        return after_run(session, first, len(ids))
    records: list[bytes] = []
    sequence = 0
    try:
        for item in ids:
            if isinstance(item, bytes):
                records.append(record_of(sequence, item))
            else:
                sequence = item
                session = after(session, sequence) or session
    except OperationTooOld as error:
        raise StateDamaged(
            f"a record of the log has a write that no owner can have logged: {error}"
        ) from None
    assert session is not None
    return with_records(session, records) if records else session


def is_digest(value: object) -> bool:
    """Return whether *value* can be the digest of a write."""
    return type(value) is bytes and len(value) == DIGEST_BYTES


def _are_ids(items: Sequence[object]) -> bool:
    if {int}.issuperset(map(type, items)):  # mostly
        return bool(items) and min(cast("Sequence[int]", items)) >= 0
    after_sequence = False
    for item in items:
        if type(item) is int and 0 <= item <= SEQUENCE_MAX:
            after_sequence = True
        elif after_sequence and is_digest(item):
            after_sequence = False
        else:
            return False
    return True


def _is_map(value: object, kind: type) -> bool:
    return (
        isinstance(value, dict)
        and {str}.issuperset(map(type, value))
        and {kind}.issuperset(map(type, value.values()))
    )
