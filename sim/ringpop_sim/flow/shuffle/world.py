"""Processes, clients and the register of one record, on a heap of events; and how it has to end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_py.flow.shuffle.protocol import changes
from ringpop_py.flow.shuffle.protocol.home import View, Wish
from ringpop_py.flow.shuffle.protocol.messages import Answer
from ringpop_py.flow.shuffle.protocol.record import STORE, MemberId, State, Winner
from ringpop_sim.flow.shuffle.around import Around
from ringpop_sim.flow.shuffle.client import Client
from ringpop_sim.flow.shuffle.disk import Disk
from ringpop_sim.flow.shuffle.process import Process
from ringpop_sim.flow.shuffle.truth import LIVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.flow.shuffle.protocol.record import Record

INTERVALS: Final = 3
CALM: Final = 3000
"""Within this long after the faults, an ended shuffle can be read."""
FRAMES: Final = (
    ((1, 5), (5, 9), (2, 5)),
    ((5, 3), (8, 5), (7, 1)),
)
"""By task and frame, the keys of its rows: many are equal."""


class ShuffleWorld(Around[Process]):
    """The world of a schedule; a subclass says what happens in it.

    Attributes:
        suspected: members that others take for dead, though they live.
    """

    def __init__(
        self,
        seed: int,
        nodes: int,
        lease: int,
        *,
        spare: bool = True,
        is_stored: bool = False,
        traced: bool = False,
    ) -> None:
        hosts = "abcdefghijklmnopqrstuvwxyz"[:nodes]
        members = [MemberId(host, 1) for host in hosts]
        record = changes.created(None, 1, b"", INTERVALS, members, is_stored=is_stored)
        self.suspected: set[MemberId] = set()
        super().__init__(seed, lease, record, traced=traced)
        for host in hosts:
            self.processes[host] = Process(self, host, 1)
        self.attempts = 0
        self.clients: list[Client] = []
        self.driver: dict[int, Client] = {}
        """By task, the client whose attempt is to count."""
        self.ends = True
        self._spare = spare
        self.add_clients()

    def add_clients(self) -> None:
        """Let clients put; two attempts of a task may be at work at the same time."""
        uid = self.register.record.uid
        for task, frames in enumerate(FRAMES):
            for _ in range(1 + self._spare):
                self.attempts += 1
                self.clients.append(
                    Client(self, uid, task, self.attempts, frames, str(len(self.clients)))
                )
        self.register.compare_and_set(
            self.register.record.version, changes.with_attempts(self.register.record, 8)
        )
        self.driver.clear()

    def view_of(self, process: Process) -> View:
        """Return what *process* believes of the others."""
        present = {each.member.me for each in self.processes.values() if each.up}
        missing = (
            member
            for member in self.register.record.members
            if member not in present or (member in self.suspected and member != process.member.me)
        )
        # One process may learn late what others learn soon.
        gone = frozenset(each for each in missing if self.calm or self.rng.random() < 0.5)  # noqa: PLR2004
        return View(gone, process.joining)

    # What happens to processes.

    def kill(self, host: str, *, silenced: bool = False) -> None:
        """End the process at *host*, and all it had; with *silenced*, what it has sent as well."""
        process = self.processes[host]
        self.note(str(process), "is killed")
        process.up, process.silenced = False, silenced
        self.changed = True
        self.truth.tally["kills"] += 1

    def start(self, host: str) -> None:
        """Start a process at *host*, after another one or as the first."""
        process = Process(self, host, self.incarnation())
        self.note(str(process), "starts")
        self.processes[host] = process
        self.tick(process)
        process.read()

    def suspect(self, host: str) -> None:
        """Let others take the process at *host* for dead."""
        process = self.processes[host]
        self.note(str(process), "is taken for dead")
        self.suspected.add(process.member.me)
        self.truth.tally["suspected"] += 1

    # In the background.

    def tick(self, process: Process) -> None:
        """Have *process* do what it does from time to time."""
        rng = self.rng
        draw = rng.random()
        if draw < 0.25:  # noqa: PLR2004 - shares
            process.read()
        elif draw < 0.5:  # noqa: PLR2004
            process.look()
        elif draw < 0.8:  # noqa: PLR2004
            if process.decide(self.view_of(process)):
                self.driver.clear()  # and what it lacks is put again
        elif draw < 0.9:  # noqa: PLR2004
            self.probe(process)
        process.work()
        process.later(2 + rng.randrange(12), partial(self.tick, process))

    def probe(self, process: Process) -> None:
        """Read an interval at *process*, by a record that is its own, the newest, or an old one."""
        record = self.rng.choice((self.register.record, process.member.record))
        if record is not None:
            version = record.version - self.rng.randrange(2)
            process.get(record.uid, self.rng.randrange(INTERVALS), version, lambda _: None)

    @property
    def size(self) -> int:
        return len(self.processes)

    def begin(self) -> None:
        for process in self.processes.values():
            process.read()
            process.later(self.rng.randrange(8), partial(self.tick, process))
        for client in self.clients:
            self.after(self.rng.randrange(20), client.step)
        self.after(30, self.drive)

    def drive(self) -> None:
        """Do what a driver does: end the shuffle with one finished attempt of each task."""
        record = self.register.record
        if self.ends and record.state is State.PUT:
            winners = self.winners(record)
            hosts = [host for host, process in self.processes.items() if process.up]
            if winners and hosts:
                self.processes[self.rng.choice(hosts)].end(record.uid, winners)
        self.after(10 + self.rng.randrange(20), self.drive)

    def winners(self, record: Record) -> dict[int, Winner]:
        """Return the receipts of the attempts that are to count; none if some are missing."""
        for client in self.clients:
            if client.uid == record.uid and client.is_done:
                self.driver.setdefault(client.task, client)
        if len(self.driver) < len(FRAMES):
            return {}
        return {client.attempt: client.receipt for client in self.driver.values()}

    def delete(self) -> None:
        """Ask for the deletion."""
        for process in self.processes.values():
            if process.up:
                uid = self.register.record.uid
                self.truth.to_delete.add(uid)
                process.home.ask_for(Wish(uid, delete=True))

    def recreate(self) -> None:
        """Create a shuffle of the same name again, while frames of the former one still arrive."""
        former = self.register.record
        members = [process.member.first for process in self.processes.values() if process.up]
        if len(members) < 2:  # noqa: PLR2004 - alone, nobody takes frames
            return
        following = changes.created(
            former, former.uid + 1, b"", INTERVALS, members, is_stored=former.is_stored
        )
        self.register.compare_and_set(former.version, following)
        self.store, self.receipts = Disk(), {}
        for client in self.clients:
            client.again()
        self.attempts = 0
        self.add_clients()
        for client in self.clients:
            self.after(self.rng.randrange(20), client.step)

    def record_changed(self, record: Record) -> None:
        super().record_changed(record)
        self.suspected = {each for each in self.suspected if each in record.members}

    # To the end.

    def go_on(self, until: int, over: Callable[[], bool] = lambda: False) -> None:
        """Let everything go on until *until*, or until it is *over*."""
        while self.truth.broken is None and self.next_at < until and not over():
            self.step()
            if self.changed:
                self.changed = False
                self.truth.check(self.live())

    def live(self) -> dict[MemberId, Disk]:
        """Return what live processes have, and the store, by their ids in the record."""
        there = {each.member.me: each.disk for each in self.processes.values() if each.up}
        return {**there, STORE: self.store} if self.register.record.is_stored else there

    def end(self) -> None:
        self.note("world", "nothing fails from here on")
        self.calm, self.lossy = True, False
        for process in self.processes.values():
            process.cut_off = False
        self.suspected.clear()
        self.go_on(self.now + CALM, self.is_settled)
        if self.truth.broken is None and not self.is_settled() and self.truth.is_single:
            record = self.register.record
            self.truth.breaks(LIVE, f"{record.state} after {CALM}: {record}")
        if self.truth.broken is None:
            self._read_all()

    def is_settled(self) -> bool:
        """Return whether nothing is due any more: it can be read, is damaged, or deleted."""
        record = self.register.record
        if record.state is not State.GET:
            return record.state.is_over
        live = self.live()
        return (
            all(each in live for each in record.members)
            and set(live) - {STORE} == set(record.members)
            and all(each.fetched_by is None for each in record.intervals)
        )

    def _read_all(self) -> None:
        """Read every interval at every process, when all go by the last record."""
        record = self.register.record
        if record.state is State.DELETED:
            self.go_on(self.now + self.lease + self.timeout)
        answers: list[Answer] = []
        for process in self.processes.values():
            for number in range(INTERVALS):
                if process.up:
                    process.get(record.uid, number, record.version, answers.append)
        self.go_on(self.now + self.timeout)
        if record.state is State.GET and self.truth.is_single and self.truth.broken is None:
            few = answers.count(Answer.OK) < INTERVALS
            if few:
                self.truth.breaks(LIVE, f"the answers are {answers}")
        if record.state is State.DELETED and any(each is not Answer.DELETED for each in answers):
            self.truth.breaks(LIVE, f"the answers after a deletion are {answers}")
