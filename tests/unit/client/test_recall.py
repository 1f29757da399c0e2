"""Recall handles of timer messages."""

import base64

import pytest

from firearrow.client.base.errors import MessageRefused
from firearrow.client.send.recall import RecallHandle


def test_a_handle_names_the_broker_and_the_message() -> None:
    text = base64.urlsafe_b64encode(b"v1 ns%t broker-a 1700000000000 ID").decode()
    assert RecallHandle.decode(text) == RecallHandle("ns%t", "broker-a", 1700000000000, "ID")


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"v1 t b 1",
        b"v2 t b 1 ID",
        b"v1 t b x ID",
        b"v1 t b -1 ID",
        b"v1 t b 1 ID more",
        b"\xff" * 20,
        b"x" * 2000,
    ],
)
def test_what_is_no_handle_is_refused(plain: bytes) -> None:
    with pytest.raises(MessageRefused, match="recall handle"):
        RecallHandle.decode(base64.urlsafe_b64encode(plain).decode())
    with pytest.raises(MessageRefused, match="recall handle"):
        RecallHandle.decode("*" + plain.decode("latin-1"))
