"""The messages of a world: which are lost, late, refused or damaged between processes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import BodyError
from ringpop_py.member.swim.messages import (
    Answered,
    Asked,
    Disconnected,
    Failed,
    FailureReason,
    Refusal,
)
from ringpop_py.net.wire.codec import codec_for, endpoint_of
from ringpop_sim.world.network import STRANGERS
from ringpop_sim.world.process import OpenCall, Process
from ringpop_sim.world.trace import ANSWERED, ARRIVED, FAILED, SENT

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from ringpop_py.base.dialect import Dialect
    from ringpop_py.member.swim import effects as fx
    from ringpop_py.member.swim.messages import Input, Request, Response
    from ringpop_sim.plans.plan import Plan
    from ringpop_sim.world.network import VirtualNetwork
    from ringpop_sim.world.trace import Trace
    from ringpop_sim.world.watcher import Watchers

    class ExchangeSurroundings(Protocol):
        """What `Exchange` needs from the world."""

        plan: Plan
        seed: int
        dialect: Dialect
        now: int
        at: dict[int, Process]
        network: VirtualNetwork
        trace: Trace
        checks: Watchers

        def transmit(self, a: int, b: int, action: Callable[[Any], None], argument: object) -> None:
            """Call *action* with *argument* when a message from *a* arrives at *b*, if it does."""

        def give(self, process: Process, message: Input) -> None:
            """Deliver *message* to *process*."""


DAMAGED_BYTES_MAX: Final = 4


class Exchange:
    """Calls between processes. Each call or answer is lost as a whole and delayed on its own.

    Attributes:
        message_count: how many requests and answers were sent.
        coding: what encodes and decodes a sample of the messages.
    """

    def __init__(self, world: ExchangeSurroundings) -> None:
        self.message_count = 0
        self.coding = Coding(world)
        self._world = world
        self._network = world.network
        self._trace = world.trace
        self._tokens = 0

    def call(self, process: Process, effect: fx.CallPeer) -> None:
        """Send the request of *effect*."""
        world, network = self._world, self._network
        # Before the network decides: oracles judge what the node did, whether or not the message
        # arrives.
        for check in world.checks.duties:
            check.duty(process, effect)
        machine = network.machine_of(effect.to)
        self.message_count += 1
        self._trace.event(world.now, SENT, process.serial, effect.call_id)
        call = OpenCall(process, effect.call_id, machine, effect.request)
        # The refusal is a message itself: it takes as long as one, and may be lost.
        if network.is_refused(process.machine, machine):
            world.transmit(machine, process.machine, self._refused, call)
        else:
            world.transmit(process.machine, machine, self._arrive, call)

    def answer(self, process: Process, effect: fx.AnswerPeer) -> None:
        """Send the response of *effect* to the process that waits for it."""
        # Before the call is forgotten: `NamesKept` looks up here which process is answered.
        for check in self._world.checks.duties:
            check.duty(process, effect)
        call = process.answering.pop(effect.token, None)
        if call is None:
            return  # a request from before a revived process ended; its caller learned of the end
        self.message_count += 1
        arguments = call, effect.response
        self._world.transmit(process.machine, call.caller.machine, self._answered, arguments)

    def forge(self, process: Process, request: Request) -> None:
        """Deliver *request* of nobody to *process*; its answer goes nowhere."""
        # Nodes count their calls from 1, so the answer to call 0 reaches no call of the node.
        self._deliver(process, OpenCall(process, 0, STRANGERS, request), request)

    def _deliver(self, process: Process, call: OpenCall, request: Request) -> None:
        self._tokens += 1
        process.answering[self._tokens] = call
        self._world.give(process, Asked(self._tokens, request))

    def break_off(self, process: Process) -> None:
        """Report to the peers and the callers of *process* that its connections broke."""
        for call in process.answering.values():
            self._world.transmit(process.machine, call.caller.machine, self._lost, call)
        for peer in process.peers:
            if peer.running:  # one that has ended before stays among the peers
                arguments = peer, process
                self._world.transmit(process.machine, peer.machine, self._cut_off, arguments)

    def _arrive(self, call: OpenCall) -> None:
        world, caller, machine = self._world, call.caller, call.machine
        process = world.at.get(machine)
        if process is None:
            if not self._network.is_silent(machine):
                world.transmit(machine, caller.machine, self._refused, call)
            return
        request = call.request
        # Only a message that arrives is encoded, because encoding is slow.
        if self.coding.is_due(caller.machine, machine):
            try:
                request = self.coding.request(request, caller.machine, machine)
            except BodyError:
                world.transmit(machine, caller.machine, self._garbled, call)
                return
        # A request opens a connection, which either end may break.
        process.peers[caller] = caller.peers[process] = None
        self._trace.event(world.now, ARRIVED, process.serial, call.call_id)
        self._deliver(process, call, request)

    def _answered(self, argument: tuple[OpenCall, Response]) -> None:
        call, response = argument
        caller = call.caller
        if not caller.running:  # an answer to a process that has ended goes nowhere
            return
        if self.coding.is_due(call.machine, caller.machine):
            try:
                response = self.coding.response(call, response)
            except BodyError:
                self._garbled(call)
                return
        self._trace.event(self._world.now, ANSWERED, caller.serial, call.call_id)
        self._world.give(caller, Answered(call.call_id, response))

    def _failed(self, call: OpenCall, reason: FailureReason) -> None:
        if call.caller.running:
            self._trace.event(self._world.now, FAILED, call.caller.serial, call.call_id)
            self._world.give(call.caller, Failed(call.call_id, reason))

    def _refused(self, call: OpenCall) -> None:
        self._failed(call, "refused")

    def _lost(self, call: OpenCall) -> None:
        self._failed(call, "lost")

    def _garbled(self, call: OpenCall) -> None:
        # As in the product: bytes that cannot be decoded are no evidence that a process is gone.
        self._failed(call, "failed")

    def _cut_off(self, argument: tuple[Process, Process]) -> None:
        peer, ended = argument
        peer.peers.pop(ended, None)  # None: revived meanwhile, without its connections
        self._world.give(peer, Disconnected(ended.address))


class Coding:
    """Encodes and decodes a share of all messages, and every message that may be damaged.

    Attributes:
        encoded_count: how many messages were encoded.
        body_bytes: the total length of their bodies.
    """

    def __init__(self, world: ExchangeSurroundings) -> None:
        self.codec = codec_for(world.dialect)
        self.encoded_count = 0
        self.body_bytes = 0
        self._world = world
        self._share = world.plan.codec_share
        self._random = random.Random(f"codec {world.seed}")

    @property
    def mean_bytes(self) -> float:
        """The mean length of a body in bytes; 0 if no message was encoded."""
        return self.body_bytes / self.encoded_count if self.encoded_count else 0.0

    def is_due(self, a: int, b: int) -> bool:
        """Return whether to encode the next message from *a* to *b*."""
        # Damage is done to bytes, so there have to be bytes.
        if self._world.network.may_damage(a, b):
            return True
        return self._share > 0 and self._random.random() < self._share

    def request(self, request: Request, a: int, b: int) -> Request:
        """Return *request* as it arrives. Raises `BodyError` if it arrives damaged."""
        body, endpoint = self.codec.encode_request(request), endpoint_of(request)
        # A frame has a checksum, so a node never acts on damaged bytes. But its decoder may well
        # see them, and must raise nothing but `BodyError`; what it makes of them does not matter.
        if self._is_damaged(body, a, b):
            self.codec.decode_request(endpoint, self._damaged(body))
            raise BodyError("the frame's checksum is wrong")
        return self.codec.decode_request(endpoint, body)

    def response(self, call: OpenCall, response: Response) -> Response:
        """Return *response* to *call* as it arrives. Raises `BodyError` if it arrives damaged."""
        body, ok = self.codec.encode_response(response), not isinstance(response, Refusal)
        if self._is_damaged(body, call.machine, call.caller.machine):
            self.codec.decode_response(call.request, self._damaged(body), ok=ok)
            raise BodyError("the frame's checksum is wrong")
        return self.codec.decode_response(call.request, body, ok=ok)

    def _is_damaged(self, body: bytes, a: int, b: int) -> bool:
        self.encoded_count += 1
        self.body_bytes += len(body)
        # An empty body has no byte to damage.
        return bool(body) and self._world.network.is_damaged(a, b, self._world.now)

    def _damaged(self, body: bytes) -> bytes:
        """Return *body* with wrong bytes or without its end."""
        draw = self._random
        damaged = bytearray(body)
        if draw.random() < 0.5:  # noqa: PLR2004 - half are changed, half are cut short
            del damaged[draw.randrange(len(damaged)) :]
        for _ in range(draw.randint(1, DAMAGED_BYTES_MAX)):
            if damaged:  # everything may have been cut off
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        return bytes(damaged)
