"""From flags and a configuration file to a `Config`."""

from __future__ import annotations

import argparse
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from ringpop_py.address import Address
from ringpop_py.config import (
    PRESETS,
    Config,
    GossipConfig,
    ProxyConfig,
    StateConfig,
    WireLimits,
)
from ringpop_py.discovery.hosts_file import read_hosts_file
from ringpop_py.discovery.statefulset import parse_hosts
from ringpop_py.errors import ConfigError
from ringpop_py.membership.member import applications_labels

SECTIONS: Final = {
    "gossip": GossipConfig,
    "proxy": ProxyConfig,
    "state": StateConfig,
    "wire": WireLimits,
}
ADDRESSES: Final = ("listen", "advertise", "http")


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """The flags of one node."""
    parser.add_argument("--listen", metavar="HOST:PORT", help="where to accept connections")
    parser.add_argument("--hosts", metavar="FILE", help="bootstrap file: a JSON array, or lines")
    parser.add_argument("--advertise", metavar="HOST:PORT", help="what others are to call us")
    parser.add_argument("--name", "--identity", metavar="NAME", help="name (default: the address)")
    parser.add_argument("--cluster", metavar="NAME", help="name of the cluster (default: default)")
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
        "--consistency", metavar="keys|checksum|none", help="what a receiver checks (keys)"
    )
    for name in ("suspect", "faulty", "tombstone"):
        parser.add_argument(
            f"--{name}-period", type=_milliseconds, metavar="MS", help=f"time as {name}"
        )
    parser.add_argument("--config", metavar="FILE", help="TOML file; flags override it")


def config_from(options: argparse.Namespace) -> Config:
    """The configuration that *options* describe, the file's values under the flags'.

    Raises:
        ConfigError: if something in them cannot be used; one line says what, and what to do.
    """
    values = _read_toml(options.config) if options.config else {}
    sections = {name: values.pop(name, {}) for name in SECTIONS}
    in_file = values.pop("preset", None)
    plain = (options.dialect or values.get("dialect")) == "ringpop"
    preset = options.preset or in_file or ("ringpop" if plain else "lan")
    if not isinstance(preset, str) or preset not in PRESETS:
        message = f"preset is one of {', '.join(PRESETS)}, not {preset!r}"
        raise ConfigError(message)
    gossip = _section("gossip", sections["gossip"], PRESETS[preset])
    periods = {
        f"{name}_s": getattr(options, f"{name}_period") / 1000
        for name in ("suspect", "faulty", "tombstone")
        if getattr(options, f"{name}_period") is not None
    }
    proxy = _section("proxy", sections["proxy"], ProxyConfig())
    if options.consistency is not None:
        proxy = replace(proxy, consistency=options.consistency)
    flags = {
        "listen": options.listen,
        "advertise": options.advertise,
        "name": options.name,
        "cluster": options.cluster,
        "dialect": options.dialect,
        "hosts_file": options.hosts,
        "ring_points": options.ring_points,
        "service": options.service,
        "app_url": options.app_url,
        "store": options.store,
        "http": options.http,
    }
    given = {**values, **{key: value for key, value in flags.items() if value is not None}}
    labels = {**_labels(given.pop("labels", {})), **dict(_label(text) for text in options.label)}
    config = _config(given, options.config)
    if config.listen.port == 0 and options.listen is None and "listen" not in values:
        message = "--listen HOST:PORT is missing (for example --listen 127.0.0.1:3000)"
        raise ConfigError(message)
    if config.hosts_file is not None:
        read_hosts_file(config.hosts_file)  # complain before anything is started
    return replace(
        config,
        labels=applications_labels(tuple(labels.items())),
        gossip=replace(gossip, **periods),
        proxy=proxy,
        state=_section("state", sections["state"], StateConfig()),
        wire=_section("wire", sections["wire"], WireLimits()),
    )


def _config(given: dict[str, Any], file: str | None) -> Config:
    known = {f.name for f in fields(Config)} - {*SECTIONS, "hosts", "labels"}
    unknown = sorted(set(given) - known - {"hosts"})
    if unknown:
        message = f"config file {file}: unknown setting {unknown[0]!r}; known: {sorted(known)}"
        raise ConfigError(message)
    for key in ADDRESSES:
        if key in given:
            given[key] = Address.parse(str(given[key]), what=f"--{key}")
    if "hosts" in given:
        if not isinstance(given["hosts"], list):
            message = f"config file {file}: hosts is a list of addresses, not {given['hosts']!r}"
            raise ConfigError(message)
        found = [parse_hosts(str(host)) for host in given["hosts"]]
        given["hosts"] = tuple(host for hosts in found for host in hosts)
    try:
        return Config(**given)
    except TypeError as error:
        message = f"config file {file}: a setting has a value of the wrong kind: {error}"
        raise ConfigError(message) from None


def _section(name: str, values: object, base: Any) -> Any:  # noqa: ANN401 - one of SECTIONS
    known = {f.name for f in fields(base)}
    if not isinstance(values, dict) or set(values) - known:
        wrong = min(set(values) - known) if isinstance(values, dict) else values
        message = f"config file: [{name}] has no setting {wrong!r}; it has {sorted(known)}"
        raise ConfigError(message)
    fitting = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    try:
        return replace(base, **fitting)
    except TypeError as error:
        message = f"config file: [{name}] has a value of the wrong kind: {error}"
        raise ConfigError(message) from None


def _read_toml(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        message = f"config file {path}: {error.strerror or error}"
        raise ConfigError(message) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"config file {path}: not TOML: {error}"
        raise ConfigError(message) from None


def _labels(value: object) -> dict[str, str]:
    texts = value.values() if isinstance(value, dict) else [None]
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in texts):
        message = f"config file: [labels] holds text by name, not {value!r}"
        raise ConfigError(message)
    return value


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        message = f"--label {text!r} is not KEY=VALUE"
        raise ConfigError(message)
    return key, value


def _milliseconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        message = "must be above 0"
        raise argparse.ArgumentTypeError(message)
    return value
