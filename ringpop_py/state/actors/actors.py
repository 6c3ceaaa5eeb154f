"""Actors: objects with a key and a state, each at one node of the cluster, one message at a time.

An actor lives at the owner of its key's partition. It is loaded with its saved state when its
first message arrives. Its state is in the keyspace before a message is answered, so it
survives moves and crashes::

    class Account(Actor[int, int]):
        state = 0

        async def receive(self, message: int) -> int:
            if self.state + message < 0:
                raise ApplicationError("overdrawn", f"there are only {self.state}")
            self.state += message
            return self.state

    accounts = keyspace.actor(Account)  # at every node
    await accounts.ask("alice", 100)  # from any node
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

import trio

from ringpop_py.base.arguments import checked_callable
from ringpop_py.base.errors import ApplicationError, BadOperation, ConfigError, RingpopError
from ringpop_py.base.logs import log
from ringpop_py.base.supervision import one_line
from ringpop_py.base.values.declared import convert
from ringpop_py.base.values.operations import Change, OperationId, Value
from ringpop_py.base.values.packed import decode_value
from ringpop_py.state.actors.mail import ACTOR, Mail, MailAnswered, stored_under
from ringpop_py.state.actors.mailboxes import Kind, pack
from ringpop_py.state.table.operation_ids import NO_DIGEST, digest_of, id_of

if TYPE_CHECKING:
    from ringpop_py.state.actors.host import ActorHost
    from ringpop_py.state.shares.dispatcher import MemberRequest
    from ringpop_py.state.tasks import Spawn

M = TypeVar("M")
R = TypeVar("R")

MAILBOX_MAX: Final = 1_000
ACTORS_MAX: Final = 10_000
TELLS_MAX: Final = 1_000
SOURCES_MAX: Final = 65_536
"""The most actors for which this node counts its messages; the least used gets a new source."""
KIND_CHARACTERS_MAX: Final = 100


class Actor(ABC, Generic[M, R]):
    """The base of an application's actors, for messages of type *M* and replies of type *R*.

    Messages, replies and the state are values as a keyspace holds them. An actor that fails, or
    that is not needed for a while, is made again from its state. So its other attributes are only
    a cache.

    Attributes:
        key: identifies the actor within its class.
        state: what `receive` leaves here is saved. A class or its constructor sets the default;
            each new actor begins with a copy of it.
        actors: sends messages to others of the same class. An actor that asks itself, or asks one
            that waits for it, gets no answer.
    """

    key: str
    state: Any = None
    actors: Actors[M, R]

    @abstractmethod
    async def receive(self, message: M) -> R:
        """Answer *message*. The next one is handed in only when this one is done.

        If it raises, the state is restored, and the caller gets an `ApplicationError`: the one
        raised, or one with the name of the exception. It may be called again for a message whose
        reply was lost before its effect was saved; so effects elsewhere should be idempotent.
        """


class _Home(Protocol):
    """The methods of `Keyspace` that its actors use."""

    @property
    def name(self) -> str: ...
    @property
    def generation(self) -> int: ...
    def partition_of(self, key: str) -> int: ...
    def owner_of(self, key: str) -> str: ...
    async def get(self, key: str, *, timeout_s: float | None = None) -> Value: ...


class Actors(Generic[M, R]):
    """The actors of one class, seen from any node. Made by `Keyspace.actor`."""

    def __init__(self, name: str, wiring: Wiring) -> None:
        self.name = name
        self._home = wiring.home
        self._ask = wiring.ask
        self._spawn = wiring.spawn
        self._stage = wiring.stage
        self._ids = _Ids()
        self._tells = trio.Semaphore(TELLS_MAX)

    def __repr__(self) -> str:
        return f"<Actors {self.name!r} in {self._home!r}>"

    def partition_of(self, key: str) -> int:
        """Return the partition of the actor *key*."""
        return self._home.partition_of(stored_under(self.name, key))

    def owner_of(self, key: str) -> str:
        """Return the member that owns the actor *key*, as far as this node knows."""
        return self._home.owner_of(stored_under(self.name, key))

    def in_memory(self) -> list[str]:
        """Return the keys of the actors that are in memory at this node."""
        return self._stage.mailboxes.in_memory(self.name)

    async def ask(
        self,
        key: str,
        message: M,
        *,
        operation_id: str | OperationId | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Return the reply of the actor *key* to *message*, after its new state was saved.

        A message that does not change the state costs no write. If the partition moves, the message
        may be sent again to the new owner; it takes effect once all the same.

        Args:
            operation_id: identifies the message. A second message with the id of one that changed
                the state gets the same reply and changes nothing. By default an id is generated:
                retries inside this call are then safe, but repeating the call is not.

        Raises:
            OperationIdReused: if another message with that id changed the state of this actor, or
                of one whose key is in the same partition.
            ApplicationError: if the actor raised an error; its state did not change.
            ActorBusy: if its mailbox is full, or too many other actors are at work there.
            BadOperation: if the message, the reply or the new state is not a value, or too large.
            OperationTooOld: if the message took effect so long ago that its reply is not known.
            KeyspaceError: as all methods of `Keyspace`. After `OutcomeUnknown`, the same call with
                the same *operation_id* is safe.
        """
        answered = await self._send(self._mail(key, message, operation_id), timeout_s)
        if answered.error is not None:
            raise ApplicationError(*answered.error)
        return cast(R, decode_value("msgpack", answered.reply or b""))

    async def tell(
        self,
        key: str,
        message: M,
        *,
        operation_id: str | OperationId | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Send *message* to the actor *key* without waiting for a reply.

        The message is lost if this node dies before it arrives; other failures are logged. Messages
        may arrive in another order than they were sent. Waits while `TELLS_MAX` are under way.
        """
        mail = self._mail(key, message, operation_id)
        await self._tells.acquire()  # back-pressure
        self._stage.tells_count += 1
        self._spawn(self._bring, mail, timeout_s)

    async def state_of(self, key: str, *, timeout_s: float | None = None) -> Value:
        """Return the saved state of the actor *key* without waking it; None if it has none."""
        stored = stored_under(self.name, key)
        record = await self._home.get(stored, timeout_s=timeout_s)
        return record.get("state") if isinstance(record, dict) else None

    async def _bring(self, mail: Mail, timeout_s: float | None) -> None:
        try:
            answered = await self._send(mail, timeout_s)
            trouble = None if answered.error is None else ": ".join(answered.error)
        except RingpopError as error:
            trouble = f"{type(error).__name__}: {error}"
        finally:
            self._tells.release()
            self._stage.tells_count -= 1
        if trouble is not None:
            log.warning("message-failed", actor=mail.stored_under, text=trouble)

    async def _send(self, mail: Mail, timeout_s: float | None) -> MailAnswered:
        request = _Ask(self._stage, mail)
        found = await self._ask(request, (mail.partition,), timeout_s)
        return cast(MailAnswered, found[mail.partition])

    def _mail(self, key: str, message: M, given: str | OperationId | None) -> Mail:
        home = self._home
        change = Change(stored_under(self.name, key), ACTOR, cast(Value, message))
        return Mail(
            home.name,
            home.generation,
            self.partition_of(key),
            self.name,
            key,
            *(self._ids.next(key) if given is None else id_of(given)),
            pack(change.argument),
            NO_DIGEST if given is None else digest_of([change]),
        )


Ask = Callable[["MemberRequest", Iterable[int], float | None], Awaitable[dict[int, Any]]]


class Wiring(NamedTuple):
    """The objects that connect actors to their keyspace and their node."""

    home: _Home
    ask: Ask
    spawn: Spawn
    stage: ActorHost


@dataclass(frozen=True, slots=True)
class _Ask:
    """See `ringpop_py.state.shares.dispatcher.MemberRequest`."""

    stage: ActorHost
    mail: Mail
    endpoint = ACTOR
    changes_state = True

    def encode(self, _numbers: Sequence[int]) -> bytes:
        return self.mail.encode()

    def decode(self, _number: int, result: Any) -> object:  # noqa: ANN401 - as it came
        return convert(MailAnswered, result)

    async def serve_here(self, _numbers: Sequence[int]) -> list[Any]:
        return [await self.stage.take(self.mail)]


class _Ids:
    """Ids for messages, with a source for each actor."""

    # A partition remembers a limited number of ids for each source. With one source for all actors,
    # messages to fast ones could push out the id of a message that a slow one has not handled yet.

    def __init__(self) -> None:
        first, numbers = secrets.token_hex(8), count(1)
        # An actor that is forgotten gets a new source.
        self._of = lru_cache(SOURCES_MAX)(lambda _key: (f"{first}/{next(numbers)}", count()))

    def next(self, key: str) -> OperationId:
        """Return a new id for a message to the actor *key*."""
        source, sequences = self._of(key)
        return OperationId(source, next(sequences))


def make_actors(
    actor: Callable[[], Actor[M, R]], name: str | None, limits: tuple[int, int], wiring: Wiring
) -> Actors[M, R]:
    """See `Keyspace.actor`."""
    name = str(getattr(actor, "__name__", "")) if name is None else name
    if not 0 < len(name) <= KIND_CHARACTERS_MAX or "/" in name or not name.isprintable():
        raise ConfigError(
            f"the name of a class of actors has 1 to {KIND_CHARACTERS_MAX} printable characters "
            f"and no slash, so not {name!r}"
        )
    if min(limits) < 1:
        raise ConfigError(f"mailbox_max and actors_max are 1 or more, not {limits}")
    _check(actor, name)  # here rather than at its first message
    actors: Actors[M, R] = Actors(name, wiring)

    def make(key: str) -> Actor[M, R]:
        made = actor()
        made.key = key
        made.actors = actors
        return made

    wiring.stage.mailboxes.register(Kind(name, make, *limits))
    return actors


def _check(actor: Callable[[], Actor[M, R]], name: str) -> None:
    """Raise ConfigError if *actor* does not make an actor."""
    what = f"class of actors {name!r}"
    checked_callable(actor, what)
    try:
        made = actor()
    except Exception as error:  # noqa: BLE001 - of the application's code
        why = f"it cannot be made without arguments: {one_line(error)}"
        raise ConfigError(f"{what}: {why}; pass a functools.partial and a name") from None
    if not isinstance(made, Actor):
        raise ConfigError(f"{what} is not derived from ringpop_py.Actor")
    try:
        pack(made.state)
    except BadOperation as error:
        raise ConfigError(f"{what}: its default state is not a value: {error}") from None
