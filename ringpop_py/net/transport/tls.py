"""TLS 1.3 over the streams of another network. No cipher and no handshake is written here.

Python's `ssl` turns plain bytes into records in memory, and back. So what is queued still leaves in
one send, which `trio.SSLStream` cannot do: it sends once for each call.
"""

from __future__ import annotations

import errno
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from ringpop_py.net.security.credentials import HANDSHAKE, PLAIN, UNTRUSTED, explained
from ringpop_py.net.security.identity import ANYBODY, MEMBERS, Identity, refusal_of
from ringpop_py.net.security.proof import LASTING
from ringpop_py.net.transport.network import RECEIVE_BYTES_MAX, StreamRefused, StreamUntrusted

if TYPE_CHECKING:
    from ringpop_py.base.address import Address
    from ringpop_py.net.security.credentials import KeyCredentials
    from ringpop_py.net.transport.network import Listener, Network, Stream

PIECE_BYTES: Final = 65_536
UNSENT_BYTES_MAX: Final = 1 << 20


class TlsStream:
    """One end of a connection whose bytes are records of TLS.

    An end that accepted the connection shakes hands with the first `receive`.

    Args:
        inner: what carries the records.
        credentials: of this process; the peer's certificate must name the same cluster.
        server: whether this end accepted the connection.
        accept_plain: whether a peer without TLS is served as well.

    Attributes:
        identity: whom the peer's certificate names; None before the handshake, and without TLS.
    """

    def __init__(
        self,
        inner: Stream,
        credentials: KeyCredentials,
        *,
        server: bool,
        accept_plain: bool = False,
    ) -> None:
        self.remote_host = inner.remote_host
        self.identity: Identity | None = None
        self.proof = LASTING
        self._inner = inner
        self._credentials = credentials
        self._server = server
        self._accept_plain = accept_plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = credentials.context(server=server)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)
        self._begun = False  # whether this end has looked at what the peer sends
        self._plain = False
        self._unsent = b""  # records that have not left
        self._draining = False  # whether a task waits until they can
        # The next plain bytes in these records: reported as not sent, so they come again.
        self._owed = 0

    async def shake_hands(self) -> None:
        """Agree with the peer on keys, and on who it is.

        Raises:
            StreamRefused: one of the two does not trust the other.
            trio.BrokenResourceError: the connection broke.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._send_records()
                data = await self._inner.receive()
                if not data:
                    raise trio.BrokenResourceError("the peer closed in the handshake") from None
                self._incoming.write(data)
            except ssl.SSLError as error:
                await self._send_records()  # that tell the peer why
                raise _refusal_by(error) from None
            else:
                await self._send_records()
                self._begun = True
                self._check_peer()
                return

    def _check_peer(self) -> None:
        cluster, roles = self._credentials.identity.cluster, ANYBODY if self._server else MEMBERS
        proof = self._credentials.proof_in(self._tls.getpeercert())
        why = refusal_of(proof.identity, cluster, roles) or proof.why_over()
        if why is not None:
            raise StreamRefused(why)
        self.identity, self.proof = proof.identity, proof

    async def receive(self) -> bytes:
        """See `Stream`."""
        if not self._begun:
            first = await self._inner.receive()
            self._begun = True
            if not first:
                return b""
            if first[0] != HANDSHAKE:
                if not self._accept_plain:
                    raise StreamRefused(PLAIN)
                self._plain = True
                return first
            self._incoming.write(first)
            await self.shake_hands()
        if self._plain:
            return await self._inner.receive()
        while (data := self._read()) == b"":
            self._answer_records()
            records = await self._inner.receive()
            if not records:
                return b""  # frames have lengths, which reveal a stream that was cut short
            self._incoming.write(records)
        return data or b""

    def _read(self) -> bytes | None:
        """Return what the records that have arrived hold; None if the peer sends no more."""
        parts: list[bytes] = []
        size = 0
        try:
            while size < RECEIVE_BYTES_MAX:
                part = self._tls.read(RECEIVE_BYTES_MAX - size)
                if not part:
                    break
                parts.append(part)
                size += len(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # the peer has said that it sends no more
            if not parts:
                return None
        except ssl.SSLError as error:
            raise _refusal_by(error) from None
        return b"".join(parts)

    def send_nowait(self, data: bytes | memoryview) -> int:
        """See `Stream`."""
        if self._plain:
            return self._inner.send_nowait(bytes(data))
        if self._unsent and not self._push(b""):
            return 0
        view, done = memoryview(data), self._owed
        self._owed = 0
        while done < len(view):
            piece = view[done : done + PIECE_BYTES]
            self._tls.write(piece)
            done += len(piece)
            if not self._push(self._outgoing.read()):
                self._owed = 1
                return done - 1
        return done

    async def send_some(self, data: memoryview) -> int:
        """See `Stream`."""
        if self._plain:
            return await self._inner.send_some(data)
        while True:
            await self._send_records()
            sent = self.send_nowait(data)
            if sent:
                return sent

    def _answer_records(self) -> None:
        """Send what records of the peer ask for, for example other keys; without waiting."""
        records = self._outgoing.read()
        if records and self._draining:
            self._unsent += records  # after what is on its way
        elif records:
            self._push(records)
        if len(self._unsent) > UNSENT_BYTES_MAX:
            raise trio.BrokenResourceError("the peer asks for records, and does not read them")

    def _push(self, records: bytes) -> bool:
        """Send *records* after those that wait, without waiting; return whether all have left."""
        self._unsent += records
        sent = self._inner.send_nowait(self._unsent) if self._unsent else 0
        self._unsent = self._unsent[sent:]
        return not self._unsent

    async def _send_records(self) -> None:
        self._unsent += self._outgoing.read()
        self._draining = True
        try:
            while self._unsent:
                sent = await self._inner.send_some(memoryview(self._unsent))
                self._unsent = self._unsent[sent:]
        finally:
            self._draining = False

    def end_sending(self) -> None:
        """See `Stream`."""
        if not self._plain and self._begun:
            with suppress(ssl.SSLError):  # it asks for the peer's farewell, which nobody waits for
                self._tls.unwrap()
            with suppress(trio.BrokenResourceError):  # the connection is gone already
                self._push(self._outgoing.read())
        self._inner.end_sending()

    def close(self) -> None:
        """See `Stream`."""
        self._inner.close()


class TlsListener:
    """Accepts connections at *inner*, with TLS."""

    def __init__(self, inner: Listener, credentials: KeyCredentials, *, accept_plain: bool) -> None:
        self.address = inner.address
        self._inner = inner
        self._credentials = credentials
        self._accept_plain = accept_plain

    async def accept(self) -> Stream:
        """See `Listener`. The stream shakes hands when it is first read."""
        stream = await self._inner.accept()
        return TlsStream(stream, self._credentials, server=True, accept_plain=self._accept_plain)

    def close(self) -> None:
        """See `Listener`."""
        self._inner.close()


class TlsNetwork:
    """TLS over *inner*, with the certificates and keys in *credentials*.

    Args:
        accept_plain: whether connections without TLS are accepted as well.
        dial_plain: whether connections are made without TLS: while members without keys are left.

    Attributes:
        inner: makes connections without TLS.
    """

    def __init__(
        self,
        inner: Network,
        credentials: KeyCredentials,
        *,
        accept_plain: bool = False,
        dial_plain: bool = False,
    ) -> None:
        self.inner = inner
        self._credentials = credentials
        self._accept_plain = accept_plain
        self._dial_plain = dial_plain

    async def listen(self, address: Address) -> list[Listener]:
        """See `Network`."""
        listeners = await self.inner.listen(address)
        return [
            TlsListener(each, self._credentials, accept_plain=self._accept_plain)
            for each in listeners
        ]

    async def connect(self, to: Address, *, origin: Address | None) -> Stream:
        """See `Network`."""
        inner = await self.inner.connect(to, origin=origin)
        if self._dial_plain:
            return inner
        try:
            stream = TlsStream(inner, self._credentials, server=False)
            await stream.shake_hands()
        except BaseException as error:
            inner.close()
            if not isinstance(error, trio.BrokenResourceError | trio.ClosedResourceError):
                raise
            number = errno.EKEYREJECTED if isinstance(error, StreamUntrusted) else errno.EPROTO
            raise OSError(number, str(error)) from None
        return stream


def _refusal_by(error: ssl.SSLError) -> StreamRefused:
    return (StreamUntrusted if error.reason in UNTRUSTED else StreamRefused)(explained(error))
