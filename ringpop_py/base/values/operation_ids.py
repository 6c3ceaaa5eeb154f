"""Operation ids that callers choose, and digests of what each stands for.

A caller that chooses an id can choose it twice. So a write under such an id carries a digest of
what it does. Its partition keeps the digest, to distinguish a repetition from another write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import xxhash

from ringpop_py.base.errors import BadOperation
from ringpop_py.base.values.operations import SCALARS, OperationId, Write
from ringpop_py.base.values.packed import encode_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.base.values.operations import Change, Value

NO_DIGEST: Final = b""


def id_of(given: str | OperationId) -> OperationId:
    """Return the id that a caller gave. Raises BadOperation for anything but text or an id."""
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
    """Return a write under an id that its caller chose. Raises BadOperation."""
    # The digest is of the changes alone: a repetition may not know the offsets of the first time.
    # The caller has chosen the id to repeat the write, so each may be a repetition.
    return Write(*id_of(given), changes, offsets, digest_of(changes), repeats=True)


def digest_of(changes: Sequence[Change]) -> bytes:
    """Return the digest of *changes*: a hash (xxh3, 64 bits) of them in msgpack.

    The fields of maps are sorted, so their order makes no difference.
    """
    content: Sequence[object] = changes
    try:
        if not SCALARS.issuperset([type(change.argument) for change in changes]):
            content = [(key, name, _sorted(argument)) for key, name, argument in changes]
        digest: bytes = xxhash.xxh3_64_digest(encode_value("msgpack", content))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return NO_DIGEST  # a value cannot be sent; it is refused later, with a reason
    return digest


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list) and not SCALARS.issuperset(map(type, value)):
        return [_sorted(item) for item in value]
    return value
