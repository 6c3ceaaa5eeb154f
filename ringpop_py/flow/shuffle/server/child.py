"""A node's side: starts the process for shuffles, watches it, and tells others where it listens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.base.config.places import KEY_VARIABLE
from ringpop_py.base.errors import BodyError, ConfigError, ShuffleUnavailable
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import LINE_BYTES_MAX, end_process, first_line
from ringpop_py.base.values.declared import convert
from ringpop_py.base.values.packed import decode_value
from ringpop_py.flow.shuffle.client.members import LABEL
from ringpop_py.flow.shuffle.server.register import KEYSPACE
from ringpop_py.flow.shuffle.sorting.disk import locked
from ringpop_py.net.security.identity import Role
from ringpop_py.node.sidecars import ShuffleLoad, ShufflesBeside
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.stores.urls import MEMORY

if TYPE_CHECKING:
    from ringpop_py.base.config.settings import Config
    from ringpop_py.net.security.certificates import IssuedFile
    from ringpop_py.node.ringpop import Ringpop

READY_S: Final = 30.0
"""A process that does not listen after this long is started again."""
HANGS_S: Final = 20.0
"""A process that has not reported for so many seconds is killed, and started again."""
LARGE_SHARE: Final = 128
"""Blocks above this share of the memory are given back as soon as they are no longer used."""
LARGE_BYTES_MIN: Final = 1 << 20
LARGE_BYTES_MAX: Final = 32 << 20  # glibc takes no more
KEPT: Final = 4
"""The free memory kept at the end of the heap, as a multiple of the size of large blocks."""
PARTITIONS: Final = 16
CERTIFICATE: Final = "certificate.pem"
"""The file for the certificate of the process, in its folder."""


def check_folder(folder: str, *, has_store: bool) -> None:
    """Raise ConfigError unless shuffles can be kept in *folder*."""
    if not has_store:
        raise ConfigError(
            "--shuffle-folder needs --store: the records of shuffles lie in a keyspace there"
        )
    try:
        os.close(locked(Path(folder)))  # the process itself will hold it
    except BlockingIOError as error:
        raise ConfigError(f"--shuffle-folder {error}") from None
    except OSError as error:
        raise ConfigError(
            f"--shuffle-folder {folder} cannot be written: {error.strerror or error}"
        ) from None


async def run_child(ringpop: Ringpop) -> None:
    """Run the process once, to its end.

    Raises:
        ShuffleUnavailable: it has ended, though the node goes on.
        StoreUnavailable, KeyspaceConflict: the keyspace of the records cannot be made.
        ConfigError: the certificate of the process cannot be written.
    """
    beside = ringpop.shuffles = ringpop.shuffles or ShufflesBeside(
        ringpop.proxying.operations.shuffle
    )
    await ringpop.wait_ready()
    definition = Definition(name=KEYSPACE, mode="durable", partitions=PARTITIONS)
    await ringpop.keyspaces.open(definition, is_own=True)
    command = [sys.executable, "-P", "-m", "ringpop_py.edge.cli.shuffler"]
    command += ["--node", str(ringpop.address), "--name", ringpop.name]
    settings = ringpop.config.shuffle
    assert settings.folder is not None
    command += ["--listen", ringpop.address.host, "--folder", settings.folder]
    command += ["--memory", str(settings.memory_bytes), "--disk", str(settings.disk_bytes)]
    command += ["--cluster", ringpop.config.cluster]
    issued = _issued_to(ringpop)
    command += _key_flags(ringpop.config, issued)
    if ringpop.config.store is not None and ringpop.config.store != MEMORY:
        command += ["--store", ringpop.config.store]  # where others can open it as well
    environment = {**_heap(settings.memory_bytes), **os.environ}
    environment.pop(KEY_VARIABLE, None)
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    try:
        said = await first_line(process, READY_S)
        if not said:
            raise ShuffleUnavailable("the process for shuffles did not start")
        ringpop.labels.set_own(LABEL, said)
        beside.starts += 1
        beside.runs = True
        log.info("shuffles-served", where=said, folder=settings.folder)
        await _while_it_beats(process, beside, issued)
    finally:
        beside.runs = False
        ringpop.labels.set_own(LABEL, None)
        with trio.CancelScope(shield=True):
            await end_process(process)
    raise ShuffleUnavailable(f"the process for shuffles has ended with {process.returncode}")


def _issued_to(ringpop: Ringpop) -> IssuedFile | None:
    """Return the certificate of the process; None if the node has no key to issue one from."""
    credentials, folder = ringpop.credentials, ringpop.config.shuffle.folder
    if credentials is None or folder is None or not credentials.keys():
        return None
    from ringpop_py.net.security.certificates import IssuedFile  # noqa: PLC0415 - an extra

    return IssuedFile(Path(folder).absolute() / CERTIFICATE, credentials, Role.SHUFFLES)


def _key_flags(config: Config, issued: IssuedFile | None) -> list[str]:
    if config.cluster_key is None:
        return []
    own = Path(config.cluster_key).absolute()  # a certificate in place of a key
    flags = ["--certificate", str(own if issued is None else issued.path)]
    flags += ["--accept-plain"] if config.accept_plain else []
    return flags + (["--dial-plain"] if config.dial_plain else [])


def _heap(memory_bytes: int) -> dict[str, str]:
    """Return the environment of a process that gives back the memory that it no longer uses.

    Threads with heaps of their own would keep several times what is in use. So would one heap that
    also had the sorted rows, which leave gaps that are too small for the next ones.
    """
    large = min(max(memory_bytes // LARGE_SHARE, LARGE_BYTES_MIN), LARGE_BYTES_MAX)
    return {
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": str(large),
        "MALLOC_TRIM_THRESHOLD_": str(KEPT * large),
    }


async def _while_it_beats(
    process: trio.Process, beside: ShufflesBeside, issued: IssuedFile | None = None
) -> None:
    """Wait until *process* has ended, or has stopped writing; renew what was *issued* to it."""
    assert process.stdout is not None
    said = b""
    while True:
        beat = b""
        with trio.move_on_after(HANGS_S) as waiting:
            beat = bytes(await process.stdout.receive_some(LINE_BYTES_MAX))
        if waiting.cancelled_caught:
            process.kill()
            raise ShuffleUnavailable(f"the process for shuffles has hung for {HANGS_S:g} s")
        if not beat:
            await process.wait()
            return
        if issued is not None:
            issued.keep_fresh()
        *lines, said = (said + beat).split(b"\n")
        for line in lines[-1:]:  # what came before is old
            try:
                beside.hear(convert(ShuffleLoad, decode_value("json", line)))
            except BodyError as error:  # it beats: what it says of itself costs no rows
                log.warning("shuffle-trouble", text=f"the report of shuffles: {error}")
