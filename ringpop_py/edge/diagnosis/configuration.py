"""``ringpopctl config check``: whether a node can be started with a file, and how it is set."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ringpop_py.base.errors import ConfigError
from ringpop_py.base.texts import redacted_value
from ringpop_py.edge.cli.commands import Output, Parser, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ringpop_py.base.config.settings import Config
    from ringpop_py.client.sync.client import Client


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
