"""A store in etcd, through its gateway of HTTP and JSON, without a client library."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import httpx

from ringpop_py.base.errors import ConfigError, StoreFull, StoreUnavailable
from ringpop_py.state.stores.store import checked_key, checked_prefix, store_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONNECT_S: Final = 3.0
REQUEST_S: Final = 10.0
VALUE_BYTES_MAX: Final = 1 << 20  # etcd takes requests of 1.5 MB by default
KEYS_A_PAGE: Final = 10_000
DELETES_A_REQUEST: Final = 100  # in one transaction, for which etcd takes 128 operations

READ: Final = "range"
WRITE: Final = "txn"
_NO_ROOM: Final = ("database space exceeded", "too large", "larger than max")
_REFUSED: Final = ("permission denied", "user name is empty", "invalid auth token")
_REASON_CHARACTERS_MAX: Final = 500


class EtcdStore:
    """See `Store`.

    etcd holds 2 GB in all, unless it is started with a larger ``--quota-backend-bytes``, and keeps
    what was deleted until it is compacted. So it suits small keyspaces. The store uses neither TLS
    nor a login.

    Args:
        endpoints: ``host:port`` of members of one cluster; the one that answered last is asked.
        prefix: comes before all keys, as a folder: the cluster may have other users.

    Raises:
        ConfigError: if the service there is not etcd 3.4 or newer.
        StoreUnavailable: if no endpoint answers.
    """

    quick = False
    in_memory = False
    value_bytes_max = VALUE_BYTES_MAX

    def __init__(self, endpoints: Sequence[str], prefix: str) -> None:
        assert endpoints
        self._endpoints = tuple(endpoints)
        self._at = f"{checked_key(prefix)}/"
        timeout = httpx.Timeout(REQUEST_S, connect=CONNECT_S)
        # The environment's proxies are not meant for a service inside the network.
        self._client = httpx.Client(timeout=timeout, trust_env=False)
        try:
            self._check_is_etcd()
        except BaseException:
            self.close()
            raise

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """See `Store`."""
        place = _encoded(self._at + checked_key(key))
        put = {"key": place, "value": base64.b64encode(value).decode()}
        if_absent = {"key": place, "target": "CREATE", "createRevision": "0"}
        try:
            answer = self._ask_any(
                WRITE, {"compare": [if_absent], "success": [{"requestPut": put}]}
            )
        except StoreFull as error:
            # etcd carries out the write that brings it to its limit, and reports it as failed.
            if self.get(key) is not None:
                raise StoreUnavailable(str(error)) from None
            raise
        return bool(answer.get("succeeded", False))  # the gateway leaves out false values

    def get(self, key: str) -> bytes | None:
        """See `Store`."""
        rows = self._ask_any(READ, {"key": _encoded(self._at + checked_key(key))}).get("kvs", [])
        return base64.b64decode(rows[0].get("value", "")) if rows else None

    def list(self, prefix: str) -> list[str]:
        """See `Store`. All pages are of one revision."""
        after = self._at + checked_prefix(prefix)
        # "0" comes right after "/", so this is the first key behind all that begin with the prefix.
        end = _encoded(after[:-1] + "0")
        query: dict[str, object] = {"range_end": end, "keys_only": True, "limit": KEYS_A_PAGE}
        keys = []
        while True:
            answer = self._ask_any(READ, {**query, "key": _encoded(after)})
            page = [base64.b64decode(row["key"]).decode() for row in answer.get("kvs", [])]
            keys += [key.removeprefix(self._at) for key in page]
            if not answer.get("more"):
                return keys
            # Pages must be of one revision. Only the first page's header names the right one:
            # later headers have the newest revision, not the one that was requested.
            query.setdefault("revision", answer["header"]["revision"])
            after = page[-1] + "\0"

    def delete(self, keys: Sequence[str]) -> None:
        """See `Store`."""
        places = list(dict.fromkeys(_encoded(self._at + checked_key(key)) for key in keys))
        for begin in range(0, len(places), DELETES_A_REQUEST):
            some = places[begin : begin + DELETES_A_REQUEST]
            self._ask_any(
                WRITE, {"success": [{"requestDeleteRange": {"key": key}} for key in some]}
            )

    def close(self) -> None:
        """See `Store`."""
        self._client.close()

    def _check_is_etcd(self) -> None:
        try:
            answer = self._ask_any(READ, {"key": _encoded(self._at), "count_only": True})
        except ConfigError:
            answer = {}
        if "header" not in answer:
            endpoints = ", ".join(self._endpoints)
            raise ConfigError(f"etcd store {endpoints}: the service there is not etcd 3.4 or newer")

    def _ask_any(self, verb: str, query: Mapping[str, object]) -> dict[str, Any]:
        endpoints = self._endpoints
        for index, endpoint in enumerate(endpoints):
            try:
                answer = self._ask(endpoint, verb, query)
            except StoreUnavailable as error:
                # A put must not run twice: its second run would meet the value of the first.
                never_left = error.took_effect == "no" and error.passes
                is_last = index == len(endpoints) - 1
                if is_last or not (verb == READ or never_left):
                    raise
            else:
                if index:  # from now on, ask the one that has answered first
                    self._endpoints = endpoints[index:] + endpoints[:index]
                return answer
        raise AssertionError

    def _ask(self, endpoint: str, verb: str, query: Mapping[str, object]) -> dict[str, Any]:
        try:
            response = self._client.post(f"http://{endpoint}/v3/kv/{verb}", json=query)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            unheard = StoreUnavailable(_said(endpoint, str(error)))
            unheard.took_effect = "no"  # the request never left this machine
            raise unheard from None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise StoreUnavailable(_said(endpoint, reason)) from None
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if response.is_success and isinstance(answer, dict):
            return answer
        if response.status_code == httpx.codes.NOT_FOUND:
            raise ConfigError(_said(endpoint, "there is no /v3/kv"))
        reason = str(answer.get("message", answer) if isinstance(answer, dict) else response.text)
        message = _said(endpoint, f"{response.status_code} {reason}")
        raise store_error(
            message,
            is_full=any(sign in reason for sign in _NO_ROOM),
            is_refusal=any(sign in reason for sign in _REFUSED),
        )


def _said(endpoint: str, reason: str) -> str:
    return f"etcd store {endpoint}: {reason[:_REASON_CHARACTERS_MAX]}"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
