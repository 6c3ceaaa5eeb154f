"""The gate before all routes: it refuses requests that a web page may have had a browser send.

A browser reaches whatever its user reaches. A page can have it ask for a name of the page's own
that resolves to this machine (DNS rebinding); the name then stands in `Host`. It can also have it
send a form to another site; the page then stands in `Origin`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ringpop_py.base.address import is_numeric
from ringpop_py.edge.web.refusals import HttpRefusal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ringpop_py.base.config.settings import Config

LOCAL: Final = "localhost"
READING: Final = ("GET", "HEAD")
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:@\[\]/]+))(?::\d{1,5})?")
_ORIGIN: Final = re.compile(r"^https?://")


def hosts_of(config: Config) -> frozenset[str]:
    """Return the names in `Host` for which requests are served, besides addresses."""
    own = (config.http, config.listen, config.advertise)
    names = (LOCAL, *config.http_hosts, *(address.host for address in own if address is not None))
    return frozenset(name.lower() for name in names)


def check_request(method: str, headers: Mapping[str, str], hosts: Collection[str]) -> None:
    """Check the headers of a request before it is served.

    Args:
        headers: by their names in lower case.
        hosts: names in `Host` that are served, in lower case.

    Raises:
        HttpRefusal: the request is refused.
    """
    check_length(headers)
    host = headers.get("host", "")  # HTTP/1.0 needs none, and browsers do not use it
    found = _HOST.fullmatch(host.lower())
    name = host if found is None else found[1] or found[2]  # all of it if it is malformed
    if host and not (name in hosts or is_numeric(name)):
        text = f"no requests are answered for the host {name!r:.100}; --http-host NAME permits one"
        raise HttpRefusal(421, "WrongHost", text)
    origin = headers.get("origin")
    cross_site = headers.get("sec-fetch-site") == "cross-site"
    foreign = origin is not None and _ORIGIN.sub("", origin.lower()) != host.lower()
    if cross_site or (foreign and method not in READING):
        raise HttpRefusal(403, "CrossSite", "cross-origin requests are refused")


def check_length(headers: Collection[str]) -> None:
    """Raise HttpRefusal for two lengths: a proxy before us may count otherwise where it ends."""
    if "content-length" in headers and "transfer-encoding" in headers:
        text = "a body has Content-Length or Transfer-Encoding, not both"
        raise HttpRefusal(400, "BadRequest", text, {"connection": "close"})
