"""The commands of ringpopctl about keyspaces: ``partitions`` and ``keyspace …``."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.edge.cli.commands import (
    ExitCode,
    Output,
    asking,
    confirm,
    members_said,
    table,
    table_of,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from ringpop_py.client.sync.client import Client

STORE_TIMEOUT_S: Final = 15.0
"""How long to wait for a reply that needs the store, in seconds."""
DROP_TIMEOUT_S: Final = 120.0
"""How long to wait for a drop, in seconds: each partition puts its end into the store."""
SETTINGS: Final[dict[str, tuple[type, str, str]]] = {
    "partitions": (int, "N", "how many; this cannot be changed later (256)"),
    "mode": (str, "durable|memory", "keep it in the store, or in memory only (durable)"),
    "strategy": (str, "balanced|ring|range|round_robin|average", "who owns what (balanced)"),
    "min_cluster_size": (int, "N", "assign nothing before there are N members (1)"),
    "max_keys_per_partition": (int, "N", "refuse further keys (no limit)"),
    "checkpoint_interval_s": (float, "S", "seconds between checkpoints of a partition (10)"),
    "virtual_nodes": (int, "N", "points of a member on the ring of --strategy ring (128)"),
    "merge": (str, "RULE", "in memory: which value survives a split (last_writer_wins)"),
    "copies": (int, "N", "in memory: members that have the state of a partition, up to 3 (1)"),
    "copies_min": (int, "N", "in memory: refuse writes with fewer copies (1)"),
}
"""The settings that are flags of ``keyspace create``: type, metavar, help. The node checks them."""
UNSETTLED_SHOWN: Final = 20
DAMAGED: Final = "damaged"
"""The status of a partition whose log a member cannot read; no table of partitions has it."""

_asking = partial(asking, timeout_s=STORE_TIMEOUT_S)


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
    """Return the exit code for *keyspaces*: trouble outweighs a member that does not answer."""
    for keyspace in keyspaces:
        in_trouble = any(here.get("troubles_count") for here in keyspace["here"].values())
        in_trouble |= bool(keyspace.get("failed"))
        if keyspace["settled"] < keyspace["partitions"] or in_trouble:
            return ExitCode.DIVERGED
    silent = any(keyspace["silent"] for keyspace in keyspaces)
    return ExitCode.UNREACHABLE if silent else ExitCode.OK


def _gather(client: Client, name: str) -> dict[str, Any]:
    """Return all about a keyspace: from *client*'s node, and what only each member knows."""
    body = {"name": name}
    value: dict[str, Any] = client.admin("/admin/keyspaces/show", body, timeout_s=STORE_TIMEOUT_S)
    rows = client.admin("/admin/keyspaces/table", body, timeout_s=STORE_TIMEOUT_S)["rows"]
    del value["here"]  # of one node alone; below, all are asked
    own = {member["name"] for member in value["members"]} | set(value.get("failed", ()))
    answer = members_said(client, "share", keyspace=name, names=sorted(own))
    value |= {"rows": rows, "here": {}, "silent": answer["silent"]}
    for member, said in answer["said"].items():
        share = said["share"]
        value["here"][member] = share["here"]
        for number, keys in share["keys"]:  # only the member that serves a partition knows this
            rows[number]["keys"] = keys
        say_damaged(value, share["here"].get("damaged", ()))
    return value


def say_damaged(value: dict[str, Any], numbers: Iterable[int]) -> None:
    """Mark the partitions *numbers* in the result of `_gather` as damaged unless served."""
    statuses = value["statuses"]
    for number in numbers:
        row = value["rows"][number]
        if not row["served"] and row["status"] != DAMAGED:
            statuses[row["status"]] -= 1
            statuses[DAMAGED] = statuses.get(DAMAGED, 0) + 1
            row["status"] = DAMAGED


