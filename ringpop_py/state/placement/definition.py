"""The definition of a keyspace: its name and the settings that all members must share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf
from typing import Final, Literal, TypedDict, get_args
from urllib.parse import quote

from ringpop_py.base import rules
from ringpop_py.base.errors import ConfigError, KeyspaceConflict
from ringpop_py.base.rules import Checked, Rule, ruled
from ringpop_py.state.placement.keys import PARTITIONS_MAX, Placing

Mode = Literal["durable", "memory"]
RING: Final = "ring"
VIRTUAL_NODES: Final = 128
"""The points of a member on the ring of the strategy ``ring``, unless others are set."""
VIRTUAL_NODES_MAX: Final = 4096
NAME_CHARACTERS_MAX: Final = 100
NAME_QUOTED_MAX: Final = 200
"""The longest name after percent-encoding, since a store keeps it as one part of a key."""


def is_name(name: object, room: int = 0) -> bool:
    """Return whether a keyspace can have that *name*, followed by *room* other characters."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= NAME_CHARACTERS_MAX - room
        and name.isprintable()
        and len(quote(name, safe="")) <= NAME_QUOTED_MAX - room
    )


def name_rule(room: int = 0) -> Rule:
    """Return the rule for such a name."""
    most, quoted = NAME_CHARACTERS_MAX - room, NAME_QUOTED_MAX - room
    text = f"1 to {most} printable characters, at most {quoted} when percent-encoded"
    return Rule(text, lambda name: is_name(name, room))


def _exactly(rule: Rule) -> Rule:
    """Return *rule* for what msgpack encodes as a number: it refuses classes derived from `int`."""
    return rule._replace(sound=lambda value: type(value) is int and rule.sound(value))


NAME: Final = name_rule()
COPIES_MAX: Final = 3
_LATER: Final = {
    "creator": "",
    "virtual_nodes": VIRTUAL_NODES,
    "hash_tags": False,
    "copies": 1,
    "copies_min": 1,
}
"""Values that a record leaves out, because members of earlier versions refuse their names."""
_COUNT: Final = _exactly(rules.whole(1, PARTITIONS_MAX))
_COPIES: Final = _exactly(rules.whole(1, COPIES_MAX))
# A store may have true, which is 1.
_INTERVAL: Final = Rule(
    rules.seconds_above_0().text, lambda v: isinstance(v, int | float) and 0 < v < inf
)
_TERM: Final = rules.TEXT._replace(text="a name")
_MERGE: Final = rules.TEXT._replace(
    text="the name of a rule, registered first (merge_rules.register)"
)


