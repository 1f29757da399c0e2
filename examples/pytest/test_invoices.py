"""Tests of the service in `invoices.py`: `pip install firearrow pytest`, then `pytest examples/pytest`.

The fixtures are FireArrow's. The broker starts once for the run; `firearrow_topic` is a new topic for each test. With
pytest-xdist, `pytest -n 4` starts a broker for each worker.
"""

from collections.abc import Iterator

import pytest
from invoices import Invoices

from firearrow.client import LocalBroker, Message
from firearrow.client.blocking import Producer
from firearrow.client.pytest_plugin import MessagesIn


@pytest.fixture
def producer(firearrow_broker: LocalBroker) -> Iterator[Producer]:
    with Producer("shop", name_server=firearrow_broker.name_server) as producer:
        yield producer


@pytest.fixture
def service(firearrow_broker: LocalBroker, firearrow_topic: str) -> Invoices:
    """Not started. It consumes `firearrow_topic`."""
    return Invoices(firearrow_broker.name_server, firearrow_topic, f"{firearrow_topic}-invoices")


def test_every_order_gets_an_invoice(
    producer: Producer, firearrow_topic: str, service: Invoices, messages_in: MessagesIn
) -> None:
    with service:
        for item in ("book", "pen", "lamp"):
            producer.send(Message(firearrow_topic, item.encode(), keys=[f"order-{item}"]))
        sent = {message.keys[0]: message.body for message in messages_in(service.invoices, count=3)}
    assert sent == {
        "order-book": b"invoice for book",
        "order-pen": b"invoice for pen",
        "order-lamp": b"invoice for lamp",
    }


def test_an_order_that_was_sent_before_the_service_started(
    producer: Producer, firearrow_topic: str, service: Invoices, messages_in: MessagesIn
) -> None:
    producer.send(Message(firearrow_topic, b"book"))
    with service:
        [invoice] = messages_in(service.invoices)
    assert invoice.body == b"invoice for book"
