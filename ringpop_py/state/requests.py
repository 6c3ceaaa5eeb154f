"""What is asked of a keyspace, and what its answers mean, for `Keyspace` and `KeyspaceClient`.

Nothing here waits or knows a clock: a request says what to ask of each partition, a dispatcher
asks, and the request makes the result out of the parts' results.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypedDict

from ringpop_py.base.arguments import (
    checked_kind,
    checked_text,
    checked_texts,
    instant_ms,
    ms_of,
    wrong,
)
from ringpop_py.base.errors import BadOperation, ConfigError, KeyspaceError, KeyspaceUnknown
from ringpop_py.base.forks import FORKS
from ringpop_py.base.values import requests as messages
from ringpop_py.base.values.declared import encode, replace
from ringpop_py.base.values.operation_ids import named_write
from ringpop_py.base.values.operations import (
    KEY_BYTES_MAX,
    Change,
    OperationId,
    Outcome,
    Value,
    Write,
    WriteRun,
    are_plain,
    check_key,
    check_keys,
    is_usual_key,
)
from ringpop_py.base.values.requests import (
    ApplyRequest,
    ReadRequest,
    Scanned,
    ScanRequest,
    repeated,
)
from ringpop_py.state.locks.terms import FENCE_PREFIX
from ringpop_py.state.table.conditions import KEEP, conditional_on
from ringpop_py.state.table.due import EXPIRING, at_ms_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from ringpop_py.state.placement.keys import Placing
    from ringpop_py.state.table.keyed import KeyedState

_as_change: Final = partial(tuple.__new__, Change)  # of a tuple of three, without a call in Python
SOURCES_MAX: Final = 65_536
"""The most actors for which messages are counted here; the least used gets a new source."""
PAGE_ROWS: Final = 1_000  # a page asks all partitions, whatever its size


class _Identity(NamedTuple):
    forks_count: int
    source: str
    sequences: dict[int, count[int]]


class Writer:
    """Gives each write an id that no other has. Threads may share it.

    Args:
        prefix: of the source of the ids. The source is new for each writer and for each process in
            which a fork has put a copy of it, as sequences begin at 0. Each partition has its own
            sequence, because it remembers a window of the latest ones.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._identity = self._new_identity()

    def _new_identity(self) -> _Identity:
        return _Identity(FORKS.count, f"{self._prefix}/{secrets.token_hex(8)}", {})

    def writes(
        self,
        number: int,
        changes: Sequence[Change],
        operation_id: str | OperationId | None,
        offsets: Mapping[str, Value] | None = None,
    ) -> Sequence[Write]:
        """Return the writes of *changes* to partition *number*. Raises BadOperation."""
        if operation_id is not None:
            # One id can name one write only, so the changes of a partition become one.
            return [named_write(operation_id, tuple(changes), offsets)]
        # A write for each change, so that one that is refused leaves the others.
        # One tuple, so that threads that renew it at the same time cannot mix two of them.
        identity = self._identity
        if identity.forks_count != FORKS.count:
            identity = self._identity = self._new_identity()
        source, sequences = identity.source, identity.sequences
        sequence = sequences.get(number) or sequences.setdefault(number, count())
        if len(changes) == 1:
            return [Write(source, next(sequence), tuple(changes), offsets)]
        numbers = list(islice(sequence, len(changes)))
        # No other thread comes between: all of it happens in one call in C.
        assert numbers[-1] - numbers[0] == len(numbers) - 1
        return WriteRun(source, numbers[0], changes, offsets)

    def whole(
        self,
        number: int,
        changes: Sequence[Change],
        operation_id: str | OperationId | None = None,
        offsets: Mapping[str, Value] | None = None,
    ) -> Write:
        """Return one write of *changes* to partition *number*. Raises BadOperation."""
        if operation_id is not None:
            return named_write(operation_id, tuple(changes), offsets)
        (write,) = self.writes(number, [Change("", "")], None, offsets)
        return replace(write, changes=tuple(changes))


