"""The membership checksum: equal member lists have equal checksums. Tombstones do not count."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from sortedcontainers import SortedDict

from ringpop_py.member.swim.member import Member, Status, label_sum

if TYPE_CHECKING:
    from ringpop_py.base.dialect import Dialect

_INCARNATION_STATUS: Final = struct.Struct(">QB").pack
_TOMBSTONE: Final = Status.TOMBSTONE
_MASK: Final = (1 << 64) - 1


def checksum_for(dialect: Dialect) -> SumChecksum | OrderedChecksum:
    """Return an empty checksum of the kind that members of *dialect* compute."""
    return OrderedChecksum(dialect) if dialect.ordered_checksum else SumChecksum(dialect)


_Counted = tuple[str, int, bytes, int]
"""Of a counted row: its host and port, the prefix of its bytes (seldom new), its hash."""


class SumChecksum:
    """The sum of one hash for each member, modulo 2**64. A change costs O(1).

    The hashed bytes of a member are its name, host and port, one line each (they contain no line
    break, so no two members have the same bytes); its incarnation and status in nine bytes; the
    sum of its labels in four, if it has any; and its damping in eight, if it is not 0.

    Attributes:
        value: the checksum of all counted rows.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._hash_bytes = dialect.hash_bytes
        self._counted: dict[str, _Counted] = {}
        self.value = 0

    def replace(self, name: str, member: Member | None) -> None:
        """Count *member* as the row of *name*; None: count no row of *name*."""
        before = self._counted.get(name)
        if member is None or member.status is _TOMBSTONE:
            self._counted.pop(name, None)
            after = 0
        else:
            host, port = member.host, member.port
            if before is not None and before[0] == host and before[1] == port:
                prefix = before[2]  # it is slow to format, and seldom new
            else:
                prefix = f"{name}\n{host}\n{port}\n".encode()
            # The plus converts the status to a number several times faster than int() does.
            data = prefix + _INCARNATION_STATUS(member.incarnation, +member.status)
            if member.labels:
                data += label_sum(member.labels).to_bytes(4, "big", signed=True)
            if member.damping:
                data += member.damping.to_bytes(8, "big")
            after = self._hash_bytes(data)
            self._counted[name] = host, port, prefix, after
        self.value = (self.value - (before[3] if before else 0) + after) & _MASK

    def counted(self, name: str) -> int:
        """Return the share of *name* in the sum; 0 if no row of it counts."""
        counted = self._counted.get(name)
        return counted[3] if counted else 0


class OrderedChecksum:
    """Ringpop's: the hash of the sorted member strings, each with a ``;``; computed when read."""

    def __init__(self, dialect: Dialect) -> None:
        self._hash_bytes = dialect.hash_bytes
        self._texts: SortedDict = SortedDict()
        self._value: int | None = None
        self._text_by_name: dict[str, str] = {}

    def replace(self, name: str, member: Member | None) -> None:
        """See `SumChecksum.replace`."""
        before = self._text_by_name.pop(name, None)
        if before is not None:
            del self._texts[before]
        if member is not None and member.status is not Status.TOMBSTONE:
            labels = label_sum(member.labels)
            suffix = f"#labels{labels}" if labels else ""
            text = f"{member.address}{member.status.label}{member.incarnation}{suffix}"
            self._text_by_name[name] = text
            self._texts[text] = None
        self._value = None

    def counted(self, name: str) -> int:
        """Return the hash of the counted row of *name*; 0 if no row of it counts."""
        text = self._text_by_name.get(name)
        return self._hash_bytes(text.encode()) if text else 0

    @property
    def value(self) -> int:
        """The checksum of all counted rows."""
        if self._value is None:
            self._value = self._hash_bytes("".join(f"{text};" for text in self._texts).encode())
        return self._value
