"""What nobody could unpack again is refused while it is still rows of Spark."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is an extra: pip install 'ringpop_py[spark]'")
pytest.importorskip("pyspark", reason="pyspark is an extra: pip install 'ringpop_py[spark]'")

from ringpop_py.base.errors import BadOperation  # noqa: E402
from ringpop_py.base.values.packed import decode_value  # noqa: E402
from ringpop_py.spark.arrow.columns import packed_puts  # noqa: E402
from ringpop_py.spark.arrow.combined import combined  # noqa: E402


def batch(**values: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    return pa.RecordBatch.from_pydict(values)


def texts(*packed: bytes) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Text as Spark hands it over where it was made of bytes: nobody has looked at it."""
    unchecked = pa.array(packed, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(packed), unchecked.buffers())


NO_TEXT = texts(b"a", b"\xff\xfe", b"z")


@pytest.mark.parametrize(
    "column",
    [
        NO_TEXT,
        NO_TEXT.cast(pa.large_string()),
        NO_TEXT.dictionary_encode(),
        pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), NO_TEXT),
        pa.StructArray.from_arrays([NO_TEXT], ["text"]),
        pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), NO_TEXT, NO_TEXT),
    ],
)
@pytest.mark.parametrize("operation", ["put", "put_if_absent", "append"])
@pytest.mark.parametrize("value", ["v", None])
def test_text_that_is_not_utf_8_is_refused_with_its_column(
    column: Any,  # noqa: ANN401 - pyarrow has no types
    operation: str,
    value: str | None,
) -> None:
    rows = batch(key=["x", "y", "z"], v=column)

    with pytest.raises(BadOperation, match=r"column 'v' has text that is not UTF-8 .*; keep the"):
        combined(rows, "key", operation, value)


def test_texts_of_a_slice_are_looked_at_by_themselves() -> None:
    rows = batch(key=["x", "y", "z"], v=NO_TEXT).slice(2)

    (packed,) = packed_puts(rows, "key", "v").values.to_pylist()
    assert decode_value("msgpack", packed) == "z"


MAPS = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("maps", "kind"),
    [
        ([[("a", 1)], [("b", 1), ("a", 2), ("b", 3)]], MAPS),
        ([None, [[("b", 1), ("b", 1)]]], pa.list_(MAPS)),
        ([{"m": [("b", 1), ("b", 1)]}, None], pa.struct([("m", MAPS)])),
        ([[("a", [("b", 1), ("b", 1)])], []], pa.map_(pa.string(), MAPS)),
    ],
)
def test_a_map_with_a_key_twice_is_refused_with_what_to_do(maps: list[Any], kind: Any) -> None:  # noqa: ANN401
    rows = batch(key=["x", "y"], v=pa.array(maps, kind))

    with pytest.raises(BadOperation, match=r"column 'v' has a map with key 'b' twice; .*LAST_WIN"):
        packed_puts(rows, "key")


def test_maps_may_have_keys_that_others_have() -> None:
    column = pa.array([[("a", 1), ("b", 2)], None, [], [("a", 3)]], MAPS)
    rows = batch(key=["w", "x", "y", "z"], v=column).slice(1)

    packed = packed_puts(rows, "key", "v").values.to_pylist()
    assert [decode_value("msgpack", each) for each in packed] == [None, {}, {"a": 3}]