class Settings(TypedDict, total=False):
    """The settings of a `Definition`, without its name, as keyword arguments."""

    partitions: int
    mode: Mode
    strategy: str
    automatic: bool
    min_cluster_size: int
    max_keys_per_partition: int | None
    checkpoint_interval_s: float
    merge: str
    virtual_nodes: int
    hash_tags: bool
    copies: int
    copies_min: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition(Checked):
    """A keyspace as it was created. Its settings never change, except one, by an admin (`revised`).

    In ``memory`` mode there is no store. Each member serves the partitions that it should own by
    its own view of the members, on both sides of a partitioned network, too. Afterwards the copies
    are merged by the rule *merge*, which can undo acknowledged writes. A member that leaves hands
    over its partitions; the state of a member that crashes is lost, unless there are *copies* of
    it. Strategies that need a record are refused in this mode.

    Attributes:
        name: 1 to 100 printable characters; fewer if many of them are not ASCII (`is_name`).
        partitions: how many partitions there are; the partition of a key never changes.
        mode: ``durable`` (each partition has one writer, by the log in the store) or ``memory``.
        strategy: how partitions are spread over members (`ringpop_py.state.placement.strategies`).
        automatic: whether partitions move automatically when members join. The partitions of
            members that are gone are taken over in any case.
        min_cluster_size: no partition is assigned before this many members are in the ring.
        max_keys_per_partition: a new key beyond this number is refused; None for no limit.
        checkpoint_interval_s: how often each partition with changes writes a checkpoint.
        merge: memory mode's rule for a key that both sides of a partitioned network have written:
            a name in `ringpop_py.state.table.joins.RULES`, or of a rule that all members
            registered.
        virtual_nodes: the points of a member on the ring of the strategy ``ring``.
        hash_tags: whether keys are placed by their part in braces (`hash_tag`).
        copies: memory mode's number of members that have the state of a partition, 1 to 3.
        copies_min: with fewer copies than these, writes are refused.
        creator: who created it, if keys proved that it was a client: its certificate's name. It is
            no setting.
        revision: how often an admin has changed *min_cluster_size*. It is no setting, either.
    """

    name: str = field(metadata={"rule": NAME})
    partitions: int = ruled(256, _COUNT)
    mode: Mode = ruled("durable", rules.one_of(get_args(Mode)))
    strategy: str = ruled("balanced", _TERM)
    automatic: bool = True
    min_cluster_size: int = ruled(1, _COUNT)
    max_keys_per_partition: int | None = ruled(
        None, _exactly(rules.whole(1, rules.NUMBER_MAX)).or_none()
    )
    checkpoint_interval_s: float = ruled(10.0, _INTERVAL)
    merge: str = ruled("last_writer_wins", _MERGE)
    virtual_nodes: int = ruled(VIRTUAL_NODES, _exactly(rules.whole(1, VIRTUAL_NODES_MAX)))
    hash_tags: bool = False
    copies: int = ruled(1, _COPIES)
    copies_min: int = ruled(1, _COPIES)
    creator: str = ruled("", _TERM)
    revision: int = ruled(0, None)

    def _problem(self) -> str:
        if self.virtual_nodes != VIRTUAL_NODES and self.strategy != RING:
            return f"virtual_nodes is a setting of the strategy {RING}, not of {self.strategy}"
        if self.copies > 1 and self.mode != "memory":
            return (
                "copies is a setting of memory mode: the state of a durable keyspace is in its"
                " store, which is as safe as that"
            )
        if self.copies_min > self.copies:
            return f"copies_min is at most copies, which is {self.copies}"
        return ""

    def as_record(self) -> dict[str, object]:
        """Return the settings, and the creator if there is one, as a map that `of_record` reads."""
        record = asdict(self)
        del record["revision"]
        for name, usual in _LATER.items():
            if record[name] == usual:
                del record[name]
        return record

    @property
    def placing(self) -> Placing:
        """How its keys become partitions; a new value each time, so keep it."""
        return Placing(self.partitions, hash_tags=self.hash_tags)

    def fixed_settings(self) -> dict[str, object]:
        """Return the settings with which applications must agree."""
        record = self.as_record()
        record.pop("creator", None)
        if self.revision:  # what an admin has set holds, whatever their code says
            del record["min_cluster_size"]
        return record

    def revised(self, min_cluster_size: int) -> Definition:
        """Return the next revision. Raises ConfigError if *min_cluster_size* cannot be used."""
        return replace(self, min_cluster_size=min_cluster_size, revision=self.revision + 1)

    def revised_as(self, other: Definition) -> Definition:
        """Return this definition with what an admin has set in *other*, if anything."""
        if not other.revision:
            return self
        set_to = other.min_cluster_size
        return replace(self, min_cluster_size=set_to, revision=other.revision)

    @classmethod
    def of_record(cls, record: object, revision: int = 0) -> Definition:
        """Return the definition in *record*; a setting that *record* lacks has its default.

        Raises:
            ConfigError: if a setting is unknown, or its value cannot be used.
        """
        if not isinstance(record, Mapping):
            raise ConfigError("a definition is a map of settings")
        known = {field.name for field in fields(cls)} - {"revision"}
        unknown = sorted(str(name) for name in record if name not in known)
        if unknown or "name" not in record:
            wrong = f"unknown: {', '.join(unknown)}" if unknown else "it has no name"
            settable = ", ".join(sorted(known - {"creator"}))
            raise ConfigError(f"a keyspace's settings are {settable}; {wrong}")
        return cls(**record, revision=revision)

    def difference_from(self, other: Definition) -> str:
        """Describe the settings in which *other* differs; empty if it does not differ."""
        mine, theirs = _LATER | self.fixed_settings(), _LATER | other.fixed_settings()
        return ", ".join(
            f"{name} {mine[name]!r} instead of {theirs[name]!r}"
            for name in mine
            if name in theirs and mine[name] != theirs[name]
        )

    def check_same(self, other: Definition) -> None:
        """Check that *other*, the definition in a request, is the same as this one.

        Raises:
            KeyspaceConflict: if a setting differs.
        """
        difference = self.difference_from(other)
        if difference:
            raise KeyspaceConflict(
                f"keyspace {self.name!r} exists and was created with {difference}"
            )
