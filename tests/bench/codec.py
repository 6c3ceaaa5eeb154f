"""What it takes to read and to write a message: now, and before messages were declared.

The codec that was before is kept in `tests.bench.old_codec`. Both take turns in one run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from timeit import Timer
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.proxy.head import Head
from ringpop_py.values.declared import decode, encode
from ringpop_py.values.requests import (
    ApplyRequest,
    ReadRequest,
    decode_results,
    encode_results,
    packed_values_of,
)
from ringpop_py.wire.codec import PING, MsgpackCodec
from tests.bench.old_codec import gossip as old_gossip
from tests.bench.old_codec import keyspaces as old_keyspaces
from tests.bench.old_codec.values import Address, encode_value
from tests.bench.report import Row, seconds_each, smaller_is_better

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHANGES_COUNT: Final = 128
WRITES_COUNT: Final = 100
GOSSIP_TARGET: Final = 7.0
APPLY_TARGET: Final = 6.0
TURN_BYTES: Final = 1 << 16
"""What is read in a turn comes to about as much, or to `MESSAGES_MAX` messages."""
MESSAGES_MAX: Final = 500
NOW_MS: Final = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Codec:
    """How one kind of message is read and written."""

    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class Message:
    """What is measured.

    Attributes:
        body: the bytes that both codecs read, and write again.
        read_target: the least ratio that we promise for reading, if any.
    """

    name: str
    body: bytes
    now: Codec
    before: Codec
    read_target: float | None = None


def run() -> Iterator[Row]:
    """The rows of `codec`."""
    for message in messages():
        yield from _measured(message)


def messages() -> list[Message]:
    """All that are measured."""
    native = MsgpackCodec()
    ping = Codec(partial(native.decode_request, PING), native.encode_request)
    old_ping = Codec(old_gossip.decode_ping, old_gossip.encode_ping)
    apply = Codec(ApplyRequest.decode, ApplyRequest.encode)
    old_apply = Codec(old_keyspaces.ApplyRequest.decode, old_keyspaces.ApplyRequest.encode)
    head = Codec(Head.decode, Head.encode)
    old_head = Codec(old_keyspaces.Head.decode, old_keyspaces.Head.encode)
    get = Codec(partial(decode, ReadRequest), encode)
    old_get = Codec(old_keyspaces.ReadRequest.decode, old_keyspaces.ReadRequest.encode)
    got = Codec(
        lambda body: packed_values_of(decode_results(body, 1)[0], 1),
        lambda values: encode_results([values]),
    )
    old_got = Codec(
        lambda body: old_keyspaces.packed_values_of(old_keyspaces.decode_results(body, 1)[0], 1),
        lambda values: old_keyspaces.encode_results([values]),
    )
    gossip = old_ping.write(_ping(CHANGES_COUNT))
    return [
        Message(f"gossip.{CHANGES_COUNT}", gossip, ping, old_ping, GOSSIP_TARGET),
        Message("ping", old_ping.write(_ping(0)), ping, old_ping),
        Message(
            f"apply.{WRITES_COUNT}", old_apply.write(_writes()), apply, old_apply, APPLY_TARGET
        ),
        Message("head", old_head.write(_head()), head, old_head),
        Message("get", old_get.write(_get()), get, old_get),
        Message("get-answer", old_got.write([encode_value(_value(1))]), got, old_got),
    ]


def _measured(message: Message) -> Iterator[Row]:
    count = max(1, min(MESSAGES_MAX, TURN_BYTES // len(message.body)))
    codecs = (message.now, message.before)
    reading = seconds_each(*(_each(codec.read, message.body, count) for codec in codecs))
    values = [codec.read(message.body) for codec in codecs]
    writing = seconds_each(
        *(_each(codec.write, value, count) for codec, value in zip(codecs, values, strict=True))
    )
    for verb, seconds, target in (
        ("read", reading, message.read_target),
        ("write", writing, None),
    ):
        now_us, before_us = (each / count * 1e6 for each in seconds)
        name = f"codec.{verb}.{message.name}"
        yield smaller_is_better(name, now_us, "us", "before", before_us, target)


def _each(function: Callable[[Any], object], value: object, count: int) -> Callable[[], object]:
    # Code of its own for each function: the interpreter fits a place of call to what it calls.
    loop = Timer("function(value)", globals={"function": function, "value": value})

    return partial(loop.timeit, count)


# The messages, as they might come.


def _ping(changes_count: int) -> old_gossip.Ping:
    changes = tuple(_change(number) for number in range(changes_count))
    source = Address("10.0.0.1", 3000)
    checksums = 0x0123456789ABCDEF, 0xFEDCBA9876543210
    return old_gossip.Ping(
        "prod", 100, str(source), source, NOW_MS, checksums[0], changes, checksums[1]
    )


def _change(number: int) -> old_gossip.Change:
    address = Address(f"10.0.{number >> 8}.{number & 255}", 3000)
    labels = (("load", "0.42"), ("zone", "a")) if number % 8 == 0 else ()
    status = old_gossip.Status(number % 3)
    member = old_gossip.Member(str(address), address, NOW_MS + number, status, labels)
    return old_gossip.Change(member, "10.0.0.1:3000", NOW_MS)


def _writes() -> old_keyspaces.ApplyRequest:
    writes = tuple(
        old_keyspaces.Write(
            old_keyspaces.OperationId("0123456789abcdef0123456789abcdef", number),
            (old_keyspaces.Change(f"user-{number}", "put", _value(number)),),
        )
        for number in range(WRITES_COUNT)
    )
    return old_keyspaces.ApplyRequest("counts", 1, ((17, writes),))


def _value(number: int) -> old_keyspaces.Value:
    return {"flights": number, "minutes": 1.5 * number}


def _head() -> old_keyspaces.Head:
    return old_keyspaces.Head(("user-42",), 0x0123456789ABCDEF, "10.0.0.1:3000")


def _get() -> old_keyspaces.ReadRequest:
    return old_keyspaces.ReadRequest("counts", 1, ((17, ("user-42",)),))
