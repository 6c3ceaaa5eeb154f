"""``ringpopctl debug``: all that members say of themselves in one file, for a bug report."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ringpop_py.base.errors import ApplicationError, CallError, ConfigError, WireError
from ringpop_py.base.texts import redacted_value
from ringpop_py.edge.cli.commands import Output, connect, members_said
from ringpop_py.edge.diagnosis.monitor import page

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from ringpop_py.client.sync.client import Client

SECTIONS: Final = ("node", "reach", "checkup", "work", "settings", "keyspaces")
ASKED_TOGETHER: Final = 8
ABOUT: Final = {
    "cluster": "the members as the node that was asked sees them, and why some are silent",
    "ringpopctl": "versions of Python and of packages where the bundle was made",
    "node": "its version, its counts of pings and of requests",
    "reach": "whom it pings, how long that takes, and why it failed",
    "checkup": "its load, its disks, its store, its application, and by how much its clock is off",
    "work": "its jobs, shuffles, streams and dataflows",
    "settings": "of gossip and of forwarding",
    "keyspaces": "its keyspaces, and how many partitions are served",
    "events": "its last events",
    "log": "the last lines of its log, one object a line",
    "versions": "of Python and of packages",
    "trouble": "why something of it is missing",
}
"""What is in each kind of file, for the README of the bundle."""


def debug(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl debug``. Raises ConfigError if the file exists, or cannot be written."""
    now = time.time()
    path = options.out or f"ringpop-debug-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}.tar.gz"
    files, silent = gather(client)
    data = _packed(files, now)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor
            file.write(data)
    except OSError as error:
        raise ConfigError(f"--out {path}: {error.strerror or error}") from None
    text = (
        f"wrote {path}: {len(files)} files, {len(data) / 1000:.1f} kB. Passwords, keys and tokens "
        "are left out; names, addresses and the log are not, so read it before you pass it on"
    )
    lines = [text, *(f"{name} does not answer: {why}" for name, why in silent.items())]
    value = {"file": path, "bytes": len(data), "files": sorted(files), "silent": silent}
    return Output(value, "\n".join(lines))


def gather(client: Client) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the contents of each file, without secrets, and the members that are silent, and why.

    Raises:
        CallError, ApplicationError: there is no answer of *client*'s node.
    """
    from ringpop_py.edge.admin.versions import versions_here  # noqa: PLC0415 - help needs nothing that is installed

    value = members_said(client, *SECTIONS)
    said: Mapping[str, dict[str, Any]] = value.pop("said")
    found: dict[str, object] = {"cluster.json": value, "ringpopctl.json": versions_here()}
    answered = [member for member in value["members"] if member["name"] in said]
    with ThreadPoolExecutor(ASKED_TOGETHER) as pool:
        more = pool.map(_asked, (member["address"] for member in answered))
        for member, others in zip(answered, more, strict=True):
            folder = f"members/{quote(member['name'], safe='')}"
            sections = said[member["name"]]
            if "checkup" in sections:
                sections["checkup"] |= {name: sections.get(name) for name in ("clock_s", "off_s")}
            own = {kind: sections[kind] for kind in SECTIONS if kind in sections}
            for kind, content in (own | others).items():
                found[f"{folder}/{kind}.{'jsonl' if kind == 'log' else 'json'}"] = content
    files = {path: b"".join(_lines(path, content)) for path, content in found.items()}
    files["README"] = "".join(_readme(files)).encode()
    return files, value["silent"]


def _asked(address: str) -> dict[str, Any]:
    """Return the events, the log and the versions of the member at *address*, as far as it says."""
    found: dict[str, Any] = {}
    trouble: dict[str, str] = {}
    with connect(address) as member:
        for kind, ask in (
            ("events", lambda: member.admin("/admin/events")["records"]),
            ("log", lambda: _log_of(member)),
            ("versions", lambda: member.admin("/admin/versions")),
        ):
            try:
                found[kind] = ask()
            except (ApplicationError, CallError, WireError) as error:
                trouble[kind] = str(error)
    return found | ({"trouble": trouble} if trouble else {})


def _log_of(member: Client) -> list[object]:
    lines: list[object] = []
    value = page(member, "info", 0)
    while value["lines"] and len(lines) < LINES_MAX:
        lines += value["lines"]
        value = page(member, "info", value["last"])
    return lines


LINES_MAX: Final = 2_000
"""The most lines of a log, of a member that says more and more."""


def _lines(path: str, content: object) -> Iterator[bytes]:
    content = redacted_value(content)
    rows = content if path.endswith(".jsonl") and isinstance(content, list) else [content]
    for row in rows:
        indent = None if path.endswith(".jsonl") else 1
        yield json.dumps(row, indent=indent, default=repr).encode() + b"\n"


def _readme(files: Mapping[str, bytes]) -> Iterator[str]:
    yield "Made by `ringpopctl debug`. Times are seconds since 1970, by each node's own clock.\n\n"
    for path in sorted(files):
        kind = path.rpartition("/")[2].partition(".")[0]
        yield f"{path}: {ABOUT.get(kind, kind)}\n"


def _packed(files: Mapping[str, bytes], now: float) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in sorted(files):
            entry = tarfile.TarInfo(f"ringpop-debug/{path}")
            entry.size, entry.mtime, entry.mode = len(files[path]), int(now), 0o600
            archive.addfile(entry, io.BytesIO(files[path]))
    return packed.getvalue()
