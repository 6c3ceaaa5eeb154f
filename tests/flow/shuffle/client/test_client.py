"""A reader believes the record alone: what is damaged at one holder is read at the other."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
import xxhash

from ringpop_py.base.errors import ShuffleDamaged
from ringpop_py.base.values.declared import encode
from ringpop_py.flow.shuffle.client.client import ShuffleClient
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol import changes
from ringpop_py.flow.shuffle.protocol.record import MemberId, Winner

A, B = MemberId("a", 1), MemberId("b", 1)
SCHEMA = pa.schema([("key", pa.int64())])
WHOLE, OTHER = b"the file of the interval", b"the file of an interval!"


class Line:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def call(self, _call: c.Call, *, timeout_s: float) -> tuple[c.Reply, bytearray]:
        del timeout_s
        # It believes that it is whole: its own checksum is that of what it sends.
        return c.File(3, xxhash.xxh3_64_intdigest(self._body), {0: 3}), bytearray(self._body)


@pytest.mark.parametrize("damaged", ["a", "b", "ab"])
def test_rows_without_the_checksum_of_the_record_are_not_read(damaged: str) -> None:
    definition = encode(c.Definition(bytes(SCHEMA.serialize()), ("key",)))
    record = changes.created(None, 7, definition, 1, [A, B])
    record = changes.ended(record, {0: Winner(1, 3)}, b"")
    record = changes.published(record, [(3, xxhash.xxh3_64_intdigest(WHOLE))])
    client = ShuffleClient("127.0.0.1:1", "mine")
    lines = {name: Line(OTHER if name in damaged else WHOLE) for name in "ab"}
    cluster = cast("Any", client._cluster)
    cluster.addresses = {name: name for name in "ab"}
    cluster.line = lines.__getitem__

    if damaged == "ab":
        with pytest.raises(ShuffleDamaged, match=r"interval 0 .* is damaged at a and b"):
            client._interval(record, 0, float("inf"))
    else:
        assert bytes(cast("Any", client._interval(record, 0, float("inf")))) == WHOLE
