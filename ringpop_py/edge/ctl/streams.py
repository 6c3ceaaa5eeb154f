"""``ringpopctl streams`` and ``dataflows``: who reads and processes what, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringpop_py.edge.cli.commands import ExitCode, Output, members_said, table_of

if TYPE_CHECKING:
    import argparse

    from ringpop_py.client.sync.client import Client

HEADS = (
    *("STREAM", "KEYSPACE", "SPLIT", "READER", "READ", "COUNTED", "HELD", "RECORDS", "REFUSED"),
    "TROUBLE",
)


FLOW_HEADS = (
    *("DATAFLOW", "WORKER", "LEADER", "EPOCH", "GROUPS", "SPLITS", "WATERMARK", "ROWS", "LATE"),
    *("REFUSED", "TROUBLE"),
)


def show(client: Client, options: argparse.Namespace) -> Output:
    """Ask all members for the splits that they read; exit code 3 if one is in trouble."""
    rows, silent = _rows_of_all(client, "stream", "reader", options.name)
    rows.sort(key=lambda row: (row["stream"], row["split"], row["reader"]))
    text = table_of(rows, *HEADS)
    if not rows:
        text = "no member reads a stream" + (f" {options.name!r}" if options.name else "")
    return _output("splits", rows, silent, text)


def show_dataflows(client: Client, options: argparse.Namespace) -> Output:
    """Ask all members for their parts in dataflows; exit code 3 if one is in trouble."""
    rows, silent = _rows_of_all(client, "dataflow", "worker", options.name)
    rows.sort(key=lambda row: (row["dataflow"], row["key_groups"] or [1 << 20], row["worker"]))
    shown = [
        {
            **row,
            "groups": "[{},{})".format(*row["key_groups"]) if row["key_groups"] else "-",
            "splits": len(row["splits"]),
        }
        for row in rows
    ]
    text = table_of(shown, *FLOW_HEADS)
    if not rows:
        text = "no member has a dataflow" + (f" {options.name!r}" if options.name else "")
    return _output("dataflows", rows, silent, text)


def _output(what: str, rows: list[dict[str, Any]], silent: dict[str, str], text: str) -> Output:
    lines = [text, *(f"{name} was not asked: {why}" for name, why in silent.items())]
    troubled = any(row["trouble"] for row in rows)
    code = ExitCode.DIVERGED if troubled else ExitCode.OK
    return Output({what: rows, "silent": silent}, "\n".join(lines), code)


def _rows_of_all(
    client: Client, what: str, who: str, only: str | None
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return all members' rows about a *what*, and why other members did not report theirs.

    Args:
        what: ``stream`` or ``dataflow``.
        who: the column with the member's name.
        only: the name of the one to show.
    """
    value = members_said(client, "work")
    said, why = value["said"], value["silent"]
    silent = {
        row["name"]: why.get(row["name"], row["status"])
        for row in value["members"]
        if row["name"] not in said
    }
    rows = [
        {**row, who: name}
        for name, each in said.items()
        for row in each.get("work", {}).get(f"{what}s", ())
        if only in (None, row[what])
    ]
    return rows, silent
