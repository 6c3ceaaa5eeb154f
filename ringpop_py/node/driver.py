"""Drives a Node over a Channel: one task owns the node, and carries out its effects.

The order matters: everything that has arrived is processed before anything that is due. Otherwise a
loop that was delayed would accuse peers whose answers already wait here.

While the owner sleeps, what peers send is processed for it by the task that has received it: a node
at rest has little else to do, and a turn of the owner would cost as much again. Inputs never run
inside each other: what one of them causes waits behind it.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from contextvars import copy_context
from math import inf
from typing import TYPE_CHECKING, Final, NoReturn

import trio

from ringpop_py.base.errors import (
    BadRequest,
    BodyError,
    CallError,
    CallTimeout,
    ConnectBroke,
    ConnectionLost,
    ConnectRefused,
    ConnectTooSlow,
    ConnectUntrusted,
    PeerBusy,
    PeerDeclined,
    PeerFailed,
    PeerSilent,
)
from ringpop_py.member.swim import effects as fx
from ringpop_py.member.swim.messages import (
    Answered,
    Asked,
    Disconnected,
    Failed,
    FailureReason,
    Input,
    Join,
    Ping,
    Quiet,
    Refusal,
    Response,
)
from ringpop_py.net.security.identity import Role
from ringpop_py.net.transport.deadlines import now_us
from ringpop_py.net.wire.calls import NODE_SERVICE, Answer, Call
from ringpop_py.net.wire.codec import Codec, codec_for, endpoint_of
from ringpop_py.node.signals.reach import Reach
from ringpop_py.node.signals.strain import Lateness

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringpop_py.member.swim.node import Node
    from ringpop_py.net.transport.channel import Channel, IncomingCall

INBOX_MAX: Final = 10_000
MICROSECONDS: Final = 1_000_000

REASON_CHARACTERS_MAX: Final = 500
LEFT_OUT_MAX: Final = 8
"""How many parts that were left out of one message are reported; further ones are not."""

COMPARE_VERSIONS: Final = (
    "check that it is a node of this cluster, with the same dialect and a compatible version"
)
COMPARE_SETTINGS: Final = "compare its settings with those of this node"
PASSING: Final = frozenset({"not-ready", "self-join", "name-taken", "leaving"})
"""Refusals that pass without action, or that have an effect of their own (`effects.NameTaken`)."""
GO_NOT_READY: Final = "node is not ready to handle requests"
"""The Go implementation's ``not-ready``: it has no kinds of refusals."""

# The first match counts. It shows members whether a peer is gone or only silent.
_REASONS: Final[tuple[tuple[type[CallError], FailureReason], ...]] = (
    (ConnectRefused, "refused"),
    (ConnectBroke, "lost"),
    (PeerSilent, "timeout"),
    (ConnectionLost, "lost"),
    (ConnectTooSlow, "timeout"),
    (CallTimeout, "timeout"),
    (PeerDeclined, "declined"),
)


def suspended_us() -> int:
    """Return for how long this machine has been suspended since it started, in microseconds.

    The clock of `now_us` stands still in that time. Only Linux has another one that does not; on
    other systems this returns 0.
    """
    if sys.platform != "linux":
        return 0
    # In this order: a process that is delayed between the two readings sees less, never more.
    with_suspension_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return (with_suspension_ns - time.clock_gettime_ns(time.CLOCK_MONOTONIC)) // 1000