class MailIds:
    """Ids for messages, with a source for each actor."""

    # A partition remembers a limited number of ids for each source. With one source for all actors,
    # messages to fast ones could push out the id of a message that a slow one has not handled yet.

    def __init__(self) -> None:
        self._forks_count = -1

    def next(self, key: str) -> OperationId:
        """Return a new id for a message to the actor *key*."""
        if self._forks_count != FORKS.count:
            first, numbers = secrets.token_hex(8), count(1)
            # An actor that is forgotten gets a new source.
            self._of = lru_cache(SOURCES_MAX)(lambda _key: (f"{first}/{next(numbers)}", count()))
            self._forks_count = FORKS.count
        source, sequences = self._of(key)
        return OperationId(source, next(sequences))


def grouped(keys: Sequence[str], placing: Placing) -> dict[int, list[int]]:
    """Return the places of *keys* by partition."""
    groups: dict[int, list[int]] = {}
    for place, number in enumerate(placing.partitions_of(keys)):
        if number in groups:
            groups[number].append(place)
        else:
            groups[number] = [place]
    return groups


def scattered(
    groups: Mapping[int, Sequence[int]], results: Mapping[int, Any]
) -> list[Outcome | KeyspaceError]:
    """Return the outcomes of changes in their places, from the result of each partition."""
    outcomes: dict[int, Outcome | KeyspaceError] = {}
    for number, places in groups.items():
        result = results[number]
        some = [result] if isinstance(result, KeyspaceError) else result
        outcomes.update(zip(places, messages.spread(some, len(places)), strict=True))
    return [outcomes[place] for place in range(len(outcomes))]


class PackedRows(NamedTuple):
    """Keys and their values as they are stored.

    Attributes:
        following: the key at which the next page starts; None after the last page.
        age_s: see `StaleValues`.
    """

    rows: list[tuple[str, bytes]]
    following: str | None
    age_s: float | None


class StaleValues(NamedTuple):
    """The result of a stale read.

    Attributes:
        age_s: the values include every write that was acknowledged this many seconds before the
            read returned. None if only owners answered: they do not say how old their values are.
    """

    values: dict[str, Value]
    age_s: float | None


class Fence(Protocol):
    """The term of a leader or of a lock: a `Lead` or a `Lock`."""

    @property
    def name(self) -> str:
        """The name that is held."""

    @property
    def term(self) -> int:
        """Above the terms of all holders before."""


def fenced(fence: Fence | None, offsets: Mapping[str, Value] | None = None) -> Any:  # noqa: ANN401
    """Return *offsets*, and those of a write under *fence*. Raises BadOperation, ConfigError."""
    for name in offsets or ():
        if isinstance(name, str) and name.startswith(FENCE_PREFIX):
            raise BadOperation(f"offsets that begin with {FENCE_PREFIX!r} are kept for fences")
    if fence is None:
        return offsets
    name = checked_text(fence.name, "the name of a fence")
    return {**(offsets or {}), f"{FENCE_PREFIX}{name}": fence.term}


class ChangeOptions(TypedDict, total=False):
    """Options of a write; see `Keyspace.update`.

    Attributes:
        if_tag: write only if the key has a value with this tag; see `tag_of`.
        if_absent: write only if it has no value.
        expires_in: the key expires so many seconds after the write, by the clock of its owner.
        expires_at: it expires then: seconds since 1970, or a `datetime` with a time zone.
        fence: refuse the write once a later term of this leader has written to the partition; or
            unless this `Lock` is held.
        operation_id: by which a repetition of the write is recognised.
        timeout_s: for the call.
    """

    if_tag: str | None
    if_absent: bool
    expires_in: float | None
    expires_at: float | datetime | None
    fence: Fence | None
    operation_id: str | OperationId | None
    timeout_s: float | None


_OPTIONS: Final = ChangeOptions.__optional_keys__


