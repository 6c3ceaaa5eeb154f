"""One schedule: all that may go wrong with journals, with all chance from one seed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.recovery import Stage
from ringpop_sim.state.journal.sweep import Checker, ScheduleOutcome
from ringpop_sim.state.journal.truth import INVARIANTS
from ringpop_sim.state.journal.world import JournalWorld

if TYPE_CHECKING:
    from ringpop_py.state.journal.records import Claim
    from ringpop_sim.state.journal.owners import Checkpoint
    from ringpop_sim.state.journal.process import JournalProcess, Line, Part
    from ringpop_sim.state.journal.world import Node

FAULTY_UNTIL: Final = 1000
"""From this instant on nothing fails, except what is already on its way."""
CLIENTS: Final = 6
NODES: Final = (2, 3, 4)
PARTITIONS: Final = (2, 3, 4)
SILENT: Final = 0.7
"""The probability with which a node that stalls is taken for dead."""
RESTORED_SHARE: Final = 0.2
"""The share of partitions that begin with a checkpoint from elsewhere."""
HARM_SHARE: Final = 0.3
"""The share of schedules in which something in the store is damaged."""


class Schedule(JournalWorld):
    """The world of one schedule."""

    def __init__(self, seed: int, nodes: int | None = None, *, traced: bool = False) -> None:
        count = nodes or NODES[seed % len(NODES)]
        partitions = PARTITIONS[seed // len(NODES) % len(PARTITIONS)]
        super().__init__(seed, count, partitions, CLIENTS, traced=traced)
        for number in range(partitions):
            if self.rng.random() < RESTORED_SHARE:
                self.road.shelf.restore(number, (CLIENTS + 1, number))
        # Uniform over so long a time that it is early enough in `HARM_SHARE` of the schedules.
        self._harm_at = int(self.rng.random() * FAULTY_UNTIL / HARM_SHARE)

    def play(self) -> None:
        for node in self.nodes:
            self.start(node)
        for client in self.clients:
            self.after(5 + int(self.rng.random() * 30), client.begin)
        if self._harm_at < FAULTY_UNTIL:
            self.after(self._harm_at, self._harm)
        while self.truth.broken is None and self.next_at < FAULTY_UNTIL:
            self.step()

    def _harm(self) -> None:
        """Damage or lose something in the store."""
        if not self.calm:
            shelf = self.road.shelf
            harms = [shelf.flip, shelf.lose, shelf.lose_checkpoint, shelf.spoil, self._lose_soon]
            self.rng.choice(harms)()

    def _lose_soon(self) -> None:
        """Crash the nodes, and lose a checkpoint, when slots are next deleted."""
        self.road.loses_next = True

    # Nodes.

    def live(self, node: Node, process: JournalProcess) -> None:
        rng, odds = self.rng, self.odds
        if self.calm:
            super().live(node, process)
        elif rng.random() < odds.crash:
            self.crash(node, process)
            return
        else:
            self._change_mind(node, process)
            self._slow_down(node, process)
            for part in process.parts:
                self.act(part)
        if self.calm and rng.random() < 0.8:  # noqa: PLR2004 - a share
            return  # things that nothing waits for take most of the time
        for part in process.parts:
            part.put_checkpoint()
            self._do_more(process, part)
        if rng.random() < odds.trim:
            process.trim()
        if process.journals and rng.random() < odds.sweep:
            process.sweep(rng.choice([*process.journals]))

    def _slow_down(self, node: Node, process: JournalProcess) -> None:
        """Let *process* be silent for a while; others may take it for dead."""
        rng, odds = self.rng, self.odds
        if rng.random() < odds.stall:
            self.note(process.label, "has a bad road from here on")
            process.stalled_until = self.now + 40 + int(rng.random() * 120)
        elif rng.random() < odds.lag:
            self.note(process.label, "learns nothing as an owner from here on")
            process.lags_until = self.now + 60 + int(rng.random() * 400)
        elif rng.random() < odds.freeze:
            self.note(process.label, "handles no event from here on")
            process.frozen_until = self.now + 20 + int(rng.random() * 150)
        else:
            return
        for number, place in enumerate(self.desired):
            if self.nodes[place] is node and rng.random() < SILENT:
                self.desired[number] = int(rng.random() * len(self.nodes))

    def _change_mind(self, node: Node, process: JournalProcess) -> None:
        """Change, at random, the views of which nodes should own the partitions."""
        rng = self.rng
        hears = 0.0 if process.silent_until > self.now else self.odds.hears
        for part in process.parts:
            number = part.number
            if rng.random() < 0.015:  # noqa: PLR2004 - a share
                self.desired[number] = int(rng.random() * len(self.nodes))
            if rng.random() < 0.15:  # noqa: PLR2004 - a share
                node.contrary[number] = rng.random() < self.odds.whim
            if rng.random() < hears:
                node.desired[number] = self.desired[number]
            part.wants = (node is self.nodes[node.desired[number]]) is not node.contrary[number]

    def act(self, part: Part) -> None:
        """See `JournalWorld`. Before the calm, a node takes its time to release a partition."""
        if self.calm or part.wants or not part.online or self.rng.random() < self.odds.leaves:
            super().act(part)

    def _do_more(self, process: JournalProcess, part: Part) -> None:
        """Do things that are useful, or may happen, but that nothing waits for."""
        rng, odds = self.rng, self.odds
        if part.online:
            if rng.random() < odds.checkpoint:
                part.checkpoint(whole=rng.random() < odds.whole, lag=rng.random() < 0.4)  # noqa: PLR2004
            elif not self.calm and rng.random() < odds.drop:
                self.note(process.label, f"leaves {part.number}")
                part.leave()
        elif part.stage is Stage.IDLE:
            if not part.reclaiming and rng.random() < odds.follow:
                part.follow()
        else:
            # A reader that is to own, or a recovery whose seal may still take effect.
            stops = (part.wants and part.follows) or part.stage is Stage.SEALING
            if rng.random() < (0.2 if stops else odds.drop):
                part.drop()

    def may_take(self, claim: Claim) -> bool:
        """See `JournalWorld`. Before the calm, it is a node's view."""
        # A wrong view may cost progress, but must never cost data.
        takes = self.odds.takes
        if self._is_silent(claim.journal):
            takes = max(takes, SILENT)
        if not self.calm and self.rng.random() < takes:
            return True
        return super().may_take(claim)

    def _is_silent(self, journal: str) -> bool:
        """Return whether the node of *journal* is up, but appears not to be."""
        owners = [node.process for node in self.nodes if node.process is not None]
        return any(
            owner.journal.name == journal and owner.silent_until > self.now for owner in owners
        )

    def ask(self, line: Line, request: fx.Request, body: Checkpoint | None) -> None:
        """See `JournalWorld`. A driver may answer with what it found before."""
        known = line.process.known(request)
        if known is None or self.rng.random() >= self.odds.recall:
            super().ask(line, request, body)
            return
        self.note(line.label, "knows that")
        self.after(1, partial(self._recall, line, request, fx.Found(known)))

    def _recall(self, line: Line, request: fx.Request, reply: fx.Reply) -> None:
        if line.process.up:
            line.answered(request, reply)


def run_schedule(seed: int, nodes: int | None = None, *, traced: bool = False) -> ScheduleOutcome:
    """Run the schedule of *seed*; without *nodes*, the number of nodes follows from the seed."""
    return Schedule(seed, nodes, traced=traced).run()


JOURNAL: Final = Checker(run_schedule, INVARIANTS)
