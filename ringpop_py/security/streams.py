"""Connections between processes for shuffles, and of their clients, with the cluster's keys.

Pieces are large, so what `trio.SSLStream` costs for each is small beside them.
"""

from __future__ import annotations

import socket
import ssl
from typing import NamedTuple

import trio

from ringpop_py.security.credentials import HANDSHAKE, PLAIN, KeyCredentials, explained
from ringpop_py.security.identity import (
    ANYBODY,
    SHUFFLERS,
    Identity,
    Role,
    identity_in,
    refusal_of,
)

HANDSHAKE_S = 5.0
Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


class Accepted(NamedTuple):
    """A connection, and the identity of its other end: None if it need not have one."""

    stream: Stream
    identity: Identity | None


class Keys:
    """See the module.

    Args:
        path: a file with a certificate; its node renews it, and it is read again then.
        cluster, name: of the node.
        accept_plain, dial_plain: as those of the node.
    """

    def __init__(
        self, path: str, cluster: str, name: str, *, accept_plain: bool, dial_plain: bool
    ) -> None:
        self._credentials = KeyCredentials(path, Identity(cluster, Role.SHUFFLES, name))
        self._cluster = cluster
        self._accept_plain = accept_plain
        self._dial_plain = dial_plain

    async def accept(self, stream: trio.SocketStream) -> Accepted:
        """Return the connection to use in place of *stream*, which was accepted.

        Raises:
            trio.BrokenResourceError: the peer has no key that is trusted, or breaks off.
        """
        with trio.move_on_after(HANDSHAKE_S):
            try:
                first = await stream.socket.recv(1, socket.MSG_PEEK)
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error
            if first == bytes([HANDSHAKE]):
                return await self._secured(stream, server=True)
            if not first or self._accept_plain:
                return Accepted(stream, None)
            raise trio.BrokenResourceError(PLAIN)
        raise trio.BrokenResourceError("the peer says nothing")

    async def connect(self, stream: trio.SocketStream, name: str) -> Stream:
        """Return the stream to use in place of *stream*, made to the process of the member *name*.

        Raises:
            trio.BrokenResourceError: another process is there, perhaps one without a key.
        """
        if self._dial_plain:
            return stream
        accepted = await self._secured(stream, server=False)
        if accepted.identity is not None and accepted.identity.name != name:
            raise trio.BrokenResourceError(f"{accepted.identity} answers there, not {name}")
        return accepted.stream

    async def _secured(self, stream: trio.SocketStream, *, server: bool) -> Accepted:
        context = self._credentials.context(server=server)
        secured = trio.SSLStream(stream, context, server_side=server, https_compatible=True)
        try:
            await secured.do_handshake()
        except trio.BrokenResourceError as error:
            if isinstance(error.__cause__, ssl.SSLError):
                raise trio.BrokenResourceError(explained(error.__cause__)) from None
            raise
        identity = identity_in(secured.getpeercert())
        why = refusal_of(identity, self._cluster, ANYBODY if server else SHUFFLERS)
        if why is not None:
            raise trio.BrokenResourceError(why)
        return Accepted(secured, identity)
