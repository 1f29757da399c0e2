"""FastSends: the fast path of plain messages, one TopicFastSend for each topic of a producer.

Only an optimisation: other messages, and sends that do not succeed at the first attempt, go through SendTask.
Loop thread.
"""

import random
from asyncio import Future
from collections.abc import Callable

from firearrow._native.wire.fast_send import InFlightLimit, PlainMessages, TopicFastSend
from firearrow._native.wire.send_request import SendAnswer
from firearrow._native.wire.unique_ids import UniqueIds
from firearrow.client.base.errors import MessageRefused, RocketMQError
from firearrow.client.base.message import Message, MessageQueue, Property, SendResult, SendStatus
from firearrow.client.base.names import RETRY
from firearrow.client.send.prepare import MessagePreparer
from firearrow.client.send.send_task import FIRST_SHARE, SendEnvironment, SendTask

SPECIAL = frozenset({Property.MULTI_DISPATCH, Property.MESSAGE_TYPE, Property.TRANSACTION_PREPARED})
"""Properties that change how a message is sent; a message that has one is not plain."""


class SlowPath:
    """Continues a send that failed on the fast path, with a SendTask that starts at the second attempt."""

    def __init__(
        self,
        environment: SendEnvironment,
        preparer: MessagePreparer,
        limit: InFlightLimit,
        mode: str,
        tries: int,
        retries: Callable[[BaseException], bool],
    ) -> None:
        self._environment = environment
        self._preparer = preparer
        self._limit = limit
        self._mode = mode
        self._tries = tries
        self._retries = retries

    def __call__(
        self,
        message: Message,
        queue: MessageQueue,
        future: Future[SendResult],
        size: int,
        deadline_s: float,
        outcome: SendAnswer | BaseException,
    ) -> None:
        if future.done():
            self._limit.release(size)
            return
        future.add_done_callback(lambda _: self._limit.release(size))
        try:
            prepared = self._preparer.prepare(message)
        except RocketMQError as error:
            future.set_exception(error)
            return
        send_task = SendTask(self._environment, prepared, self._mode, 0, self._tries, self._retries)
        send_task.resume(future, queue, deadline_s, outcome)


class FastSends:
    """The fast sends of one producer. The `slow_path` of `submit` carries the caller's retry rules."""

    def __init__(
        self, environment: SendEnvironment, preparer: MessagePreparer, ids: UniqueIds, limit: InFlightLimit
    ) -> None:
        self._environment = environment
        self._preparer = preparer
        self._ids = ids
        self._limit = limit
        self._channels = environment.instance.channels
        self._topic_sends: dict[str, TopicFastSend[Message, MessageQueue, SendResult]] = {}
        options = environment.options
        self._retries = options.retries > 0 and options.async_retries > 0
        self._open = (
            environment.faults is None
            and not environment.forbidden
            and not environment.namespace.name
            and options.attempt_timeout_s is None
        )
        self._plain = PlainMessages(
            SPECIAL,
            min(options.message_bytes_max, options.compress_over_bytes - 1),
            SendResult,
            SendStatus.SEND_OK,
        )

    def submit(self, message: Message, timeout_s: float, slow_path: SlowPath) -> Future[SendResult] | None:
        """The future of the result; None: the message needs a SendTask. MessageRefused."""
        if not self._open or self._environment.hooks or not self._channels.plain:
            return None
        topic_send = self._topic_sends.get(message.topic)
        try:
            if (
                topic_send is not None
                and (future := topic_send.submit(message, timeout_s, slow_path)) is not None
            ):
                return future
            if topic_send is None or not topic_send.has_queues:
                topic_send = self._topic_send(message.topic)
                return None if topic_send is None else topic_send.submit(message, timeout_s, slow_path)
        except ValueError as error:
            raise MessageRefused(str(error)) from None
        return None

    def _topic_send(self, name: str) -> "TopicFastSend[Message, MessageQueue, SendResult] | None":
        """Set up the topic's fast path to all its queues.

        None: a route or a connection is missing, or the topic is static or a retry topic.
        """
        topic = self._preparer.topics.get(name)
        if topic is None or topic.wrapped.startswith(RETRY):
            return None
        info = self._environment.instance.routes.known_publish_info(topic.wrapped)
        if info is None or not info.queues or info.static:
            return None
        choice = self._environment.choice
        queues = [queue for queue in info.queues if not choice.is_silent(queue.broker_name)] or info.queues
        targets = []
        for queue in queues:
            address = self._environment.address(queue)
            channel = None if address is None else self._channels.held(address)
            if channel is None:
                return None
            shown = MessageQueue(name, queue.broker_name, queue.queue_id)
            targets.append((queue.queue_id, queue.broker_name, shown, channel))
        topic_send = self._topic_sends.get(name)
        if topic_send is None:
            topic_send = self._topic_sends[name] = TopicFastSend(
                self._environment.instance.loop,
                topic.wrapped,
                topic.frames,
                self._ids,
                self._limit,
                self._plain,
                infos=self._environment.instance.routes.publish_infos,
                next_queue=random.randrange(1 << 31),
            )
        others = len({queue.broker_name for queue in queues}) > 1
        topic_send.set_queues(info, targets, FIRST_SHARE if others and self._retries else 1)
        return topic_send

    def forget_queues(self) -> None:
        """Brokers have become silent, or answer again."""
        for topic_send in self._topic_sends.values():
            topic_send.forget_queues()
