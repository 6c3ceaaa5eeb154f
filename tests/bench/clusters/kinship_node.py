"""One node of kinship: ``kinship_node.py NAME HOST:PORT [SEED…]``; its events as lines of JSON.

Runs in a Python that has kinship, which need not be that of this project.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress

import kinship

KEY = bytes(range(32))


async def main(name: str, bind: str, seeds: list[str]) -> None:
    """Tell of events until told to end; then leave in good order."""
    config = kinship.Config.lan(name=name, bind=bind, seeds=seeds, keys=[KEY])
    me = asyncio.current_task()
    assert me is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)
    cluster = kinship.Cluster(config)
    say("Up", name)  # it listens and joins in one step, which others do one after the other
    with suppress(asyncio.CancelledError):
        async with cluster:
            events = cluster.events()
            for member in cluster.members():  # who was met before anybody could listen to events
                if member.name != name:
                    say("MemberJoined", member.name)
            async for event in events:
                say(type(event).__name__, event.member.name if hasattr(event, "member") else "")


def say(event: str, member: str) -> None:
    """One line, at once."""
    print(json.dumps({"event": event, "member": member}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
