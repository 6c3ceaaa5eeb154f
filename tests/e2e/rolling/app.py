"""The application of the daemons that are restarted: slow handlers, which note what they run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ringpop_py.state.actors.actors import Actor

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import AppCall

KEYSPACE = "rolling"
PARTITIONS = 16
HANDLER_S_VARIABLE = "ROLLING_HANDLER_S"
FOLDER_VARIABLE = "ROLLING_FOLDER"


class Adder(Actor[int, int]):
    """Adds what it is sent, as slowly as all handlers here."""

    state = 0

    async def receive(self, message: int) -> int:
        await trio.sleep(float(os.environ[HANDLER_S_VARIABLE]))
        self.state += message
        return int(self.state)


async def create(ringpop: Ringpop) -> None:
    ran = Path(os.environ[FOLDER_VARIABLE]) / f"{os.getpid()}.ran"

    @ringpop.handler("/slow")
    async def slow(call: AppCall) -> bytes:
        with ran.open("ab") as file:  # before it is done, as an effect elsewhere would be
            file.write(call.body + b"\n")
        await trio.sleep(float(os.environ[HANDLER_S_VARIABLE]))
        return call.body

    keyspace = await ringpop.open_keyspace(KEYSPACE, partitions=PARTITIONS)
    keyspace.actor(Adder)
