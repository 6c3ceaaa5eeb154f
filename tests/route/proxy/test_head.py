"""The head of an application's call."""

from __future__ import annotations

import pytest

from ringpop_py.base.errors import ApplicationError, BodyError
from ringpop_py.base.values.packed import encode_value
from ringpop_py.route.proxy.failures import decode_failure, encode_failure
from ringpop_py.route.proxy.head import Head, KeyspaceBelief


@pytest.mark.parametrize(
    "head",
    [
        Head(),
        Head(("k", "ünïcode", ""), 1 << 63, "node-1"),
        Head(("k",), route=True, idempotent=True),
        Head(("k", "l"), sender="a", keyspace=KeyspaceBelief("users", 3, (12, 0))),
    ],
)
def test_a_head_comes_back_as_it_went(head: Head) -> None:
    assert Head.decode(head.encode()) == head


def test_an_empty_head_takes_no_bytes() -> None:
    assert Head().encode() == b""


@pytest.mark.parametrize(
    "value",
    [
        [],
        "x",
        {"keys": "k"},
        {"keys": [1]},
        {"ring": -1},
        {"route": 1},
        {"sender": 5},
        {"keyspace": ["users", 3, [1]]},
    ],
)
def test_a_head_of_another_shape_is_refused(value: object) -> None:
    with pytest.raises(BodyError):
        Head.decode(encode_value("msgpack", value))


def test_an_application_error_comes_back_as_it_went() -> None:
    error = decode_failure(encode_failure(ApplicationError("not-found", "no such user")))
    assert isinstance(error, ApplicationError)

    assert (error.kind, error.message) == ("not-found", "no such user")
