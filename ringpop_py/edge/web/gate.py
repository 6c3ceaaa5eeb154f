"""The gate before all routes: it refuses requests that a web page may have had a browser send.

A browser reaches whatever its user reaches. A page can have it ask for a name of the page's own
that resolves to this machine (DNS rebinding); the name then stands in `Host`. It can also have it
send a form to another site; `Sec-Fetch-Site` then says so, or the page stands in `Origin`.
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
    host = headers.get("host", "").lower()  # HTTP/1.0 needs none, and browsers do not use it
    if host and not _is_served(host, hosts):
        name = _name_in(host)
        text = f"no requests are answered for the host {name!r:.100}; --http-host NAME permits one"
        raise HttpRefusal(421, "WrongHost", text)
    site = headers.get("sec-fetch-site")
    if site == "cross-site":
        raise HttpRefusal(403, "CrossSite", "cross-origin requests are refused")
    # Browsers say this only over TLS, and to `localhost`. So it is safe also behind a proxy that
    # replaces `Host`: for a name that was made to resolve there, the proxy has no certificate.
    if method in READING or site == "same-origin":
        return
    # What the browser has called a proxy, which may call us something else. Other pages would need
    # our consent to send this header; and names that are not ours count for nothing here, either.
    forwarded = headers.get("x-forwarded-host", "").partition(",")[0].strip().lower()
    own = {host, forwarded} if _is_served(forwarded, hosts) else {host}
    origin = headers.get("origin")
    if origin is not None and _ORIGIN.sub("", origin.lower()) not in own:
        text = (
            f"cross-origin requests are refused: {origin!r:.100} is not {host!r:.100}; "
            "a proxy has to pass on its Host, which --http-host NAME permits"
        )
        raise HttpRefusal(403, "CrossSite", text)


def _name_in(host: str) -> str:
    """Return the name in a `Host`; all of it if it is malformed."""
    found = _HOST.fullmatch(host)
    return host if found is None else found[1] or found[2]


def _is_served(host: str, hosts: Collection[str]) -> bool:
    name = _name_in(host)
    return name in hosts or is_numeric(name)


def check_length(headers: Collection[str]) -> None:
    """Raise HttpRefusal for two lengths: a proxy before us may count otherwise where it ends."""
    if "content-length" in headers and "transfer-encoding" in headers:
        text = "a body has Content-Length or Transfer-Encoding, not both"
        raise HttpRefusal(400, "BadRequest", text, {"connection": "close"})
