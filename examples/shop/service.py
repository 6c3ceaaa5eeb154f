"""A shop whose hosts may be killed: reservations that expire, carts that are abandoned, books.

Each host runs it as `ringpopd --app service:serve --store URL`. All keys of an item lie in one
partition, because they have its hash tag. So they can change together, in one transaction:

    shelf/{tea}         what was delivered, reserved, sold and given back, as running totals
    hold/{tea}/CART     a reservation, which expires
    claim/{tea}/CART    that the shelf has counted it; it is there until it is sold or given back
    sale/{tea}/CART     how many were sold
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ringpop_py import ABSENT, Actor, ApplicationError, expiring, tag_of
from ringpop_py.errors import ConditionFailed, OperationRefused

if TYPE_CHECKING:
    from ringpop_py import Keyspace, Reminder, Ringpop, Tick, Value

    Changes = list[tuple[str, str, Value]]

ITEMS = ("cup", "kettle", "milk", "spoon", "tea")
DELIVERED = int(os.environ.get("SHOP_DELIVERED", "1000"))
DAY = os.environ.get("SHOP_DAY", "1d")
HELD_S = float(os.environ.get("SHOP_HELD_S", "900"))
ABANDONED_S = float(os.environ.get("SHOP_ABANDONED_S", "1800"))
LAST, INVOICE_OF = "{invoices}/last", "{invoices}/of/"


class Cart(Actor[list[Any], str]):
    """A cart. It is open, then paying, then bought, or late if all of it had expired by then.

    One that is not checked out in time is abandoned. Each step ends with a reminder for the next,
    so that it is taken even if nobody ever asks for the cart again.
    """

    def __init__(self, shop: Keyspace) -> None:
        self.shop = shop
        self.state: dict[str, Any] = {"status": "open", "items": {}, "bought": {}}

    @property
    def is_open(self) -> bool:
        """Whether one may still put something in."""
        return bool(self.state["status"] == "open")

    async def receive(self, message: list[Any]) -> str:
        """Answer ``["add", item, units]`` and ``["check out"]``."""
        match message:
            case ["add", str(item), int(units)] if self.is_open and item not in self.state["items"]:
                return await self.add(item, units)
            case ["check out"] if self.is_open and self.state["items"]:
                self.state["status"] = "paying"
                self.cancel_reminder("abandon")
                # Buying takes several writes. A caller may give up half-way; a reminder does not.
                self.remind("pay", in_s=0)
        return str(self.state["status"])

    async def add(self, item: str, units: int) -> str:
        """Reserve so many of an item."""
        self.remind("abandon", in_s=ABANDONED_S)
        hold, claim, _, shelf = keys_of(item, self.key)
        changes: Changes = [
            (shelf, "move", {"reserved": units}),
            (claim, "put", units),
            (hold, *expiring("put", units, expires_in=HELD_S)),
        ]
        try:
            # This turn may run again, after a kill: the id has it reserve once.
            await self.shop.transaction(changes, operation_id=f"reserve {item} for {self.key}")
        except OperationRefused:
            return "sold out"
        self.state["items"][item] = units
        return "reserved"

    async def on_reminder(self, reminder: Reminder) -> None:
        """Abandon the cart, or buy what is in it."""
        if reminder.name == "abandon":
            self.state["status"] = "abandoned"
            return
        for item, units in self.state["items"].items():
            if await self.buy(item, units):
                self.state["bought"][item] = units
        self.state["status"] = "bought" if self.state["bought"] else "late"
        if self.state["bought"]:
            self.state["invoice"] = await self.number_invoice()

    async def buy(self, item: str, units: int) -> bool:
        """Buy what is reserved, unless the reservation has expired."""
        hold, claim, sale, shelf = keys_of(item, self.key)
        changes: Changes = [
            (hold, "delete", None),
            (claim, "delete", None),
            (sale, "put", units),
            (shelf, "move", {"sold": units, "today": units}),
        ]
        try:
            await self.shop.transaction(
                changes, if_tags={hold: tag_of(units)}, operation_id=f"buy {item} for {self.key}"
            )
        except ConditionFailed:
            return False
        return True

    async def number_invoice(self) -> int:
        """Return the number of the cart's invoice: the next one, without gaps."""
        async with self.shop.lock(LAST, ttl_s=2, wait_s=5) as lock:
            mine = INVOICE_OF + self.key
            found: dict[str, Any] = await self.shop.get_many([LAST, mine])
            number: int = found.get(mine, 0)
            if number:  # this turn runs again
                return number
            number = found.get(LAST, 0) + 1
            await self.shop.transaction([(LAST, "put", number), (mine, "put", number)], fence=lock)
            return number


