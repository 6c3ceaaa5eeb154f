"""The hosts of a StatefulSet in Kubernetes, by the names that its headless service gives them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qs, urlsplit

from ringpop_py.address import PORT_MAX, Address
from ringpop_py.errors import ConfigError

SCHEME: Final = "statefulset://"
REPLICAS_MAX: Final = 1_000
EXAMPLE: Final = "statefulset://APP.NAMESPACE:3000?replicas=3"

_DNS_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def statefulset_hosts(app: str, namespace: str, replicas: int, port: int) -> tuple[Address, ...]:
    """Return ``{app}-{ordinal}.{app}-headless.{namespace}.svc:{port}`` for each of *replicas*.

    Not all of them need to run: a node contacts some of its hosts, until one answers.

    Raises:
        ConfigError: if a name, the port or the number is not possible.
    """
    for name, what in ((app, "app"), (namespace, "namespace")):
        if not _DNS_LABEL.fullmatch(name):
            message = f"the {what} of a StatefulSet is a DNS label (a-z, 0-9, -), not {name!r}"
            raise ConfigError(message)
    if not 1 <= replicas <= REPLICAS_MAX:
        message = f"a StatefulSet has 1 to {REPLICAS_MAX} replicas here, not {replicas}"
        raise ConfigError(message)
    if not 1 <= port <= PORT_MAX:
        message = f"a port is a number from 1 to {PORT_MAX}, not {port}"
        raise ConfigError(message)
    domain = f"{app}-headless.{namespace}.svc"
    return tuple(Address(f"{app}-{ordinal}.{domain}", port) for ordinal in range(replicas))


def parse_hosts(text: str, *, what: str = "hosts") -> tuple[Address, ...]:
    """Return the hosts that *text* means: an address, or all of a StatefulSet (`EXAMPLE`).

    Raises:
        ConfigError: if it is neither; the message names *what* the text was for.
    """
    if not text.startswith(SCHEME):
        return (Address.parse(text, what=what),)
    try:
        parts = urlsplit(text)
        app, _, namespace = (parts.hostname or "").partition(".")
        query = parse_qs(parts.query, strict_parsing=True, max_num_fields=1)
        replicas = int(query["replicas"][0])
        port = parts.port or 0
    except (ValueError, KeyError):
        message = f"{what} {text!r} is not {EXAMPLE}"
        raise ConfigError(message) from None
    try:
        return statefulset_hosts(app, namespace, replicas, port)
    except ConfigError as error:
        message = f"{what} {text!r}: {error}"
        raise ConfigError(message) from None
