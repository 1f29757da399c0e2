"""The cost of receiving messages, per response with 32 messages of 1 KiB."""

from typing import Any

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from tests.unit.store.test_received_message import plain, record

COUNT = 32
PROPERTIES = b"UNIQ_KEY\x01" + b"7F" * 16 + b"\x02WAIT\x01true\x02TAGS\x01TagA\x02KEYS\x01order-1\x02"
BODY = record(bytes(1024), b"orders", PROPERTIES) * COUNT
NOTHING = "nothing"


def read(attribute: str) -> list[ReceivedMessage]:
    messages = decode_messages(BODY, "broker-a", plain, min_offset=0, max_offset=99)
    if attribute != NOTHING:
        for message in messages:
            getattr(message, attribute)
    return messages


@pytest.mark.parametrize("attribute", [NOTHING, "topic", "body", "tags", "message_id", "properties"])
def test_decoding_and_reading(benchmark: Any, attribute: str) -> None:  # noqa: ANN401 - untyped plugin
    assert len(benchmark(read, attribute)) == COUNT


def test_decoding_with_a_filter_by_tags(benchmark: Any) -> None:  # noqa: ANN401 - untyped plugin
    wanted = frozenset({"TagB"})
    assert benchmark(lambda: decode_messages(BODY, "broker-a", plain, tags=wanted)) == []
