"""The process for Arrow Flight beside a node: brings the elements of Flight's clients to the node.

Flight's server has threads of its own, and a call that runs there cannot be cancelled: so it is a
process, which ends with its node. What it has checked it sends on as calls, as other nodes do.

Rules for this file: threads and blocking calls; no trio.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import Any, Final

import pyarrow.flight as pf

from ringpop_py.base.address import Address
from ringpop_py.base.errors import BadElement, BadRequest, BodyError, CallError
from ringpop_py.base.values.arrow import sound
from ringpop_py.base.values.declared import decode
from ringpop_py.client.sync.client import Client
from ringpop_py.flow.dataflow.batches import body_of
from ringpop_py.flow.dataflow.channels import CALL_S, ELEMENT, ElementReply
from ringpop_py.flow.exchange.elements import element_in
from ringpop_py.net.wire.calls import NODE_SERVICE, Call

MEMORY_BYTES_MAX: Final = 1 << 30
"""The most bytes of memory: a call that needs more fails, or the process ends, and starts again."""
NOT_TAKEN: Final = b"\x00"
TAKEN: Final = b"\x01"
OVER: Final = b"\x02"
"""The answers to an element: send it again; it is in its queue; its run is over."""


class Relay(pf.FlightServerBase):  # type: ignore[misc] # pyarrow has no types
    """Flight's side: each call of ``DoExchange`` is one channel into *node*, on the same host."""

    def __init__(self, node: Address) -> None:
        super().__init__(f"grpc://{Address(node.host, 0)}")
        self._node = node

    def do_exchange(
        self,
        context: Any,  # noqa: ANN401 - pyarrow has no types
        descriptor: Any,  # noqa: ANN401
        reader: Any,  # noqa: ANN401
        writer: Any,  # noqa: ANN401
    ) -> None:
        """Bring each element to the node, and its answer back.

        Raises:
            FlightServerError: the input is not an element; this ends only this call.
            FlightUnavailableError: the node does not answer.
        """
        del context, descriptor
        try:
            with Client(self._node, cluster_key="") as client:
                while True:
                    try:
                        chunk = reader.read_chunk()
                    except StopIteration:
                        return
                    head = b"" if chunk.app_metadata is None else chunk.app_metadata.to_pybytes()
                    body = b"" if chunk.data is None else body_of(sound(chunk.data))
                    writer.write_metadata(_brought(client, head, body))
        except (BadElement, BadRequest, BodyError) as error:
            raise pf.FlightServerError(f"not an element: {error}") from None
        except CallError as error:
            raise pf.FlightUnavailableError(f"the node did not take it: {error}") from None


def _brought(client: Client, head: bytes, body: bytes) -> bytes:
    """Bring an element to the node; return its answer. Raises BadElement, BodyError, CallError."""
    element_in(head, body, has_body=bool(body))
    call = Call(NODE_SERVICE, ELEMENT, head, body, ttl_s=CALL_S)
    taken = decode(ElementReply, client.call(call).arg3)
    return TAKEN if taken.taken else OVER if taken.over else NOT_TAKEN


def main() -> None:
    """Serve beside the node that has started this, until its end of the pipe is closed.

    The argument is the node's address. The line of output says where this listens.
    """
    # Flight unpacks what comes before we see it: a compressed batch may be of any size.
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    node = Address.parse(sys.argv[1])
    relay = Relay(node)
    sys.stdout.write(f"grpc://{Address(node.host, relay.port)}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    os._exit(0)  # calls that run cannot be cancelled


if __name__ == "__main__":
    main()
