"""Senders: each sends under a separate name until `rest`, and sends again, under a new id, what failed.

An id is `sender.number.try`. All run in one event loop; a sender has one message in flight, or its window.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import RocketMQError
from firearrow.client.base.message import Message
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.send.producer import Producer
from firearrow.client.send.transactions import TransactionState
from tests.history.python.emit import body_of, emit, emit_send, emit_sent

PLAIN, LATER, QUEUES = "Plain", "Later", 4
PAUSE_S = 0.1
WINDOW, BATCH = 16, 5
Once = Callable[[str, int], Awaitable[bool]]


class Senders:
    """`name`: prefix of all ids. `pace_s`: the longest pause between two messages of a sender."""

    def __init__(self, name: str, name_server: str, seed: int, pace_s: float) -> None:
        self._name = name
        self._draw = random.Random(seed)
        self._pace_s = pace_s
        client = ClientOptions(name_server=name_server, poll_name_server_s=0.5, heartbeat_s=0.5)
        once = ProducerOptions(retries=0, async_retries=0)
        self._once = Producer(f"{name}-once", client=client, options=once, checker=self._check)
        self._often = Producer(f"{name}-often", client=client, options=ProducerOptions(retries=2))
        self._numbers: dict[str, int] = {}
        self._resting = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def load(self) -> None:
        """Start, or continue."""
        for producer in (self._once, self._often):
            if not producer.state.value.startswith("RUNNING"):
                await producer.start()
        self._resting.clear()
        ways = {
            "one": self._one,
            "repeated": self._repeated,
            "window": self._window,
            "batch": self._batch,
            "delayed": self._delayed,
            "timed": self._timed,
            "half": self._half,
        }
        self._tasks = [asyncio.create_task(self._run(way, once)) for way, once in ways.items()]

    async def rest(self) -> None:
        """Returns when nothing is in flight."""
        self._resting.set()
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        await self._once.close()
        await self._often.close()

    async def _run(self, way: str, once: Once) -> None:
        sender = f"{self._name}-{way}"
        while not self._resting.is_set():
            number = self._numbers[sender] = self._numbers.get(sender, 0) + 1
            for attempt in range(1_000_000):
                if await once(f"{sender}.{number}.{attempt}", number) or self._resting.is_set():
                    break
                await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(self._draw.uniform(0, self._pace_s))

    async def _one(self, name: str, number: int) -> bool:
        body = body_of(name, self._draw)
        emit_send(name, PLAIN, body)
        queue = number % QUEUES
        message = Message(PLAIN, body, keys=[name])
        return await self._answered(name, self._once.send(message, selector=lambda queues, _: queues[queue]))

    async def _repeated(self, name: str, _: int) -> bool:
        body = body_of(name, self._draw)
        emit_send(name, PLAIN, body, copies=3)
        return await self._answered(name, self._often.send(Message(PLAIN, body, tags="repeated")))

    async def _window(self, name: str, _: int) -> bool:
        names = [f"{name}-{n}" for n in range(WINDOW)]
        answers = []
        for each in names:
            body = body_of(each, self._draw)
            emit_send(each, PLAIN, body)
            answers.append(self._answered(each, self._once.submit(Message(PLAIN, body))))
        return all(await asyncio.gather(*answers))

    async def _batch(self, name: str, _: int) -> bool:
        names = [f"{name}-{n}" for n in range(BATCH)]
        bodies = [body_of(each, self._draw) for each in names]
        for each, body in zip(names, bodies, strict=True):
            emit_send(each, PLAIN, body)
        try:
            result = await self._once.send_batch([Message(PLAIN, body) for body in bodies])
        except RocketMQError as error:
            for each in names:
                emit("failed", id=each, why=f"{type(error).__name__}: {error}")
            return False
        for index, each in enumerate(names):
            emit_sent(each, result, index)
        return True

    async def _delayed(self, name: str, _: int) -> bool:
        body = body_of(name, self._draw)
        emit_send(name, LATER, body, kind="delay")
        return await self._answered(name, self._once.send(Message(LATER, body, delay_level=1)))

    async def _timed(self, name: str, _: int) -> bool:
        body = body_of(name, self._draw)
        emit_send(name, LATER, body, kind="delay")
        return await self._answered(name, self._once.send(Message(LATER, body, delay_s=0.7)))

    async def _half(self, name: str, number: int) -> bool:
        """A third is committed, a third rolled back, a third is checked first."""
        body = body_of(name, self._draw)
        fate = "drop" if number % 3 == 1 else "keep"
        emit_send(name, LATER, body, kind="half", fate=fate)
        state = {0: TransactionState.COMMIT, 1: TransactionState.ROLLBACK, 2: TransactionState.UNKNOWN}[
            number % 3
        ]

        async def decide(message: Message, argument: object) -> TransactionState:
            return state

        async def sent() -> object:
            done = await self._once.send_in_transaction(
                Message(LATER, body, properties={"fate": fate}), decide
            )
            return done.sent

        return await self._answered(name, sent())

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        dropped = message.get_property("fate") == "drop"
        return TransactionState.ROLLBACK if dropped else TransactionState.COMMIT

    async def _answered(self, name: str, sending: Awaitable[object]) -> bool:
        try:
            emit_sent(name, await sending)  # type: ignore[arg-type]
            return True
        except RocketMQError as error:
            emit("failed", id=name, why=f"{type(error).__name__}: {error}")
            return False
