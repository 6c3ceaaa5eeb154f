"""What lines of the products' output say: taken from real ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from ringpop_py.base.address import Address
from ringpop_py.base.values.declared import replace
from ringpop_py.member.swim.effects import StatusChanged
from ringpop_py.member.swim.member import Member, Status
from ringpop_py.member.swim.records import record_of, record_of_burst
from tests.bench.clusters.kinship import Kinship
from tests.bench.clusters.network import seats_for
from tests.bench.clusters.product import Changed, Seen, Up
from tests.bench.clusters.ringpop import Ringpop
from tests.bench.clusters.serf import Serf

if TYPE_CHECKING:
    from pathlib import Path

MEMBER: Final = Member("node-01", *Address("127.9.1.2", 3000), 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("    2026/11/21 07:38:58 [INFO] agent: Serf agent starting", Up()),
        (
            "    2026/11/21 07:38:58 [INFO] serf: EventMemberJoin: node-01 127.9.1.2",
            Changed("node-01", Seen.ALIVE),
        ),
        (
            "    2026/11/21 07:39:08 [INFO] serf: EventMemberFailed: node-01 127.9.1.2",
            Changed("node-01", Seen.DEAD),
        ),
        (
            "    2026/11/21 07:39:10 [INFO] serf: EventMemberLeave: node-01 127.9.1.2",
            Changed("node-01", Seen.LEFT),
        ),
        ("    2026/11/21 07:39:09 [INFO] agent: Received event: member-failed", None),
        ("    2026/11/21 07:39:04 [INFO] memberlist: Suspect node-01 has failed", None),
    ],
)
def test_serf_tells_of_members_in_its_log(line: str, said: Up | Changed | None) -> None:
    assert Serf().read(line) == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"address": "127.9.1.1:3000", "event": "listening", "level": "info"}', Up()),
        ('{"hosts_joined": 0, "members": 1, "event": "ready", "level": "info"}', None),
        ("Traceback (most recent call last):", None),
    ],
)
def test_ringpopd_tells_in_its_log(line: str, said: Up | Changed | None) -> None:
    assert Ringpop().read(line) == said


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        (None, MEMBER, Seen.ALIVE),
        (MEMBER, replace(MEMBER, status=Status.SUSPECT), Seen.SUSPECT),
        (MEMBER, replace(MEMBER, status=Status.FAULTY), Seen.DEAD),
        (MEMBER, replace(MEMBER, status=Status.LEAVE), Seen.LEFT),
        (MEMBER, replace(MEMBER, damping=1), Seen.DAMPED),
        (replace(MEMBER, damping=1), replace(MEMBER, damping=2), Seen.ALIVE),
        (MEMBER, None, Seen.LEFT),
    ],
)
def test_ringpopd_logs_changes_of_members_as_records(
    before: Member | None, after: Member | None, seen: Seen
) -> None:
    record = record_of(StatusChanged(before, after, "timer", "node-02", "node-02"))

    assert Ringpop().read(json.dumps(record)) == Changed("node-01", seen)


def test_ringpopd_logs_many_changes_at_the_same_time_as_one_record() -> None:
    rows = [replace(MEMBER, name=f"node-{n:02}") for n in range(60)]
    changes = [StatusChanged(None, row, "join", "node-99", "node-99") for row in rows]
    changes[0] = replace(changes[0], after=None, before=rows[0])

    said = Ringpop().read(json.dumps(record_of_burst(changes)))

    assert said == tuple(Changed(f"node-{n:02}", Seen.ALIVE if n else Seen.LEFT) for n in range(60))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("Up", Up()),
        ("MemberRecovered", Changed("node-01", Seen.ALIVE)),
        ("MemberSuspect", Changed("node-01", Seen.SUSPECT)),
        ("MemberDead", Changed("node-01", Seen.DEAD)),
        ("MemberUpdated", None),
    ],
)
def test_kinship_tells_of_members_in_its_events(event: str, said: Up | Changed | None) -> None:
    line = json.dumps({"event": event, "member": "node-01"})

    assert Kinship().read(line) == said


def test_figures_of_kinship_that_lack_events_are_not_believed() -> None:
    with pytest.raises(AssertionError, match="dropped events"):
        Kinship().read('{"event": "EventsLost", "member": ""}')


def test_all_nodes_of_ringpop_are_in_its_hosts_file(tmp_path: Path) -> None:
    seats = seats_for(3)

    command = Ringpop().command(seats[2], seats, tmp_path)

    hosts = (tmp_path / "hosts.txt").read_text().splitlines()
    assert hosts == ["127.9.1.1:3000", "127.9.1.2:3000", "127.9.2.3:3000"]
    assert command[command.index("--listen") + 1] == hosts[2]


def test_all_nodes_of_serf_join_the_first_and_that_the_second(tmp_path: Path) -> None:
    seats = seats_for(3)

    seeds = [Serf().command(seat, seats, tmp_path)[-1] for seat in seats]

    first, second = "-retry-join=127.9.1.1:7946", "-retry-join=127.9.1.2:7946"
    assert seeds == [second, first, first]
