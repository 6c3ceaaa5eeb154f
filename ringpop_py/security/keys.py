"""A cluster's keys: 32 random bytes each, as lines of a file that only its owner may read.

The first key is the one in use. All are trusted, so that keys can be replaced while the nodes
run. Logs and errors never contain a key, only its id.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import stat
from pathlib import Path
from typing import Final, NamedTuple

from ringpop_py.errors import ConfigError

PREFIX: Final = "ringpop-key-1:"
KEY_BYTES: Final = 32
ID_DIGITS: Final = 8
KEYS_MAX: Final = 16
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


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


def read_secret(path: str | Path) -> str:
    """Return the text of the file at *path*, which its owner alone may read.

    Raises:
        ConfigError: the file cannot be read, or others may read it, too.
    """
    file = Path(path)
    try:
        mode = file.stat().st_mode
        text = file.read_text("ascii", errors="replace")
    except OSError as error:
        raise ConfigError(f"cluster key {path}: {error.strerror}") from None
    if stat.S_ISREG(mode) and mode & OTHERS:
        raise ConfigError(
            f"cluster key {path}: others than its owner may read it; do: chmod 600 {path}"
        )
    return text


def keys_in(text: str, path: str | Path) -> tuple[ClusterKey, ...]:
    """Return the keys in *text*, which was read from *path*. Raises ConfigError."""
    keys: dict[ClusterKey, None] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.strip()
        if content and not content.startswith("#"):
            keys[_key_in(content, f"cluster key {path}, line {number}")] = None
    if not keys:
        raise ConfigError(f"cluster key {path}: no key is in it; make one with ringpopctl keygen")
    if len(keys) > KEYS_MAX:
        raise ConfigError(f"cluster key {path}: more than {KEYS_MAX} keys are in it")
    return tuple(keys)


def _key_in(line: str, where: str) -> ClusterKey:
    try:
        secret = base64.b64decode(line.removeprefix(PREFIX), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not line.startswith(PREFIX) or len(secret) != KEY_BYTES:
        raise ConfigError(f"{where} is not a key: {PREFIX}… and 44 characters")  # never the line
    return ClusterKey(secret)


def write_keys(path: str | Path, keys: tuple[ClusterKey, ...], *, replace: bool) -> None:
    """Write *keys* to *path*. Raises as `write_secret`."""
    head = "# Keys of a ringpop cluster. Whoever reads one can be any member. The first is used.\n"
    write_secret(path, head + "".join(f"{key.line}\n" for key in keys), replace=replace)


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
