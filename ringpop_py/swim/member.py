"""Member, Status, and which of two views of a member overrides the other."""

from __future__ import annotations

import functools
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

from ringpop_py.address import HOST_CHARACTERS_MAX, Address
from ringpop_py.config.settings import NAME_CHARACTERS_MAX
from ringpop_py.errors import ConfigError
from ringpop_py.farmhash import fingerprint32
from ringpop_py.values.declared import Declared, Meta, Natural, Port, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    Labels = tuple[tuple[str, str], ...]
else:

    class Labels(tuple):  # noqa: SLOT001 - as small with them as without
        """Labels of a member, sorted by key; what the application may say about it.

        They are a plain tuple of pairs. In a message they are a map, of which the codec makes one.
        """


IDENTITY_LABEL: Final = "__identity"
DRAINING_LABEL: Final = "draining"
DRAINING: Final = (DRAINING_LABEL, "true")
"""The label of a member that goes on serving and owns no keys; whoever runs it may set it."""
INCARNATION_AHEAD_MS_MAX: Final = 100 * 366 * 24 * 3600 * 1000
"""A century: no peer's clock is so far ahead of ours, not even if ours was never set. Claims beyond
are not believed. The limit moves on with our clock, so what refutes the highest claim, which must
be higher still, is believed a moment later."""
DAMPING_MAX: Final = 1 << 32
"""Even, so that no claim can damp for ever: whatever odd counter was made up, an even one above
it is left to release the member. At the end of the counter a member is not damped any more."""
OWN_PREFIXES: Final = ("__", "ringpop.")
"""How keys of labels begin that are the node's own: whose it is, which store it has."""
LOAD_LABEL: Final = "load"
"""How busy a member's application says it is: 0 to 1, in hundredths."""
FAILED_LABEL: Final = "__failed"
"""Of which keyspaces a member's share has failed, as `ringpop_py.keyspaces.shares` writes it."""
LABELS_MAX: Final = 5
LABEL_KEY_BYTES_MAX: Final = 32
LABEL_VALUE_BYTES_MAX: Final = 128
LABELS_RECEIVED_MAX: Final = 16
LABEL_CHARACTERS_MAX: Final = 256
"""What a node keeps of a peer's labels: more than any implementation lets its own have."""


class Status(IntEnum):
    """What is believed of a member; the order is the order of precedence."""

    ALIVE = 0
    SUSPECT = 1
    FAULTY = 2
    LEAVE = 3
    TOMBSTONE = 4

    @property
    def label(self) -> str:
        """The status as it is written in messages, tables and checksums."""
        return self.name.lower()

    @property
    def reachable(self) -> bool:
        """Whether a member of this status is pinged; only such a one can own keys."""
        return self <= Status.SUSPECT


STATUS_BY_LABEL: Final = {status.label: status for status in Status}


class Member(Declared, frozen=True):
    """One row of the member list.

    Attributes:
        name: who it is; in the ringpop dialect the address as text.
        host: with *port*, where it listens.
        incarnation: milliseconds; raised only by the member itself.
        labels: sorted by key.
        damping: how many verdicts there were on whether the member changes too often: odd while
            it is damped, even while it is not. It stands beside the status, so that no
            incarnation refutes it, nor does a restart.
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
        """Where it listens."""
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
    def load(self) -> float | None:
        """How busy the member's application says it is, 0 to 1; None if it says nothing."""
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
    """Whether *new* says something newer of a member's life than *old* (SWIM 4.2, and labels).

    The higher incarnation wins, then the greater address (of two processes that go by one name:
    what is said of the one must not count for the other), then the status of higher precedence,
    then the greater sum of labels: a total order, so that all nodes settle on the same row
    whatever came first.
    """
    if old is None:
        return new.status != Status.TOMBSTONE  # else the dead come back through old gossip
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
    """The row that holds what is newest in two views of a member; None if that is *old*.

    Life (incarnation, status, labels) and damping are merged each for itself, the one by
    `overrides`, the other by the higher counter: all nodes settle on the same row in whatever
    order views come, and neither can undo the other.
    """
    if old is None:
        return new if overrides(new, None) else None
    life = new if overrides(new, old) else old
    damping = max(new.damping, old.damping)
    row = life if life.damping == damping else replace(life, damping=damping)
    return None if row is old else row


@functools.lru_cache(maxsize=4096)
def label_sum(labels: Labels) -> int:
    """The order-independent sum of *labels*, a signed 32-bit number; 0 for none."""
    total = 0
    for key, value in labels:
        total ^= fingerprint32(_sized(key.encode()) + _sized(value.encode()))
    return total - (1 << 32) if total >= 1 << 31 else total


def _sized(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def checked_labels(labels: Labels) -> Labels:
    """*labels* sorted, if they keep to the limits.

    Labels whose key begins with two underscores, and `DRAINING_LABEL`, are not counted.

    Raises:
        ConfigError: if there are too many, one is too long, or a key stands twice.
    """
    if len({key for key, _ in labels}) != len(labels):
        message = "a label's key stands twice"
        raise ConfigError(message)
    own = [(key, value) for key, value in labels if not key.startswith("__")]
    count = sum(key != DRAINING_LABEL for key, _ in own)
    if count > LABELS_MAX:
        message = f"at most {LABELS_MAX} labels, not {count}"
        raise ConfigError(message)
    for key, value in own:
        if len(key.encode()) > LABEL_KEY_BYTES_MAX or len(value.encode()) > LABEL_VALUE_BYTES_MAX:
            message = (
                f"label {key!r}: a key has at most {LABEL_KEY_BYTES_MAX} bytes, "
                f"a value {LABEL_VALUE_BYTES_MAX}"
            )
            raise ConfigError(message)
    return tuple(sorted(labels))


def labels_of_peer(labels: Mapping[Any, object]) -> tuple[Labels, int]:
    """What is kept of the *labels* that a peer sent, and how many are not.

    One label too many or too long costs itself, not the change that it came with.
    """
    kept = [
        (key, value)
        for key, value in labels.items()
        if type(key) is type(value) is str and len(key) <= LABEL_CHARACTERS_MAX >= len(value)
    ]
    kept.sort()
    if len(kept) > LABELS_RECEIVED_MAX:
        others = [label for label in kept[LABELS_RECEIVED_MAX:] if label[0] == IDENTITY_LABEL]
        kept = kept[:LABELS_RECEIVED_MAX] + others
    return tuple(kept), len(labels) - len(kept)


def applications_labels(labels: Labels) -> Labels:
    """*labels* that an operator or an application sets, as `checked_labels`.

    Raises:
        ConfigError: as there, or one of them is the node's own (`OWN_PREFIXES`).
    """
    for key, _ in labels:
        if key.startswith(OWN_PREFIXES):
            message = f"label {key!r}: keys that begin with __ or ringpop. are the node's own"
            raise ConfigError(message)
    return checked_labels(labels)


def relabelled(held: Labels, labels: Labels) -> Labels:
    """*labels* of an application in place of those in *held*, which keep what is the node's own.

    What is the node's own may stand in *labels* as it is held.

    Raises:
        ConfigError: see `applications_labels`; with the node's own there may be too many.
    """
    own = tuple(label for label in held if label[0].startswith(OWN_PREFIXES))
    theirs = applications_labels(tuple(label for label in labels if label not in own))
    return checked_labels((*own, *theirs))
