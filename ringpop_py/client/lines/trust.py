"""Keys of a program that is no member: what it shows of itself, and how it knows a member."""

from __future__ import annotations

import functools
import getpass
import os
import socket
from typing import TYPE_CHECKING

from ringpop_py.base.config.places import KEY_VARIABLE as KEY_VARIABLE
from ringpop_py.base.errors import ConfigError
from ringpop_py.net.security.identity import Identity, Role

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from ringpop_py.net.security.credentials import KeyCredentials


def key_file(given: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the file of keys that a program uses: *given*, or that in `KEY_VARIABLE`.

    An empty text stands for none, whatever the environment says.

    Raises:
        ConfigError: *given* is no text.
    """
    if given is not None and not isinstance(given, str):
        raise ConfigError(f"cluster_key is the path of a file, not {type(given).__name__}")
    return (environment.get(KEY_VARIABLE) if given is None else given) or None


def client_context(path: str) -> ssl.SSLContext:
    """Return the context for a connection, with the keys in *path* as they are now.

    Raises:
        ConfigError: the file cannot be used.
    """
    return _credentials(path).context(server=False)


@functools.cache
def _credentials(path: str) -> KeyCredentials:
    from ringpop_py.net.security.credentials import KeyCredentials  # noqa: PLC0415 - few have keys

    # Who has the key can be anybody: certificates of their own hold others to less.
    return KeyCredentials(path, Identity("", Role.ADMIN, f"{_user()}@{socket.gethostname()}"))


if hasattr(os, "register_at_fork"):  # a lock may be held by a thread that the child has not
    os.register_at_fork(after_in_child=_credentials.cache_clear)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # of a user id without a name
        return str(os.getuid())
