"""A shuffle that is created again under its name, while the former one still ends here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ringpop_py.base.errors import ShuffleUnavailable
from ringpop_py.base.values.declared import encode
from ringpop_py.flow.shuffle.protocol import calls as c
from ringpop_py.flow.shuffle.protocol.changes import created
from ringpop_py.flow.shuffle.protocol.record import MemberId
from ringpop_py.flow.shuffle.server.host import Host
from ringpop_py.flow.shuffle.server.register import Stored
from ringpop_py.flow.shuffle.sorting.disk import Disk

if TYPE_CHECKING:
    from pathlib import Path

ME, OTHER = MemberId("me", 1), MemberId("other", 1)
SCHEMA = pa.schema([("key", pa.int64())])


def stored(uid: int) -> Stored:
    definition = encode(c.Definition(bytes(SCHEMA.serialize()), ("key",)))
    record = created(None, uid, definition, 2, [ME, OTHER])
    return Stored(record.with_() if uid > 1 else record, str(uid))  # the later one is newer


async def test_the_former_one_takes_nothing_and_the_next_waits_until_it_has_ended(
    tmp_path: Path,
) -> None:
    begun: list[Any] = []
    nursery: Any = SimpleNamespace(start_soon=lambda *what: begun.append(what))
    process: Any = SimpleNamespace(
        name="me", incarnation=1, register=None, watch=None, disk=Disk(1 << 40)
    )
    host = Host(process, tmp_path, nursery)
    former = host._known("name", stored(1), 0)
    former.has_ended = True

    former.go_by(stored(2), 0)
    with pytest.raises(ShuffleUnavailable, match="still ends here"):
        host._known("name", stored(2), 0)
    with pytest.raises(ShuffleUnavailable, match="still ends here"):
        await host.find("name")

    assert former.record.uid == 1
    del host._shuffles["name"]  # as when it has ended
    assert host._known("name", stored(2), 0).record.uid == 2
    assert len(begun) == 2
