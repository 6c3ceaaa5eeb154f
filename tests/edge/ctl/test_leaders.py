"""`ctl.leaders`: which process holds which name, and how an operator takes one away."""

from __future__ import annotations

import pytest
import trio

from ringpop_py import LeadershipLost
from tests.edge.ctl.served import ctl, nodes


async def test_leaders_are_listed_and_resigned(capsys: pytest.CaptureFixture[str]) -> None:
    async with nodes("a") as (node,):
        none = await ctl(node, capsys, "leaders")
        with pytest.raises(LeadershipLost):  # noqa: PT012 - the block as a whole
            async with node.leader("mailer", ttl_s=1):
                listed = await ctl(node, capsys, "leaders")
                unknown = await ctl(node, capsys, "leader", "x")
                asked = await ctl(node, capsys, "leader", "mailer", "--resign")
                taken = await ctl(node, capsys, "leader", "mailer", "--resign", "--yes")
                with trio.fail_after(20):
                    await trio.sleep_forever()
        after = await ctl(node, capsys, "leader", "mailer")

    assert none.out == "no name of a leader was ever held\n"
    assert listed.out.splitlines()[1].split()[:3] == ["mailer", "a", "1"]
    assert (unknown.code, asked.code) == (2, 2)
    assert taken.out == "a no longer holds mailer, which it had in term 1\n"
    assert after.out.splitlines()[1].split() == ["mailer", "-", "1", "-", "released"]
