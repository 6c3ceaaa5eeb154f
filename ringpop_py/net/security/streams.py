"""Connections between processes for shuffles, and of their clients, with the cluster's keys.

Pieces are large, so what `trio.SSLStream` costs for each is small beside them.
"""

from __future__ import annotations

import socket
import ssl
from typing import NamedTuple

import trio

from ringpop_py.net.security.credentials import HANDSHAKE, PLAIN, KeyCredentials, explained
from ringpop_py.net.security.identity import (
    SHUFFLE_CALLERS,
    SHUFFLERS,
    Identity,
    Role,
    refusal_of,
)
from ringpop_py.net.security.proof import LASTING, Proof

HANDSHAKE_S = 5.0
Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


class Accepted(NamedTuple):
    """A connection, and what its other end has proved."""

    stream: Stream
    proof: Proof


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
                return Accepted(stream, LASTING)
            raise trio.BrokenResourceError(PLAIN)
        raise trio.BrokenResourceError("the peer says nothing")

    async def connect(self, stream: trio.SocketStream, name: str) -> Accepted:
        """Return what to use in place of *stream*, made to the process of the member *name*.

        Raises:
            trio.BrokenResourceError: another process is there, perhaps one without a key.
        """
        if self._dial_plain:
            return Accepted(stream, LASTING)
        accepted = await self._secured(stream, server=False)
        identity = accepted.proof.identity
        if identity is not None and identity.name != name:
            raise trio.BrokenResourceError(f"{identity} answers there, not {name}")
        return accepted

    async def _secured(self, stream: trio.SocketStream, *, server: bool) -> Accepted:
        context = self._credentials.context(server=server)
        secured = trio.SSLStream(stream, context, server_side=server, https_compatible=True)
        try:
            await secured.do_handshake()
        except trio.BrokenResourceError as error:
            if isinstance(error.__cause__, ssl.SSLError):
                raise trio.BrokenResourceError(explained(error.__cause__)) from None
            raise
        proof = self._credentials.proof_in(secured.getpeercert())
        roles = SHUFFLE_CALLERS if server else SHUFFLERS
        why = refusal_of(proof.identity, self._cluster, roles) or proof.why_over()
        if why is not None:
            raise trio.BrokenResourceError(why)
        return Accepted(secured, proof)
