"""Bodies between nodes: what cannot be said in the tests of those who send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.errors import BodyError, KeyspaceUnknown, StateDamaged
from ringpop_py.base.values.declared import decode, encode, replace
from ringpop_py.base.values.operations import Change, Outcome, Value, Write
from ringpop_py.base.values.requests import (
    ApplyRequest,
    KeyspaceRequest,
    ReadRequest,
    Scanned,
    decode_results,
    encode_results,
    merged_page,
    outcomes_of,
    part_limit,
    value_of,
    write_row,
)
from ringpop_py.state.actors.mail import Mail
from ringpop_py.state.copies.calls import CopiesAsked, CopyGroup
from ringpop_py.state.durable.driver import ReleaseRequest
from ringpop_py.state.memory.hand_over import HandOver
from ringpop_py.state.placement.keys import Placing, partition_of
from ringpop_py.state.watch.messages import WatchRequest
from tests.golden.samples import KINDS

REQUESTS = [
    pytest.param(sample, id=f"{name}-{which}")
    for name, kind in KINDS.items()
    for which, sample in kind.samples.items()
    if isinstance(sample, KeyspaceRequest)
]


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_fits_the_generation_and_the_partitions_of_its_keyspace(
    request_: KeyspaceRequest,
) -> None:
    parts = [each if isinstance(each, int) else each[0] for each in named(request_)]
    assert list(request_.numbers) == parts

    # A message is for the partition of its actor alone, and writes for those of their keys.
    if not isinstance(request_, Mail | ApplyRequest):
        request_.check(request_.generation, Placing(max(parts, default=0) + 1))

    with pytest.raises(KeyspaceUnknown, match="is in generation"):
        request_.check(request_.generation + 1, Placing(1 << 20))
    if parts:
        with pytest.raises(BodyError, match=f"and no partition {max(parts)}"):
            request_.check(request_.generation, Placing(max(parts)))


def test_a_message_fits_the_partition_of_its_actor() -> None:
    for number in range(8):
        mail = Mail("k", 1, number, "Account", "ada", "s", 1, b"\x05")
        if number == partition_of("Account/ada", 8):
            mail.check(1, Placing(8))
        else:
            with pytest.raises(BodyError, match="actor 'Account/ada' is in partition"):
                mail.check(1, Placing(8))


def named(request: KeyspaceRequest) -> Sequence[Any]:
    """The fields that name partitions."""
    match request:
        case ReleaseRequest() | HandOver():
            return [request.number]
        case Mail():
            return [request.partition]
        case CopyGroup() | WatchRequest():
            return [part.number for part in request.parts]
        case CopiesAsked():
            return request.rows
        case _:
            found: Sequence[Any] = getattr(request, "partitions", getattr(request, "parts", ()))
            return found


if TYPE_CHECKING:
    from collections.abc import Sequence


def test_a_page_ends_where_a_partition_that_has_more_ends() -> None:
    parts = [
        Scanned([("a", b""), ("d", b"")], more=True),
        Scanned([("b", b""), ("e", b"")], more=False),
    ]

    rows, following = merged_page(parts, 10)

    assert [key for key, _ in rows] == ["a", "b", "d"]
    assert following == "d\0"


def test_a_page_that_has_all_has_no_next_one() -> None:
    assert merged_page([Scanned([(key, b"")], more=False) for key in "ba"], 2) == (
        [("a", b""), ("b", b"")],
        None,
    )


def test_rows_beyond_the_limit_are_for_the_next_page() -> None:
    rows, following = merged_page([Scanned([(key, b"") for key in "abc"], more=False)], 2)

    assert ([key for key, _ in rows], following) == (["a", "b"], "b\0")


@pytest.mark.parametrize("packed", [b"\xa2\xff\xfe", b"\x82\xa1a\x01\xa1a\x02", b"\x91", b"\xc1"])
def test_a_stored_value_that_cannot_be_read_is_named_by_its_key(packed: bytes) -> None:
    with pytest.raises(StateDamaged, match="the value of key 'bad' cannot be read, only replaced"):
        value_of("bad", packed)


@pytest.mark.parametrize(("limit", "partitions_count"), [(1, 256), (1_000, 256), (1_000, 1)])
def test_partitions_are_asked_for_their_share_and_some_more(
    limit: int, partitions_count: int
) -> None:
    wanted = part_limit(limit, partitions_count)

    assert limit / partitions_count <= wanted <= limit
    assert wanted * partitions_count <= max(limit * 5, partitions_count * 10)


CHANGES = (Change("k", "put", 1),)


def test_a_write_has_its_digest_behind_all_else_if_it_has_one() -> None:
    plain = Write("me", 1, CHANGES)
    named = replace(plain, digest=b"12345678")

    request = ApplyRequest.decode(ApplyRequest("k", 1, ((0, (plain, named)),)).encode())

    assert request.parts == ((0, (plain, named)),)
    assert write_row(plain) == ["me", 1, CHANGES, None]


VALUES = [None, True, -1, 1 << 63, 1.5, "é", b"x", [], {}, {"a": [b"x"]}, [[[[{"a": {"b": b""}}]]]]]


@pytest.mark.parametrize("value", VALUES)
def test_any_value_comes_as_it_went(value: Value) -> None:
    write = Write("me", 1, (Change("k", "put", value), Change("l", "delete")), {"topic": value})
    request = ApplyRequest("k", 1, ((0, (write,)),))

    assert ApplyRequest.decode(request.encode()) == request


@pytest.mark.parametrize("value", [b"\x81\x01\x02", b"\x91\x81\x01\x02", b"\xd4\x05\x00"])
def test_a_value_that_no_key_can_hold_is_refused(value: bytes) -> None:
    good = ApplyRequest("k", 1, ((0, (Write("me", 1, (Change("k", "put", "VALUE"),)),)),)).encode()

    with pytest.raises(BodyError, match="a value "):
        ApplyRequest.decode(good.replace(b"\xa5VALUE", value))


class _Text(str):
    __slots__ = ()


class _Number(float):
    __slots__ = ()


def test_texts_and_numbers_of_other_classes_travel_as_what_they_are_a_kind_of() -> None:
    asked = encode(ReadRequest("k", 1, ((0, (_Text("ä"),)),)))
    told = encode_results([[Outcome((_Number(1.5), [_Text("x")]))]])

    assert decode(ReadRequest, asked).parts == ((0, ("ä",)),)
    (result,) = decode_results(told, 1)
    assert outcomes_of(result, 1) == [Outcome((1.5, ["x"]))]
    with pytest.raises(TypeError, match="msgpack has no object"):
        encode([object()])


def test_the_error_of_a_malformed_result_says_where_it_is() -> None:
    with pytest.raises(BodyError, match=r"outcomes: value\[1\]\[1\]: Expected `str`, got `int`"):
        outcomes_of([[0, []], [2, 3, "x"]], 2)
