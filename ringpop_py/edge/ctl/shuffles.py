"""The commands of ringpopctl about shuffles: ``shuffle list|show|end|delete``."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import ConfigError, ShuffleUnavailable
from ringpop_py.edge.cli.commands import Output, confirm, table, table_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ringpop_py.client.sync.client import Client
    from ringpop_py.flow.shuffle.client.client import ShuffleClient

TIMEOUT_S: Final = 15.0
BARS_HEIGHT: Final = 200
BARS_WIDTH: Final = 860
COLOURS: Final = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b")
LOST: Final = "#999"

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 14px system-ui, sans-serif; margin: 2rem auto; max-width: {width}px; }}
svg {{ width: 100%; height: auto; }}
.mean {{ stroke: currentColor; stroke-dasharray: 4 3; }}
td, th {{ text-align: left; padding-right: 2em; }}
i {{ display: inline-block; width: 11px; height: 11px; }}
</style>
<h1>{title}</h1>
<p>{text}</p>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="rows of each interval">
{bars}
<line class="mean" x1="0" x2="{width}" y1="{mean:.1f}" y2="{mean:.1f}"/>
</svg>
<p>A bar is an interval, in order, as high as it has rows; the dashed line is the mean.</p>
<table><tr><th>node</th><th>intervals</th><th>rows</th><th>share</th></tr>
{nodes}
</table>
</html>
"""


def list_all(client: Client, _options: argparse.Namespace) -> Output:
    """``ringpopctl shuffle list``."""
    from ringpop_py.flow.shuffle.client.client import list_shuffles  # noqa: PLC0415 - help needs nothing that is installed

    _look(client)
    found = []
    for each in list_shuffles(str(client.peer), timeout_s=TIMEOUT_S):
        record = each.record
        rows = sum(winner.rows for winner in record.winners.values())
        found.append(
            {
                "name": each.name,
                "state": record.state.value,
                "rows": rows if record.winners else None,
                "intervals": record.interval_count,
                "nodes": len(record.members),
            }
        )
    heads = ("NAME", "STATE", "ROWS", "INTERVALS", "NODES")
    text = table_of(found, *heads) if found else "there are no shuffles"
    return Output({"shuffles": found}, text)


