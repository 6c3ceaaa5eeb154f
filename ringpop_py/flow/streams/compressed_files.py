"""Opens files whose ending says that they are compressed."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

from ringpop_py.base.errors import SourceFailed
from ringpop_py.base.values.inflate import ENDINGS, unpacking

if TYPE_CHECKING:
    from pathlib import Path

SKIP_BYTES: Final = 1 << 20


def is_compressed(path: Path) -> bool:
    """Return whether the ending of *path* says that its content is compressed."""
    return path.suffix in ENDINGS


def unpacked(raw: BinaryIO, path: Path) -> BinaryIO:
    """Return the content of *raw*, the open file at *path*, to be read on from its beginning.

    Raises:
        SourceFailed: if this process has no decoder for it.
    """
    raw.seek(0)
    try:
        return unpacking(raw, path.suffix) if is_compressed(path) else raw
    except ImportError:
        raise SourceFailed(
            f"{path}: reading {path.suffix} needs pyarrow: pip install 'ringpop_py[state]'"
        ) from None


def skip(file: BinaryIO, count: int) -> bool:
    """Read *count* bytes of *file* and forget them; return whether it had so many."""
    while count:
        piece = len(file.read(min(count, SKIP_BYTES)))
        if not piece:
            return False
        count -= piece
    return True