def keys_of(item: str, cart: str) -> tuple[str, str, str, str]:
    """Return hold, claim, sale and shelf."""
    mine = f"{{{item}}}/{cart}"
    return f"hold/{mine}", f"claim/{mine}", f"sale/{mine}", shelf_of(item)


def shelf_of(item: str) -> str:
    """Return the key of its totals."""
    return f"shelf/{{{item}}}"


def move(current: Any, change: Any) -> dict[str, Any]:  # noqa: ANN401 - values
    """Add to the totals of a shelf; refuse to reserve what is not there. An aggregation."""
    totals: dict[str, Any] = {"closed": [0, 0]} if current is ABSENT else dict(current)
    for name in ("delivered", "reserved", "sold", "back", "today"):
        totals.setdefault(name, 0)
    for name, units in change.items():
        totals[name] += units
    if totals["reserved"] > totals["delivered"] + totals["back"]:
        raise ApplicationError("sold-out", "there are not so many")
    return totals


def close(current: Any, day: Any) -> dict[str, Any]:  # noqa: ANN401 - values
    """End the day of a shelf: what was sold since the last one is put aside. An aggregation."""
    return {**current, "today": 0, "closed": [day, current["today"]]}


async def serve(ringpop: Ringpop) -> None:
    """Be one host of the shop."""
    ringpop.aggregation("move")(move)
    ringpop.aggregation("close")(close)
    shop = await ringpop.open_keyspace("shop", partitions=16, hash_tags=True)
    shop.actor(partial(Cart, shop), name="Cart")
    for item in ITEMS:  # each host says so; it counts once
        delivery = {"delivered": DELIVERED}
        await shop.update(
            shelf_of(item), "move", delivery, operation_id=f"first delivery of {item}"
        )

    @ringpop.every("1s", name="give back")
    async def give_back(_tick: Tick) -> None:
        """Put back on the shelves what was reserved in vain."""
        claims = {key: units async for key, units in shop.scan(prefix="claim/")}
        holds = {claim: claim.replace("claim/", "hold/", 1) for claim in claims}
        held = await shop.get_many(holds.values())
        for claim, units in claims.items():
            if holds[claim] in held:
                continue
            shelf = shelf_of(claim.partition("{")[2].partition("}")[0])
            changes: Changes = [(claim, "delete", None), (shelf, "move", {"back": units})]
            # By its condition it happens once, whichever attempts of which ticks overlap.
            tags = {claim: tag_of(units), holds[claim]: None}
            with suppress(ConditionFailed):  # bought, or given back, since the scan
                await shop.transaction(changes, if_tags=tags)

    @ringpop.every(DAY, name="books")
    async def books(tick: Tick) -> None:
        """Book what was sold since the last tick."""
        sold = {}
        for i, item in enumerate(ITEMS):
            # The argument is the same in each attempt; so is what is put aside for this tick,
            # until the next tick begins. That is after the end of this one.
            totals: Any = await shop.update(
                shelf_of(item), "close", tick.number, fence=tick.fence, operation_id=tick.id(i)
            )
            sold[item] = totals["closed"][1]
        await shop.put(f"book/{tick.number}", sold, fence=tick.fence, operation_id=tick.id("book"))
