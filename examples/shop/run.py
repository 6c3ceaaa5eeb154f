"""A shop on three hosts, while they are killed, paused and restarted, and their clocks jump.

Customers fill carts; some check out in time, some too late, some never. A dashboard watches, and
is killed as well. At the end everything has to add up, to the last spoon.

    python examples/shop/run.py --kills 5 --for 40
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from hosts import HOSTS, Process, Shop, open_processes
from service import ITEMS

from ringpop_py import AsyncClient, AsyncKeyspaceClient, RingpopError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

CUSTOMERS = 10
READY_S = 60.0
BEGAN_AT = time.monotonic()


def tell(text: str) -> None:
    """Print what happens, and when."""
    print(f"{time.monotonic() - BEGAN_AT:6.2f} s  {text}", flush=True)


async def until(condition: Callable[[], Awaitable[object]], what: str) -> None:
    """Return once *condition* holds; RingpopError means that it does not yet."""
    trouble = ""
    with trio.move_on_after(READY_S):
        while True:
            try:
                if await condition():
                    return
            except RingpopError as error:
                trouble = f" ({error})"
            await trio.sleep(0.1)
    message = f"waited in vain until {what}{trouble}"
    raise SystemExit(message)


class Customers:
    """They fill carts, and write down what they were told."""

    def __init__(self, shop: AsyncKeyspaceClient) -> None:
        self._carts = shop.actors("Cart")
        self.reserved: dict[str, Counter[str]] = {}
        self.checked_out: set[str] = set()
        self.again = 0
        self.leave = False

    async def shop(self, number: int) -> None:
        """Fill one cart after the other, until it is time to leave."""
        rng = random.Random(number)
        for turn in itertools.count():
            if self.leave:
                return
            cart = f"cart-{number}-{turn}"
            mine = self.reserved[cart] = Counter()
            for item in rng.sample(ITEMS, rng.randint(1, 3)):
                units = rng.randint(1, 3)
                if await self.ask(cart, "add", item, units) == "reserved":
                    mine[item] = units
            await trio.sleep(rng.uniform(0.1, 3.5))
            if rng.randrange(4) and await self.ask(cart, "check out") == "paying":
                self.checked_out.add(cart)

    async def ask(self, cart: str, *message: Any) -> str:  # noqa: ANN401 - as the cart has it
        """Ask until there is an answer: under one id, so that it counts once."""
        words = " ".join(map(str, message))
        with trio.fail_after(READY_S):
            while True:
                try:
                    answer: str = await self._carts.ask(
                        cart, list(message), operation_id=f"{cart}: {words}", timeout_s=8
                    )
                except RingpopError:
                    self.again += 1
                    await trio.sleep(0.1)
                else:
                    return answer


class Trouble:
    """What happens to the processes of the shop, and is told."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._rng = random.Random(5)

    async def make(self, kills: int, seconds: float) -> None:
        """Kill a host so often in so many seconds; after each kill, do something else as well."""
        others = itertools.cycle((self.pause, self.jump, self.kill_dashboard, self.restart))
        for number, other in zip(range(kills), others, strict=False):
            ends = trio.current_time() + seconds / kills
            victim, another, _ = self._rng.sample(self._shop.hosts, 3)
            tell(f"kill {number + 1}: {victim.name}")
            victim.end()
            await trio.sleep(1.5)
            victim.start()
            await until(self.is_whole, "all hosts are back")
            await other(another)
            await until(self.is_whole, "all hosts are back")
            await trio.sleep_until(ends)

    async def is_whole(self) -> bool:
        """Return whether all hosts are in the ring of each."""
        for address in self._shop.addresses:
            async with AsyncClient(address, timeout_s=2) as client:
                if len((await client.ring()).ring) < len(HOSTS):
                    return False
        return True

    async def pause(self, host: Process) -> None:
        """Stop a host in the midst of whatever it does, for long enough to be given up."""
        tell(f"{host.name} is paused for 3 s")
        host.send(signal.SIGSTOP)
        await trio.sleep(3)
        host.send(signal.SIGCONT)

    async def jump(self, host: Process) -> None:
        """Have the clock of a host jump, and back."""
        tell(f"the clock of {host.name} is wrong for 3 s")
        host.send(signal.SIGUSR1)
        await trio.sleep(3)
        host.send(signal.SIGUSR1)

    async def kill_dashboard(self, _host: Process) -> None:
        """Kill the dashboard in the midst of counting."""
        tell("the dashboard is killed")
        self._shop.dashboard.end()
        await trio.sleep(1)
        self._shop.dashboard.start()

    async def restart(self, host: Process) -> None:
        """Restart a host in good order."""
        tell(f"{host.name} is restarted")
        await trio.to_thread.run_sync(host.end, signal.SIGTERM)
        host.start()


