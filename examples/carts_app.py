"""The application of carts.py: carts in memory, each at one host; orders in a durable keyspace."""

from __future__ import annotations

import os
from collections import Counter

from fastapi import FastAPI, Response

from ringpop_py import Client, KeyspaceClient, RingpopMiddleware

HOST = os.environ["HOST_NAME"]

app = FastAPI()
# Whichever host a request comes to, the one that owns the user answers. The middleware and the
# client below find this host's daemon by themselves, here by the variable RINGPOP_PEER.
app.add_middleware(RingpopMiddleware, key=["path:/carts/{key}", "path:/orders/{key}"], timeout_s=8)
carts: dict[str, Counter[str]] = {}
orders = KeyspaceClient(Client(timeout_s=8), "orders")


@app.get("/carts/{user}")
def show(user: str, response: Response) -> dict[str, int]:
    """Show what is in a cart; it is lost with its host."""
    response.headers["x-host"] = HOST
    return dict(carts.get(user, {}))


@app.put("/carts/{user}/{item}")
def put(user: str, item: str, count: int) -> dict[str, int]:
    """Have so many of an item in the cart."""
    carts.setdefault(user, Counter())[item] = count
    return dict(carts[user])


@app.put("/orders/{user}/{number}")
def order(user: str, number: str, count: int) -> dict[str, object]:
    """Order so many items. An order takes effect once, however often it is sent."""
    bought = orders.update(user, "add", count, operation_id=f"{user}/{number}")
    carts.pop(user, None)
    return {"bought": bought}
