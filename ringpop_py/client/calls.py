"""Requests of a client to its daemon, as calls, and what is in the answers (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringpop_py.base.address import Address
from ringpop_py.base.arguments import keys_of, routed_key, sendable_keys, sendable_text, wrong
from ringpop_py.base.errors import ApplicationError, BodyError, ConfigError, PeerFailed
from ringpop_py.base.values.declared import Named, Natural, Text, convert, decode, encode
from ringpop_py.base.values.operations import check_keys
from ringpop_py.base.values.packed import decode_value, encode_value
from ringpop_py.net.wire.calls import NODE_SERVICE, Call
from ringpop_py.route.proxy.entry import all_call, decode_replies, forward_call, reply_in
from ringpop_py.route.proxy.failures import decode_failure, decode_results
from ringpop_py.route.proxy.head import (
    APPLICATION_SCHEME,
    MANY_ENDPOINT,
    RELAY_ENDPOINT,
    AnswerHead,
    Head,
    KeyspaceBelief,
    RelayHead,
)
from ringpop_py.route.proxy.key_groups import checked_many, messages_of
from ringpop_py.route.proxy.key_groups import checked_request as checked_many_request
from ringpop_py.route.proxy.request import AnyRequest, HttpRequest, Reply, Request
from ringpop_py.route.proxy.tries import sent_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringpop_py.base.address import Peer
    from ringpop_py.base.errors import RingpopError
    from ringpop_py.member.ring.hashring import HashRing
    from ringpop_py.net.wire.calls import Answer
    from ringpop_py.route.proxy.failures import Failure
    from ringpop_py.route.proxy.key_groups import ManyMessage
    from ringpop_py.route.proxy.request import AnyReply, Headers, OwnerReply, RequestOptions


class _RingOwner(Named, frozen=True):
    name: Text
    identity: Text
    address: Text


class _Ring(Named, frozen=True):
    dialect: Text
    points_count: Natural
    service: Text
    owners: tuple[_RingOwner, ...]


class _Looked(Named, frozen=True):
    dest: Text


@dataclass(frozen=True, slots=True)
class RingSnapshot:
    """The ring as one daemon saw it, with the addresses and the service of the owners."""

    ring: HashRing
    addresses: dict[str, Address]
    service: str


def admin_call(endpoint: str, body: object, ttl_s: float) -> Call:
    """Return the call of an endpoint of the node itself. Raises ConfigError."""
    sendable_text(endpoint, "endpoint")
    try:
        packed = b"" if body is None else encode_value("msgpack", body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"{endpoint}: the body cannot be sent: {error}") from None
    return Call(NODE_SERVICE, endpoint, b"", packed, ttl_s=ttl_s)


def admin_value(answer: Answer, endpoint: str, peer: Peer) -> Any:  # noqa: ANN401 - a plain value
    """Return the value in the *answer* to an `admin_call`.

    Raises:
        ApplicationError: the node refused the request.
        PeerFailed: the answer cannot be read.
    """
    try:
        value = decode_value("msgpack", answer.arg3)
    except BodyError as broken:
        # Not a refusal: the node has served the request, whatever it answered.
        raise PeerFailed(f"{peer}: the answer of {endpoint}: {broken}") from None
    if not answer.ok:
        error = value if isinstance(value, dict) else {}
        raise ApplicationError(str(error.get("type", "error")), str(error.get("message", "")))
    return value


def owner_in(value: object) -> str:
    """Return the owner in the value of ``/admin/lookup``."""
    return convert(_Looked, value).dest


def ring_in(value: object) -> RingSnapshot:
    """Return the ring in the value of ``/admin/ring``."""
    # The ring loads NumPy, which most callers do not need.
    from ringpop_py.base.dialect import dialect_named  # noqa: PLC0415
    from ringpop_py.member.ring.hashring import HashRing  # noqa: PLC0415

    shown = convert(_Ring, value)
    ring = HashRing(
        {owner.name: owner.identity for owner in shown.owners},
        dialect=dialect_named(shown.dialect),
        points_count=shown.points_count,
    )
    addresses = {owner.name: Address.parse(owner.address) for owner in shown.owners}
    return RingSnapshot(ring, addresses, shown.service)


def invoke_call(service: str, request: Request, ttl_s: float) -> Call:
    """Return a call of the application's handler on the daemon's own node. Raises ConfigError."""
    head = Head(headers=checked_request(request).headers).encode()
    return application_call(service, request, head, ttl_s)


def relay_call(owner: str, request: Request, ttl_s: float) -> Call:
    """Return a call that the daemon passes on to the member *owner*. Raises ConfigError."""
    head = encode(RelayHead(sendable_text(owner, "owner"), checked_request(request).endpoint))
    relayed = Request(RELAY_ENDPOINT, request.body)
    return application_call(NODE_SERVICE, relayed, head, ttl_s)


def proxy_call(
    key: str | Sequence[str],
    request: AnyRequest,
    *,
    service: str,
    options: RequestOptions,
    timeout_s: float,
    may_be_here: bool = False,
    keyspace: str = "",
) -> Call:
    """Return the call that has a daemon forward *request* to the owner of *key*.

    Args:
        keyspace: the one that owns the key; the ring, if it is empty.
        timeout_s: how long it may take, unless *options* have a deadline.
        may_be_here: only of HTTP: whether the answer may be that the daemon's own host owns it.

    Raises:
        ConfigError: an argument is not what it has to be.
        BadOperation: *keyspace* cannot have the key.
    """
    sent = sent_options(options)
    ttl_s = options.get("deadline_s", timeout_s)
    if keyspace:
        check_keys(keys_of(key))
    if isinstance(request, HttpRequest):
        if not isinstance(key, str):
            raise wrong("key", "text: an HTTP request has one key", key)
        key = routed_key(key)
        return forward_call(
            key, request, may_be_here=may_be_here, options=sent, keyspace=keyspace, ttl_s=ttl_s
        )
    keys = keys_of(key)
    if len(keys) > 1 or keyspace:
        _refuse_failover(options)
    headers = checked_request(request).headers
    # The daemon has beliefs of its own about the partitions.
    belief = KeyspaceBelief(keyspace, 0, (0,) * len(keys)) if keyspace else None
    head = Head(keys, route=True, keyspace=belief, headers=headers, **sent)
    return application_call(service, request, _encoded(head), ttl_s)


def _refuse_failover(options: RequestOptions) -> None:
    if options.get("failover", 1) != 1:
        raise ConfigError("failover is for requests of one key, which the ring owns")


def _encoded(head: Head) -> bytes:
    try:
        return head.encode()
    except UnicodeEncodeError:
        for each in head.keys:
            sendable_text(each, "key")
        raise


def all_owners_call(
    keys: Iterable[str], request: AnyRequest, *, options: RequestOptions, timeout_s: float
) -> tuple[tuple[str, ...], Call]:
    """Return the keys, and the call that has a daemon ask each of their owners.

    Raises:
        ConfigError: an argument is not what it has to be.
    """
    if not isinstance(request, AnyRequest):
        raise wrong("request", "a Request or an HttpRequest", request)
    wanted = tuple(dict.fromkeys(sendable_keys(keys)))
    if isinstance(request, Request):
        sendable_text(request.endpoint, "endpoint")
    _refuse_failover(options)
    ttl_s = options.get("deadline_s", timeout_s)
    return wanted, all_call(wanted, request, options=sent_options(options), ttl_s=ttl_s)


def owner_replies(
    answer: Answer, keys: Sequence[str], request: AnyRequest, peer: Peer
) -> list[OwnerReply]:
    """Return what is in the *answer* to an `all_owners_call`.

    Raises:
        NoOwner: no key has an owner.
        PeerFailed: the answer cannot be read.
    """
    if not answer.ok:
        raise error_in(answer)
    try:
        return decode_replies(answer.arg3, keys, request)
    except BodyError as error:
        raise PeerFailed(f"{peer}: the answer: {error}") from None


class ManyCalls:
    """Requests of many keys on their way through a daemon: the calls to send, and the results.

    Raises:
        ConfigError: when it is made, if an argument is not what it has to be.

    Attributes:
        messages: each is to be sent (`call_for`), and its end reported (`answered`, `failed`).
        results: of each request, in their order.
    """

    def __init__(
        self,
        endpoint: str,
        keys: Iterable[str],
        bodies: Iterable[bytes],
        *,
        headers: Headers,
        keys_max: int,
        options: RequestOptions,
        peer: Peer,
    ) -> None:
        wanted, listed = checked_many(keys, bodies)
        self._request = checked_many_request(endpoint, listed, headers, keys_max)
        _refuse_failover(options)
        self._sent = sent_options(options)
        self._peer = peer
        self.messages = messages_of(wanted, listed, range(len(wanted)), keys_max)
        self.results: list[bytes | RingpopError] = [b""] * len(wanted)

    def call_for(self, message: ManyMessage, ttl_s: float) -> Call:
        """Return the call with *message*."""
        endpoint, headers = self._request.endpoint, self._request.headers
        head = Head(message.keys, route=True, endpoint=endpoint, headers=headers, **self._sent)
        body, scheme = encode(message.bodies), APPLICATION_SCHEME
        return Call(NODE_SERVICE, MANY_ENDPOINT, head.encode(), body, ttl_s=ttl_s, scheme=scheme)

    def answered(self, message: ManyMessage, answer: Answer) -> None:
        """Take the results of *message*, or its error."""
        try:
            if not answer.ok:
                self.failed(message, error_in(answer))
                return
            results = decode_results(answer.arg3, len(message.keys))
        except BodyError as error:
            self.failed(message, PeerFailed(f"{self._peer}: the answer: {error}"))
            return
        for place, result in zip(message.places, results, strict=True):
            self.results[place] = result

    def failed(self, message: ManyMessage, error: RingpopError) -> None:
        """Take *error* as the result of each request in *message*."""
        for place in message.places:
            self.results[place] = error


def application_call(service: str, request: Request, head: bytes, ttl_s: float) -> Call:
    """Return a call of the application's handler. Raises ConfigError."""
    body = checked_request(request).body
    sendable_text(service, "service")
    return Call(service, request.endpoint, head, body, ttl_s=ttl_s, scheme=APPLICATION_SCHEME)


def checked_request(request: object) -> Request:
    """Return *request* itself. Raises ConfigError if it is none."""
    if not isinstance(request, Request):
        raise wrong("request", "a Request or an HttpRequest", request)
    return request


def proxy_reply(answer: Answer, request: AnyRequest, peer: Peer) -> AnyReply | None:
    """Return the reply in the *answer* to a `proxy_call`; None if the asker's host owns the key.

    Raises:
        ApplicationError: the owner's handler answered with it.
        ProxyError, NoOwner: the daemon could not forward the request.
        PeerFailed: the answer cannot be read.
    """
    if not answer.ok:
        raise error_in(answer)
    try:
        if isinstance(request, HttpRequest):
            return reply_in(answer.arg2, answer.arg3)
        return Reply(answer.arg3, decode(AnswerHead, answer.arg2).owner)
    except BodyError as error:
        raise PeerFailed(f"{peer}: the head of the answer: {error}") from None


def error_in(answer: Answer) -> Failure:
    """Return the error in *answer*. Raises PeerFailed if it is malformed: the handler has run."""
    try:
        return decode_failure(answer.arg2)
    except BodyError as error:
        raise PeerFailed(str(error)) from None
