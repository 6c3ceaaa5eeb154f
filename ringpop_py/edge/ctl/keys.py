"""Commands for keys: ``ringpopctl keygen`` and ``ringpopctl keys``. They change only files."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import ConfigError
from ringpop_py.edge.cli.commands import Output, members_said, table
from ringpop_py.net.security import revocations as listed
from ringpop_py.net.security.clock import wall_s
from ringpop_py.net.security.identity import RESTRICTABLE, Identity, Role
from ringpop_py.net.security.keys import (
    key_named,
    new_key,
    read_keys,
    read_revoked,
    unused_key,
    write_keys,
    write_secret,
)

if TYPE_CHECKING:
    import argparse

    from ringpop_py.client.sync.client import Client
    from ringpop_py.net.security.keys import ClusterKey

NAME_CHARACTERS_MAX: Final = 200
DAYS_MAX: Final = 36_500
IDENTITY_CHARACTERS_MAX: Final = 2_048
"""The most characters of an identity with keyspaces: a token that holds it has a limit, too."""
COPY: Final = "Copy the file everywhere: nodes read it within seconds, and at SIGHUP"
AGAIN: Final = "copy the file there, and try again in some seconds"


def keygen(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keygen``."""
    key = new_key()
    write_keys(options.file, (key,), replace=False)
    text = (
        f"{options.file}: key {key.id}, for its owner alone. Copy it to each node, and start the "
        f"nodes with --cluster-key {options.file}"
    )
    return Output({"file": options.file, "key": key.id}, text)


def show(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys list``."""
    return _shown(options.file)


def add(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys add``: a new key, which is trusted and not used yet."""
    made = new_key()
    _write(options.file, (*read_keys(options.file), made))
    return _shown(options.file, f"{made.id} is trusted. {COPY}")


def use(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys use``; refused while a member does not trust the key."""
    keys = read_keys(options.file)
    chosen = key_named(keys, options.key)
    if not options.unseen:
        for name, trusted in _keys_of_members(client).items():
            if chosen.id not in trusted:
                raise ConfigError(f"{name} does not trust {chosen.id} yet: {AGAIN}")
    _write(options.file, (chosen, *(key for key in keys if key != chosen)))
    return _shown(options.file, f"{chosen.id} is used. {COPY}")


def remove(client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys remove``; refused while a member uses the key."""
    keys = read_keys(options.file)
    removed = unused_key(keys, options.key)
    if not options.unseen:
        for name, trusted in _keys_of_members(client).items():
            if trusted[:1] == [removed.id]:
                raise ConfigError(f"{name} uses {removed.id}: {AGAIN}")
    _write(options.file, tuple(key for key in keys if key != removed))
    return _shown(options.file, f"{removed.id} is no longer trusted. {COPY}")


def revoke(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys revoke``: what was issued in a name until now, or with --undo no longer."""
    role = options.role and Role[options.role.upper()]
    holders, old = listed.holders_of(_name_in(options), role), read_revoked(options.file)
    new = listed.without(old, holders) if options.undo else listed.revoking(old, holders, wall_s())
    write_keys(options.file, read_keys(options.file), replace=True, revoked=new)
    return _shown(options.file, f"{COPY}. Who has the key itself is not stopped by this")


def issue(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys issue``: a certificate for a program that is not to have the key."""
    from ringpop_py.net.security.authority import bundle_of  # noqa: PLC0415 - an extra

    identity = _identity_in(options)
    keys, days = read_keys(options.file), dt.timedelta(days=options.days)
    bundle = bundle_of(keys, identity, days, read_revoked(options.file))
    write_secret(options.out, bundle, replace=False)
    text = (
        f"{options.out}: {identity}, for {options.days} days. Programs use it in place of a key "
        f"(cluster_key, --cluster-key or RINGPOP_CLUSTER_KEY)"
    )
    return Output({"file": options.out, "identity": str(identity), "days": options.days}, text)


def token(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys token``: for callers over HTTP that show no certificate."""
    from ringpop_py.net.security.tokens import issue_token  # noqa: PLC0415 - an extra

    identity = _identity_in(options)
    key, days = read_keys(options.file)[0], dt.timedelta(days=options.days)
    made = issue_token(key, identity, days, read_revoked(options.file))
    return Output({"token": made, "identity": str(identity), "days": options.days}, made)


def authority(_client: Client, options: argparse.Namespace) -> Output:
    """``ringpopctl keys authority``: the certificates that callers over HTTP trust."""
    from ringpop_py.net.security.authority import authority_of  # noqa: PLC0415 - an extra

    text = b"".join(authority_of(key).certificate for key in read_keys(options.file)).decode()
    return Output({"certificates": text}, text.rstrip())


def _identity_in(options: argparse.Namespace) -> Identity:
    """Return the identity to certify. Raises ConfigError if its name or its days are not valid."""
    if not 0 < options.days <= DAYS_MAX:
        raise ConfigError(f"--days is 1 to {DAYS_MAX}, not {options.days}")
    role, keyspaces = Role[options.role.upper()], _keyspaces_in(options.keyspaces)
    if keyspaces and role not in RESTRICTABLE:
        raise ConfigError(f"--keyspaces is for the roles reader and client, not {role.label}")
    identity = Identity(options.cluster or "", role, _name_in(options), keyspaces)
    if keyspaces and len(str(identity)) > IDENTITY_CHARACTERS_MAX:
        raise ConfigError(
            f"--keyspaces: with them, the identity has {len(str(identity))} characters, more than "
            f"{IDENTITY_CHARACTERS_MAX}; name how several keyspaces begin, with * at the end"
        )
    return identity


def _keyspaces_in(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    keyspaces = tuple(each.strip() for each in text.split(","))
    for each in keyspaces:
        if not each.isprintable() or not each or "*" in each[:-1]:
            raise ConfigError(
                "--keyspaces is a list of names with a comma between two, each perhaps with * as "
                f"its last character, not {text!r:.100}"
            )
    return keyspaces


def _name_in(options: argparse.Namespace) -> str:
    name: str = options.name
    if not (name.isprintable() and 0 < len(name) <= NAME_CHARACTERS_MAX):
        raise ConfigError(f"--name is 1 to {NAME_CHARACTERS_MAX} printable characters")
    return name


def _write(path: str, keys: tuple[ClusterKey, ...]) -> None:
    write_keys(path, keys, replace=True, revoked=read_revoked(path))


def _shown(path: str, note: str = "") -> Output:
    keys = read_keys(path)
    rows: list[dict[str, Any]] = [{"key": key.id, "used": key == keys[0]} for key in keys]
    text = table(("KEY", ""), [(row["key"], "used" if row["used"] else "trusted") for row in rows])
    revoked = [(listed.named(who), listed.instant_of(at)) for who, at in read_revoked(path).items()]
    text += f"\n{table(('REVOKED', 'ISSUED UNTIL'), revoked)}" if revoked else ""
    ended = [{"holder": who, "until": at} for who, at in revoked]
    return Output({"keys": rows, "revoked": ended}, f"{text}\n{note}" if note else text)


def _keys_of_members(client: Client) -> dict[str, list[str]]:
    """Return the ids of the keys that each reachable member has, the one in use first.

    Raises:
        ConfigError: a member cannot be asked.
    """
    value = members_said(client, "node")
    if value["silent"]:
        name, why = next(iter(value["silent"].items()))
        raise ConfigError(
            f"{name} does not say which keys it has ({why}); --unseen skips this check"
        )
    return {name: said["node"]["keys"] for name, said in value["said"].items()}
