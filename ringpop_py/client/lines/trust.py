"""Keys of a program that is no member: what it shows of itself, and how it knows a member."""

from __future__ import annotations

import functools
import getpass
import os
import socket
from typing import TYPE_CHECKING

from ringpop_py.base.config.places import KEY_VARIABLE as KEY_VARIABLE
from ringpop_py.base.errors import ConfigError
from ringpop_py.net.security.identity import MEMBERS, Identity, Role, identity_in, refusal_of

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


def checked_member(certificate: Mapping[str, object] | None) -> float:
    """Return until when *certificate*, as from `getpeercert`, is one of a member.

    Raises:
        ConnectionError: it is none.
    """
    from ringpop_py.net.security.credentials import end_of  # noqa: PLC0415 - few have keys

    why = refusal_of(identity_in(certificate), "", MEMBERS)
    if why is not None:
        raise ConnectionError(why)
    return end_of(certificate)


def in_words(error: Exception) -> Exception:
    """Return *error*, or one with a sentence about the peer in its place if TLS has failed."""
    import ssl  # noqa: PLC0415 - few have keys

    if not isinstance(error, ssl.SSLError):
        return error
    from ringpop_py.net.security.credentials import explained  # noqa: PLC0415

    return ConnectionError(explained(error))


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
