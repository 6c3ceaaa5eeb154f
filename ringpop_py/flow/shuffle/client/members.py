"""Which nodes have a process for shuffles: those with a label that says where it listens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.values.declared import Named, Text, convert

if TYPE_CHECKING:
    from ringpop_py.client.sync.client import Client

LABEL: Final = "ringpop.shuffle"
"""The label of a node with such a process: ``PORT/INCARNATION``."""
LIVE: Final = ("alive", "suspect")


class Shuffler(NamedTuple):
    """A process for shuffles: where it listens, and since when it runs."""

    address: str
    incarnation: int


class _Row(Named, frozen=True):
    name: Text
    address: Text
    status: Text
    labels: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default


class _Members(Named, frozen=True):
    members: tuple[_Row, ...]


def seen_by(
    client: Client, *, timeout_s: float
) -> tuple[dict[str, Shuffler | None], frozenset[str]]:
    """Return what the node of *client* sees. Raises CallError, ApplicationError, BodyError.

    That is the processes by the names of their nodes, None for a node without one; and the names of
    members that are no longer there.
    """
    shown = convert(_Members, client.admin("/admin/members", timeout_s=timeout_s))
    there = {row.name: _shuffler_of(row) for row in shown.members if row.status in LIVE}
    return there, frozenset(row.name for row in shown.members if row.status not in LIVE)


def _shuffler_of(row: _Row) -> Shuffler | None:
    port, _, incarnation = row.labels.get(LABEL, "").partition("/")
    if not port.isdecimal() or not incarnation.isdecimal():
        return None
    host = row.address.rpartition(":")[0]
    return Shuffler(f"{host}:{port}", int(incarnation))
