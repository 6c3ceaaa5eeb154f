"""Address: where a member listens; parsed and printed."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, Literal, NamedTuple

from ringpop_py.base.errors import ConfigError

PORT_MAX = 65_535
HOST_CHARACTERS_MAX = 253  # the longest DNS name (RFC 1035)

_HOST = re.compile(r"[A-Za-z0-9._~-]+")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?")
HOST_PATTERN = rf"{_HOST.pattern}|(?=[^%]*:){_IPV6.pattern}"
"""Matches a host without a port; a host with a colon is an IPv6 address."""


class Address(NamedTuple):
    """A host (name, IPv4 or IPv6) and a TCP port; compares and hashes as a plain pair."""

    host: str
    port: int

    def __str__(self) -> str:
        """``host:port``, with IPv6 hosts in brackets; `parse` reads it back."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only processes on this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @classmethod
    def parse(cls, text: str, *, what: str = "address") -> Address:
        """Read ``host:port`` or ``[ipv6]:port``.

        Raises:
            ConfigError: if *text* is neither; the message names *what* it was for.
        """
        host, separator, port_text = text.strip().rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not separator or not (_IPV6 if bracketed else _HOST).fullmatch(host):
            raise ConfigError(f"{what} {text!r} is not HOST:PORT (for example 127.0.0.1:3000)")
        if len(host) > HOST_CHARACTERS_MAX:
            raise ConfigError(f"{what}: a host name has at most {HOST_CHARACTERS_MAX} characters")
        # int() also reads signs, underscores and other digits, and takes long for a long text.
        digits = port_text.isascii() and port_text.isdigit()
        if not digits or len(port_text) > len(str(PORT_MAX)) or int(port_text) > PORT_MAX:
            raise ConfigError(f"{what} {text!r}: the port is not a number from 0 to {PORT_MAX}")
        return cls(host, int(port_text))


NOWHERE = Address("", 0)
"""The address of a peer that does not state one. No process can be reached there."""


UNIX: Final = "unix:"
"""The prefix of a Unix socket's path, where a peer may be such a socket."""


class SocketPath(NamedTuple):
    """The Unix socket of a daemon on this host."""

    path: str

    def __str__(self) -> str:
        """``unix:`` and the path; `parse_peer` reads it back."""
        return f"{UNIX}{self.path}"


Peer = Address | SocketPath
"""Where a client reaches a daemon."""


def parse_peer(text: str, *, what: str = "peer") -> Peer:
    """Read ``HOST:PORT``, ``unix:PATH``, or a path that begins with ``/``. Raises ConfigError."""
    path = text.removeprefix(UNIX)
    if path != text or text.startswith("/"):
        if not path or "\0" in path:
            raise ConfigError(f"{what} {text!r} does not name a socket path")
        return SocketPath(path)
    return Address.parse(text, what=what)


def is_numeric(host: str) -> bool:
    """Return whether *host* is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class DnsLookup(NamedTuple):
    """Hosts that DNS lists, looked up anew each time.

    Attributes:
        kind: ``dns`` for all addresses behind *name*, at *port*; ``srv`` for the targets of the
            service *name*, at ports of their own.
        server: the DNS server that is asked; None for those of the system.
    """

    kind: Literal["dns", "srv"]
    name: str
    port: int = 0
    server: Address | None = None

    def __str__(self) -> str:
        """The URL that a bootstrap file would list."""
        port = f":{self.port}" if self.port else ""
        server = f"?server={self.server}" if self.server is not None else ""
        return f"{self.kind}://{self.name}{port}{server}"


Host = Address | DnsLookup
"""What a bootstrap file lists."""
