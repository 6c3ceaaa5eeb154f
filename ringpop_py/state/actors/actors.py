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

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from ringpop_py.base.arguments import checked_callable
from ringpop_py.base.errors import BadOperation, ConfigError
from ringpop_py.base.supervision import one_line
from ringpop_py.state.actors.host import agenda_of_now, asking
from ringpop_py.state.actors.mail import mail_of, pack, stored_under
from ringpop_py.state.actors.mailboxes import Kind
from ringpop_py.state.requests import MailIds

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.arguments import ZonedTime
    from ringpop_py.base.values.operations import OperationId, Value
    from ringpop_py.state.actors.host import ActorHost
    from ringpop_py.state.actors.mail import Mail
    from ringpop_py.state.actors.reminders import Reminder
    from ringpop_py.state.placement.keys import Placing

M = TypeVar("M")
R = TypeVar("R")

MAILBOX_MAX: Final = 1_000
ACTORS_MAX: Final = 10_000
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
            that waits for it, is refused (`BadOperation`).
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

    async def on_reminder(self, reminder: Reminder) -> None:
        """Act on *reminder*, which is due, as on a message. A class that uses reminders has this.

        If it raises, the state is restored, and the reminder comes again, after 1 to 60 s.
        """
        raise NotImplementedError(f"{type(self).__name__} has no on_reminder")

    def remind(
        self,
        name: str,
        *,
        in_s: float | None = None,
        at: float | ZonedTime | None = None,
        every_s: float | None = None,
        message: Value = None,
    ) -> None:
        """Have the reminder *name* delivered to `on_reminder`, wherever this actor is then.

        To be called in `receive` or `on_reminder`. It is saved together with what that changes, and
        not at all if that fails. It replaces one of the same name; there are up to `REMINDERS_MAX`.

        Args:
            in_s: after so many seconds; with 0, soon: the next step of some work.
            at: at this moment: seconds since 1970, or a `datetime` with a time zone. If it has
                passed, soon.
            every_s: again and again after so many seconds, 1 or more. What was missed, because
                nobody owned the actor, comes once.
            message: any value of a keyspace.

        Raises:
            ConfigError: if the arguments are not as above, or the class has no `on_reminder`.
            BadOperation: outside of these methods; if *message* is not a value; if there are too
                many reminders.
        """
        if not _reminds(self):
            raise ConfigError(f"{type(self).__name__} has no on_reminder: define it")
        agenda_of_now().remind(name, message, in_s, at, every_s)

    def cancel_reminder(self, name: str) -> bool:
        """Cancel a reminder; return whether there was one. As `remind`, it is part of a turn."""
        return agenda_of_now().cancel(name)


class _Home(Protocol):
    """The methods of `Keyspace` that its actors use."""

    @property
    def name(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def placing(self) -> Placing: ...
    def partition_of(self, key: str) -> int: ...
    def owner_of(self, key: str) -> str: ...
    async def get(self, key: str, *, timeout_s: float | None = None) -> Value: ...


class Actors(Generic[M, R]):
    """The actors of one class, seen from any node. Made by `Keyspace.actor`."""

    def __init__(self, name: str, wiring: Wiring) -> None:
        self.name = name
        self._home = wiring.home
        self._deliveries = wiring.stage.deliveries
        self._stage = wiring.stage
        self._ids = MailIds()

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
            BadOperation: if the message, the reply or the new state is not a value, or too large;
                or if the actor, directly or through others, waits for this one.
            OperationTooOld: if the message took effect so long ago that its reply is not known.
            KeyspaceError: as all methods of `Keyspace`. After `OutcomeUnknown`, the same call with
                the same *operation_id* is safe.
        """
        mail = self._mail(key, message, operation_id)
        with asking(mail) as sent:
            return cast(R, (await self._deliveries.bring(sent, timeout_s)).value())

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
        may arrive in another order than they were sent. Waits while `TELLS_MAX` of this keyspace
        are under way.
        """
        mail = self._mail(key, message, operation_id)
        await self._deliveries.wait_for_room()  # back-pressure
        self._deliveries.begin(mail, timeout_s)

    async def state_of(self, key: str, *, timeout_s: float | None = None) -> Value:
        """Return the saved state of the actor *key* without waking it; None if it has none."""
        stored = stored_under(self.name, key)
        record = await self._home.get(stored, timeout_s=timeout_s)
        return record.get("state") if isinstance(record, dict) else None

    def _mail(self, key: str, message: M, given: str | OperationId | None) -> Mail:
        home = self._home
        return mail_of(
            *(home.name, home.generation, home.placing, self.name, key, message, given),
            self._ids.next,
        )


class Wiring(NamedTuple):
    """The objects that connect actors to their keyspace."""

    home: _Home
    stage: ActorHost


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
    reminds = _check(actor, name)  # here rather than at its first message
    actors: Actors[M, R] = Actors(name, wiring)

    def make(key: str) -> Actor[M, R]:
        made = actor()
        made.key = key
        made.actors = actors
        return made

    wiring.stage.register(Kind(name, make, *limits, reminds))
    return actors


def _reminds(actor: Actor[Any, Any]) -> bool:
    return type(actor).on_reminder is not Actor.on_reminder


def _check(actor: Callable[[], Actor[M, R]], name: str) -> bool:
    """Return whether what *actor* makes has reminders. Raises ConfigError if it is no actor."""
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
    return _reminds(made)
