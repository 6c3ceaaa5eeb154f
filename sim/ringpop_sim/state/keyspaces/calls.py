"""Calls between the homes of a keyspace, over the virtual network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ringpop_py.base.errors import CallTimeout, ConnectFailed, ConnectionLost
from ringpop_py.member.swim.messages import QUIET_US, Quiet
from ringpop_sim.world.process import Life

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.address import Address
    from ringpop_sim.world.process import Process
    from ringpop_sim.world.world import World


class Caller(Protocol):
    """An end of calls."""

    process: Process

    def after(self, delay_us: int, act: Callable[[], None], /) -> None:
        """Call *act* later, when the process runs."""


class CallHome(Caller, Protocol):
    """An end that serves calls, too."""

    def serve(self, what: str, argument: Any, answer: Callable[[Any], None], /) -> None:
        """Serve a call, and pass the result to *answer*."""


class HomeCall:
    """One call: *what* with *argument*, from *caller* to the process at *machine*.

    Attributes:
        end: called once, with the answer or a `CallError`; None when that is over.
    """

    __slots__ = ("argument", "caller", "end", "machine", "what")

    def __init__(
        self,
        caller: Caller,
        machine: int,
        what: str,
        argument: Any,
        end: Callable[[Any], None],
    ) -> None:
        self.caller = caller
        self.machine = machine
        self.what = what
        self.argument = argument
        self.end: Callable[[Any], None] | None = end


class HomeCalls:
    """All calls of one run."""

    def __init__(self, world: World, home_of: Callable[[Process], CallHome | None]) -> None:
        self._world = world
        self._home_of = home_of
        self._answering: dict[Process, dict[HomeCall, None]] = {}

    def call(
        self,
        caller: Caller,
        to: str,
        what: str,
        argument: Any,
        ttl_us: int,
        end: Callable[[Any], None],
    ) -> None:
        """Call the member *to*; *end* gets the answer, or an error after *ttl_us* at the latest."""
        world, process = self._world, caller.process
        row = process.node.members.get(to)
        if row is None:
            caller.after(0, lambda: end(ConnectFailed(f"{to} is no longer a member")))
            return
        machine = world.network.machine_of(row.address)
        call = HomeCall(caller, machine, what, argument, end)
        world.push(world.now + ttl_us, self._timed_out, call)
        # A client beside its daemon reaches it by name; a member has no calls for itself.
        if machine == process.machine and to != process.name:
            caller.after(0, lambda: self._refused(call))
            return
        if world.network.is_refused(process.machine, machine):
            world.transmit(machine, process.machine, self._refused, call)
        else:
            world.transmit(process.machine, machine, self._arrived, call)
        if caller is self._home_of(process):  # no member knows what a client waits for
            # On average: a node looks each `QUIET_US`, whenever the call was begun.
            world.push(world.now + QUIET_US * 3 // 2, self._look_at_owed, (call, row.address))

    def ended(self, process: Process) -> None:
        """End the calls that *process*, which has ended, has not answered."""
        for call in self._answering.pop(process, {}):
            self._world.transmit(process.machine, call.caller.process.machine, self._lost, call)

    def _arrived(self, call: HomeCall) -> None:
        world = self._world
        process = world.at.get(call.machine)
        home = self._home_of(process) if process is not None else None
        if process is None or home is None:
            if not world.network.is_silent(call.machine):
                world.transmit(call.machine, call.caller.process.machine, self._refused, call)
            return
        self._answering.setdefault(process, {})[call] = None

        def answer(value: Any) -> None:
            if self._answering.get(process, {}).pop(call, call) is None:
                back = call.caller.process.machine
                world.transmit(process.machine, back, self._answered, (call, value))

        home.after(0, lambda: home.serve(call.what, call.argument, answer))

    def _look_at_owed(self, argument: tuple[HomeCall, Address]) -> None:
        call, address = argument
        process = call.caller.process
        if call.end is not None and process.running:
            if process.life is Life.RUNNING:
                self._world.give(process, Quiet(address))
            self._world.push(self._world.now + QUIET_US, self._look_at_owed, argument)

    def _answered(self, argument: tuple[HomeCall, Any]) -> None:
        self._ends(*argument)

    def _refused(self, call: HomeCall) -> None:
        self._ends(call, ConnectFailed("refused"))

    def _lost(self, call: HomeCall) -> None:
        self._ends(call, ConnectionLost("the connection ended"))

    def _timed_out(self, call: HomeCall) -> None:
        self._ends(call, CallTimeout("no answer in time"))

    def _ends(self, call: HomeCall, value: Any) -> None:
        if call.end is None:
            return
        end, call.end = call.end, None
        call.caller.after(0, lambda: end(value))