class NodeDriver:
    """Owns *node* for as long as `run` runs.

    Args:
        observe: called with the effects that are neither calls nor answers, in order. Those of one
            input come together, before any peer is called or answered.
        suspended_us: returns for how long the machine has been suspended, in microseconds, since
            some instant in the past; only the differences count.

    Attributes:
        digest: returns what becomes `Node.digest` before each turn.
        reach: the results of our pings.
        lateness: how late the event loop woke the node for its deadlines.
    """

    def __init__(
        self,
        node: Node,
        channel: Channel,
        observe: Callable[[Sequence[fx.Effect]], None],
        *,
        suspended_us: Callable[[], int] = suspended_us,
    ) -> None:
        self.node = node
        self._channel = channel
        self.digest: Callable[[], int] = lambda: 0
        self.reach = Reach(lambda: {member.address for member in node.members})
        self.lateness = Lateness()
        self._observe = observe
        self._suspended_us = suspended_us
        self._suspended_seen_us = suspended_us()
        self._left_out: list[str] = []
        self._codec: Codec = codec_for(node.dialect, self._left_out.append)
        self._inbox: deque[Input | Callable[[int], list[fx.Effect]]] = deque()
        self._sleep: trio.CancelScope | None = None  # of the owner, until it is woken
        # Calls that other tasks make for the owner belong to no trace of theirs.
        self._context = copy_context()
        self._waiting: dict[trio.Event, None] = {}
        self._end: BaseException | None = None  # what ended the node
        self._tokens: dict[int, IncomingCall] = {}
        self._token_count = 0
        for endpoint in self._codec.endpoints:
            channel.serve(NODE_SERVICE, endpoint, self._asked, role=Role.MEMBER)
        channel.on_disconnect = lambda address: self._put(Disconnected(address))
        channel.on_quiet = lambda address: self._put(Quiet(address))
        channel.on_trouble = self.trouble

    async def run(self, follow: Callable[[], None] = lambda: None) -> NoReturn:
        """Drive the node until cancelled; then tasks that wait for it get an error.

        Args:
            follow: called each time the node was woken, when it has done what was due.
        """
        try:
            while True:
                self._take_in()
                self._carry_out(self.node.advance(now_us()))
                follow()
                if not self._inbox:
                    await self._rest()
        finally:
            self._end = self._end or PeerDeclined("this node is ending")
            for done in self._waiting:
                done.set()

    def _take_in(self) -> None:
        """Process what has arrived, in order."""
        lasted_us = self._suspended_us() - self._suspended_seen_us
        if lasted_us > 0:
            self._suspended_seen_us += lasted_us
            self._carry_out(self.node.note_suspension(lasted_us, now_us()))
        self.node.digest = self.digest()
        while self._inbox:
            item, now = self._inbox[0], now_us()
            self._carry_out(item(now) if callable(item) else self.node.receive(item, now))
            self._inbox.popleft()  # only now: what arrived meanwhile had to wait

    async def _rest(self) -> None:
        """Sleep until something is due or submitted."""
        try:
            with trio.CancelScope(deadline=self._due_at()) as sleep:
                self._sleep = sleep
                await trio.lowlevel.wait_task_rescheduled(self._woken)
        finally:
            if self._end is not None:
                raise self._end
        late_s = trio.current_time() - sleep.deadline
        if late_s >= 0:
            self.lateness.observe(late_s, trio.current_time())
        # A deadline or an input has come: tasks with bytes to read read them first.
        await trio.lowlevel.checkpoint()

    def _woken(self, _: object) -> trio.lowlevel.Abort:
        self._sleep = None  # at the end, too: from now on all inputs wait for the owner
        return trio.lowlevel.Abort.SUCCEEDED

    def _due_at(self) -> float:
        deadline = self.node.next_deadline
        return inf if deadline is None else deadline / MICROSECONDS

    def submit(self, action: Callable[[int], list[fx.Effect]]) -> None:
        """Have the owning task call *action* with the time, and carry out what it returns."""
        self._inbox.append(action)
        if self._sleep is not None:
            self._sleep.cancel()

    async def perform(self, action: Callable[[int], list[fx.Effect]]) -> None:
        """Do as `submit`, and return when *action* is done.

        Raises:
            PeerBusy: too many messages wait here. Nothing was done.
            PeerDeclined: this node has ended. Nothing was done.
        """
        self._require_room()
        done = trio.Event()
        performed = False

        def act(now: int) -> list[fx.Effect]:
            nonlocal performed
            performed = True
            done.set()
            return action(now)

        self.submit(act)
        self._waiting[done] = None
        try:
            if self._end is None:
                await done.wait()
        finally:
            del self._waiting[done]
        if not performed:
            raise PeerDeclined("this node is ending")

    async def catch_up(self) -> None:
        """Return when each message that arrived before this call, on any connection, is processed.

        The rest of a message in several pieces of `RECEIVE_BYTES_MAX` may still be in the socket.

        Raises:
            PeerBusy, PeerDeclined: see `perform`.
        """
        # Connections run in any order: after a turn of the event loop, each has read what came.
        await trio.lowlevel.checkpoint()
        await self.perform(lambda _now: [])

    def _require_room(self) -> None:
        if len(self._inbox) >= INBOX_MAX:
            raise PeerBusy(f"{INBOX_MAX} messages wait for this node already; try again")

    def _put(self, item: Input) -> None:
        """Have *item*, which a peer sent, processed: now, or behind what is being processed."""
        self._inbox.append(item)
        if self._sleep is None or len(self._inbox) > 1:
            return
        try:
            self._context.run(self._take_in)
        except BaseException as error:  # noqa: BLE001 - it ends the node, and not who brought *item*
            self._end = error
        if self._sleep is not None:
            self._sleep.deadline = -inf if self._end else self._due_at()

    # Duties.

    def _carry_out(self, effects: list[fx.Effect]) -> None:
        # Facts come first, so that the ring agrees with the member list before anything else is
        # done: a call or an answer may cause a `PeerTrouble`.
        observed = [
            effect for effect in effects if not isinstance(effect, fx.CallPeer | fx.AnswerPeer)
        ]
        if observed:
            self._observe(observed)
        for effect in effects:
            if isinstance(effect, fx.CallPeer):
                self._call(effect)
            elif isinstance(effect, fx.AnswerPeer):
                self._answer(effect)

    def _call(self, effect: fx.CallPeer) -> None:
        request = effect.request
        call = Call(
            NODE_SERVICE,
            endpoint_of(request),
            b"",
            self._codec.encode_request(request),
            ttl_s=effect.timeout_us / MICROSECONDS,
            scheme=self.node.dialect.scheme,
        )

        began_at = trio.current_time()

        def done(outcome: Answer | CallError) -> None:
            if isinstance(request, Ping):
                if isinstance(outcome, CallError):
                    self.reach.failed(effect.to, _reason_of(outcome), str(outcome))
                else:
                    self.reach.answered(effect.to, trio.current_time() - began_at)
            self._put(self._ended(effect, outcome))

        self._channel.begin(effect.to, call, done)

    def _ended(self, effect: fx.CallPeer, outcome: Answer | CallError) -> Input:
        """Return the input for how a call ended; report what an operator should know."""
        peer, endpoint, call_id = str(effect.to), endpoint_of(effect.request), effect.call_id
        if isinstance(outcome, CallError):
            if isinstance(outcome, BadRequest | PeerFailed):
                self.trouble(peer, endpoint, f"the call failed: {outcome}")
            reason = _reason_of(outcome)
            if isinstance(outcome, ConnectUntrusted) and isinstance(effect.request, Join):
                reason = "untrusted"
            return Failed(call_id, reason, str(outcome))
        self._left_out.clear()
        try:
            response = self._codec.decode_response(effect.request, outcome.arg3, ok=outcome.ok)
        except BodyError as error:
            self.trouble(peer, endpoint, f"its answer cannot be read, and was not used: {error}")
            return Failed(call_id, "failed", str(error))
        self._tell_left_out(peer, endpoint)
        proved = self._channel.identity_at(effect.to)
        said = getattr(response, "source", "")
        if proved is not None and said not in ("", proved.name):
            why = f"it says that it is {said!r:.100}, and is {proved}"
            self.trouble(peer, endpoint, f"its answer was not used: {why}")
            return Failed(call_id, "failed", why)
        text = _lasting_refusal(response)
        if text and not isinstance(effect.request, Join):  # the node itself reports joins
            self.trouble(peer, endpoint, f"it refuses this node: {text}", COMPARE_SETTINGS)
        return Answered(call_id, response)

    def _answer(self, effect: fx.AnswerPeer) -> None:
        # The call may have ended meanwhile; a late answer is dropped there.
        incoming = self._tokens.pop(effect.token)
        body = self._codec.encode_response(effect.response)
        incoming.answer(Answer(ok=not isinstance(effect.response, Refusal), arg3=body))
        text = _lasting_refusal(effect.response)
        if text and not text.startswith("wrong-cluster"):  # the node itself reports strangers
            reason = f"this node refuses it: {text}"
            self.trouble(incoming.caller, incoming.endpoint, reason, COMPARE_SETTINGS)

    # What an operator should know.

    def trouble(
        self, peer: str, endpoint: str, reason: str, advice: str = COMPARE_VERSIONS
    ) -> None:
        """Report that *peer* and this node misunderstood each other; see `effects.PeerTrouble`."""
        trouble = fx.PeerTrouble(peer, endpoint, reason[:REASON_CHARACTERS_MAX], advice)
        self._observe([trouble])

    def _tell_left_out(self, peer: str, endpoint: str) -> None:
        """Report the parts of the body just read that are not in its message."""
        for what in self._left_out[:LEFT_OUT_MAX]:
            self.trouble(peer, endpoint, f"its message was used without a part: {what}")

    # What arrives.

    def _asked(self, incoming: IncomingCall) -> None:
        # JSON may also be called raw.
        scheme = self.node.dialect.scheme
        if incoming.scheme != scheme and (scheme, incoming.scheme) != ("json", "raw"):
            raise BodyError(f"this cluster gossips in {scheme}, not in {incoming.scheme}")
        self._require_room()
        self._left_out.clear()
        request = self._codec.decode_request(incoming.endpoint, incoming.arg3)
        self._tell_left_out(incoming.caller, incoming.endpoint)
        identity = incoming.identity
        if identity is not None and identity.name != request.source:
            raise BodyError(f"it says that it is {request.source!r:.100}, and is {identity}")
        self._token_count += 1
        self._tokens[self._token_count] = incoming
        self._put(Asked(self._token_count, request))


def _lasting_refusal(response: Response) -> str:
    """Return the text of a refusal that lasts until somebody acts; otherwise an empty one."""
    if not isinstance(response, Refusal) or response.kind in PASSING:
        return ""
    return "" if response.message == GO_NOT_READY else f"{response.kind}: {response.message}"


def _reason_of(error: CallError) -> FailureReason:
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    return "failed"
