"""The caller of a request in headers that applications read: X-Forwarded and Forwarded (pure)."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, Literal

from ringpop_py.net.http.message import FORWARDED_HOST

if TYPE_CHECKING:
    from collections.abc import Iterable

Networks = tuple[IPv4Network | IPv6Network, ...]
Before = Literal["kept", "replaced", "dropped"]
"""What becomes of headers of proxies before us: ``"dropped"`` are also those that we do not write,
such as ``X-Forwarded-User``."""
FORWARDED: Final = "forwarded"
FORWARDED_FOR: Final = "x-forwarded-for"
FORWARDED_PROTO: Final = "x-forwarded-proto"
_WRITTEN: Final = (FORWARDED, FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST)
_DROPPED: Final = ("x-forwarded-", "x-real-ip")
"""How the names begin that no proxy has written if we believe none."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PAIR: Final = r"""([!#$%&'*+.^_`|~0-9A-Za-z-]+)=("(?:[^"\\]|\\.)*"|[^\s",;]+)"""
_PAIRS: Final = re.compile(_PAIR)
_FORWARDED: Final = re.compile(rf"{_PAIR}(?:[ \t]*[,;][ \t]*{_PAIR})*")


def networks(texts: Iterable[str]) -> Networks:
    """Return the networks that *texts* name. Raises ValueError."""
    return tuple(ip_network(text) for text in texts)


def is_trusted(client: str, trusted: Networks) -> bool:
    """Return whether the address *client* is in one of the networks."""
    try:
        address = ip_address(client)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):  # as a socket for both protocols says those of IPv4
        address = address.ipv4_mapped or address
    return any(address in network for network in trusted)


def told(
    headers: Iterable[tuple[str, str]],
    passed: Iterable[tuple[str, str]],
    before: Before,
    client: str,
    scheme: str,
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return those of *passed* that are not about the caller, and ours about it.

    Both kinds of ours say the same. If ``X-Forwarded`` headers came, they are the ones that count:
    most proxies write these alone, and let pass what a caller has written as ``Forwarded``.

    Args:
        headers: all headers of the request; *passed* are those that go on.
        client: the address of the one who has sent it to us, by *scheme*.
    """
    said: dict[str, list[str]] = {}
    for name, value in headers:
        said.setdefault(name.lower(), []).append(value)
    kept = [pair for pair in passed if pair[0].lower() not in _WRITTEN]
    host = said.get("host", [""])[0]
    chain, elements = list[str](), list[str]()
    if before == "dropped":
        kept = [pair for pair in kept if not pair[0].lower().startswith(_DROPPED)]
    elif before == "kept":
        standard = ", ".join(said.get(FORWARDED, ())).strip()
        if any(name in said for name in _WRITTEN[1:]):
            came = ",".join(said.get(FORWARDED_FOR, ())).split(",")
            chain = [each.strip() for each in came if each.strip()]
            elements = [f"for={_quoted(_node(each))}" for each in chain]
            host = said.get(FORWARDED_HOST, [host])[-1]
            scheme = said.get(FORWARDED_PROTO, [scheme])[-1]
        elif _FORWARDED.fullmatch(standard):  # after half of one, ours would be part of it
            pairs = [(name.lower(), _plain(value)) for name, value in _PAIRS.findall(standard)]
            chain, elements = (
                [_address(value) for name, value in pairs if name == "for"],
                [standard],
            )
            last = {"host": host, "proto": scheme, **dict(pairs)}
            host, scheme = last["host"], last["proto"]
    if client:
        chain.append(client)
    ours = {"for": _node(client) if client else "unknown", "host": host, "proto": scheme}
    elements.append(";".join(f"{name}={_quoted(each)}" for name, each in ours.items() if each))
    values = ", ".join(elements), ", ".join(chain), scheme, host
    return kept, [pair for pair in zip(_WRITTEN, values, strict=True) if pair[1]]


def _node(address: str) -> str:
    """Return *address* as ``Forwarded`` has it: one of IPv6 in brackets (RFC 7239, 6)."""
    return f"[{address}]" if address.count(":") > 1 and "[" not in address else address


def _address(node: str) -> str:
    """Return the address of a *node* of ``Forwarded``, without its port."""
    if node.startswith("["):
        return node[1:].partition("]")[0]
    return node.partition(":")[0]


def _quoted(text: str) -> str:
    if _TOKEN.fullmatch(text):
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
