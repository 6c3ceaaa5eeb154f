"""Does the cluster know the operations of a write? Asked on the driver, before the first task."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ConfigError, RingpopError
from ringpop_py.base.values.unknown import unknown_text
from ringpop_py.client.sync.client import Client
from ringpop_py.spark.source.patience import CONNECT_TIMEOUT_S, Patience, reached
from ringpop_py.state.table.aggregations import BUILT_IN, FIELDS
from ringpop_py.state.table.conditions import CONDITIONAL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringpop_py.spark.options import Target, WriteOptions

EVERYWHERE: Final = frozenset({*BUILT_IN, FIELDS, CONDITIONAL})
"""What every daemon knows."""


def check_operations(options: WriteOptions) -> None:
    """Raise ConfigError if a member was asked, and none knows an operation of *options*.

    Every daemon knows the built-in ones, so only an application's own need a question.

    Raises:
        ConfigError: nobody knows one; the message says what there is.
        ConnectFailed: no daemon answers.
    """
    named = options.fields or {"": options.operation}
    unknown = {column: name for column, name in named.items() if name not in EVERYWHERE}
    known: set[str] = set()
    if not unknown:
        return
    for theirs in _registered(options.target):
        known |= theirs
        if known.issuperset(unknown.values()):
            return
    column, name = next(each for each in unknown.items() if each[1] not in known)
    where = f"column {column!r}: " if column else ""
    text = unknown_text(name, {*BUILT_IN, *known})
    raise ConfigError(f"option operation: {where}no member knows {text}")


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
