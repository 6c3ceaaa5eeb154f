"""Carries out the requests of a journal or a recovery until none is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ringpop_py.base.errors import KeyspaceError
from ringpop_py.state.journal import effects as fx
from ringpop_py.state.journal.asker import pause_us

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ringpop_py.state.journal.asker import Asker, Effects


async def settle(
    asker: Asker, effects: Effects, perform: Callable[[fx.Request], Awaitable[fx.Reply]]
) -> list[fx.Fact]:
    """Carry out requests of *asker* until it has none left; return the facts it reported."""
    # The usual cases, which need no nursery.
    while len(effects) == 1:
        (effect,) = effects
        if not isinstance(effect, fx.Request):
            return [effect]
        effects = asker.answered(effect.id, await perform(effect))
    facts: list[fx.Fact] = []
    requests = requests_of(effects, facts)
    if not requests:
        return facts
    failed: list[KeyspaceError] = []
    async with trio.open_nursery() as nursery:

        async def carry_out(request: fx.Request) -> None:
            try:
                reply = await perform(request)
                more = requests_of(asker.answered(request.id, reply), facts)
            except KeyspaceError as error:
                failed.append(error)
                nursery.cancel_scope.cancel()
                return
            for each in more:
                nursery.start_soon(carry_out, each)

        for request in requests:
            nursery.start_soon(carry_out, request)
    if failed:
        raise failed[0]
    return facts


def requests_of(effects: Iterable[fx.Effect], facts: list[fx.Fact]) -> list[fx.Request]:
    """Return the requests among *effects*; add the facts to *facts*."""
    requests: list[fx.Request] = []
    for effect in effects:
        if isinstance(effect, fx.Request):
            requests.append(effect)
        else:
            facts.append(effect)
    return requests


async def pause_before(request: fx.Request) -> None:
    """Sleep before a request that is made again."""
    wait_us = pause_us(request)
    if wait_us:
        await trio.sleep(wait_us / 1e6)
