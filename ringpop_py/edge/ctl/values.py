"""The commands of ringpopctl about values: ``keyspace get``, ``put``, ``delete``, ``watch``."""

from __future__ import annotations

import json
import shlex
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ringpop_py.base.errors import BodyError, ConfigError, KeyspaceError, WatchGap
from ringpop_py.base.texts import printable
from ringpop_py.edge.cli.commands import Output, complain, confirm
from ringpop_py.edge.ctl.keyspaces import STORE_TIMEOUT_S

if TYPE_CHECKING:
    import argparse

    from ringpop_py.client.sync.client import Client
    from ringpop_py.client.sync.keyspaces import KeyspaceClient
    from ringpop_py.state.watch.course import KeyChange

WAIT_S: Final = 20.0


class KeyAbsent(KeyspaceError, code="key-absent", took_effect="no"):
    """The key has no value. Nothing was changed."""


def get(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keyspace get NAME KEY``. Raises KeyAbsent."""
    from ringpop_py.base.values.requests import value_of  # noqa: PLC0415 - help needs nothing that is installed
    from ringpop_py.state.table.conditions import tag_of  # noqa: PLC0415 - as above
    from ringpop_py.state.table.due import at_ms_of, plain  # noqa: PLC0415 - as above

    with _keyspace(client, options.name) as keyspace:
        found = keyspace.get_packed([options.key], stored=True, timeout_s=STORE_TIMEOUT_S)
    if not found:
        raise KeyAbsent(f"keyspace {options.name!r} has no key {options.key!r}")
    stored, at_ms = found[0][1], at_ms_of(found[0][1])
    value = value_of(options.key, plain(stored))
    shown = _shown(options.key, value)
    answer = {"name": options.name, "key": options.key, "value": value, "tag": tag_of(value)}
    if at_ms is None:
        return Output(answer, shown)
    return Output(answer | {"expires_at": at_ms / 1_000}, f"{shown}\n{_expiry_said(at_ms / 1_000)}")


def _shown(key: str, value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:  # bytes, NaN
        raise KeyspaceError(f"the value of key {key!r} cannot be shown as JSON: {error}") from None
    # What could control a terminal is escaped, as JSON does it.
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def watch(client: Client, options: argparse.Namespace) -> NoReturn:
    """``ringpopctl keyspace watch NAME``: a line for each change, until Ctrl-C or an error."""
    with _keyspace(client, options.name) as keyspace:
        changes = keyspace.watch(
            options.prefix, key=options.key, after=options.after, existing=options.existing
        )
        seen = None
        try:
            while True:
                for change in changes.some(WAIT_S):
                    as_json = options.format == "json"
                    print(_json_of(change) if as_json else _line_of(change), flush=True)
                    seen = change.position
                seen = changes.position
        except WatchGap:
            complain("ringpopctl: begin again, with --existing in place of --after")
            raise
        except BaseException:  # also Ctrl-C, or a reader that is gone
            if seen is not None:
                complain(f"ringpopctl: to go on, --after {seen}")
            raise


def _line_of(change: KeyChange) -> str:
    key = _shown(change.key, change.key)
    if change.deleted:
        return f"delete {key}"
    try:
        return f"put {key} {_shown(change.key, change.value)}"
    except KeyspaceError as error:  # the others can be shown
        return f"put {key} ({printable(str(error))})"


def _json_of(change: KeyChange) -> str:
    about = {"key": change.key, "deleted": change.deleted, "position": str(change.position)}
    try:
        return json.dumps({**about, "value": json.loads(_shown(change.key, change.value))})
    except KeyspaceError as error:
        return json.dumps({**about, "error": str(error)})


def _expiry_said(at: float) -> str:
    left_s = at - time.time()
    when = f"in {left_s:,.0f} s" if left_s > 0 else "which is past: its owner deletes it"
    try:
        return f"expires at {datetime.fromtimestamp(at, UTC):%F %T} UTC, {when}"
    except (ValueError, OverflowError):  # after the year 9999
        return f"expires {when}"


def put(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keyspace put NAME KEY VALUE``."""
    value = _value(options.value)
    with _keyspace(client, options.name) as keyspace:
        keyspace.put(
            options.key,
            value,
            if_tag=options.if_tag,
            if_absent=options.if_absent,
            expires_in=options.expires_in,
            expires_at=options.expires_at,
            timeout_s=STORE_TIMEOUT_S,
        )
    return _done(options, "was set")


def delete(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keyspace delete NAME KEY``."""
    if not options.yes:
        confirm("Delete key", options.key, f"its value in {options.name} will be gone")
    with _keyspace(client, options.name) as keyspace:
        keyspace.delete(options.key, if_tag=options.if_tag, timeout_s=STORE_TIMEOUT_S)
    return _done(options, "has no value now")


def _keyspace(client: Client, name: str) -> KeyspaceClient:
    from ringpop_py.client.sync.keyspaces import KeyspaceClient  # noqa: PLC0415 - as above

    # One request: a connection of its own to the owner would only be one more that can fail.
    return KeyspaceClient(client, name, direct=False)


def _value(text: str) -> Any:  # noqa: ANN401 - as JSON has it
    """Return the value in *text*, or on standard input. Raises ConfigError if it is not JSON."""
    from ringpop_py.base.values.packed import decode_value  # noqa: PLC0415 - as above

    given = sys.stdin.read() if text == "-" else text
    if given.strip():  # an empty body would be null
        try:
            return decode_value("json", given.encode())
        except BodyError:
            pass
    if text == "-":
        raise ConfigError("standard input is not JSON")
    quoted = shlex.quote(json.dumps(given))
    raise ConfigError(f"VALUE is not JSON; if it is to be a text, quote it twice: {quoted}")


def _done(options: argparse.Namespace, what: str) -> Output:
    value = {"name": options.name, "key": options.key}
    return Output(value, f"key {options.key!r} of keyspace {options.name!r} {what}")
