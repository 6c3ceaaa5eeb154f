"""An application for end-to-end tests: says who answered, slowly if asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ringpop_py.base.errors import ApplicationError

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop
    from ringpop_py.route.proxy.request import AppCall


def create(ringpop: Ringpop) -> None:
    @ringpop.handler("/who")
    def who(call: AppCall) -> bytes:
        return f"{ringpop.name} {','.join(call.keys)} ".encode() + call.body

    @ringpop.handler("/slow")
    async def slow(call: AppCall) -> bytes:
        await trio.sleep(0.05)
        return ringpop.name.encode() + call.body

    @ringpop.handler("/sleep")
    async def sleep(call: AppCall) -> bytes:
        await trio.sleep(float(call.body))
        return ringpop.name.encode()

    @ringpop.handler("/fail")
    def fail(_call: AppCall) -> bytes:
        raise ApplicationError("teapot", "short and stout")

    @ringpop.handler("/bug")
    def bug(_call: AppCall) -> bytes:
        raise ZeroDivisionError
