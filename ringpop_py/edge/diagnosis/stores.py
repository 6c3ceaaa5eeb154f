"""``ringpopctl config check`` and ``store verify``: whether a file, and a store, can be used."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ringpop_py.base.errors import ConfigError, KeyspaceUnknown
from ringpop_py.base.logs import NAME
from ringpop_py.base.texts import printable, redacted_value
from ringpop_py.edge.cli.commands import ExitCode, Output, Parser, complain, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from ringpop_py.base.config.settings import Config
    from ringpop_py.client.sync.client import Client
    from ringpop_py.state.backups.verify import Verified


def check_config(_client: Client, options: argparse.Namespace) -> Output:
    """Read the file as ringpopd does, start nothing, and return what differs from the defaults.

    Raises:
        ConfigError: ringpopd would not start; a line for each mistake says what and where.
    """
    from ringpop_py.base.config.settings import Config  # noqa: PLC0415 - only this command needs it
    from ringpop_py.edge.cli.options import add_node_options, config_from  # noqa: PLC0415 - as above

    parser = _NodeParser(prog="ringpopctl config check FILE", description="Flags of ringpopd.")
    parser.add_argument("--format", choices=["table", "json"], default=options.format)
    add_node_options(parser)
    flags = parser.parse_args([*options.flags, "--config", options.file])
    options.format = flags.format
    found = redacted_value(dict(_differing(config_from(flags), Config())))
    assert isinstance(found, dict)
    text = f"OK: {options.file}"
    if found:
        text += f"\n{table(('SETTING', 'VALUE'), [(name, _text(v)) for name, v in found.items()])}"
    return Output({"file": options.file, "settings": found}, text)


class _NodeParser(Parser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message + self.suggestion(message))


def _differing(config: Config, usual: Config) -> Iterator[tuple[str, object]]:
    """Yield the settings that differ, by the names that they have in a file, as plain values."""
    for name, value, other in _pairs(config, usual):
        groups = _pairs(value, other) if is_dataclass(value) else [("", value, other)]
        for inner, new, old in groups:
            if new != old:
                yield f"{name}.{inner}".removesuffix("."), _plain(name, new)


def _pairs(one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - of one class
    for field in fields(one):
        yield field.name, getattr(one, field.name), getattr(other, field.name)


def _plain(name: str, value: Any) -> object:  # noqa: ANN401 - of any type that a setting has
    if name == "labels":
        return dict(value)
    if type(value) is tuple:  # an address is a tuple, too
        return [_plain("", item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _text(value: object) -> str:
    match value:
        case list():
            return " ".join(map(str, value))
        case dict():
            return " ".join(f"{name}={text}" for name, text in value.items())
        case bool():
            return "yes" if value else "no"
        case _:
            return "-" if value is None else str(value)


DAMAGED: Final = 2
"""The exit code for a store that is damaged."""
PROGRESS_S: Final = 2.0
SHOWN_MAX: Final = 50
"""The most damages that are shown as text; JSON has all."""


def verify_store(_client: Client, options: argparse.Namespace) -> Output:
    """Read the store at a URL, and put nothing into it.

    Raises:
        ConfigError: there is no such store.
        KeyspaceUnknown: it has no such keyspace.
        StoreUnavailable: it fails.
    """
    from ringpop_py.state.backups.verify import verify  # noqa: PLC0415 - help needs nothing that is installed
    from ringpop_py.state.stores.urls import open_store  # noqa: PLC0415 - likewise

    store = open_store(options.url, create=False)
    logger, silent = logging.getLogger(NAME), logging.NullHandler()
    logger.addHandler(silent)  # damage is shown below
    try:
        found = verify(store, options.keyspace, _progress())
    finally:
        logger.removeHandler(silent)
        store.close()
    if options.keyspace is not None and not found:
        raise KeyspaceUnknown(f"the store has no keyspace {options.keyspace!r}")
    sound = not any(each.damaged or each.partitions_damaged for each in found)
    value = {"sound": sound, "found": [asdict(each) for each in found]}
    return Output(value, text_of(found), ExitCode.OK if sound else DAMAGED)


def _progress() -> Callable[[str], None]:
    told_at = time.monotonic()

    def tell(text: str) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= PROGRESS_S:
            told_at = time.monotonic()
            complain(f"ringpopctl: read {printable(text)}")

    return tell


def text_of(found: Sequence[Verified]) -> str:
    """Return a row for each generation of a keyspace, and a line for each damage."""
    heads = ("CLUSTER", "KEYSPACE", "GENERATION", "OBJECTS", "MB", "DAMAGED")
    rows = [
        (
            each.cluster,
            each.name or "(others)",
            each.generation or "-",
            each.objects,
            round(each.size_bytes / 1e6, 3),
            len(each.damaged),
            "-" if each.partitions is None else each.partitions,
            "-" if each.partitions is None else len(each.partitions_damaged),
        )
        for each in found
    ]
    lines = [text for each in found for text in each.damaged.values()]
    lines += [
        f"partition {number} of {each.name}, generation {each.generation}: {text}"
        for each in found
        for number, text in each.partitions_damaged.items()
    ]
    more = len(lines) - SHOWN_MAX
    lines = [printable(line) for line in lines[:SHOWN_MAX]]
    lines += [f"… and {more} more; --format json has all"] if more > 0 else []
    lines = lines or ["all of it can be read" if rows else "the store is empty"]
    return "\n".join([table((*heads, "PARTITIONS", "DAMAGED"), rows), *lines])
