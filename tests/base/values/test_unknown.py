"""Names of operations that are unknown: which one may be meant."""

from __future__ import annotations

import pytest

from ringpop_py.base.values.unknown import unknown_text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SUM", "'SUM', perhaps 'add' is meant; there are add, count"),
        ("coutn", "'coutn', perhaps 'count' is meant; there are add, count"),
        ("zzz", "'zzz'; there are add, count"),
    ],
)
def test_a_name_that_is_close_is_named(name: str, text: str) -> None:
    assert unknown_text(name, {"count", "add"}) == text
