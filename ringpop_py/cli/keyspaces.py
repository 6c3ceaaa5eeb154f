"""The commands of ringpopctl about keyspaces: ``partitions`` and ``keyspace …``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.cli.commands import REACHABLE, Aborted, ExitCode, Output, connect, table, table_of
from ringpop_py.errors import ApplicationError, CallError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from ringpop_py.client.client import Client

STORE_TIMEOUT_S: Final = 15.0
"""For what the asked node has to ask the store about."""
DROP_TIMEOUT_S: Final = 120.0
"""The end of each partition is put into the store."""
SETTINGS: Final = (
    "partitions",
    "mode",
    "strategy",
    "min_cluster_size",
    "max_keys_per_partition",
    "checkpoint_interval_s",
    "merge",
)
"""Of a keyspace, as options are called."""
UNSETTLED_SHOWN: Final = 20
DAMAGED: Final = "damaged"
"""The status of a partition whose log a member cannot read. The table does not know it."""


def partitions(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl partitions``."""
    if options.keyspace is not None:
        names = [options.keyspace]
    else:
        listed = client.admin("/admin/keyspaces", timeout_s=STORE_TIMEOUT_S)
        names = [keyspace["name"] for keyspace in listed["keyspaces"]]
    found = [_gather(client, name) for name in names]
    for keyspace in found:
        if not options.all:
            keyspace["rows"] = [row for row in keyspace["rows"] if not row["settled"]]
    texts = [partitions_text(keyspace, rows_shown=options.all) for keyspace in found]
    text = "\n\n".join(texts) or "there are no keyspaces"
    return Output({"keyspaces": found}, text, exit_code_of(found))


def exit_code_of(keyspaces: Sequence[dict[str, Any]]) -> int:
    """What ``partitions`` and ``keyspace show`` end with: an alarm outweighs silence."""
    for keyspace in keyspaces:
        in_trouble = any(here.get("troubles_count") for here in keyspace["here"].values())
        in_trouble |= bool(keyspace.get("failed"))
        if keyspace["settled"] < keyspace["partitions"] or in_trouble:
            return ExitCode.DIVERGED
    silent = any(keyspace["silent"] for keyspace in keyspaces)
    return ExitCode.UNREACHABLE if silent else ExitCode.OK


def _gather(client: Client, name: str) -> dict[str, Any]:
    """All about a keyspace: what *client*'s node knows, and what only its members do."""
    body = {"name": name}
    value: dict[str, Any] = client.admin("/admin/keyspaces/show", body, timeout_s=STORE_TIMEOUT_S)
    rows = client.admin("/admin/keyspaces/table", body, timeout_s=STORE_TIMEOUT_S)["rows"]
    del value["here"]
    value |= {"rows": rows, "here": {}, "silent": {}}
    own = {member["name"] for member in value["members"]} | set(value.get("failed", ()))
    for member in client.admin("/admin/members")["members"]:
        if member["name"] not in own or member["status"] not in REACHABLE:
            continue
        try:
            with connect(member["address"]) as peer:
                here = peer.admin("/admin/keyspaces/show", body)["here"]
                theirs = peer.admin("/admin/keyspaces/table", body)["rows"]
        except (CallError, ApplicationError) as error:
            value["silent"][member["name"]] = str(error)
        else:
            value["here"][member["name"]] = here
            for row in theirs:
                if row["keys"] is not None:
                    rows[row["partition"]]["keys"] = row["keys"]
            say_damaged(value, here.get("damaged", ()))
    return value


def say_damaged(value: dict[str, Any], numbers: Iterable[int]) -> None:
    """Mark the partitions *numbers* of what `_gather` found as damaged if no member serves them."""
    statuses = value["statuses"]
    for number in numbers:
        row = value["rows"][number]
        if not row["served"] and row["status"] != DAMAGED:
            statuses[row["status"]] -= 1
            statuses[DAMAGED] = statuses.get(DAMAGED, 0) + 1
            row["status"] = DAMAGED


def partitions_text(value: dict[str, Any], *, rows_shown: bool) -> str:
    """What `_gather` found, for people: a row a member, and the partitions to look at.

    Args:
        rows_shown: show all rows that there are; else no more than some.
    """
    parts = [_headline(value), _member_table(value), _balance(value)]
    if value["waits_for"]:
        parts.append(f"waits: {value['waits_for']}")
    shown_max = len(value["rows"]) if rows_shown else 0 if value["waits_for"] else UNSETTLED_SHOWN
    rows = value["rows"][:shown_max]
    if rows:
        parts.append(_row_table(rows))
    if rows and len(rows) < len(value["rows"]):
        parts.append(f"… and {len(value['rows']) - len(rows)} more; --all shows them")
    parts += _troubles(value)
    parts += [f"{name} does not answer: {text}" for name, text in value["silent"].items()]
    return "\n".join(parts)