def show(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl shuffle show``."""
    with _opened(client, options) as shuffle:
        value = _gathered(shuffle)
    text = _text(value)
    if options.plot is not None:
        if value["state"] != "get":
            raise ConfigError(
                f"--plot shows the intervals of a shuffle that has ended; {value['name']!r} is in "
                f"the state {value['state']!r}"
            )
        try:
            Path(options.plot).write_text(_page(value), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--plot {options.plot}: {error.strerror or error}") from None
        text += f"\nplot: {options.plot}"
    return Output(value, text)


def end(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl shuffle end``."""
    with _opened(client, options) as shuffle:
        finished: dict[int, tuple[int, int]] = {}
        for counted in shuffle.progress().values():
            finished |= {number: (w.frames, w.rows) for number, w in counted.finished.items()}
        wanted = options.attempt or sorted(finished)
        unknown = [number for number in wanted if number not in finished]
        if unknown:
            known = ", ".join(map(str, sorted(finished))) or "none"
            raise ConfigError(f"attempts that are not finished: {unknown}; finished are: {known}")
        rows = sum(finished[number][1] for number in wanted)
        what = f"{len(wanted)} attempts count, with {rows:,} rows"
        if not options.attempt:
            what += " (all that are finished: two attempts of one task would be doubled)"
        if not options.yes:
            confirm("End shuffle", options.name, what)
        shuffle.end([(number, *finished[number]) for number in wanted])
        value = _gathered(shuffle)
    return Output(value, f"{options.name} has ended: {value['rows']:,} rows can be read")


def delete(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl shuffle delete``."""
    with _opened(client, options) as shuffle:
        if not options.yes:
            confirm("Delete shuffle", options.name, "its rows will be gone")
        shuffle.delete()
    return Output({"name": options.name, "deleted": True}, f"{options.name} is deleted")


def _opened(client: Client, options: argparse.Namespace) -> ShuffleClient:
    from ringpop_py.flow.shuffle.client.client import ShuffleClient  # noqa: PLC0415 - help needs nothing that is installed

    _look(client)
    return ShuffleClient.open(str(client.peer), options.name, timeout_s=TIMEOUT_S)


def _look(client: Client) -> None:
    """Raise an error immediately if the node does not answer, or sees no process for shuffles."""
    from ringpop_py.flow.shuffle.client.members import seen_by  # noqa: PLC0415 - help needs nothing that is installed

    if not any(seen_by(client, timeout_s=TIMEOUT_S)[0].values()):
        raise ShuffleUnavailable(
            f"no member that {client.peer} sees holds rows of shuffles: start nodes with "
            "--shuffle-folder"
        )


def _gathered(shuffle: ShuffleClient) -> dict[str, Any]:
    """Return all that is known about a shuffle."""
    progress = shuffle.progress()
    record, intervals = shuffle.record, shuffle.intervals
    nodes = []
    for member in record.members:
        counted = progress.get(member.host)
        owned = [each for each in intervals if each.owner == member.host]
        nodes.append(
            {
                "node": member.host,
                "rows": sum(each.rows for each in owned) if intervals else counted and counted.rows,
                "intervals": len(owned) if intervals else None,
                "merged": counted.merged if counted is not None else None,
                "bytes": counted.held_bytes if counted is not None else None,
            }
        )
    known = [node["rows"] for node in nodes if node["rows"] is not None]
    sizes = [interval.rows for interval in intervals]
    return {
        "name": shuffle.name,
        "state": record.state.value,
        "why": record.why,
        "version": record.version,
        "by": list(shuffle.by) or "a random order",
        "schema": {field.name: str(field.type) for field in shuffle.schema},
        "rows": sum(sizes) or sum(known),
        "attempts": len(record.winners) or record.next_attempt,
        "busiest_over_mean": max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else None,
        "nodes": nodes,
        "intervals": [each._asdict() for each in intervals],
    }


def _text(value: dict[str, Any]) -> str:
    keys = value["by"] if isinstance(value["by"], str) else ", ".join(value["by"])
    head = f"{value['name']}: {value['state']}, {value['rows']:,} rows by {keys}"
    lines = [f"{head}, version {value['version']}"]
    if value["why"]:
        lines.append(f"damaged: {value['why']}")
    if value["busiest_over_mean"] is not None:
        lines.append(
            f"{len(value['intervals'])} intervals, the busiest has "
            f"{value['busiest_over_mean']:.3f} of the mean"
        )
    total = sum(node["rows"] or 0 for node in value["nodes"])
    rows = [
        (
            node["node"],
            node["rows"] if node["rows"] is not None else "-",
            f"{(node['rows'] or 0) / total:.1%}" if total else "-",
            node["intervals"] if node["intervals"] is not None else "-",
            node["merged"] if node["merged"] is not None else "no answer",
            f"{node['bytes'] / 1e6:.1f} MB" if node["bytes"] is not None else "-",
        )
        for node in value["nodes"]
    ]
    heads = ("NODE", "ROWS", "SHARE", "OWNS", "HOLDS", "DISK")
    lost = [each["number"] for each in value["intervals"] if each["owner"] is None]
    if lost:
        lines.append(f"lost with both nodes that held them: intervals {lost}")
    return "\n".join([*lines, table(heads, rows)])


def _page(value: dict[str, Any]) -> str:
    """Return a page of HTML about the balance of a shuffle. It fetches nothing."""
    intervals: Sequence[dict[str, Any]] = value["intervals"]
    most = max([1, *(each["rows"] for each in intervals)])
    names = sorted({each["owner"] for each in intervals if each["owner"] is not None})
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    width = BARS_WIDTH / len(intervals)
    bars = []
    for each in intervals:
        height = BARS_HEIGHT * each["rows"] / most
        owner = each["owner"] or "lost"
        where = f'x="{each["number"] * width:.2f}" y="{BARS_HEIGHT - height:.1f}"'
        size = f'width="{max(width - 0.5, 0.3):.2f}" height="{height:.1f}"'
        about = f"interval {each['number']}: {each['rows']:,} rows at {escape(owner)}"
        colour = colours.get(owner, LOST)
        bars.append(f'<rect {where} {size} fill="{colour}"><title>{about}</title></rect>')
    total = max(1, value["rows"])
    nodes = []
    for name in names:
        owned = [each["rows"] for each in intervals if each["owner"] == name]
        label = f'<td><i style="background:{colours[name]}"></i> {escape(name)}</td>'
        numbers = f"<td>{len(owned)}</td><td>{sum(owned):,}</td><td>{sum(owned) / total:.1%}</td>"
        nodes.append(f"<tr>{label}{numbers}</tr>")
    over = value["busiest_over_mean"]
    return _PAGE.format(
        title=escape(f"Shuffle {value['name']}"),
        text=f"{value['rows']:,} rows in {len(intervals)} intervals; the busiest has "
        f"{over or 1:.3f} of the mean.",
        width=BARS_WIDTH,
        height=BARS_HEIGHT,
        bars="\n".join(bars),
        mean=BARS_HEIGHT * (1 - value["rows"] / len(intervals) / most),
        nodes="\n".join(nodes),
    )
