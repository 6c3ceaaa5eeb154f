"""Bugs to plant in processes for shuffles, around what decides: in what carries it out."""

from __future__ import annotations

from typing import Final

from tests.sim.planted.bugs import Bug

SERVER: Final = "flow/shuffle/server"
KILLED: Final = "shuffles-killed:0:1"
TROUBLED: Final = "shuffles-troubled:0:1"
SLOW: Final = "shuffles-slow:0:7"
TROUBLE: Final = "unit:tests/flow/shuffle/server/test_trouble.py"
STORED: Final = "shuffles-stored:0:1"
WALK: Final = 'WALK = lambda folder: sum(each.stat().st_size for each in folder.rglob("*"))\n'
OLDEST: Final = "        message = message._replace(number=min(self._waiting, default=0))\n"


def _bug(name: str, module: str, found_by: str, hunt: str, *patches: tuple[str, str]) -> Bug:
    return Bug(name, f"{SERVER}/{module}.py", found_by, (hunt,), patches)


SHUFFLE_BUGS: Final = (
    _bug(
        "a frame that its replica has refused is acknowledged",
        "shuffle",
        "U1",
        "shuffles-slow:0:2",
        ("                if said != c.Said(Answer.OK.value):\n", "                if False:\n"),
    ),
    _bug(
        "a frame that came while its segment was closed counts",
        "shuffle",
        "U1",
        "shuffles-slow:0:5",
        (
            "        return counts and self.member.may_append(uid, number)\n",
            "        return counts\n",
        ),
    ),
    _bug(
        "a frame for which the disk has no room is acknowledged",
        "shuffle",
        "U1",
        TROUBLED,
        ("            raise _failure_of(error) from None\n", "            del error\n"),
    ),
    _bug(
        "who was too late takes its numbers of attempts all the same",
        "shuffle",
        "U2 U3",
        KILLED,
        (
            "changed is None or await self._process.register.set(self.name, stored, changed):",
            "changed is None or [await self._process.register.set(self.name, stored, changed)]:",
        ),
    ),
    _bug(
        "a record is set whatever stands",
        "register",
        "U2 U3",
        KILLED,
        ("if_tag=tag, if_absent=tag is None, ", ""),
    ),
    _bug(
        "a segment that was copied is not kept",
        "duties",
        "U1",
        KILLED,
        ("                here.folder.adopt(duty.number, fetched)\n", "                pass\n"),
    ),
    _bug(
        "a member whose files are gone stays one",
        "shuffle",
        "unit",
        TROUBLE,
        ("        if self.here.parts:\n", "        if False:\n"),
    ),
    _bug(
        "a member looks for its files after no failure of a duty",
        "duties",
        "unit",
        TROUBLE,
        ("            self._doubt(error, duties[0])\n", ""),
    ),
    _bug(
        "the first rows of an attempt are not pushed",
        "duties",
        "U3",
        KILLED,
        ("and sequence < winner.frames:\n", "and 0 < sequence < winner.frames:\n"),
    ),
    _bug(
        "a shuffle that is created again has its former uid",
        "host",
        "U3",
        KILLED,
        ("0 if former is None else former.uid + 1)", "0) if former is None else former.uid"),
    ),
    _bug(
        "a process that starts is taken for its former life",
        "process",
        "U1 U3",
        KILLED,
        ("incarnation = max(time", "incarnation = last or max(time"),
    ),
    _bug(
        "a process walks through folders that others change, and ends when that fails",
        "process",
        "X",
        SLOW,
        (
            '"disk_bytes": self._disk.used_bytes',
            '"disk_bytes": await trio.to_thread.run_sync(WALK, self._host._folder)',
        ),
        ("class _Report:\n", f"{WALK}class _Report:\n"),
        ("nursery.start_soon(keep_running, what, duty)", "nursery.start_soon(duty)"),
    ),
    _bug(
        "a call that was answered keeps its place",
        "server",
        "U4",
        KILLED,
        ("            calls.release()\n", ""),
    ),
    _bug(
        "answers are taken for those to the oldest calls",
        "wire",
        "U1 U3 U4",
        KILLED,
        ("reply = c.reply_in(message.head)\n", f"reply = c.reply_in(message.head)\n{OLDEST}"),
    ),
    _bug(
        "a process that starts deletes the frames of shuffles that are put",
        "framestore",
        "U1 U3",
        STORED,
        ("(State.PUT, State.ENDING, State.DAMAGED)", "(State.ENDING, State.DAMAGED)"),
    ),
    _bug(
        "a copy from the store lacks its last frame",
        "framestore",
        "U1 U2 U3",
        STORED,
        ("store.list(self._of_segment(place))", "store.list(self._of_segment(place))[:-1]"),
    ),
    _bug(
        "a frame that the store did not take is acknowledged",
        "shuffle",
        "U1",
        STORED,
        (
            "                failures.append(error)\n\n        async def here()",
            "                pass\n\n        async def here()",
        ),
    ),
)
