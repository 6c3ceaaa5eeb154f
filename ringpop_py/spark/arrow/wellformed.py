"""Checks for Arrow data that could not be unpacked again, made before it is staged.

A committed job is applied, so afterwards such data would be in the keyspace for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ringpop_py.columns.packed import entries_of
from ringpop_py.errors import BadOperation

if TYPE_CHECKING:
    from numpy.typing import NDArray


def check_texts(column: pa.Array, name: str) -> None:
    """Check that all text in *column* is UTF-8, since Spark makes text of any bytes unchecked.

    Raises:
        BadOperation: if some text is not UTF-8.
    """
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise BadOperation(
            f"column {name!r} has text that is not UTF-8 ({error}); keep the bytes, with"
            " CAST(… AS BINARY), or decode them, such as with decode(…, 'ISO-8859-1') of that"
        ) from None


def check_maps(column: pa.Array, name: str) -> None:
    """Check that no map in *column*, in the form that is kept, has a key twice.

    Spark itself refuses that when it makes a map, but not when it reads one.

    Raises:
        BadOperation: if a map has a key twice.
    """
    kind = column.type
    if pa.types.is_map(kind):
        counts, keys, values = entries_of(column)
        _check_keys(counts, keys.dictionary_encode(), name)
        check_maps(values, name)
    elif pa.types.is_large_list(kind):
        check_maps(column.flatten(), name)
    elif pa.types.is_struct(kind):
        for field in column.flatten():
            check_maps(field, name)


def _check_keys(counts: NDArray[np.int64], keys: pa.DictionaryArray, name: str) -> None:
    owners = np.repeat(np.arange(len(counts)), counts)
    texts = keys.dictionary
    pairs = np.sort(owners * len(texts) + keys.indices.to_numpy(zero_copy_only=False))
    twice = pairs[1:][np.diff(pairs) == 0]
    if len(twice):
        key = texts[int(twice[0]) % len(texts)].as_py()
        raise BadOperation(
            f"column {name!r} has a map with key {key!r:.60} twice; make it anew, with"
            " map_from_entries(map_entries(…)) where spark.sql.mapKeyDedupPolicy is LAST_WIN"
        )
