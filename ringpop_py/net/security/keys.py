"""A cluster's keys: 32 random bytes each, as lines of a file that only its owner may read.

Other lines of it say what is revoked (`revoked`). The first key is the one in use. All are trusted,
so that keys can be replaced while the nodes run. Logs and errors never contain a key, only its id.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ringpop_py.base.errors import ConfigError
from ringpop_py.net.security.revocations import MARK, NOTHING, lines_of, revoked_in

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ringpop_py.net.security.revocations import Revoked

PREFIX: Final = "ringpop-key-1:"
KEY_BYTES: Final = 32
ID_DIGITS: Final = 8
KEYS_MAX: Final = 16
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
OF_ROOT: Final = OTHERS & ~stat.S_IRGRP
"""What is not permitted for a file of root that a group of ours reads, as Secrets are."""


class ClusterKey(NamedTuple):
    """One key. Whoever has it can be any member."""

    secret: bytes

    @property
    def id(self) -> str:
        """The name of the key: a part of its SHA-256."""
        return hashlib.sha256(b"ringpop key id" + self.secret).hexdigest()[:ID_DIGITS]

    @property
    def line(self) -> str:
        """The key as a line of a file."""
        return PREFIX + base64.urlsafe_b64encode(self.secret).decode()

    def __repr__(self) -> str:
        return f"<ClusterKey {self.id}>"


def new_key() -> ClusterKey:
    """Return a new random key."""
    return ClusterKey(secrets.token_bytes(KEY_BYTES))


def read_keys(path: str | Path) -> tuple[ClusterKey, ...]:
    """Return the keys in the file at *path*, the one in use first.

    Raises:
        ConfigError: the file has no key or a malformed one, or others than its owner may read it.
    """
    return keys_in(read_secret(path), path)


def read_secret(path: str | Path, what: str = "cluster key") -> str:
    """Return the text of the file at *path*, which its owner alone may read, or root and our group.

    Args:
        what: what the file is, for errors.

    Raises:
        ConfigError: the file cannot be read, or others may read it, too.
    """
    file = Path(path)
    try:
        found = file.stat()
        text = file.read_text("ascii", errors="replace")
    except OSError as error:
        raise ConfigError(f"{what} {path}: {error.strerror}") from None
    if is_open(found, os.geteuid(), {os.getegid(), *os.getgroups()}):
        raise ConfigError(
            f"{what} {path}: others than its owner may read it; do: chmod 600 {path}"
            " (if it is root's, and this process is not, 0640 or 0440 with a group of it will do)"
        )
    return text


def is_open(file: os.stat_result, user: int, groups: Collection[int]) -> bool:
    """Return whether *file* is open to others than a process of *user* and *groups*, and root."""
    is_lent = file.st_uid == 0 and user != 0 and file.st_gid in groups
    return stat.S_ISREG(file.st_mode) and bool(file.st_mode & (OF_ROOT if is_lent else OTHERS))


def keys_in(text: str, path: str | Path) -> tuple[ClusterKey, ...]:
    """Return the keys in *text*, which was read from *path*. Raises ConfigError."""
    keys: dict[ClusterKey, None] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.strip()
        if content and not content.startswith(("#", MARK)):
            keys[_key_in(content, f"cluster key {path}, line {number}")] = None
    if not keys:
        raise ConfigError(f"cluster key {path}: no key is in it; make one with ringpopctl keygen")
    if len(keys) > KEYS_MAX:
        raise ConfigError(f"cluster key {path}: more than {KEYS_MAX} keys are in it")
    return tuple(keys)


def key_named(keys: Sequence[ClusterKey], wanted: str) -> ClusterKey:
    """Return the key whose id is *wanted*. Raises ConfigError."""
    found = [key for key in keys if key.id == wanted]
    if not found:
        raise ConfigError(f"no key {wanted!r} is in the file: {', '.join(key.id for key in keys)}")
    return found[0]


def unused_key(keys: Sequence[ClusterKey], wanted: str) -> ClusterKey:
    """Return the key whose id is *wanted*. Raises ConfigError if there is none, or it is used."""
    found = key_named(keys, wanted)
    if len(keys) == 1:
        raise ConfigError(f"{found.id} is the only key in the file: add another one first")
    if keys[0] == found:
        raise ConfigError(f"{found.id} is in use: first use another key (ringpopctl keys use)")
    return found


def _key_in(line: str, where: str) -> ClusterKey:
    try:
        secret = base64.b64decode(line.removeprefix(PREFIX), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not line.startswith(PREFIX) or len(secret) != KEY_BYTES:
        raise ConfigError(f"{where} is not a key: {PREFIX}… and 44 characters")  # never the line
    return ClusterKey(secret)


def read_revoked(path: str | Path) -> Revoked:
    """Return what the file at *path* says is revoked. Raises ConfigError."""
    return revoked_in(read_secret(path), path)


def write_keys(
    path: str | Path, keys: tuple[ClusterKey, ...], *, replace: bool, revoked: Revoked = NOTHING
) -> None:
    """Write *keys* to *path*, and what is *revoked*. Raises as `write_secret`."""
    head = "# Keys of a ringpop cluster. Whoever reads one can be any member. The first is used.\n"
    write_secret(
        path, head + "".join(f"{key.line}\n" for key in keys) + lines_of(revoked), replace=replace
    )


def write_secret(path: str | Path, text: str, *, replace: bool) -> None:
    """Write *text* to *path*, for its owner alone, and atomically, so that nobody reads a half.

    Raises:
        ConfigError: the file exists and *replace* is false, or it cannot be written.
    """
    file = Path(path)
    beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        beside.touch(0o600, exist_ok=False)
        beside.write_text(text, "ascii")
        if replace:
            beside.replace(file)
        else:
            file.hardlink_to(beside)  # fails if it is there
            beside.unlink()
    except FileExistsError:
        beside.unlink(missing_ok=True)
        raise ConfigError(
            f"{path} exists already, and a lost key cannot be recovered: name another file"
        ) from None
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
