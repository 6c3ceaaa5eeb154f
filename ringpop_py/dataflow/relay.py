"""The process for Arrow Flight beside a node: passes elements on, between the node and others.

Flight's server has threads of its own, and a call that runs there cannot be cancelled: so it is a
process, which ends with its node. The node speaks to it over loopback: a frame has a head (the byte
and the JSON of an element) and a body (Arrow IPC, or nothing), and is answered with one byte.

Rules for this file: threads and blocking calls; no trio.
"""

from __future__ import annotations

import os
import resource
import secrets
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.flight as pf

from ringpop_py.dataflow.batches import body_of
from ringpop_py.dataflow.relayed import FIXED, TOKEN_BYTES, frame, sizes_in
from ringpop_py.errors import BadElement, BodyError
from ringpop_py.exchange.elements import element_in
from ringpop_py.values.arrow import sound, stream_in
from ringpop_py.values.packed import decode_value, encode_value

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY_BYTES_MAX: Final = 1 << 30
"""The most bytes of memory: a call that needs more fails, or the process ends, and starts again."""


class _Line:
    """A connection over loopback. Its first bytes are a secret token."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._file = connection.makefile("rb")

    def exactly(self, size: int) -> bytes:
        """Return the next *size* bytes. Raises OSError at the end."""
        data = self._file.read(size)
        if len(data) < size:
            raise OSError("the connection has ended")
        return data

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield frames, until the end. Raises OSError, BadElement."""
        while True:
            head, body = sizes_in(self.exactly(FIXED.size))
            yield self.exactly(head), self.exactly(body)

    def send(self, data: bytes) -> None:
        """Send *data*. Raises OSError."""
        self._socket.sendall(data)

    def close(self) -> None:
        """Close it."""
        self._file.close()
        self._socket.close()


class Relay(pf.FlightServerBase):  # type: ignore[misc] # pyarrow has no types
    """Flight's side: each call of ``DoExchange`` is one channel into the node.

    Args:
        host: the address at which it listens.
        node_port: the port at which the node listens on loopback.
        token: the secret by which each knows the other.
    """

    def __init__(self, host: str, node_port: int, token: bytes) -> None:
        super().__init__(f"grpc://{f'[{host}]' if ':' in host else host}:0")
        self._node_port = node_port
        self._token = token
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    # From other nodes to this one.

    def do_exchange(
        self,
        context: Any,  # noqa: ANN401 - pyarrow has no types
        descriptor: Any,  # noqa: ANN401
        reader: Any,  # noqa: ANN401
        writer: Any,  # noqa: ANN401
    ) -> None:
        """Pass each element on to the node, and its answer back.

        Raises:
            FlightServerError: the input is not an element; this ends only this call.
        """
        del context, descriptor
        line = _Line(socket.create_connection(("127.0.0.1", self._node_port)))
        try:
            line.send(self._token)
            while True:
                try:
                    chunk = reader.read_chunk()
                except StopIteration:
                    return
                head = b"" if chunk.app_metadata is None else chunk.app_metadata.to_pybytes()
                body = b"" if chunk.data is None else body_of(sound(chunk.data))
                element_in(head, body, has_body=bool(body))
                line.send(frame(head, body))
                writer.write_metadata(line.exactly(1))
        except (BadElement, BodyError) as error:
            raise pf.FlightServerError(f"not an element: {error}") from None
        except OSError as error:
            raise pf.FlightUnavailableError(f"the node is gone: {error}") from None
        finally:
            line.close()

    # From this node to others.

    def serve_node(self, listener: socket.socket) -> None:
        """Serve the channels of the node to others, each in a thread, until the process ends."""
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._serve, args=(_Line(connection),), daemon=True).start()

    def _serve(self, line: _Line) -> None:
        try:
            if secrets.compare_digest(line.exactly(TOKEN_BYTES), self._token):
                self._pass_on(line)
        except (OSError, BadElement, BodyError, pa.ArrowException):
            pass  # the node tries again, over a connection of its own
        finally:
            line.close()

    def _pass_on(self, line: _Line) -> None:
        frames = line.frames()
        location = decode_value("json", next(frames)[0])["location"]
        descriptor = pf.FlightDescriptor.for_path("exchange")
        writer, reader = self._client(location).do_exchange(descriptor)
        try:
            has_begun = False
            for head, body in frames:
                if body:
                    (batch,) = stream_in(body).batches
                    if not has_begun:
                        writer.begin(batch.schema)
                        has_begun = True
                    writer.write_with_metadata(batch, head)
                else:
                    writer.write_metadata(head)
                line.send(reader.read_chunk().app_metadata.to_pybytes())
        except StopIteration:
            raise OSError("the other node has ended the call") from None
        finally:
            self._end(writer, location)

    def _client(self, location: str) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return the one client of *location*: its calls share a connection."""
        with self._lock:
            client = self._clients.get(location)
            if client is None:
                client = self._clients[location] = pf.connect(location)
            return client

    def _end(self, writer: Any, location: str) -> None:  # noqa: ANN401 - pyarrow has no types
        try:
            writer.close()
        except pa.ArrowException:
            with self._lock:
                self._clients.pop(location, None)  # the next call makes a new one


def main() -> None:
    """Relay for the node that has started this, until its end of the pipe is closed.

    Arguments: the host to listen at, and the node's port on loopback. Input: the token. The first
    line of output says where it listens.
    """
    host, port = sys.argv[1], int(sys.argv[2])
    # Flight unpacks what comes before we see it: a compressed batch may be of any size.
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    token = sys.stdin.buffer.read(TOKEN_BYTES)
    relay = Relay(host, port, token)
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=relay.serve_node, args=(listener,), daemon=True).start()
    said = encode_value("json", {"flight": relay.port, "relay": listener.getsockname()[1]})
    sys.stdout.buffer.write(said + b"\n")
    sys.stdout.buffer.flush()
    sys.stdin.buffer.read()
    os._exit(0)  # calls that run cannot be cancelled


if __name__ == "__main__":
    main()
