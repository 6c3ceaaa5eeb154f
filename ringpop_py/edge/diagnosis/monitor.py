"""``ringpopctl monitor``: the log of a node, line by line, until Ctrl-C."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ringpop_py.base.texts import printable
from ringpop_py.edge.cli.commands import complain, connect, time_of
from ringpop_py.edge.diagnosis.roundtrips import addresses_of

if TYPE_CHECKING:
    import argparse

    from ringpop_py.client.sync.client import Client

ENDPOINT: Final = "/admin/log"
LEVELS: Final = ("debug", "info", "warning", "error")
POLL_S: Final = 0.5


def monitor(client: Client, options: argparse.Namespace) -> NoReturn:
    """``ringpopctl monitor [NAME]``. Raises ConfigError if no member has that name."""
    with ExitStack() as stack:
        node = client
        if options.name is not None:
            address = addresses_of(client, options.name)[options.name]
            node = stack.enter_context(connect(address))
        value = page(node, options.level)
        while True:
            for line in value["lines"]:
                as_json = options.format == "json"
                print(json.dumps(line) if as_json else text_of(line), flush=True)
            if not value["lines"]:
                time.sleep(POLL_S)
            value = next_page(node, options.level, value["last"])


def page(node: Client, level: str, after: int | None = None) -> dict[str, Any]:
    """Return the lines of the log of *node* after line *after*; without it the last ones."""
    body = {"level": level} | ({} if after is None else {"after": after})
    found: dict[str, Any] = node.admin(ENDPOINT, body)
    return found


def next_page(node: Client, level: str, after: int) -> dict[str, Any]:
    """As `page`, and say what was missed, or that the node was restarted and counts from 1."""
    value = page(node, level, after)
    if value["last"] < after:
        complain("ringpopctl: the node was restarted")
        return page(node, level, 0)
    if value["forgotten"]:
        complain(f"ringpopctl: {value['forgotten']} lines came too fast, and are lost")
    return value


def text_of(line: dict[str, Any]) -> str:
    """Return a *line* of the log for people, with its traceback if it has one."""
    texts = [line["text"], *line.get("traceback", "").splitlines()]
    head = f"{time_of(line['at'])} [{line['level']:<7}] "
    return head + "\n    ".join(map(printable, texts))
