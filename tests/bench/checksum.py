"""What one changed row costs the membership checksum: ours, and Ringpop's way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import farmhash

from ringpop_py.base.address import Address
from ringpop_py.base.dialect import NATIVE, RINGPOP
from ringpop_py.member.swim.checksum import OrderedChecksum, SumChecksum
from ringpop_py.member.swim.member import Member, Status
from tests.bench.report import Row, seconds_each, smaller_is_better

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEMBERS_COUNTS: Final = (100, 1_000, 10_000)
UPDATES_COUNT: Final = 1_000
PEER_UPDATES_COUNT: Final = 5
TARGET: Final = 500.0
TARGET_MEMBERS_COUNT: Final = 1_000
FIRST_MS: Final = 1_700_000_000_000


def run() -> Iterator[Row]:
    """The rows of `checksum`."""
    for members_count in MEMBERS_COUNTS:
        members = [_member(number) for number in range(members_count)]
        yield _native(members)
        yield _ringpop(members)


def _native(members: list[Member]) -> Row:
    return _row("native", _updates(SumChecksum(NATIVE), members, UPDATES_COUNT), members, TARGET)


def _ringpop(members: list[Member]) -> Row:
    """Our own in their dialect: the text is theirs, but what is sorted stays sorted."""
    ours = _updates(OrderedChecksum(RINGPOP), members, PEER_UPDATES_COUNT)
    return _row("ringpop", ours, members, None, PEER_UPDATES_COUNT)


def _row(
    dialect: str,
    ours: Callable[[], object],
    members: list[Member],
    target: float | None,
    updates_count: int = UPDATES_COUNT,
) -> Row:
    name = f"checksum.{dialect}.{len(members)}"
    target = target if len(members) == TARGET_MEMBERS_COUNT else None
    ours_s, theirs_s = seconds_each(ours, _sort_join_hash(members), rounds_count=5)
    value, peer_value = ours_s / updates_count * 1e6, theirs_s / PEER_UPDATES_COUNT * 1e6
    return smaller_is_better(name, value, "us", "sort, join, Fingerprint32", peer_value, target)


def _updates(
    checksum: SumChecksum | OrderedChecksum, members: list[Member], count: int
) -> Callable[[], object]:
    for member in members:
        checksum.replace(member.name, member)
    changed = [_suspect(members, number) for number in range(count)]

    def run() -> None:
        for member in changed:
            checksum.replace(member.name, member)
            _ = checksum.value

    return run


def _sort_join_hash(members: list[Member]) -> Callable[[], object]:
    """As Ringpop does it: the text of each member, sorted and joined, hashed in C."""
    rows = {member.name: member for member in members}
    changed = [_suspect(members, number) for number in range(PEER_UPDATES_COUNT)]

    def run() -> None:
        for member in changed:
            rows[member.name] = member
            texts = sorted(f"{m.name}{m.status.label}{m.incarnation};" for m in rows.values())
            farmhash.fingerprint32("".join(texts).encode())

    return run


def _member(number: int) -> Member:
    address = Address(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 3000)
    return Member(str(address), *address, FIRST_MS)


def _suspect(members: list[Member], number: int) -> Member:
    member = members[number * 7919 % len(members)]
    return Member(member.name, *member.address, FIRST_MS + number, Status.SUSPECT)
