"""The membership checksum: equal member lists, equal checksum. Tombstones do not count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from sortedcontainers import SortedDict

from ringpop_py.membership.member import Member, Status, label_sum

if TYPE_CHECKING:
    from ringpop_py.dialect import Dialect

_MASK: Final = (1 << 64) - 1
_TOMBSTONE: Final = int(Status.TOMBSTONE)  # a number: looked up and compared faster


class Checksum(Protocol):
    """Kept up to date a member at a time."""

    def replace(self, name: str, member: Member | None) -> None:
        """Count *member* for *name*, or nothing any more."""

    @property
    def value(self) -> int:
        """The checksum of all that counts now."""


def checksum_for(dialect: Dialect) -> Checksum:
    """An empty checksum as the members of *dialect* compute it."""
    return OrderedChecksum(dialect) if dialect.ordered_checksum else SumChecksum(dialect)


class SumChecksum:
    """The sum of one hash a member, modulo 2**64: O(1) a change, whatever the size."""

    def __init__(self, dialect: Dialect) -> None:
        self._hash_bytes = dialect.hash_bytes
        self._hashes: dict[str, int] = {}
        self.value = 0

    def replace(self, name: str, member: Member | None) -> None:
        """See `Checksum.replace`."""
        hashes = self._hashes
        before = hashes.get(name, 0)
        if member is None or (status := int(member.status)) == _TOMBSTONE:
            hashes.pop(name, None)
            after = 0
        else:
            host, port = member.address
            # Names and hosts hold no newline, so no two members give one text.
            text = f"{name}\n{host}\n{port}\n{member.incarnation}\n{status}"
            if member.labels:
                text = f"{text}\n{label_sum(member.labels)}"
            after = hashes[name] = self._hash_bytes(text.encode())
        self.value = (self.value - before + after) & _MASK


class OrderedChecksum:
    """Ringpop's: the member strings, sorted, each followed by ``;``, hashed when asked for."""

    def __init__(self, dialect: Dialect) -> None:
        self._hash_bytes = dialect.hash_bytes
        self._texts: SortedDict = SortedDict()
        self._value: int | None = None
        self._text_by_name: dict[str, str] = {}

    def replace(self, name: str, member: Member | None) -> None:
        """See `Checksum.replace`."""
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

    @property
    def value(self) -> int:
        """See `Checksum.value`."""
        if self._value is None:
            self._value = self._hash_bytes("".join(f"{text};" for text in self._texts).encode())
        return self._value
