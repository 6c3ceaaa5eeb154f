"""``ringpopctl streams``: who reads which split, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringpop_py.cli.commands import ExitCode, Output, table
from ringpop_py.cli.look import members_of
from ringpop_py.errors import ApplicationError, BadRequest, BodyError, CallError

if TYPE_CHECKING:
    import argparse

    from ringpop_py.client.client import Client

HEADS = (
    *("STREAM", "KEYSPACE", "SPLIT", "READER", "READ", "COUNTED", "HELD", "RECORDS", "REFUSED"),
    "TROUBLE",
)


def show(client: Client, options: argparse.Namespace) -> Output:
    """Ask all members for the splits that they read; exit code 3 if one is in trouble."""
    from ringpop_py.admin.said import checked  # noqa: PLC0415 - help needs nothing

    rows: list[dict[str, Any]] = []
    silent: dict[str, str] = {}
    for member, peer, why in members_of(client):
        if peer is None:
            silent[member["name"]] = why
            continue
        try:
            said = checked("/admin/work", peer.admin("/admin/work"))
        except BadRequest:
            continue  # an older version, which has no streams
        except (CallError, ApplicationError, BodyError) as error:
            silent[member["name"]] = str(error)
            continue
        rows += ({**split, "reader": member["name"]} for split in said.get("streams", ()))
    if options.name is not None:
        rows = [row for row in rows if row["stream"] == options.name]
    rows.sort(key=lambda row: (row["stream"], row["split"], row["reader"]))
    text = table(HEADS, [[row[head.lower()] for head in HEADS] for row in rows])
    if not rows:
        text = "no member reads a stream" + (f" {options.name!r}" if options.name else "")
    lines = [text, *(f"{name} was not asked: {why}" for name, why in silent.items())]
    troubled = any(row["trouble"] for row in rows)
    code = ExitCode.DIVERGED if troubled else ExitCode.OK
    return Output({"splits": rows, "silent": silent}, "\n".join(lines), code)
