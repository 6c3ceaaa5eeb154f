"""Operation ids that callers choose, and what each stands for.

A caller that chooses an id can choose it twice. So a write under such an id carries a digest of
what it does, which its partition keeps with the id, to distinguish a repetition from another write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import xxhash

from ringpop_py.errors import BadOperation
from ringpop_py.keyed.aggregations import SCALARS
from ringpop_py.values.operations import OperationId, Write
from ringpop_py.values.packed import encode_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.values.operations import Change, Value

NO_DIGEST: Final = b""


def id_of(given: str | OperationId) -> OperationId:
    """The id that a caller gave. Raises BadOperation if it is neither text nor an OperationId."""
    if isinstance(given, OperationId):
        return given
    if isinstance(given, str):
        return OperationId(given)
    raise BadOperation(f"operation_id is a text or an OperationId, not {given!r}")


def named_write(
    given: str | OperationId,
    changes: tuple[Change, ...],
    offsets: Mapping[str, Value] | None = None,
) -> Write:
    """A write under an id that its caller chose. Raises BadOperation.

    Its digest is of *changes* alone: a repetition need not know how far its input was read then.
    """
    return Write(*id_of(given), changes, offsets, digest_of(changes))


def digest_of(changes: Sequence[Change]) -> bytes:
    """The digest of *changes*: a hash (xxh3, 64 bits) of them in msgpack, fields of maps sorted.

    So it is the same for clients that send the fields of a map in another order each time. It is
    `NO_DIGEST` if a value cannot be sent, which is refused with a reason later.
    """
    content: Sequence[object] = changes
    try:
        if not SCALARS.issuperset([type(change.argument) for change in changes]):
            content = [(key, name, _sorted(argument)) for key, name, argument in changes]
        digest: bytes = xxhash.xxh3_64_digest(encode_value("msgpack", content))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return NO_DIGEST
    return digest


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list) and not SCALARS.issuperset(map(type, value)):
        return [_sorted(item) for item in value]
    return value
