"""A node's side of Arrow Flight: starts the process that accepts elements over it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.logs import log
from ringpop_py.base.supervision import end_process, first_line

if TYPE_CHECKING:
    from ringpop_py.base.address import Address

READY_S: Final = 30.0
"""A process that does not listen after this long is started again."""


async def run_flight(node: Address) -> None:
    """Run the process once, to its end.

    Args:
        node: the address of this node, to which the process brings elements.

    Raises:
        RuntimeError: the process has ended.
    """
    command = [sys.executable, "-P", "-m", "ringpop_py.flow.dataflow.relay", str(node)]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        where = await first_line(process, READY_S)
        if where:
            log.info("flight-served", where=where)
            await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            await end_process(process)
    raise RuntimeError(f"the process for Arrow Flight has ended with {process.returncode}")
