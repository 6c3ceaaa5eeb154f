"""The elements on a channel between workers: records, barriers and watermarks.

On the wire each element is a byte that says which it is, JSON, and for records a body of Arrow IPC,
as Volley has them in Arrow Flight's ``app_metadata`` and ``data_body``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from ringpop_py.base.errors import BadElement, BodyError
from ringpop_py.base.values.declared import Named, Natural, Text, convert
from ringpop_py.base.values.packed import decode_value, encode_value

if TYPE_CHECKING:
    from typing import Any

B = TypeVar("B")

DATA: Final = 0x01
BARRIER: Final = 0x02
WATERMARK: Final = 0x03


class Data(NamedTuple, Generic[B]):
    """Records, in the order of their source; the exchange does not look into a batch."""

    batch: B


class Barrier(NamedTuple):
    """The end of an epoch: what came before it belongs to that epoch, what comes after does not."""

    epoch: int


class Watermark(NamedTuple):
    """A promise: no later record is earlier than *time*, except those that are late.

    Attributes:
        time: None if the sender has no records for now, and is not to be waited for.
    """

    time: int | None


Element = Data[B] | Barrier | Watermark


class Hop(Named, frozen=True):
    """The place of an element: its number among those of *sender* on a channel of a run.

    Attributes:
        life: that of the sender; see `ringpop_py.flow.exchange.epochs.Worker`.
    """

    flow: Text
    run: Natural
    sender: Text
    life: Text
    number: Natural


class _BarrierHead(Named, frozen=True):
    hop: Hop
    epoch: Natural


class _WatermarkHead(Named, frozen=True):
    hop: Hop
    time: int | None


class _DataHead(Named, frozen=True):
    hop: Hop


def head_of(element: Element[Any], hop: Hop) -> bytes:
    """Return the byte and the JSON of *element*, which precede its body."""
    about: dict[str, object] = {"hop": {name: getattr(hop, name) for name in Hop.__struct_fields__}}
    if isinstance(element, Barrier):
        kind, about = BARRIER, {**about, "epoch": element.epoch}
    elif isinstance(element, Watermark):
        kind, about = WATERMARK, {**about, "time": element.time}
    else:
        kind = DATA
    return bytes([kind]) + encode_value("json", about)


def element_in(head: bytes, body: B, *, has_body: bool) -> tuple[Hop, Element[B]]:
    """Return the element of *head*, with *body* as its batch.

    Raises:
        BadElement: the byte is unknown, its JSON does not belong to it, a barrier or a watermark
            has a body, or records have none.
    """
    if not head:
        raise BadElement("an element has at least one byte, which says what it is")
    kind = head[0]
    if kind not in (DATA, BARRIER, WATERMARK):
        raise BadElement(f"0x{kind:02x} is not a kind of element; there are 0x01, 0x02 and 0x03")
    if has_body != (kind == DATA):
        what = {DATA: "records have", BARRIER: "a barrier has", WATERMARK: "a watermark has"}[kind]
        raise BadElement(f"{what} {'a' if has_body else 'no'} body")
    try:
        about = decode_value("json", head[1:])
        if kind == BARRIER:
            barrier = convert(_BarrierHead, about)
            return barrier.hop, Barrier(barrier.epoch)
        if kind == WATERMARK:
            watermark = convert(_WatermarkHead, about)
            return watermark.hop, Watermark(watermark.time)
        return convert(_DataHead, about).hop, Data(body)
    except BodyError as error:
        raise BadElement(str(error)) from None