def _headline(value: dict[str, Any]) -> str:
    counts = {**value["statuses"], "online": value["served"]}
    counts["owner gone"] = value["statuses"]["online"] - value["served"]
    statuses = [f"{count} {label}" for label, count in counts.items() if count]
    version = value["assignment_version"]
    assignment = f", assignment {version}" if version else ""
    return (
        f"{value['name']}: {value['mode']}, {value['strategy']}, generation "
        f"{value['generation']}{assignment}, epoch {value['epoch']}\n"
        f"{value['partitions']} partitions: {', '.join(statuses)}"
    )


def _member_table(value: dict[str, Any]) -> str:
    rows = []
    for member in value["members"]:
        here = value["here"].get(member["name"], {})
        rows.append(
            (
                member["name"],
                member["partitions"],
                member["desired"],
                here.get("keys", "?"),
                here.get("gaining", "?"),
                here.get("troubles_count", "-" if here else "?"),
            )
        )
    return table(("MEMBER", "PARTITIONS", "DESIRED", "KEYS", "COMING", "TROUBLE"), rows)


def _balance(value: dict[str, Any]) -> str:
    active = sum(member["partitions"] > 0 for member in value["members"])
    unserved = value["partitions"] - value["served"]
    return (
        f"{active} of {len(value['members'])} members serve, busiest over mean "
        f"{value['busiest_over_mean']:.2f}, {value['moving']} moving, {unserved} unserved"
    )


