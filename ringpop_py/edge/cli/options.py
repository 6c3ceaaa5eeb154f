"""Builds the `Config` of a node from flags and a configuration file."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.address import Address
from ringpop_py.base.config.places import KEY_VARIABLE, default_socket
from ringpop_py.base.config.settings import (
    PRESETS,
    Config,
    EntryConfig,
    GossipConfig,
    ProxyConfig,
    ShuffleConfig,
    StateConfig,
    WireLimits,
)
from ringpop_py.base.errors import ConfigError
from ringpop_py.base.rules import TEXT, Rule
from ringpop_py.edge.cli.commands import period, seconds, size
from ringpop_py.member.discovery.hosts import SCHEMES, parse_hosts, read_hosts_file

if TYPE_CHECKING:
    from ringpop_py.member.swim.member import Labels

GROUPS: Final[dict[str, Any]] = {
    "entry": EntryConfig(),
    "gossip": GossipConfig(),
    "proxy": ProxyConfig(),
    "shuffle": ShuffleConfig(),
    "state": StateConfig(),
    "wire": WireLimits(),
}
SETTINGS: Final = {f.name for f in fields(Config)} - {"hosts", "labels", *GROUPS}
ADDRESSES: Final = {"listen", "advertise", "http", "http_in", "statsd"}
PERIODS: Final = ("suspect", "faulty", "tombstone")
KNOWN: Final = {
    "": ("preset", *(f.name for f in fields(Config))),
    **{group: tuple(f.name for f in fields(base)) for group, base in GROUPS.items()},
}
"""The names that a file may have: at its top, and in each table."""
_FORMS: Final = (
    {"http_hosts": "http_hosts, a list", "label": "labels, a table"}
    | {f"gossip.{name}_s": f"gossip.{name}_s, in seconds" for name in PERIODS}
    | {"dead_after_s": "gossip.suspect_s, with gossip.confirmations = false"}
)
"""How a file has settings that their flags write in another way, by `dest`."""
FLAGS_ALONE: Final = {
    *("app", "config", "gc_threshold", "log_format", "log_level", "run_as_leader"),
}
"""Flags that a file cannot set, because they are not part of a `Config`."""
_LIST: Final = Rule("a list of addresses", lambda value: isinstance(value, list))
_TEXTS: Final = Rule(
    "a table of texts", lambda v: isinstance(v, dict) and all(map(TEXT.sound, v.values()))
)
HOSTS_VARIABLE: Final = "RINGPOP_HOSTS"
HOSTS_HELP: Final = (
    "bootstrap file: a JSON array, or lines; or dns://NAME:PORT, srv://_SERVICE._tcp.NAME or "
    f"statefulset://APP.NAMESPACE:PORT (${HOSTS_VARIABLE})"
)
FLAGS: Final = (
    ("--advertise", "HOST:PORT", "the address at which members reach this node"),
    ("--cluster", "NAME", "name of the cluster (default; in the ringpop dialect ringpop)"),
    ("--dialect", "native|ringpop", "the dialect of the protocol (native)"),
    ("--preset", "|".join(PRESETS), "timing (lan; in the ringpop dialect ringpop)"),
    ("--service", "NAME", "the application's service name (app)"),
    ("--http", "HOST:PORT", "serve keyspaces and health over HTTP"),
    ("--http-cert", "FILE", "certificate chain in PEM that --http and --http-in show"),
    ("--http-key", "FILE", "the private key of --http-cert"),
    ("--app-url", "URL", "replay forwarded HTTP requests there"),
    ("--app-health", "PATH", "a page of the application: below 400 means that it can serve"),
    ("--http-in", "HOST:PORT", "take HTTP requests there, for the owners of their keys; see --key"),
    ("--store", "URL|FOLDER", "where durable keyspaces live; see below (nowhere)"),
    ("--cluster-key", "FILE", "keys of the cluster (ringpopctl keygen): TLS on all connections"),
    ("--lease", "NAMESPACE/NAME", "show who leads in this Lease of Kubernetes"),
    ("--statsd", "HOST:PORT", "send counts there by UDP, under the names of Ringpop (nowhere)"),
    ("--audit", "FILE", "append a line of JSON for each access of a client to data (none)"),
    ("--config", "FILE", "TOML file; flags override it"),
)
"""Text flags that are named as their settings are: flag, metavar, help."""


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of one node; `dest` is the path of the setting in a `Config`."""
    add = parser.add_argument
    add("--listen", metavar="HOST:PORT", help="where to accept connections")
    add("--hosts", dest="hosts_file", metavar="FILE|URL", help=HOSTS_HELP)
    add("--name", "--identity", metavar="NAME", help="the node's name (its address)")
    for flag, metavar, text in FLAGS:
        add(flag, metavar=metavar, help=text)
    text = "where --http-in finds the key: header:NAME, path:/PART/{key}, query:NAME or cookie:NAME"
    add("--key", dest="http_in_key", metavar="RULE", help=text)
    for flag, dest, text in (
        ("--http-in-timeout", "timeout_s", "seconds until an answer begins (10)"),
        ("--http-in-idle-timeout", "idle_timeout_s", "seconds without any of it after that (120)"),
        ("--http-in-total-timeout", "total_timeout_s", "seconds until its end (no limit)"),
    ):
        add(flag, dest=f"entry.{dest}", type=seconds, metavar="S", help=f"--http-in: {text}")
    text = "--http-in: the largest body, as 10MiB (1GiB)"
    add("--http-in-body-max", dest="entry.body_bytes_max", type=size, metavar="SIZE", help=text)
    text = "--http-in: a network of proxies whose X-Forwarded headers are believed; may be repeated"
    add("--http-in-trust", dest="entry.trusted", action="append", metavar="CIDR", help=text)
    text = "a name under which --http is reached; may be repeated"
    add("--http-host", dest="http_hosts", action="append", metavar="NAME", help=text)
    text = f"a Unix socket for programs on this host ({default_socket()}, if no PATH is given)"
    usual = str(default_socket())
    add("--socket", nargs="?", const=usual, metavar="PATH", help=text)
    for flag, text in (
        ("--accept-plain", "accept connections without TLS as well, until all members have keys"),
        ("--dial-plain", "make connections without TLS, until all members have keys"),
        ("--tracing", "make spans of OpenTelemetry for calls that belong to a trace"),
        ("--insecure", "serve without keys where other machines may reach this node"),
        ("--create-store", "make the store if it is not there; otherwise the node does not start"),
    ):
        add(flag, action="store_true", default=None, help=text)
    add("--ring-points", type=int, metavar="N", help="points of each member on the ring (100)")
    text = "a label of this node; may be repeated"
    add("--label", action="append", default=[], metavar="KEY=VALUE", help=text)
    text = "what the receiver of a forwarded request checks (keys)"
    add("--consistency", dest="proxy.consistency", metavar="keys|checksum|none", help=text)
    text = "seconds to wait for open requests when the node ends (30)"
    add("--drain-timeout", dest="drain_timeout_s", type=seconds, metavar="S", help=text)
    text = "declare a member faulty that was silent for about S seconds (a few, by the preset)"
    add("--dead-after", dest="dead_after_s", type=seconds, metavar="S", help=text)
    text = "hold rows of shuffles in FOLDER, in a process beside the node"
    add("--shuffle-folder", dest="shuffle.folder", metavar="FOLDER", help=text)
    for name in PERIODS:
        text = f"milliseconds that a member stays {name}"
        add(f"--{name}-period", dest=f"gossip.{name}_s", type=period, metavar="MS", help=text)
    _add_limits(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for flag, dest, text in (
        ("--shuffle-memory", "shuffle.memory_bytes", "its memory for rows, as 2GiB (1GiB)"),
        ("--shuffle-disk", "shuffle.disk_bytes", "its disk for rows (all that is free)"),
        ("--client-bytes-max", "wire.client_bytes_max", "bytes a second of a client (no limit)"),
    ):
        add(flag, dest=dest, type=size, metavar="SIZE", help=text)
    for dest, text in (
        ("wire.client_requests_max", "requests a second of a client, if keys prove it (no limit)"),
        ("expect", "members that the cluster should have: ringpopctl check says what is missing"),
        ("state.keyspaces_max", "keyspaces that the cluster may have (1000)"),
        ("state.partitions_max", "partitions that these may have in all (65536)"),
        ("state.client_keyspaces_max", "keyspaces that a client with a certificate may make (250)"),
        ("state.client_partitions_max", "partitions that these may have in all (16384)"),
    ):
        flag = "--" + dest.rpartition(".")[2].replace("_", "-")
        add(flag, dest=dest, type=int, metavar="N", help=text)


def config_from(options: argparse.Namespace) -> Config:
    """Return the configuration that *options* describe; flags override the file.

    Raises:
        ConfigError: values cannot be used; a line for each says what, where, and what to do.
    """
    flags = {name: value for name, value in vars(options).items() if value is not None}
    if flags.get("preset", "lan") not in PRESETS:
        raise ConfigError(f"preset is one of {', '.join(PRESETS)}, not {options.preset!r}")
    # Whether a value was given, which `Config` cannot show: it has a default for each.
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
    variable = os.environ.get(HOSTS_VARIABLE)
    if variable and "hosts_file" not in flags and not (below.hosts_file or below.hosts):
        flags["hosts_file"] = variable
    variable = os.environ.get(KEY_VARIABLE)
    if variable and "cluster_key" not in flags and below.cluster_key is None:
        flags["cluster_key"] = variable
    if flags.get("hosts_file", "").startswith(SCHEMES):
        hosts = parse_hosts(flags.pop("hosts_file"))
        below = replace(below, hosts=(*below.hosts, *hosts), hosts_file=None)
    config = _with_flags(below, flags, names_cluster=names_cluster)
    if "dead_after_s" in flags:
        config = replace(config, gossip=config.gossip.dead_after(flags["dead_after_s"]))
    if config.hosts_file is not None:
        read_hosts_file(config.hosts_file)  # an error ends the command before anything is started
    return config


def _with_flags(config: Config, flags: dict[str, Any], *, names_cluster: bool) -> Config:
    given = {name: flags[name] for name in SETTINGS & flags.keys()}
    if not names_cluster:
        given.setdefault("cluster", None)  # the dialect's, which a flag may have changed
    if "http_hosts" in given:
        given["http_hosts"] = tuple(given["http_hosts"])
    for name in ADDRESSES & given.keys():
        given[name] = Address.parse(given[name], what=f"--{name.replace('_', '-')}")
    for group in GROUPS:
        values = {
            name.removeprefix(f"{group}."): _frozen(value)
            for name, value in flags.items()
            if name.startswith(f"{group}.")
        }
        if values:
            given[group] = replace(getattr(config, group), **values)
    # Unlike other flags, labels add to those of the file.
    labels = {**dict(config.labels), **dict(_label(text) for text in flags["label"])}
    return replace(config, **given, labels=_applications_labels(labels))


def _from_file(path: str, flags: dict[str, Any]) -> tuple[Config, set[str]]:
    """Return the file's configuration, and the names in it. *flags* override preset and dialect."""
    from ringpop_py.base.config.document import TomlTable, read_toml  # noqa: PLC0415 - few have a file

    said = read_toml(path)
    top = TomlTable(said, "", [])
    top.check_names(KNOWN, _told_of_flags())
    plain = (flags.get("dialect") or said.get("dialect")) == "ringpop"
    preset = top.choice("preset", list(PRESETS), "ringpop" if plain else "lan")
    settings = {name: _frozen(said[name]) for name in (SETTINGS - ADDRESSES) & said.keys()}
    for name in sorted(ADDRESSES & said.keys()):
        with top.noting():
            settings[name] = Address.parse(str(said[name]), what=name)
    with top.noting():
        hosts: list[object] = top.ruled("hosts", _LIST, [])
        settings["hosts"] = tuple(host for text in hosts for host in parse_hosts(str(text)))
    with top.noting():
        settings["labels"] = _applications_labels(top.ruled("labels", _TEXTS, {}))
    bases = {**GROUPS, "gossip": PRESETS[flags.get("preset", preset)]}
    for group, base in bases.items():
        table = top.table(group)
        table.check_names(KNOWN)
        values = {name: _frozen(table.value(name)) for name in KNOWN[group] if name in table}
        with table.noting():
            settings[group] = replace(base, **values)
    config = Config()  # never used if the settings are refused: that is a problem, raised below
    with top.noting():
        config = Config(**settings)
    if top.problems:
        raise ConfigError("\n".join(top.problems))
    return config, set(said)


def _frozen(value: object) -> Any:  # noqa: ANN401 - of any type that TOML has
    return tuple(value) if isinstance(value, list) else value


def _told_of_flags() -> dict[str, str]:
    """Return what to tell those who write a flag into a file, by the flag's name."""
    told: dict[str, str] = {}
    parser = argparse.ArgumentParser(add_help=False)
    add_node_options(parser)
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        setting = _FORMS.get(action.dest, action.dest)
        for flag in action.option_strings:
            for name in (flag[2:], flag[2:].replace("-", "_")):
                told[name] = f"{name}: unknown; in a file this is {setting}"
    for name in FLAGS_ALONE:
        told[name] = f"{name!r} can only be set by a flag: --{name.replace('_', '-')}"
    return told


def _applications_labels(labels: dict[str, str]) -> Labels:
    from ringpop_py.member.swim import member  # noqa: PLC0415 - help needs nothing that is installed

    return member.applications_labels(tuple(labels.items()))


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise ConfigError(f"--label {text!r} is not KEY=VALUE")
    return key, value
