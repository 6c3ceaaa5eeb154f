"""Streams of a world: bytes in order, or a connection that breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_sim.plans.plan import Cut, Link
from ringpop_sim.units import ms, s
from ringpop_sim.whole.stage.scheduling import Processes, TrioProcess
from ringpop_sim.whole.stage.streams import WINDOW_BYTES, Links, SimulatedNetwork
from ringpop_sim.whole.stage.surroundings import installed
from ringpop_sim.whole.stage.threads import Threads
from ringpop_sim.world.network import VirtualNetwork
from ringpop_sim.world.trace import Trace
from ringpop_sim.world.world import VirtualTime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from ringpop_py.base.address import Address
    from ringpop_sim.whole.stage.streams import SimulatedStream


class Two:
    """Two machines, each with a process, and the network between them."""

    def __init__(self, link: Link) -> None:
        self.time = VirtualTime()
        self.processes = Processes(self.time, Trace(keep=False), 1)
        self.network = VirtualNetwork(link, 1, 2)
        self.links = Links(self.processes, self.network)
        self.addresses = [self.network.connect(machine) for machine in range(2)]
        self.log: list[object] = []

    def start(
        self, machine: int, main: Callable[[SimulatedNetwork], Awaitable[object]]
    ) -> TrioProcess:
        async def run(process: TrioProcess) -> None:
            await main(SimulatedNetwork(self.links, process, machine))

        return TrioProcess(self.processes, f"p{machine}", run)

    def run(self, for_us: int) -> None:
        self.time.run(self.time.now + for_us)

    def serve(self, serve: Callable[[SimulatedStream], Awaitable[object]]) -> TrioProcess:
        """Start a process at machine 1 that serves one connection, and then sleeps."""

        async def main(network: SimulatedNetwork) -> None:
            (listener,) = await network.listen(self.addresses[1])
            await serve(await listener.accept())  # type: ignore[arg-type]
            await trio.sleep_forever()

        return self.start(1, main)

    def connect(self, use: Callable[[SimulatedStream], Awaitable[object]]) -> TrioProcess:
        """Start a process at machine 0 that uses one connection, and logs how that ended."""

        async def main(network: SimulatedNetwork) -> None:
            try:
                await use(await network.connect(self.addresses[1], origin=self.addresses[0]))
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
                self.log.append(type(error).__name__)

        return self.start(0, main)


@pytest.fixture
def two(request: pytest.FixtureRequest) -> Iterator[Two]:
    two = Two(getattr(request, "param", Link()))
    with installed(two.processes, Threads(two.processes)):
        yield two
        two.processes.close(two.links.listeners.clear)


async def read_all(stream: SimulatedStream, into: bytearray) -> None:
    while data := await stream.receive():
        into += data


@pytest.mark.parametrize("two", [Link(), Link(loss=0.3)], indirect=True)
def test_bytes_arrive_in_order_also_where_messages_are_lost(two: Two) -> None:
    sent = bytes(n % 251 for n in range(3 * WINDOW_BYTES))
    found = bytearray()

    async def send(stream: SimulatedStream) -> None:
        view = memoryview(sent)
        while view:
            view = view[await stream.send_some(view) :]
        stream.end_sending()

    two.serve(lambda stream: read_all(stream, found))
    two.connect(send)
    two.run(60 * s)

    assert bytes(found) == sent


def test_a_window_that_is_full_holds_the_sender_back(two: Two) -> None:
    async def send(stream: SimulatedStream) -> None:
        while stream.send_nowait(b"x" * 65_536):
            two.log.append(65_536)

    async def read_nothing(_stream: SimulatedStream) -> None:
        await trio.sleep_forever()

    two.serve(read_nothing)
    two.connect(send)
    two.run(s)

    assert sum(two.log) == WINDOW_BYTES  # type: ignore[arg-type]


def test_a_connection_to_nobody_is_refused(two: Two) -> None:
    two.connect(lambda stream: stream.receive())
    two.run(s)

    assert two.log == ["ConnectionRefusedError"]


def test_a_process_that_is_killed_resets_what_it_has_not_read(two: Two) -> None:
    async def read_nothing(_stream: SimulatedStream) -> None:
        await trio.sleep_forever()

    async def send(stream: SimulatedStream) -> None:
        stream.send_nowait(b"unread")
        two.log.append(await stream.receive())

    process = two.serve(read_nothing)
    two.connect(send)
    two.run(s)
    process.kill()
    two.run(s)

    assert two.log == ["BrokenResourceError"]


def test_a_process_that_is_killed_ends_the_streams_that_it_has_read(two: Two) -> None:
    async def receive(stream: SimulatedStream) -> None:
        two.log.append(await stream.receive())

    process = two.serve(lambda stream: stream.receive())
    two.connect(receive)
    two.run(s)
    process.kill()
    two.run(s)

    assert two.log == [b""]


def test_after_a_loss_of_power_nothing_is_heard_until_the_machine_is_back(two: Two) -> None:
    async def receive(stream: SimulatedStream) -> None:
        while True:
            stream.send_nowait(b"?")
            with trio.move_on_after(1):
                await stream.receive()

    process = two.serve(lambda stream: read_all(stream, bytearray()))
    two.connect(receive)
    two.run(s)
    two.network.silence(1)
    process.kill()
    two.run(30 * s)
    assert two.log == []
    two.network.connect(1)
    two.run(10 * s)

    assert two.log == ["BrokenResourceError"]


def test_a_cut_delays_and_a_firewall_that_refuses_breaks(two: Two) -> None:
    found = bytearray()

    async def send(stream: SimulatedStream) -> None:
        await trio.sleep(1)
        stream.send_nowait(b"late")
        await trio.sleep(20)
        stream.send_nowait(b"never")
        await stream.receive()

    two.serve(lambda stream: read_all(stream, found))
    two.connect(send)
    two.run(500 * ms)
    cut = Cut(at_us=0, left=(0,), right=(1,), one_way=True)
    two.network.cut(cut)
    two.run(9 * s)
    assert not found
    two.network.mend(cut)
    two.run(5 * s)
    assert found == b"late"
    two.network.cut(Cut(at_us=0, left=(0,), right=(1,), refuse=True))
    two.run(10 * s)

    assert two.log == ["BrokenResourceError"]
    assert found == b"late"


def test_two_processes_cannot_listen_at_one_address(two: Two) -> None:
    address: Address = two.addresses[1]

    async def listen(network: SimulatedNetwork) -> None:
        try:
            await network.listen(address)
        except OSError as error:
            two.log.append(error.strerror)
        await trio.sleep_forever()

    first = two.start(1, listen)
    two.run(s)
    two.start(1, listen)
    two.run(s)
    assert two.log == ["Address already in use"]
    first.kill()
    two.start(1, listen)
    two.run(s)

    assert len(two.log) == 1


def test_a_paused_process_is_connected_to_by_its_kernel(two: Two) -> None:
    async def send(stream: SimulatedStream) -> None:
        two.log.append("up")
        stream.send_nowait(b"waits")

    found = bytearray()
    process = two.serve(lambda stream: read_all(stream, found))
    two.run(s)
    process.pause()
    two.connect(send)
    two.run(s)
    assert two.log == ["up"]
    assert not found
    process.resume()
    two.run(s)

    assert found == b"waits"
