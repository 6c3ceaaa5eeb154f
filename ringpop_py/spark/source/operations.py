"""Does the cluster know the operations of a write? Asked on the driver, before the first task."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from ringpop_py.client.client import Client
from ringpop_py.errors import ConfigError, RingpopError
from ringpop_py.keyed.aggregations import BUILT_IN, FIELDS
from ringpop_py.spark.source.patience import CONNECT_TIMEOUT_S, Patience, reached

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringpop_py.spark.options import Target, WriteOptions

ELSEWHERE: Final = {"sum": "add", "set": "put", "upsert": "put", "remove": "delete"}
"""What operations are called in SQL and in other systems."""


def check_operations(options: WriteOptions) -> None:
    """Raise ConfigError if a member was asked, and none knows an operation of *options*.

    Every daemon knows the built-in ones, so only an application's own need a question.

    Raises:
        ConfigError: nobody knows one; the message says what there is.
        ConnectFailed: no daemon answers.
    """
    named = options.fields or {"": options.operation}
    unknown = {
        column: name for column, name in named.items() if name not in BUILT_IN and name != FIELDS
    }
    known: set[str] = set()
    if not unknown:
        return
    for theirs in _registered(options.target):
        known |= theirs
        if known.issuperset(unknown.values()):
            return
    left = {column: name for column, name in unknown.items() if name not in known}
    raise ConfigError(_message(left, known))


def _registered(target: Target) -> Iterable[set[str]]:
    """Yield the aggregations of applications that one member after the other knows."""
    with reached(target, Patience(target)) as client:
        asked = client.admin("/admin/node")
        yield set(asked["aggregations"])
        others = [
            row["address"]
            for row in client.admin("/admin/members")["members"]
            if row["status"] == "alive" and row["name"] != asked["name"]
        ]
    for address in others if target.direct else ():
        # One that does not answer may know it; if it is an owner, the commit asks it as well.
        with (
            suppress(RingpopError),
            Client(address, timeout_s=CONNECT_TIMEOUT_S, cluster_key=target.cluster_key) as client,
        ):
            yield set(client.admin("/admin/node")["aggregations"])


def _message(unknown: Mapping[str, str], known: set[str]) -> str:
    there = sorted({*BUILT_IN, *known})
    said = []
    for column, name in unknown.items():
        close = [ELSEWHERE.get(name.lower(), ""), *get_close_matches(name.lower(), there, 1)]
        hint = next((f", perhaps {each!r} is meant" for each in close if each), "")
        said.append(f"{f'column {column!r}: ' if column else ''}no member knows {name!r}{hint}")
    return f"option operation: {'; '.join(said)}. There are {', '.join(there)}"
