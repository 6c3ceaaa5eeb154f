"""``ringpopctl store verify``: whether what a store holds can be read."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import KeyspaceUnknown
from ringpop_py.base.logs import NAME
from ringpop_py.base.texts import printable
from ringpop_py.edge.cli.commands import ExitCode, Output, complain, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from ringpop_py.client.sync.client import Client
    from ringpop_py.state.backups.verify import Verified

DAMAGED: Final = 2
"""The exit code for a store that is damaged."""
PROGRESS_S: Final = 2.0
SHOWN_MAX: Final = 50
"""The most damages that are shown as text; JSON has all."""


def verify_store(_client: Client, options: argparse.Namespace) -> Output:
    """Read the store at a URL, and put nothing into it.

    Raises:
        ConfigError: there is no such store.
        KeyspaceUnknown: it has no such keyspace.
        StoreUnavailable: it fails.
    """
    from ringpop_py.state.backups.verify import verify  # noqa: PLC0415 - help needs nothing that is installed
    from ringpop_py.state.stores.urls import open_store  # noqa: PLC0415 - likewise

    store = open_store(options.url, create=False)
    logger, silent = logging.getLogger(NAME), logging.NullHandler()
    logger.addHandler(silent)  # damage is shown below
    try:
        found = verify(store, options.keyspace, _progress())
    finally:
        logger.removeHandler(silent)
        store.close()
    if options.keyspace is not None and not found:
        raise KeyspaceUnknown(f"the store has no keyspace {options.keyspace!r}")
    sound = not any(each.damaged or each.partitions_damaged for each in found)
    value = {"sound": sound, "found": [asdict(each) for each in found]}
    return Output(value, text_of(found), ExitCode.OK if sound else DAMAGED)


def _progress() -> Callable[[str], None]:
    told_at = time.monotonic()

    def tell(text: str) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= PROGRESS_S:
            told_at = time.monotonic()
            complain(f"ringpopctl: read {printable(text)}")

    return tell


def text_of(found: Sequence[Verified]) -> str:
    """Return a row for each generation of a keyspace, and a line for each damage."""
    heads = ("CLUSTER", "KEYSPACE", "GENERATION", "OBJECTS", "MB", "DAMAGED")
    rows = [
        (
            each.cluster,
            each.name or "(others)",
            each.generation or "-",
            each.objects,
            round(each.size_bytes / 1e6, 3),
            len(each.damaged),
            "-" if each.partitions is None else each.partitions,
            "-" if each.partitions is None else len(each.partitions_damaged),
        )
        for each in found
    ]
    lines = [text for each in found for text in each.damaged.values()]
    lines += [
        f"partition {number} of {each.name}, generation {each.generation}: {text}"
        for each in found
        for number, text in each.partitions_damaged.items()
    ]
    more = len(lines) - SHOWN_MAX
    lines = [printable(line) for line in lines[:SHOWN_MAX]]
    lines += [f"… and {more} more; --format json has all"] if more > 0 else []
    lines = lines or ["all of it can be read" if rows else "the store is empty"]
    return "\n".join([table((*heads, "PARTITIONS", "DAMAGED"), rows), *lines])