class Books:
    """What the shop has at the end."""

    def __init__(self, rows: dict[str, Any], carts: dict[str, Any], seen: dict[str, Any]) -> None:
        self.carts, self.seen = carts, seen
        self.open = [key for key in rows if key.startswith(("hold/", "claim/"))]
        self.shelves: dict[str, dict[str, Any]] = {}
        self.sales: dict[str, dict[str, int]] = {}
        self.booked: Counter[str] = Counter()
        self.invoices: dict[str, int] = {}
        for key, value in rows.items():
            item = key.partition("{")[2].partition("}")[0]
            match key.split("/"):
                case ["shelf", _]:
                    self.shelves[item] = value
                case ["sale", _, cart]:
                    self.sales.setdefault(cart, {})[item] = value
                case ["book", _]:
                    self.booked.update(value)
                case ["{invoices}", "of", cart]:
                    self.invoices[cart] = value
                case _:
                    pass  # holds, claims, and the last number

    def are_closed(self) -> bool:
        """Return whether nothing is under way any more, and the dashboard has seen all."""
        under_way = {"open", "paying"} & {cart["status"] for cart in self.carts.values()}
        unbooked = sum(shelf["today"] for shelf in self.shelves.values())
        return not (self.open or under_way or unbooked) and self.seen_of("book") == self.booked

    def seen_of(self, kind: str) -> Counter[str]:
        """Return what the dashboard has counted."""
        return Counter(self.seen.get(kind, {}))

    def with_status(self, *statuses: str) -> dict[str, dict[str, int]]:
        """Return the carts with one of *statuses*, and what was bought in them."""
        return {
            name: cart["bought"] for name, cart in self.carts.items() if cart["status"] in statuses
        }

    def check(self, customers: Customers) -> None:
        """Fail unless everything adds up, and tell it item by item."""
        reserved = sum(customers.reserved.values(), Counter[str]())
        sold = sum(map(Counter, self.sales.values()), Counter[str]())
        back = {item: shelf["back"] for item, shelf in self.shelves.items()}
        rules: list[tuple[str, object, object]] = [
            ("what was reserved is sold or back", sold + Counter(back), reserved),
            ("shelves: reserved", self.total("reserved"), reserved),
            ("shelves: sold", self.total("sold"), sold),
            ("the nightly books", self.booked, sold),
            ("dashboard: sales", self.seen_of("sale"), sold),
            ("dashboard: books", self.seen_of("book"), sold),
            ("dashboard: open reservations", self.seen_of("claim")["open"], 0),
            ("carts and sales", self.with_status("bought"), self.sales),
            ("checked out", set(self.with_status("bought", "late")), customers.checked_out),
            ("all carts", set(self.carts), set(customers.reserved)),
            ("invoices", set(self.invoices), set(self.sales)),
            ("numbers", sorted(self.invoices.values()), [*range(1, len(self.sales) + 1)]),
        ]
        wrong = [f"{what}: {here} is not {there}" for what, here, there in rules if here != there]
        print(f"{'':8}{'delivered':>10}{'reserved':>10}{'sold':>10}{'back':>10}{'left':>10}")
        for item, shelf in self.shelves.items():
            left = shelf["delivered"] - shelf["sold"]
            cells = (shelf["delivered"], reserved[item], sold[item], back[item], left)
            print(f"{item:8}" + "".join(f"{cell:>10}" for cell in cells))
        if wrong:
            raise SystemExit("\n".join(wrong))

    def total(self, name: str) -> Counter[str]:
        """Return one of the totals of each shelf."""
        return Counter({item: shelf[name] for item, shelf in self.shelves.items()})


async def books_of(shop: AsyncKeyspaceClient, carts: Iterable[str], counts: trio.Path) -> Books:
    """Read what there is now."""
    rows = {key: value async for key, value in shop.scan()}
    states: dict[str, Any] = {cart: await shop.actors("Cart").state_of(cart) for cart in carts}
    return Books(rows, states, json.loads(await counts.read_text())["counts"])


async def main(kills: int, seconds: float, folder: Path) -> None:
    """Tell the story."""
    with open_processes(folder) as processes:
        trouble = Trouble(processes)
        await until(trouble.is_whole, "the shop is open")
        client = AsyncClient(processes.addresses[0], timeout_s=10)
        async with client, AsyncKeyspaceClient(client, "shop") as shop:
            customers = Customers(shop)
            async with trio.open_nursery() as nursery:
                for number in range(CUSTOMERS):
                    nursery.start_soon(customers.shop, number)
                ends = trio.current_time() + seconds
                await trouble.make(kills, seconds)
                await trio.sleep_until(ends)
                customers.leave = True
            tell(f"{len(customers.reserved)} carts; {customers.again} times a customer asked again")

            async def closed() -> bool:
                books = await books_of(shop, customers.reserved, trio.Path(processes.counts))
                return books.are_closed()

            await until(closed, "the books are closed")
            books = await books_of(shop, customers.reserved, trio.Path(processes.counts))
        tell("nothing is under way any more")
        books.check(customers)
    numbers = {word: len(books.with_status(word)) for word in ("bought", "late", "abandoned")}
    told = ", ".join(f"{number} {word}" for word, number in numbers.items())
    print(f"carts: {told}; the books, the dashboard and the shelves agree with all of them")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=5, metavar="N", help="of hosts")
    parser.add_argument("--for", type=float, default=40, dest="seconds", metavar="SECONDS")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ringpop-shop-") as place:
        trio.run(main, arguments.kills, arguments.seconds, Path(place))
