"""A service: it consumes orders and sends an invoice for each. `test_invoices.py` tests it against a real broker.

NAMESRV_ADDR=127.0.0.1:9876 python examples/pytest/invoices.py
"""

from collections.abc import Sequence

from firearrow.client import ConsumeFromWhere, Message, PushConsumerOptions, ReceivedMessage
from firearrow.client.blocking import Producer, PushConsumer


class Invoices:
    """Consumes `orders` and sends to `invoices` until it is closed. A context manager."""

    def __init__(self, name_server: str | None, orders: str, invoices: str) -> None:
        self.invoices = invoices
        self._producer = Producer("invoices", name_server=name_server)
        options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
        self.consumer = PushConsumer("invoices", name_server=name_server, options=options)
        self.consumer.subscribe(orders, self._handle)

    def _handle(self, orders: Sequence[ReceivedMessage]) -> None:
        for order in orders:
            text = f"invoice for {order.body.decode()}"
            self._producer.send(Message(self.invoices, text.encode(), keys=order.keys)).raise_for_status()

    def __enter__(self) -> "Invoices":
        self._producer.start()
        self.consumer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.consumer.close()
        self._producer.close()


if __name__ == "__main__":
    with Invoices(None, "orders", "invoices") as service:
        service.consumer.run()