def expiring(
    operation: str,
    argument: Value = None,
    *,
    expires_in: float | None = None,
    expires_at: float | datetime | None = None,
) -> tuple[str, Value]:
    """Return *operation* and *argument* as a change after which the key expires.

    Args:
        expires_in: so many seconds after the change, by the clock of the key's owner.
        expires_at: at this moment: seconds since 1970, or a `datetime` with a time zone.

    Raises:
        ConfigError: if they exclude each other, or are no such times.
    """
    if expires_in is None and expires_at is None:
        return operation, argument
    if operation == "delete":
        raise ConfigError("expires_in and expires_at are for keys that stay, not for a delete")
    if expires_at is None:
        assert expires_in is not None
        in_ms = ms_of(expires_in, "expires_in")
        return EXPIRING, [operation, argument, in_ms, None]
    if expires_in is None:
        return EXPIRING, [operation, argument, None, instant_ms(expires_at, "expires_at")]
    raise ConfigError("expires_in and expires_at exclude each other: give one of them")


def change_of(key: str, operation: str, argument: Value, options: ChangeOptions) -> Change:
    """Return a change as `Keyspace.update` takes it. Raises BadOperation and ConfigError."""
    if not isinstance(operation, str):
        raise wrong("operation", "text", operation)
    if not (isinstance(key, str) and is_usual_key(key)):
        check_key(checked_text(key, "key"))
    if not options:  # the usual case
        return Change(key, operation, argument)
    if not options.keys() <= _OPTIONS:
        unknown, there = min(options.keys() - _OPTIONS), ", ".join(sorted(_OPTIONS))
        raise TypeError(f"a write has no option {unknown!r}; it has {there}")
    if_tag, if_absent = options.get("if_tag"), options.get("if_absent", False)
    if if_tag is not None or if_absent:
        if if_tag is not None:
            checked_text(if_tag, "if_tag")
        operation, argument = conditional_on(operation, argument, if_tag, if_absent=if_absent)
    expires_in, expires_at = options.get("expires_in"), options.get("expires_at")
    changed = expiring(operation, argument, expires_in=expires_in, expires_at=expires_at)
    return Change(key, *changed)


def keys_in(keys: Iterable[str]) -> tuple[str, ...]:
    """Return *keys*, each once, in their order.

    Raises:
        ConfigError: they are not many texts.
        BadOperation: a keyspace cannot have one of them.
    """
    found = tuple(dict.fromkeys(checked_texts(keys, "keys", "key")))
    check_keys(found)
    return found


def changes_in(
    changes: Iterable[Change | tuple[str, str, Value]], offsets: Mapping[str, Value] | None
) -> list[Change]:
    """Return *changes* as `Keyspace.update_many` takes them.

    Raises:
        ConfigError: they are not changes.
        BadOperation: a key is too long to be sent.
    """
    if offsets is not None:
        checked_kind(offsets, Mapping, "offsets", "a map")
    checked_kind(changes, Iterable, "changes", "a list")
    given = list(changes)
    if are_plain(given):  # mostly, and there can be thousands
        return _sendable(list(map(_as_change, given)))
    try:
        wanted = [each if type(each) is Change else Change(*each) for each in given]
    except TypeError:
        for change in given:
            if not isinstance(change, Sequence) or not 2 <= len(change) <= 3:  # noqa: PLR2004
                raise wrong("change", "(key, operation, argument)", change) from None
        raise
    for change in wanted:
        if not isinstance(change.aggregation, str):
            raise wrong("operation", "text", change.aggregation)
    return _sendable(wanted)


def transaction_of(
    changes: Iterable[Change | tuple[str, str, Value]],
    if_tags: Mapping[str, str | None],
    placing: Placing,
) -> tuple[int, list[Change]]:
    """Return the partition of a transaction, and its changes: first its conditions, in order.

    Raises:
        ConfigError: they are not changes, or not of one partition.
        BadOperation: a key is too long to be sent.
    """
    checked_kind(if_tags, Mapping, "if_tags", "a map")
    wanted = changes_in(changes, None)
    if not wanted:
        raise ConfigError("a transaction has one change or more")
    checks = []
    for key, tag in if_tags.items():
        if tag is not None:
            checked_text(tag, "a tag of if_tags")
        held = conditional_on(KEEP, None, tag, if_absent=tag is None)
        checks.append(Change(checked_text(key, "key"), *held))
    keys = [change.key for change in (*checks, *wanted)]
    numbers = placing.partitions_of(keys)
    for key, number in zip(keys, numbers, strict=True):
        if number != numbers[0]:
            hint = (
                "give them a common hash tag, such as {tag}/cart and {tag}/orders"
                if placing.hash_tags
                else "only a keyspace with hash_tags=True can say that keys share one"
            )
            raise ConfigError(
                f"the keys of a transaction are of one partition: {keys[0]!r} is in"
                f" {numbers[0]}, {key!r} in {number}; {hint}"
            )
    return numbers[0], [*_sendable(checks), *wanted]


