"""More of what pages show: members of groups, dead letters, waiting messages, open transactions, locked queues."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from firearrow.client import (
    ConsumeFromWhere,
    DeadLetter,
    Message,
    PushConsumerOptions,
    ReceivedMessage,
    Suspend,
    TransactionState,
    blocking,
)
from tests.console.running import name_server
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually

FIRST = ConsumeFromWhere.FIRST_OFFSET
DEAD = 7


@contextmanager
def fill_more(broker: BrokerProcess) -> Iterator[None]:
    """Clients stay connected until the end."""
    where, dead = name_server(broker), []

    def bill(messages: Sequence[ReceivedMessage]) -> DeadLetter | None:
        if len(dead) < DEAD:
            dead.append(messages[0].message_id)
            return DeadLetter()
        return None

    def hold(messages: Sequence[ReceivedMessage]) -> Suspend:
        return Suspend(30)

    with ExitStack() as running:
        producer = running.enter_context(blocking.Producer("shop", name_server=where, checker=_unknown))
        for number in range(12):
            due_ms = time.time_ns() // 1_000_000 + 150_000 * (number + 1) ** 2
            producer.send(Message("orders", b"later", keys=[f"late{number}"], deliver_at_ms=due_ms))
        with producer.transaction(Message("payments", b'{"paid": 12}', keys=["tx1"])) as transaction:
            transaction.leave_unknown()
        for group, topic, handler, in_order in (
            ("billing", "orders", bill, False),
            ("ordered", "payments", hold, True),
        ):
            options = PushConsumerOptions(from_where=FIRST, orderly=in_order)
            consumer = blocking.PushConsumer(group, name_server=where, options=options)
            consumer.subscribe(topic)(handler)
            running.enter_context(consumer)
        eventually(lambda: len(dead) == DEAD, within_s=30)
        yield


def _unknown(message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN
