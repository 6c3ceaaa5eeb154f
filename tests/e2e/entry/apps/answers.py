"""What all applications of these tests answer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = os.environ.get("HOST_NAME", "")
DAEMON = os.environ.get("DAEMON", "127.0.0.1:1")
COOKIES = ("first=1; Path=/", "second=2; Path=/", "third=3; Path=/")


def cart(
    method: str, key: str, query: str, body: bytes, headers: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "host": NAME,
        "method": method,
        "key": key,
        "query": query,
        "bytes": len(body),
        "headers": {name.lower(): value for name, value in headers.items()},
    }
