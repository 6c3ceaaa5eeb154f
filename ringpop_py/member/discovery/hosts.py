"""Hosts as text: an address, what DNS knows, a StatefulSet in Kubernetes, or a file of these."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

from ringpop_py.base.address import (
    HOST_CHARACTERS_MAX,
    PORT_MAX,
    Address,
    DnsLookup,
    Host,
    is_numeric,
)
from ringpop_py.base.errors import ConfigError, HostsFileError

FILE_BYTES_MAX: Final = 4 << 20
SCHEME: Final = "statefulset://"
REPLICAS_MAX: Final = 1_000  # each is a host to try
EXAMPLE: Final = "statefulset://APP.NAMESPACE:3000, with ?replicas=3 or without"
DNS_EXAMPLE: Final = (
    "dns://NAME:PORT or srv://_SERVICE._tcp.NAME, with ?server=HOST:PORT or without"
)
SCHEMES: Final = (SCHEME, "dns://", "srv://")
"""Hosts with such a beginning are looked up whenever a node looks for others."""

_DNS_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[-A-Za-z0-9._]*[A-Za-z0-9])?\.?")
_DNS_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def statefulset_hosts(app: str, namespace: str, replicas: int, port: int) -> tuple[Address, ...]:
    """Return ``{app}-{ordinal}.{app}-headless.{namespace}.svc:{port}`` for each of *replicas*.

    These are the names that the headless service gives them. Not all need to run: a node contacts
    hosts until one answers.

    Raises:
        ConfigError: a name, the port or the number of replicas is not valid.
    """
    for name, what in ((app, "app"), (namespace, "namespace")):
        if not _DNS_LABEL.fullmatch(name):
            rule = "is a DNS label (a-z, 0-9, -)"
            raise ConfigError(f"the {what} of a StatefulSet {rule}, not {name!r}")
    if not 1 <= replicas <= REPLICAS_MAX:
        raise ConfigError(f"a StatefulSet has 1 to {REPLICAS_MAX} replicas here, not {replicas}")
    if not 1 <= port <= PORT_MAX:
        raise ConfigError(f"a port is a number from 1 to {PORT_MAX}, not {port}")
    domain = f"{app}-headless.{namespace}.svc"
    return tuple(Address(f"{app}-{ordinal}.{domain}", port) for ordinal in range(replicas))


def parse_hosts(text: str, *, what: str = "hosts") -> tuple[Host, ...]:
    """Return the hosts in *text*: an address, or as in `EXAMPLE` and `DNS_EXAMPLE`.

    Raises:
        ConfigError: *text* is none of these; the message begins with *what*.
    """
    if text.startswith(SCHEME):
        return _statefulset(text, what)
    if text.startswith(SCHEMES):
        return (_lookup(text, what),)
    return (Address.parse(text, what=what),)


def _statefulset(text: str, what: str) -> tuple[Host, ...]:
    try:
        parts = urlsplit(text)
        app, _, namespace = (parts.hostname or "").partition(".")
        port, replicas = parts.port or 0, None
        if parts.query:
            query = parse_qs(parts.query, strict_parsing=True, max_num_fields=1)
            replicas = int(query["replicas"][0])
    except (ValueError, KeyError):
        raise ConfigError(f"{what} {text!r} is not {EXAMPLE}") from None
    try:
        hosts = statefulset_hosts(app, namespace, 1 if replicas is None else replicas, port)
    except ConfigError as error:
        raise ConfigError(f"{what} {text!r}: {error}") from None
    if replicas is not None:
        return hosts
    # The headless service has an address for each replica that runs, however many these are.
    return (DnsLookup("dns", f"{app}-headless.{namespace}.svc", port),)


def _lookup(text: str, what: str) -> DnsLookup:
    wrong = ConfigError(f"{what} {text!r} is not {DNS_EXAMPLE}")
    try:
        parts = urlsplit(text)
        query = parse_qs(parts.query, strict_parsing=bool(parts.query), max_num_fields=1)
        name, port = parts.hostname or "", parts.port or 0
    except ValueError:
        raise wrong from None
    kind: Literal["dns", "srv"] = "dns" if parts.scheme == "dns" else "srv"
    has_port = port > 0
    sound = _DNS_NAME.fullmatch(name) and len(name) <= HOST_CHARACTERS_MAX
    if not sound or parts.path or has_port != (kind == "dns") or query.keys() - {"server"}:
        raise wrong
    server = None
    if "server" in query:
        server = Address.parse(query["server"][0], what=f"{what} {text!r}: server")
        if not is_numeric(server.host):
            raise ConfigError(f"{what} {text!r}: a server is an IP address and a port")
    return DnsLookup(kind, name, port, server)


def listed_addresses(path: str) -> tuple[Address, ...]:
    """Return the hosts in a file, for a program that does no lookups. Raises ConfigError."""
    hosts = read_hosts_file(path)
    addresses = tuple(host for host in hosts if isinstance(host, Address))
    if len(addresses) < len(hosts):
        other = next(host for host in hosts if not isinstance(host, Address))
        raise ConfigError(
            f"hosts file {path}: {other} is for daemons, which look it up; list HOST:PORT here"
        )
    return addresses


def read_hosts_file(path: str) -> tuple[Host, ...]:
    """Return the hosts in the file at *path*, each once, in their order.

    The file is a JSON array, or has one entry on each line; blank lines and text after a ``#`` are
    skipped.

    Raises:
        HostsFileError: the file cannot be read, or an entry is not an address; the message says
            which, and what to do.
    """
    try:
        data = Path(path).read_bytes()
        if len(data) > FILE_BYTES_MAX:
            raise HostsFileError(f"hosts file {path}: larger than {FILE_BYTES_MAX} bytes")
        text = data.decode("utf-8-sig")
    except OSError as error:
        advice = "create it, or correct --hosts"
        raise HostsFileError(f"hosts file {path}: {error.strerror or error}: {advice}") from None
    except UnicodeDecodeError as error:
        raise HostsFileError(f"hosts file {path}: not UTF-8 at byte {error.start}") from None
    if text.lstrip().startswith(("[", "{", '"')) and not _is_bracketed_address(text):
        entries = [(f"entry {at}", item) for at, item in enumerate(_in_json(text, path))]
    else:
        lines = [line.partition("#")[0].strip() for line in text.splitlines()]
        entries = [(f"line {at}", item) for at, item in enumerate(lines, start=1) if item]
    hosts = [_parse(item, f"hosts file {path}: {place}") for place, item in entries]
    return tuple(dict.fromkeys(chain.from_iterable(hosts)))


def _is_bracketed_address(text: str) -> bool:
    # JSON begins with a bracket, too.
    first = text.lstrip().splitlines()[0].split("#")[0].strip()
    try:
        Address.parse(first)
    except ConfigError:
        return False
    return True


def _in_json(text: str, path: str) -> list[str]:
    example = 'expected an array such as ["127.0.0.1:3000", "127.0.0.1:3001"]'
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "nesting"
        raise HostsFileError(f"hosts file {path}: not JSON at {place}: {example}") from None
    if not isinstance(value, list):
        raise HostsFileError(f"hosts file {path}: not an array: {example}")
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise HostsFileError(f"hosts file {path}: entry {index} is not text: {example}")
    return value


def _parse(item: str, what: str) -> tuple[Host, ...]:
    try:
        hosts = parse_hosts(item, what=what)
    except ConfigError as error:
        raise HostsFileError(str(error)) from None
    if any(host.port == 0 for host in hosts if isinstance(host, Address)):
        raise HostsFileError(f"{what} {item!r}: no host can be reached at port 0")
    return hosts
