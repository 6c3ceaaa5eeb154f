"""Stores by their URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ringpop_py.base.address import Address
from ringpop_py.base.errors import ConfigError
from ringpop_py.state.stores.folder import FolderStore
from ringpop_py.state.stores.memory import MemoryStore
from ringpop_py.state.stores.pieces import in_pieces
from ringpop_py.state.stores.sqlite import SqliteStore
from ringpop_py.state.stores.store import checked_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ringpop_py.state.stores.store import Store

    _Opener = Callable[[str, SplitResult, Mapping[str, str], bool], Store]

MEMORY: Final = "memory:"
FORMS: Final = (
    MEMORY,
    "/path",
    "folder:///path[?quick=false]",
    "sqlite:///path",
    "s3://bucket/prefix[?endpoint=https://host&region=name&allow_http=true]",
    "etcd://host:port[,host:port]/prefix",
)
"""The forms of URLs that `open_store` takes."""


def open_store(url: str, *, create: bool = True) -> Store:
    """Open the store at *url*, which is a path of a folder or has one of the `FORMS`.

    It takes values of any size (`pieces.py`).

    Each call with `MEMORY` makes a new store.

    Args:
        create: whether to make a folder or a database that is not there.

    Raises:
        ConfigError: if *url* does not name a store, an extra is missing, or the store refuses; also
            if the store is not there, and *create* is false.
        StoreUnavailable: if a remote store does not answer now.
    """
    if not url:
        raise _refused(url, "empty")
    scheme, colon, _ = url.partition(":")
    if not colon or "/" in scheme:  # a path, which may have a colon after its first slash
        return FolderStore(url, create=create)
    if scheme not in _OPENERS:
        raise _refused(url, f"there is no {scheme!r} among the stores")
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise _refused(url, str(error)) from None
    if "@" in parts.netloc:
        # Do not repeat the URL: errors are logged, and this one holds a password.
        raise ConfigError(
            f"store {scheme}://…: a URL has no credentials; they come from the environment"
        )
    options = dict(pairs)
    if parts.fragment or len(options) < len(pairs):  # a "#" would cut off the rest of a path
        raise _refused(url, "an option is given twice, or there is a #")
    opener, known = _OPENERS[scheme]
    for name in options:
        if name not in known:
            raise _refused(
                url, f"there is no option {name!r}; there are: {', '.join(known) or 'none'}"
            )
    return in_pieces(opener(url, parts, options, create))


def path_here(url: str) -> str | None:
    """Return where on this machine the store at *url* is; None if it is elsewhere, or in memory."""
    scheme, colon, _ = url.partition(":")
    if not colon or "/" in scheme:
        return url
    return unquote(urlsplit(url).path) if scheme in ("folder", "sqlite") else None


def _memory(url: str, parts: SplitResult, _: Mapping[str, str], _create: bool) -> Store:  # noqa: FBT001 - as the others
    if parts.netloc or parts.path:
        raise _refused(url, "memory: has nothing after it")
    return MemoryStore()


def _folder(url: str, parts: SplitResult, options: Mapping[str, str], create: bool) -> Store:  # noqa: FBT001
    quick = _flag(url, options, "quick", default=True)
    return FolderStore(_local_path(url, parts), quick=quick, create=create)


def _sqlite(url: str, parts: SplitResult, _: Mapping[str, str], create: bool) -> Store:  # noqa: FBT001
    return SqliteStore(_local_path(url, parts), create=create)


def _s3(url: str, parts: SplitResult, options: Mapping[str, str], _create: bool) -> Store:  # noqa: FBT001
    if not parts.netloc:
        raise _refused(url, "a bucket is missing")
    prefix = _prefix(url, parts)
    try:
        from ringpop_py.state.stores.s3 import S3Store  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise _refused(url, f"{error}: pip install 'ringpop_py[s3]'") from None
    return S3Store(
        parts.netloc,
        prefix,
        endpoint=options.get("endpoint"),
        region=options.get("region"),
        allow_http=_flag(url, options, "allow_http", default=False),
    )


def _etcd(url: str, parts: SplitResult, _: Mapping[str, str], _create: bool) -> Store:  # noqa: FBT001
    from ringpop_py.state.stores.etcd import EtcdStore  # noqa: PLC0415 - most need no httpx

    endpoints = parts.netloc.split(",")
    for endpoint in endpoints:
        try:
            Address.parse(endpoint)
        except ConfigError as error:
            raise _refused(url, str(error)) from None
    prefix = _prefix(url, parts)
    if not prefix:
        raise _refused(url, "a prefix is missing: the cluster may have other users")
    return EtcdStore(endpoints, prefix)


_OPENERS: Final[Mapping[str, tuple[_Opener, Sequence[str]]]] = {
    "memory": (_memory, ()),
    "folder": (_folder, ("quick",)),
    "sqlite": (_sqlite, ()),
    "s3": (_s3, ("endpoint", "region", "allow_http")),
    "etcd": (_etcd, ()),
}
"""What opens a store of each scheme, and the options that its URL may have."""


def _local_path(url: str, parts: SplitResult) -> str:
    if parts.netloc:
        raise _refused(url, f"{parts.netloc!r} is not a host: a path has three slashes before it")
    path = unquote(parts.path)
    if not path.strip("/") or "\0" in path:
        raise _refused(url, "a path is missing")
    return path


def _prefix(url: str, parts: SplitResult) -> str:
    prefix = unquote(parts.path).strip("/")
    if prefix:
        try:
            checked_key(prefix)
        except ValueError:
            raise _refused(url, f"{prefix!r} is not a prefix of keys") from None
    return prefix


def _flag(url: str, options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, "true" if default else "false")
    if text not in ("true", "false"):
        raise _refused(url, f"{name} is true or false, not {text!r}")
    return text == "true"


def _refused(url: str, reason: str) -> ConfigError:
    return ConfigError(f"store {url!r}: {reason}; it may be one of {', '.join(FORMS)}")
