"""S14 and X: what raises ends the run, and is a finding."""

from __future__ import annotations

import pytest

from ringpop_py.member.swim.prober import Prober
from ringpop_py.net.wire.codec import MsgpackCodec
from ringpop_sim.plans.plan import Crash, Link, Plan
from ringpop_sim.runs.run import run
from ringpop_sim.units import s


def raising(*_arguments: object) -> None:
    message = "planted"
    raise IndexError(message)


def test_a_decoder_that_raises_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringpop_py.net.wire.codec._check_place", raising)

    result = run(Plan(nodes=2, until_us=10 * s, codec_share=1.0), 1)

    assert [broken.invariant for broken in result.broken] == ["S14"]
    assert "IndexError: planted" in result.broken[0].detail


def test_a_node_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prober, "probe_next", raising)

    result = run(Plan(nodes=2, until_us=10 * s), 1)

    assert [broken.invariant for broken in result.broken] == ["X"]
    assert result.virtual_s < 10


@pytest.mark.parametrize("dialect", ["native", "ringpop"])
def test_damaged_messages_raise_nothing_and_change_nothing(dialect: str) -> None:
    plan = Plan(
        nodes=4,
        until_us=60 * s,
        dialect="native" if dialect == "native" else "ringpop",
        link=Link(corrupt=0.3),
        operations=(Crash(at_us=20 * s, for_us=5 * s, nodes=(1,)),),
    )

    assert run(plan, 1).broken == []


def test_a_message_whose_damage_is_not_noticed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = MsgpackCodec.decode_request

    def decode_higher(codec: MsgpackCodec, endpoint: str, body: bytes) -> object:
        return decode(codec, endpoint, body.replace(b"\x8b\xcf\xe5h\x00", b"\x8b\xcf\xe5h\x01"))

    monkeypatch.setattr(MsgpackCodec, "decode_request", decode_higher)

    result = run(Plan(nodes=3, until_us=10 * s, codec_share=0.5), 1)

    assert "S2" in {broken.invariant for broken in result.broken}
