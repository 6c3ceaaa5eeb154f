"""A store in a folder, local or shared, on any file system that has hard links.

A value is written to its own file in the folder `_NEW`, synced, then linked to its place; the link
decides. Then the folder is synced, and only then the first name is removed. So:

- a value is at its place only when it is whole;
- a file that still has two names may not be durable yet. A process that meets one syncs its folder
  before it relies on the file. So no process has seen what a crash of the machine takes back;
- a crashed writer leaves files in `_NEW` only, and these are removed when they are old.

The mount point of a folder that is no longer mounted looks empty. So before a key is reported as
absent, or put, the folder must still be the one that was opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ConfigError, StoreUnavailable
from ringpop_py.state.stores.store import (
    checked_key,
    checked_prefix,
    identity,
    missing,
    store_error,
)

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence

# A part of a key never has a "+", so neither of these names can be that of a key's folder.
_MARK: Final = "+"
"""The end of a value's file name: a key may at the same time be the folder of other keys."""
_NEW: Final = "+new"

LEFTOVER_S: Final = 3600  # the age at which a file in `_NEW` goes: no writer takes that long
TIDY_EVERY_PUTS: Final = 10_000
FOLDERS_KNOWN_MAX: Final = 65_536
PRIVATE: Final = 0o700
"""The mode of a store's folder, if it is made here."""

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED: Final = {errno.EROFS, errno.EACCES, errno.EPERM}
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)


