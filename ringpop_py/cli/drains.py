"""``ringpopctl drain`` and ``undrain``: a node out of the ring, or to its end, and back."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.cli.outputs import TIMED_OUT, Output
from ringpop_py.errors import CallError

if TYPE_CHECKING:
    import argparse

    from ringpop_py.client import Client

POLL_S: Final = 0.1


def drain(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl drain``: returns when the node has nothing left, or with ``--end`` is gone."""
    began = time.monotonic()
    value = client.admin("/admin/member/drain", {"end": options.end})
    while value is not None and (options.end or value["under_way"]):
        if time.monotonic() - began >= options.timeout:
            left = ", ".join(f"{name} {n}" for name, n in value["under_way"].items()) or "nothing"
            print(f"ringpopctl: still under way: {left}", file=sys.stderr)
            return Output({**value, "done": False}, f"{client.peer} still drains", TIMED_OUT)
        time.sleep(POLL_S)
        value = _status(client, may_be_gone=options.end)
    if value is None:
        return Output({"phase": "ended", "under_way": {}, "done": True}, f"{client.peer} has ended")
    text = (
        f"{client.peer} owns nothing any longer and has nothing under way; it goes on serving. "
        "`ringpopctl undrain` brings it back"
    )
    return Output({**value, "done": True}, text)


def _status(client: Client, *, may_be_gone: bool) -> dict[str, Any] | None:
    """How far the node is; None once it cannot be reached, if it *may_be_gone*."""
    try:
        value: dict[str, Any] = client.admin("/admin/member/drain/status")
    except CallError:
        if may_be_gone:
            return None
        raise
    return value


def undrain(client: Client, _options: argparse.Namespace) -> Output:
    """``ringpopctl undrain``."""
    value = client.admin("/admin/member/undrain")
    return Output(value, f"{client.peer} no longer drains: it is in the ring again")