def partitions_text(value: dict[str, Any], *, rows_shown: bool) -> str:
    """Return the result of `_gather` for people: a row for each member, and for partitions.

    Args:
        rows_shown: show all partitions, not only the first `UNSETTLED_SHOWN`, and the journals.
    """
    parts = [_headline(value), _member_table(value), _balance(value)]
    if value["waits_for"]:
        parts.append(f"waits: {value['waits_for']}")
    # While the keyspace waits, all of its partitions do: their rows would not say more.
    shown_max = len(value["rows"]) if rows_shown else 0 if value["waits_for"] else UNSETTLED_SHOWN
    rows = value["rows"][:shown_max]
    if rows:
        parts.append(_row_table(rows))
    if rows and len(rows) < len(value["rows"]):
        parts.append(f"… and {len(value['rows']) - len(rows)} more; --all shows them")
    if rows_shown:
        parts += _journal_table(value)
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
    unknown = {"keys": "?", "gaining": "?", "troubles_count": "?"}
    rows = []
    for member in value["members"]:
        here = value["here"].get(member["name"], unknown)
        trouble = here.get("troubles_count", "-")  # without a store there is no trouble with one
        own = (member["name"], member["partitions"], member["desired"])
        rows.append((*own, here["keys"], here["gaining"], trouble))
    return table(("MEMBER", "PARTITIONS", "DESIRED", "KEYS", "COMING", "TROUBLE"), rows)


def _journal_table(value: dict[str, Any]) -> list[str]:
    """Return the journals: how much a node that takes over would read, and what was sealed."""
    rows = [
        (name, here["journal"]["name"], *(here["journal"][key] for key in _OF_A_JOURNAL))
        for name, here in value["here"].items()
        if here.get("journal")  # a keyspace in memory has none
    ]
    heads = ("MEMBER", "JOURNAL", "SLOTS", "MARKED BELOW", "LENGTH", "SEALS MET")
    return [table(heads, rows)] if rows else []


_OF_A_JOURNAL: Final = ("slots", "marked", "length", "seals_met")


def _balance(value: dict[str, Any]) -> str:
    active = sum(member["partitions"] > 0 for member in value["members"])
    unserved = value["partitions"] - value["served"]
    return (
        f"{active} of {len(value['members'])} members serve, busiest over mean "
        f"{value['busiest_over_mean']:.2f}, {value['moving']} moving, {unserved} unserved"
    )


def _row_of(partition: dict[str, Any]) -> dict[str, Any]:
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
    why = "it cannot serve partitions; `ringpopctl check` says why"
    lines = [
        f"{name}: {value['here'].get(name, {}).get('failure') or why}"
        for name in value.get("failed", ())
    ]
    for name, here in value["here"].items():
        if here.get("troubles_count"):
            first, more = here["troubles"][0], here["troubles_count"] - 1
            rest = f" (and {more} more)" if more else ""
            place = f"{name}, partition {first['partition']}{rest}"
            lines.append(f"store trouble at {place}: {first['text']}")
    return lines


