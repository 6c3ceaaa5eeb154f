"""Commands for keys: ``ringpopctl keygen`` and ``ringpopctl keys``. They change only files."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.cli.commands import REACHABLE, Output, connect, table
from ringpop_py.errors import ApplicationError, CallError, ConfigError

if TYPE_CHECKING:
    import argparse

    from ringpop_py.client.client import Client
    from ringpop_py.security.identity import Identity
    from ringpop_py.security.keys import ClusterKey

NAME_CHARACTERS_MAX: Final = 200
DAYS_MAX: Final = 36_500
SIGHUP: Final = "nodes read it within seconds, and at SIGHUP"
AGAIN: Final = "copy the file there, and try again in some seconds"


def keygen(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keygen``."""
    from ringpop_py.security.keys import new_key, write_keys  # noqa: PLC0415 - help needs nothing

    key = new_key()
    write_keys(options.file, (key,), replace=False)
    text = (
        f"{options.file}: key {key.id}, for its owner alone. Copy it to each node, and start the "
        f"nodes with --cluster-key {options.file}"
    )
    return Output({"file": options.file, "key": key.id}, text)


def show(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys list``."""
    return _shown(_read(options.file))


def add(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys add``: a new key, which is trusted and not used yet."""
    from ringpop_py.security.keys import new_key  # noqa: PLC0415

    made = new_key()
    keys = _written(options.file, (*_read(options.file), made))
    return _shown(keys, f"{made.id} is trusted. Copy the file everywhere; {SIGHUP}")


def use(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys use``; refused while a member does not trust the key."""
    keys = _read(options.file)
    chosen = _named(keys, options.key)
    if not options.unseen:
        for name, trusted in _keys_of_members(client).items():
            if chosen.id not in trusted:
                raise ConfigError(f"{name} does not trust {chosen.id} yet: {AGAIN}")
    others = [key for key in keys if key != chosen]
    keys = _written(options.file, (chosen, *others))
    return _shown(keys, f"{chosen.id} is used. Copy the file everywhere; {SIGHUP}")


def remove(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys remove``; refused while a member uses the key."""
    keys = _read(options.file)
    removed = _named(keys, options.key)
    if len(keys) == 1:
        raise ConfigError(f"{removed.id} is the only key in the file: add another one first")
    if keys[0] == removed:
        raise ConfigError(f"{removed.id} is in use: first use another key (ringpopctl keys use)")
    if not options.unseen:
        for name, trusted in _keys_of_members(client).items():
            if trusted[:1] == [removed.id]:
                raise ConfigError(f"{name} uses {removed.id}: {AGAIN}")
    keys = _written(options.file, tuple(key for key in keys if key != removed))
    return _shown(keys, f"{removed.id} is no longer trusted. Copy the file everywhere; {SIGHUP}")


def issue(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys issue``: a certificate for a program that is not to have the key."""
    from ringpop_py.security.authority import bundle_of  # noqa: PLC0415 - an extra
    from ringpop_py.security.keys import write_secret  # noqa: PLC0415

    identity = _identity_in(options)
    bundle = bundle_of(_read(options.file), identity, dt.timedelta(days=options.days))
    write_secret(options.out, bundle, replace=False)
    text = (
        f"{options.out}: {identity}, for {options.days} days. Programs use it in place of a key "
        f"(cluster_key, --cluster-key or RINGPOP_CLUSTER_KEY)"
    )
    value = {"file": options.out, "identity": str(identity), "days": options.days}
    return Output(value, text)


def token(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys token``: for callers over HTTP that show no certificate."""
    from ringpop_py.security.tokens import issue_token  # noqa: PLC0415 - an extra

    identity = _identity_in(options)
    made = issue_token(_read(options.file)[0], identity, dt.timedelta(days=options.days))
    value = {"token": made, "identity": str(identity), "days": options.days}
    return Output(value, made)


def authority(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys authority``: the certificates that callers over HTTP trust."""
    from ringpop_py.security.authority import authority_of  # noqa: PLC0415 - an extra

    keys = _read(options.file)
    text = b"".join(authority_of(key).certificate for key in keys).decode("ascii")
    return Output({"certificates": text}, text.rstrip())


def _identity_in(options: argparse.Namespace) -> Identity:
    """Return the identity to certify. Raises ConfigError if its name or its days are not valid."""
    from ringpop_py.security.identity import Identity, Role  # noqa: PLC0415 - help needs nothing

    if not (options.name.isprintable() and 0 < len(options.name) <= NAME_CHARACTERS_MAX):
        raise ConfigError(f"--name is 1 to {NAME_CHARACTERS_MAX} printable characters")
    if not 0 < options.days <= DAYS_MAX:
        raise ConfigError(f"--days is 1 to {DAYS_MAX}, not {options.days}")
    return Identity(options.cluster or "", Role[options.role.upper()], options.name)


def _read(path: str) -> tuple[ClusterKey, ...]:
    from ringpop_py.security.keys import read_keys  # noqa: PLC0415 - help needs nothing

    return read_keys(path)


def _written(path: str, keys: tuple[ClusterKey, ...]) -> tuple[ClusterKey, ...]:
    from ringpop_py.security.keys import write_keys  # noqa: PLC0415

    write_keys(path, keys, replace=True)
    return keys


def _named(keys: tuple[ClusterKey, ...], wanted: str) -> ClusterKey:
    found = [key for key in keys if key.id == wanted]
    if not found:
        raise ConfigError(f"no key {wanted!r} is in the file: {', '.join(key.id for key in keys)}")
    return found[0]


def _shown(keys: tuple[ClusterKey, ...], note: str = "") -> Output:
    rows: list[dict[str, Any]] = [{"key": key.id, "used": key == keys[0]} for key in keys]
    text = table(("KEY", ""), [(row["key"], "used" if row["used"] else "trusted") for row in rows])
    return Output({"keys": rows}, f"{text}\n{note}" if note else text)


def _keys_of_members(client: Client) -> dict[str, list[str]]:
    """Return the ids of the keys that each reachable member has, the one in use first.

    Raises:
        ConfigError: a member cannot be asked.
    """
    found: dict[str, list[str]] = {}
    for row in client.admin("/admin/members")["members"]:
        if row["status"] not in REACHABLE:
            continue
        try:
            with connect(row["address"]) as peer:
                found[row["name"]] = peer.admin("/admin/node")["keys"]
        except (CallError, ApplicationError) as error:
            raise ConfigError(
                f"{row['name']} does not say which keys it has ({error}); --unseen skips this check"
            ) from None
    return found
