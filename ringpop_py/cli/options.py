"""From flags and a configuration file to a `Config`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.address import Address
from ringpop_py.cli.parser import did_you_mean
from ringpop_py.cli.quantities import milliseconds, seconds
from ringpop_py.config.settings import (
    PRESETS,
    Config,
    ProxyConfig,
    StateConfig,
    WireLimits,
)
from ringpop_py.discovery.hosts_file import read_hosts_file
from ringpop_py.discovery.statefulset import parse_hosts
from ringpop_py.errors import ConfigError
from ringpop_py.swim.member import applications_labels

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ringpop_py.swim.member import Labels

SECTIONS: Final = frozenset({"gossip", "labels", "proxy", "state", "wire"})
SETTINGS: Final = frozenset(f.name for f in fields(Config)) - SECTIONS - {"hosts"}
ADDRESSES: Final = frozenset({"listen", "advertise", "http"})
FLAGS_ALONE: Final = frozenset({"app", "log_format", "log_level"})
"""What a file cannot say: they are no part of a node's `Config`."""


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """The flags of one node."""
    parser.add_argument("--listen", metavar="HOST:PORT", help="where to accept connections")
    parser.add_argument("--hosts", metavar="FILE", help="bootstrap file: a JSON array, or lines")
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
        "--consistency", metavar="keys|checksum|none", help="what a receiver checks (keys)"
    )
    parser.add_argument(
        "--drain-timeout",
        type=seconds,
        metavar="S",
        help="seconds to wait for what is under way at the end (30)",
    )
    for name in ("suspect", "faulty", "tombstone"):
        parser.add_argument(
            f"--{name}-period", type=milliseconds, metavar="MS", help=f"time as {name}"
        )
    parser.add_argument("--config", metavar="FILE", help="TOML file; flags override it")


def config_from(options: argparse.Namespace) -> Config:
    """The configuration that *options* describe, the file's values under the flags'.

    Raises:
        ConfigError: if something in them cannot be used; one line says what, and what to do.
    """
    in_file = _read_toml(options.config) if options.config else {}
    listens = options.listen is not None or "listen" in in_file
    preset = None if options.preset is None else _preset(options.preset)
    with _named(f"config file {options.config}: "):
        below = _from_file(in_file, preset, options.dialect)
    config = _with_flags(below, options, names_cluster="cluster" in in_file)
    if not listens:
        message = "--listen HOST:PORT is missing (for example --listen 127.0.0.1:3000)"
        raise ConfigError(message)
    if config.hosts_file is not None:
        read_hosts_file(config.hosts_file)  # complain before anything is started
    return config


def _with_flags(config: Config, options: argparse.Namespace, *, names_cluster: bool) -> Config:
    """Return *config* overridden by the flags.

    Without a cluster's name from the file or a flag (*names_cluster*), the dialect gives it.
    """
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
        "drain_timeout_s": options.drain_timeout,
    }
    given = {key: value for key, value in flags.items() if value is not None}
    if not names_cluster:
        given.setdefault("cluster", None)  # that of the dialect, which a flag may have changed
    for key in ADDRESSES & given.keys():
        given[key] = Address.parse(given[key], what=f"--{key}")
    periods = {
        f"{name}_s": getattr(options, f"{name}_period") / 1000
        for name in ("suspect", "faulty", "tombstone")
        if getattr(options, f"{name}_period") is not None
    }
    proxy = {} if options.consistency is None else {"consistency": options.consistency}
    labels = {**dict(config.labels), **dict(_label(text) for text in options.label)}
    return replace(
        config,
        **given,
        labels=applications_labels(tuple(labels.items())),
        gossip=replace(config.gossip, **periods),
        proxy=replace(config.proxy, **proxy),
    )


# The configuration file.


def _from_file(values: dict[str, Any], preset: str | None, dialect: str | None) -> Config:
    """What the *values* of a file say; *preset* and *dialect* as flags have them."""
    _check_names(values)
    plain = (dialect or values.get("dialect")) == "ringpop"
    in_file = _preset(values.get("preset", "ringpop" if plain else "lan"))
    bases = {
        "gossip": PRESETS[preset or in_file],
        "proxy": ProxyConfig(),
        "state": StateConfig(),
        "wire": WireLimits(),
    }
    settings = {key: values[key] for key in SETTINGS & values.keys()}
    for key in ADDRESSES & settings.keys():
        settings[key] = Address.parse(str(settings[key]), what=key)
    return Config(
        **settings,
        hosts=_hosts(values.get("hosts", [])),
        labels=_labels(values.get("labels", {})),
        **{name: _section(name, values.get(name, {}), base) for name, base in bases.items()},
    )


def _check_names(values: dict[str, Any]) -> None:
    known = {*SETTINGS, "hosts", "preset"}
    unknown = sorted(values.keys() - known - SECTIONS)
    if not unknown:
        return
    (name, *_) = unknown
    if name in FLAGS_ALONE:
        message = f"{name!r} is a flag alone: --{name.replace('_', '-')}"
        raise ConfigError(message)
    sections = ", ".join(f"[{section}]" for section in sorted(SECTIONS))
    settings = ", ".join(sorted(known))
    message = f"unknown setting {name!r}{did_you_mean(name, known)}; known: {settings}, "
    message += f"and sections: {sections}"
    raise ConfigError(message)


def _section(name: str, values: object, base: Any) -> Any:  # noqa: ANN401 - one of many
    if not isinstance(values, dict):
        message = f"{name} is a section, not {values!r}"
        raise ConfigError(message)
    known = {f.name for f in fields(base)}
    if values.keys() - known:
        wrong = min(values.keys() - known)
        message = f"[{name}] has no setting {wrong!r}{did_you_mean(wrong, known)}; "
        message += f"it has {', '.join(sorted(known))}"
        raise ConfigError(message)
    fitting = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    with _named(f"[{name}] "):
        return replace(base, **fitting)


def _preset(name: object) -> str:
    if not isinstance(name, str) or name not in PRESETS:
        message = f"preset is one of {', '.join(PRESETS)}, not {name!r}"
        raise ConfigError(message)
    return name


def _hosts(value: object) -> tuple[Address, ...]:
    if not isinstance(value, list):
        message = f"hosts is a list of addresses, not {value!r}"
        raise ConfigError(message)
    return tuple(host for text in value for host in parse_hosts(str(text)))


def _labels(value: object) -> Labels:
    texts = value.values() if isinstance(value, dict) else [None]
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in texts):
        message = f"[labels] holds text by name, not {value!r}"
        raise ConfigError(message)
    return applications_labels(tuple(value.items()))


@contextmanager
def _named(place: str) -> Iterator[None]:
    """A ConfigError within is told with its *place*."""
    try:
        yield
    except ConfigError as error:
        message = f"{place}{error}"
        raise ConfigError(message) from None


def _read_toml(path: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - few nodes have such a file

    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        message = f"config file {path}: {error.strerror or error}"
        raise ConfigError(message) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"config file {path}: not TOML: {error}"
        raise ConfigError(message) from None


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        message = f"--label {text!r} is not KEY=VALUE"
        raise ConfigError(message)
    return key, value
