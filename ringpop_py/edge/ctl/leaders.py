"""The commands of ringpopctl about leaders: ``leaders`` and ``leader``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ringpop_py.base.errors import ConfigError
from ringpop_py.edge.cli.commands import Output, asking, confirm, table

if TYPE_CHECKING:
    import argparse

    from ringpop_py.client.sync.client import Client

HEADS = ("NAME", "HOLDER", "TERM", "SINCE (UTC)", "BEAT")


def leaders_text(value: dict[str, Any]) -> str:
    """Return the reply of ``/admin/leaders`` for people."""
    rows = [_row(row) for row in value["leaders"]]
    return table(HEADS, rows) if rows else "no name of a leader was ever held"


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    if not row["holder"]:
        return row["name"], "-", row["term"], "-", "released"
    since = f"{datetime.fromtimestamp(row['since'], UTC):%F %T}"
    mark = " (gone)" if row["is_gone"] else ""
    return row["name"], row["holder"] + mark, row["term"], since, f"{row['beat_age_s']:.1f} s ago"


list_all = asking("leaders", leaders_text)


def show(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl leader NAME [--resign]``."""
    if not options.resign:
        rows = [r for r in client.admin("/admin/leaders")["leaders"] if r["name"] == options.name]
        if not rows:
            raise ConfigError(f"no leader {options.name!r}; `ringpopctl leaders` lists all")
        return Output(rows[0], table(HEADS, [_row(row) for row in rows]))
    if not options.yes:
        confirm("Take the name away of leader", options.name, "its holder stops what it does")
    value = client.admin("/admin/leaders/resign", {"name": options.name})
    text = (
        f"{value['holder']} no longer holds {value['name']}, which it had in term {value['term']}"
    )
    return Output(value, text)
