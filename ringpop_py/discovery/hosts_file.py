"""The bootstrap file: a JSON array of addresses, or one address a line.

An entry may also stand for all hosts of a StatefulSet (`ringpop_py.discovery.statefulset`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from ringpop_py.address import Address
from ringpop_py.discovery.statefulset import parse_hosts
from ringpop_py.errors import ConfigError, HostsFileError

FILE_BYTES_MAX: Final = 4 << 20


def read_hosts_file(path: str) -> tuple[Address, ...]:
    """Return the addresses in the file at *path*, each once, in their order; empty if it is empty.

    If the file has one address a line, blank lines and text after a ``#`` are skipped.

    Raises:
        HostsFileError: if the file cannot be read, or an entry is not an address; the message names
            the file, the place and what to do.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        message = f"hosts file {path}: {error.strerror or error}: create it, or mend --hosts"
        raise HostsFileError(message) from None
    if len(data) > FILE_BYTES_MAX:
        message = f"hosts file {path}: larger than {FILE_BYTES_MAX} bytes"
        raise HostsFileError(message)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"hosts file {path}: not UTF-8 at byte {error.start}"
        raise HostsFileError(message) from None
    if text.lstrip().startswith(("[", "{", '"')) and not _is_bracketed_address(text):
        return _from_json(text, path)
    return _from_lines(text, path)


def _is_bracketed_address(text: str) -> bool:
    """Return whether *text* begins with an address such as ``[::1]:3000`` and not with JSON."""
    first = text.lstrip().splitlines()[0].split("#")[0].strip()
    try:
        Address.parse(first)
    except ConfigError:
        return False
    return True


def _from_json(text: str, path: str) -> tuple[Address, ...]:
    example = 'expected an array such as ["127.0.0.1:3000", "127.0.0.1:3001"]'
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "nesting"
        message = f"hosts file {path}: not JSON at {place}: {example}"
        raise HostsFileError(message) from None
    if not isinstance(value, list):
        message = f"hosts file {path}: not an array: {example}"
        raise HostsFileError(message)
    hosts: list[Address] = []
    for index, item in enumerate(value):
        if not isinstance(item, str):
            message = f"hosts file {path}: entry {index} is not text: {example}"
            raise HostsFileError(message)
        hosts += _parse(item, f"hosts file {path}: entry {index}")
    return tuple(dict.fromkeys(hosts))


def _from_lines(text: str, path: str) -> tuple[Address, ...]:
    hosts: list[Address] = []
    for number, line in enumerate(text.splitlines(), start=1):
        item = line.partition("#")[0].strip()
        if item:
            hosts += _parse(item, f"hosts file {path}: line {number}")
    return tuple(dict.fromkeys(hosts))


def _parse(item: str, what: str) -> tuple[Address, ...]:
    try:
        hosts = parse_hosts(item, what=what)
    except ConfigError as error:
        raise HostsFileError(str(error)) from None
    if any(host.port == 0 for host in hosts):
        message = f"{what} {item!r}: port 0 is nobody's address"
        raise HostsFileError(message)
    return hosts
