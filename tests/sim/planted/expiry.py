"""Bugs to plant in what has keys expire."""

from __future__ import annotations

from typing import Final

from tests.sim.planted.bugs import Bug, bug

CLOCKS: Final = "node/signals/clocks.py"
DUE: Final = "state/table/due.py"
KEYED: Final = "state/table/keyed.py"
DURABLE: Final = ("keys-expire:0:2",)
MEMORY: Final = ("copies-expire:0:2",)

EXPIRY_BUGS: Final = (
    bug(
        "instants are counted from the owner's clock alone",
        CLOCKS,
        "        return max(own_ms, said[len(said) // 2])",
        "        return own_ms",
        "K16",
        *DURABLE,
    ),
    bug(
        "keys are due by the owner's clock alone",
        CLOCKS,
        "        return min(own_ms, said[(len(said) - 1) // 2])",
        "        return own_ms",
        "K16",
        *MEMORY,
    ),
    bug(
        "a member learns no time from those that dial it",
        "net/transport/channel.py",
        "        if link.connection.initiates or link.address is not None:\n",
        "        if link.connection.initiates:\n",
        "K18",
        "expiring:5:1",
    ),
    bug(
        "what is due is judged before the writes of its group",
        KEYED,
        "            due = [key for key in due if key not in body.changed and",
        "            due = [key for key in due if",
        "K16 K17",
        *DURABLE,
    ),
    Bug(
        "what was due stays so after it was renewed",
        DUE,
        "K16 K17",
        DURABLE,
        (
            ("            self._ripe.pop(key, None)\n            heappush", "            heappush"),
            ("return [key for key in ripe if at[key] <= now_ms]", "return list(ripe)"),
        ),
    ),
    bug(
        "what a checkpoint has expires never",
        KEYED,
        "                if self.due.used or have_instants(values):\n"
        "                    self.due.note(changed, ())\n",
        "                self.due.used |= have_instants(values)\n",
        "K18",
        *DURABLE,
    ),
    bug(
        "readers look at their clock",
        KEYED,
        "            return [None if value is None else plain(value) for value in found]\n",
        "            clock = self.due.clock\n"
        "            now = b'' if clock is None else clock.set_ms().to_bytes(8, 'big')\n"
        "            gone = [v is None or (v[:1] == b'\\xc1' and v[1:9] <= now) for v in found]\n"
        "            return [None if no else plain(v or b'') for no, v in zip(gone, found)]\n",
        "K17",
        *DURABLE,
    ),
    bug(
        "an expiry is a delete of now",
        "state/memory/mergeable.py",
        "            self.versions.expire(key)\n",
        "            self.versions.delete(key, self.versions.now_ms)\n",
        "K19",
        *MEMORY,
    ),
)