def _row_of(partition: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a partition in a table for people."""
    row = {key: None if cell == "" else cell for key, cell in partition.items()}
    gone = row["status"] == "online" and not row["served"]
    return {**row, "status": "owner gone"} if gone else row


def _row_table(rows: list[dict[str, Any]]) -> str:
    shown = [
        {**_row_of(row), "checkpoint": row["checkpoint"] and "{}/{}".format(*row["checkpoint"])}
        for row in rows
    ]
    heads = ("PARTITION", "STATUS", "OWNER", "DESIRED", "PREVIOUS", "EPOCH", "CHECKPOINT", "KEYS")
    return table_of(shown, *heads)


def _troubles(value: dict[str, Any]) -> list[str]:
    lines = [
        f"{name}: {value['here'].get(name, {}).get('failure') or 'its share has failed'}"
        for name in value.get("failed", ())
    ]
    for name, here in value["here"].items():
        if here.get("troubles_count"):
            first = here["troubles"][0]
            more = here["troubles_count"] - 1
            rest = f" (and {more} more)" if more else ""
            lines.append(f"store trouble at {name}, partition {first['partition']}{rest}: ")
            lines[-1] += first["text"]
    return lines


def show(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keyspace show NAME``."""
    value = _gather(client, options.name)
    value["rows"] = [row for row in value["rows"] if not row["settled"]]
    return Output(value, show_text(value), exit_code_of([value]))


def show_text(value: dict[str, Any]) -> str:
    """What `_gather` found: settings, then what each member has done."""
    definition = value["definition"].items()
    settings = table(("SETTING", "VALUE"), [(name, _plain(item)) for name, item in definition])
    rows = []
    for name, here in value["here"].items():
        moves, written = here.get("handoffs"), here.get("checkpoints")
        if moves is None or written is None:
            continue
        rows.append(
            (
                name,
                moves["count"],
                _milliseconds(moves["pause_s_p50"]),
                _milliseconds(moves["pause_s_max"]),
                written["whole"],
                written["incremental"],
                written["failed"],
                round(written["bytes"] / 1e6, 1),
            )
        )
    heads = ("MEMBER", "HANDOFFS", "PAUSE P50", "MAX", "CHECKPOINTS", "PARTIAL", "FAILED", "MB")
    parts = [settings, *([table(heads, rows)] if rows else [])]
    return "\n\n".join([*parts, partitions_text(value, rows_shown=False)])


def _plain(setting: object) -> str:
    if isinstance(setting, bool):
        return "yes" if setting else "no"
    return "-" if setting is None else str(setting)


def _milliseconds(pause_s: float | None) -> str:
    return "-" if pause_s is None else f"{pause_s * 1000:.1f} ms"


def list_all(client: Client, _options: argparse.Namespace) -> Output:
    """``ringpopctl keyspace list``."""
    value = client.admin("/admin/keyspaces", timeout_s=STORE_TIMEOUT_S)
    heads = ("NAME", "MODE", "STRATEGY", "GENERATION", "PARTITIONS", "SERVED", "SETTLED")
    rows = value["keyspaces"]
    text = table_of(rows, *heads) if rows else "there are no keyspaces"
    for keyspace in rows:
        for member in keyspace.get("failed", ()):
            text += f"\nthe share of {keyspace['name']} at {member} has failed: see its log"
    for dropped in value["dropped"]:
        text += f"\n{dropped['name']} was dropped in generation {dropped['generation']}"
    if value["store"] is None:
        text += f"\n{value['source']} has no store (ringpopd --store)"
    return Output(value, text)


def create(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keyspace create NAME``."""
    body = settings_from(options)
    value = client.admin("/admin/keyspaces/create", body, timeout_s=STORE_TIMEOUT_S)
    made = "was created" if value["created"] else "is there already, defined like this"
    text = f"keyspace {value['name']} {made}: {value['partitions']} partitions, {value['mode']}"
    return Output(value, f"{text}, {value['strategy']}, generation {value['generation']}")


def settings_from(options: argparse.Namespace) -> dict[str, object]:
    """What ``/admin/keyspaces/create`` takes: flags, above what the preset has.

    Raises:
        ConfigError: there is no such preset.
    """
    body: dict[str, object] = {"name": options.name}
    if options.preset is not None:
        from ringpop_py.placing.presets import (  # noqa: PLC0415 - it comes with NumPy
            keyspace_preset,
        )

        body |= keyspace_preset(options.preset).settings
    body |= {s: getattr(options, s) for s in SETTINGS if getattr(options, s) is not None}
    if options.manual:
        body["automatic"] = False
    return body


def drop(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keyspace drop NAME``."""
    if not options.yes:
        _confirm("Drop", options.name, "nobody will serve it any more")
    value = client.admin("/admin/keyspaces/drop", {"name": options.name}, timeout_s=DROP_TIMEOUT_S)
    name = value["name"]
    if value["kept_under"] is None:
        return Output(value, f"keyspace {name} was dropped, and what was in its memory with it")
    return Output(
        value,
        f"keyspace {name} was dropped in generation {value['generation']}. Its data stay in the "
        f"store, under {value['kept_under']}: `ringpopctl keyspace bring-back {name}` undoes it; "
        "created again, it begins empty",
    )


def _confirm(verb: str, name: str, what: str) -> None:
    """Have the name typed. Raises Aborted."""
    if not sys.stdin.isatty():
        raise Aborted("this needs confirmation, and standard input is not a terminal; pass --yes")
    print(f"{verb} keyspace {name}: {what}. Type its name: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise Aborted("that is not its name; nothing was done")


def rebalance(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl rebalance NAME``."""
    body: dict[str, object] = {"name": options.name, "dry_run": options.dry_run}
    body |= {"max_moves": options.max_moves, "to_version": options.to_version}
    value = client.admin("/admin/keyspaces/rebalance", body, timeout_s=STORE_TIMEOUT_S)
    return Output(value, "\n".join(value["lines"]))


def checkpoint_now(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl checkpoint now NAME``."""
    body = {"name": options.name}
    if options.keep is not None:
        body["keep"] = options.keep
    value = client.admin("/admin/keyspaces/checkpoint", body, timeout_s=options.timeout)
    text = f"{value['name']} of keyspace {value['keyspace']}: {value['keys']} keys in "
    text += f"{value['partitions']} partitions, {value['bytes'] / 1e6:.1f} MB"
    return Output(value, text)


def checkpoint_list(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl checkpoint list NAME``."""
    body = {"name": options.name}
    value = client.admin("/admin/keyspaces/checkpoints", body, timeout_s=STORE_TIMEOUT_S)
    return Output(value, checkpoints_text(value))


def checkpoints_text(value: dict[str, Any]) -> str:
    """What ``/admin/keyspaces/checkpoints`` answers, for people."""
    rows = [
        (
            checkpoint["name"],
            f"{datetime.fromtimestamp(checkpoint['made_at'], UTC):%Y-%m-%d %H:%M:%S}",
            checkpoint["made_by"],
            checkpoint["generation"],
            checkpoint["partitions"],
            checkpoint["keys"],
            round(checkpoint["bytes"] / 1e6, 1),
        )
        for checkpoint in value["checkpoints"]
    ]
    if not rows:
        return f"keyspace {value['name']} has no checkpoint as a whole"
    heads = ("CHECKPOINT", "MADE AT (UTC)", "BY", "GENERATION", "PARTITIONS", "KEYS", "MB")
    return table(heads, rows)


def restore(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl checkpoint restore NAME CHECKPOINT``."""
    if options.into is None and not options.yes:
        _confirm("Restore", options.name, "what was written after the checkpoint will be gone")
    body = {"name": options.name, "number": options.checkpoint, "into": options.into}
    value = client.admin("/admin/keyspaces/restore", body, timeout_s=options.timeout)
    return Output(value, _made_anew(value))


def bring_back(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keyspace bring-back NAME``."""
    body = {"name": options.name, "generation": options.generation}
    value = client.admin("/admin/keyspaces/bring-back", body, timeout_s=options.timeout)
    return Output(value, _made_anew(value))


def _made_anew(value: dict[str, Any]) -> str:
    return f"keyspace {value['name']} is generation {value['generation']} now, {value['origin']}"


def look_up(client: Client, key: str, name: str) -> Output:
    """``ringpopctl lookup KEY --keyspace NAME``."""
    body = {"name": name, "key": key}
    value = client.admin("/admin/keyspaces/lookup", body, timeout_s=STORE_TIMEOUT_S)
    heads = ("PARTITION", "STATUS", "OWNER", "DESIRED", "EPOCH")
    return Output(value, table_of([_row_of(value)], *heads))
