"""The door for Arrow data: nothing is believed that was not checked, and nothing goes around it."""

from __future__ import annotations

import ast
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from ringpop_py.base.errors import BodyError
from ringpop_py.base.values import arrow
from ringpop_py.base.values.arrow import batch_in, is_plain, schema_in, sound, stream_in, table_in
from tests.fuzz.arrow import stream_of, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = Path(arrow.__file__).parents[2]
DOORS: Final = {"base/values/arrow.py", "base/values/inflate.py"}
OPENERS: Final = {
    *("open_stream", "read_schema", "read_message", "read_record_batch"),
    *("read_tensor", "RecordBatchStreamReader", "RecordBatchFileReader", "MessageReader"),
    *("validate", "decompress", "decompressobj", "CompressedInputStream", "input_stream"),
}
UNPACKERS: Final = {"gzip", "bz2", "lzma", "zstandard", "lz4", "snappy", "brotli", "zipfile"}
TEXTS: Final = pa.table({"x": ["one", "two", "three"]})


# Around the door.


def around(tree: ast.Module) -> Iterator[str]:
    """What in *tree* opens, unpacks or validates data itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in OPENERS:
            yield node.attr
        if isinstance(node, ast.Attribute) and ast.unparse(node).endswith("ipc.open_file"):
            yield node.attr
        if isinstance(node, ast.ImportFrom):
            yield from {each.name for each in node.names} & OPENERS
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [getattr(node, "module", None), *(each.name for each in node.names)]
            yield from {str(name).partition(".")[0] for name in named} & UNPACKERS


def test_nothing_else_opens_arrow_or_compressed_data() -> None:
    words = {*OPENERS, *UNPACKERS, "open_file"}
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    suspects = [path for path, text in texts.items() if any(word in text for word in words)]

    ways = {path for path in suspects if any(around(ast.parse(texts[path])))}

    assert {str(path.relative_to(PACKAGE)) for path in ways} == DOORS


@pytest.mark.parametrize(
    "code",
    [
        "pa.ipc.open_stream(x)",
        "pa.ipc.open_file(x)",
        "from pyarrow.ipc import read_schema as s",
        "batch.validate(full=True)",
        "zlib.decompress(x)",
        "from zlib import decompress",
        "import gzip",
        "import lz4.frame",
        "from zstandard import ZstdDecompressor",
        "pa.CompressedInputStream(x, 'zstd')",
    ],
)
def test_the_check_itself_sees_each_way_around(code: str) -> None:
    assert list(around(ast.parse(code)))


# What is accepted.


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_rows_of_many_types_come_back_as_they_were(rows: int) -> None:
    table = table_of(50).slice(7, rows)
    batch = table.combine_chunks().to_batches()[0] if rows else table.schema.empty_table()

    assert table_in(stream_of(table)) == table
    assert schema_in(table.schema.serialize()) == table.schema
    if rows:
        assert batch_in(batch.serialize(), table.schema) == batch


def test_columns_are_views_of_what_came() -> None:
    data = pa.py_buffer(stream_of(pa.table({"x": pa.array(range(1_000))})))
    before = pa.total_allocated_bytes()

    (batch,) = stream_in(data).batches

    assert pa.total_allocated_bytes() == before
    assert batch.num_rows == 1_000


# What is refused.


def with_offset(number: int, value: int) -> bytes:
    """A batch of texts with offset *number* changed."""
    data = bytearray(TEXTS.to_batches()[0].serialize())
    at = data.rindex(struct.pack("<4i", 0, 3, 6, 11))
    data[at + 4 * number : at + 4 * number + 4] = struct.pack("<i", value)
    return bytes(data)


@pytest.mark.parametrize(
    ("number", "value"), [(1, 4_003), (1, -1), (2, 1), (3, 12), (3, 1 << 30), (0, 7)]
)
def test_an_offset_that_is_wrong_is_refused(number: int, value: int) -> None:
    with pytest.raises(BodyError, match="not a sound batch"):
        batch_in(with_offset(number, value), TEXTS.schema)


def test_text_that_is_not_utf_8_is_refused() -> None:
    data = bytes(TEXTS.to_batches()[0].serialize()).replace(b"onetwothree", b"one\xfftothree")

    with pytest.raises(BodyError, match="UTF8"):
        batch_in(data, TEXTS.schema)
    with pytest.raises(BodyError, match="UTF8"):
        sound(pa.array([b"\xff"]).view(pa.string()))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_character_that_is_cut_in_two_is_refused(kind: pa.DataType) -> None:
    offset = "<2i" if kind == pa.string() else "<2q"
    table = pa.table({"x": pa.array(["onetwä", "three"], kind)})
    data = bytes(table.to_batches()[0].serialize())
    cut = data.replace(struct.pack(offset, 0, 7), struct.pack(offset, 0, 6))

    assert batch_in(data, table.schema).column(0) == table.column(0).chunk(0)
    with pytest.raises(BodyError, match="UTF8"):
        batch_in(cut, table.schema)


@pytest.mark.parametrize("kind", ["zstd", "lz4"])
def test_a_bomb_is_refused_before_it_is_unpacked(kind: str) -> None:
    bomb = stream_of(pa.table({"x": [bytes(64 << 20)]}), compression=kind)
    before = pa.total_allocated_bytes()

    with pytest.raises(BodyError, match="compressed"):
        table_in(bomb)

    assert pa.total_allocated_bytes() - before < 1 << 20


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int8(), pa.string()),
        pa.string_view(),
        pa.list_view(pa.int8()),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.sparse_union([pa.field("a", pa.int8())]),
        pa.list_(pa.null()),
        pa.large_list(pa.struct([("a", pa.null())])),
        pa.list_(pa.list_(pa.int8(), 0)),
        pa.struct([("deep", pa.list_(pa.binary(0)))]),
    ],
    ids=str,
)
def test_types_of_which_a_few_bytes_may_be_many_values_are_refused(kind: pa.DataType) -> None:
    assert not is_plain(kind)
    with pytest.raises(BodyError, match="cast it to its plain values"):
        schema_in(pa.schema([("x", kind)]).serialize())


def test_more_rows_than_there_are_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "FREE_ROWS_MAX", 10)

    assert table_in(stream_of(pa.table({"x": pa.nulls(10)}))).num_rows == 10
    with pytest.raises(BodyError, match="11 rows of 0 bytes are in 0 bytes"):
        table_in(stream_of(pa.table({"x": pa.nulls(11)})))


def test_columns_that_share_their_bytes_are_refused() -> None:
    batch = pa.record_batch({"x": range(100), "y": range(100)})
    data = bytearray(batch.serialize())
    replaced = {
        struct.pack("<qq", 800, 800): struct.pack("<qq", 0, 800),  # where the second column begins
        struct.pack("<q", 1600): struct.pack("<q", 800),  # the size of all
    }
    for former, value in replaced.items():
        at = data.rindex(former)
        data[at : at + len(former)] = value
    shorter = bytes(data[:-800])
    believed = pa.ipc.read_record_batch(pa.py_buffer(shorter), batch.schema)
    believed.validate(full=True)
    assert believed.column(1)[99].as_py() == 99

    with pytest.raises(BodyError, match="100 rows of 1600 bytes are in 800 bytes"):
        batch_in(shorter, batch.schema)


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 8, b"\xff" * 64, b"ARROW1\0\0", b"\xff\xff\xff\xff\0\0\0\0"]
)
def test_bytes_that_are_not_arrow_are_refused(data: bytes) -> None:
    for opened in (schema_in, table_in, lambda some: batch_in(some, TEXTS.schema)):
        with pytest.raises(BodyError):
            opened(data)


def test_a_schema_of_too_many_columns_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "FIELDS_MAX", 3)
    inner = pa.struct([("a", pa.int8()), ("b", pa.int8())])

    schema_in(pa.schema([("x", inner)]).serialize())
    with pytest.raises(BodyError, match="at most 3 columns"):
        schema_in(pa.schema([("x", inner), ("y", pa.int8())]).serialize())


def test_a_row_with_two_fields_of_one_name_is_refused() -> None:
    kind = pa.struct([("a", pa.int8()), ("a", pa.int8())])

    with pytest.raises(BodyError, match="column 'x' has two fields of one name"):
        schema_in(pa.schema([("x", kind)]).serialize())


def test_a_batch_in_place_of_a_schema_is_refused_and_so_is_the_other_way_round() -> None:
    batch = TEXTS.to_batches()[0].serialize()

    with pytest.raises(BodyError):
        schema_in(batch)
    with pytest.raises(BodyError):
        table_in(batch)
    with pytest.raises(BodyError, match="a batch of rows is expected, not a schema"):
        batch_in(TEXTS.schema.serialize(), TEXTS.schema)
