"""How long a client looks for processes for shuffles: less if no member can have one."""

from __future__ import annotations

import time

import pytest

from ringpop_py.base.errors import ShuffleUnavailable
from ringpop_py.flow.shuffle.client import cluster as module
from ringpop_py.flow.shuffle.client.cluster import Cluster
from ringpop_py.flow.shuffle.protocol import calls as c


class Without(Cluster):
    """A cluster in which no member has a process; one may be away."""

    def __init__(self, timeout_s: float, *, is_away: bool) -> None:
        super().__init__(["127.0.0.1:1"], timeout_s)
        self._is_away = is_away

    def look(self) -> None:
        self.has_none = not self._is_away
        raise ShuffleUnavailable("no member has one")


@pytest.mark.parametrize(("is_away", "took_s"), [(False, 0.1), (True, 0.8)])
def test_a_member_that_is_away_may_have_one_and_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, *, is_away: bool, took_s: float
) -> None:
    monkeypatch.setattr(module, "NONE_S", 0.1)
    cluster = Without(30 if not is_away else took_s, is_away=is_away)

    began = time.monotonic()
    with pytest.raises(ShuffleUnavailable, match="no member has one"):
        cluster.ask(c.List())

    assert took_s <= time.monotonic() - began < 10
