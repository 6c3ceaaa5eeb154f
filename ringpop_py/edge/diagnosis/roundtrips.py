"""``ringpopctl rtt``: the round trips between members, as their own pings measure them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import ApplicationError, CallError, ConfigError, WireError
from ringpop_py.edge.cli.commands import ExitCode, Output, connect, did_you_mean, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from ringpop_py.client.sync.client import Client

ENDPOINT: Final = "/admin/reach"
_HEADS: Final = ("FROM", "TO", "ROUND TRIP", "ANSWERED", "FAILED", "LAST ANSWER", "LAST FAILURE")


def rtt(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl rtt A [B]``: both directions between A and B, or from A to all others.

    Raises:
        ConfigError: no member has such a name.
        CallError, ApplicationError, WireError: A does not say.
    """
    addresses = addresses_of(client, options.a, *filter(None, [options.b]))
    others = [options.b] if options.b else [name for name in addresses if name != options.a]
    said = _said_by(addresses[options.a])
    rows = [_row(options.a, name, said) for name in others]
    code = ExitCode.OK
    if options.b:
        try:
            rows.append(_row(options.b, options.a, _said_by(addresses[options.b])))
        except (CallError, ApplicationError, WireError) as error:
            rows.append({"from": options.b, "to": options.a, "trouble": str(error)})
            code = ExitCode.UNREACHABLE
    text = table(_HEADS, [_cells(row) for row in rows if "trouble" not in row])
    silent = [
        f"\n{row['from']} cannot be asked: {row['trouble']}" for row in rows if "trouble" in row
    ]
    return Output({"round_trips": rows}, "".join([text, *silent]), code)


def addresses_of(client: Client, *names: str) -> dict[str, str]:
    """Return the address of each member that *client*'s node knows.

    Raises:
        ConfigError: one of *names* is not among them.
    """
    members = client.admin("/admin/members")["members"]
    addresses = {member["name"]: member["address"] for member in members}
    for name in names:
        if name not in addresses:
            near = did_you_mean(name, addresses) or "; `ringpopctl members` lists all"
            raise ConfigError(f"{client.peer} knows no member {name!r}{near}")
    return addresses


def _said_by(address: str) -> dict[str, Any]:
    from ringpop_py.edge.admin.accounts import checked  # noqa: PLC0415 - help needs nothing that is installed

    with connect(address) as member:
        return checked(ENDPOINT, member.admin(ENDPOINT))


def _row(source: str, to: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what *source* has *said* of its pings to *to*; the ages are by its own clock."""
    row: dict[str, Any] = {"from": source, "to": to, "round_trip_s": None, "failure": None}
    row |= {"answered": 0, "failed": 0, "answered_s_ago": None, "failed_s_ago": None}
    for ping in said["pings"]:
        if ping["name"] != to:
            continue
        row["round_trip_s"] = ping.get("round_trip_s")
        row |= {name: ping.get(name, 0) for name in ("answered", "failed")}
        for name in ("answered", "failed"):
            if ping[f"{name}_at"]:
                row[f"{name}_s_ago"] = round(max(0.0, said["at"] - ping[f"{name}_at"]), 3)
        row["failure"] = ping.get("words") or ping["failure"] or None
        row |= {name: ping[name] for name in ("last_10_s", "last_300_s", "tcp") if name in ping}
    return row


def _cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    trip_s, ago_s = row["round_trip_s"], row["answered_s_ago"]
    failure = "-"
    if row["failed_s_ago"] is not None:
        failure = f"{row['failed_s_ago']:.1f} s ago: {row['failure']}"
    return (
        row["from"],
        row["to"],
        "-" if trip_s is None else f"{1_000 * trip_s:.2f} ms",
        row["answered"],
        row["failed"],
        "-" if ago_s is None else f"{ago_s:.1f} s ago",
        failure,
    )
