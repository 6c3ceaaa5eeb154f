"""A topic of Kafka as a source: each of its partitions is a split.

It uses no group of consumers, and commits no offsets: the partitions of the keyspace, or the epochs
of the dataflow, record how far a split was read. So only the cluster rebalances.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.errors import ConfigError, SourceFailed
from ringpop_py.flow.streams.parsing import Parser
from ringpop_py.flow.streams.source import BadRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.flow.streams.parsing import Form, KeyRule
    from ringpop_py.flow.streams.source import Record

READ_S: Final = 0.1
"""The most seconds that a read waits for a full batch, if the last read had messages."""
ASK_S: Final = 5.0
UNUSED_S: Final = 60.0
"""The seconds after which the connection of a split that is not read is closed."""
OWN: Final = frozenset({"bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset"})
_LOG: Final = logging.getLogger("ringpop.kafka")


class Kafka:
    """The messages of *topic*; a position is that of the message behind it, as Kafka counts.

    A split is called ``TOPIC-PARTITION``. New partitions are found. Of transactions, only messages
    that were committed are read. If Kafka has deleted what comes next, the split stops and says so.

    Args:
        brokers: ``HOST:PORT`` of some, separated by commas.
        key: the field of a value that is its key, or a function that returns the key of a value; by
            default the key of the message, as text.
        lines: what the value of a message is: ``json``, or ``text``.
        settings: further ones of librdkafka, such as ``security.protocol``.

    Raises:
        ConfigError: if an argument is not valid, or the extra ``kafka`` is not installed.
    """

    is_bounded = False

    def __init__(
        self,
        topic: str,
        *,
        brokers: str,
        key: KeyRule | None = None,
        lines: Form = "json",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        try:
            import confluent_kafka  # noqa: PLC0415 - an extra
        except ImportError:
            raise ConfigError("Kafka needs: pip install 'ringpop_py[kafka]'") from None
        if not topic or not brokers:
            raise ConfigError("a topic and brokers have to be named")
        own = sorted(OWN & set(settings or ()))
        if own:
            raise ConfigError(f"a stream sets {', '.join(own)} itself")
        self._parser = Parser(key, lines)
        self._topic = topic
        self._kafka = confluent_kafka
        self._settings = {
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
            **(settings or {}),
            "bootstrap.servers": brokers,
            "group.id": "ringpop",  # required, but not used
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
        self._lock = threading.Lock()
        self._readers: dict[str, _Reader] = {}
        self._asking: Any = None

    def splits(self) -> Sequence[str]:
        """See `Source`."""
        with self._lock:
            self._close_unused()
            try:
                if self._asking is None:
                    self._asking = self._consumer()
                listed = self._asking.list_topics(self._topic, timeout=ASK_S).topics[self._topic]
            except self._kafka.KafkaException as error:
                raise SourceFailed(f"topic {self._topic}: {_text(error)}") from None
        if listed.error is not None:
            raise SourceFailed(f"topic {self._topic}: {listed.error.str()}")
        return [f"{self._topic}-{number}" for number in sorted(listed.partitions)]

    def read(self, split: str, after: int, limit: int) -> Sequence[Record | BadRecord]:
        """See `Source`."""
        with self._lock:
            reader = self._readers.get(split)
            if reader is None:
                reader = self._readers[split] = _Reader()
            reader.used_at = time.monotonic()
        with reader.lock:
            try:
                messages = self._messages(reader, split, after, limit)
            except self._kafka.KafkaException as error:
                reader.consumer = None
                raise SourceFailed(f"{split}: {_text(error)}") from None
            found: list[Record | BadRecord] = []
            for message in messages:
                if message.error() is not None:
                    reader.consumer = None
                    if not found:
                        raise SourceFailed(f"{split}: {message.error().str()}")
                    break
                found.append(self._record(message))
                reader.at = message.offset() + 1
            return found

    def _messages(self, reader: _Reader, split: str, after: int, limit: int) -> Sequence[Any]:
        kafka = self._kafka
        if reader.consumer is None or reader.at != after:
            if reader.consumer is None:
                reader.consumer = self._consumer()
            number = int(split.rpartition("-")[2])
            begin = after or kafka.OFFSET_BEGINNING
            reader.consumer.assign([kafka.TopicPartition(self._topic, number, begin)])
            reader.at = after
        # A split without messages does not delay the others.
        messages: Sequence[Any] = reader.consumer.consume(limit, READ_S if reader.was_busy else 0)
        reader.was_busy = bool(messages)
        return messages

    def _record(self, message: Any) -> Record | BadRecord:  # noqa: ANN401 - of an untyped library
        position, value = message.offset() + 1, message.value()
        if value is None:
            return BadRecord(position, "it has no value", "")
        return self._parser.record(position, value, message.key())

    def _consumer(self) -> Any:  # noqa: ANN401 - of an untyped library
        return self._kafka.Consumer(self._settings, logger=_LOG)

    def _close_unused(self) -> None:
        now = time.monotonic()
        for split, reader in list(self._readers.items()):
            if now - reader.used_at > UNUSED_S and reader.lock.acquire(blocking=False):
                del self._readers[split]
                if reader.consumer is not None:
                    reader.consumer.close()
                reader.lock.release()


class _Reader:
    """The connection that reads one split.

    Attributes:
        at: the position behind which it reads on.
        was_busy: whether the last read had messages.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.consumer: Any = None
        self.at = 0
        self.was_busy = True
        self.used_at = 0.0


def _text(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return str(reason.str()) if hasattr(reason, "str") else str(reason)
