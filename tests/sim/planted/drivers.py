"""Bugs to plant in what carries out decisions: tasks, wake-ups, deadlines, calls and threads.

The decisions themselves are right, so a simulator with drivers of its own would find none of these.
Those that need a rare course of events are looked for by tests of that course (``unit:``).
"""

from __future__ import annotations

from typing import Final

from tests.sim.planted.bugs import bug

TASKS: Final = "state/tasks.py"
WRITER: Final = "state/durable/writer.py"
PARTITION: Final = "state/durable/partition.py"
DURABLE: Final = "state/durable/driver.py"
CHECKPOINTER: Final = "state/durable/checkpointer.py"
SHARE: Final = "state/shares/driver.py"
DISPATCHER: Final = "state/shares/dispatcher.py"
JOURNALS: Final = "state/catalog/journalstore.py"
MACHINE: Final = "state/partition/machine.py"
PARTS: Final = "state/partition/parts.py"
ARRIVALS: Final = "state/partition/arrivals.py"
RELEASES: Final = "state/partition/releases.py"
LINK: Final = "net/transport/link.py"
WHEEL: Final = "net/transport/deadlines.py"
NODE: Final = "node/driver.py"
MAILBOXES: Final = "state/actors/mailboxes.py"


DRIVER_BUGS: Final = (
    # Wake-ups.
    bug(
        "a job queued while the writer's task ends is never done",
        WRITER,
        "                self.working, self._idle = False, trio",
        "                await trio.lowlevel.checkpoint()\n"
        "                self.working, self._idle = False, trio",
        "W3",
        "partitions:4:4",
    ),
    bug(
        "of several store calls that ended together only one wakes its task",
        TASKS,
        "        while self._done:\n",
        "        if self._done:\n",
        "K4",
        "partitions-sealed:0:1",
    ),
    bug(
        "a sooner deadline does not wake the loop of the steward",
        SHARE,
        "        if self._next_deadline() < self._sleeps_until:\n            self._wake.set()",
        "        if self._next_deadline() < self._sleeps_until:\n            pass",
        "unit",
        "unit:tests/state/durable/test_rebalance.py",
    ),
    bug(
        "what follows from an answer beside the steps waits for the next event",
        WRITER,
        "        self.carry_out(self.machine.answered(asked, reply, now_us(), store.trouble))",
        "        left = self.machine.answered(asked, reply, now_us(), store.trouble)\n"
        "        self.machine.tasks += left",
        "K10 K13",
        "partitions-split:0:3",
    ),
    bug(
        "a release that is queued at rest is not begun",
        DURABLE,
        "        if not machine.desk.empty:\n",
        "        if False:\n",
        "K4",
        "partitions-sealed:0:1",
    ),
    bug(
        "a sooner deadline does not wake the wheel",
        WHEEL,
        "                self._sleep.deadline = index * TICK_S\n",
        "                pass\n",
        "W2",
        "partitions-split:0:3",
    ),
    bug(
        "of the deadlines of one tick only one expires",
        WHEEL,
        "            while bucket:  # one that expires",
        "            if bucket:  # one that expires",
        "W2",
        "partitions-sealed:0:1",
    ),
    bug(
        "an action that is submitted does not wake the owner of the node",
        NODE,
        "            self._sleep.cancel()\n",
        "            pass\n",
        "E",
        "partitions-sealed:0:1",
    ),
    # Tasks that are woken twice, or left behind.
    bug(
        "a job whose deadline has passed wakes its task again",
        WRITER,
        "        self._give_up()\n        trio.lowlevel.reschedule(self._task)",
        "        trio.lowlevel.reschedule(self._task)",
        "unit",
        "unit:tests/state/durable/test_writer.py",
    ),
    bug(
        "a job whose task was cancelled wakes that task",
        WRITER,
        "        self._give_up()\n        return trio.lowlevel.Abort.SUCCEEDED",
        "        return trio.lowlevel.Abort.SUCCEEDED",
        "E X",
        "partitions-sealed:0:1",
    ),
    bug(
        "a store call whose task was cancelled wakes that task",
        TASKS,
        "        self._task = None\n        return trio.lowlevel.Abort.SUCCEEDED",
        "        return trio.lowlevel.Abort.SUCCEEDED",
        "unit",
        "unit:tests/state/test_tasks.py",
    ),
    # Deadlines that are ignored, and waits that are cut short.
    bug(
        "a request that waits at its own node has no deadline",
        DISPATCHER,
        "            with trio.move_on_at(deadline):\n",
        "            with trio.CancelScope():\n",
        "W2",
        "partitions-sealed:0:5",
    ),
    bug(
        "a call that waits for a connection has no deadline",
        LINK,
        "            self._waiting[pending] = None\n"
        "            if pending.deadline < self._deadlines.next_at:\n",
        "            self._waiting[pending] = None\n            if False:\n",
        "W2",
        "partitions-sealed:0:1",
    ),
    bug(
        "a release answers at the first change of anything",
        DURABLE,
        "        while not said and not self.failure:\n",
        "        if not said and not self.failure:\n",
        "K13",
        "store-failing:0:3",
    ),
    bug(
        "an earlier timer cuts a patient wait short",
        ARRIVALS,
        " is Presence.PENDING and _coming(part).try_at <= now:\n",
        " is Presence.PENDING:\n",
        "unit",
        "unit:tests/state/partition/test_moves.py",
    ),
    # Errors that are swallowed, or taken for others.
    bug(
        "a put whose outcome is open counts as refused",
        JOURNALS,
        "            return fx.StoreAnswer.FAILED if error.passes else fx.StoreAnswer.NO_ROOM\n",
        "            return fx.StoreAnswer.NO_ROOM\n",
        "K1",
        "store-failing:0:1",
    ),
    bug(
        "a write whose deadline passes at its own node counts as not begun",
        DISPATCHER,
        "            late = OutcomeUnknown(",
        "            late = PartitionUnavailable(",
        "K1",
        "partitions-paused:0:3",
    ),
    bug(
        "a call that was sent counts as not sent when its connection breaks",
        LINK,
        "        return (end.sent if written else end.unsent)(reason)\n",
        "        return end.unsent(reason)\n",
        "K1",
        "partitions:4:5",
    ),
    bug(
        "a checkpoint that was not put counts as written",
        CHECKPOINTER,
        "        if not await writer.checkpoint(number, slot, file, builds_on):\n",
        "        if await writer.checkpoint(number, slot, file, builds_on) is None:\n",
        "X",
        "store-failing:0:1",
    ),
    bug(
        "a partition that was lost while its checkpoint was encoded gets that checkpoint",
        CHECKPOINTER,
        "        if partition.epoch != slot.epoch:  # it was lost while the file was made\n"
        "            return None\n",
        "",
        "unit",
        "unit:tests/state/durable/test_checkpointer.py",
    ),
    bug(
        "an owner that does not answer counts as one that denies",
        DURABLE,
        "            return ReleaseSaid.of(error)\n",
        "            return ReleaseSaid.NOT_MINE\n",
        "K13",
        "partitions-sealed:0:1",
    ),
    bug(
        "an open claim of a partition that waits for its next try is denied",
        PARTS,
        "            and not part.recovery.pursues\n",
        "",
        "unit",
        "unit:tests/state/partition/test_machine.py",
    ),
    # What was true before counts.
    bug(
        "a read looks at a state that was given up after its job ended",
        PARTITION,
        "        if self.presence in GIVEN_UP:  # since the job finished; the state is gone\n"
        '            raise PartitionUnavailable(f"partition {self.number} is {self.presence.value}'
        ' here")\n'
        "        return look(self.state)\n\n    # The same",
        "        return look(self.state)\n\n    # The same",
        "unit",
        "unit:tests/state/durable/test_partition.py",
    ),
    bug(
        "a quick read answers without a look at the journal",
        PARTITION,
        " and not writer.readers_count and writer.is_whole():\n",
        " and not writer.readers_count:\n",
        "K1",
        "partitions-split:0:2",
    ),
    bug(
        "an absence that another recovery has found counts",
        JOURNALS,
        "        return self._keep(key, read()) if record is None else record\n",
        "        return record\n",
        "unit",
        "unit:tests/state/catalog/test_known_records.py",
    ),
    bug(
        "a store that was full once is full for ever",
        MACHINE,
        "        if isinstance(fact, fx.Committed):\n            self.refusal = self.full = None\n",
        "        if isinstance(fact, fx.Committed):\n            self.refusal = None\n",
        "unit",
        "unit:tests/state/partition/test_machine.py",
    ),
    bug(
        "a partition whose release was refused is never released once it is unwanted",
        RELEASES,
        "        part.release = None\n        self.count -=",
        "        self.count -=",
        "unit",
        "unit:tests/state/partition/test_machine.py",
    ),
    # Actors.
    bug(
        "an actor that fails answers with what has gone on elsewhere",
        MAILBOXES,
        "                return Read(message, result)  # the error, too, may follow from what is"
        " outdated\n",
        "                return AnswerMail([message], result)\n",
        "K1",
        "actors-split:12:4",
    ),
    bug(
        "what an actor has changed before it fails stays in its memory",
        MAILBOXES,
        "                seat.actor = None  # it is made again, as saved\n                return",
        "                return",
        "K1",
        "actors-split:0:3",
    ),
    bug(
        "an actor at work begins its next message",
        MAILBOXES,
        "        if seat.duty is not None:\n            return None\n",
        "",
        "W6 X",
        "actors-split:0:3",
    ),
)
