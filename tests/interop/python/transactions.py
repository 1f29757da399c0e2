"""Messages in transactions; their properties decide their outcome.

`first` is the producer's decision at once, `checked` its answer to a check, after `unknown` answers UNKNOWN.
An event `check` for each check.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import Message
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.send.producer import Producer
from firearrow.client.send.transactions import JAVA_NAMES, TransactionState
from tests.interop.python.events import emit, of_message, of_queue
from tests.interop.python.parameters import Parameters
from tests.interop.python.producers import messages

STATES = {name: state for state, name in JAVA_NAMES.items()}


class Transactions:
    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._producers: dict[str, Producer] = {}
        self._asked: Counter[str] = Counter()

    def operations(self) -> dict[str, Callable[[Parameters], Awaitable[None]]]:
        return {"transact": self.transact, "stopTransactions": self.stop}

    async def transact(self, parameters: Parameters) -> None:
        producer = await self._producer(parameters.text("group"))
        for message in messages(parameters):
            done = await producer.send_in_transaction(message, _decide)
            sent = done.sent
            emit(
                "sent",
                **of_queue(sent.queue),
                status=sent.status.name,
                msgId=sent.message_id,
                offsetMsgId=sent.offset_message_id,
                queueOffset=sent.queue_offset,
                transactionId=sent.transaction_id,
                state=JAVA_NAMES[done.state],
            )

    async def stop(self, parameters: Parameters) -> None:
        await self._producers.pop(parameters.text("group")).close()

    async def _producer(self, group: str) -> Producer:
        if group not in self._producers:
            producer = Producer(
                group,
                client=ClientOptions(
                    name_server=self._name_server, instance_name=group, poll_name_server_s=0.5
                ),
                options=ProducerOptions(send_timeout_s=20),
                checker=self._check,
            )
            await producer.start()
            self._producers[group] = producer
        return self._producers[group]

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        asked = message.transaction_id or ""
        self._asked[asked] += 1
        emit(
            "check",
            **of_message(message),
            consumer=message.get_property("PGROUP"),
            transactionId=asked,
            at=int(time.time() * 1000),
        )
        if self._asked[asked] <= int(message.get_property("unknown", "0") or 0):
            return TransactionState.UNKNOWN
        return STATES[message.properties["checked"]]


async def _decide(message: Message, argument: object) -> TransactionState:
    return STATES[message.properties["first"]]
