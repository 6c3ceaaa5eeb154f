"""Members, their statuses and labels, and which of two rows overrides the other."""

from __future__ import annotations

import functools
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

from ringpop_py.base.address import HOST_CHARACTERS_MAX, Address
from ringpop_py.base.arguments import checked_kind, wrong
from ringpop_py.base.config.settings import NAME_CHARACTERS_MAX
from ringpop_py.base.errors import ConfigError
from ringpop_py.base.farmhash import fingerprint32
from ringpop_py.base.values.declared import Declared, Meta, Natural, Port, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    Labels = tuple[tuple[str, str], ...]
else:

    class Labels(tuple):  # noqa: SLOT001 - as small with them as without
        """Labels of a member: a tuple of (key, value), sorted by key; in a message, a map."""


IDENTITY_LABEL: Final = "__identity"
DRAINING_LABEL: Final = "draining"
DRAINING: Final = (DRAINING_LABEL, "true")
"""The label of a member that goes on serving but owns no keys; its operator may set it."""
INCARNATION_AHEAD_MS_MAX: Final = 100 * 366 * 24 * 3600 * 1000
"""A century, in milliseconds. Even if our clock was never set, no peer's clock is further ahead, so
a higher incarnation is not believed. The limit moves with our clock: a refutation of the highest
believable claim, which must be higher still, is believed a moment later."""
DAMPING_MAX: Final = 1 << 32
"""The highest damping counter. It is even, so that no claim can damp a member for ever: above each
odd counter there is an even one that releases the member. At this counter it cannot be damped."""
OWN_PREFIXES: Final = ("__", "ringpop.")
"""How the keys of a node's own labels begin, for example its identity and its store."""
LOAD_LABEL: Final = "load"
"""The label with the load that a member's application reports: 0 to 1, in hundredths."""
STORE_LABEL: Final = "ringpop.store"
"""The label that names a member's store. Only members of the same store share partitions."""
AWAY_LABEL: Final = "__application"
AWAY: Final = (AWAY_LABEL, "away")
"""The label of a member whose application does not answer: it owns no keys, but goes on holding its
partitions, which its own process serves. The member sets and removes it itself."""
FAILED_LABEL: Final = "__failed"
"""The label with the keyspaces of which a member's share has failed (`keyspaces.shares`)."""
LABELS_MAX: Final = 5
LABEL_KEY_BYTES_MAX: Final = 32
LABEL_VALUE_BYTES_MAX: Final = 128
LABELS_RECEIVED_MAX: Final = 16
LABEL_CHARACTERS_MAX: Final = 256
"""The most characters of a key or a value that a node keeps of a peer's labels. A longer label is
dropped; no implementation lets its own members have one."""


class Status(IntEnum):
    """The state that a member is believed to be in, in order of precedence."""

    ALIVE = 0
    SUSPECT = 1
    FAULTY = 2
    LEAVE = 3
    TOMBSTONE = 4

    @property
    def label(self) -> str:
        """The status as text, in messages, tables and checksums."""
        return self.name.lower()

    @property
    def reachable(self) -> bool:
        """Whether a member of this status is pinged; only such a member can own keys."""
        return self <= Status.SUSPECT


STATUS_BY_LABEL: Final = {status.label: status for status in Status}


class Member(Declared, frozen=True):
    """One row of the member list.

    Attributes:
        name: in the ringpop dialect the address as text.
        host: with *port*, where it listens.
        incarnation: milliseconds; raised only by the member itself.
        labels: sorted by key.
        damping: how many verdicts there were on whether the member changes too often: odd while
            it is damped, even otherwise. It is separate from the status, so that neither a higher
            incarnation nor a restart removes it.
    """

    name: Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
    host: Annotated[str, Meta(min_length=1, max_length=HOST_CHARACTERS_MAX)]
    port: Port
    incarnation: Natural
    status: Status = Status.ALIVE
    labels: Labels = ()
    damping: Natural = 0

    @property
    def address(self) -> Address:
        """The address where it listens."""
        return Address(self.host, self.port)

    def __repr__(self) -> str:
        return (
            f"Member(name={self.name!r}, address={self.address!r}, "
            f"incarnation={self.incarnation}, status={self.status!r}, labels={self.labels!r}, "
            f"damping={self.damping})"
        )

    @property
    def damped(self) -> bool:
        """Whether the last verdict is that the member changes too often."""
        return self.damping & 1 == 1

    @property
    def draining(self) -> bool:
        """Whether the member asks to own no keys, though it goes on serving."""
        return DRAINING in self.labels

    @property
    def away(self) -> bool:
        """Whether the member's application does not answer, so that others answer in its place."""
        return AWAY in self.labels

    @property
    def load(self) -> float | None:
        """The load that the member's application reports, 0 to 1; None if it reports none."""
        try:
            load = float(dict(self.labels)[LOAD_LABEL])
        except (KeyError, ValueError):
            return None
        return load if 0 <= load <= 1 else None

    @property
    def identity(self) -> str:
        """The name under which the member's points stand on the ring."""
        for key, value in self.labels:
            if key == IDENTITY_LABEL:
                return value
        return self.name