def show(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keyspace show NAME``."""
    value = _gather(client, options.name)
    value["rows"] = [row for row in value["rows"] if not row["settled"]]
    return Output(value, show_text(value), exit_code_of([value]))


def show_text(value: dict[str, Any]) -> str:
    """Return the result of `_gather` for people: settings, then what each member has done."""
    definition = value["definition"].items()
    settings = table(("SETTING", "VALUE"), [(name, _plain(item)) for name, item in definition])
    rows = []
    for name, here in value["here"].items():
        if "handoffs" not in here:  # it is in memory
            continue
        moves, written = here["handoffs"], here["checkpoints"]
        pauses = _milliseconds(moves["pause_s_p50"]), _milliseconds(moves["pause_s_max"])
        counts = written["whole"], written["incremental"], written["failed"]
        rows.append((name, moves["count"], *pauses, *counts, round(written["bytes"] / 1e6, 1)))
    heads = ("MEMBER", "HANDOFFS", "PAUSE P50", "MAX", "CHECKPOINTS", "PARTIAL", "FAILED", "MB")
    done = [table(heads, rows)] if rows else []
    return "\n\n".join([settings, *done, partitions_text(value, rows_shown=False)])


def _plain(setting: object) -> str:
    if isinstance(setting, bool):
        return "yes" if setting else "no"
    return "-" if setting is None else str(setting)


def _milliseconds(pause_s: float | None) -> str:
    return "-" if pause_s is None else f"{pause_s * 1000:.1f} ms"


def _keyspaces_text(value: dict[str, Any]) -> str:
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
    return text


list_all: Final = _asking("keyspaces", _keyspaces_text)


def create(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keyspace create NAME``."""
    body = settings_from(options)
    value = client.admin("/admin/keyspaces/create", body, timeout_s=STORE_TIMEOUT_S)
    made = "was created" if value["created"] else "exists already with these settings"
    text = f"keyspace {value['name']} {made}: {value['partitions']} partitions, {value['mode']}"
    return Output(value, f"{text}, {value['strategy']}, generation {value['generation']}")


def settings_from(options: argparse.Namespace) -> dict[str, object]:
    """Return the request of ``keyspace create``: flags override the preset.

    Raises:
        ConfigError: there is no such preset.
    """
    body: dict[str, object] = {"name": options.name}
    if options.preset is not None:
        from ringpop_py.state.placement import presets  # noqa: PLC0415 - it loads NumPy

        body |= presets.keyspace_preset(options.preset).settings
    body |= {s: getattr(options, s) for s in SETTINGS if getattr(options, s) is not None}
    if options.manual:
        body["automatic"] = False
    if options.hash_tags:
        body["hash_tags"] = True
    return body


change: Final = _asking(
    "keyspaces/set",
    "keyspace {name}: min_cluster_size is {min_cluster_size} now; it was {before}".format_map,
    *("name", "min_cluster_size"),
)


def drop(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keyspace drop NAME``."""
    if not options.yes:
        confirm("Drop keyspace", options.name, "it will no longer be served")
    value = client.admin("/admin/keyspaces/drop", {"name": options.name}, timeout_s=DROP_TIMEOUT_S)
    name = value["name"]
    if value["kept_under"] is None:
        return Output(value, f"keyspace {name} was dropped; it was in memory, so its data are gone")
    return Output(
        value,
        f"keyspace {name} was dropped in generation {value['generation']}. Its data stay in the "
        f"store, under {value['kept_under']}. `ringpopctl keyspace bring-back {name}` undoes it. "
        "If you create it again, it begins empty",
    )


rebalance: Final = _asking(
    "keyspaces/rebalance",
    lambda value: "\n".join(value["lines"]),
    *("name", "dry_run", "max_moves", "to_version"),
)


checkpoint_now: Final = _asking(
    "keyspaces/checkpoint",
    lambda value: (
        f"{value['name']} of keyspace {value['keyspace']}: {value['keys']} keys in "
        f"{value['partitions']} partitions, {value['bytes'] / 1e6:.1f} MB"
    ),
    *("name", "keep"),
)


def checkpoints_text(value: dict[str, Any]) -> str:
    """Return the reply of ``/admin/keyspaces/checkpoints`` for people."""
    rows = [
        {
            **checkpoint,
            "checkpoint": checkpoint["name"],
            "made at (utc)": f"{datetime.fromtimestamp(checkpoint['made_at'], UTC):%F %T}",
            "by": checkpoint["made_by"],
            "mb": round(checkpoint["bytes"] / 1e6, 1),
        }
        for checkpoint in value["checkpoints"]
    ]
    heads = ("CHECKPOINT", "MADE AT (UTC)", "BY", "GENERATION", "PARTITIONS", "KEYS", "MB")
    return table_of(rows, *heads) if rows else f"keyspace {value['name']} has no checkpoint"


checkpoint_list: Final = _asking("keyspaces/checkpoints", checkpoints_text, "name")


def restore(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl checkpoint restore NAME CHECKPOINT``."""
    if options.into is None and not options.yes:
        confirm("Restore", options.name, "what was written after the checkpoint will be gone")
    return _restored(client, options)


_made_anew = "keyspace {name} is generation {generation} now, {origin}".format_map
_restored = _asking("keyspaces/restore", _made_anew, "name", "number", "into")
bring_back: Final = _asking("keyspaces/bring-back", _made_anew, "name", "generation")


def look_up(client: Client, key: str, name: str) -> Output:
    """``ringpopctl lookup KEY --keyspace NAME``."""
    body = {"name": name, "key": key}
    value = client.admin("/admin/keyspaces/lookup", body, timeout_s=STORE_TIMEOUT_S)
    heads = ("PARTITION", "STATUS", "OWNER", "DESIRED", "EPOCH")
    troubles: list[str] = []
    if not value["served"]:  # only members know why
        found = _gather(client, name)
        value |= found["rows"][value["partition"]]
        troubles = _troubles(found)
    text = "\n".join([table_of([_row_of(value)], *heads), *troubles])
    return Output(value, text, ExitCode.OK if value["served"] else ExitCode.DIVERGED)
