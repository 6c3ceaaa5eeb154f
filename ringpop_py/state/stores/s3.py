"""A store in a bucket of S3, or of a service with its interface that honours ``If-None-Match: *``.

A put is one request, which is never repeated here. A repetition would meet the value of the first
request and report that the put lost. The caller repeats puts: it recognizes its own value.
"""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import obstore
import obstore.store
from obstore.exceptions import AlreadyExistsError, BaseError

from ringpop_py.base.errors import ConfigError, StoreUnavailable
from ringpop_py.state.stores.store import checked_key, checked_prefix, store_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obstore.store import S3Config

PREFIX_CHARACTERS_MAX: Final = 200
CONNECT_S: Final = 5
REQUEST_S: Final = 30
VALUE_BYTES_MAX: Final = 64 << 20  # S3 takes 5 GiB, but not within `REQUEST_S`
READ_RETRIES_MAX: Final = 3
READ_RETRIES_S: Final = 10

CONFLICTS_MAX: Final = 8
"""The most conflicts that a put may meet in a row, with pauses of 20 ms, 40 ms… between them."""
CONFLICT_PAUSE_S: Final = 0.02
CONFLICT_PAUSE_S_MAX: Final = 1.0

_CHECK: Final = "+check"
"""A name that is put at each opening, to see that the service refuses to overwrite. No key of a
store has a ``+``."""

_NO_ROOM: Final = ("QuotaExceeded", "StorageFull", "EntityTooLarge", "507 Insufficient Storage")
_REFUSED: Final = ("403 Forbidden", "401 Unauthorized")
_NO_BUCKET: Final = "NoSuchBucket"
_REASON_CHARACTERS_MAX: Final = 500

_ERRORS: Final = (BaseError, OSError, ValueError)  # obstore raises some built-in ones, too


class S3Store:
    """See `Store`. Credentials come from the environment, as with Amazon's own tools.

    Args:
        bucket: its name; it must exist.
        prefix: comes before all keys, as a folder; may be empty.
        endpoint: the URL of the service, if it is not Amazon's.
        region: the bucket's region; by default from the environment.
        allow_http: whether *endpoint* may be without TLS.

    Raises:
        ConfigError: if the service refuses the bucket, the credentials or the settings, or would
            overwrite existing objects.
        StoreUnavailable: if the service cannot be reached, or fails.
    """

    quick = False
    in_memory = False
    value_bytes_max = VALUE_BYTES_MAX

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        allow_http: bool = False,
    ) -> None:
        self._name = f"s3 store {bucket}/{prefix}"
        if len(prefix) > PREFIX_CHARACTERS_MAX:
            raise ConfigError(
                f"{self._name}: the prefix has more than {PREFIX_CHARACTERS_MAX} characters"
            )
        if endpoint is not None and endpoint.startswith("http:") and not allow_http:
            raise ConfigError(
                f"{self._name}: {endpoint} is without TLS; allow it with allow_http=true"
            )
        config: S3Config = {} if endpoint is None else {"endpoint": endpoint}
        if region is not None:
            config["region"] = region
        self._pauses = random.Random()  # racing processes must not meet again at the same moment
        try:
            # Only reads and deletes may be repeated by obstore: see the module for puts.
            self._reads, self._puts = (
                obstore.store.S3Store(
                    bucket,
                    prefix=prefix or None,
                    config=config,
                    client_options={
                        "allow_http": allow_http,
                        "connect_timeout": timedelta(seconds=CONNECT_S),
                        "timeout": timedelta(seconds=REQUEST_S),
                    },
                    retry_config={
                        "max_retries": retries_max,
                        "retry_timeout": timedelta(seconds=READ_RETRIES_S),
                    },
                )
                for retries_max in (READ_RETRIES_MAX, 0)
            )
        except _ERRORS as error:
            raise ConfigError(f"{self._name}: {_reason(error)}") from None
        self._try_out()

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See `Store`."""
        checked_key(key)
        for attempt in range(CONFLICTS_MAX):
            try:
                self._put(key, value)
            except AlreadyExistsError:
                # Either the key exists (412), or another request was under way (409) and possibly
                # nothing was written. obstore reports both in the same way.
                if self._is_there(key):
                    return False
            except _ERRORS as error:
                raise self._trouble(error) from None
            else:
                return True
            # The other request is still under way: let it end.
            pause_s = min(CONFLICT_PAUSE_S * 2**attempt, CONFLICT_PAUSE_S_MAX)
            time.sleep(pause_s * self._pauses.uniform(0.5, 1.5))
        raise StoreUnavailable(f"{self._name}: {CONFLICTS_MAX} conflicts in a row at {key}")

    def get(self, key: str) -> bytes | None:
        """See `Store`."""
        checked_key(key)
        try:
            return bytes(obstore.get(self._reads, key).bytes())
        except FileNotFoundError as error:
            if _NO_BUCKET in str(error):
                raise self._trouble(error) from None
            return None
        except _ERRORS as error:
            raise self._trouble(error) from None

    def list(self, prefix: str) -> list[str]:
        """See `Store`."""
        checked_prefix(prefix)
        try:
            found = obstore.list(self._reads, prefix or None).collect()
        except _ERRORS as error:
            raise self._trouble(error) from None
        return sorted(meta["path"] for meta in found if "+" not in meta["path"])  # not `_CHECK`

    def delete(self, keys: Sequence[str]) -> None:
        """See `Store`."""
        paths = list(dict.fromkeys(checked_key(key) for key in keys))
        if not paths:
            return
        try:
            obstore.delete(self._reads, paths)
        except FileNotFoundError:
            pass
        except _ERRORS as error:
            raise self._trouble(error) from None

    def close(self) -> None:
        """See `Store`."""

    def _put(self, key: str, value: bytes) -> None:
        obstore.put(self._puts, key, value, mode="create", use_multipart=False)

    def _is_there(self, key: str) -> bool:
        try:
            obstore.head(self._reads, key)
        except FileNotFoundError:
            return False
        except _ERRORS as error:
            raise self._trouble(error) from None
        return True

    def _try_out(self) -> None:
        """Put a value twice: a service that accepts the second put would lose acknowledged data."""
        for _ in range(2):
            try:
                self._put(_CHECK, b"")
            except AlreadyExistsError:
                return
            except _ERRORS as error:
                text = str(error)
                if any(sign in text for sign in (*_REFUSED, _NO_BUCKET)):
                    raise ConfigError(f"{self._name}: {_reason(error)}") from None
                raise self._trouble(error) from None
        raise ConfigError(
            f"{self._name}: this service ignores If-None-Match, so it would overwrite acknowledged"
            " data; use another store"
        )

    def _trouble(self, error: Exception) -> StoreUnavailable:
        message = f"{self._name}: {_reason(error)}"
        return store_error(
            message,
            is_full=any(sign in str(error) for sign in _NO_ROOM),
            is_refusal=any(sign in str(error) for sign in _REFUSED),
        )


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = lines[0]
    code = str(error).partition("<Code>")[2].partition("</Code>")[0]
    return f"{text[:_REASON_CHARACTERS_MAX]} {code}".rstrip()
