"""From flags and a configuration file to a `Config`."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.address import Address
from ringpop_py.cli.commands import period, seconds
from ringpop_py.config.settings import (
    PRESETS,
    Config,
    GossipConfig,
    ProxyConfig,
    StateConfig,
    WireLimits,
)
from ringpop_py.discovery.hosts import parse_hosts, read_hosts_file
from ringpop_py.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from ringpop_py.swim.member import Labels

GROUPS: Final[dict[str, Any]] = {
    "gossip": GossipConfig(),
    "proxy": ProxyConfig(),
    "state": StateConfig(),
    "wire": WireLimits(),
}
SETTINGS: Final = {f.name for f in fields(Config)} - {"hosts", "labels", *GROUPS}
ADDRESSES: Final = {"listen", "advertise", "http"}
KNOWN: Final = {
    "": ("preset", *(f.name for f in fields(Config))),
    **{group: tuple(f.name for f in fields(base)) for group, base in GROUPS.items()},
}
"""What a file may name: at its top, and in each table."""
FLAGS_ALONE: Final = {"app", "log_format", "log_level"}
"""What a file cannot say: they are no part of a node's `Config`."""


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of one node; `dest` is the place of what a flag sets in a `Config`."""
    parser.add_argument("--listen", metavar="HOST:PORT", help="where to accept connections")
    parser.add_argument(
        "--hosts", dest="hosts_file", metavar="FILE", help="bootstrap file: a JSON array, or lines"
    )
    parser.add_argument(
        "--advertise", metavar="HOST:PORT", help="the address at which members reach us"
    )
    parser.add_argument("--name", "--identity", metavar="NAME", help="name (default: the address)")
    parser.add_argument("--cluster", metavar="NAME", help="name of the cluster (default)")
    parser.add_argument("--dialect", metavar="native|ringpop", help="the protocol's dialect")
    parser.add_argument("--preset", metavar="|".join(PRESETS), help="timing (lan; the dialect's)")
    parser.add_argument("--ring-points", type=int, metavar="N", help="points a member (100)")
    parser.add_argument(
        "--label", action="append", default=[], metavar="KEY=VALUE", help="a label of this node"
    )
    parser.add_argument("--service", metavar="NAME", help="the application's service name (app)")
    parser.add_argument("--http", metavar="HOST:PORT", help="serve keyspaces and health over HTTP")
    parser.add_argument("--app-url", metavar="URL", help="replay forwarded HTTP requests there")
    parser.add_argument(
        "--store", metavar="URL|FOLDER", help="where durable keyspaces live; see below (nowhere)"
    )
    parser.add_argument(
        "--consistency",
        dest="proxy.consistency",
        metavar="keys|checksum|none",
        help="what a receiver checks (keys)",
    )
    parser.add_argument(
        "--drain-timeout",
        dest="drain_timeout_s",
        type=seconds,
        metavar="S",
        help="seconds to wait for what is under way at the end (30)",
    )
    for name in ("suspect", "faulty", "tombstone"):
        parser.add_argument(
            f"--{name}-period",
            dest=f"gossip.{name}_s",
            type=period,
            metavar="MS",
            help=f"time as {name}",
        )
    parser.add_argument("--config", metavar="FILE", help="TOML file; flags override it")


def config_from(options: argparse.Namespace) -> Config:
    """The configuration that *options* describe, the file's values under the flags'.

    Raises:
        ConfigError: with all that cannot be used; each line says what, where, and what to do.
    """
    flags = {name: value for name, value in vars(options).items() if value is not None}
    if flags.get("preset", "lan") not in PRESETS:
        raise ConfigError(f"preset is one of {', '.join(PRESETS)}, not {options.preset!r}")
    listens, names_cluster = "listen" in flags, False
    preset = "ringpop" if flags.get("dialect") == "ringpop" else "lan"
    below = Config(gossip=PRESETS[flags.get("preset", preset)])
    if options.config:
        try:
            below, named = _from_file(options.config, flags)
        except ConfigError as error:
            lines = (f"config file {options.config}: {line}" for line in str(error).splitlines())
            raise ConfigError("\n".join(lines)) from None
        listens, names_cluster = listens or "listen" in named, "cluster" in named
    if not listens:
        raise ConfigError("--listen HOST:PORT is missing (for example --listen 127.0.0.1:3000)")
    config = _with_flags(below, flags, names_cluster=names_cluster)
    if config.hosts_file is not None:
        read_hosts_file(config.hosts_file)  # complain before anything is started
    return config


def _with_flags(config: Config, flags: dict[str, Any], *, names_cluster: bool) -> Config:
    """Return *config* overridden by the flags.

    Without a cluster's name from the file or a flag (*names_cluster*), the dialect gives it.
    """
    given = {name: flags[name] for name in SETTINGS & flags.keys()}
    if not names_cluster:
        given.setdefault("cluster", None)  # that of the dialect, which a flag may have changed
    for name in ADDRESSES & given.keys():
        given[name] = Address.parse(given[name], what=f"--{name}")
    for group in GROUPS:
        values = {
            name.removeprefix(f"{group}."): value
            for name, value in flags.items()
            if name.startswith(f"{group}.")
        }
        if values:
            given[group] = replace(getattr(config, group), **values)
    labels = {**dict(config.labels), **dict(_label(text) for text in flags["label"])}
    return replace(config, **given, labels=_applications_labels(labels))


def _from_file(path: str, flags: dict[str, Any]) -> tuple[Config, set[str]]:
    """What the file says, where *flags* have no other preset or dialect; and what it names."""
    from ringpop_py.config.document import (  # noqa: PLC0415 - few nodes have such a file
        TomlTable,
        read_toml,
    )

    said = read_toml(path)
    flags_alone = FLAGS_ALONE & said.keys()
    top = TomlTable({name: said[name] for name in said if name not in FLAGS_ALONE}, "", [])
    for name in sorted(flags_alone):
        top.problems.append(f"{name!r} is a flag alone: --{name.replace('_', '-')}")
    top.check_names(KNOWN)
    plain = (flags.get("dialect") or said.get("dialect")) == "ringpop"
    preset = top.choice("preset", list(PRESETS), "ringpop" if plain else "lan")
    settings = {name: said[name] for name in (SETTINGS - ADDRESSES) & said.keys()}
    for name in sorted(ADDRESSES & said.keys()):
        with top.noting():
            settings[name] = Address.parse(str(said[name]), what=name)
    with top.noting():
        settings["hosts"] = _hosts(said.get("hosts", []))
    with top.noting():
        settings["labels"] = _labels(said.get("labels", {}))
    bases = {**GROUPS, "gossip": PRESETS[flags.get("preset", preset)]}
    for group, base in bases.items():
        table = top.table(group)
        table.check_names(KNOWN)
        values = {name: table.value(name) for name in KNOWN[group] if name in table}
        with table.noting():
            settings[group] = replace(
                base, **{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
            )
    config = Config()
    with top.noting():
        config = Config(**settings)
    if top.problems:
        raise ConfigError("\n".join(top.problems))
    return config, set(said)


def _hosts(value: object) -> tuple[Address, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"hosts is a list of addresses, not {value!r}")
    return tuple(host for text in value for host in parse_hosts(str(text)))


def _labels(value: object) -> Labels:
    texts = value.values() if isinstance(value, dict) else [None]
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"labels: is a table of texts, not {value!r}")
    return _applications_labels(value)


def _applications_labels(labels: dict[str, str]) -> Labels:
    from ringpop_py.swim.member import (  # noqa: PLC0415 - help needs nothing that is installed
        applications_labels,
    )

    return applications_labels(tuple(labels.items()))


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise ConfigError(f"--label {text!r} is not KEY=VALUE")
    return key, value