def values_of(result: Any, checks_count: int) -> list[Value]:  # noqa: ANN401 - of a part
    """Return the values after a transaction with so many conditions. Raises KeyspaceError."""
    outcome = result if isinstance(result, KeyspaceError) else result[0]
    if isinstance(outcome, KeyspaceError):
        raise outcome
    return list(outcome.values[checks_count:])


def _sendable(changes: list[Change]) -> list[Change]:
    # Only of length: a member refuses another wrong key, and makes the other changes.
    if any(len(change[0]) > KEY_BYTES_MAX for change in changes if isinstance(change[0], str)):
        for change in changes:
            if len(change[0]) > KEY_BYTES_MAX:
                check_key(change[0])
    return changes


def scan_of(
    keyspace: str,
    prefix: str,
    start: str | None,
    end: str | None,
    limit: int,
    *,
    generation: int = 0,
    stale: bool,
) -> ScanRequest:
    """Return the request for a page of all partitions, which the caller puts in.

    Raises:
        ConfigError: a bound is not text, or *limit* is not above 0.
    """
    for bound, what in ((prefix, "prefix"), (start, "start"), (end, "end")):
        if not isinstance(bound, str) and (bound is not None or what == "prefix"):
            raise wrong(what, "text", bound)
    return ScanRequest(keyspace, generation, (), prefix, start, end, limit, stale)


def checked_limit(limit: int | None) -> int | None:
    """Return the *limit* of a scan. Raises ConfigError if it is neither None nor 0 or more."""
    if limit is not None and (type(limit) is not int or limit < 0):
        raise wrong("limit", "a whole number, 0 or more, or None", limit)
    return limit


def seconds_left(rows: Sequence[tuple[str, bytes]], now_ms: float) -> float | None:
    """Return how long the key has whose stored value is in *rows*, as `Keyspace.ttl` does."""
    if not rows:
        return 0.0
    ((_, stored),) = rows
    at_ms = at_ms_of(stored)
    return None if at_ms is None else max(at_ms - now_ms, 0.0) / 1_000


def all_of(results: dict[int, Any]) -> dict[int, Any]:
    """Return *results*. Raises the first error among them."""
    for result in results.values():
        if isinstance(result, KeyspaceError):
            raise result
    return results


def known(results: dict[int, Any]) -> dict[int, Any]:
    """Return *results* of writes. Raises KeyspaceUnknown if all of them are that error.

    Then nothing took effect, and the keyspace may have been created again, so another attempt does
    no harm. If some parts took effect, their outcomes must not be lost.
    """
    if results and all(isinstance(result, KeyspaceUnknown) for result in results.values()):
        raise results.popitem()[1]
    return results


