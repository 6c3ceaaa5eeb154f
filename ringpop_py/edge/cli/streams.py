"""``ringpopctl streams`` and ``dataflows``: who reads and processes what, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringpop_py.edge.cli.commands import ExitCode, Output, members_said, table

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
    work, silent = _work_of_all(client)
    rows = [
        {**split, "reader": name}
        for name, said in work.items()
        for split in said.get("streams", ())
    ]
    if options.name is not None:
        rows = [row for row in rows if row["stream"] == options.name]
    rows.sort(key=lambda row: (row["stream"], row["split"], row["reader"]))
    text = table(HEADS, [[row[head.lower()] for head in HEADS] for row in rows])
    if not rows:
        text = "no member reads a stream" + (f" {options.name!r}" if options.name else "")
    return _output("splits", rows, silent, text)


def show_dataflows(client: Client, options: argparse.Namespace) -> Output:
    """Ask all members for their parts in dataflows; exit code 3 if one is in trouble."""
    work, silent = _work_of_all(client)
    rows = [
        {**flow, "worker": name}
        for name, said in work.items()
        for flow in said.get("dataflows", ())
    ]
    if options.name is not None:
        rows = [row for row in rows if row["dataflow"] == options.name]
    rows.sort(key=lambda row: (row["dataflow"], row["key_groups"] or [1 << 20], row["worker"]))
    shown = [
        {
            **row,
            "groups": "[{},{})".format(*row["key_groups"]) if row["key_groups"] else "-",
            "splits": len(row["splits"]),
        }
        for row in rows
    ]
    text = table(FLOW_HEADS, [[_cell(row[head.lower()]) for head in FLOW_HEADS] for row in shown])
    if not rows:
        text = "no member has a dataflow" + (f" {options.name!r}" if options.name else "")
    return _output("dataflows", rows, silent, text)


def _cell(value: object) -> object:
    return "-" if value is None else value


def _output(what: str, rows: list[dict[str, Any]], silent: dict[str, str], text: str) -> Output:
    lines = [text, *(f"{name} was not asked: {why}" for name, why in silent.items())]
    troubled = any(row["trouble"] for row in rows)
    code = ExitCode.DIVERGED if troubled else ExitCode.OK
    return Output({what: rows, "silent": silent}, "\n".join(lines), code)


def _work_of_all(client: Client) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return each member's work, by name, and why other members did not report theirs."""
    value = members_said(client, "work")
    said, why = value["said"], value["silent"]
    silent = {
        row["name"]: why.get(row["name"], row["status"])
        for row in value["members"]
        if row["name"] not in said
    }
    return {name: each["work"] for name, each in said.items() if "work" in each}, silent