def overrides(new: Member, old: Member | None) -> bool:
    """Return whether *new* says something newer about a member's life than *old* (SWIM 4.2).

    The higher incarnation wins, then the greater address, then the status of higher precedence,
    then the greater sum of labels. The order is total, so all nodes settle on the same row,
    whichever arrived first. The address comes before the status because two processes may use one
    name, and what is said about one must not count for the other.
    """
    if old is None:
        return new.status != Status.TOMBSTONE  # otherwise old gossip brings back the dead
    assert new.name == old.name
    if new.incarnation != old.incarnation:
        return new.incarnation > old.incarnation
    return (new.host, new.port, new.status, label_sum(new.labels)) > (
        old.host,
        old.port,
        old.status,
        label_sum(old.labels),
    )


def merged(new: Member, old: Member | None) -> Member | None:
    """Return the row with the newest of two views of a member; None if that is *old*.

    Life (incarnation, address, status, labels) is merged by `overrides`, and damping by the higher
    counter. They are separate, so neither undoes the other, and the order of arrival is irrelevant.
    """
    if old is None:
        return new if overrides(new, None) else None
    life = new if overrides(new, old) else old
    damping = max(new.damping, old.damping)
    row = life if life.damping == damping else replace(life, damping=damping)
    return None if row is old else row


@functools.lru_cache(maxsize=4096)
def label_sum(labels: Labels) -> int:
    """Return the order-independent sum of *labels*, a signed 32-bit number; 0 for no labels."""
    total = 0
    for key, value in labels:
        total ^= fingerprint32(_sized(key.encode()) + _sized(value.encode()))
    return total - (1 << 32) if total >= 1 << 31 else total


def _sized(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def checked_labels(labels: Labels) -> Labels:
    """Return *labels* sorted by key, after a check of their number and lengths.

    Labels whose key begins with two underscores, and `DRAINING_LABEL`, are not counted.

    Raises:
        ConfigError: if there are too many, one is too long or not printable, or two have the
            same key.
    """
    if len({key for key, _ in labels}) != len(labels):
        raise ConfigError("two labels have the same key")
    own = [(key, value) for key, value in labels if not key.startswith("__")]
    count = sum(key != DRAINING_LABEL for key, _ in own)
    if count > LABELS_MAX:
        raise ConfigError(f"at most {LABELS_MAX} labels, not {count}")
    for key, value in own:
        if len(key.encode()) > LABEL_KEY_BYTES_MAX or len(value.encode()) > LABEL_VALUE_BYTES_MAX:
            raise ConfigError(
                f"label {key!r}: a key has at most {LABEL_KEY_BYTES_MAX} bytes, "
                f"a value {LABEL_VALUE_BYTES_MAX}"
            )
        if not (key + value).isprintable():
            raise ConfigError(f"label {key!r}: its key or its value {value!r} is not printable")
    return tuple(sorted(labels))


def labels_of_peer(labels: Mapping[Any, object]) -> tuple[Labels, int]:
    """Return the labels that are kept of those that a peer sent, and how many are dropped.

    Labels beyond the limits, and those that are not printable, are dropped alone; the change that
    contains them is applied.
    """
    kept = [
        (key, value)
        for key, value in labels.items()
        if type(key) is type(value) is str
        and len(key) <= LABEL_CHARACTERS_MAX >= len(value)
        and key.isprintable()
        and value.isprintable()
    ]
    kept.sort()
    if len(kept) > LABELS_RECEIVED_MAX:
        # The identity is always kept: without it, the member's points would stand elsewhere.
        others = [label for label in kept[LABELS_RECEIVED_MAX:] if label[0] == IDENTITY_LABEL]
        kept = kept[:LABELS_RECEIVED_MAX] + others
    return tuple(kept), len(labels) - len(kept)


def check_pairs(labels: Labels) -> None:
    """Raise ConfigError if *labels* are not pairs of texts."""
    checked_kind(labels, tuple | list, "labels", "(key, value) pairs")
    for pair in labels:
        if not isinstance(pair, tuple | list) or [type(part) for part in pair] != [str, str]:
            raise wrong("label", "a pair of texts, (key, value)", pair)


def applications_labels(labels: Labels) -> Labels:
    """Return `checked_labels` of *labels* that an operator or an application sets.

    Raises:
        ConfigError: as there, and if a key is reserved for the node (`OWN_PREFIXES`).
    """
    check_pairs(labels)
    for key, _ in labels:
        if key.startswith(OWN_PREFIXES):
            raise ConfigError(
                f"label {key!r}: keys that begin with __ or ringpop. are the node's own"
            )
    return checked_labels(labels)


def relabelled(held: Labels, labels: Labels) -> Labels:
    """Return *labels* of an application together with the node's own labels in *held*.

    *labels* may contain the node's own ones, if they are unchanged.

    Raises:
        ConfigError: see `applications_labels`; also if there are too many with the node's own.
    """
    own = tuple(label for label in held if label[0].startswith(OWN_PREFIXES))
    theirs = applications_labels(tuple(label for label in labels if label not in own))
    return checked_labels((*own, *theirs))
