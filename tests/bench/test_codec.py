"""What `bench codec` compares: two codecs that read and write the same bytes."""

from __future__ import annotations

import pytest

from tests.bench.codec import Message, messages


@pytest.mark.parametrize("message", messages(), ids=lambda message: message.name)
def test_both_codecs_read_the_same_and_write_it_in_the_same_bytes(message: Message) -> None:
    now, before = message.now.read(message.body), message.before.read(message.body)

    assert message.now.write(now) == message.before.write(before) == message.body