class FolderStore:
    """See `Store`. Several processes and machines may use one folder at the same time.

    On NFS, mount it with ``actimeo=0,lookupcache=none``. Otherwise a client would report the
    contents of a folder from its cache, as if they were current.

    Args:
        path: the folder.
        create: whether to make it if there is no store in it.
        quick: whether reading takes microseconds; set it to False for a remote file system.

    Raises:
        ConfigError: if there is no store in the folder, or it cannot be created or written, or has
            no hard links.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, quick: bool = True, create: bool = True
    ) -> None:
        self.quick = quick
        self.in_memory = False
        self.value_bytes_max = None
        self._root = os.path.abspath(path)
        self._new = f"{self._root}/{_NEW}"
        # Folders whose own names are durable. Threads share it: each use is a single dict
        # operation.
        self._known: dict[str, None] = {}
        self._puts_count = 0
        if not create and not os.path.isdir(self._new):
            there = "is empty, or holds something else" if os.path.isdir(path) else "does not exist"
            raise missing(f"folder {self._root} {there}")
        try:
            os.makedirs(self._root, PRIVATE, exist_ok=True)
            self._mode = _mode_in(os.stat(self._root).st_mode)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._new, self._mode)
            for parent in Path(self._root).parents:
                # Some cannot be opened; they existed before us, so their names are durable.
                with contextlib.suppress(OSError):
                    _sync(str(parent))
            self._forget_folders()
            self._try_out()
            self._identity = identity(self._new)
        except OSError as error:
            raise ConfigError(f"folder store {self._root}: {error.strerror or error}") from None
        self._tidy()

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See `Store`."""
        place = self._place(key)
        if self._is_taken(place):  # only to save the write; the link decides
            return False
        self._puts_count += 1
        if self._puts_count % TIDY_EVERY_PUTS == 0:
            self._tidy()
        new = f"{self._new}/{secrets.token_hex(16)}"
        try:
            _write(new, value, self._mode)
            self._check_that_here()
            self._make_folder(os.path.dirname(place))
            was_put = self._link(new, place)
        except OSError as error:
            _remove_unless_linked(new)
            raise _trouble(error, place, is_certain=True) from None
        except StoreUnavailable:
            _remove(new)
            raise
        if was_put:
            try:
                _sync(os.path.dirname(place))
            except OSError as error:
                raise _trouble(error, place) from None
        else:
            self._is_taken(place)  # sync the other value, which may not be durable yet
        _remove(new)
        return was_put

    def get(self, key: str) -> bytes | None:
        """See `Store`."""
        place = self._place(key)
        try:
            with open(place, "rb", buffering=0) as file:
                names_count = os.fstat(file.fileno()).st_nlink
                value = file.readall()
            if names_count > 1:
                self._settle(os.path.dirname(place))
        except _ABSENT:
            self._check_that_here()
            return None
        except OSError as error:
            raise _trouble(error, place) from None
        return value

    def list(self, prefix: str) -> list[str]:
        """See `Store`."""
        keys: list[str] = []
        folder = f"{self._root}/{checked_prefix(prefix)}"
        try:
            self._gather(folder, prefix, keys)
        except OSError as error:
            raise _trouble(error, folder) from None
        self._check_that_here()
        keys.sort()
        return keys

    def delete(self, keys: Sequence[str]) -> None:
        """See `Store`. Their folders stay, though they may be empty."""
        places = [self._place(key) for key in keys]
        folders = dict.fromkeys(os.path.dirname(place) for place in places)
        at = self._root
        try:
            for at in places:
                with contextlib.suppress(*_ABSENT):
                    os.unlink(at)
            for at in folders:
                with contextlib.suppress(*_ABSENT):
                    _sync(at)
        except OSError as error:
            raise _trouble(error, at) from None

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _place(self, key: str) -> str:
        return f"{self._root}/{checked_key(key)}{_MARK}"

    def _check_that_here(self) -> None:
        # The mount point of a folder that is not mounted any more looks like an empty folder.
        try:
            same = identity(self._new) == self._identity
        except OSError as error:
            raise _trouble(error, self._root) from None
        if not same:
            raise StoreUnavailable(
                f"folder store: {self._root} is no longer the folder that was opened"
            )

    def _is_taken(self, place: str) -> bool:
        """Return whether there is a value at *place*; if so, it is durable afterwards."""
        try:
            if os.stat(place).st_nlink > 1:
                self._settle(os.path.dirname(place))
        except _ABSENT:
            return False
        except OSError as error:
            raise _trouble(error, place) from None
        return True

    def _link(self, new: str, place: str) -> bool:
        """Link *new* to *place*; return False if *place* was taken."""
        try:
            os.link(new, place)
        except FileExistsError:
            # A file server may lose its first reply, and then refuse the repeated request.
            return os.stat(new).st_nlink > 1
        except FileNotFoundError:
            # Another process removed the folders that we had made.
            self._forget_folders()
            self._make_folder(os.path.dirname(place))
            os.link(new, place)
        return True

    def _settle(self, folder: str) -> None:
        """Make every value durable that is in *folder* by now."""
        self._make_folder(folder)
        _sync(folder)

    def _make_folder(self, folder: str) -> None:
        """Create *folder* if it does not exist, and make its name durable in any case."""
        if folder in self._known:
            return
        parent = os.path.dirname(folder)
        self._make_folder(parent)  # from the top down: a name is durable only in a durable folder
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, self._mode)
        _sync(parent)
        if len(self._known) >= FOLDERS_KNOWN_MAX:
            self._forget_folders()
        self._known[folder] = None

    def _forget_folders(self) -> None:
        self._known.clear()
        self._known[self._root] = None

    def _gather(self, folder: str, prefix: str, keys: builtins.list[str]) -> None:
        """Add the keys in *folder*, which ends with ``/`` and belongs to *prefix*.

        Folders are visited in order, including those that were made meanwhile. If a key is deleted
        after a later key was put, the list then shows at least one of the two (see `Store.list`).
        """
        inner = self._gather_values(folder, prefix, keys)
        seen: set[str] = set()
        while inner:
            for name in inner:
                self._gather(f"{folder}{name}/", f"{prefix}{name}/", keys)
            seen.update(inner)
            now = self._gather_values(folder, prefix, [])
            inner = [name for name in now if name not in seen]

    def _gather_values(
        self, folder: str, prefix: str, keys: builtins.list[str]
    ) -> builtins.list[str]:
        """Add the keys directly in *folder*; return the names of the folders in it, sorted."""
        is_settled = True
        inner: list[str] = []
        try:
            entries = os.scandir(folder)
        except _ABSENT:
            return inner
        with entries:
            for entry in entries:
                if entry.name.endswith(_MARK):
                    with contextlib.suppress(*_ABSENT):
                        is_settled &= entry.stat(follow_symlinks=False).st_nlink == 1
                        keys.append(prefix + entry.name[: -len(_MARK)])
                elif entry.name != _NEW:
                    inner.append(entry.name)
        if not is_settled:
            self._settle(folder.rstrip("/"))
        return sorted(inner)

    def _try_out(self) -> None:
        # Fail now if every put would fail. A full disk is ignored, since that may pass.
        first, second = (f"{self._new}/{secrets.token_hex(16)}" for _ in range(2))
        try:
            _write(first, b"", self._mode)
            os.link(first, second)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                hint = "" if error.filename2 is None else ": does this file system have hard links?"
                raise OSError(error.errno, f"{error.strerror}{hint}") from None
        finally:
            _remove(first)
            _remove(second)

    def _tidy(self) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._new)  # to read the file system's clock: those of machines differ
            now_s = os.stat(self._new).st_mtime
            with os.scandir(self._new) as entries:
                for entry in entries:
                    if entry.stat().st_mtime < now_s - LEFTOVER_S:
                        _remove(entry.path)


def _mode_in(mode: int) -> int:
    """Return the mode of folders in a store whose own folder has *mode*.

    Such a folder is for its owner, and for the group as far as the store's own folder is; for
    others only if others may write into that one, which must be intended.
    """
    return mode & (0o777 if mode & stat.S_IWOTH else 0o770)


def _write(path: str, value: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o666)
    try:
        left = memoryview(value)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _remove_unless_linked(path: str) -> None:
    with contextlib.suppress(OSError):
        if os.stat(path).st_nlink == 1:  # a value with two names is linked, but was not synced
            os.unlink(path)


def _trouble(error: OSError, place: str, *, is_certain: bool = False) -> StoreUnavailable:
    """Return the error of the store; *is_certain*: no value was linked, so a put has no effect."""
    message = f"folder store: {place}: {error.strerror or error}"
    return store_error(
        message,
        is_full=is_certain and error.errno in _NO_ROOM,
        is_refusal=is_certain and error.errno in _REFUSED,
    )
