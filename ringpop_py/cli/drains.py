"""``ringpopctl drain`` and ``undrain``: take a node out of the ring, end it, or bring it back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.cli.outputs import TIMED_OUT, Output, complain
from ringpop_py.errors import BadRequest, CallError, ConnectRefused

if TYPE_CHECKING:
    import argparse

    from ringpop_py.client.client import Client

POLL_S: Final = 0.1


def drain(client: Client, options: argparse.Namespace) -> Output:
    """Drain the node; return when nothing is under way, with ``--end`` when it has gone."""
    began = time.monotonic()
    value = client.admin("/admin/member/drain", {"end": options.end})
    while value is not None and (options.end or value["under_way"]):
        if time.monotonic() - began >= options.timeout:
            left = ", ".join(f"{name} {n}" for name, n in value["under_way"].items()) or "nothing"
            complain(f"ringpopctl: still under way: {left}")
            return Output({**value, "done": False}, f"{client.peer} still drains", TIMED_OUT)
        time.sleep(POLL_S)
        value = status_after(value, client) if options.end else _status(client)
    if value is None:
        return Output({"phase": "ended", "under_way": {}, "done": True}, f"{client.peer} has ended")
    text = (
        f"{client.peer} owns nothing any longer and has nothing under way; it goes on serving. "
        "`ringpopctl undrain` brings it back"
    )
    return Output({**value, "done": True}, text)


def _status(client: Client) -> dict[str, Any]:
    value: dict[str, Any] = client.admin("/admin/member/drain/status")
    return value


def status_after(value: dict[str, Any], client: Client) -> dict[str, Any] | None:
    """How far the node is; None once nobody listens at its address.

    It is *value*, as before, if the node says nothing now: it may be busy, or stand still.
    """
    try:
        return _status(client)
    except ConnectRefused:
        return None
    except BadRequest:
        raise
    except CallError:
        return value


def undrain(client: Client, _options: argparse.Namespace) -> Output:
    """``ringpopctl undrain``."""
    value = client.admin("/admin/member/undrain")
    return Output(value, f"{client.peer} no longer drains: it is in the ring again")