@dataclass(slots=True)
class WritesOf:
    """Writes by partition; a result is the outcome of each.

    Attributes:
        host: serves parts that are at this node (`state.shares.host.Host`); None at a client.
        begun: the partitions to which they went before: copies may still be on their way.
    """

    keyspace: str
    generation: int
    parts: Mapping[int, Sequence[Write]]
    host: Any = None
    begun: set[int] = field(default_factory=set)
    endpoint = messages.APPLY
    changes_state = True
    kind = "write"

    def encode(self, numbers: Sequence[int]) -> bytes:
        """Return the body for the partitions *numbers*."""
        begun, parts = self.begun, self.parts
        sent = [(n, tuple(repeated(parts[n]) if n in begun else parts[n])) for n in numbers]
        begun.update(numbers)
        return ApplyRequest(self.keyspace, self.generation, tuple(sent)).encode()

    def decode(self, number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """Return the result of partition *number*. Raises BodyError."""
        return messages.outcomes_of(result, len(self.parts[number]))

    def size(self, number: int) -> int:
        """See `MemberRequest`."""
        return len(self.parts[number])

    def serve_here(self, numbers: Sequence[int]) -> Awaitable[list[Any]]:
        """See `MemberRequest`."""
        begun, parts = self.begun, self.parts
        sent = [(n, repeated(parts[n]) if n in begun else parts[n]) for n in numbers]
        begun.update(numbers)
        found: Awaitable[list[Any]] = self.host.apply(sent)
        return found


@dataclass(slots=True)
class ReadsOf:
    """Keys by partition; a result is the packed value of each, or None. See `WritesOf`."""

    keyspace: str
    generation: int
    parts: Mapping[int, Sequence[str]]
    stale: bool
    host: Any = None
    stored: bool = False
    endpoint = messages.READ
    changes_state = False
    kind = "read"

    @classmethod
    def of(
        cls,
        keyspace: str,
        generation: int,
        keys: Iterable[str],
        placing: Placing,
        *,
        stale: bool,
        host: Any = None,  # noqa: ANN401 - see `WritesOf`
        stored: bool = False,
    ) -> ReadsOf:
        """Return the request for *keys*, each once: a repeated one would have two rows."""
        wanted = keys_in(keys)
        groups = grouped(wanted, placing)
        parts = {number: [wanted[at] for at in places] for number, places in groups.items()}
        return cls(keyspace, generation, parts, stale, host, stored)

    def encode(self, numbers: Sequence[int]) -> bytes:
        """Return the body for the partitions *numbers*."""
        parts = tuple([(number, tuple(self.parts[number])) for number in numbers])
        request = ReadRequest(self.keyspace, self.generation, parts, self.stale, self.stored)
        return request.encode()

    def decode(self, number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        """Return the result of partition *number*. Raises BodyError."""
        return messages.packed_values_of(result, len(self.parts[number]))

    def size(self, number: int) -> int:
        """See `MemberRequest`."""
        return len(self.parts[number])

    def rows(self, results: dict[int, Any]) -> list[tuple[str, bytes]]:
        """Return the keys that exist and their packed values. Raises the error of a part."""
        return [
            (key, packed)
            for number, values in all_of(results).items()
            for key, packed in zip(self.parts[number], values, strict=True)
            if packed is not None
        ]

    def serve_here(self, numbers: Sequence[int]) -> Awaitable[list[Any]]:
        """See `MemberRequest`."""
        parts = [(number, self.parts[number]) for number in numbers]
        found: Awaitable[list[Any]] = self.host.read(parts, stale=self.stale, stored=self.stored)
        return found

    def look(self, number: int) -> Callable[[KeyedState], Any]:
        """See `StaleRequest`."""
        keys, stored = self.parts[number], self.stored
        return lambda state: state.packed(keys, stored=stored)


@dataclass(slots=True)
class ScansOf:
    """Rows in order of keys; a result is a `Scanned`. See `WritesOf`."""

    request: ScanRequest
    host: Any = None
    endpoint = messages.SCAN
    changes_state = False
    kind = "scan"

    @property
    def stale(self) -> bool:
        """Whether others than the owner may answer."""
        return self.request.stale

    def only(self, numbers: Sequence[int]) -> ScanRequest:
        """Return the request for the partitions *numbers*."""
        return replace(self.request, partitions=tuple(numbers))

    def encode(self, numbers: Sequence[int]) -> bytes:
        """Return the body for the partitions *numbers*."""
        return encode(self.only(numbers))

    def decode(self, _number: int, result: Any) -> Scanned:  # noqa: ANN401 - as it came
        """Return the result of a partition. Raises BodyError."""
        return messages.scanned_of(result)

    def size(self, _number: int) -> int:
        """See `MemberRequest`."""
        return 1

    def serve_here(self, numbers: Sequence[int]) -> Awaitable[list[Any]]:
        """See `MemberRequest`."""
        found: Awaitable[list[Any]] = self.host.scan(self.only(numbers))
        return found

    def look(self, _number: int) -> Callable[[KeyedState], Any]:
        """See `StaleRequest`."""
        return lambda state: state.page(self.request)
